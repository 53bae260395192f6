"""What a global tensor has besides what every tensor of torch has, or has otherwise."""

from __future__ import annotations

import sys
import weakref
from functools import partial
from typing import Any

import numpy as np
import torch

import oneflow.engine.collective as collective
from oneflow.engine.core.errors import GlobalTensorError
from oneflow.engine.core.tracebacks import entry
from oneflow.engine.global_tensor.convert import (
    converted,
    device_here,
    from_local,
    gathered,
    given_away,
    gradient_in,
    layout_on,
    relaid,
    to_local,
)
from oneflow.engine.global_tensor.decide import decide
from oneflow.engine.global_tensor.dispatch import Decisions, refresh
from oneflow.engine.global_tensor.mode import is_in_global_mode
from oneflow.engine.global_tensor.placement import placement
from oneflow.engine.global_tensor.sbp import public, sbp
from oneflow.engine.global_tensor.shards import chunks, write_items
from oneflow.engine.global_tensor.spec import Spec, fresh
from oneflow.engine.global_tensor.tensor import GlobalTensor
from oneflow.engine.ops.kernels.counter_random import stable_seed
from oneflow.engine.sharding.mesh import whole_on
from oneflow.engine.world import join
from oneflow.engine.world.order import meet

__all__ = [
    "converted",
    "device_here",
    "from_local",
    "given_away",
    "layout_on",
]  # who takes these from here has global tensors that are complete

DECISIONS: Decisions = Decisions(lambda func, args, kwargs: decide(DECISIONS, func, args, kwargs))


def fresh_part(tensor: Any) -> GlobalTensor:
    """A tensor whose part is what it should be, if it stands for a view of another one."""
    if tensor._source is not None:
        refresh(DECISIONS, tensor)
    return tensor


def _as_its_leaf(leaf: Any, spec: Spec, gradient: Any) -> Any:
    """A gradient as its leaf lies: now, if it is there (its data may have been replaced), else when the gradient was
    asked for."""
    alive = leaf()
    now = spec if alive is None else alive._spec
    return gradient_in(gradient, now.layout, now.device)


def _global_index(tensor: Any, index: Any) -> Any:
    """An index in which lists and arrays, which every rank has, are global tensors as the one that they index."""
    parts = index if isinstance(index, tuple) else (index,)
    if not any(isinstance(part, (list, np.ndarray)) for part in parts):
        return index
    made = tuple(_spread(tensor._spec, part) if isinstance(part, (list, np.ndarray)) else part for part in parts)
    return made if isinstance(index, tuple) else made[0]


def _spread(spec: Spec, values: Any) -> GlobalTensor:
    found = torch.as_tensor(values, dtype=None if len(values) else torch.int64, device=spec.device)
    layout = whole_on(spec.layout.mesh)
    return GlobalTensor(
        None if layout.mesh.position(join().rank) is None else found,
        fresh(found.shape, found.dtype, layout, spec.device),
    )


