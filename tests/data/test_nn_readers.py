"""The data modules of ``flow.nn``: records, pictures, raw rows and tokens as tensors."""

from __future__ import annotations

import gc
import struct
import threading
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from loader_records import N, labels, picture
from pictures import read_back, stored

from oneflow import nn
from oneflow.data import write_records
from oneflow.engine.core.errors import ArgumentError, DataError, UnsupportedError
from oneflow.engine.core.record.messages import FeatureValue, encode_record
from oneflow.engine.data.image import keep_aspect_size, resize

LABEL = nn.OFRecordRawDecoder("label", shape=(), dtype=torch.int32)
BATCH = 5


@pytest.fixture
def reader(folder):
    with closing(nn.OFRecordReader(folder, batch_size=BATCH, data_part_num=3)) as made:
        yield made


def png_folder(path: Path, pixels: list[np.ndarray]) -> Path:
    """Records with lossless pictures, so that every level is known."""
    features = [{"encoded": FeatureValue("bytes_list", [stored(p, "PNG")])} for p in pixels]
    write_records(path / "part-0", [encode_record(one) for one in features])
    return path


# ------------------------------------------------------------------ records


def test_a_reader_goes_through_all_records_without_end(reader):
    batches = [LABEL(reader()) for _ in range(10)]
    assert all(batch.dtype == torch.int32 and batch.shape == (BATCH,) for batch in batches)
    assert torch.cat(batches).tolist() == [i % N for i in range(50)]


def test_a_shuffled_reader_has_the_order_of_the_loader(folder):
    how = {"shuffle_buffer_size": 9, "shuffle_after_epoch": True}
    with closing(nn.OFRecordReader(folder, BATCH, 3, random_shuffle=True, random_seed=7, **how)) as reader:
        given = [label for _ in range(20) for label in LABEL(reader()).tolist()]
    assert given == labels(folder, 20, BATCH, order="oneflow", seed=7, **how) and sorted(given[:N]) != given[:N]


def test_without_a_seed_the_order_follows_the_seed_of_the_program(folder):
    def read(program_seed: int) -> list[int]:
        torch.manual_seed(program_seed)
        with closing(nn.OFRecordReader(folder, N, 3, random_shuffle=True, shuffle_buffer_size=20)) as reader:
            return LABEL(reader()).tolist()

    assert read(1) == read(1) != read(2)


def test_decoders_of_one_batch_see_the_same_records(reader):
    for number in range(9):
        records = reader()
        found, pictures = LABEL(records), nn.OFRecordImageDecoder("encoded", "RGB")(records)
        assert len(records) == len(pictures) == BATCH and pictures.shape == (BATCH,)
        for label, image in zip(found.tolist(), pictures):
            assert np.array_equal(image.numpy(), read_back(picture(label))), (
                f"batch {number}, decoded by the caller at first and ahead later"
            )


def test_a_decoder_may_be_called_late_or_twice(reader):
    first, second = reader(), reader()
    assert LABEL(second).tolist() == [5, 6, 7, 8, 9] and LABEL(first).tolist() == LABEL(first).tolist() == [
        0,
        1,
        2,
        3,
        4,
    ]


@dataclass(frozen=True)
class Thread:
    """A step that tells whether a thread of the reader took it."""

    def of(self, sample):
        return np.array(threading.current_thread().name.startswith("oneflow-loader"))


def test_what_was_decoded_once_is_decoded_ahead(reader):
    batches = [[bool(ahead) for ahead in reader().values(Thread())] for _ in range(6)]
    assert batches[0] == [False] * BATCH and batches[-1] == [True] * BATCH


def test_pictures_are_the_users_own(reader):
    pictures = nn.OFRecordImageDecoder("encoded")(reader())
    pictures[0].zero_()
    assert int(pictures[0].sum()) > 0 and len(pictures[1:3]) == 2
    assert repr(pictures).startswith("<5 pictures of shapes (20, 30, 3), ") and repr(pictures).endswith(", ...>")


