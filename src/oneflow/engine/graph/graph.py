"""``nn.Graph``: a step written with tensors and modules, traced once and compiled."""

from __future__ import annotations

import inspect
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import update_wrapper
from threading import RLock
from typing import TYPE_CHECKING, Any
from weakref import ref

import torch
from torch import Tensor, nn

from oneflow.engine.core.collector import paused
from oneflow.engine.core.errors import ArgumentError, GraphError, UnsupportedError
from oneflow.engine.core.number import whole
from oneflow.engine.core.tracebacks import trim
from oneflow.engine.graph.counters import LOSS_SCALE, TRAIN_STEP
from oneflow.engine.graph.definition import Definition
from oneflow.engine.graph.positions import load_positions, name_of, positions
from oneflow.engine.graph.proxy import ProxyModule, origin_of
from oneflow.engine.graph.structure import Call, call_of
from oneflow.engine.graph.text import told, told_ops
from oneflow.optimizer.loss_scale import LossScale

if TYPE_CHECKING:
    from oneflow.engine.capture.forward_graph import Captured
    from oneflow.engine.core.placement import Placement
    from oneflow.engine.graph.compiled import CompiledStep
    from oneflow.engine.plan.report import Plan

_NUMBERS: Counter[str] = Counter()
"""How many graphs of each class there are: names are unique in a process, as OneFlow's are."""


def _next_name(kind: type) -> str:
    name = f"{kind.__name__}_{_NUMBERS[kind.__name__]}"
    _NUMBERS[kind.__name__] += 1
    return name


