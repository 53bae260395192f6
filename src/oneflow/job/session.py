"""The session: the jobs of a process, the variables they share, and the device they run on."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_map

from oneflow.compiler.training import Training
from oneflow.compiler.update import state_decls, trained_by
from oneflow.core import dtype as dtypes
from oneflow.core.errors import ArgumentError, JobError, NameError_, UnsupportedError, nearest, user_line
from oneflow.core.spec import TensorSpec
from oneflow.initializer import constant_initializer, zeros_initializer
from oneflow.ir.blob import Blob
from oneflow.ir.graph import Graph, VariableDecl
from oneflow.ir.text import graph_text
from oneflow.ir.trace import Trace, tracing
from oneflow.job.result import ResultArray, check_results, deliver
from oneflow.job.settings import FunctionConfig, Settings, frozen
from oneflow.job.signature import Signature, TensorDef, map_tree
from oneflow.optimizer.conf import optimizer_from_conf
from oneflow.optimizer.loss_scale import LossScale, static_loss_scale
from oneflow.optimizer.optimizers import Optimizer, WeightDecay, state_variable
from oneflow.optimizer.schedule import LrScheduler, WarmUp
from oneflow.runtime.device import Devices
from oneflow.runtime.variables import VariableStore


class Job:
    """A decorated function: its signature, settings, and once traced its graph. Decorating does nothing else."""

    def __init__(self, session: Session, function: Callable[..., Any], kind: str | None, config: FunctionConfig | None) -> None:
        self.session = session
        self.function = function
        self.name = function.__name__
        self.kind = kind
        self.line = f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"
        self.graph: Graph | None = None
        self.settings = Settings()
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
            blobs = [map_tree(d, lambda leaf: _input(trace, leaf)) for d in self.signature.defs]
            returned = self.function(*blobs)
        graph = trace.graph
        graph.results = None if returned is None else tree_map(lambda value: self._result(value, graph), returned)
        graph.drop_unused_sources()
        if self.has_return:
            check_results(returned, self.returns, self.name, self.line)
        graph.is_train = settings.is_train
        settings.micro_batches = settings.micro_batches if settings.is_train else 1
        graph.placement = self._placement(graph, placement)
        self.device = session.devices.resolve(graph.placement)
        self.settings = settings
        if settings.is_train:
            graph.training = self._training(graph, settings)
        self.graph = graph
        self._fresh = True
        self._declare(graph)

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
                self._runners.clear()
            self.graph = before
        else:
            self._runners.clear()
            before.close_sources()
            self.session.store.materialise(self.device)

    def _settings(self) -> Settings:
        settings = frozen({"random_seed": self.session.store.seed, **self.session.defaults, **self._touched})
        if self.kind is not None:
            settings.is_train = self.kind == "train"
        return settings

    def _read_return(self) -> None:
        empty = inspect.Signature.empty
        annotation = inspect.signature(self.function).return_annotation
        self.has_return = annotation is not empty
        self.returns = inspect.get_annotations(self.function, eval_str=True).get("return") if self.has_return else None

    def _result(self, value: Any, graph: Graph) -> fx.Node:
        if isinstance(value, Blob) and value.node.graph is graph.body:
            if value.dtype.numpy is None:
                kind = value.dtype.name
                raise UnsupportedError(f"{value.location}: job {self.name!r} returns {value!r}, numpy has no {kind}; cast it to float32")
            return value.node
        raise _NotABlob(
            f"{self.line}: job {self.name!r} returns {value!r}; a job returns blobs of its own, in tuples, lists and dicts, or None"
        )

    def _placement(self, graph: Graph, default: Any) -> Any:
        """Where the job runs: the placement of its ops, one device for now."""
        ops = [node for node in graph.body.nodes if node.op == "call_function"]
        for node in ops:
            try:
                self.session.devices.resolve(node.meta["placement"])
            except UnsupportedError as error:
                raise UnsupportedError(f"{node.meta['line']}: {error}") from None
        found = [node.meta["placement"] for node in ops]
        gpu = [p for p in found if p.device_type == "gpu"]
        return gpu[0] if gpu else (found[0] if found else default)

    def _training(self, graph: Graph, settings: Settings) -> Training:
        if not graph.losses:
            raise JobError(f"{self.line}: Loss blob not found. Train job {self.name!r} adds no loss: call flow.losses.add_loss(blob) or optimizer.minimize(blob)")
        optimizer = self._optimizer(settings)
        for name in [name for member in optimizer.members() for name in member.named() or ()]:
            if name not in graph.decls:
                hint = nearest(name, graph.decls)
                raise ArgumentError(f"{self.line}: job {self.name!r} has no variable {name!r} for its optimizer.{hint}")
        if not trained_by(graph, optimizer):
            raise JobError(
                f"{self.line}: the losses of train job {self.name!r} depend on no trainable variable, there is nothing to update"
            )
        scale = optimizer.loss_scale or static_loss_scale(settings.loss_scale_factor)
        return Training(optimizer, scale, settings.micro_batches, _coupled(settings), settings.row_wise)

    def _optimizer(self, settings: Settings) -> Optimizer:
        if settings.optimizer is not None:
            return settings.optimizer
        if settings.primary_lr is None or settings.model_update_conf is None:
            missing = "train.primary_lr" if settings.primary_lr is None else "train.model_update_conf"
            raise JobError(
                f"{self.line}: train job {self.name!r} has no optimizer: {missing} is not set. Set train.primary_lr and "
                "train.model_update_conf, or call flow.optimizer.SGD(...).minimize(loss) in the body"
            )
        return optimizer_from_conf(settings.model_update_conf, settings.primary_lr, settings.secondary_lr)

    def _declare(self, graph: Graph) -> None:
        """Makes the job's variables, and the state its training keeps, known to the session."""
        store = self.session.store
        for decl in graph.decls.values():
            store.declare(decl)
        if graph.training is None:
            self.counter_name = None
            return
        self.counter_name = f"System-Train-TrainStep-{self.name}"
        store.declare(_scalar(self.counter_name, dtypes.int64, 0, self.line), host=True)
        for state in state_decls(graph, graph.training.optimizer):
            if state.name in graph.decls:
                line = graph.decls[state.name].line
                raise NameError_(f"{line}: {state.name!r} is the name of an optimizer's state in job {self.name!r}; choose another")
            store.declare(state)
        scale: LossScale = graph.training.loss_scale
        if scale.is_dynamic:
            prefix = f"System-Train-DynamicLossScale-{self.name}"
            store.declare(_scalar(f"{prefix}-LossScale", dtypes.float32, scale.initial, self.line), host=True)
            store.declare(_scalar(f"{prefix}-GoodStepCounter", dtypes.int64, 0, self.line), host=True)

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One step; what it gives back depends on the return annotation."""
        self.session.start()
        self._require_current()
        if self.session.eager and not self._fresh:
            self._trace_again()
        self._fresh = False
        tensors = self.signature.bind(args, kwargs, self.settings.micro_batches)
        results, watched = self._runner(tensors).step(tensors)
        for watch, value in zip(self.graph.watches, watched):  # type: ignore[union-attr]
            watch.handler(_array(value))
        return deliver(self.name, self._structured(results), self.returns, self.has_return)

    def _require_current(self) -> None:
        current = self.session.jobs[self.name]
        if current is not self:
            raise JobError(f"{user_line()}: job {self.name!r} of {self.line} was replaced by another definition at {current.line}")

    def _structured(self, results: tuple[torch.Tensor, ...]) -> Any:
        structure = self.graph.results  # type: ignore[union-attr]
        if isinstance(structure, fx.Node):
            return _array(results[0])
        if structure is None:
            return None
        arrays = iter(results)
        return tree_map(lambda _: _array(next(arrays)), structure)

    def _runner(self, tensors: list[torch.Tensor]) -> Any:
        """The compiled step for these input shapes; only dynamic inputs ever need more than one."""
        key = tuple(t.shape for t in tensors)
        runner = self._runners.get(key)
        if runner is None:
            from oneflow.job.runner import Runner  # loads torch's tracing, which importing oneflow should not

            runner = self._runners[key] = Runner(self, tensors)
        return runner


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


def _coupled(settings: Settings) -> Callable[[VariableDecl], tuple[float, float]]:
    """L1 and L2 that are added to a variable's gradient: its regularizer's, and the job's for weights or biases."""

    def numbers(decl: VariableDecl) -> tuple[float, float]:
        bias = decl.model_name == "bias"
        l1, l2 = (settings.bias_l1, settings.bias_l2) if bias else (settings.weight_l1, settings.weight_l2)
        regularizer = decl.regularizer
        return (l1, l2) if regularizer is None else (l1 + regularizer.l1, l2 + regularizer.l2)

    return numbers