def test_raw_numbers_are_filled_up_and_cut(tmp_path):
    features = {
        "n": FeatureValue("float_list", np.array([1, 2, 3], np.float32)),
        "b": FeatureValue("bytes_list", [b"\x01\xc8\x02"]),
    }
    write_records(tmp_path / "part-0", [encode_record(features)])
    with closing(nn.OFRecordReader(tmp_path)) as reader:
        records = reader()
        assert nn.OFRecordRawDecoder("n", (2, 2), torch.float64, auto_zero_padding=True)(records).tolist() == [
            [[1, 2], [3, 0]]
        ]
        assert nn.OFRecordRawDecoder("n", (2,), torch.float32, truncate=True)(records).tolist() == [[1, 2]]
        assert nn.OFRecordRawDecoder("b", (2,), torch.int8, truncate=True)(records).tolist() == [[1, -56]]
        assert nn.OFRecordRawDecoder("b", (3,), torch.uint8)(records).tolist() == [[1, 200, 2]]
        with pytest.raises(DataError, match=r"part-0.*record 0.*feature 'n' has 3 values, shape \(2,\) takes 2"):
            nn.OFRecordRawDecoder("n", (2,), torch.float32)(records)


def test_bytes_are_decoded_to_pictures(reader):
    buffers = nn.OFRecordBytesDecoder("encoded")(reader())
    assert bytes(buffers[1].numpy()) == picture(1)
    pictures = nn.image.decode(color_space="BGR")(buffers)
    assert np.array_equal(pictures[1].numpy(), read_back(picture(1))[:, :, ::-1])


def test_a_reader_that_is_forgotten_ends_its_threads(folder):
    before = threading.active_count()
    reader = nn.OFRecordReader(folder, BATCH, 3)
    LABEL(reader())
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("oneflow-loader")]
    assert threads
    del reader
    gc.collect()
    for thread in threads:
        thread.join(10)
    assert threading.active_count() == before


def test_a_closed_reader_goes_on_where_it_was(reader):
    assert LABEL(reader()).tolist() == [0, 1, 2, 3, 4]
    reader.close()
    assert LABEL(reader()).tolist() == [5, 6, 7, 8, 9]


# ------------------------------------------------------------------ pictures of one size


def test_resized_pictures_are_a_tensor_with_their_scales(reader):
    pictures = nn.OFRecordImageDecoder("encoded", "RGB")(reader())
    pixels, scale, none = nn.image.Resize((16, 12))(pictures)
    assert none is None and pixels.dtype == torch.uint8
    wanted = [resize(image.numpy(), 16, 12, "auto") for image in pictures]
    assert np.array_equal(pixels.numpy(), np.stack(wanted))
    assert scale.dtype == torch.float32 and scale.tolist() == [
        pytest.approx([16 / image.shape[1], 12 / image.shape[0]]) for image in pictures
    ]
    assert nn.image.Resize((16, 12), dtype=torch.float32)(pictures)[0].dtype == torch.float32


def test_a_side_can_be_given_and_the_other_follows(reader):
    pictures = nn.OFRecordImageDecoder("encoded", "RGB")(reader())
    sized, scale, sizes = nn.image.Resize(target_size=10, keep_aspect_ratio=True, resize_side="shorter")(pictures)
    wanted = [keep_aspect_size(image.shape[1], image.shape[0], 10) for image in pictures]
    assert sizes.dtype == torch.int32 and [tuple(size) for size in sizes.tolist()] == wanted
    assert [(image.shape[1], image.shape[0]) for image in sized] == wanted and scale.shape == (BATCH, 2)


def test_the_older_form_of_resizing_gives_one_result(reader):
    pictures = nn.OFRecordImageDecoder("encoded", "RGB")(reader())
    assert nn.image.Resize(color_space="RGB", resize_x=8, resize_y=6)(pictures).shape == (BATCH, 6, 8, 3)
    assert [min(image.shape[:2]) for image in nn.image.Resize(resize_shorter=9)(pictures)] == [9] * BATCH


def test_a_training_pipeline_crops_mirrors_and_normalises(tmp_path):
    pixels = [np.random.default_rng(i).integers(0, 256, (12 + i, 10 + 2 * i, 3), dtype=np.uint8) for i in range(3)]
    mean, std, mirror = [10.0, 20.0, 30.0], [2.0, 3.0, 4.0], torch.tensor([0, 1, 1], dtype=torch.int8)
    normalise = nn.CropMirrorNormalize("RGB", "NCHW", 8, 6, 0.0, 1.0, mean, std)
    with closing(nn.OFRecordReader(png_folder(tmp_path, pixels), 3)) as reader:
        given = normalise(nn.OFRecordImageDecoder("encoded", "RGB")(reader()), mirror)
    wanted = [(image[:8, -6:].astype(np.float32) - np.float32(mean)) / np.float32(std) for image in pixels]
    wanted = [image[:, ::-1] if flip else image for image, flip in zip(wanted, mirror.tolist())]
    np.testing.assert_allclose(given, np.stack(wanted).transpose(0, 3, 1, 2), rtol=1e-6)


