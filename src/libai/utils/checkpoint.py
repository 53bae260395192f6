"""Checkpoints of a run.

    <output_dir>/last_checkpoint            the name of the newest
    <output_dir>/model_0000019/model/       the weights after iteration 19, as ``flow.save`` writes them; so are
                               graph/       what the graph keeps: the optimizer's states, its step, its loss scale (optimizer/ without a graph)
                               lr_scheduler/
                               trainer/     iteration and samples, and the best value of the metric
    <output_dir>/model_best, model_final

A checkpoint is written beside its place under a hidden name and renamed: a folder with one of these names is whole.
Tensors are gathered to rank 0 one by one, so a checkpoint does not know on how many ranks it was made, and is read on
any.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import oneflow as flow
from libai.utils import distributed as dist
from libai.utils.whole_file import write_whole
from oneflow import nn
from oneflow.engine.checkpoint.writing import put_in_place, sync_folder
from oneflow.engine.core.errors import CheckpointError, nearest

_log = logging.getLogger(__name__)
LAST = "last_checkpoint"
BEST = "model_best"
_PERIODIC = re.compile(r"_(\d{7,})$")
_OTHER_SHAPE = (
    "{!r} cannot be resumed: {!r} is {} there and {} in the model. Resume with the model's config as it was. A "
    "vocabulary is rounded up to a multiple of "
    "tokenization.make_vocab_size_divisible_by x train.dist.tensor_parallel_size: with another number of ranks set the "
    "former so that it comes out the same"
)


class Checkpointer:
    """Saves and loads a model, and other objects by their ``state_dict`` and ``load_state_dict``, in folders of
    ``save_dir``.

    All ranks call ``save`` and ``load``; rank 0 reads and writes. ``save_to_disk=False`` only goes through the motions.
    """

    def __init__(
        self, model: nn.Module, save_dir: str = "", *, save_to_disk: bool = True, **checkpointables: Any
    ) -> None:
        for name, value in checkpointables.items():
            if not hasattr(value, "state_dict") or not hasattr(value, "load_state_dict"):
                raise CheckpointError(
                    f"{name}={type(value).__name__} cannot be saved: it needs state_dict() and load_state_dict()"
                )
        self.model = model
        self.checkpointables = dict(checkpointables)
        self.save_dir = save_dir
        self.save_to_disk = save_to_disk

    # ------------------------------------------------------------------------------------------------------------
    # saving

    def save(self, name: str, **kwargs: Any) -> None:
        """Writes the folder ``name``, replacing one of that name once it is whole, and notes it as the last unless it
        is the best. ``kwargs`` are plain values or objects that are saved as well; ``iteration`` goes into
        ``trainer``."""
        if not self.save_dir or not self.save_to_disk:
            return
        target = Path(self.save_dir, name)
        hidden = target.with_name(f".{name}.tmp")
        content = {
            "model": self._weights(),
            **{key: _state_of(key, value) for key, value in self.checkpointables.items()},
        }
        iteration = kwargs.pop("iteration", None)
        if iteration is not None:
            content["trainer"] = {**content.get("trainer", {}), "iteration": iteration}
        content |= {key: value.state_dict() if hasattr(value, "state_dict") else value for key, value in kwargs.items()}
        _log.info("Saving checkpoint to %s", target)
        _on_rank_0(lambda: _make_empty(hidden), target)
        try:
            for key, state in content.items():
                _write(state, hidden / key)
            _on_rank_0(lambda: _put(hidden, target), target)
        except CheckpointError as error:
            _on_rank_0(lambda: shutil.rmtree(hidden, ignore_errors=True), target)
            kept = f"; {self._last_name()!r} is whole" if self._last_name() else ""
            raise CheckpointError(f"checkpoint {str(target)!r} was not written: {error.reason}{kept}") from None
        if name != BEST:
            self.tag_last_checkpoint(name)

    def save_part(self, name: str, key: str, **kwargs: Any) -> None:
        """Replaces one object of a checkpoint by what it is now; ``kwargs`` are added to it."""
        path = Path(self.save_dir, name, key)
        if self.save_dir and self.save_to_disk and dist.broadcast_py_object(path.is_dir()):
            _write({**_state_of(key, self.checkpointables[key]), **kwargs}, path)

    def tag_last_checkpoint(self, last_filename_basename: str) -> None:
        """Notes which checkpoint is the last."""
        _on_rank_0(lambda: write_whole(Path(self.save_dir, LAST), last_filename_basename), Path(self.save_dir, LAST))

    def _weights(self) -> Mapping[str, Any]:
        return self.model.state_dict()

    # -----------------------------------------------------------------------------------------------------------
    # loading

    def has_checkpoint(self) -> bool:
        """Whether a last checkpoint is noted."""
        return self._last_name() != ""

    def get_checkpoint_file(self) -> str:
        """The folder of the last checkpoint; "" if none is noted."""
        name = self._last_name()
        return os.path.join(self.save_dir, name) if name else ""

    def _last_name(self) -> str:
        try:
            return Path(self.save_dir, LAST).read_text(encoding="utf-8").strip()
        except (FileNotFoundError, NotADirectoryError):
            return ""

    def resume_or_load(self, path: str, *, resume: bool = True) -> dict[str, Any]:
        """The whole of the last checkpoint if there is one and ``resume``; else the weights in the folder ``path``."""
        if resume and self.has_checkpoint():
            return self._loaded(Path(self.get_checkpoint_file()), None, must_fit=True)
        return self.load(path, checkpointables=[])

    def load(self, path: str, checkpointables: Iterable[str] | None = None) -> dict[str, Any]:
        """Loads the weights, and the objects that are named, all if none are. Returns what nobody asked for, and
        ``iter``, the iteration in the folder's name.

        Weights that the model has not, or that have another shape, are named in a warning and left out.
        """
        if not path:
            _log.info("No checkpoint found. Training model from scratch")
            return {}
        return self._loaded(Path(path), checkpointables)

    def _loaded(self, folder: Path, checkpointables: Iterable[str] | None, must_fit: bool = False) -> dict[str, Any]:
        _log.info("Loading checkpoint from %s", folder)
        content = self._read(folder)
        self._load_model(content.pop("model"), folder, must_fit)
        for key in self.checkpointables if checkpointables is None else checkpointables:
            if key in content:
                _log.info("Loading %s from %s", key, folder)
                _load_state(key, self.checkpointables[key], content.pop(key))
            elif key != "trainer":  # LiBai's own have none
                self._require(key, content, folder)
        content["iter"] = self._iteration_of(folder)
        return content

    def _require(self, key: str, content: Mapping[str, Any], folder: Path) -> None:
        other = {"graph": "optimizer", "optimizer": "graph"}.get(key)
        if other in content:
            said = "false" if key == "graph" else "true"
            raise CheckpointError(
                f"{str(folder)!r} was saved with graph.enabled={said}: it has {other!r} and no {key!r}. Resume with "
                f"the same setting"
            )
        _log.warning("%s has no %r; it starts anew", folder, key)

    @staticmethod
    def _iteration_of(folder: Path) -> int:
        found = _PERIODIC.search(folder.name)
        if found is None:
            _log.info("%s has no iteration in its name: it is taken as 0", folder.name)
        return int(found[1]) if found else 0

    def _read(self, folder: Path) -> dict[str, Any]:
        """What the folder holds, by name; a folder of weights alone, as ``flow.save`` has written it, is taken as those
        of the model."""
        names = dist.broadcast_py_object(_entries(folder) if dist.is_main_process() else None)
        if isinstance(names, str):
            raise CheckpointError(names)
        reader = self._reader()
        if names is None:
            return {"model": flow.load(folder, global_src_rank=reader)}
        wanted = [name for name in names if name == "model" or name in self.checkpointables]
        content: dict[str, Any] = {name: flow.load(folder / name, global_src_rank=reader) for name in wanted}
        return content | {name: None for name in names if name not in content}

    def _reader(self) -> int | None:
        """The rank that reads for all, which makes global tensors; None for a local model in a process alone, which
        takes local ones."""
        is_alone = dist.get_world_size() == 1 and not any(value.is_global for value in self.model.state_dict().values())
        return None if is_alone else 0

    def _load_model(self, state: Mapping[str, Any], folder: Path, must_fit: bool) -> None:
        own = self.model.state_dict()
        if state and all(name.startswith("module.") for name in state):
            state = {name.removeprefix("module."): value for name, value in state.items()}
        fitting: dict[str, Any] = {}
        for name, value in state.items():
            if name in own and own[name].shape != value.shape:
                if must_fit:
                    raise CheckpointError(
                        _OTHER_SHAPE.format(str(folder), name, tuple(value.shape), tuple(own[name].shape))
                    )
                _log.warning(
                    "Skip loading parameter %r to the model due to incompatible shapes: %s in the checkpoint but %s in "
                    "the model! You might want to "
                    "double check if this is expected.", name, tuple(value.shape), tuple(own[name].shape),
                )  # fmt: skip
            else:
                fitting[name] = laid_as(value, own[name]) if name in own else value
        missing, unexpected = self.model.load_state_dict(fitting, strict=False)
        if own and not set(own) & set(fitting):
            raise CheckpointError(
                f"{str(folder)!r} has no weight of {type(self.model).__name__}: it has {', '.join(list(state)[:5])} ..."
            )
        if missing:
            _log.warning(get_missing_parameters_message(missing))
        if unexpected:
            _log.warning(get_unexpected_parameters_message(unexpected))


class PeriodicCheckpointer:
    """Saves ``<file_prefix>_<iteration>`` every ``period`` iterations, never if that is 0, keeps the newest
    ``max_to_keep`` of them, and saves ``<file_prefix>_final`` at the end of ``max_iter``."""

    def __init__(
        self,
        checkpointer: Checkpointer,
        period: int,
        max_iter: int | None = None,
        max_to_keep: int | None = None,
        file_prefix: str = "model",
    ) -> None:
        if max_to_keep is not None and max_to_keep < 1:
            raise CheckpointError(
                f"max_to_keep is the number of checkpoints that stay, from 1 on, or None for all; got {max_to_keep}"
            )
        self.checkpointer = checkpointer
        self.period = int(period)
        self.max_iter = max_iter
        self.max_to_keep = max_to_keep
        self.file_prefix = file_prefix
        self.recent: list[str] = []

    @property
    def final_name(self) -> str | None:
        """The name of the checkpoint at the end of the run; None for none."""
        return f"{self.file_prefix}_final"

    def name_of(self, iteration: int) -> str:
        """The checkpoint after an iteration."""
        return f"{self.file_prefix}_{iteration:07d}"

    def iteration_of(self, name: str) -> int | None:
        """What :meth:`name_of` has made a name of; None for other names."""
        found = re.fullmatch(rf"{re.escape(self.file_prefix)}_(\d{{7,}})", name)
        return int(found[1]) if found else None

    def adopt(self, before: int) -> None:
        """Counts the checkpoints of this run that an earlier process has saved, up to iteration ``before``."""
        folder = Path(self.checkpointer.save_dir)
        if dist.is_main_process() and folder.is_dir():
            for left in [*folder.glob(".*.tmp"), *folder.glob(".*.old")]:  # of a process that was killed
                shutil.rmtree(left, ignore_errors=True)
        there = [(self.iteration_of(path.name), path.name) for path in folder.iterdir()] if folder.is_dir() else []
        self.recent = [
            name for iteration, name in sorted((i, name) for i, name in there if i is not None) if iteration < before
        ]

    def step(self, iteration: int, **kwargs: Any) -> None:
        """Saves what is due. Call it after each iteration."""
        if self.period > 0 and (iteration + 1) % self.period == 0:
            self.save_now(iteration, **kwargs)
        if self.max_iter is not None and iteration >= self.max_iter - 1:
            self.save_final(iteration, **kwargs)

    def save_final(self, iteration: int, **kwargs: Any) -> None:
        """Saves ``final_name``, the checkpoint after the last iteration."""
        if self.final_name is not None:
            self.checkpointer.save(self.final_name, iteration=iteration, **kwargs)

    def save_now(self, iteration: int, **kwargs: Any) -> str:
        """Saves after this iteration, unless that was done, and removes what is too old. Gives the name."""
        name = self.name_of(iteration)
        if name not in self.recent:
            self.checkpointer.save(name, iteration=iteration, **kwargs)
            self.recent.append(name)
        while self.max_to_keep is not None and len(self.recent) > self.max_to_keep:
            oldest = Path(self.checkpointer.save_dir, self.recent.pop(0))
            if dist.is_main_process():
                _remove(oldest)
        return name

    def save(self, name: str, **kwargs: Any) -> None:
        """Saves under any name."""
        self.checkpointer.save(name, **kwargs)


def get_missing_parameters_message(keys: Iterable[str]) -> str:
    """What a model has and a checkpoint has not."""
    return "Some model parameters or buffers are not found in the checkpoint:\n" + _grouped(keys)


def get_unexpected_parameters_message(keys: Iterable[str]) -> str:
    """What a checkpoint has and a model has not."""
    return "The checkpoint state_dict contains keys that are not used by the model:\n" + _grouped(keys)


def _grouped(keys: Iterable[str]) -> str:
    """Keys by the module they belong to: ``  encoder.0.{bias, weight}``."""
    groups: dict[str, list[str]] = {}
    for key in keys:
        module, _, leaf = key.rpartition(".")
        groups.setdefault(module, []).append(leaf)
    lines = [
        f"{module}.{{{', '.join(leaves)}}}" if len(leaves) > 1 else ".".join(filter(None, (module, leaves[0])))
        for module, leaves in groups.items()
    ]
    return "\n".join(f"  {line}" for line in lines)


def laid_as(value: Any, like: Any) -> Any:
    """A loaded tensor as the one that it is copied into: on its ranks and in its layout, or local."""
    if like.is_global:
        whole = (
            value
            if value.is_global
            else value.to_global(like.placement, [flow.sbp.broadcast] * like.placement.ranks.ndim)
        )
        return whole.to_global(placement=like.placement, sbp=like.sbp)
    return dist.ttol(value, device="cpu", ranks=list(range(dist.get_world_size()))) if value.is_global else value


# ---------------------------------------------------------------------------------------------------------- one object


def _state_of(key: str, value: Any) -> Any:
    """What is saved of an object. A graph's state has the weights too; those are in ``model`` already."""
    state = value.state_dict()
    return {name: inner for name, inner in state.items() if not isinstance(inner, Mapping)} if key == "graph" else state