class Members:
    """The members of ``GlobalTensor``; ``self`` is one."""

    _spec: Any
    _part: Any
    grad: Any
    grad_fn: Any
    is_leaf: bool
    detach: Any
    dim: Any
    _source: Any
    is_global = property(lambda self: True)
    is_local = property(lambda self: False)
    is_consistent = property(lambda self: True)

    @property
    def placement(self) -> placement:
        return placement.of(self._spec.device.type, self._spec.layout.mesh)

    @property
    def sbp(self) -> tuple[sbp, ...]:
        return tuple(map(public, self._spec.sbp))

    @property
    def device(self) -> torch.device:
        """Only torch's own code may ask: a global tensor lies on many devices."""
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if is_in_global_mode() or caller.partition(".")[0] in ("torch", "oneflow"):
            return self._spec.device
        raise GlobalTensorError("Only local tensors have 'device'. Please use 'placement' for global tensors.")

    @entry
    def to_global(
        self,
        placement: Any = None,
        sbp: Any = None,
        *,
        grad_sbp: Any = None,
        check_meta: bool = False,
        copy: bool = False,
    ) -> Any:
        """The same logical tensor on another placement, in another layout, or both; what is not given stays.
        ``grad_sbp`` is how its gradient is laid before it goes on backwards. All ranks of both placements call this."""
        if placement is None and sbp is None and grad_sbp is None and not copy:
            raise GlobalTensorError("to_global of a global tensor takes a placement, an sbp, or both")
        if check_meta:
            self.check_meta_consistency()
        made = relaid(fresh_part(self), placement, sbp, grad_sbp)
        return made.clone() if copy and made is self else made

    global_to_global = to_global
    to_consistent = to_global

    def local_to_global(self, *args: Any, **kwargs: Any) -> Any:
        raise GlobalTensorError(
            "local_to_global is for local tensors; this one is global, use global_to_global or to_global"
        )

    def to_local(self, *, copy: bool = False) -> torch.Tensor:
        """This rank's part: of a partial sum its own term, outside the placement an empty tensor."""
        local = to_local(fresh_part(self))
        return local.clone() if copy else local

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """The logical tensor as an array of its own, on every rank; all ranks of the world call this. A tensor that
        requires a gradient may be asked too, as with OneFlow: nobody writes into its memory through a copy."""
        return gathered(fresh_part(self), "numpy").cpu().numpy()

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        found = self.numpy()
        return found if dtype is None else found.astype(dtype)

    def __getitem__(self, index: Any) -> Any:
        return torch.Tensor.__getitem__(self, _global_index(self, index))  # type: ignore[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        torch.Tensor.__setitem__(self, _global_index(self, index), value)  # type: ignore[index]

    def item(self) -> Any:
        """The only element, on every rank; all ranks of the world call this."""
        part = self._part
        if part is None or self._source is not None or part.is_meta or join().size > 1:
            return torch.Tensor.item(self)  # type: ignore[arg-type]
        return part.item()

    def tolist(self) -> Any:
        """The logical tensor as numbers in lists, on every rank; all ranks of the world call this."""
        return gathered(fresh_part(self), "tolist").tolist()

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        """The logical tensor, gathered: all ranks of the world print together, or wait for each other."""
        whole = gathered(fresh_part(self), "print")
        text = repr(whole).rpartition(f", dtype={whole.dtype}")[0] or repr(whole)[:-1]
        dtype = str(whole.dtype).replace("torch.", "oneflow.")
        grad = (
            f", grad_fn=<{type(self.grad_fn).__name__}>"
            if self.grad_fn is not None
            else ", requires_grad=True"
            if self.requires_grad
            else ""
        )
        return f"{text}, placement={self.placement}, sbp={self.sbp}, dtype={dtype}{grad})"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return self.item().__format__(spec) if self.dim() == 0 else object.__format__(str(self), spec)

    # ------------------------------------------------------------------ leaves

    @property
    def requires_grad(self) -> bool:
        return torch.Tensor.requires_grad.__get__(self)  # type: ignore[attr-defined]

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Gradients of a leaf come in its own layout, each before it is added to the others."""
        torch.Tensor.requires_grad_(self, requires_grad)  # type: ignore[arg-type]
        if requires_grad and self.is_leaf and "_gradient_hook" not in self.__dict__:
            self._gradient_hook = torch.Tensor.register_hook(self, partial(_as_its_leaf, weakref.ref(self), self._spec))  # type: ignore[arg-type]
        return self

    @property
    def data(self) -> Any:
        return torch.Tensor.data.__get__(self)  # type: ignore[attr-defined]

    @data.setter
    def data(self, value: Any) -> None:
        if not isinstance(value, GlobalTensor) or (value._spec.shape, value._spec.dtype) != (
            self._spec.shape,
            self._spec.dtype,
        ):
            raise GlobalTensorError("the data of a global tensor is another global tensor of its shape and dtype")
        self._part, self._spec = fresh_part(value)._part, value._spec

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the "
                "moment."
            )
        with torch.no_grad():
            made = self.detach().clone()
        is_parameter = isinstance(self, torch.nn.Parameter)
        copied = (
            torch.nn.Parameter(made, self.requires_grad) if is_parameter else made.requires_grad_(self.requires_grad)
        )
        memo[id(self)] = copied
        if self.grad is not None:
            copied.grad = self.grad.__deepcopy__(memo)
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise GlobalTensorError(
            "a global tensor lies on many ranks and is not pickled by one of them; save it with flow.save(..., "
            "global_dst_rank=0), or to_local() first"
        )

    # ------------------------------------------------------------------ blocks in checkpoints of torch

    def __create_write_items__(self, fqn: str, object: Any) -> list[Any]:
        return write_items(fqn, self._spec, fresh_part(self)._part)

    def __create_chunk_list__(self) -> list[Any]:
        return chunks(self._spec)

    def __get_tensor_shard__(self, index: Any) -> Any:
        return fresh_part(self)._part

    # ------------------------------------------------------------------ checks

    def global_id(self) -> int:
        """A number that no other global tensor alive on this rank has."""
        return id(self)

    def check_meta_consistency(self) -> None:
        """Refuses a tensor whose shape, dtype, placement or SBP the ranks see differently; all ranks of the world call
        this."""
        spec, world = self._spec, join()
        if world.size == 1:
            return
        mine = stable_seed(spec.shape, spec.dtype, spec.layout, spec.device.type)
        with meet("check_meta_consistency", world.ranks):
            found = collective.all_gather(torch.tensor([mine]), world.ranks).view(-1).tolist()
        if len(set(found)) > 1:
            different = [rank for rank, number in enumerate(found) if number != mine]
            raise GlobalTensorError(
                f"ranks {different} see another shape, dtype, placement or SBP than this one: {spec.shape}, "
                f"{spec.dtype}, {spec.layout}"
            )


def complete() -> None:
    """Gives ``GlobalTensor`` its members and its dispatch."""
    for name, member in vars(Members).items():
        if name not in (
            "__module__",
            "__doc__",
            "__dict__",
            "__weakref__",
            "__annotations__",
            "__qualname__",
            "__static_attributes__",
            "__firstlineno__",
        ):
            setattr(GlobalTensor, name, member)
    GlobalTensor.run = staticmethod(DECISIONS.run)


complete()
