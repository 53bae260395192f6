"""Job: a decorated function, from its trace to the result of a call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import RLock
from typing import Any, Protocol

import torch
from torch import fx

from oneflow.engine.core import dtype as dtypes
from oneflow.engine.core.errors import JobError, UnsupportedError
from oneflow.engine.core.placement import Placement
from oneflow.engine.core.spec import TensorSpec
from oneflow.engine.core.tree import tree_map
from oneflow.engine.ir.blob import Blob
from oneflow.engine.ir.graph import Graph, Reader, VariableDecl
from oneflow.engine.ir.micro import joined, require_joined
from oneflow.engine.ir.notes import change_op_note, op_note
from oneflow.engine.ir.text import graph_text
from oneflow.engine.ir.trace import Trace, tracing
from oneflow.engine.ir.trained import state_decls
from oneflow.engine.job.backend import OpenJob, Value, Values
from oneflow.engine.job.peek import graph_up_to
from oneflow.engine.job.result import (
    DynamicResultArray,
    MirroredResult,
    ResultArray,
    Rows,
    check_results,
    cut_rows,
    deliver,
)
from oneflow.engine.job.settings import FunctionConfig, Settings, settings_of
from oneflow.engine.job.signature import Signature, TensorDef, annotations_of
from oneflow.engine.job.traced import Traced
from oneflow.engine.job.training import training_of
from oneflow.engine.runtime.rank.variables import VariableStore
from oneflow.initializer import constant_initializer, zeros_initializer
from oneflow.optimizer.optimizers import Optimizer, WeightDecay, state_variable
from oneflow.optimizer.schedule import LrScheduler, WarmUp

Inputs = tuple[tuple[Any, ...], dict[str, Any]]
"""The arguments of a call."""


class JobSession(Protocol):
    """What a job asks of the session that it belongs to."""

    store: VariableStore
    defaults: dict[str, Any]
    eager: bool
    making: RLock

    def default_placement(self) -> Placement: ...

    def current(self, name: str) -> Job: ...

    def trace(self) -> None: ...

    def start(self) -> None: ...

    def settle(self) -> None: ...

    def open(self, traced: Traced) -> OpenJob: ...


class Job:
    """A decorated function: its signature, settings, and once traced its graph. Decorating does nothing else."""

    def __init__(
        self,
        session: JobSession,
        function: Callable[..., Any],
        kind: str | None,
        config: FunctionConfig | None,
        is_early: bool = False,
    ) -> None:
        self.session = session
        self.function = function
        self.name = function.__name__
        self.kind = kind
        self.is_early = is_early  # made by flow.function, whose era had a detail of its own
        self.line = f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"
        self.traced: Traced | None = None
        self.is_replaced = False  # by a later definition of its name
        self.opened: OpenJob | None = None  # on the session's backend, which opens it once it is traced
        self._calls = torch.zeros(1, dtype=torch.int64)
        self._touched = dict(config.touched) if config is not None else {}

    @property
    def graph(self) -> Graph | None:
        return None if self.traced is None else self.traced.graph

    @property
    def signature(self) -> Signature:
        """Its inputs, once it is traced."""
        assert self.traced is not None
        return self.traced.signature

    @property
    def settings(self) -> Settings:
        return Settings() if self.traced is None else self.traced.settings

    def trace(self, inputs: Inputs | None = None) -> None:
        """Runs the body once and settles what the job is. With the ``inputs`` of a call under way blobs have values."""
        session = self.session
        signature = Signature(self.function, self.line)
        self._read_return()
        configured = self._settings()
        placement = configured.placement or session.default_placement()
        trace = Trace(self.name, configured, session.store.decls, placement)
        if inputs is not None:
            trace.value_of = lambda node: self._peek(trace, node, signature, inputs)
        with tracing(trace):
            copies = placement.size if configured.mirrored else 1
            blobs = tree_map(lambda definition: _input(trace, definition, copies, self.line), signature.defs)
            returned = self.function(*blobs)
            trace.graph.losses = [joined(trace, loss) for loss in trace.graph.losses]
        graph = trace.graph
        graph.results = None if returned is None else tree_map(lambda value: self._result(value, graph), returned)
        require_joined(trace)
        graph.drop_unused_sources()
        if self.has_return:
            check_results(returned, self.returns, self.name, self.line)
        settings = trace.settings if trace.is_train else replace(trace.settings, micro_batches=1)
        graph.is_train, graph.is_mirrored = settings.is_train, settings.mirrored
        graph.placement = placement
        if settings.is_train:
            graph.training = training_of(graph, settings, self.line)
        traced = Traced(self.name, self.line, graph, settings, signature, self.returns, self._calls)
        self._declare(traced)
        self.traced = traced

    def _peek(self, trace: Trace, node: fx.Node, signature: Signature, inputs: Inputs) -> Any:
        """Eager execution: the value of a node in the call under way."""
        store, settings = self.session.store, trace.settings
        graph = graph_up_to(trace.graph, node)
        graph.is_mirrored, graph.placement = settings.mirrored, trace.placements[0]
        peeked = replace(settings, is_train=False, micro_batches=settings.micro_batches if settings.is_train else 1)
        traced = Traced(self.name, self.line, graph, peeked, signature, None, self._calls)
        step = (
            store.host.get(traced.counter_name, self._calls) if settings.is_train else self._calls
        )  # random ops draw what they will in the step
        traced = replace(traced, name=f"{self.name} (eager)", calls=step.clone())
        store.check_declarations(graph.decls, [])
        for decl in graph.decls.values():
            store.declare(decl)
        opened = self.session.open(traced)
        results, _ = opened.step(*inputs)
        opened.close()
        arrays = [_array(value, op_note(node).is_dynamic) for value in results]
        return Rows(*arrays).cut() if len(arrays) > 1 else arrays[0]

    def _trace_again(self, inputs: Inputs) -> None:
        """Eager execution: the body runs at each call; what was compiled is kept while it records the same graph."""
        before = self.traced
        if before is None:
            self.trace(inputs)
            self.session.settle()
            return
        self.trace(inputs)
        now = self.traced
        assert now is not None
        if graph_text(now.graph, lines=False) != graph_text(before.graph, lines=False):
            self._open_again(before)
            return
        graph = before.graph
        graph.watches = [replace(old, handler=new.handler) for old, new in zip(graph.watches, now.graph.watches)]
        self.traced = replace(now, graph=graph)
        if not _alike(before.settings, now.settings) or graph.decls != now.graph.decls:
            graph.training, graph.decls = now.graph.training, now.graph.decls
            assert self.opened is not None
            self.opened.refresh(self.traced)

    def _open_again(self, before: Traced) -> None:
        """Opens the job anew for the graph it has now; where that cannot run, the one before stays."""
        opened, self.opened = self.opened, None
        try:
            self.session.settle()
        except BaseException:
            self.traced, self.opened = before, opened
            raise
        before.graph.close_sources()

    def _settings(self) -> Settings:
        settings = settings_of({"random_seed": self.session.store.seed, **self.session.defaults, **self._touched})
        is_train = settings.is_train if self.kind is None else self.kind == "train"
        return replace(settings, is_train=is_train, gradient_stops_at_cap=self.is_early)

    def _read_return(self) -> None:
        empty = inspect.Signature.empty
        annotation = inspect.signature(self.function).return_annotation
        self.has_return = annotation is not empty
        self.returns = annotations_of(self.function, self.line).get("return") if self.has_return else None

    def _result(self, value: Any, graph: Graph) -> fx.Node | Rows:
        if isinstance(value, Blob) and value.node.graph is graph.body:
            if value.spec.dtype.numpy is None:
                kind = value.spec.dtype.name
                raise UnsupportedError(
                    f"{value.location}: job {self.name!r} returns {value!r}, numpy has no {kind}; cast it to float32"
                )
            count = op_note(value.node).count
            return value.node if count is None else Rows(value.node, count)
        raise _NotABlob(
            f"{self.line}: job {self.name!r} returns {value!r}; a job returns blobs of its own, in tuples, lists and "
            f"dicts, or None"
        )

    def _declare(self, traced: Traced) -> None:
        """Makes the job's variables, and the state its training keeps, known to the session: all of them or none."""
        store = self.session.store
        state = _state(traced)
        store.check_declarations(traced.graph.decls, state)
        for decl in traced.graph.decls.values():
            store.declare(decl)
        for decl in state:
            store.declare(decl, state=True, host=decl.name.startswith("System-Train-"))

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One step; what it gives back depends on the return annotation."""
        self.session.start()
        if self.is_replaced:
            now = self.session.current(self.name)
            raise JobError(f"job {self.name!r} of {self.line} was replaced by another definition at {now.line}")
        if self.session.eager:
            with self.session.making:
                self._trace_again((args, kwargs))
        assert self.opened is not None and self.traced is not None
        results, watched = self.opened.step(args, kwargs)
        graph = self.traced.graph
        for watch, value in zip(graph.watches, watched):
            watch.handler(_array(value, op_note(watch.node).is_dynamic))
        return deliver(self.name, _structured(graph.results, results), self.returns, self.has_return)

    def close(self) -> None:
        """Ends what the job's sources have in work, and lets go of the memory of its programs."""
        if self.opened is not None:
            self.opened.close()
        if self.graph is not None:
            self.graph.close_sources()

    def readers(self) -> Mapping[str, Reader]:
        """What reads the job's data, by name, wherever it runs."""
        return {} if self.opened is None else self.opened.readers()


