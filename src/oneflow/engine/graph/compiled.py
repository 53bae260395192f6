"""One compiled step of a graph: for one structure of arguments, and one set of shapes, dtypes and devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

import oneflow.engine.collective as collective
from oneflow.engine.assignment.auto import AutoParallel
from oneflow.engine.assignment.distribute import Assigned, Spread, distribute
from oneflow.engine.assignment.storage import update_layout
from oneflow.engine.capture.joint import Like
from oneflow.engine.capture.module_joint import AddFeed, ModuleStep, TracedStep, Where, trace_step
from oneflow.engine.capture.stand_in import forget_traced, standing_in
from oneflow.engine.core import dtype as dtypes
from oneflow.engine.core.errors import GraphError, UnsupportedError
from oneflow.engine.core.fusion_setting import uses_native_kernels
from oneflow.engine.core.spec import TensorSpec
from oneflow.engine.core.variable import VariableDecl
from oneflow.engine.global_tensor.building import Building, building
from oneflow.engine.global_tensor.placement import placement
from oneflow.engine.global_tensor.tensor import GlobalTensor
from oneflow.engine.graph.agreement import agreed, common_seed, told_plan
from oneflow.engine.graph.auto import auto_parallel, spread_modules, told_inputs
from oneflow.engine.graph.definition import Definition
from oneflow.engine.graph.fusion import FUSION
from oneflow.engine.graph.on_ranks import (
    OnRanks,
    Parts,
    ReadParts,
    devices_of,
    lay_out,
    layout_given,
    like,
    parts_of,
    ranks_of,
    stages_of,
    traced_on,
)
from oneflow.engine.graph.optimizers import graph_optimizer, states_of
from oneflow.engine.graph.sources import Sources, refuse_held
from oneflow.engine.graph.structure import Call, Returned, returned_by
from oneflow.engine.graph.variables import variables_of
from oneflow.engine.graph.watched import Watched, can_watch
from oneflow.engine.graph.whereabouts import Whereabouts
from oneflow.engine.lowering.groups import process_groups
from oneflow.engine.ops.kernels.counter_random import stable_seed
from oneflow.engine.passes.pipeline import compile_rank
from oneflow.engine.program.program import Program
from oneflow.engine.program.step_decl import FeedDecl, StepDecl
from oneflow.engine.sharding.mesh import Layout, Mesh, whole_on
from oneflow.engine.step.executor import Executor
from oneflow.engine.step.rank_variables import RankVariables
from oneflow.engine.step.step_clock import RunningScale, StepClock
from oneflow.engine.world import current_world, join
from oneflow.initializer import empty_initializer
from oneflow.optimizer.optimizers import Optimizer
from oneflow.optimizer.training import Training

_ALONE = whole_on(Mesh((0,), (1,)))


@dataclass(frozen=True)
class Captured:
    """What tracing a graph's ``build`` gave: the joint graph and its declaration, how results are nested, and the
    tensors of its variables. It is fed with the tensors of a call, then with those that data modules read. A graph of
    global tensors runs ``on`` their ranks."""

    traced: TracedStep
    decl: StepDecl
    returned: Returned
    tensors: dict[str, Tensor]
    device: torch.device
    on: OnRanks | None = None
    search: Callable[[Mapping[str, Layout]], AutoParallel | None] = lambda layouts: None

    def assigned(self) -> Assigned:
        """The step on one device, or on the ranks of its global tensors."""
        if self.on is None:
            return distribute(
                self.decl, self.traced.joint, Spread({(0, 0): 0}, dict.fromkeys(self.decl.decls, _ALONE), self.device)
            )
        layouts = self.layouts()
        return distribute(self.decl, self.traced.joint, self.on.spread(layouts, self.search(layouts)))

    def layouts(self) -> dict[str, Layout]:
        """How the variables of a graph of global tensors lie; those that are local each rank has whole."""
        assert self.on is not None
        given = {name: layout_given(self.tensors[name]) or whole_on(self.on.mesh) for name in self.decl.decls}
        training = self.decl.training
        if training is not None and training.splits_variables:
            given |= {
                name: update_layout(training, self.decl.decls[name].spec, given[name])
                for name in self.traced.joint.trained
            }
        return given


def capture(graph: Definition, call: Call, sources: Sources, seed: int | None = None) -> Captured:
    """Traces ``build`` on one micro-batch of a call's arguments; what data modules do in it goes to ``sources``. Random
    ops draw from ``seed``, that of the graph if it is not given."""
    modules, count = graph.modules, _count(graph)
    variables = variables_of(modules)
    names = {id(tensor): name for name, tensor in variables.items()}
    on = ranks_of(
        graph.name, variables, call.tensors, stages_of(modules, graph.settings), takes_local=graph.config.auto_parallel
    )
    whereabouts = Whereabouts(
        modules,
        graph.name,
        graph.settings,
        {} if on is None else {key: devices_of(place) for key, place in on.stages.items()},
    )
    stand_ins = None if on is None else Building(on.places, lambda: _place_of(on, whereabouts.here()))
    optimizer = graph_optimizer(graph.added, names, int(graph.step[0])) if graph.added else None
    device = _device(variables, call)
    if optimizer is not None:
        _require_dense(modules)
    if graph.config.amp_dtype is None:
        refuse_autocast(graph.name, device.type)
    trained = {
        name
        for name, tensor in variables.items()
        if tensor.requires_grad and optimizer is not None and optimizer.selects(name)
    }
    found: list[Returned] = []

    def run(values: dict[str, Tensor], feeds: list[Tensor], add_feed: AddFeed) -> list[Tensor]:
        args, kwargs = call.arguments(feeds)
        before = dict(graph.attributes)
        if stand_ins is not None:
            _note_layouts(stand_ins, [*values.values(), *feeds], [*variables.values(), *call.tensors])
        with standing_in(modules, names, values), sources.recorded(add_feed), building(stand_ins):
            found.append(returned_by(graph.build(*args, **kwargs)))
        forget_traced(graph.attributes, before)
        refuse_held(found[-1].leaves)
        return found[-1].tensors()

    scale = graph.loss_scale
    with whereabouts:
        traced = trace_step(
            ModuleStep(
                name=graph.name,
                variables={name: like(tensor) for name, tensor in variables.items()},
                feeds=_first_micro_batch(call.tensors, count),
                run=run,
                where=whereabouts.here if stand_ins is None else lambda: _here(stand_ins, whereabouts.here()),
                device=device,
                trained=frozenset(trained),
                loss_scale=None if scale.is_dynamic else scale.initial,
                micro_batches=count,
                draws_from=own_seed(graph) if seed is None else seed,
                autocast=_autocast(graph.config.amp_dtype, device),
            )
        )
    found[-1].require_plain()
    if optimizer is not None and not traced.joint.trained:
        raise GraphError(
            f"{graph.name} has an optimizer, but build() calls backward() of no loss that depends on its parameters; "
            f"call loss.backward() in build()"
        )
    tensors = {**variables, **traced.constants}
    decl = StepDecl(
        graph.name,
        {name: _decl(name, tensor) for name, tensor in tensors.items()},
        _feeds(call, sources),
        None if optimizer is None else _training(graph, optimizer),
        placement=None if on is None else devices_of(on.places[0]),
        loss_line=traced.loss_line,
        keeps_parts=on is not None,
        buckets=FUSION.limits(),
        fusion=graph.config.fusion,
    )
    return Captured(
        traced,
        decl,
        found[-1],
        tensors,
        device,
        on,
        lambda layouts: auto_parallel(graph, layouts, variables, call.tensors),
    )


def own_seed(graph: Definition) -> int:
    """The seed of a graph's random ops: it follows from the seed of the process, and not from what other graphs there
    are."""
    return stable_seed(torch.initial_seed(), graph.kind)


def _training(graph: Definition, optimizer: Optimizer) -> Training:
    config = graph.config
    return Training(
        optimizer,
        graph.loss_scale,
        _count(graph),
        lambda decl: (0.0, 0.0),
        split_states_from=config.shard_min_size if config.zero_stage else None,
        splits_variables=config.zero_stage == 3,
    )


def _note_layouts(stand_ins: Building, traced: Sequence[Tensor], given: Sequence[Tensor]) -> None:
    for tensor, real in zip(traced, given):
        layout = layout_given(real)
        if layout is not None:
            stand_ins.note(tensor, real.placement, layout.sbp)  # type: ignore[attr-defined]


def _here(stand_ins: Building, where: Where) -> Where:
    """Where what is traced runs: where it is being moved to, if it is."""
    return where if stand_ins.moves_to is None else replace(where, placement=devices_of(stand_ins.moves_to))


def _place_of(on: OnRanks, where: Where) -> placement | None:
    """The placement of the stage that the user's code is in."""
    return next((place for place in on.places if devices_of(place) == where.placement), None)


