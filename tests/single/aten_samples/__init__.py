"""Samples of every aten op that ONNX can express: one file for each family of ``oneflow.engine.onnx.aten.table``."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from aten_samples.sample import AtenSample

FILES = sorted(path.stem for path in Path(__file__).parent.glob("of_*.py"))
SAMPLES: list[AtenSample] = [sample for file in FILES for sample in import_module(f"aten_samples.{file}").SAMPLES]