def _load_state(key: str, value: Any, state: Any) -> None:
    if key == "graph":
        own = {
            name: inner for name, inner in state.items() if not isinstance(inner, Mapping)
        }  # LiBai's own have the weights once more
        value.load_state_dict(own, strict=False)
    elif key == "optimizer":
        value.load_state_dict(_optimizer_state(state, value))
    else:
        value.load_state_dict(state)


def _optimizer_state(state: Mapping[str, Any], optimizer: Any) -> dict[str, Any]:
    """The state of an optimizer as ours has it; OneFlow's has the options of a group inside one more dictionary, and
    one counter for all. Tensors are laid as their parameters."""
    kept, groups = dict(state["state"]), [dict(group) for group in state["param_groups"]]
    count = kept.pop("step", None)
    for group in groups:
        options = group.pop("_options", None)
        group.pop("_enable_clip_grad", None)
        if options is not None:
            group |= options
        if count is not None:
            group["step"] = int(count)
    ordered = [p for group in optimizer.param_groups for p in group["params"]]
    if len(ordered) != sum(len(group["params"]) for group in groups):
        raise CheckpointError(
            f"the checkpoint's optimizer has {sum(len(g['params']) for g in groups)} parameters, this one has "
            f"{len(ordered)}"
        )
    laid = {}
    for index, states in kept.items():
        laid[index] = {
            _SUFFIXES.get(name, name): _laid_if_alike(value, ordered[index]) for name, value in states.items()
        }
    return {"state": laid, "param_groups": groups}