def test_tensors_are_normalised_in_their_full_size_and_any_layout():
    pixels = torch.arange(2 * 3 * 4, dtype=torch.uint8).reshape(2, 3, 4, 1)
    found = nn.CropMirrorNormalize("GRAY", "NHWC", std=[2.0], output_dtype=torch.float64)(pixels)
    assert found.dtype == torch.float64 and torch.equal(found, pixels.double() / 2)


def test_random_parts_follow_from_the_seeds_and_lie_in_their_pictures(tmp_path):
    pixels = [
        np.arange(40 * 50, dtype=np.uint32).view(np.uint8).reshape(40, 50, 4)[:, :, :3] for _ in range(4)
    ]  # a pixel tells its place
    png_folder(tmp_path, pixels)

    def parts(reader_seed: int, seed: int | None) -> list[np.ndarray]:
        decoder = nn.OFRecordImageDecoderRandomCrop(
            "encoded", "RGB", random_seed=seed, random_area=(0.2, 0.5), random_aspect_ratio=(0.5, 2.0)
        )
        with closing(nn.OFRecordReader(tmp_path, 4, random_seed=reader_seed)) as reader:
            return [image.numpy() for image in decoder(reader())]

    found = parts(1, 2)
    for image in found:
        height, width = image.shape[:2]
        place = int(image[0, 0, 0]) + 256 * int(image[0, 0, 1])
        y, x = divmod(place, 50)
        assert np.array_equal(image, pixels[0][y : y + height, x : x + width]) and 0.15 < height * width / 2000 < 0.55
    same = [
        all(np.array_equal(a, b) for a, b in zip(found, parts(*seeds))) for seeds in ((1, 2), (1, 3), (2, 2), (1, None))
    ]
    assert same == [True, False, False, False]
    assert len({image.shape for image in found}) > 1


def test_coins_fall_by_their_own_generator():
    first, second = nn.CoinFlip(200, random_seed=1), nn.CoinFlip(200, random_seed=1)
    a, b = first(), first()
    assert (
        torch.equal(a, second())
        and not torch.equal(a, b)
        and a.dtype == torch.int8
        and set(a.unique().tolist()) == {0, 1}
    )
    torch.manual_seed(4)
    drawn = nn.CoinFlip(200, probability=0.1)()
    torch.manual_seed(4)
    assert torch.equal(drawn, nn.CoinFlip(200, probability=0.1)()) and 5 < int(drawn.sum()) < 40


# ------------------------------------------------------------------ raw rows and tokens


def raw_files(path: Path, *counts: int) -> list[Path]:
    numbers = iter(range(sum(counts)))
    files = []
    for part, count in enumerate(counts):
        rows = np.array([[next(numbers)] * 3 for _ in range(count)], np.int32)
        rows.tofile(path / f"rows-{part}")
        files.append(path / f"rows-{part}")
    return files


def test_raw_rows_come_file_by_file_without_end(tmp_path):
    reader = nn.RawReader(raw_files(tmp_path, 2, 1, 4), (3,), torch.int32, 3, random_shuffle=False)
    batches = [reader() for _ in range(4)]
    assert batches[0].dtype == torch.int32 and batches[0].shape == (3, 3)
    assert torch.cat(batches)[:, 0].tolist() == [i % 7 for i in range(12)]


@pytest.mark.parametrize("block", [0, 4])
def test_shuffled_raw_rows_keep_blocks_together(tmp_path, block):
    files = raw_files(tmp_path, 12, 8)

    def epochs(seed: int) -> list[list[int]]:
        reader = nn.RawReader(files, (3,), torch.int32, 20, shuffle_block_size=block, random_seed=seed)
        return [reader()[:, 1].tolist() for _ in range(2)]

    first, second = epochs(3)
    assert (
        sorted(first) == sorted(second) == list(range(20))
        and first != second
        and [first, second] == epochs(3) != epochs(4)
    )
    if block:
        assert all(
            first[i : i + 4] == list(range(first[i], first[i] + 4)) and first[i] % 4 == 0 for i in range(0, 20, 4)
        )


