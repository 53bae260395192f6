"""The op families, and all rows by name.

This is the one list of families; ``tests/single/samples`` has a file of samples for each.
"""

from __future__ import annotations

from importlib import import_module

from oneflow.engine.ops.row import Family, Op

_FILES = (
    "activation", "array", "conv", "create", "dropout", "dynamic", "elementwise", "image", "index", "loss", "matmul", "norm", "pool", "reduce", "sample",
    "scatter", "sequence", "sort", "structure", "unary",
)  # fmt: skip
FAMILIES: dict[str, Family] = {name: import_module(f"oneflow.engine.ops.{name}").ROWS for name in _FILES}
ROWS: dict[str, Op] = {op.name: op for family in FAMILIES.values() for op in family}
