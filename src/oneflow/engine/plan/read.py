"""Values of a plan out of JSON: every field must be there, of the type that its class says."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import lru_cache
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from oneflow.engine.core.errors import ArgumentError


def read_value(kind: Any, found: Any, where: str) -> Any:
    """``found`` as a value of ``kind``: a dataclass, tuple, mapping or optional of such, a number from 0 on, a bool or
    a text."""
    if dataclasses.is_dataclass(kind):
        return _read_fields(kind, _of(dict, found, where), where)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is tuple:
        return tuple(read_value(arguments[0], one, where) for one in _of(list, found, where))
    if origin is Mapping:
        return {key: read_value(arguments[1], one, where) for key, one in _of(dict, found, where).items()}
    if NoneType in arguments:
        return found if found is None else read_value(arguments[0], found, where)
    _of(kind, found, where)
    if kind is int and found < 0:
        raise ArgumentError(
            f"a plan's JSON has the fields that Plan.to_json gives; {where} is {found}, expected 0 or more"
        )
    return found


def _read_fields(kind: Any, found: dict[str, Any], where: str) -> Any:
    fields = {field.name: field for field in dataclasses.fields(kind)}
    needed = {name for name, field in fields.items() if field.default is dataclasses.MISSING}
    for name in (*sorted(needed - found.keys()), *(name for name in found if name not in fields)):
        reason = "is missing" if name in needed else "is none of them"
        raise ArgumentError(f"a plan's JSON has the fields that Plan.to_json gives; {name!r} of {where} {reason}")
    hints = _hints(kind)
    return kind(**{name: read_value(hints[name], value, f"{name!r} of {where}") for name, value in found.items()})


@lru_cache(maxsize=None)
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _of(kind: Any, found: Any, where: str) -> Any:
    if type(found) is not kind:
        raise ArgumentError(
            f"a plan's JSON has the fields that Plan.to_json gives; {where} is {found!r:.80}, expected {kind.__name__}"
        )
    return found
