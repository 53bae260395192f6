"""How the tables of ``name_calls`` are written: a call, and what it gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

Call = Callable[[], None]


def gives(call: Callable[[], Any], expected: Any, dtype: torch.dtype | None = None) -> Call:
    """Asserts that ``call`` gives ``expected``: numbers by their values, anything else by equality."""

    def asserted() -> None:
        same(call(), expected() if callable(expected) else expected, dtype)

    return asserted


def same(found: Any, expected: Any, dtype: torch.dtype | None = None) -> None:
    """Values are equal, in tuples and lists one by one."""
    if isinstance(found, torch.Tensor):
        np.testing.assert_allclose(values(found), values(expected), rtol=1e-5, atol=1e-6)
        assert dtype is None or found.dtype is dtype, found.dtype
    elif isinstance(found, (tuple, list)) and not isinstance(found, torch.Size):
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            same(one, other, dtype)
    else:
        assert found == expected or found is expected, (found, expected)


def values(x: Any) -> np.ndarray:
    return (
        x.detach().float().numpy()
        if isinstance(x, torch.Tensor) and x.dtype is torch.bfloat16
        else np.asarray(x.detach() if isinstance(x, torch.Tensor) else x)
    )


def shaped(call: Callable[[], torch.Tensor], shape: tuple[int, ...], low: float, high: float) -> Call:
    """Asserts the shape and the bounds of what is drawn."""

    def asserted() -> None:
        found = call()
        assert tuple(found.shape) == shape and bool(((found >= low) & (found <= high)).all()), found

    return asserted
