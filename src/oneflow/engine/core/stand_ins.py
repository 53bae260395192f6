"""Light modules in the place of heavy ones, for as long as nobody asks for more than they have."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module, machinery
from importlib.abc import Loader, MetaPathFinder
from types import ModuleType
from typing import Any

from torch.utils._python_dispatch import _disable_current_modes


def nothing() -> None:
    pass


class StandIns(MetaPathFinder, Loader):
    """Light modules of some packages, each with some of its names. Whoever asks one for another name, or imports
    another module of ``packages``, gets the packages themselves, loaded there and then; from then on the light modules
    are gone.

    ``first`` is imported before anything else of the packages. ``loading`` is called before that, ``leaving`` when the
    light modules go.
    """

    def __init__(
        self,
        modules: Mapping[str, Mapping[str, Any]],
        packages: Sequence[str],
        first: str,
        loading: Callable[[], None] = nothing,
        leaving: Callable[[], None] = nothing,
    ) -> None:
        parents = {*packages, *(name.rpartition(".")[0] for name in modules)}
        self._modules: dict[str, ModuleType] = {
            name: _StandIn(name, names, self.load, name in parents) for name, names in modules.items()
        }
        self._within = tuple(f"{package}." for package in packages)
        self._first, self._loading, self._leaving = first, loading, leaving
        self._specs: dict[str, Any] = {}

    def add(self, module: ModuleType) -> None:
        """A module of the packages that stands for itself."""
        self._modules[module.__name__] = module

    def stand_in(self) -> None:
        sys.meta_path.insert(0, self)
        sys.modules.update(self._modules)
        for name, module in self._modules.items():
            _set_on_package(name, module)

    def step_aside(self) -> None:
        """The packages are as if there never had been anything in their place; a light module that somebody still has
        leads to them."""
        if self not in sys.meta_path:
            return
        sys.meta_path.remove(self)
        for name, module in self._modules.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
            _remove_from_package(name, module)
            if isinstance(module, _StandIn):
                module.forget()
        self._leaving()

    def load(self, name: str) -> ModuleType:
        """The module itself. It is imported as if nothing was traced."""
        self._loading()
        self.step_aside()
        with _disable_current_modes():
            import_module(self._first)
            return import_module(name)

    # -------------------------------------------------------------- other modules of the packages

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> machinery.ModuleSpec | None:
        if not name.startswith(self._within):
            return None
        self._specs[name] = self.load(name).__spec__
        return machinery.ModuleSpec(name, self)

    def create_module(self, spec: machinery.ModuleSpec) -> ModuleType:
        return sys.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """It is loaded already, and keeps what was noted of where it comes from."""
        module.__spec__ = self._specs.pop(module.__name__)


class _StandIn(ModuleType):
    """A module with a few of its names; another one loads it, and so does a module that is just being loaded: it keeps
    what it gets."""

    def __init__(
        self, name: str, names: Mapping[str, Any], load: Callable[[str], ModuleType], is_package: bool
    ) -> None:
        super().__init__(name)
        self.__spec__ = machinery.ModuleSpec(name, None)
        vars(self).update(_names=dict(names), _load=load, **({"__path__": []} if is_package else {}))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what the import system looks for
            raise AttributeError(name)
        if name in self._names and sys._getframe(1).f_code.co_name != "<module>":
            return self._names[name]
        return getattr(self._load(self.__name__), name)

    def forget(self) -> None:
        self._names.clear()


def _set_on_package(name: str, module: ModuleType) -> None:
    package, _, own = name.rpartition(".")
    if package in sys.modules:
        setattr(sys.modules[package], own, module)


def _remove_from_package(name: str, module: ModuleType) -> None:
    package, _, own = name.rpartition(".")
    if package in sys.modules and vars(sys.modules[package]).get(own) is module:
        delattr(sys.modules[package], own)
