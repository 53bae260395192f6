"""Who this process is among the ranks, and where tensors lie.

One layout of ranks holds for the whole process, as the published functions have no argument for it:
:func:`setup_dist_util` makes it, the others ask it.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import oneflow as flow
from libai.config.errors import ConfigError
from libai.utils.rank_layout import NO_LAYERS, RankLayout, rank_layout
from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.world import current_world

_TYPES = ("cuda", "cpu", "npu", "xpu")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BatchLayout:
    """How a field of a batch lies, where its parts are read, and where it is needed."""

    sbp: tuple[Any, ...]
    read: flow.placement
    needed: flow.placement


class DistUtil:
    """The layout of ranks of this process, and the device type that tensors lie on."""

    def __init__(self, layout: RankLayout, device_type: str = "cuda", num_layers: int | None = None) -> None:
        self.layout = layout
        self.num_layers = num_layers
        self._placements: dict[tuple[int, str], flow.placement] = {}
        self.batch_layouts: dict[tuple[Any, ...], BatchLayout] = {}
        self.set_device_type(device_type)

    data_parallel_size = property(lambda self: self.layout.data)
    tensor_parallel_size = property(lambda self: self.layout.tensor)
    pipeline_parallel_size = property(lambda self: self.layout.pipeline)
    parallel_size = property(lambda self: self.layout.world)
    device_type = property(lambda self: self._device_type)

    @property
    def pipeline_num_layers(self) -> int:
        """The layers that are shared out to stages; a large number where nothing is."""
        return self.num_layers if self.layout.pipeline > 1 and self.num_layers is not None else NO_LAYERS

    @property
    def data_parallel_rank(self) -> int:
        """Which part of a batch this process reads."""
        return self.layout.data_rank(flow.env.get_rank())

    def set_device_type(self, device_type: str) -> None:
        """The type of device that tensors are laid on from now on."""
        if device_type not in _TYPES:
            raise UnknownDeviceError(f"train.dist.device_type is one of {', '.join(_TYPES)}, got {device_type!r}")
        self._device_type = device_type

    def is_tensor_model_parallel(self) -> bool:
        """Whether layers are cut."""
        return self.layout.tensor > 1

    def is_data_parallel(self) -> bool:
        """Whether batches are cut."""
        return self.layout.data > 1

    def is_pipeline_model_parallel(self) -> bool:
        """Whether the model is cut into stages."""
        return self.layout.pipeline > 1

    def get_layer_stage_id(self, layer_idx: int) -> int:
        """The stage that owns a layer."""
        return self.layout.stage_of(layer_idx)

    def placement_of(self, layer_idx: int, device_type: str) -> flow.placement:
        """Where a layer lies. Every field of every batch asks, so each is made once."""
        found = self._placements.get((layer_idx, device_type))
        if found is None:
            found = self._placements[layer_idx, device_type] = flow.placement(
                device_type, self.get_layer_ranks(layer_idx)
            )
        return found

    def get_layer_ranks(self, layer_idx: int) -> np.ndarray:
        """The ranks of the stage that owns a layer."""
        return self.layout.ranks_of(self.layout.stage_of(layer_idx))


class UnknownDeviceError(ConfigError, NotImplementedError):
    """A type of device that there is not."""


_current: list[DistUtil] = []  # none, or the one of this process


def setup_dist_util(cfg: Mapping[str, Any]) -> DistUtil:
    """Sets the rank layout of this process.

    Args:
        cfg: ``train.dist`` of a config. It is not changed. The data parallel size is the number of ranks divided by the
            other two sizes; a ``data_parallel_size`` above 1 must equal it.

    Returns:
        The layout, which :func:`get_dist_util` returns from now on.

    Raises:
        ConfigError: If the sizes do not fit the number of ranks.
    """
    sizes = {name: cfg.get(f"{name}_parallel_size") for name in ("data", "tensor", "pipeline")}
    layers, custom = cfg.get("pipeline_num_layers"), cfg.get("custom_pipeline_stage_id")
    layout = rank_layout(
        get_world_size(),
        1 if sizes["tensor"] is None else sizes["tensor"],
        1 if sizes["pipeline"] is None else sizes["pipeline"],
        layers,
        None if custom is None else list(custom),
        sizes["data"],
    )
    _current[:] = [DistUtil(layout, cfg.get("device_type") or "cuda", layers)]
    return _current[0]


@contextmanager
def laid_out(cfg: Mapping[str, Any]) -> Iterator[DistUtil]:
    """Within it the layout of ranks is that of ``cfg``; afterwards it is what it was."""
    before = list(_current)
    try:
        yield setup_dist_util(cfg)
    finally:
        _current[:] = before


def get_dist_util() -> DistUtil:
    """The layout of this process; one of data parallel ranks alone if none was set up."""
    if not _current:
        _log.warning(
            "Distributed env is not set up; all ranks are data parallel. Call "
            "libai.utils.distributed.setup_dist_util(cfg.train.dist)"
        )
        setup_dist_util({})
    return _current[0]


def available(device_type: str) -> str:
    """``device_type``, or ``"cpu"`` in place of ``"cuda"`` where there is no GPU. A planned world has all devices."""
    return (
        "cpu"
        if device_type == "cuda" and not torch.cuda.is_available() and not current_world().is_planned
        else device_type
    )


def get_layer_placement(layer_idx: int, device_type: str | None = None) -> flow.placement:
    """Where the stage that owns a layer lies; -1 is the last layer."""
    util = get_dist_util()
    return util.placement_of(layer_idx, available(device_type or util.device_type))


def get_nd_sbp(sbp_list: Sequence[Any]) -> list[Any]:
    """Of the SBP of the data axis and that of the tensor axis, those that this layout has axes for."""
    if len(sbp_list) != 2 or not all(isinstance(sbp, flow.sbp.sbp) for sbp in sbp_list):
        raise ConfigError(
            f"get_nd_sbp takes two SBPs, of the data and of the tensor axis, such as [flow.sbp.split(0), "
            f"flow.sbp.broadcast]; got {sbp_list!r}"
        )
    util = get_dist_util()
    found = [sbp for sbp, is_cut in zip(sbp_list, (util.is_data_parallel(), util.is_tensor_model_parallel())) if is_cut]
    return found or [flow.sbp.broadcast]


def sbp_named(word: str) -> Any:
    """The SBP of a word of a data set: "split_<dim>", "broadcast" or "partial_sum"."""
    head, _, dim = word.partition("_")
    if word in ("broadcast", "partial_sum"):
        return getattr(flow.sbp, word)
    if head == "split" and dim.isdigit():
        return flow.sbp.split(int(dim))
    raise ArgumentError(f"sbp_list has the words 'split_<dim>', 'broadcast' and 'partial_sum', got {word!r}")


def get_batch_layout(sbp_list: Sequence[str], placement_idx: int, device_type: str | None = None) -> BatchLayout:
    """Where and how a field of a batch lies. Every field of every batch asks, so each is worked out once."""
    util = get_dist_util()
    asked = device_type or util.device_type
    key = (*sbp_list, placement_idx, asked, current_world().is_planned)
    found = util.batch_layouts.get(key)
    if found is None:
        device = available(asked)
        sbp = get_nd_sbp([sbp_named(word) for word in sbp_list])
        found = util.batch_layouts[key] = BatchLayout(
            tuple(sbp), util.placement_of(0, device), util.placement_of(placement_idx, device)
        )
    return found


def get_hidden_sbp() -> list[Any]:
    """How activations lie: a part of the batch on every data parallel rank."""
    return get_nd_sbp([flow.sbp.split(0), flow.sbp.broadcast])


def get_data_parallel_rank() -> int:
    """Which part of a batch this process reads."""
    return get_dist_util().data_parallel_rank


def get_data_parallel_size() -> int:
    """Into how many parts batches are cut."""
    return get_dist_util().layout.data


def get_tensor_parallel_size() -> int:
    """Into how many parts layers are cut."""
    return get_dist_util().layout.tensor


def get_pipeline_parallel_size() -> int:
    """How many stages there are."""
    return get_dist_util().layout.pipeline


def same_sbp(lhs_sbp: Sequence[Any], rhs_sbp: Sequence[Any]) -> bool:
    """Whether two signatures of equally many axes are the same."""
    if len(lhs_sbp) != len(rhs_sbp):
        raise ConfigError(f"same_sbp compares signatures of equally many axes, got {len(lhs_sbp)} and {len(rhs_sbp)}")
    return all(left == right for left, right in zip(lhs_sbp, rhs_sbp))


def get_rank() -> int:
    """This process's number, from 0."""
    return flow.env.get_rank()


