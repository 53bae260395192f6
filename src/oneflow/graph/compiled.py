"""One compiled step of a graph: for one structure of arguments, and one set of shapes, dtypes and devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from oneflow.compiler.distribute import Assigned, Spread, distribute
from oneflow.compiler.module_joint import AddFeed, ModuleStep, TracedStep, trace_step
from oneflow.compiler.pipeline import compile_rank
from oneflow.compiler.step_decl import FeedDecl, StepDecl
from oneflow.core import dtype as dtypes
from oneflow.core.errors import GraphError, UnsupportedError
from oneflow.core.spec import TensorSpec
from oneflow.core.variable import VariableDecl
from oneflow.graph.definition import Definition
from oneflow.graph.optimizers import graph_optimizer, states_of
from oneflow.graph.sources import Sources, refuse_held
from oneflow.graph.stand_in import forget_traced, standing_in, variables_of
from oneflow.graph.structure import Call, Returned, returned_by
from oneflow.graph.whereabouts import Whereabouts
from oneflow.initializer import empty_initializer
from oneflow.ops.counter_random import stable_seed
from oneflow.optimizer.training import Training
from oneflow.runtime.executor import Executor
from oneflow.runtime.memory import keep_freed_memory, spare_memory
from oneflow.runtime.rank_variables import RankVariables
from oneflow.runtime.step_clock import RunningScale, StepClock
from oneflow.sharding.mesh import Mesh, whole_on

_ALONE = whole_on(Mesh((0,), (1,)))


@dataclass(frozen=True)
class Captured:
    """What tracing a graph's ``build`` gave: the joint graph and its declaration, how results are nested, and the tensors of its variables. It is
    fed with the tensors of a call, then with those that data modules read."""

    traced: TracedStep
    decl: StepDecl
    returned: Returned
    tensors: dict[str, Tensor]
    device: torch.device

    def assigned(self) -> Assigned:
        """The step on one device."""
        layouts = dict.fromkeys(self.decl.decls, _ALONE)
        return distribute(self.decl, self.traced.joint, Spread({(0, 0): 0}, layouts, self.device))


def capture(graph: Definition, call: Call, sources: Sources) -> Captured:
    """Traces ``build`` on one micro-batch of a call's arguments; what data modules do in it goes to ``sources``."""
    modules, count = graph.modules, _count(graph)
    variables = variables_of(modules)
    names = {id(tensor): name for name, tensor in variables.items()}
    optimizer = graph_optimizer(graph.added, names, int(graph.step[0])) if graph.added else None
    device = _device(variables, call)
    if optimizer is not None:
        _require_dense(modules)
    trained = {name for name, tensor in variables.items() if tensor.requires_grad and optimizer is not None and optimizer.selects(name)}
    found: list[Returned] = []

    def run(values: dict[str, Tensor], feeds: list[Tensor], add_feed: AddFeed) -> list[Tensor]:
        args, kwargs = call.arguments(feeds)
        before = dict(vars(graph))
        with standing_in(modules, names, values), sources.recorded(add_feed):
            found.append(returned_by(graph.build(*args, **kwargs)))
        forget_traced(vars(graph), before)
        refuse_held(found[-1].leaves)
        return found[-1].tensors()

    scale = graph.loss_scale
    with Whereabouts(modules, graph.name, graph.settings) as whereabouts:
        traced = trace_step(
            ModuleStep(
                name=graph.name,
                variables=variables,
                feeds=_micro_batches(call.tensors, count)[0],
                run=run,
                where=whereabouts.here,
                device=device,
                trained=frozenset(trained),
                loss_scale=None if scale.is_dynamic else scale.initial,
                micro_batches=count,
                draws_from=stable_seed(torch.initial_seed(), type(graph).__name__),
                autocast=_autocast(graph.config.amp_dtype, device),
            )
        )
    found[-1].require_plain()
    if optimizer is not None and not traced.joint.trained:
        raise GraphError(f"{graph.name} has an optimizer, but build() calls backward() of no loss that depends on its parameters; call loss.backward() in build()")
    tensors = {**variables, **traced.constants}
    training = None if optimizer is None else Training(optimizer, scale, count, lambda decl: (0.0, 0.0))
    decl = StepDecl(graph.name, {name: _decl(name, tensor) for name, tensor in tensors.items()}, _feeds(call, sources), training, loss_line=traced.loss_line)
    tensors |= states_of(graph.added, names, frozenset(traced.joint.trained))
    return Captured(traced, decl, found[-1], tensors, device)


def _count(graph: Definition) -> int:
    """How many micro-batches a call has: a graph that does not train has no gradients to add up."""
    return graph.config.micro_batches if graph.added else 1