class Graph:
    """The base of graphs. A class of one's own calls ``super().__init__()`` first, assigns modules to attributes, adds
    optimizers by ``add_optimizer``, and defines ``build``, which is traced at the first call and never runs again.

    Modules are shared in place with eager code: their parameters are what the graph trains, their buffers what it
    updates. Whether a module is in training or in evaluation mode is settled at the first call.
    """

    def __init__(self) -> None:
        self._begin(Definition(_next_name(type(self)), ref(self)))
        self.__dict__["_debug"] = -1

    def _begin(self, definition: Definition) -> None:
        own = self.__dict__
        own["_graph"] = definition
        own["config"] = definition.config
        own["_compiled"] = OrderedDict()
        own["_making"] = RLock()

    def __deepcopy__(self, memo: dict[int, Any]) -> Graph:
        """A graph of the same step with modules and optimizers of its own, which is compiled at its first call."""
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        made._begin(self._graph.copied(_next_name(type(self)), made, memo))
        others = {name: value for name, value in vars(self).items() if name not in vars(made)}
        vars(made).update({name: deepcopy(value, memo) for name, value in others.items()})
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise GraphError(
            f"{self.name}: a graph is no plain value to copy by reference or to pickle; use copy.deepcopy(graph), or "
            f"save graph.state_dict()"
        )

    # -------------------------------------------------------------- attributes

    def __setattr__(self, name: str, value: Any) -> None:
        if "_graph" not in self.__dict__:
            raise GraphError(f"{type(self).__name__}.__init__() calls super().__init__() before it assigns {name!r}")
        value = origin_of(value)
        if isinstance(value, Graph):
            raise GraphError(f"{self.name}: a graph cannot hold another graph ({name!r}); share modules between them")
        if isinstance(value, nn.Module):
            self._require_open(f"module {name!r} is assigned")
            self.__dict__.pop(name, None)
            self._graph.modules[name] = value
        else:
            self._graph.modules.pop(name, None)
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        definition = self.__dict__.get("_graph")
        if definition is None and not name.startswith("__"):
            raise GraphError(f"{type(self).__name__}.__init__() calls super().__init__() before anything else")
        if definition is not None and name in definition.modules:
            return ProxyModule(definition.modules[name], definition.settings)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    @property
    def name(self) -> str:
        """The class and the number of the graph among those of its class."""
        return self._graph.name

    @property
    def training(self) -> bool:
        """Whether the graph has an optimizer."""
        return bool(self._graph.added)

    @property
    def is_compiled(self) -> bool:
        """Whether ``build`` has been traced."""
        return bool(self._compiled)

    # -------------------------------------------------------------- what a class of one's own calls

    def build(self, *args: Any, **kwargs: Any) -> Any:
        """The step: a class of one's own defines it. It takes and gives tensors, None and plain constants, in nested
        lists, tuples and dictionaries."""
        raise UnsupportedError(f"{type(self).__name__} does not define build(self, ...), the step of the graph")

    def add_optimizer(self, optim: Any, *, lr_sch: Any = None, is_sparse: bool = False) -> None:
        """Has each call of the graph clip, update by ``optim`` and zero the gradients; its rate follows ``lr_sch``,
        counted by the graph's own steps."""
        from oneflow.engine.graph.optimizers import Added
        from oneflow.optim.optimizer import Optimizer

        self._require_open("an optimizer is added")
        if not isinstance(optim, Optimizer):
            raise ArgumentError(
                f"add_optimizer takes an optimizer of flow.optim, got {type(optim).__module__}.{type(optim).__name__}"
            )
        if lr_sch is not None and not getattr(lr_sch, "is_function_of_step", False):
            raise ArgumentError(
                f"lr_sch is a scheduler of flow.optim.lr_scheduler whose rate is a function of the step, got "
                f"{type(lr_sch).__name__}"
            )
        if is_sparse:
            raise UnsupportedError(
                "add_optimizer(is_sparse=True): gradients of embeddings are dense here; leave it out"
            )
        self._graph.added.append(Added(optim, lr_sch))

    def set_grad_scaler(self, grad_scaler: Any = None) -> None:
        """Has losses multiplied before the backward pass by what an ``amp.GradScaler`` or ``StaticGradScaler`` says,
        and gradients divided again."""
        self._require_open("a grad scaler is set")
        if grad_scaler is not None and not hasattr(grad_scaler, "loss_scale"):
            raise ArgumentError(
                f"set_grad_scaler takes flow.amp.GradScaler or flow.amp.StaticGradScaler, got "
                f"{type(grad_scaler).__name__}"
            )
        self._graph.scale_losses(LossScale() if grad_scaler is None else grad_scaler.loss_scale())

    def debug(
        self,
        v_level: int = -1,
        *,
        ranks: Any = None,
        max_py_stack_depth: int = 2,
        only_user_py_stack: bool = True,
        op_repr_with_py_stack: bool = False,
    ) -> None:
        """What is printed while the graph is compiled: -1 nothing, 0 its stages, 1 its modules too, 2 its ops too, 3
        the code of a step too."""
        own = self.__dict__
        own["_debug"] = whole("v_level", v_level, -1)

    # -------------------------------------------------------------- calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """One step."""
        try:
            call = self._call_of(args, kwargs)
            return self._step_of(call).run(call.tensors if call.nesting is not None else call.leaves)
        except Exception as error:
            trim(error)
            raise

    def _call_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        call, definition = call_of(args, kwargs), self.__dict__.get("_graph")
        if definition is not None and definition.settings and definition.has_stages:
            from oneflow.engine.graph.local_stages import on_stages

            return on_stages(definition, call)
        return call

    def _step_of(self, call: Call) -> CompiledStep:
        compiled = self.__dict__.get("_compiled")
        if compiled is None:
            raise GraphError(f"{type(self).__name__}.__init__() calls super().__init__() before anything else")
        signature = call.signature()
        found = compiled.get(signature)
        if found is not None and not found.is_current:
            for step in compiled.values():
                step.sources.close()
            compiled.clear()
            found = None
        return found if found is not None else self._made(call, signature)

    def _made(self, call: Call, signature: tuple[Any, ...]) -> CompiledStep:
        # Optimizer states created here outlive the caller's inference mode.
        with self._making, paused(), torch.inference_mode(False):
            if signature in self._compiled:  # another thread has made it meanwhile
                return self._compiled[signature]
            if self._compiled and not self._graph.config.has_dynamic_shapes:
                raise _other_inputs(self.name, next(iter(self._compiled)), signature)
            from oneflow.engine.graph.compiled import (
                CompiledStep,  # loads torch's tracing, which importing oneflow should not
            )

            self._say(0, f"{self.name}: building ...")
            step = CompiledStep(self._graph, call)
            self._graph.config.is_fixed = True
            self._compiled[signature] = step
            while len(self._compiled) > self._graph.config.shapes_kept:
                self._compiled.popitem(last=False)
            self._tell(step)
            return step

    def _compile(self, *args: Any, **kwargs: Any) -> Graph:
        """Compiles the graph for these arguments without running a step."""
        self._step_of(self._call_of(args, kwargs))
        return self

    build_graph = _compile

    def finish_complie_and_init_runtime(self) -> None:
        """What ``build_graph`` began is finished already; refuses where it was not called."""
        if not self._compiled:
            raise GraphError(
                f"{self.name} is not built yet; call build_graph(...) with the arguments of a step, or call the graph"
            )

    def _require_open(self, what: str) -> None:
        if self._compiled:
            raise GraphError(f"{self.name} is compiled; {what} before its first call")

    # -------------------------------------------------------------- export

    def forward_capture(self, *args: Any, **kwargs: Any) -> Captured:
        """The forward graph for arguments like these, of any shape that the modules take, for ``flow.onnx.export``.
        Refuses a graph that trains."""
        from oneflow.engine.graph.forward import forward_captured

        return forward_captured(self._graph, args, kwargs)

    def forward_inputs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments like those of the last call that was compiled, with zeros for tensors. Refuses a graph that was not
        called."""
        from oneflow.engine.graph.forward import inputs_like

        if not self._compiled:
            raise GraphError(
                f"{self.name} was not called yet, so the shapes of its inputs are not known; call it, or give example "
                f"inputs"
            )
        return inputs_like(next(reversed(self._compiled)))

    def plan_step(
        self, inputs: tuple[Any, ...], placement: Placement | None, named: dict[str, Any] | None = None
    ) -> Plan:
        """What ``flow.plan(graph, *inputs)`` gives, on a placement or on the ranks of its global tensors; ``named`` are
        inputs by name. The graph is traced for it, and stays as it was."""
        from oneflow.engine.graph.planning import planned

        with self._making, paused():
            return planned(self._graph, call_of(inputs, named or {}), placement)

    # -------------------------------------------------------------- text

    def _say(self, level: int, text: str) -> None:
        if self._debug >= level:
            print(text)

    def _tell(self, step: CompiledStep) -> None:
        self._say(0, f"{self.name}: compiled")
        if self._graph.auto:
            self._say(0, f"{self.name}: auto parallel chose {self._graph.auto}")
        self._say(1, repr(self))
        if self._debug >= 2:
            print(told_ops(step.captured.traced.joint.graph))
        self._say(3, step.executor.source)

    def __repr__(self) -> str:
        return told(self._graph)

    # -------------------------------------------------------------- state

    def state_dict(self, destination: dict[str, Any] | None = None) -> dict[str, Any]:
        """The whole state: a dictionary per module under its attribute's name, the optimizers' states by variable, the
        graph's own counters, and where the readers among its modules stand."""
        found: dict[str, Any] = OrderedDict() if destination is None else destination
        for name, module in self._graph.modules.items():
            found[name] = OrderedDict(module.state_dict())
        if self.training:
            from oneflow.engine.graph.loading import saved_counters

            found.update(saved_counters(self._graph.modules, {**dict(self._states()), **self._counters()}))
        where = positions(self._graph.modules, self._compiled.values())
        if where is not None:
            found[name_of(self._graph.kind)] = where
        return found

    def _counters(self) -> dict[str, Tensor]:
        """The graph's own numbers, by names that are the same in another process, whatever other graphs it has."""
        kind = self._graph.kind
        found = {TRAIN_STEP: self._graph.step}
        if self._graph.scale_state is not None:
            prefix = f"{LOSS_SCALE}{kind}"
            found[f"{prefix}-LossScale"], found[f"{prefix}-GoodStepCounter"] = self._graph.scale_state
        return found

    def _states(self) -> Iterator[tuple[str, Tensor]]:
        from oneflow.engine.graph.variables import variables_of

        names = {id(tensor): name for name, tensor in variables_of(self._graph.modules).items()}
        for added in self._graph.added:
            for p, states in added.optimizer.state.items():
                if id(p) in names:
                    yield from ((f"{names[id(p)]}-{suffix}", value) for suffix, value in states.items())
            yield f"System-Train-Updates-{type(added.optimizer).__name__}", torch.tensor([added.optimizer.step_count])

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> None:
        """Takes over what ``state_dict`` gave, before the first call."""
        from oneflow.engine.graph.loading import laid_as

        self._require_open("load_state_dict is called")
        if self._graph.config.auto_parallel:
            from oneflow.engine.graph.auto import spread_modules

            spread_modules(self._graph)
        missing = [name for name in self._graph.modules if name not in state_dict]
        strange = [
            name for name, value in state_dict.items() if name not in self._graph.modules and isinstance(value, Mapping)
        ]
        if strict and (missing or strange):
            raise GraphError(
                f"{self.name}: the state has no module {missing} and modules {strange} that the graph has not; "
                f"strict=False takes what fits"
            )
        for name, module in self._graph.modules.items():
            if name in state_dict:
                module.load_state_dict(laid_as(module.state_dict(), state_dict[name]), strict=strict)
        if self.training:
            self._load_own({name: value for name, value in state_dict.items() if isinstance(value, Tensor)}, strict)
        load_positions(
            self.name, name_of(self._graph.kind), self._graph.modules, state_dict.get(name_of(self._graph.kind)), strict
        )

    def _load_own(self, given: dict[str, Tensor], strict: bool) -> None:
        """Counters, and what the optimizers keep of parameters."""
        from oneflow.engine.graph.loading import counter_in, load_states

        for name, value in self._counters().items():
            saved = counter_in(given, name)
            if saved is not None:
                value.copy_(saved)
            elif strict:
                raise GraphError(
                    f"{self.name}: the state has no {name!r}; it is that of another graph. strict=False takes what fits"
                )
        load_states(self._graph.modules, self._graph.added, given)

    # -------------------------------------------------------------- functions as graphs

    @staticmethod
    def trace(func: Callable[..., Any] | nn.Module) -> Callable[..., Any]:
        """A function, or a module, as a graph. Modules that the function refers to are the graph's."""
        graph = _Function(func)

        def step(*args: Any, **kwargs: Any) -> Any:
            return graph(*args, **kwargs)

        vars(step)["graph"] = graph
        return step if isinstance(func, nn.Module) else update_wrapper(step, func)