def _structured(structure: Any, results: Values) -> Any:
    """Results in the structure that the body returned."""
    if isinstance(structure, fx.Node):
        return _array(results[0], op_note(structure).is_dynamic)
    if structure is None:
        return None
    arrays = iter(results)
    return cut_rows(tree_map(lambda node: _array(next(arrays), op_note(node).is_dynamic), structure))


def _state(job: Traced) -> list[VariableDecl]:
    """The variables that training keeps: step counter, optimizer state, dynamic loss scale."""
    training = job.graph.training
    if training is None:
        return []
    state = [_scalar(job.counter_name, dtypes.int64, 0, job.line), *state_decls(job.graph, training.optimizer)]
    if training.loss_scale.is_dynamic:
        name, counter = job.loss_scale_names
        state += [
            _scalar(name, dtypes.float32, training.loss_scale.initial, job.line),
            _scalar(counter, dtypes.int64, 0, job.line),
        ]
    return state


class _NotABlob(JobError, NotImplementedError):
    """A job body that returns something other than blobs."""


def _scalar(name: str, dtype: Any, value: float, line: str) -> VariableDecl:
    initializer = constant_initializer(value, dtype) if value else zeros_initializer(dtype)
    return state_variable(name, TensorSpec((1,), dtype), initializer, line)