def _count(graph: Definition) -> int:
    """How many micro-batches a call has: a graph that does not train has no gradients to add up."""
    return graph.config.micro_batches if graph.added else 1


def _device(variables: dict[str, Tensor], call: Call) -> torch.device:
    """Where a graph runs: where its variables and inputs lie, which is one device."""
    found = dict.fromkeys(tensor.device for tensor in (*variables.values(), *call.tensors))
    known = [device for device in found if device.type != "meta"]
    if len(known if current_world().is_planned else found) > 1:
        raise GraphError(
            f"the parameters and inputs of a graph lie on one device, these lie on {', '.join(map(str, found))}; move "
            f"the module and the inputs with .to(device)"
        )
    return traced_on(known[0] if known else torch.device("cpu"))


def _require_dense(modules: Mapping[str, nn.Module]) -> None:
    for prefix, whole in modules.items():
        for path, module in whole.named_modules(prefix=prefix):
            if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and module.sparse:
                raise UnsupportedError(
                    f"module {path!r} has sparse gradients, and a graph has none; build it with sparse=False"
                )


def refuse_autocast(name: str, kind: str) -> None:
    """A step is compiled once: whether the caller is in ``autocast`` cannot be a part of it."""
    if torch.is_autocast_enabled(kind):
        raise GraphError(
            f"{name} is called inside autocast({kind!r}), of which a graph, compiled once, knows nothing; say "
            f"config.enable_amp(True, dtype=...) in its "
            f"__init__() for mixed precision, or call it under flow.amp.autocast({kind!r}, enabled=False)"
        )