class _Function(Graph):
    """A graph of one function."""

    def __init__(self, func: Callable[..., Any] | nn.Module) -> None:
        super().__init__()
        if not callable(func):
            raise ArgumentError(f"nn.Graph.trace takes a function or a module, got {type(func).__name__}")
        object.__setattr__(self, "_function", func)
        self._graph.modules.update({"module": func} if isinstance(func, nn.Module) else _modules_in(func))

    def build(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)


def _modules_in(func: Callable[..., Any]) -> dict[str, nn.Module]:
    """The modules that a function refers to by name."""
    known = inspect.getclosurevars(func)
    owner = getattr(func, "__self__", None)
    found = {
        name: value
        for names in (known.nonlocals, known.globals)
        for name, value in names.items()
        if isinstance(value, nn.Module)
    }
    return {**found, **({"self": owner} if isinstance(owner, nn.Module) else {})}


def _other_inputs(name: str, first: tuple[Any, ...], now: tuple[Any, ...]) -> GraphError:
    """What is different between the arguments of the first call and those of another."""
    difference = "they are nested otherwise"
    if first[0] == now[0] and len(first) == len(now):
        place, before, given = next((i, a, b) for i, (a, b) in enumerate(zip(first[1:], now[1:])) if a != b)
        difference = f"input {place} was {_leaf(before)} at the first call and is {_leaf(given)} now"
    return GraphError(
        f"{name}: nn.Graph ONLY accepts static inputs tensor meta, please check whether your input tensor meta each "
        f"step "
        "is the same as the input of first "
        f"call graph: {difference}. config.enable_dynamic_shapes() in __init__() compiles a program for each"
    )


def _leaf(meta: Any) -> str:
    return repr(meta[1]) if isinstance(meta, tuple) else str(meta)