def get_local_rank() -> int:
    """This process's number on its machine, from 0."""
    return flow.env.get_local_rank()


def is_main_process() -> bool:
    """Whether this is rank 0, which logs and writes."""
    return get_rank() == 0


def is_last_process() -> bool:
    """Whether this is the last rank."""
    return get_rank() == get_world_size() - 1


def get_world_size() -> int:
    """The number of processes."""
    return flow.env.get_world_size()


def get_num_nodes() -> int:
    """The number of machines."""
    return flow.env.get_node_size()


def set_device_type(device_type: str) -> None:
    """The type of device that tensors are laid on from now on."""
    get_dist_util().set_device_type(device_type)


def broadcast_py_object(obj: Any, src: int = 0) -> Any:
    """The object of rank ``src``, on every rank."""
    if get_world_size() == 1:
        return obj
    told = pickle.dumps(obj) if get_rank() == src else b""
    length = torch.tensor([len(told)])
    flow.comm.broadcast(length, src)
    content = (
        torch.frombuffer(bytearray(told), dtype=torch.uint8)
        if get_rank() == src
        else torch.empty(int(length), dtype=torch.uint8)
    )
    flow.comm.broadcast(content, src)
    return obj if get_rank() == src else pickle.loads(content.numpy().tobytes())


def common_seed() -> int:
    """A number that rank 0 has drawn from torch's generator, the same on every rank; all of them come here."""
    number = torch.randint(1 << 62, (1,), device="cpu")
    if get_world_size() > 1 and not current_world().is_planned:
        flow.comm.broadcast(number, 0)
    return int(number)


