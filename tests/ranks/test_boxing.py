"""Every change of layout on real ranks: the collectives carry what a value is, whatever its size, dtype and order of
devices."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from nets import begin

import oneflow as flow
from oneflow.engine.core import dtype as dtypes

FLOATS = ("B", "P", "S(0)", "S(1)")
OTHERS = ("B", "S(0)", "S(1)")
X = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
MESHES = {
    "two": ("0:0-1", (2,)),
    "three": ("0:0-2", (3,)),
    "three, not in order": (["0:2", "0:0", "0:1"], (3,)),
    "two by two": ("0:0-3", (2, 2)),
    "two by two, not in order": (["0:3", "0:0", "0:2", "0:1"], (2, 2)),
}


def boxed(x: np.ndarray, mesh: str, kinds: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The value after each change from one layout to another."""
    devices, axes = MESHES[mesh]
    begin(4)
    layouts = list(product(kinds, repeat=len(axes)))
    definition = flow.FixedTensorDef(x.shape, dtypes.from_numpy(x.dtype))

    @flow.global_function("predict")
    def job(value=definition):  # type: ignore[no-untyped-def]
        found: dict[str, Any] = {}
        with flow.scope.placement("cpu", devices, axes):
            for source in layouts:
                first = flow.hierarchical_parallel_cast(value, source)
                for target in layouts:
                    found[f"{source} -> {target}"] = flow.hierarchical_parallel_cast(first, target)
        return found

    return {name: result.numpy() for name, result in job(x).get().items()}


@pytest.mark.parametrize("mesh", MESHES)
def test_a_value_stays_what_it_is_in_every_layout(mesh: str) -> None:
    for name, value in boxed(X, mesh, FLOATS).items():
        np.testing.assert_allclose(value, X, 1e-6, 1e-6, err_msg=name)


@pytest.mark.parametrize("kind", ["float64", "float16", "int8", "uint8", "int32", "int64"])
def test_every_dtype_can_be_laid_out(kind: str) -> None:
    x = (X * 30).astype(np.dtype(kind)) if kind != "uint8" else (np.abs(X) * 30).astype(np.uint8)
    kinds = FLOATS if x.dtype.kind == "f" else OTHERS
    for name, value in boxed(x, "three, not in order", kinds).items():
        assert value.dtype == x.dtype
        np.testing.assert_allclose(value, x, 1e-3 if kind == "float16" else 1e-12, err_msg=name)


def test_a_dim_smaller_than_the_ranks_leaves_some_with_nothing() -> None:
    x = X[:2, :1]
    for name, value in boxed(x, "three", FLOATS).items():
        np.testing.assert_allclose(value, x, 1e-6, err_msg=name)