# What OneFlow calls the states of eager optimizers, and what ours are called.
_SUFFIXES = {"exp_avg": "m", "exp_avg_sq": "v", "max_exp_avg_sq": "max_v", "momentum_buf": "momentum_buffer"}


def _laid_if_alike(value: Any, parameter: Any) -> Any:
    return laid_as(value, parameter) if isinstance(value, flow.Tensor) and value.shape == parameter.shape else value


def _write(state: Any, path: Path) -> None:
    """Saves one object; of tensors that are not global each rank has the same."""
    everywhere = flow.placement.all("cpu")
    flow.save(_all_global(state, everywhere), path, global_dst_rank=0)


def _all_global(state: Any, everywhere: Any) -> Any:
    is_tensor: bool = flow.is_tensor(state)
    if is_tensor:
        return state if state.is_global else state.detach().cpu().to_global(everywhere, flow.sbp.broadcast)
    if isinstance(state, Mapping):
        return {key: _all_global(value, everywhere) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(_all_global(value, everywhere) for value in state) if type(state) in (list, tuple) else state
    return state


# ---------------------------------------------------------------------------------------------------------------
# folders


def _on_rank_0(act: Any, path: Path) -> None:
    """Does something with files on rank 0; an error there is one of all ranks."""
    failed = None
    if dist.is_main_process():
        try:
            act()
        except OSError as error:
            failed = f"cannot write {str(path)!r}: {error.strerror}"
    failed = dist.broadcast_py_object(failed)
    if failed:
        raise CheckpointError(failed)


def _make_empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # what a process that was killed has left
    folder.mkdir(parents=True)


def _put(hidden: Path, target: Path) -> None:
    put_in_place(hidden, target)
    sync_folder(target.parent)
    shutil.rmtree(hidden, ignore_errors=True)  # the one that it has replaced


def _remove(folder: Path) -> None:
    """Removes a checkpoint; one that is half removed has no name of a checkpoint."""
    hidden = folder.with_name(f".{folder.name}.old")
    try:
        os.rename(folder, hidden)
    except FileNotFoundError:  # somebody else has removed it
        return
    shutil.rmtree(hidden, ignore_errors=True)


def _entries(folder: Path) -> list[str] | None | str:
    """The names in a checkpoint; None for a folder of weights alone; text that says what is wrong."""
    if not folder.is_dir():
        there = [path.name for path in folder.parent.iterdir()] if folder.parent.is_dir() else []
        return f"there is no checkpoint {str(folder)!r}: train.load_weight is the folder of one.{nearest(folder.name, there)}"
    if (folder / "pickled_data").exists():
        return None
    names = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if "model" not in names:
        return f"{str(folder)!r} is no checkpoint: it has no folder 'model', but {', '.join(names) or 'nothing'}"
    return names