def _input(trace: Trace, definition: TensorDef, copies: int, line: str) -> Blob:
    """The blob of an input. An array that the copies of a mirrored job share out is, in the body, what one of them
    gets."""
    spec, axis = definition.spec, definition.batch_axis
    if copies > 1 and axis is not None and definition.kind == "array":
        if spec.shape[axis] % copies:
            raise JobError(
                f"{line}: job {trace.graph.job!r} is in the mirrored view on {copies} devices, which share out its "
                f"input {definition!r}; "
                f"its batch of {spec.shape[axis]} is no multiple of {copies}"
            )
        spec = TensorSpec((*spec.shape[:axis], spec.shape[axis] // copies, *spec.shape[axis + 1 :]), spec.dtype)
    node = trace.add_input(definition.name or trace.auto_name("Input"), spec)
    change_op_note(node, batch_axis=definition.batch_axis, is_dynamic=definition.dynamic)
    return Blob(node)


def _alike(a: Any, b: Any) -> bool:
    """Whether two settings say the same, looking into optimizers and schedules, which have no equality of their own."""
    if isinstance(a, (Settings, Optimizer, LrScheduler, WarmUp, WeightDecay)) and type(a) is type(b):
        return vars(a).keys() == vars(b).keys() and all(_alike(value, vars(b)[key]) for key, value in vars(a).items())
    if isinstance(a, (list, tuple)) and type(a) is type(b):
        return len(a) == len(b) and all(map(_alike, a, b))
    return bool(a == b)


def _array(value: Value, is_dynamic: bool) -> ResultArray | MirroredResult:
    if isinstance(value, list):
        return MirroredResult(value, is_dynamic) if len(value) > 1 else _array(value[0], is_dynamic)
    return (value.cpu().numpy() if isinstance(value, torch.Tensor) else value).view(
        DynamicResultArray if is_dynamic else ResultArray
    )
