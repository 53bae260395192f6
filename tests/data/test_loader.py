"""Loader: what a batch is, and its order over ranks, threads and epochs."""

from __future__ import annotations

import gc
import io
from itertools import islice

import numpy as np
import pytest
import torch
from loader_records import IMAGE, LABEL, ORDERS, N, labels, picture, take
from PIL import Image

from oneflow.data import BytesDecoder, Coin, Draws, ImageDecoder, Loader, Parts, PixelDecoder, RandomCrop
from oneflow.engine.core.errors import ArgumentError

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
    with (
        Loader([1, 2], 2, lambda item, draws: np.zeros(item)) as loader,
        pytest.raises(ArgumentError, match="one structure, shape and dtype"),
    ):
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
    np.testing.assert_array_equal(
        levels[0],
        np.asarray(Image.fromarray(expected[:, :, ::-1]).resize((34, 26), Image.Resampling.BILINEAR))[:, :, ::-1],
    )
    assert (image[0] - levels[0]).abs().max() <= 1


# ------------------------------------------------------------------ order


@pytest.mark.parametrize("how", ORDERS, ids=["sequential", "shuffle", "oneflow"])
def test_any_number_of_ranks_and_threads_reads_the_same(folder, how):
    """Four ranks of 2, two of 4, one of 8: the same samples with the same crops, step by step."""
    fields = {"label": LABEL, "image": IMAGE}

    def steps(world, threads, prefetch):
        loaders = [
            Loader(folder, 8 // world, fields, rank=r, world=world, threads=threads, prefetch=prefetch, **how)
            for r in range(world)
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
    passes = [
        [batch.tolist() for batch in Loader(folder, 8, LABEL, epochs=1, rank=r, world=world, threads=1)]
        for r in range(world)
    ]
    assert sorted(i for batches in passes for batch in batches for i in batch) == list(range(N))
    assert {len(batches) for batches in passes} == {-(-N // (8 * world))}
    gc.collect()


def test_ranks_with_parts_of_their_own(folder):
    def of(rank):
        return labels(
            folder,
            6,
            10,
            order="oneflow",
            shard="parts",
            rank=rank,
            world=2,
            shuffle_buffer_size=0,
            shuffle_after_epoch=False,
        )

    assert of(0)[:22] == [*range(21), 0]
    assert of(1)[:17] == [*range(21, 37), 21]
    with pytest.raises(ArgumentError, match="4 ranks cannot share 3 part files"):
        Loader(folder, 1, LABEL, order="oneflow", shard="parts", rank=3, world=4)


def test_parts_are_a_source(folder):
    with Parts([folder / "part-1", folder / "part-2"]) as parts, Loader(parts, 3, LABEL) as loader:
        assert next(iter(loader)).tolist() == [20, 21, 22]
        assert loader.source is parts


def test_crops_and_flips_of_equal_salt_have_nothing_to_do_with_each_other():
    draws = [Draws(0, 0, position) for position in range(2000)]
    areas = np.array([w.w * w.h for w in (RandomCrop(salt=5).window(400, 400, d) for d in draws)], np.float64)
    flips = np.array([Coin(salt=5).toss(d) for d in draws])
    assert abs(np.corrcoef(areas, flips)[0, 1]) < 0.1