def indexed(path: Path, documents: list[list[int]], code: int = 8, dtype: str = "<u2") -> Path:
    """Files of Megatron's kind; a document is one sequence."""
    sizes = [len(document) for document in documents]
    starts = np.cumsum([0, *sizes])[:-1] * np.dtype(dtype).itemsize
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(sizes), len(sizes) + 1)
    tail = (
        np.array(sizes, "<i4").tobytes()
        + starts.astype("<i8").tobytes()
        + np.arange(len(sizes) + 1, dtype="<i8").tobytes()
    )
    (path / "text.idx").write_bytes(head + tail)
    np.array([token for document in documents for token in document], dtype).tofile(path / "text.bin")
    return path / "text"


DOCUMENTS = [[10 * d + t for t in range(n)] for d, n in enumerate([4, 0, 7, 1, 5, 3])]
ROW = [token for document in DOCUMENTS for token in document]  # 20 tokens


def read_tokens(prefix, count, *args, **kwargs):
    with closing(nn.GPTIndexedBinDataReader(prefix, *args, **kwargs)) as reader:
        return [reader() for _ in range(count)]


@pytest.mark.parametrize(("code", "dtype"), [(8, "<u2"), (4, "<i4"), (5, "<i8"), (1, "u1")])
def test_samples_run_through_the_documents_and_share_a_token(tmp_path, code, dtype):
    prefix = indexed(tmp_path, DOCUMENTS, code, dtype)
    first, second = read_tokens(prefix, 2, 6, 6, 3, shuffle=False)
    assert first.dtype == torch.int64 and first.shape == (3, 7)
    endless = ROW * 3
    assert torch.cat([first, second]).tolist() == [endless[6 * i : 6 * i + 7] for i in range(6)]
    (again,) = read_tokens(prefix, 1, 6, 2, 4, torch.int32, False)
    assert again.dtype == torch.int32 and again.tolist() == [endless[6 * (i % 2) : 6 * (i % 2) + 7] for i in range(4)]


def test_shuffled_samples_are_whole_documents_in_another_order(tmp_path):
    prefix = indexed(tmp_path, DOCUMENTS)
    batches = read_tokens(prefix, 4, 1, 19, 19, random_seed=5)
    assert torch.equal(batches[0], read_tokens(prefix, 1, 1, 19, 19, random_seed=5)[0])
    pairs = sorted(map(tuple, batches[0].tolist()))
    row = dict(pairs)  # what follows each token; the last of the epoch begins none
    within = {a: b for document in DOCUMENTS for a, b in zip(document, document[1:])}
    assert all(row.get(a, b) == b for a, b in within.items()), "tokens of one document stay together"
    assert batches[0].tolist() != batches[1].tolist() and sorted(map(tuple, batches[1].tolist())) == pairs, (
        "a second round has the same samples"
    )
    assert not torch.equal(batches[0], read_tokens(prefix, 1, 1, 19, 19, random_seed=6)[0])


def test_a_split_takes_its_share_of_the_documents(tmp_path):
    prefix = indexed(tmp_path, [[d] * 2 for d in range(10)])

    def seen(index: int) -> set[int]:
        (batch,) = read_tokens(prefix, 1, 1, 40, 40, shuffle=False, split_sizes=["7", "2", "1"], split_index=index)
        return set(batch.unique().tolist())

    assert [seen(index) for index in range(3)] == [set(range(7)), {7, 8}, {9}]


