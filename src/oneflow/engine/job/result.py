"""Results of job calls: arrays with the accessors of every era, futures, and annotated returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, get_args, get_origin

import numpy as np

from oneflow.engine.core.errors import ArgumentError, JobError, NameError_, UnsupportedError
from oneflow.engine.core.tree import tree_map
from oneflow.typing import Bundle, Callback, ListListNumpy, ListNumpy, Numpy

_LEAVES = (Numpy, ListNumpy, ListListNumpy)


class ResultArray(np.ndarray):
    """A numpy array that also answers ``.numpy()``, ``.ndarray()`` and the per-device accessors. ``is_dynamic``: its
    shape may differ from call to call."""

    is_dynamic = False

    def numpy(self, parallel_id: int | None = None) -> np.ndarray:
        """The whole value, or the piece of one device (there is one piece)."""
        if parallel_id not in (None, 0):
            raise ArgumentError(f"this result has 1 piece, there is no parallel_id {parallel_id!r}")
        return self.view(np.ndarray)

    def ndarray(self) -> np.ndarray:
        return self.view(np.ndarray)

    def numpy_list(self) -> list[np.ndarray]:
        return [self.view(np.ndarray)]

    def ndarray_list(self) -> list[np.ndarray]:
        return self.numpy_list()

    def parallel_num(self) -> int:
        return 1

    def __float__(self) -> float:
        """The number of a result with one element, which has rank 1; numpy converts arrays of rank 0 only."""
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and self.size == 1 else super().__format__(spec)

    def __array_wrap__(self, array: np.ndarray, context: Any = None, return_scalar: bool = False) -> Any:
        """What numpy computes from a result is an ordinary array or scalar."""
        return array[()] if return_scalar or array.ndim == 0 else array.view(np.ndarray)


class DynamicResultArray(ResultArray):
    """A result whose shape may differ from call to call."""

    is_dynamic = True


class Rows(NamedTuple):
    """A result of which as many first rows are meant as ``count`` says, once both are there."""

    values: Any
    count: Any

    def cut(self) -> Any:
        """Those rows alone; of every device of a mirrored job its own."""
        if isinstance(self.values, MirroredResult):
            return MirroredResult(
                [v[: int(c[0])] for v, c in zip(self.values.numpy_list(), self.count.numpy_list())], True
            )
        return self.values[: int(self.count.item())]


def cut_rows(results: Any) -> Any:
    """Results in which every ``Rows`` has been cut."""
    if isinstance(results, Rows):
        return results.cut()
    if isinstance(results, dict):
        return {key: cut_rows(value) for key, value in results.items()}
    if isinstance(results, tuple) and hasattr(results, "_fields"):
        return type(results)(*map(cut_rows, results))
    return type(results)(map(cut_rows, results)) if isinstance(results, (list, tuple)) else results


class MirroredResult:
    """A result of a job in the mirrored view on several devices: one array per device, and no whole of them."""

    __slots__ = ("_pieces", "is_dynamic")

    def __init__(self, pieces: list[np.ndarray], is_dynamic: bool = False) -> None:
        self._pieces, self.is_dynamic = pieces, is_dynamic

    def numpy(self, parallel_id: int | None = None) -> np.ndarray:
        """The array of one device."""
        count = len(self._pieces)
        if parallel_id is None:
            raise ArgumentError(
                f"{self._described()}; say which with numpy(parallel_id), or take all with numpy_list()"
            )
        if not isinstance(parallel_id, (int, np.integer)) or not 0 <= parallel_id < count:
            raise ArgumentError(f"this result has {count} pieces, there is no parallel_id {parallel_id!r}")
        return self._pieces[parallel_id]

    def ndarray(self) -> np.ndarray:
        return self.numpy()

    def numpy_list(self) -> list[np.ndarray]:
        """The arrays of all devices, in order."""
        return list(self._pieces)

    def ndarray_list(self) -> list[np.ndarray]:
        return self.numpy_list()

    def parallel_num(self) -> int:
        return len(self._pieces)

    def _described(self) -> str:
        return f"this result has {len(self._pieces)} pieces, one array a device of a job in the mirrored view"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.numpy()

    def __getattr__(self, name: str) -> Any:
        """Refuses what the single array of other results would answer."""
        if name.startswith("_"):
            raise AttributeError(name)
        raise NameError_(
            f"{self._described()}, and has no {name!r} of its own; take an array with numpy(parallel_id) or "
            f"numpy_list()"
        )

    def __repr__(self) -> str:
        return f"MirroredResult({self._pieces!r})"


class JobFuture:
    """The results of one call; delivered once, by ``get`` or ``async_get``."""

    __slots__ = ("_delivered", "_job", "_value")

    def __init__(self, job: str, value: Any) -> None:
        self._job, self._value, self._delivered = job, value, False

    def get(self) -> Any:
        """The results, in the structure the job's body returned."""
        if self._delivered:
            raise JobError(
                f"the results of this call of job {self._job!r} were delivered before; keep what the first get() gave"
            )
        self._delivered = True
        value, self._value = self._value, None
        return value

    def async_get(self, callback: Callable[[Any], Any]) -> None:
        """Hands the results to ``callback``, before this returns: the step has run already."""
        if not callable(callback):
            raise ArgumentError(f"async_get takes a function, got {callback!r}")
        callback(self.get())


