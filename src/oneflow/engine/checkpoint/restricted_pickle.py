"""Reads pickles of plain values: containers, numbers, strings, plain arrays, and references to tensors. Nothing else is
looked up or called.

A pickle is a program that looks up names and calls what it finds. Here it finds only what stands in a table, and each
entry of the table looks at its arguments before it makes anything of them. Things that are made first and told their
state later (arrays, tensors of OneFlow) are slots until the whole is read; ``Filler`` puts the values in their places.
"""

from __future__ import annotations

import argparse
import collections
import io
import pickle
import pickletools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any

import torch

from oneflow.engine.checkpoint.pickled_numpy import ArraySlot, DtypeSlot, from_buffer, reconstructed, scalar
from oneflow.engine.checkpoint.slots import Fill, Filler, ParameterSlot, Slot, TensorSlot, Unused, require_new_names
from oneflow.engine.checkpoint.stored_tensor import StoredTensor
from oneflow.engine.core.errors import CheckpointError

# Codes that look up or call by other means than a global; no pickler of ours or OneFlow's writes them.
_REFUSED_CODES = frozenset(["INST", "OBJ", "EXT1", "EXT2", "EXT4", "NEXT_BUFFER", "READONLY_BUFFER"])
_MEMO_CODES = frozenset(["PUT", "BINPUT", "LONG_BINPUT"])


class RefusedGlobal(pickle.UnpicklingError):
    """A pickle that names what is no plain value; ``name`` is what it names."""

    def __init__(self, name: str) -> None:
        super().__init__(f"it names {name!r}, which is no plain value")
        self.name = name


def read_pickle(data: bytes, origin: str, tensor: Callable[[StoredTensor], Any]) -> Any:
    """What was pickled. ``tensor`` gives the tensors of references, ``origin`` is the name of the file for errors."""
    with _told_of(origin):
        return Filler(tensor).fill(_held(data, origin))


def require_readable(data: bytes) -> None:
    """Raises an ``UnpicklingError`` for a whole pickle that ``read_pickle`` would refuse."""
    Filler(lambda reference: reference).fill(_Reader(io.BytesIO(data)).load())


def _held(data: bytes, origin: str) -> Any:
    """What was pickled, with slots where arrays and tensors were."""
    try:
        _scan(data)
        return _Reader(io.BytesIO(data)).load()
    except pickle.UnpicklingError:
        raise
    except Exception as error:  # a damaged pickle fails in as many ways as there are codes
        raise CheckpointError(f"{origin} is cut off or damaged: {str(error) or type(error).__name__}") from None


@contextmanager
def _told_of(origin: str) -> Iterator[None]:
    """Errors name the file."""
    try:
        yield
    except RefusedGlobal as error:
        raise CheckpointError(
            f"{origin} names {error.name!r}, and a file could call whatever it names. Only tensors, arrays, numbers, "
            f"strings and containers of them "
            "are read, never objects or functions; nothing was executed. Save a state_dict"
        ) from None
    except pickle.UnpicklingError as error:
        raise CheckpointError(f"{origin} cannot be read: {error}") from None
    except RecursionError:
        raise CheckpointError(f"{origin} is nested too deeply to be read") from None


def _scan(data: bytes) -> None:
    """Looks at every code before any is obeyed: all lengths lie within the file, and so do the numbers of the memo, for
    which memory is taken."""
    for code, argument, _ in pickletools.genops(data):
        if code.name in _REFUSED_CODES:
            raise pickle.UnpicklingError(f"it has the code {code.name}, which is not read")
        if code.name in _MEMO_CODES and int(argument or 0) > len(data):
            raise pickle.UnpicklingError(f"it puts a value at {argument} of its memo and has only {len(data)} bytes")


class _Reader(pickle.Unpickler):
    """An unpickler whose globals are those of ``_find``."""

    def find_class(self, module: str, name: str, /) -> Any:
        return _find(module, name)

    def persistent_load(self, pid: Any) -> TensorSlot:
        return TensorSlot(pid)


class _Call:
    """A function that a pickle may call. The code that gives an object its state would write into a bare function; here
    it is refused."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("a function is given a state")


def _find(module: str, name: str) -> Any:
    found = _GLOBALS.get((_MODULES.get(module, module), name))
    if found is not None:
        return found
    root, _, _ = module.partition(".")
    if root in ("torch", "oneflow") and name in _DTYPES:
        return _DTYPES[name]
    if root == "oneflow":
        return _of_oneflow(module, name)
    raise RefusedGlobal(f"{module}.{name}")


def _of_oneflow(module: str, name: str) -> Any:
    """What OneFlow's own pickles name. Its modules moved from version to version, so the name decides."""
    lower = name.lower()
    for word, found in _ONEFLOW.items():
        if word in lower:
            return found
    raise RefusedGlobal(f"{module}.{name}")