# ------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: nn.OFRecordReader("/none", 4), DataError, "OFRecordReader: .*check the directory, data_part_num"),
        (lambda: nn.OFRecordReader(".", 0), ArgumentError, "OFRecordReader: batch_size is an int of at least 1, got 0"),
        (lambda: nn.OFRecordReader(".", random_seed=-5), ArgumentError, "OFRecordReader: random_seed is an int of at least 0, got -5"),
        (lambda: nn.OFRecordReader(".", placement="p"), UnsupportedError, "OFRecordReader gives local tensors: leave placement and sbp out"),
        (lambda: nn.CoinFlip(2, sbp="s"), UnsupportedError, "CoinFlip gives local tensors: leave placement and sbp out"),
        (lambda: nn.CoinFlip(2, device="cuda"), UnsupportedError, "CoinFlip reads into the CPU's memory, got device 'cuda'"),
        (lambda: nn.CoinFlip(2, probability=2), ArgumentError, "CoinFlip's probability is a number"),
        (lambda: nn.OFRecordRawDecoder("x", (), torch.int32, True), UnsupportedError, "dim1_varying_length=True is not supported"),
        (lambda: nn.OFRecordRawDecoder(3, (), torch.int32), ArgumentError, "OFRecordRawDecoder: the name of a feature is a str, got 3"),
        (lambda: nn.OFRecordRawDecoder("x", (), torch.bfloat16), UnsupportedError, "OFRecordRawDecoder cannot decode to bfloat16"),
        (lambda: nn.OFRecordImageDecoder("x", "CMYK"), ArgumentError, "OFRecordImageDecoder: color_space is one of .*; got 'CMYK'"),
        (lambda: nn.OFRecordImageDecoderRandomCrop("x", num_attempts=0), ArgumentError, "num_attempts is an int of at least 1, got 0"),
        (lambda: nn.OFRecordImageDecoderRandomCrop("x", random_area=[0, 1]), ArgumentError, "random_area is two numbers"),
        (lambda: nn.CropMirrorNormalize(output_layout="CHW"), ArgumentError, "CropMirrorNormalize: output_layout is 'NCHW' or 'NHWC', got 'CHW'"),
        (lambda: nn.CropMirrorNormalize(std=[0.0]), ArgumentError, r"CropMirrorNormalize: std is above 0, got \[0.0\]"),
        (lambda: nn.CropMirrorNormalize(mean=[1.0, 2.0]), ArgumentError, r"CropMirrorNormalize: mean is a list of 1 or 3 numbers, got \[1.0, 2.0\]"),
        (lambda: nn.CropMirrorNormalize(crop_pos_x=2.0), ArgumentError, "crop_pos_y and crop_pos_x are from 0 to 1, got 0.5 and 2.0"),
        (lambda: nn.image.Resize(4), ArgumentError, r"flow.nn.image.Resize: target_size is \(width, height\), got 4"),
        (lambda: nn.image.Resize((4, 4), interpolation_type="lanczos"), UnsupportedError, "flow.nn.image.Resize interpolates by one of .*; got 'lanczos'"),
        (lambda: nn.image.Resize(4, keep_aspect_ratio=True, resize_side="left"), ArgumentError, "resize_side is 'shorter' or 'longer', got 'left'"),
        (lambda: nn.image.Resize(resize_shorter=3, resize_x=3), ArgumentError, "takes resize_shorter, or resize_x and resize_y, not all of them"),
        (lambda: nn.image.decode(torch.float32), UnsupportedError, "flow.nn.image.decode gives uint8, got dtype float32"),
        (lambda: nn.RawReader([], (3,), torch.int32, 1), ArgumentError, r"RawReader: files is a list of at least one path, got \[\]"),
        (lambda: nn.RawReader("file", (3,), torch.int32, 1), ArgumentError, "RawReader: files is a list of at least one path, got 'file'"),
        (lambda: nn.RawReader(["/none"], (3,), torch.int32, 1), DataError, "/none cannot be read: No such file"),
        (lambda: nn.RawReader(["x"], (3,), torch.int32, 1, sbp="s"), UnsupportedError, "RawReader gives local tensors"),
        (lambda: nn.GPTIndexedBinDataReader("/none", 3, 3, 3), DataError, "/none.idx cannot be read: No such file"),
        (lambda: nn.GPTIndexedBinDataReader("/none", 3, 0, 3), ArgumentError, "num_samples is an int of at least 1, got 0"),
        (lambda: nn.GPTIndexedBinDataReader("/none", 3, 3, 3, placement=1), UnsupportedError, "GPTIndexedBinDataReader gives local tensors"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused_where_a_module_is_made(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (LABEL, "OFRecordRawDecoder takes what flow.nn.OFRecordReader gave, got tensor"),
        (nn.OFRecordBytesDecoder("x"), "OFRecordBytesDecoder takes what flow.nn.OFRecordReader gave"),
        (nn.OFRecordImageDecoder("x"), "OFRecordImageDecoder takes what flow.nn.OFRecordReader gave"),
        (
            nn.OFRecordImageDecoderRandomCrop("x"),
            "OFRecordImageDecoderRandomCrop takes what flow.nn.OFRecordReader gave",
        ),
        (nn.image.decode(), "flow.nn.image.decode takes what flow.nn.OFRecordBytesDecoder gave"),
        (
            nn.image.Resize((2, 2)),
            "flow.nn.image.Resize takes what flow.nn.OFRecordImageDecoder or flow.nn.image.decode gave",
        ),
        (nn.CropMirrorNormalize(), r"takes pictures, or uint8 of \(batch, height, width, channels\); got tensor"),
    ],
)
def test_a_module_refuses_what_comes_from_nowhere(module, message):
    with pytest.raises(ArgumentError, match=message):
        module(torch.ones(2))


