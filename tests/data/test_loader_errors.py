"""Loader: what is broken is named, left out if that was asked for, and wrong arguments are refused."""

from __future__ import annotations

import json
from itertools import islice

import pytest
import torch
from loader_records import IMAGE, LABEL, ORDERS, record

from oneflow.data import BytesDecoder, ImageDecoder, Loader, RawDecoder, write_records
from oneflow.engine.core.errors import ArgumentError, DataError
from oneflow.engine.core.record.messages import FeatureValue
from oneflow.engine.data.image import decode


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
        with (
            Loader(broken, 10, {"image": IMAGE}, threads=threads) as loader,
            pytest.raises(DataError, match="record 3 "),
        ):
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
            with pytest.raises(
                DataError, match=r"2 samples could not be read, more than max_errors=1; the last: .*record [34]"
            ):
                next(iter(loader))


def test_a_source_with_nothing_good_is_an_error(tmp_path):
    write_records(tmp_path / "part-0", [record(0, encoded=FeatureValue("bytes_list", [b"x"]))])
    with (
        Loader(tmp_path, 1, {"image": IMAGE}, on_error="skip") as loader,
        pytest.raises(DataError, match="not one sample"),
    ):
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

    with (
        Loader(broken, 5, image) as loader,
        pytest.raises(DataError, match=r"part-0: record 3 at byte \d+: broken JPEG"),
    ):
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
    ({"order": "random"}, "order is one of 'sequential', 'shuffle', 'buffer', 'oneflow'"),
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
