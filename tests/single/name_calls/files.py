"""``flow.save`` and ``flow.load``."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

import oneflow as flow


def _save() -> None:
    with tempfile.TemporaryDirectory() as folder:
        flow.save({"x": torch.tensor([1.0, -2.0])}, f"{folder}/saved")
        assert (Path(folder) / "saved/tensor_0/out").read_bytes() == b"\0\0\x80\x3f\0\0\0\xc0"


def _load() -> None:
    with tempfile.TemporaryDirectory() as folder:
        torch.save({"x": torch.tensor([1.0, -2.0])}, f"{folder}/file.pt")
        assert flow.load(f"{folder}/file.pt")["x"].tolist() == [1, -2]


CALLS = {"oneflow.save": _save, "oneflow.load": _load}
