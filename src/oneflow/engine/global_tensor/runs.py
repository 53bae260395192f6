"""How a call that is decided on runs: on the parts as they are, on parts that are boxed first, in place, in simpler
ops, or on whole tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from oneflow.engine.global_tensor.constants import local_constants
from oneflow.engine.global_tensor.dispatch import Decisions, version_of
from oneflow.engine.global_tensor.move import Calls, moved, on_every_rank, shares_memory, world_mesh
from oneflow.engine.global_tensor.random import drawn
from oneflow.engine.global_tensor.spec import Spec, fresh
from oneflow.engine.global_tensor.tensor import GlobalTensor, Source
from oneflow.engine.ops.dense_operands import stride_safe
from oneflow.engine.sharding.call import Call, tensors_in, with_tensors
from oneflow.engine.sharding.mesh import Layout, whole_on
from oneflow.engine.sharding.rules.local import RankLocal
from oneflow.engine.sharding.rules.rule import Signature
from oneflow.engine.world import join

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Outs = Any  # a Spec, or a tuple of them with None for what is no tensor


def wrapped(found: Any, outs: Outs) -> Any:
    """Parts as global tensors; none where this rank holds nothing."""
    if isinstance(outs, Spec):
        return GlobalTensor(found, outs)
    if outs is None:
        return None
    values = [None] * len(outs) if found is None else found
    return tuple(None if spec is None else GlobalTensor(value, spec) for value, spec in zip(values, outs))


def as_view(made: Any, decisions: Decisions, func: Any, args: Args, kwargs: Kwargs) -> Any:
    """Notes on the outputs of an op that should share memory with its first argument, and do not, where they come
    from."""
    base = args[0]
    outputs = made if isinstance(made, tuple) else (made,)
    for place, output in enumerate(outputs):
        output._source = Source(
            base, func, args[1:], kwargs, place if isinstance(made, tuple) else None, version_of(base)
        )
    return made


def write_back(value: GlobalTensor) -> None:
    """A view that had to be copied was written: writes it into the tensor that it stands for."""
    source = value._source
    if source is None:
        return
    base, layout = source.base, whole_on(value._spec.layout.mesh)
    whole = moved(base._part, base._spec, layout, "write into a view")
    written = moved(value._part, value._spec, layout, "write into a view")
    if whole is not None:
        assert written is not None and base._part is not None
        whole = in_strides(whole.clone(), base._spec)
        view = source.op(whole, *source.args, **source.kwargs)
        (view if source.place is None else view[source.place]).copy_(written)
    back = moved(whole, base._spec.laid(layout), base._spec.layout, "write into a view")
    if back is not None and base._part is not None:
        base._part.copy_(back)
    source.seen = None
    write_back(base)


def in_strides(whole: torch.Tensor, spec: Spec) -> torch.Tensor:
    """A whole tensor in the strides that the logical one has."""
    return (
        whole
        if whole.stride() == spec.stride
        else torch.empty_strided(spec.shape, spec.stride, dtype=spec.dtype, device=spec.device).copy_(whole)
    )


@dataclass(frozen=True)
class Direct:
    """Every rank calls the op on its parts as they are."""

    func: Any
    out: Spec

    def __call__(self, args: Args, kwargs: Kwargs) -> Any:
        return GlobalTensor(self.func(*[a._part if type(a) is GlobalTensor else a for a in args], **kwargs), self.out)


@dataclass(frozen=True)
class Slot:
    """The place of a tensor among arguments that are known otherwise."""

    place: int


@dataclass(frozen=True)
class Flat:
    """Every rank brings the inputs into the layouts that were chosen and calls one function. ``args`` and ``kwargs``
    are those of its part, with slots for tensors, where they differ from the call's."""

    decisions: Decisions
    func: Any
    function: Any
    boxes: tuple[Layout | None, ...]
    outs: Outs
    is_view: bool
    args: Args | None = None
    kwargs: Kwargs = field(default_factory=dict)

    def __call__(self, args: Args, kwargs: Kwargs) -> Any:
        given: list[Any] = [value for value in args if isinstance(value, torch.Tensor)]
        name = self.func.name() if any(self.boxes) else ""
        parts = [boxed(value, layout, name) for value, layout in zip(given, self.boxes)]
        if self.args is not None:
            found = self.function(*[parts[a.place] if type(a) is Slot else a for a in self.args], **self.kwargs)
        else:
            mine = iter(parts)
            found = self.function(*[next(mine) if isinstance(a, torch.Tensor) else a for a in args], **kwargs)
        made = wrapped(found, self.outs)
        if self.is_view and (
            self.boxes[0] is not None or given[0]._source is not None or self._is_copy(found, parts[0])
        ):
            return as_view(made, self.decisions, self.func, args, kwargs)
        return made

    def _is_copy(self, found: Any, part: Any) -> bool:
        """Whether a part, whose strides may be others than those of the whole, had to be copied where the whole can be
        seen anew."""
        return self.function is not self.func and not shares_memory(found, part)


@dataclass(frozen=True)
class OnParts:
    """Every rank brings the inputs into the layouts that were chosen and does what the signatures say."""

    decisions: Decisions
    call: Call
    chosen: tuple[Signature, ...]
    boxes: tuple[Layout | None, ...]
    outs: Outs
    position: int | None
    is_view: bool
    writes: tuple[int, ...] = ()

    def __call__(self, args: Args, kwargs: Kwargs) -> Any:
        func, name = self.call.op, self.call.op.name()
        given = tensors_in((*args, *kwargs.values()))
        parts = [boxed(value, layout, name) for value, layout in zip(given, self.boxes)]
        found = None
        if self.position is not None:
            mesh = next(spec for spec in _flat(self.outs) if spec is not None).layout.mesh
            mine = iter(parts)
            local_args, local_kwargs = with_tensors((args, kwargs), lambda _: next(mine))
            found = RankLocal(Calls(name), self.call, self.chosen, mesh, self.position).emit(local_args, local_kwargs)
        for place in self.writes:
            written_back(given[place], parts[place], self.boxes[place], name)
        made = wrapped(found, self.outs)
        is_copy = self.boxes[0] is not None or given[0]._source is not None if self.is_view else False
        return as_view(made, self.decisions, func, args, kwargs) if is_copy else made