def _autocast(dtype: torch.dtype | None, device: torch.device) -> torch.dtype | None:
    """On a CPU float16 is not computed in, as with OneFlow; bfloat16 is."""
    return None if dtype is torch.float16 and device.type == "cpu" else dtype


def _feeds(call: Call, sources: Sources) -> tuple[FeedDecl, ...]:
    given = [
        FeedDecl(f"input_{number}", 0 if tensor.dim() else None, layout_given(tensor))
        for number, tensor in enumerate(call.tensors)
    ]
    return (
        *given,
        *(FeedDecl(f"source_{number}", 0 if meta.shape else None) for number, meta in enumerate(sources.metas)),
    )


def _decl(name: str, tensor: Tensor) -> VariableDecl:
    return VariableDecl(
        name,
        TensorSpec(tuple(tensor.shape), dtypes.dtype_like(tensor.dtype)),
        empty_initializer(),
        trainable=isinstance(tensor, nn.Parameter),
    )


def _first_micro_batch(tensors: Sequence[Tensor], count: int) -> list[Tensor | Like]:
    """What stands for the inputs of one micro-batch. Refuses a batch that is not cut evenly."""
    for tensor in tensors:
        if count > 1 and tensor.dim() and tensor.shape[0] % count:
            raise GraphError(
                f"with {count} gradient accumulation steps dim 0 of every input is a multiple of {count}, got one of "
                f"shape {tuple(tensor.shape)}"
            )
    return [like(tensor, count) for tensor in tensors]


def _micro_batches(tensors: Sequence[Tensor], count: int) -> list[list[Tensor]]:
    """The inputs of each micro-batch; those of rank 0 are the same for all."""
    if count == 1:
        return [list(tensors)]
    cut = [tensor.chunk(count) if tensor.dim() else [tensor] * count for tensor in tensors]
    return [list(one) for one in zip(*cut)] if cut else [[] for _ in range(count)]


@dataclass(frozen=True)
class _Made:
    """A step as one rank runs it."""

    captured: Captured
    assigned: Assigned
    program: Program


def _made(graph: Definition, call: Call, sources: Sources, rank: int, seed: int | None = None) -> _Made:
    captured = capture(graph, call, sources, seed)
    assigned = captured.assigned()
    return _Made(captured, assigned, compile_rank(assigned, rank, _keeps_values(graph, captured)))


def _keeps_values(graph: Definition, captured: Captured) -> bool:
    """Whether the step may hold what it made of its variables: it does not train, their changes are seen, and it need
    not have the very numbers of torch's ops."""
    return (
        not graph.added
        and uses_native_kernels(captured.decl.fusion)
        and can_watch(list(parts_of(captured.tensors).values()))
    )


def _names(graph: Definition) -> dict[int, str]:
    return {id(tensor): name for name, tensor in variables_of(graph.modules).items()}


def _update_layouts(made: _Made) -> dict[str, Layout | None]:
    """Of every trained variable how it lies while it is updated, as its states do; None on one device."""
    captured, training = made.captured, made.captured.decl.training
    found: dict[str, Layout | None] = {}
    for name in captured.traced.joint.trained:
        given = layout_given(captured.tensors[name])
        if given is not None and training is not None and not made.assigned.is_alone:
            given = update_layout(training, captured.decl.decls[name].spec, made.assigned.layouts[name])
        found[name] = given
    return found


