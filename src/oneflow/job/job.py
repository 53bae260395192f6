"""Job: a decorated function, from its trace to the result of a call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import fx

from oneflow.compiler.update import state_decls
from oneflow.core import dtype as dtypes
from oneflow.core.collector import paused
from oneflow.core.errors import JobError, UnsupportedError
from oneflow.core.placement import Placement
from oneflow.core.spec import TensorSpec
from oneflow.core.tree import tree_map
from oneflow.initializer import constant_initializer, zeros_initializer
from oneflow.ir.blob import Blob
from oneflow.ir.graph import Graph, Reader, VariableDecl
from oneflow.ir.text import graph_text
from oneflow.ir.trace import Trace, tracing
from oneflow.job.result import MirroredResult, ResultArray, check_results, deliver
from oneflow.job.settings import FunctionConfig, Settings, frozen
from oneflow.job.signature import Signature, TensorDef, annotations_of
from oneflow.job.training import settle_training
from oneflow.optimizer.optimizers import Optimizer, WeightDecay, state_variable
from oneflow.optimizer.schedule import LrScheduler, WarmUp

if TYPE_CHECKING:
    from oneflow.job.session import Session


Value = torch.Tensor | np.ndarray | list[np.ndarray]
"""What a step gives: a tensor; a whole array from workers; or for a mirrored job on workers one array a device."""


class Job:
    """A decorated function: its signature, settings, and once traced its graph. Decorating does nothing else."""

    def __init__(
        self, session: Session, function: Callable[..., Any], kind: str | None, config: FunctionConfig | None, is_early: bool = False
    ) -> None:
        self.session = session
        self.function = function
        self.name = function.__name__
        self.kind = kind
        self.is_early = is_early  # made by flow.function, whose era had a detail of its own
        self.line = f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"
        self.graph: Graph | None = None
        self.device = torch.device("cpu")
        self.settings = Settings()
        self.calls = torch.zeros(1, dtype=torch.int64)  # steps of a predict job, for its random ops
        self.spread_graph: Graph | None = None  # the graph whose variables and readers the workers have
        self.copies: int | None = None  # the devices of a mirrored job on workers, each of which runs a copy
        self._fresh = False  # traced, and not called since
        self._touched = dict(config.touched) if config is not None else {}
        self._runners: dict[tuple[tuple[int, ...], ...], Any] = {}

    def trace(self) -> None:
        """Runs the body once and settles what the job is."""
        session = self.session
        self.signature = Signature(self.function, self.line)
        self._read_return()
        settings = self._settings()
        placement = settings.placement or session.default_placement()
        trace = Trace(self.name, settings, session.store.decls, placement)
        with tracing(trace):
            blobs = tree_map(lambda definition: _input(trace, definition), self.signature.defs)
            returned = self.function(*blobs)
        graph = trace.graph
        graph.results = None if returned is None else tree_map(lambda value: self._result(value, graph), returned)
        graph.drop_unused_sources()
        if self.has_return:
            check_results(returned, self.returns, self.name, self.line)
        graph.is_train, graph.is_mirrored = settings.is_train, settings.mirrored
        settings.micro_batches = settings.micro_batches if settings.is_train else 1
        graph.placement = placement
        self.settings = settings
        if settings.is_train:
            graph.training = settle_training(graph, settings, self.line)
        self._declare(graph)
        self.graph = graph
        self._fresh = True

    def _trace_again(self) -> None:
        """Eager execution: the body runs at each call; what was compiled is kept while it records the same graph."""
        before, settings = self.graph, self.settings
        assert before is not None
        self.trace()
        assert self.graph is not None
        if graph_text(self.graph, lines=False) == graph_text(before, lines=False):
            before.watches = [replace(old, handler=new.handler) for old, new in zip(before.watches, self.graph.watches)]
            if not _alike(settings, self.settings) or before.decls != self.graph.decls:
                before.training, before.decls = self.graph.training, self.graph.decls
                self._forget_programs()
            self.graph = before
        else:
            self._forget_programs()
            before.close_sources()
            self.session.settle()

    def _forget_programs(self) -> None:
        """Drops what was compiled, here and on the workers."""
        self._runners.clear()
        if self.session.driver is not None:
            self.session.driver.unload(self.name)

    def _settings(self) -> Settings:
        settings = frozen({"random_seed": self.session.store.seed, **self.session.defaults, **self._touched})
        if self.kind is not None:
            settings.is_train = self.kind == "train"
        settings.gradient_stops_at_cap = self.is_early
        return settings

    def _read_return(self) -> None:
        empty = inspect.Signature.empty
        annotation = inspect.signature(self.function).return_annotation
        self.has_return = annotation is not empty
        self.returns = annotations_of(self.function, self.line).get("return") if self.has_return else None

    def _result(self, value: Any, graph: Graph) -> fx.Node:
        if isinstance(value, Blob) and value.node.graph is graph.body:
            if value.dtype.numpy is None:
                kind = value.dtype.name
                raise UnsupportedError(f"{value.location}: job {self.name!r} returns {value!r}, numpy has no {kind}; cast it to float32")
            return value.node
        raise _NotABlob(
            f"{self.line}: job {self.name!r} returns {value!r}; a job returns blobs of its own, in tuples, lists and dicts, or None"
        )

    def placements(self) -> list[tuple[Placement, str]]:
        """Where the job's ops run, each with the user's line that placed it; a job without ops runs on its default placement."""
        graph = self.graph
        assert graph is not None and graph.placement is not None
        found = {node.meta["placement"]: node.meta["line"] for node in reversed(graph.body.nodes) if node.op == "call_function"}
        return list(found.items()) or [(graph.placement, self.line)]

    def _declare(self, graph: Graph) -> None:
        """Makes the job's variables, and the state its training keeps, known to the session: all of them or none."""
        store = self.session.store
        state = self._state(graph)
        store.check_declarations(graph.decls, state)
        for decl in graph.decls.values():
            store.declare(decl)
        for decl in state:
            store.declare(decl, state=True, host=decl.name.startswith("System-Train-"))

    def _state(self, graph: Graph) -> list[VariableDecl]:
        """The variables that training keeps: step counter, optimizer state, dynamic loss scale."""
        if graph.training is None:
            return []
        state = [_scalar(self.counter_name, dtypes.int64, 0, self.line), *state_decls(graph, graph.training.optimizer)]
        scale = graph.training.loss_scale
        if scale.is_dynamic:
            name, counter = self.loss_scale_names
            state += [_scalar(name, dtypes.float32, scale.initial, self.line), _scalar(counter, dtypes.int64, 0, self.line)]
        return state

    @property
    def counter_name(self) -> str:
        """The variable that counts the steps of a train job."""
        return f"System-Train-TrainStep-{self.name}"

    @property
    def loss_scale_names(self) -> tuple[str, str]:
        """The variables of a dynamic loss scale: the scale, and the good steps since it changed."""
        prefix = f"System-Train-DynamicLossScale-{self.name}"
        return f"{prefix}-LossScale", f"{prefix}-GoodStepCounter"

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One step; what it gives back depends on the return annotation."""
        self.session.start()
        self._require_current()
        if self.session.eager and not self._fresh:
            with self.session.making:
                self._trace_again()
        self._fresh = False
        results, watched = self._run(args, kwargs)
        for watch, value in zip(self.graph.watches, watched):  # type: ignore[union-attr]
            watch.handler(_array(value))
        return deliver(self.name, self._structured(results), self.returns, self.has_return)

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        if self.copies is not None:
            pieces = self.signature.bind_each(args, kwargs, self.settings.micro_batches, self.copies)
            return self._mirrored_runner().step(pieces)
        tensors = self.signature.bind(args, kwargs, self.settings.micro_batches)
        return self._runner(tensors).step(tensors)

    def _require_current(self) -> None:
        current = self.session.jobs[self.name]
        if current is not self:
            raise JobError(f"job {self.name!r} of {self.line} was replaced by another definition at {current.line}")

    def _structured(self, results: tuple[Value, ...]) -> Any:
        structure = self.graph.results  # type: ignore[union-attr]
        if isinstance(structure, fx.Node):
            return _array(results[0])
        if structure is None:
            return None
        arrays = iter(results)
        return tree_map(lambda _: _array(next(arrays)), structure)

    def _runner(self, tensors: list[torch.Tensor]) -> Any:
        """The compiled step for these input shapes; only dynamic inputs ever need more than one."""
        key = tuple(t.shape for t in tensors) if self.signature.is_dynamic else ()
        runner = self._runners.get(key)
        if runner is None:
            with self.session.making, paused():
                runner = self._runners.get(key) or self._new_runner(tensors)
                self._runners[key] = runner
        return runner

    def _new_runner(self, tensors: list[torch.Tensor]) -> Any:
        """Loads torch's tracing and the compiler, which importing oneflow should not."""
        if self.session.driver is not None:
            from oneflow.job.cluster_runner import ClusterRunner

            return ClusterRunner(self, tensors)
        from oneflow.job.runner import Runner

        return Runner(self, tensors)

    def _mirrored_runner(self) -> Any:
        """The compiled steps of a mirrored job, for input shapes of any kind."""
        if () not in self._runners:
            from oneflow.job.mirrored_runner import MirroredRunner

            with self.session.making:
                self._runners[()] = self._runners.get(()) or MirroredRunner(self)
        return self._runners[()]

    def close(self) -> None:
        """Ends what the job's sources have in work, and lets go of the memory of its programs."""
        self._runners.clear()
        if self.graph is not None:
            self.graph.close_sources()

    def readers(self) -> dict[str, Reader]:
        """What reads the job's data, by name, wherever it runs."""
        if self.graph is None:
            return {}
        if self.session.driver is None:
            return dict(self.graph.readers())
        return self.session.remote_readers(self)