def _array(tensor: torch.Tensor) -> ResultArray:
    return tensor.cpu().numpy().view(ResultArray)


class Session:
    """Jobs by name, their variables, and whether anything ran yet."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.defaults: dict[str, Any] = {}
        self.store = VariableStore()
        self.devices = Devices()
        self.gpu_num: int | None = None
        self.cpu_num: int | None = None
        self.eager = False
        self.closed = False
        self._ready = True

    @property
    def is_running(self) -> bool:
        """True once a job was traced."""
        return any(job.graph is not None for job in self.jobs.values())

    def default_placement(self) -> Any:
        return self.devices.default_placement(self.gpu_num, self.cpu_num)

    def register(self, job: Job) -> None:
        """Makes a job known under its name; a later one of the same name takes its place."""
        before = self.jobs.get(job.name)
        if before is not None and before.graph is not None:
            before.graph.close_sources()
        self.jobs[job.name] = job
        self._ready = False

    def start(self) -> None:
        """Traces every job that was not traced yet, in the order they were defined, and gives their variables values."""
        if self.closed:
            raise JobError(f"{user_line()}: this job belongs to a session that flow.clear_default_session() closed; define it again")
        if self._ready:
            return
        for job in list(self.jobs.values()):
            if job.graph is None:
                job.trace()
        self._ready = True
        self.store.materialise(self._device())

    def _device(self) -> torch.device:
        """The device variables live on: that of the jobs."""
        devices = [job.device for job in self.jobs.values()]
        return next((d for d in devices if d.type == "cuda"), torch.device("cpu"))

    def model_variables(self) -> list[str]:
        """The variables that job bodies name; not optimizer state, not counters."""
        return [name for name in self.store if any(job.graph is not None and name in job.graph.decls for job in self.jobs.values())]

    def close(self) -> None:
        """Ends what the jobs' sources have in work. None of the jobs can be called any more."""
        self.closed = True
        for job in self.jobs.values():
            if job.graph is not None:
                job.graph.close_sources()

    def require_jobs(self, what: str) -> None:
        """Starts the session for ``what``; without any job there is nothing to do it to."""
        if not self.jobs:
            raise JobError(f"{user_line()}: {what}: no job is defined; decorate a function with @flow.global_function first")
        self.start()