def convert_to_distributed_default_setting(t: Any) -> Any:
    """A local tensor whole on every rank of the first stage; a global one where it lies, on the device type of the
    layout."""
    device_type = available(get_dist_util().device_type)
    if t.is_global:
        return (
            t
            if t.placement.type == device_type
            else t.to_global(placement=flow.placement(device_type, t.placement.ranks))
        )
    return t.to_global(placement=get_layer_placement(0), sbp=get_nd_sbp([flow.sbp.broadcast, flow.sbp.broadcast]))


def ttol(tensor: Any, pure_local: bool = False, device: str = "cuda", ranks: Any = None) -> Any:
    """The whole of a global tensor as a local one, on the ranks it lies on or on ``ranks``; with ``pure_local`` this
    rank's part. Local tensors stay."""
    if not tensor.is_global:
        return tensor
    if pure_local:
        return tensor.to_local()
    places = tensor.placement.ranks if ranks is None else np.asarray(ranks)
    target = flow.placement(available(device), places)
    return tensor.to_global(placement=target, sbp=[flow.sbp.broadcast] * places.ndim).to_local()


def tton(tensor: Any, local_only: bool = False, ranks: Any = None) -> np.ndarray:
    """:func:`ttol` as an array."""
    return ttol(tensor, pure_local=local_only, device="cpu", ranks=ranks).detach().cpu().numpy()


def tensor_to_rank0(tensor: Any, device: str = "cuda", to_local: bool = False) -> Any:
    """A global tensor whole on rank 0 alone. ``to_local`` gives it as a local tensor, which is empty on other ranks."""
    if not tensor.is_global:
        return tensor
    if to_local and get_world_size() == 1:  # without a copy: every batch of an evaluation comes here
        return tensor.to_local().to(available(device))
    axes = tensor.placement.ranks.ndim
    target = flow.placement(available(device), np.zeros([1] * axes, dtype=np.int64))
    moved = tensor.to_global(placement=target, sbp=[flow.sbp.broadcast] * axes)
    return moved.to_local() if to_local else moved


def synchronize() -> None:
    """Waits until every rank has come here."""
    if get_world_size() > 1:
        flow.comm.barrier()
