"""``import tensorflow`` in data set files: TensorFlow's names of version 1 where it is installed, else ``fastnn.tf``,
which is said once.

A data set file is one in a folder called ``datasets``, or one that ``fastnn.datasets`` loads by its path. Nobody else
finds the stand-in: libraries look for TensorFlow to see whether it is there, and must not be told that it is. So it is
lent, and withdrawn when files are loaded.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

_NAME = "tensorflow"


class _Lent(ModuleType):
    """``fastnn.tf`` under the name that was asked for."""

    def __getattr__(self, name: str) -> Any:
        import fastnn.tf

        return getattr(fastnn.tf, name)


class _StandIn(MetaPathFinder, Loader):
    """Comes last among the finders, so TensorFlow itself is found first."""

    def __init__(self) -> None:
        self._said = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = _importer() if fullname == _NAME else None
        return (
            ModuleSpec(fullname, self, origin="fastnn.tf")
            if file is not None and Path(file).parent.name == "datasets"
            else None
        )

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self.lent()

    def exec_module(self, module: ModuleType) -> None:
        pass

    def lent(self) -> ModuleType:
        if not self._said:
            self._said = True
            print("fastnn: TensorFlow is not installed; fastnn.tf stands in for it in data set files", file=sys.stderr)
        return _Lent(_NAME)


def _importer() -> str | None:
    """The file of the import statement that is being carried out."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and "importlib" in frame.f_code.co_filename:
        frame = frame.f_back
    return None if frame is None else frame.f_code.co_filename


_STAND_IN = _StandIn()


def install() -> None:
    """Lends the stand-in to files in folders called ``datasets``; more than once does no harm."""
    if _STAND_IN not in sys.meta_path:
        sys.meta_path.append(_STAND_IN)


def withdraw() -> None:
    """Ends what ``install`` began. Files that have imported it keep it."""
    if _STAND_IN in sys.meta_path:
        sys.meta_path.remove(_STAND_IN)
    if isinstance(sys.modules.get(_NAME), _Lent):
        del sys.modules[_NAME]


@contextmanager
def in_file() -> Iterator[None]:
    """While a data set file is executed, wherever it lies."""
    withdraw()
    before = sys.modules.get(_NAME)
    is_there = before is not None or importlib.util.find_spec(_NAME) is not None
    sys.modules[_NAME] = importlib.import_module(f"{_NAME}.compat.v1") if is_there else _STAND_IN.lent()
    try:
        yield
    finally:
        del sys.modules[_NAME]
        if before is not None:
            sys.modules[_NAME] = before