def _flat(outs: Outs) -> Sequence[Spec | None]:
    return outs if isinstance(outs, tuple) else (outs,)


def boxed(value: Any, layout: Layout | None, name: str) -> torch.Tensor | None:
    """This rank's part of an input, in the layout that an op wants."""
    if type(value) is not GlobalTensor:
        return value
    return value._part if layout is None else moved(value._part, value._spec, layout, name)


def written_back(value: GlobalTensor, part: torch.Tensor | None, layout: Layout | None, name: str) -> None:
    """What an op has written into an input that was boxed for it."""
    if layout is not None:
        back = moved(part, value._spec.laid(layout), value._spec.layout, name)
        if back is not None and value._part is not None and back is not value._part:
            value._part.copy_(back)
    write_back(value)


@dataclass(frozen=True)
class InPlace:
    """The op writes into this rank's part of its first argument, which stays where it is; others are boxed."""

    func: Any
    boxes: tuple[Layout | None, ...]

    def __call__(self, args: Args, kwargs: Kwargs) -> Any:
        given, name = tensors_in((*args, *kwargs.values())), self.func.name()
        parts = [boxed(value, layout, name) for value, layout in zip(given, self.boxes)]
        if args[0]._part is not None:
            mine = iter(parts)
            local_args, local_kwargs = with_tensors((args, kwargs), lambda _: next(mine))
            self.func(*local_args, **local_kwargs)
        if args[0]._source is not None:
            write_back(args[0])
        return args[0]


@dataclass(frozen=True)
class ByResult:
    """An op in place whose result comes in another layout: made as a new tensor, brought into the layout of the first
    argument."""

    decisions: Decisions
    functional: Any

    def __call__(self, args: Args, kwargs: Kwargs) -> Any:
        written_into(args[0], self.decisions.run(self.functional, args, kwargs))
        return args[0]


@dataclass(frozen=True)
class InPlaceView:
    """An op that gives a tensor another shape in place: its part becomes that of the view, and torch is told the
    shape."""

    decisions: Decisions
    func: Any
    functional: Any

    def __call__(self, args: Args, kwargs: Kwargs) -> Any:
        tensor = args[0]
        before = GlobalTensor(tensor._part, tensor._spec)
        before._source = tensor._source
        made = self.decisions.run(self.functional, (before, *args[1:]), kwargs)
        with torch._C._DisableTorchDispatch():
            self.func(*args, **kwargs)
        tensor._part, tensor._spec, tensor._source = made._part, made._spec, made._source
        return tensor


def written_into(target: GlobalTensor, made: GlobalTensor) -> None:
    """Writes a global tensor of the same shape into another one's memory."""
    part = moved(made._part, made._spec, target._spec.layout, "copy_")
    if target._part is not None and part is not None:
        target._part.copy_(part)
    write_back(target)


@dataclass(frozen=True)
class InSimplerOps:
    """The op as torch writes it in simpler ones."""

    decisions: Decisions
    simpler: Callable[..., Any]
    like: Spec

    def __call__(self, args: Args, kwargs: Kwargs) -> Any:
        with local_constants():
            made = self.simpler(*args, **kwargs)
        if isinstance(made, (tuple, list)):
            return tuple(self._global(value) for value in made)
        return self._global(made)

    def _global(self, value: Any) -> Any:
        """What was made of numbers alone is the same on every rank."""
        if isinstance(value, GlobalTensor) or not isinstance(value, torch.Tensor):
            return value
        return GlobalTensor(value, fresh(value.shape, value.dtype, whole_on(self.like.layout.mesh), self.like.device))


@dataclass(frozen=True)
class Gathered:
    """The op on whole tensors, on every rank of the world: what it gives, and how much, depends on values."""

    func: Any
    like: Spec
    writes: tuple[int, ...]
    is_member: bool
    is_random: bool = False

    def __call__(self, args: Args, kwargs: Kwargs) -> Any:
        if self.is_random:  # by one number on all ranks, whatever their generators have given so far
            number = int(drawn(world_mesh(join().size)))
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(number)
                return self._run(args, kwargs)
        return self._run(args, kwargs)

    def _run(self, args: Args, kwargs: Kwargs) -> Any:
        given, name = tensors_in((*args, *kwargs.values())), self.func.name()
        whole = [on_every_rank(v._part, v._spec, name) if type(v) is GlobalTensor else v for v in given]
        mine = iter(whole)
        local_args, local_kwargs = with_tensors((args, kwargs), lambda _: next(mine))
        found = stride_safe(self.func)(*local_args, **local_kwargs)
        for place in self.writes:
            written_back(given[place], whole[place] if self.is_member else None, whole_on(self.like.layout.mesh), name)
        return given[self.writes[0]] if self.writes else self._global(found)

    def _global(self, value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return tuple(self._global(item) for item in value)
        if not isinstance(value, torch.Tensor):
            return value
        spec = fresh(value.shape, value.dtype, whole_on(self.like.layout.mesh), self.like.device)
        return GlobalTensor(value if self.is_member else None, spec)
