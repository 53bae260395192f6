"""What is refused, in the words of OneFlow. Found from what every rank knows, so all ranks raise and none waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from oneflow.engine.core.errors import GlobalTensorError
from oneflow.engine.global_tensor.spec import Spec


def mixed(op: Any, plain: torch.Tensor) -> GlobalTensorError:
    return GlobalTensorError(
        f"Got input tensors with inconsistent attributes! {op} is given global tensors and a local one of shape "
        f"{tuple(plain.shape)}; "
        "make it global with to_global(placement, sbp), or the others local with to_local()"
    )


def apart(op: Any, specs: Sequence[Spec]) -> GlobalTensorError:
    places = list(dict.fromkeys(f"{spec.layout.mesh} of {spec.device.type}" for spec in specs))
    return GlobalTensorError(
        f"Expected all tensors to be on the same placement, but found at least two placements, {', '.join(places)}, in "
        f"a call of {op}; "
        "bring them to one with to_global(placement=...)"
    )