class _NotABlob(JobError, NotImplementedError):
    """A job body that returns something other than blobs."""


def _scalar(name: str, dtype: Any, value: float, line: str) -> VariableDecl:
    initializer = constant_initializer(value, dtype) if value else zeros_initializer(dtype)
    return state_variable(name, TensorSpec((1,), dtype), initializer, line)


def _input(trace: Trace, definition: TensorDef) -> Blob:
    node = trace.add_input(definition.name or trace.auto_name("Input"), definition.spec)
    node.meta["batch_axis"], node.meta["dynamic"] = definition.batch_axis, definition.dynamic
    return Blob(node)


def _alike(a: Any, b: Any) -> bool:
    """Whether two settings say the same, looking into optimizers and schedules, which have no equality of their own."""
    if isinstance(a, (Settings, Optimizer, LrScheduler, WarmUp, WeightDecay)) and type(a) is type(b):
        return vars(a).keys() == vars(b).keys() and all(_alike(value, vars(b)[key]) for key, value in vars(a).items())
    if isinstance(a, (list, tuple)) and type(a) is type(b):
        return len(a) == len(b) and all(map(_alike, a, b))
    return bool(a == b)


def _array(value: Value) -> ResultArray | MirroredResult:
    if isinstance(value, list):
        return MirroredResult(value) if len(value) > 1 else _array(value[0])
    return (value.cpu().numpy() if isinstance(value, torch.Tensor) else value).view(ResultArray)
