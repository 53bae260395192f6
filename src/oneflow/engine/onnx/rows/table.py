"""All emitters by row name, and why the other rows have none: a file for each family of ``oneflow.engine.ops.table``."""

from __future__ import annotations

from importlib import import_module

from oneflow.engine.onnx.family import Emitter, Emitters
from oneflow.engine.ops.table import FAMILIES

_FAMILIES: list[Emitters] = [import_module(f"oneflow.engine.onnx.rows.{name}").EMITTERS for name in FAMILIES]
EMITTERS: dict[str, Emitter] = {name: emitter for family in _FAMILIES for name, emitter in family.rows.items()}
REASONS: dict[str, str] = {name: reason for family in _FAMILIES for name, reason in family.reasons.items()}
