"""Inputs of a job: the declarations of its parameters, and how call arguments are checked against them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_origin

import numpy as np
import torch

from oneflow.engine.core.errors import ArgumentError, DTypeError, JobError, UnsupportedError
from oneflow.engine.core.tree import tree_leaves
from oneflow.typing.definitions import TensorDef


def annotations_of(function: Callable[..., Any], line: str) -> dict[str, Any]:
    """A function's annotations as values, also where they are written as strings."""
    try:
        return inspect.get_annotations(function, eval_str=True)
    except NameError as error:
        raise JobError(
            f"{line}: the annotations of job {function.__name__!r} cannot be read: {error}. With 'from __future__ "
            f"import annotations' "
            "they may use global names only; make the name global, or remove the import"
        ) from None


class Signature:
    """The declared inputs of a job function, as a tree of definitions, one entry per parameter."""

    def __init__(self, function: Callable[..., Any], line: str) -> None:
        self.job = function.__name__
        parameters = list(inspect.signature(function).parameters.values())
        annotated = [p for p in parameters if p.annotation is not inspect.Parameter.empty]
        if annotated and len(annotated) != len(parameters):
            raise UnsupportedError(f"{line}: job {self.job!r}: either every parameter has an annotation or none has")
        hints = annotations_of(function, line) if annotated else {}
        self.names = [p.name for p in parameters]
        self.defs = [self._def(p, hints, line) for p in parameters]
        self.is_dynamic = any(d.dynamic for d in tree_leaves(self.defs))
        self._plain = all(isinstance(d, TensorDef) and d.kind == "array" for d in self.defs)

    def _def(self, parameter: inspect.Parameter, hints: dict[str, Any], line: str) -> Any:
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            raise UnsupportedError(f"{line}: job {self.job!r} takes *{parameter.name}; a job names each of its inputs")
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            raise UnsupportedError(
                f"{line}: input {parameter.name!r} of job {self.job!r} stands behind a *; inputs are positional"
            )
        declared = hints.get(parameter.name, parameter.default)
        tree = _as_tree(declared)
        if tree is None:
            raise JobError(
                f"{line}: parameter {parameter.name!r} of job {self.job!r} has no input definition; write "
                f"{parameter.name}: tp.Numpy.Placeholder(shape) or {parameter.name}=flow.FixedTensorDef(shape)"
            )
        return tree

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any], scale: int) -> list[torch.Tensor]:
        """Call arguments as tensors, one a declared input; each is checked. ``scale``: micro-batches in one call."""
        return list(map(as_tensor, self.bind_arrays(args, kwargs, scale)))

    def bind_arrays(self, args: Sequence[Any], kwargs: dict[str, Any], scale: int) -> list[np.ndarray]:
        """The same as the arrays that were given."""
        values = self._positional(args, kwargs)
        if self._plain:
            return [_checked(v, d, n, self.job, scale) for v, d, n in zip(values, self.defs, self.names)]
        return [pieces[0].numpy() for pieces in self._bound(values, scale, 1)]

    def bind_each(
        self, args: Sequence[Any], kwargs: dict[str, Any], scale: int, devices: int
    ) -> list[list[torch.Tensor]]:
        """The same for a mirrored job: for each of its devices the tensors that its copy is given."""
        pieces = self._bound(self._positional(args, kwargs), scale, devices)
        return [[tensors[device] for tensors in pieces] for device in range(devices)]

    def _bound(self, values: Sequence[Any], scale: int, devices: int) -> list[list[torch.Tensor]]:
        """For each declared input what every device is given of it."""
        leaf = _Leaf(self.job, scale, devices)
        pieces: list[list[torch.Tensor]] = []
        for value, definition, name in zip(values, self.defs, self.names):
            self._bind_tree(value, definition, name, leaf, pieces)
        return pieces

    def _positional(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Sequence[Any]:
        if not kwargs and len(args) == len(self.names):
            return args
        given = dict(zip(self.names, args))
        unknown = [k for k in kwargs if k not in self.names or k in given]
        if unknown or len(args) > len(self.names) or len(given) + len(kwargs) != len(self.names):
            raise ArgumentError(
                f"job {self.job!r} takes {len(self.names)} inputs ({', '.join(self.names) or 'none'}), "
                f"got {len(args)} positional and {sorted(kwargs) if kwargs else 'no'} keyword ones"
            )
        given.update(kwargs)
        return [given[name] for name in self.names]

    def _bind_tree(self, value: Any, definition: Any, name: str, leaf: _Leaf, out: list[list[torch.Tensor]]) -> None:
        if isinstance(definition, TensorDef):
            out.append(leaf.bind(value, definition, name))
        elif isinstance(definition, dict):
            if not isinstance(value, dict) or set(value) != set(definition):
                raise ArgumentError(
                    f"input {name!r} of job {self.job!r} is a dict with keys {sorted(definition)}, got {_shown(value)}"
                )
            for key in definition:
                self._bind_tree(value[key], definition[key], f"{name}[{key!r}]", leaf, out)
        else:
            if not isinstance(value, (list, tuple)) or len(value) != len(definition):
                raise ArgumentError(
                    f"input {name!r} of job {self.job!r} is a sequence of {len(definition)}, got {_shown(value)}"
                )
            for i, (v, d) in enumerate(zip(value, definition)):
                self._bind_tree(v, d, f"{name}[{i}]", leaf, out)


def _as_tree(declared: Any) -> Any:
    """A tree of definitions from a default or an annotation; None where there is something else."""
    if isinstance(declared, TensorDef):
        return declared
    if get_origin(declared) is tuple:
        declared = get_args(declared)
    if isinstance(declared, (list, tuple)) and declared:
        trees = [_as_tree(d) for d in declared]
        return None if any(t is None for t in trees) else type(declared)(trees)
    if isinstance(declared, dict) and declared:
        trees_by_key = {k: _as_tree(v) for k, v in declared.items()}
        return None if any(t is None for t in trees_by_key.values()) else trees_by_key
    return None


@dataclass(frozen=True)
class _Leaf:
    """Binds one declared input of a call of ``job``: to a tensor for each of ``devices``."""

    job: str
    scale: int
    devices: int

    def bind(self, value: Any, definition: TensorDef, name: str) -> list[torch.Tensor]:
        if definition.kind == "array":
            whole = _tensor(value, definition, name, self.job, self.scale)
            axis = definition.batch_axis
            return (
                [whole] * self.devices
                if axis is None or self.devices == 1
                else [part.contiguous() for part in whole.chunk(self.devices, axis)]
            )
        if not isinstance(value, (list, tuple)) or len(value) != self.devices:
            raise ArgumentError(
                f"input {name!r} of job {self.job!r} is a list with one entry a device ({self.devices} here), got "
                f"{_shown(value)}"
            )
        return [self._piece(piece, definition, name, device) for device, piece in enumerate(value)]

    def _piece(self, piece: Any, definition: TensorDef, name: str, device: int) -> torch.Tensor:
        array = piece if definition.kind == "list" else self._joined(piece, definition, name, device)
        return _tensor(array, definition, f"{name}[{device}]", self.job, self.scale, f" on device {device}")

    def _joined(self, arrays: Any, definition: TensorDef, name: str, device: int) -> np.ndarray:
        what = f"input {name!r} of job {self.job!r}"
        if not isinstance(arrays, (list, tuple)) or not arrays or not all(isinstance(a, np.ndarray) for a in arrays):
            raise ArgumentError(
                f"{what} is a list with a list of arrays for each device, got {_shown(arrays)} for device {device}"
            )
        if len({(a.shape[1:], a.dtype) for a in arrays}) > 1 or not all(a.ndim for a in arrays):
            found = ", ".join(f"{a.dtype}{a.shape}" for a in arrays)
            raise ArgumentError(
                f"{what}: the arrays for a device are joined along their first dim, which {found} for device {device} "
                f"cannot be"
            )
        return np.concatenate(arrays)


def as_tensor(value: np.ndarray) -> torch.Tensor:
    """A numpy array as a tensor, without a copy where its memory can be used as it is."""
    flags = value.flags
    return torch.from_numpy(value if flags.c_contiguous and flags.writeable else np.array(value, order="C"))


def _tensor(value: Any, definition: TensorDef, name: str, job: str, scale: int, where: str = "") -> torch.Tensor:
    return as_tensor(_checked(value, definition, name, job, scale, where))


def _checked(value: Any, definition: TensorDef, name: str, job: str, scale: int, where: str = "") -> np.ndarray:
    if not isinstance(value, np.ndarray):
        raise ArgumentError(
            f"input {name!r} of job {job!r}{where} is a numpy array {definition.spec}, got {_shown(value)}"
        )
    spec = definition.spec
    if value.dtype != spec.dtype.numpy:
        raise DTypeError(
            f"input {name!r} of job {job!r}{where} has dtype {spec.dtype.name}, got {value.dtype}; "
            f"nothing is cast silently, write .astype(np.{spec.dtype.name})"
        )
    expected = spec.shape if scale == 1 else _scaled(definition, scale)
    if value.shape != expected and not (definition.dynamic and _fits(value.shape, expected)):
        more = " or less of it" if definition.dynamic else ""
        more += f" ({scale} micro-batches of {spec.shape})" if expected != spec.shape else ""
        raise ArgumentError(f"input {name!r} of job {job!r}{where} has shape {expected}{more}, got {value.shape}")
    return value


def _scaled(definition: TensorDef, scale: int) -> tuple[int, ...]:
    """The shape that one call gives when it is cut into ``scale`` micro-batches."""
    axis = definition.batch_axis
    if axis is None:
        return definition.shape
    return (*definition.shape[:axis], definition.shape[axis] * scale, *definition.shape[axis + 1 :])


def _fits(shape: tuple[int, ...], bound: tuple[int, ...]) -> bool:
    return len(shape) == len(bound) and int(np.prod(shape)) <= int(np.prod(bound))


def _shown(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__} of {len(value)}"
    if isinstance(value, dict):
        return f"dict with keys {sorted(map(str, value))}"
    if isinstance(value, np.ndarray):
        return f"ndarray {value.dtype}{value.shape}"
    return f"{type(value).__name__} {value!r}"[:80]
