"""The digest of a program: a number for all that it does, the same in every process that compiles the same job.

It is taken over the plain data that would be sent to a worker, written out in one way: no address, no hash of this
process and no order of a set comes into it. How errors name a node does not count.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.program.program import Program
from oneflow.engine.program.serialize import pack

_LITERALS = (type(None), bool, int, float, complex, str, bytes)


def digest(program: Program) -> str:
    """The SHA-256 of a program, in hexadecimal digits: different when anything that runs differs."""
    return digest_of(pack(program, lambda node: ""))


def digest_of(value: Any) -> str:
    """The SHA-256 of a plain value, in hexadecimal digits."""
    found = hashlib.sha256()
    for text in _written(value):
        found.update(text.encode())
    return found.hexdigest()


def _written(value: Any) -> Iterator[str]:
    """A value as text, in pieces. Each begins with the kind of the value, and what has parts ends with a bracket, so no
    two read alike."""
    if isinstance(value, enum.Enum):
        yield f"{_name(type(value))}.{value.name} "
    elif type(value) in _LITERALS:
        yield f"{type(value).__name__} {value!r} "
    elif isinstance(value, dict):
        yield from _bracketed("dict", [item for key in sorted(value, key=repr) for item in (key, value[key])])
    elif isinstance(value, (tuple, list)):
        yield from _bracketed("list" if isinstance(value, list) else "tuple", value)
    elif is_dataclass(value) and not isinstance(value, type):
        yield from _bracketed(_name(type(value)), [getattr(value, field.name) for field in fields(value)])
    elif isinstance(value, (FunctionType, BuiltinFunctionType, type)) and "<" not in value.__qualname__:
        yield f"{_name(value)} "
    elif isinstance(value, torch.device):
        yield f"device {value} "
    else:
        raise ArgumentError(
            f"a program holds {value!r} of type {type(value).__name__}; "
            "it may hold plain values only: numbers, text, frozen dataclasses, and functions of modules"
        )


def _bracketed(kind: str, parts: Any) -> Iterator[str]:
    yield f"{kind}("
    for part in parts:
        yield from _written(part)
    yield ")"


def _name(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"
