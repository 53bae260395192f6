"""An ONNX graph as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from oneflow.engine.onnx.builder import Node, Operand

# The domain of the operators that stand for ops of jobs that ONNX cannot express.
FOREIGN_DOMAIN = "oneflow"


@dataclass
class OnnxParts:
    """The parts of an ONNX graph.

    ``lines`` describes each op by name, with the user's line. ``foreign`` describes the ops that became operators of
    ``FOREIGN_DOMAIN``.
    """

    inputs: list[Operand] = field(default_factory=list)
    outputs: list[Operand] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    variables: list[str] = field(default_factory=list)
    values: list[Operand] = field(default_factory=list)
    lines: dict[str, str] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)