def _require(kinds: type | tuple[type, ...], *values: Any) -> None:
    for value in values:
        if not isinstance(value, kinds):
            expected = [kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,))]
            raise pickle.UnpicklingError(f"a {type(value).__name__} stands where one of {expected} should be")


def _made_from(make: Callable[..., Any], *kinds: type) -> _Call:
    """Calls ``make`` with values of these kinds only. A kind that holds its values, and not a count or a generator of
    them, is never larger than the file."""

    def made(*arguments: Any) -> Any:
        _require(kinds, *arguments)
        return make(*arguments)

    return _Call(made)


def _instance(kind: Any, base: Any = object, state: Any = None) -> Any:
    """What protocols 0 and 1 call to make an object of a class."""
    if not isinstance(kind, type) or not issubclass(kind, Slot) or base is not object or state is not None:
        raise pickle.UnpicklingError("an object of an unknown class")
    return kind()


def _default_dict(factory: Any = None) -> collections.defaultdict[Any, Any]:
    made = None if factory is None else _FACTORIES.get(id(factory))
    if factory is not None and made is None:
        raise pickle.UnpicklingError("a defaultdict of an unknown factory")
    return collections.defaultdict(made)


def _nothing(kind: type) -> _Call:
    """A builtin type, as the factory of a ``defaultdict``; called with something it could be made to take any amount of
    memory."""

    def made(*arguments: Any) -> Any:
        if arguments:
            raise pickle.UnpicklingError(f"{kind.__name__} is called with arguments")
        return kind()

    return _Call(made)


def _stored(folder: Any, is_parameter: Any = False, requires_grad: Any = False) -> TensorSlot:
    return TensorSlot.of(StoredTensor(folder, is_parameter is True, requires_grad is True))


def _path(*parts: Any) -> PurePath:
    _require(str, *parts)
    return Path(*parts)


def _encoded(text: Any, encoding: Any) -> bytes:
    """How protocol 2 writes bytes."""
    _require(str, text, encoding)
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes in the encoding {encoding!r}")
    return text.encode("latin1")


def _device(kind: Any, index: Any = None) -> torch.device:
    _require(str, kind)
    return torch.device(kind) if index is None else torch.device(kind, int(index))


def _size(dims: Any = ()) -> torch.Size:
    _require((tuple, list), dims)
    _require(int, *dims)
    return torch.Size(dims)


class NamespaceSlot(Slot):
    """An ``argparse.Namespace``, once it is told its attributes."""

    def __setstate__(self, state: Any) -> None:
        _require(dict, state)
        self.state = state

    def value(self, fill: Fill, tensor: Any) -> argparse.Namespace:
        state = fill(getattr(self, "state", {}))
        require_new_names(state, argparse.Namespace)
        return argparse.Namespace(**state)


_DTYPES = {name: value for name, value in vars(torch).items() if isinstance(value, torch.dtype)}
_ONEFLOW: dict[str, Any] = {
    "parameter": ParameterSlot,
    "tensor": TensorSlot,
    "size": _Call(_size),
    "device": _Call(_device),
    "placement": Unused,
    "sbp": Unused,
}
_GLOBALS: dict[tuple[str, str], Any] = {
    ("oneflow.engine.checkpoint.stored_tensor", "StoredTensor"): _Call(_stored),
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("collections", "defaultdict"): _Call(_default_dict),
    ("collections", "Counter"): _made_from(collections.Counter, dict),
    ("builtins", "set"): _made_from(set, list, tuple),
    ("builtins", "frozenset"): _made_from(frozenset, list, tuple),
    ("builtins", "bytearray"): _made_from(bytearray, bytes),
    ("builtins", "complex"): _made_from(complex, float),
    ("builtins", "range"): _made_from(range, int),
    ("builtins", "slice"): _made_from(slice, int, type(None)),
    ("argparse", "Namespace"): NamespaceSlot,
    ("copyreg", "_reconstructor"): _Call(_instance),
    ("builtins", "object"): object,
    ("_codecs", "encode"): _Call(_encoded),
    ("torch", "Size"): _Call(_size),
    ("torch", "device"): _Call(_device),
    ("numpy", "ndarray"): ArraySlot,
    ("numpy", "dtype"): DtypeSlot,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _Call(reconstructed) for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): _Call(scalar) for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _Call(from_buffer) for core in ("core", "_core")},
    **{
        ("pathlib", name): _Call(_path)
        for name in ("Path", "PosixPath", "WindowsPath", "PurePath", "PurePosixPath", "PureWindowsPath")
    },
    **{("builtins", kind.__name__): _nothing(kind) for kind in (list, dict, int, float, str, bytes, bool, tuple)},
}
_FACTORIES = {id(_GLOBALS["builtins", kind.__name__]): kind for kind in (list, dict, set, int, float, str, bool, tuple)}
# As Python 2 called them, and as protocols up to 2 still do; and where later Pythons have moved them.
_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg", "pathlib._local": "pathlib"}
