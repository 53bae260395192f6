"""``flow.math``: derivatives that were called by name, from the value they are known by and the gradient that comes
in."""

from __future__ import annotations

import math

from oneflow.engine.ir.blob import Blob
from oneflow.math._binary import multiply
from oneflow.math._unary import erf, exp, square


def sigmoid_grad(y: Blob, dy: Blob, name: str | None = None) -> Blob:
    """dy · y · (1 - y), where y is the sigmoid."""
    return multiply(dy, y * (1.0 - y), name=name)


def tanh_grad(y: Blob, dy: Blob, name: str | None = None) -> Blob:
    """dy · (1 - y²), where y is the hyperbolic tangent."""
    return multiply(dy, 1.0 - square(y), name=name)


def gelu_grad(x: Blob, dy: Blob, name: str | None = None) -> Blob:
    """dy times the slope of gelu at x."""
    share = (erf(x * math.sqrt(0.5)) + 1.0) * 0.5
    density = exp(square(x) * -0.5) * (1.0 / math.sqrt(2.0 * math.pi))
    return multiply(dy, share + x * density, name=name)