def test_crops_that_do_not_fit_are_refused(reader):
    pictures = nn.OFRecordImageDecoder("encoded", "RGB")(reader())
    with pytest.raises(
        ArgumentError, match="CropMirrorNormalize of pictures of any size: crop_h is an int of at least 1, got 0"
    ):
        nn.CropMirrorNormalize("RGB")(pictures)
    with pytest.raises(DataError, match="part-0.*record 0.*a crop of 90 x 90 does not fit in a picture of 30 x 20"):
        nn.CropMirrorNormalize("RGB", crop_h=90, crop_w=90)(pictures)
    with pytest.raises(ArgumentError, match="the pictures were decoded to RGB, 3 channels; 1 were asked for"):
        nn.image.Resize((4, 4), channels=1)(pictures)


def test_a_missing_feature_and_a_broken_picture_name_their_record(broken):
    with closing(nn.OFRecordReader(broken, 2)) as reader:
        with pytest.raises(
            DataError, match=r"part-0.*record 0.*Field image not found; the record has \['encoded', 'label', 'words'\]"
        ):
            nn.OFRecordRawDecoder("image", (), torch.int32)(reader())
    with closing(nn.OFRecordReader(broken, 2)) as reader:
        decoder = nn.OFRecordImageDecoder("encoded")
        decoder(reader())
        with pytest.raises(DataError, match=r"part-0: record 3 at byte \d+"):
            decoder(reader())


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda idx, tokens: (b"x" + idx[1:], tokens), "is not an index of the memory-mapped kind"),
        (lambda idx, tokens: (idx[:20], tokens), "is not an index of the memory-mapped kind"),
        (
            lambda idx, tokens: (idx[:9] + b"\2" + idx[10:], tokens),
            "has version 2 and dtype code 8; version 1 and the codes",
        ),
        (lambda idx, tokens: (idx[:17] + b"\x63" + idx[18:], tokens), "has version 1 and dtype code 99"),
        (lambda idx, tokens: (idx[:-3], tokens), "sequences and 7 document entries take"),
        (lambda idx, tokens: (idx, tokens[:-2]), "text.bin has 19 tokens, its index 20"),
        (lambda idx, tokens: (idx, tokens[:-1]), "text.bin has 39 bytes, which are no whole number of 2-byte tokens"),
        (
            lambda idx, tokens: (idx[:-8] + struct.pack("<q", 5), tokens),
            "the document index runs from 0 to the number of sequences, 6",
        ),
        (
            lambda idx, tokens: (idx[:58] + struct.pack("<q", 4) + idx[66:], tokens),
            "the sequences do not lie one behind the other",
        ),
    ],
)
def test_token_files_that_are_damaged_are_refused(tmp_path, spoil, message):
    prefix = indexed(tmp_path, DOCUMENTS)
    idx, tokens = spoil((tmp_path / "text.idx").read_bytes(), (tmp_path / "text.bin").read_bytes())
    (tmp_path / "text.idx").write_bytes(idx)
    (tmp_path / "text.bin").write_bytes(tokens)
    with pytest.raises(DataError, match=message):
        nn.GPTIndexedBinDataReader(prefix, 3, 3, 3)


@pytest.mark.parametrize(
    ("sizes", "index", "message"),
    [
        (["a"], 0, r"split_sizes is a list of numbers, got \['a'\]"),
        ([1, 2], None, "split_index the place of one of them"),
        ([1, 2], 2, "split_index is one of them; got .* and 2"),
        ([0, 0], 0, "not all 0"),
    ],
)
def test_splits_that_are_none_are_refused(tmp_path, sizes, index, message):
    with pytest.raises(ArgumentError, match=message):
        nn.GPTIndexedBinDataReader(indexed(tmp_path, DOCUMENTS), 3, 3, 3, split_sizes=sizes, split_index=index)


def test_a_split_without_tokens_and_rows_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(DataError, match="documents 1 to 2 have no tokens"):
        nn.GPTIndexedBinDataReader(indexed(tmp_path, DOCUMENTS), 3, 3, 3, split_sizes=[1, 1, 4], split_index=1)
    (tmp_path / "rows").write_bytes(b"12345")
    with pytest.raises(DataError, match=r"rows has 5 bytes, rows of \(3,\) int32 take 12 each; check shape and dtype"):
        nn.RawReader([tmp_path / "rows"], (3,), torch.int32, 1)