class CompiledStep:
    """A step that can run."""

    def __init__(self, graph: Definition, call: Call) -> None:
        self.sources = Sources()
        try:
            self._compile(graph, call)
        except BaseException:
            self.sources.close()
            raise

    def _compile(self, graph: Definition, call: Call) -> None:
        if current_world().is_planned:
            raise GraphError(
                f"{graph.name} is called in a planned world, where nothing runs; flow.plan({graph.name}, ...) tells "
                f"what it would cost"
            )
        self._count, self._name = _count(graph), graph.name
        spread_modules(graph)
        is_global = any(
            layout_given(tensor) is not None for tensor in (*variables_of(graph.modules).values(), *call.tensors)
        )
        made = self._on_ranks(graph, call) if is_global else _made(graph, call, self.sources, 0)
        captured, assigned, program = made.captured, made.assigned, made.program
        tensors = captured.tensors | states_of(graph.added, _names(graph), _update_layouts(made))
        variables = RankVariables(program.rank, captured.device)
        variables.tensors = parts_of(tensors)
        self._bound = [(tensor, tensor._part) for tensor in tensors.values() if isinstance(tensor, GlobalTensor)]
        self._parts = None if captured.on is None else Parts(captured.on, assigned, program, self._count)
        self._read = (
            None
            if captured.on is None or not self.sources
            else ReadParts(assigned, program.rank, len(call.tensors), self.sources)
        )
        self._updating: AbstractContextManager[Any] = Lock() if graph.added else nullcontext()
        self._leaves_to_autocast = None if graph.config.amp_dtype is not None else captured.device.type
        self.captured = captured
        self.executor = Executor(program, variables, for_autograd=True)
        prepared = program.sections.get("prepare")
        self._watched = None if prepared is None else Watched([variables.tensors[key[1]] for key in prepared.inputs])
        self._variables = variables
        self._written = [*parts_of(captured.tensors).values()] if graph.added else []
        self._optimizers = [added.optimizer for added in graph.added]
        self._states = [optimizer.state for optimizer in self._optimizers]
        self._returned = captured.returned
        self._is_one_tensor = captured.returned.is_one_tensor
        self._feeds = (
            program.feeds if list(program.feeds) != list(range(len(call.tensors) + len(self.sources.metas))) else None
        )
        self._clock = StepClock(graph.step, assigned.rates(), RunningScale(graph.loss_scale, graph.scale_state))

    def _on_ranks(self, graph: Definition, call: Call) -> _Made:
        """The step of this rank. All ranks of the world come here, and either all go on or all raise."""
        world, seed = join(), common_seed(own_seed(graph))
        self.sources.seed = seed

        def make() -> tuple[_Made, Callable[[], str]]:
            made = _made(graph, call, self.sources, world.rank, seed)
            constants = {**made.captured.traced.constants, **self.sources.first()}
            return made, lambda: "\n".join(
                [*told_inputs(call.tensors), f"fusion {made.program.fusion}", told_plan(made.assigned, constants)]
            )

        made = agreed(graph.name, make)
        if world.size > 1:
            collective.make_groups(
                process_groups(
                    made.assigned, lambda rank: compile_rank(made.assigned, rank, _keeps_values(graph, made.captured))
                )
            )
        if not made.assigned.is_alone:
            lay_out(variables_of(graph.modules), made.assigned.layouts)
        if made.assigned.auto is not None:
            graph.has_laid, graph.auto = True, str(made.assigned.auto)
        return made

    @property
    def is_current(self) -> bool:
        """False when an optimizer has loaded a state: it keeps other tensors then, and has other settings; or when a
        global tensor was given other data."""
        return all([optimizer.state is state for optimizer, state in zip(self._optimizers, self._states)]) and all(
            [tensor._part is part for tensor, part in self._bound]
        )

    def run(self, tensors: Sequence[Tensor]) -> Any:
        """One step on the tensors of a call. Data modules read one batch per micro-batch. Threads that train one graph
        take turns."""
        if self._leaves_to_autocast is not None:
            refuse_autocast(self._name, self._leaves_to_autocast)
        with self._updating:
            return self._run(tensors)

    def _run(self, tensors: Sequence[Tensor]) -> Any:
        if self._parts is not None:
            micro: Sequence[Sequence[Tensor]] = self._parts.fed(tensors)
        else:
            micro = _micro_batches(tensors, self._count) if self._count > 1 else [tensors]
        if self.sources:
            read = self.sources.next if self._read is None else self._read.next
            micro = [[*own, *read()] for own in micro]
        if self._feeds is not None:
            micro = [[own[i] for i in self._feeds] for own in micro]
        if self._watched is not None and self._watched.have_changed():
            self._variables.version += 1
        results, _, is_finite = self.executor.run(self._clock.step(), micro)
        self._clock.advance(is_finite)
        if self._written:
            increment_version(
                self._written
            )  # kernels write past autograd, which counts writes for itself and for graphs that predict
        for optimizer in self._optimizers:
            optimizer.step_count += is_finite
        if self._parts is not None:
            made: Sequence[Tensor] = self._parts.results(results)
        else:
            made = results[0] if self._count == 1 else [_joined(parts) for parts in zip(*results)]
        return made[0] if self._is_one_tensor else self._returned.filled(made)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """What the micro-batches gave as one tensor: numbers as a vector, others along dim 0."""
    return torch.cat(list(parts)) if parts[0].dim() else torch.stack(list(parts))
