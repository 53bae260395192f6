"""Loader: order over ranks and threads, epochs, exact resume, errors, threads that end."""

from __future__ import annotations

import gc
import io
import json
import os
import subprocess
import threading
import time
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from warm_python import WARM

import oneflow
from oneflow.core.errors import ArgumentError, DataError
from oneflow.core.record.messages import FeatureValue, encode_record
from oneflow.data import BytesDecoder, Coin, Draws, ImageDecoder, Loader, Parts, PixelDecoder, RandomCrop, RawDecoder, write_records
from oneflow.data.image import decode

N = 37
SIZES = (20, 1, 16)


def picture(i: int) -> bytes:
    pixels = np.random.default_rng(i).integers(0, 256, (20 + i % 7, 30 + i % 5, 3), dtype=np.uint8)
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "JPEG")
    return data.getvalue()


def record(i: int, **more: FeatureValue) -> bytes:
    return encode_record(
        {
            "label": FeatureValue("int32_list", np.array([i], np.int32)),
            "encoded": FeatureValue("bytes_list", [picture(i)]),
            "words": FeatureValue("bytes_list", [b"ab", b"c"]),
            **more,
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data")
    numbers = iter(range(N))
    for part, size in enumerate(SIZES):
        write_records(path / f"part-{part}", [record(next(numbers)) for _ in range(size)])
    return path


LABEL = RawDecoder("label", (), "int32")
IMAGE = ImageDecoder("encoded", 16, RandomCrop(), flip=0.5)
ORDERS = [{}, {"order": "shuffle", "seed": 5}, {"order": "oneflow", "shuffle_buffer_size": 9, "seed": 2}]


def take(loader: Loader, count: int) -> list:
    with loader:
        return [batch.tolist() if isinstance(batch, torch.Tensor) else batch for batch in islice(loader, count)]


def labels(folder, count, batch_size=4, **more):
    return [label for batch in take(Loader(folder, batch_size, LABEL, **more), count) for label in batch]


# ------------------------------------------------------------------ what a batch is


def test_structures(folder):
    with Loader(folder, 3, {"label": LABEL, "image": IMAGE, "words": BytesDecoder("words", (3, 4))}) as loader:
        batch = next(iter(loader))
    assert {name: (tuple(t.shape), t.dtype) for name, t in batch.items()} == {
        "label": ((3,), torch.int32),
        "image": ((3, 3, 16, 16), torch.float32),
        "words": ((3, 3, 4), torch.int8),
    }
    assert batch["words"][0].tolist() == [[97, 98, 0, 0], [99, 0, 0, 0], [0, 0, 0, 0]]
    assert isinstance(take(Loader(folder, 3, [LABEL, LABEL]), 1)[0], tuple)
    assert take(Loader(folder, 3, LABEL), 1) == [[0, 1, 2]]


def test_a_function_makes_the_samples():
    def sample(item, draws):
        return {"x": np.full((2,), item, np.float32), "pair": (torch.tensor(item), draws.stream()())}

    with Loader(list(range(10)), 4, sample, epochs=1) as loader:
        batches = list(loader)
    assert [b["x"][:, 0].tolist() for b in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert batches[0]["pair"][0].tolist() == [0, 1, 2, 3]
    assert batches[0]["pair"][1].dtype == torch.float64


def test_samples_of_one_batch_must_agree():
    with Loader([1, 2], 2, lambda item, draws: np.zeros(item)) as loader, pytest.raises(ArgumentError, match="one structure, shape and dtype"):
        next(iter(loader))


def test_a_batch_that_is_held_is_never_written_again(folder):
    with Loader(folder, 4, {"image": IMAGE, "label": LABEL}, order="shuffle") as loader:
        kept = [batch["image"] for batch in islice(loader, 12)]
        copies = [tensor.clone() for tensor in kept]
        del kept[1::2]
        for _ in islice(loader, 12):
            pass
    assert all(torch.equal(a, b) for a, b in zip(kept, copies[::2], strict=True))


def test_pictures_are_those_of_the_record(folder):
    plain = ImageDecoder("encoded", (34, 26), resize=(34, 26), mean=(0.0,), std=(1.0,), color="BGR", layout="HWC")
    pixels = PixelDecoder("encoded", (34, 26), color="BGR", method="antialias")
    image, levels = take(Loader(folder, 1, [plain, pixels]), 7)[6]
    assert levels.dtype == torch.uint8
    expected = np.asarray(Image.open(io.BytesIO(picture(6))).convert("RGB"))[:, :, ::-1]
    np.testing.assert_array_equal(levels[0], np.asarray(Image.fromarray(expected[:, :, ::-1]).resize((34, 26), Image.Resampling.BILINEAR))[:, :, ::-1])
    assert (image[0] - levels[0]).abs().max() <= 1


# ------------------------------------------------------------------ order


@pytest.mark.parametrize("how", ORDERS, ids=["sequential", "shuffle", "oneflow"])
def test_any_number_of_ranks_and_threads_reads_the_same(folder, how):
    """Four ranks of 2, two of 4, one of 8: the same samples with the same crops, step by step."""
    fields = {"label": LABEL, "image": IMAGE}

    def steps(world, threads, prefetch):
        loaders = [
            Loader(folder, 8 // world, fields, rank=r, world=world, threads=threads, prefetch=prefetch, **how) for r in range(world)
        ]
        batches = list(zip(*(take(loader, 12) for loader in loaders)))
        return [{name: torch.cat([b[name] for b in step]) for name in fields} for step in batches]

    whole = steps(1, 1, 1)
    for world, threads, prefetch in ((1, 3, 4), (2, 1, 2), (4, 2, 1)):
        for a, b in zip(whole, steps(world, threads, prefetch), strict=True):
            assert torch.equal(a["label"], b["label"])
            assert torch.equal(a["image"], b["image"])


def test_endless_batches_straddle_epochs(folder):
    assert labels(folder, 20) == [i % N for i in range(80)]
    shuffled = labels(folder, 37, order="shuffle")
    for epoch in range(4):
        assert sorted(shuffled[epoch * N : (epoch + 1) * N]) == list(range(N))


def test_a_batch_larger_than_the_data(folder):
    assert take(Loader(folder, 80, LABEL), 1) == [[i % N for i in range(80)]]


def test_passes_of_whole_epochs(folder):
    with Loader(folder, 8, LABEL, epochs=1, order="shuffle") as loader:
        first, second = ([batch.tolist() for batch in loader] for _ in range(2))
        assert len(loader) == len(first) == len(second) == 5
        assert loader.state()["epoch"] == 2
    assert [len(batch) for batch in first] == [8, 8, 8, 8, 5]
    assert sorted(sum(first, [])) == sorted(sum(second, [])) == list(range(N))
    assert first != second


def test_drop_last(folder):
    with Loader(folder, 8, LABEL, epochs=2, drop_last=True) as loader:
        batches = [batch.tolist() for batch in loader]
        assert len(loader) == 8
    assert batches[:4] == batches[4:] == [list(range(k, k + 8)) for k in (0, 8, 16, 24)]
    with pytest.raises(ArgumentError, match="has no full batch of 2 x 20"):
        Loader(folder, 20, LABEL, epochs=1, drop_last=True, world=2)
    with pytest.raises(TypeError, match="no end"):
        len(Loader(folder, 8, LABEL))


@pytest.mark.parametrize("world", [2, 4])
def test_ranks_share_the_short_batch(folder, world):
    passes = [[batch.tolist() for batch in Loader(folder, 8, LABEL, epochs=1, rank=r, world=world, threads=1)] for r in range(world)]
    assert sorted(i for batches in passes for batch in batches for i in batch) == list(range(N))
    assert {len(batches) for batches in passes} == {-(-N // (8 * world))}
    gc.collect()


def test_ranks_with_parts_of_their_own(folder):
    def of(rank):
        return labels(folder, 6, 10, order="oneflow", shard="parts", rank=rank, world=2, shuffle_buffer_size=0, shuffle_after_epoch=False)

    assert of(0)[:22] == [*range(21), 0]
    assert of(1)[:17] == [*range(21, 37), 21]
    with pytest.raises(ArgumentError, match="4 ranks cannot share 3 part files"):
        Loader(folder, 1, LABEL, order="oneflow", shard="parts", rank=3, world=4)


# ------------------------------------------------------------------ resume


def run(loader, count):
    with loader:
        return [(batch["label"].tolist(), batch["image"].numpy().tobytes()) for batch in islice(loader, count)]


@pytest.mark.parametrize("how", ORDERS, ids=["sequential", "shuffle", "oneflow"])
@pytest.mark.parametrize("stop", [0, 1, 7, 37, 40])  # batches of 2: in epoch 0, at an edge of epochs (74 samples), behind it
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


# ------------------------------------------------------------------ errors


@pytest.fixture
def broken(tmp_path):
    """Ten records; of number 3 the picture is cut short, of number 4 it is none."""
    bad = {3: picture(3)[:200], 4: b"not a picture"}
    write_records(tmp_path / "part-0", [record(i, encoded=FeatureValue("bytes_list", [bad.get(i) or picture(i)])) for i in range(10)])
    return tmp_path


def test_a_picture_that_does_not_decode_is_named(broken):
    with Loader(broken, 2, {"image": IMAGE}) as loader:
        batches = iter(loader)
        next(batches)
        with pytest.raises(DataError, match=r"part-0: record 3 at byte \d+: broken JPEG"):
            next(batches)
        with pytest.raises(DataError, match="record 3"):  # it is still in the way
            next(iter(loader))
        assert loader.state()["sample"] == 2


def test_the_first_error_in_the_order_of_samples_is_raised(broken):
    for threads in (1, 4):
        with Loader(broken, 10, {"image": IMAGE}, threads=threads) as loader, pytest.raises(DataError, match="record 3 "):
            next(iter(loader))


@pytest.mark.parametrize("threads", [1, 3])
def test_bad_samples_can_be_left_out(broken, threads, caplog):
    with Loader(broken, 5, {"label": LABEL, "image": IMAGE}, on_error="skip", threads=threads) as loader:
        batches = [batch["label"].tolist() for batch in islice(loader, 2)]
        assert batches == [[0, 1, 2, 5, 5], [5, 6, 7, 8, 9]]  # the next good one takes the place of each
        assert loader.errors == loader.state()["errors"] == 2  # number 4 is in the way twice
        assert "record 4" in str(loader.last_error)
    assert sum("left out" in line for line in caplog.messages) == 2


@pytest.mark.parametrize("how", ORDERS)
def test_a_bad_record_counts_once_in_all_epochs(broken, how):
    with Loader(broken, 5, {"image": IMAGE}, on_error="skip", max_errors=2, **how) as loader:
        for _ in islice(loader, 20):
            pass
        state = json.loads(json.dumps(loader.state()))
    assert (state["epoch"], state["errors"], state["bad_records"]) == (10, 2, [3, 4])
    with Loader(broken, 5, {"image": IMAGE}, on_error="skip", max_errors=2, **how) as loader:
        loader.load_state(state)
        for _ in islice(loader, 4):
            pass
        assert loader.errors == 2


def test_too_many_bad_samples_are_an_error(broken):
    with Loader(broken, 5, {"image": IMAGE}, on_error="skip", max_errors=1) as loader:
        for _ in range(2):  # asking again does not help
            with pytest.raises(DataError, match=r"2 samples could not be read, more than max_errors=1; the last: .*record [34]"):
                next(iter(loader))


def test_a_source_with_nothing_good_is_an_error(tmp_path):
    write_records(tmp_path / "part-0", [record(0, encoded=FeatureValue("bytes_list", [b"x"]))])
    with Loader(tmp_path, 1, {"image": IMAGE}, on_error="skip") as loader, pytest.raises(DataError, match="not one sample"):
        next(iter(loader))


MISSING = [
    (RawDecoder("lable"), r"record 0 at byte 0: Field lable not found; the record has \['encoded', 'label', 'words'\]"),
    (RawDecoder("label", (2,)), "'label' has 1 values"),
    (RawDecoder("words"), "exactly one entry, this one has 2"),
    (ImageDecoder("label"), "'label' is a int32_list of 1, a picture is a bytes_list"),
    (BytesDecoder("label", (1, 1)), "is a int32_list, a bytes_list was expected"),
    (BytesDecoder("words", (1, 2)), r"has entries of \[2, 1\] bytes"),
]


@pytest.mark.parametrize(("decoder", "match"), MISSING)
def test_records_that_do_not_fit_are_named(folder, decoder, match):
    with Loader(folder, 1, decoder) as loader, pytest.raises(DataError, match=match):
        next(iter(loader))


def test_damaged_files(folder, tmp_path, caplog):
    data = (folder / "part-0").read_bytes()
    (tmp_path / "part-0").write_bytes(data[: len(data) - 10])
    with pytest.raises(DataError, match=r"part-0: record 19 at byte \d+"):
        Loader(tmp_path, 1, LABEL)
    with Loader(tmp_path, 19, LABEL, on_error="skip", epochs=1) as loader:
        assert [batch.tolist() for batch in loader] == [list(range(19))]
        assert loader.errors == 1
    (tmp_path / "part-1").write_bytes(b"")
    with pytest.raises(DataError, match="part-1: record 0 at byte 0: the file is empty"):
        Loader(tmp_path / "part-1", 1, LABEL)
    with pytest.raises(DataError, match="part-7"):
        Loader([tmp_path / "part-7"], 1, LABEL)


def test_an_error_of_a_users_function_comes_through():
    def bad(item, draws):
        raise KeyError("mine")

    with Loader([1], 1, bad, on_error="skip") as loader, pytest.raises(KeyError, match="mine") as error:
        next(iter(loader))
    assert error.value.__notes__ == ["sample 0 of [1]"]


def test_a_record_that_a_users_function_cannot_decode_is_named(broken):
    def image(record, draws):
        return decode(record.features["encoded"].values[0])[:1, :1]

    with Loader(broken, 5, image) as loader, pytest.raises(DataError, match=r"part-0: record 3 at byte \d+: broken JPEG"):
        next(iter(loader))
    with Loader(broken, 5, image, on_error="skip") as loader:
        next(iter(loader))
        assert loader.errors == 2


@pytest.mark.parametrize("sample", ["abc", None, object(), torch.zeros(1, dtype=torch.bfloat16)])
def test_samples_that_are_no_numbers(sample):
    with Loader([1], 1, lambda item, draws: sample) as loader, pytest.raises(ArgumentError, match="a sample"):
        next(iter(loader))


def test_decoders_want_records():
    with Loader([1], 1, LABEL) as loader, pytest.raises(ArgumentError, match="decoders take records, the source has 1"):
        next(iter(loader))


BAD_ARGUMENTS = [
    ({"batch_size": 0}, "batch_size is an int of at least 1"),
    ({"order": "random"}, "order is one of 'sequential', 'shuffle', 'oneflow'"),
    ({"on_error": "ignore"}, "on_error"),
    ({"shard": "files"}, "shard"),
    ({"rank": 2, "world": 2}, "rank 2 of 2"),
    ({"epochs": 0}, "epochs"),
    ({"threads": 0}, "threads"),
    ({"prefetch": 0}, "prefetch"),
    ({"shard": "parts", "world": 2}, "goes with order='oneflow'"),
    ({"shard": "parts", "world": 2, "order": "oneflow", "epochs": 1}, "epochs=None"),
    ({"decoders": 3}, "decoders is a dict or list"),
    ({"seed": 1.5}, "seed is an int"),
    ({"rank": "0"}, "rank is an int"),
    ({"max_errors": -1}, "max_errors is an int of at least 0"),
    ({"order": "oneflow", "shuffle_buffer_size": -1}, "shuffle_buffer_size"),
    ({"decoders": {}}, "decoders is a dict or list"),
    ({"source": 3}, "a source is a folder"),
]


@pytest.mark.parametrize(("arguments", "match"), BAD_ARGUMENTS)
def test_wrong_arguments(folder, arguments, match):
    with pytest.raises(ArgumentError, match=match):
        Loader(**{"source": folder, "batch_size": 2, "decoders": LABEL, **arguments})


@pytest.mark.skipif(torch.cuda.is_available(), reason="memory can be pinned")
def test_pinned_memory_needs_a_gpu(folder):
    with pytest.raises(ArgumentError, match="pin_memory=True needs a GPU"):
        Loader(folder, 2, LABEL, pin_memory=True)


WRONG_DECODERS = [
    (lambda: ImageDecoder(size=0), "size is at least 1"),
    (lambda: ImageDecoder(anchor=(0.5, 1.5)), "anchor from 0 to 1"),
    (lambda: ImageDecoder(flip=1.5), "a probability is from 0 to 1, got 1.5"),
    (lambda: RawDecoder("label", dtype="bfloat16"), "cannot be decoded to bfloat16"),
]


@pytest.mark.parametrize(("make", "match"), WRONG_DECODERS)
def test_wrong_arguments_of_decoders(make, match):
    with pytest.raises(ArgumentError, match=match):
        make()


@pytest.mark.parametrize("state", [{}, "x", {"epoch": 0, "sample": 0, "errors": 0, "bad_records": 3}, {"epoch": -1, "sample": 0, "errors": 0}, {"epoch": 0, "sample": "1", "errors": 0}])
def test_what_is_no_state_is_refused(folder, state):
    with Loader(folder, 2, LABEL) as loader, pytest.raises(DataError, match="is not a position of a loader"):
        loader.load_state(state)


# ------------------------------------------------------------------ threads


def working() -> int:
    return sum(thread.name.startswith("oneflow-loader") for thread in threading.enumerate())


def test_threads_work_ahead_and_end(folder):
    started = threading.Barrier(3, timeout=20)

    def sample(item, draws):
        if item < 2:
            started.wait()  # both must be read at once, and before anyone asks
        return np.int64(item)

    loader = Loader(list(range(20)), 2, sample, threads=2)
    loader.start()
    started.wait()
    assert working() == 2
    assert next(iter(loader)).tolist() == [0, 1]
    loader.close()
    assert working() == 0
    assert next(iter(loader)).tolist() == [2, 3]  # it can go on
    loader.close()


def test_only_so_much_is_read_ahead():
    read = []

    def sample(item, draws):
        read.append(item)
        return np.int64(item)

    with Loader(list(range(100)), 4, sample, prefetch=2) as loader:
        next(iter(loader))
    assert len(read) <= 4 * 4


def test_a_forgotten_loader_leaves_no_thread(folder):
    loader = Loader(folder, 2, LABEL)
    next(iter(loader))
    del loader
    gc.collect()
    ends = time.monotonic() + 10
    while working() and time.monotonic() < ends:
        time.sleep(0.01)
    assert working() == 0


SLEEPER = """
import time
import numpy as np
from oneflow.data import Loader

def sample(item, draws):
    time.sleep(0.2)
    return np.int64(item)

loader = Loader(list(range(1000)), 64, sample, threads=2, prefetch=8)
loader.start()
{then}
print(time.time(), flush=True)
"""


@pytest.mark.parametrize("then", ["", "held = iter(loader)", "loader.close(); loader.start()", "time.sleep(0.3); del loader"])
def test_a_program_ends_without_the_batches_in_work(then):
    environment = os.environ | {"PYTHONPATH": str(Path(oneflow.__file__).parents[1])}
    program = [*WARM.command(), "-c", SLEEPER.format(then=then)]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert time.time() - float(done.stdout) < 10  # 576 samples of 0.2 s by two threads are a minute


def test_closing_waits_only_for_the_samples_begun():
    begun, go_on, read = threading.Event(), threading.Event(), []

    def sample(item, draws):
        begun.set()
        go_on.wait(20)
        read.append(item)
        return np.int64(item)

    loader = Loader(list(range(100)), 50, sample, threads=1)
    loader.start()
    begun.wait(20)
    closing = threading.Thread(target=loader.close)
    closing.start()
    while not loader._ahead[0].stopping.is_set():
        time.sleep(0.01)
    go_on.set()
    closing.join(20)
    assert read == [0]
    assert working() == 0


def test_parts_are_a_source(folder):
    with Parts([folder / "part-1", folder / "part-2"]) as parts, Loader(parts, 3, LABEL) as loader:
        assert next(iter(loader)).tolist() == [20, 21, 22]
        assert loader.source is parts


def test_crops_and_flips_of_equal_salt_have_nothing_to_do_with_each_other():
    draws = [Draws(0, 0, position) for position in range(2000)]
    areas = np.array([w.w * w.h for w in (RandomCrop(salt=5).window(400, 400, d) for d in draws)], np.float64)
    flips = np.array([Coin(salt=5).toss(d) for d in draws])
    assert abs(np.corrcoef(areas, flips)[0, 1]) < 0.1