def check_results(results: Any, annotation: Any, job: str, line: str) -> None:
    """Refuses a return annotation that does not describe what the body returned."""
    if annotation is None:
        if results is not None:
            raise JobError(f"{line}: job {job!r} is annotated '-> None' but its body returns something")
        return
    target = get_args(annotation)[0] if get_origin(annotation) is Callback else annotation
    if results is None:
        raise JobError(f"{line}: job {job!r} is annotated '-> {_spelled(annotation)}' but its body returns None")
    _check(results, target, job, line)


def _check(results: Any, annotation: Any, job: str, line: str) -> None:
    origin, args = get_origin(annotation), get_args(annotation)
    is_leaf = not isinstance(results, (list, tuple, dict))
    if (annotation in _LEAVES and is_leaf) or annotation is Bundle or (origin is Bundle and args[0] in _LEAVES):
        return
    if origin is list and isinstance(results, (list, tuple)):
        for result in results:
            _check(result, args[0], job, line)
        return
    if origin is tuple and isinstance(results, tuple) and (len(args) == len(results)):
        for result, arg in zip(results, args):
            _check(result, arg, job, line)
        return
    if origin is dict and isinstance(results, dict) and all(type(key) is args[0] for key in results):
        for result in results.values():
            _check(result, args[1], job, line)
        return
    known = annotation in _LEAVES or origin in (tuple, list, dict)
    if not known:
        raise UnsupportedError(
            f"{line}: job {job!r}: {_spelled(annotation)} is not a result annotation; use oneflow.typing"
        )
    raise JobError(
        f"{line}: job {job!r} is annotated '-> {_spelled(annotation)}' but its body returns {_described(results)}"
    )


def _spelled(annotation: Any) -> str:
    return getattr(annotation, "__name__", str(annotation))


def _described(results: Any) -> str:
    if isinstance(results, dict):
        return f"a dict with keys {list(results)}"
    return f"a {type(results).__name__} of {len(results)}" if isinstance(results, (list, tuple)) else "one blob"


def deliver(job: str, results: Any, annotation: Any, has_annotation: bool) -> Any:
    """What the call gives back, by the job's return annotation."""
    if not has_annotation:
        return None if results is None else JobFuture(job, results)
    if annotation is None:
        return None
    if get_origin(annotation) is Callback:
        value = _shaped(results, get_args(annotation)[0])
        return lambda callback: callback(value)
    return _shaped(results, annotation)


def _shaped(results: Any, annotation: Any) -> Any:
    """Results as the plain arrays and lists that an annotation asks for."""
    if annotation is Numpy:
        return results
    if annotation is ListNumpy:
        return results.numpy_list()
    if annotation is ListListNumpy:
        return [[piece] for piece in results.numpy_list()]
    args = get_args(annotation)
    if get_origin(annotation) is Bundle:
        return tree_map(lambda leaf: _shaped(leaf, args[0]), results)
    if get_origin(annotation) is list:
        return [_shaped(r, args[0]) for r in results]
    if isinstance(results, tuple) and args:
        return tuple(_shaped(r, a) for r, a in zip(results, args))
    if isinstance(results, dict) and args:
        return {key: _shaped(value, args[1]) for key, value in results.items()}
    return results
