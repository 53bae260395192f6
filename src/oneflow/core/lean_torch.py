"""The first trace of a process without torch's compiler.

torch's tensors without data and ``make_fx`` import ``torch._dynamo``, and with it some 400 modules of the compiler, of Inductor and of
``torch.distributed``: to mark functions that the compiler must not look into, and for a few settings. While a step is traced, light modules
stand in for these packages. They have what tracing takes; whoever asks for anything else gets the packages themselves, loaded there and then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module, machinery, util
from importlib.abc import Loader, MetaPathFinder
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

_COMPILER, _INDUCTOR = "torch._dynamo", "torch._inductor"
_SETTINGS = f"{_COMPILER}.config"


@contextmanager
def lean_torch() -> Iterator[None]:
    """For tracing: the packages are not loaded unless they are asked for. Afterwards torch is as it was."""
    if _COMPILER in sys.modules or _INDUCTOR in sys.modules:
        yield
        return
    lean = _Lean()
    lean.stand_in()
    try:
        yield
    finally:
        lean.step_aside()


class _StandIn(ModuleType):
    """A package with a few of its names; another one loads the package."""

    def __init__(self, name: str, load: Callable[[str], ModuleType], **names: Any) -> None:
        super().__init__(name)
        self.__spec__ = machinery.ModuleSpec(name, None)
        vars(self).update(names, _load=load, __path__=[])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what the import system looks for
            raise AttributeError(name)
        return getattr(self._load(self.__name__), name)


class _Source(SimpleNamespace):
    """The name that a tensor gets which has none."""

    def __init__(self, source_name: str) -> None:
        super().__init__(source_name=source_name)


class _Lean(MetaPathFinder, Loader):
    """The stand-ins of one trace. It also finds other modules inside the packages, whose import has to load the package first."""

    def __init__(self) -> None:
        self._marked: list[Any] = []
        self._specs: dict[str, Any] = {}
        self._modules = {name: _StandIn(name, self._load, **names) for name, names in self._table().items()}

    def _table(self) -> dict[str, dict[str, Any]]:
        """What tracing takes of the packages. No trace of ours has sizes that are symbols, which have sources and are told apart, and none
        is bisected."""
        return {
            _COMPILER: {"disable": self._disable},
            f"{_COMPILER}.source": {"ConstantSource": _Source, "RandomValueSource": type("RandomValueSource", (), {})},
            _INDUCTOR: {},
            f"{_INDUCTOR}.config": {"trace": SimpleNamespace(provenance_tracking_level=0), "emulate_precision_casts": False},
            f"{_INDUCTOR}.compiler_bisector": {"CompilerBisector": SimpleNamespace(disable_subsystem=lambda *_: False)},
            f"{_INDUCTOR}.fx_passes": {},
            f"{_INDUCTOR}.fx_passes.dedupe_symint_uses": {"dedupe_symints": lambda graph: None},
        }

    def stand_in(self) -> None:
        import_module("torch._higher_order_ops.triton_kernel_wrap")  # make_fx counts on the compiler to have loaded it
        sys.meta_path.insert(0, self)
        sys.modules.update(self._modules)
        vars(self._modules[_INDUCTOR])["config"] = self._modules[f"{_INDUCTOR}.config"]
        vars(self._modules[_COMPILER])["config"] = _compiler_settings()

    def step_aside(self) -> None:
        if self not in sys.meta_path:
            return
        sys.meta_path.remove(self)
        for name in (*self._modules, _SETTINGS):
            sys.modules.pop(name, None)
        for name in (_COMPILER, _INDUCTOR):
            vars(torch).pop(name.removeprefix("torch."), None)
        for function in self._marked:
            vars(function).pop("__dynamo_disable", None)

    def _disable(self, function: Any, recursive: bool = True, *, reason: str | None = None, wrapping: bool = True) -> Any:
        """Marks nothing: no compiler is loaded that could look into the function. torch asks again once the stand-ins are gone."""
        self._marked.append(function)
        return function

    def _load(self, name: str) -> ModuleType:
        """The module itself, in place of its stand-in. It is imported as if nothing was traced."""
        self.step_aside()
        with _disable_current_modes():
            import_module(_COMPILER)  # Inductor needs it half-way
            return import_module(name)

    # -------------------------------------------------------------- modules inside the packages

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> machinery.ModuleSpec | None:
        if name.rpartition(".")[0] not in self._modules:
            return None
        self._specs[name] = self._load(name).__spec__
        return machinery.ModuleSpec(name, self)

    def create_module(self, spec: machinery.ModuleSpec) -> ModuleType:
        return sys.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """It is loaded already, and keeps what was noted of where it comes from."""
        module.__spec__ = self._specs.pop(module.__name__)


def _compiler_settings() -> ModuleType:
    """The compiler's settings, as torch's own file has them; it stands by itself."""
    spec = util.spec_from_file_location(_SETTINGS, f"{torch.__path__[0]}/_dynamo/config.py")
    assert spec is not None and spec.loader is not None
    sys.modules[_SETTINGS] = made = util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made
