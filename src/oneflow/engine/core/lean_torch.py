"""The first trace of a process without torch's compiler, sympy and DTensor.

torch's tensors without data and ``make_fx`` import ``torch._dynamo``, and with it some 400 modules of the compiler and
of Inductor: to mark functions that the compiler must not look into, and for a few settings. They import sympy, some 450
modules, to ask whether sizes are symbols, and ``torch.distributed.tensor``, to ask whether a tensor is one of those.
While a step is traced, light modules stand in for these packages. They have what tracing takes; whoever asks for
anything else gets the packages themselves, loaded there and then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib import import_module, util
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch._library.simple_registry import GenericTorchDispatchRuleHolder as Rules
from torch._subclasses.fake_tensor import FakeTensor

from oneflow.engine.core.stand_ins import StandIns, nothing
from oneflow.engine.core.static_sizes import static_sizes

_COMPILER, _INDUCTOR = "torch._dynamo", "torch._inductor"
_SYMBOLS, _SIZES, _TRITON = (
    "sympy",
    "torch.fx.experimental.symbolic_shapes",
    "torch._higher_order_ops.triton_kernel_wrap",
)
_SHARDED = "torch.distributed.tensor"


@contextmanager
def lean_torch() -> Iterator[None]:
    """For tracing: the packages are not loaded unless they are asked for. Afterwards torch is as it was."""
    with ExitStack() as stack:
        load_symbols = _without_symbols(stack)
        if _COMPILER not in sys.modules and _INDUCTOR not in sys.modules:
            _without_compiler(stack, load_symbols)
        if _SHARDED not in sys.modules:
            _without_sharded_tensors(stack)
        yield


# ------------------------------------------------------------------ symbols


def _without_symbols(stack: ExitStack) -> Callable[[], None]:
    """Gives what makes room for sympy itself."""
    if _SYMBOLS in sys.modules:
        import_module(_TRITON)  # make_fx counts on the compiler to have loaded it
        return nothing

    def of_symbols() -> ModuleType:
        return stand_ins.load(_SIZES)

    modules = {
        _SYMBOLS: {"Basic": _Nothing},
        _SIZES: static_sizes(of_symbols),
        "torch.utils._sympy.functions": {"Max": _Nothing},
        _TRITON: {"TritonKernelWrapperFunctional": _Nothing, "TritonKernelWrapperMutation": _Nothing},
    }
    stand_ins = StandIns(modules, (_SYMBOLS, "torch.utils._sympy"), first=_TRITON)
    stand_ins.stand_in()
    stack.callback(stand_ins.step_aside)
    return stand_ins.step_aside


class _Nothing:
    """A class that nothing is an instance of."""


# ------------------------------------------------------------------ the compiler


def _without_compiler(stack: ExitStack, make_room: Callable[[], None]) -> None:
    """No trace of ours has sizes that are symbols, which have sources and are told apart, and none is bisected."""
    marks = _Marks()
    modules: dict[str, dict[str, Any]] = {
        _COMPILER: {"disable": marks.disable},
        f"{_COMPILER}.source": {"ConstantSource": _Source, "RandomValueSource": _Nothing},
        _INDUCTOR: {},
        f"{_INDUCTOR}.config": {
            "trace": SimpleNamespace(provenance_tracking_level=0),
            "emulate_precision_casts": False,
        },
        f"{_INDUCTOR}.compiler_bisector": {"CompilerBisector": SimpleNamespace(disable_subsystem=lambda *_: False)},
        f"{_INDUCTOR}.fx_passes": {},
        f"{_INDUCTOR}.fx_passes.dedupe_symint_uses": {"dedupe_symints": lambda graph: None},
    }
    stand_ins = StandIns(
        modules, (_COMPILER, _INDUCTOR), first=_COMPILER, loading=make_room, leaving=marks.clear
    )  # Inductor needs it half-way
    stand_ins.add(_compiler_settings())
    stand_ins.stand_in()
    stack.callback(stand_ins.step_aside)


class _Source(SimpleNamespace):
    """The name that a tensor gets which has none."""

    def __init__(self, source_name: str) -> None:
        super().__init__(source_name=source_name)


class _Marks:
    """Functions that the compiler must not look into. None is marked, since no compiler is loaded; torch asks again
    when it is."""

    def __init__(self) -> None:
        self._functions: list[Any] = []

    def disable(
        self, function: Any, recursive: bool = True, *, reason: str | None = None, wrapping: bool = True
    ) -> Any:
        self._functions.append(function)
        return function

    def clear(self) -> None:
        for function in self._functions:
            vars(function).pop("__dynamo_disable", None)


@cache
def _compiler_settings() -> ModuleType:
    """The compiler's settings, as torch's own file has them; it stands by itself."""
    name = f"{_COMPILER}.config"
    spec = util.spec_from_file_location(name, f"{torch.__path__[0]}/_dynamo/config.py")
    assert spec is not None and spec.loader is not None
    sys.modules[name] = made = util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


# ------------------------------------------------------------------ sharded tensors


def _without_sharded_tensors(stack: ExitStack) -> None:
    """Where an op meets a tensor without data and its mode is off, torch looks whether there is a rule for both, then
    whether the tensor is a DTensor, and then asks the tensor's class. The rule here is the last of these."""
    plain = Rules.find

    def find(rules: Rules, cls: type) -> Callable[..., Any] | None:
        return plain(rules, cls) or (_ask_class if cls is FakeTensor else None)

    setattr(Rules, "find", find)  # noqa: B010
    stack.callback(setattr, Rules, "find", plain)


def _ask_class(*call: Any) -> Any:
    """Rules are called with the tensor's class first, and once more without it if they are not for this tensor."""
    return FakeTensor.__torch_dispatch__(*call[isinstance(call[0], type) :])
