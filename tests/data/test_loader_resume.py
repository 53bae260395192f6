"""Loader: a resumed run equals one that never stopped."""

from __future__ import annotations

import json
from itertools import islice

import numpy as np
import pytest
from loader_records import IMAGE, LABEL, ORDERS, N, labels, record, take

from oneflow.data import Loader, write_records
from oneflow.engine.core.errors import DataError


def run(loader, count):
    with loader:
        return [(batch["label"].tolist(), batch["image"].numpy().tobytes()) for batch in islice(loader, count)]


@pytest.mark.parametrize("how", ORDERS, ids=["sequential", "shuffle", "oneflow"])
@pytest.mark.parametrize(
    "stop", [0, 1, 7, 37, 40]
)  # batches of 2: in epoch 0, at an edge of epochs (74 samples), behind it
def test_a_resumed_run_equals_one_that_never_stopped(folder, how, stop):
    fields = {"label": LABEL, "image": IMAGE}
    whole = run(Loader(folder, 2, fields, threads=2, **how), 60)
    first = Loader(folder, 2, fields, threads=1, prefetch=5, **how)
    assert run(first, stop) == whole[:stop]
    state = json.loads(json.dumps(first.state()))
    assert (state["epoch"], state["sample"]) == divmod(2 * stop, N)
    second = Loader(folder, 2, fields, threads=3, prefetch=1, **how)
    run(second, 3)
    np.random.random(10)  # other users of randomness change nothing
    second.load_state(state)
    assert second.state() == state
    assert run(second, 60 - stop) == whole[stop:]


def test_a_run_goes_on_with_another_number_of_ranks(folder):
    whole = labels(folder, 30, 8, order="shuffle")
    two = [Loader(folder, 4, LABEL, order="shuffle", rank=r, world=2) for r in range(2)]
    for loader in two:
        take(loader, 11)
    states = [loader.state() for loader in two]
    assert states[0] == states[1]
    four = [Loader(folder, 2, LABEL, order="shuffle", rank=r, world=4) for r in range(4)]
    for loader in four:
        loader.load_state(states[0])
    steps = zip(*(take(loader, 19) for loader in four))
    assert [i for step in steps for batch in step for i in batch] == whole[88:]


def test_state_at_the_edge_of_an_epoch_is_the_start_of_the_next(folder):
    with Loader(folder, 8, LABEL, epochs=1, drop_last=True) as loader:
        for _ in islice(loader, 4):
            pass
        assert (loader.state()["epoch"], loader.state()["sample"]) == (1, 0)
    with Loader(folder, 8, LABEL, epochs=1) as resumed:
        resumed.load_state({**resumed.state(), "epoch": 3, "sample": 0})
        assert len(list(resumed)) == 5


def test_a_resumed_pass_ends_with_its_epoch(folder):
    with Loader(folder, 8, LABEL, epochs=1) as loader:
        for _ in islice(loader, 2):
            pass
        state = loader.state()
    with Loader(folder, 8, LABEL, epochs=1) as resumed:
        resumed.load_state(state)
        assert [[len(batch) for batch in resumed] for _ in range(2)] == [[8, 8, 5], [8, 8, 8, 8, 5]]


def test_the_state_is_small(folder):
    loader = Loader(folder, 8, LABEL, order="oneflow", shuffle_buffer_size=100_000)
    assert len(json.dumps(loader.state())) < 300


def test_a_state_of_other_files_or_another_order_is_refused(folder, tmp_path):
    state = Loader(folder, 2, LABEL, order="shuffle").state()
    for other in ({"order": "sequential"}, {"order": "shuffle", "seed": 1}, {"order": "oneflow"}):
        with pytest.raises(DataError, match="same part files and shuffle arguments"):
            Loader(folder, 2, LABEL, **other).load_state(state)
    write_records(tmp_path / "part-0", [record(0)])
    with pytest.raises(DataError, match="same part files"):
        Loader(tmp_path, 2, LABEL, order="shuffle").load_state(state)


@pytest.mark.parametrize(
    "state",
    [
        {},
        "x",
        {"epoch": 0, "sample": 0, "errors": 0, "bad_records": 3},
        {"epoch": -1, "sample": 0, "errors": 0},
        {"epoch": 0, "sample": "1", "errors": 0},
    ],
)
def test_what_is_no_state_is_refused(folder, state):
    with Loader(folder, 2, LABEL) as loader, pytest.raises(DataError, match="is not a position of a loader"):
        loader.load_state(state)
