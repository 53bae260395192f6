"""One rank of a program of peers that checks laws of global tensors.

``python global_rank.py MODULE,MODULE`` runs each function ``law_...`` of these modules in order; a launcher's variables
say which rank this is. It prints, as JSON, the laws with what went wrong in each, or null. Laws use ``torch`` on whole
tensors as the reference.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import sys
import time
import traceback
from typing import Any

import torch
from torch import Tensor

import oneflow  # noqa: F401  gives tensors their methods
from oneflow.engine.core.region import coordinates
from oneflow.engine.global_tensor import members  # noqa: F401  completes GlobalTensor
from oneflow.engine.global_tensor import sbp as SBP
from oneflow.engine.global_tensor.placement import placement
from oneflow.engine.global_tensor.spec import fresh
from oneflow.engine.global_tensor.tensor import GlobalTensor
from oneflow.engine.sharding.mesh import Layout
from oneflow.engine.world import current_world

RANK, SIZE = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
B, P = SBP.broadcast, SBP.partial_sum
S = SBP.split


def meshes() -> list[Any]:
    """The placements that laws are tried on: all ranks on one axis, and on two; not in order; some of them."""
    if SIZE == 2:
        return [placement("cpu", [0, 1]), placement("cpu", [1, 0]), placement("cpu", [[0, 1]])]
    return [
        placement("cpu", [0, 1, 2, 3]),
        placement("cpu", [[0, 1], [2, 3]]),
        placement("cpu", [[3, 0], [2, 1]]),
        placement("cpu", [2, 0, 3]),
    ]


def layouts(dims: int, axes: int, is_float: bool = True) -> list[tuple[Any, ...]]:
    """Every layout of a tensor of so many dims."""
    kinds = [B, *([P] if is_float else []), *(S(dim) for dim in range(dims))]
    return list(itertools.product(kinds, repeat=axes))


def spread(whole: Tensor, place: Any, sbp: Any) -> Any:
    """A global tensor of this value, which every rank has. Terms of a sum are all different from zero."""
    sbp = sbp if isinstance(sbp, (tuple, list)) else (sbp,)
    layout = Layout(place._mesh, tuple(one._layout for one in sbp))
    spec = fresh(whole.shape, whole.dtype, layout, whole.device)
    block = layout.block(whole.shape, RANK)
    if block is None:
        return GlobalTensor(None, spec)
    here = coordinates(place._mesh.position(RANK), place.hierarchy)
    sums = [axis for axis, one in enumerate(sbp) if one is P]
    part = whole.detach()[block].clone() if not any(here[axis] for axis in sums) else torch.zeros_like(whole[block])
    noise = 1.0 if sums else 0.0
    for axis in sums:  # along each axis of partial sums, what is added makes nothing together
        extent = place.hierarchy[axis]
        noise *= 0.0 if extent == 1 else 1.5 if here[axis] == 0 else -1.5 / (extent - 1)
    return GlobalTensor(part + noise if noise else part, spec)


def near(found: Any, expected: Any, tolerance: float = 1e-4) -> None:
    """Asserts that a global tensor is, on every rank, what is expected."""
    if isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            near(one, other, tolerance)
        return
    if not isinstance(expected, Tensor):
        assert found is expected or found == expected, (type(found), expected)
        return
    assert found.is_global and tuple(found.shape) == tuple(expected.shape), (found.shape, expected.shape)
    assert found.dtype == expected.dtype, (found.dtype, expected.dtype)
    if found._part is not None:
        assert tuple(found._part.shape) == found._spec.part(RANK), (found._part.shape, found._spec)
    value = torch.from_numpy(found.detach().numpy())
    expected = expected.detach()
    if expected.dtype.is_floating_point:
        finite = expected[torch.isfinite(expected)].abs()
        scale = max(1.0, float(finite.max())) if finite.numel() else 1.0
        assert torch.allclose(value, expected, tolerance, tolerance * scale, True), (
            found._spec,
            (value - expected).abs().max(),
            value,
            expected,
        )
    else:
        assert torch.equal(value, expected), (found._spec, value, expected)


def main(names: str, only: str = "") -> None:
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    for module in map(importlib.import_module, names.split(",")):
        laws = {law: function for law, function in vars(module).items() if law.startswith("law_") and only in law}
        assert not results.keys() & laws.keys(), results.keys() & laws.keys()
        for law, function in laws.items():
            begun = time.perf_counter()
            try:
                function()
                results[law] = None
            except Exception:
                results[law] = traceback.format_exc()[-3000:]
            if only:
                print(law, f"{time.perf_counter() - begun:.2f} s", results[law] or "", file=sys.stderr)
    assert current_world().size == SIZE
    print(json.dumps(results))


if __name__ == "__main__":
    sys.modules["global_rank"] = sys.modules["__main__"]
    main(*sys.argv[1:])