def _device(variables: dict[str, Tensor], call: Call) -> torch.device:
    """Where a graph runs: where its variables and inputs lie, which is one device."""
    found = dict.fromkeys(tensor.device for tensor in (*variables.values(), *call.tensors))
    if len(found) > 1:
        raise GraphError(
            f"the parameters and inputs of a graph lie on one device, these lie on {', '.join(map(str, found))}; move the module and the inputs with .to(device)"
        )
    return next(iter(found), torch.device("cpu"))


def _require_dense(modules: Mapping[str, nn.Module]) -> None:
    for prefix, whole in modules.items():
        for path, module in whole.named_modules(prefix=prefix):
            if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and module.sparse:
                raise UnsupportedError(f"module {path!r} has sparse gradients, and a graph has none; build it with sparse=False")


def _autocast(dtype: torch.dtype | None, device: torch.device) -> torch.dtype | None:
    """On a CPU float16 is not computed in, as with OneFlow; bfloat16 is."""
    return None if dtype is torch.float16 and device.type == "cpu" else dtype


def _feeds(call: Call, sources: Sources) -> tuple[FeedDecl, ...]:
    given = [FeedDecl(f"input_{number}", 0 if tensor.dim() else None) for number, tensor in enumerate(call.tensors)]
    return (*given, *(FeedDecl(f"source_{number}", 0 if meta.shape else None) for number, meta in enumerate(sources.metas)))


def _decl(name: str, tensor: Tensor) -> VariableDecl:
    return VariableDecl(name, TensorSpec(tuple(tensor.shape), dtypes.dtype_like(tensor.dtype)), empty_initializer(), trainable=isinstance(tensor, nn.Parameter))


def _micro_batches(tensors: Sequence[Tensor], count: int) -> list[list[Tensor]]:
    """The inputs of each micro-batch; those of rank 0 are the same for all."""
    if count == 1:
        return [list(tensors)]
    for tensor in tensors:
        if tensor.dim() and tensor.shape[0] % count:
            raise GraphError(
                f"with {count} gradient accumulation steps dim 0 of every input is a multiple of {count}, got one of shape {tuple(tensor.shape)}"
            )
    cut = [tensor.chunk(count) if tensor.dim() else [tensor] * count for tensor in tensors]
    return [list(one) for one in zip(*cut)] if cut else [[] for _ in range(count)]


class CompiledStep:
    """A step that can run."""

    def __init__(self, graph: Definition, call: Call) -> None:
        spares = any(settings.activation_checkpointing for settings in graph.settings.values())
        (spare_memory if spares else keep_freed_memory)()
        self.sources = Sources()
        try:
            self._compile(graph, call)
        except BaseException:
            self.sources.close()
            raise

    def _compile(self, graph: Definition, call: Call) -> None:
        captured = capture(graph, call, self.sources)
        assigned = captured.assigned()
        program = compile_rank(assigned, 0, keeps_values=False)
        variables = RankVariables(0, captured.device)
        variables.tensors = captured.tensors
        self.captured = captured
        self.executor = Executor(program, variables, for_autograd=True)
        self._optimizers = [added.optimizer for added in graph.added]
        self._states = [optimizer.state for optimizer in self._optimizers]
        self._returned = captured.returned
        self._is_one_tensor = captured.returned.is_one_tensor
        self._feeds = program.feeds if list(program.feeds) != list(range(len(call.tensors) + len(self.sources.metas))) else None
        self._count = _count(graph)
        self._clock = StepClock(graph.step, assigned.rates(), RunningScale(graph.loss_scale, graph.scale_state))

    @property
    def is_current(self) -> bool:
        """False when an optimizer has loaded a state: it keeps other tensors then, and has other settings."""
        return all([optimizer.state is state for optimizer, state in zip(self._optimizers, self._states)])

    def run(self, tensors: Sequence[Tensor]) -> Any:
        """One step on the tensors of a call. Data modules read one batch per micro-batch."""
        micro = _micro_batches(tensors, self._count) if self._count > 1 else [tensors]
        if self.sources:
            micro = [[*own, *self.sources.next()] for own in micro]
        if self._feeds is not None:
            micro = [[own[i] for i in self._feeds] for own in micro]
        results, _, is_finite = self.executor.run(self._clock.step(), micro)
        self._clock.advance(is_finite)
        for optimizer in self._optimizers:
            optimizer.step_count += is_finite
        made = results[0] if self._count == 1 else [_joined(parts) for parts in zip(*results)]
        return made[0] if self._is_one_tensor else self._returned.filled(made)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """What the micro-batches gave as one tensor: numbers as a vector, others along dim 0."""
    return torch.cat(list(parts)) if parts[0].dim() else torch.stack(list(parts))
