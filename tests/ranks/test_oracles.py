"""DistributedDataParallel and FSDP2 on two processes give the losses and weights that jobs on two devices give."""

from __future__ import annotations

import numpy as np
import pytest
from nets import BATCH, LAYOUTS, Spread, begin, data, define, lenet, run, variables

from oneflow.engine.runtime.driver.cluster import Cluster
from oneflow.engine.runtime.launch.world import World

STEPS = 10
CASES = {
    "ddp": ["dp2"],
    "fsdp": ["dp2", "zero", "tp2"],
}


def drawn() -> dict[str, np.ndarray]:
    """The first values of the weights, by the names that torch has for them."""
    begin(1)
    define(lenet, Spread())
    return {name.replace("-", "."): value for name, value in variables().items() if name.endswith(("-weight", "-bias"))}


@pytest.mark.parametrize("oracle", CASES)
def test_torch_trains_as_our_layouts_do(oracle: str) -> None:
    weights = drawn()
    batches = [data(BATCH, step % 3) for step in range(STEPS)]
    cluster = Cluster(World("cpu", devices_per_machine=2), "oracles:Oracle")
    try:
        found = cluster.broadcast(oracle, weights, batches, what=f"training with {oracle}")
    finally:
        cluster.close()
    expected = np.concatenate([np.stack(losses) for losses, _ in found], 1)
    for layout in CASES[oracle]:
        got = run(lenet, LAYOUTS[layout], STEPS)
        np.testing.assert_allclose(got.losses, expected, 1e-5, 1e-5, err_msg=layout)
        for name, value in found[0][1].items():
            np.testing.assert_allclose(
                got.variables[name.replace(".", "-")], value, 1e-5, 1e-5, err_msg=f"{layout}: {name}"
            )
