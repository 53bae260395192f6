"""Token files of the three kinds: the bytes of the format, both ways; what is damaged is one error."""

from __future__ import annotations

import pickle
import struct

import numpy as np
import pytest
import torch

from libai.data.data_utils import IndexedCachedDataset, IndexedDataset, MMapIndexedDataset, get_indexed_dataset
from libai.data.data_utils import indexed_dataset as indexed
from oneflow.engine.data.formats.indexed import open_indexed

DOCUMENTS = [[[1, 2, 3], [4]], [[5, 6, 7, 8, 65000]]]  # documents of sentences
SEQUENCES = [sentence for document in DOCUMENTS for sentence in document]
SIZES, POINTERS, DOC_IDX = [3, 1, 5], [0, 6, 8], [0, 2, 3]
MMAP_INDEX = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, 3, 3) + struct.pack("<3i3q3q", *SIZES, *POINTERS, *DOC_IDX)
MMAP_DATA = struct.pack("<9H", 1, 2, 3, 4, 5, 6, 7, 8, 65000)
LAZY_INDEX = (
    b"TNTIDX\x00\x00"
    + struct.pack("<6Q", 1, 4, 4, 3, 3, 3)
    + struct.pack("<4q4q3q3q", 0, 1, 2, 3, 0, 3, 4, 9, *SIZES, *DOC_IDX)
)
LAZY_DATA = struct.pack("<9i", 1, 2, 3, 4, 5, 6, 7, 8, 65000)
FILES = {"mmap": (MMAP_INDEX, MMAP_DATA), "lazy": (LAZY_INDEX, LAZY_DATA), "cached": (LAZY_INDEX, LAZY_DATA)}
KINDS = pytest.mark.parametrize("impl", ["mmap", "lazy", "cached"])


def written(folder, impl, documents=DOCUMENTS, vocab_size=65001, name="text"):
    prefix = str(folder / name)
    builder = indexed.make_builder(indexed.data_file_path(prefix), impl, vocab_size)
    for document in documents:
        for number, sentence in enumerate(document):
            builder.add_item(torch.tensor(sentence) if number else sentence)
        builder.end_document()
    builder.finalize(indexed.index_file_path(prefix))
    return prefix


def placed(folder, index, data, name="text"):
    (folder / f"{name}.idx").write_bytes(index)
    (folder / f"{name}.bin").write_bytes(data)
    return str(folder / name)


@KINDS
def test_files_have_the_bytes_of_the_format(tmp_path, impl):
    written(tmp_path, impl)
    assert ((tmp_path / "text.idx").read_bytes(), (tmp_path / "text.bin").read_bytes()) == FILES[impl]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text.bin", "text.idx"]


@KINDS
def test_files_of_the_format_are_read(tmp_path, impl):
    prefix = placed(tmp_path, *FILES[impl])
    found = get_indexed_dataset(prefix, impl, skip_warmup=False)
    assert type(found) is {"mmap": MMapIndexedDataset, "lazy": IndexedDataset, "cached": IndexedCachedDataset}[impl]
    assert indexed.infer_dataset_impl(prefix) == ("mmap" if impl == "mmap" else "cached")
    assert type(get_indexed_dataset(prefix, "infer", True)) is (
        MMapIndexedDataset if impl == "mmap" else IndexedCachedDataset
    )
    assert [found[i].tolist() for i in range(len(found))] == SEQUENCES == [one.tolist() for one in found[:]]
    assert [one.tolist() for one in found[1:3]] == SEQUENCES[1:] and found[-1].tolist() == SEQUENCES[-1]
    assert found.get(2, 1, 3).tolist() == [6, 7, 8] and found.get(2, offset=3).tolist() == [8, 65000]
    assert found.sizes.tolist() == SIZES and found.doc_idx.tolist() == found.get_doc_idx().tolist() == DOC_IDX
    assert found.exists(prefix) and indexed.dataset_exists(prefix, impl) and not found.exists(prefix + "x")
    assert found.supports_prefetch == (impl == "cached")
    if impl != "mmap":
        assert (found.size(2), found.num_tokens(0)) == (5, 3)
        found.check_index(2)


@KINDS
def test_what_is_unpickled_has_the_same_part_of_the_documents(tmp_path, impl):
    found = get_indexed_dataset(placed(tmp_path, *FILES[impl]), impl, True)
    found.set_doc_idx(found.get_doc_idx()[1:])
    assert found[0].tolist() == [1, 2, 3]
    again = pickle.loads(pickle.dumps(found))
    assert again.doc_idx.tolist() == [2, 3] and [one.tolist() for one in again[:]] == SEQUENCES


@KINDS
def test_files_are_merged(tmp_path, impl):
    parts = [written(tmp_path, impl, [document], name=f"part{i}") for i, document in enumerate(DOCUMENTS)]
    prefix = str(tmp_path / "text")
    builder = indexed.make_builder(prefix + ".bin", impl, 65001)
    for part in parts:
        builder.merge_file_(part)
    builder.finalize(prefix + ".idx")
    assert ((tmp_path / "text.idx").read_bytes(), (tmp_path / "text.bin").read_bytes()) == FILES[impl]
    wide = (indexed.MMapIndexedDatasetBuilder if impl == "mmap" else indexed.IndexedDatasetBuilder)(
        str(tmp_path / "wide.bin"), dtype=np.int64
    )
    with pytest.raises(ValueError, match="tokens of one dtype: .*part0 has (uint16|int32), .*wide.bin int64"):
        wide.merge_file_(parts[0])


def test_the_reader_of_jobs_reads_them_too(tmp_path):
    found = open_indexed(written(tmp_path, "mmap"))
    assert found.lengths.tolist() == [4, 5] and found.tokens.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 65000]


def test_tokens_are_small_if_the_vocabulary_is(tmp_path):
    dtype = lambda impl, size: indexed.make_builder(str(tmp_path / "x.bin"), impl, size).dtype  # noqa: E731
    assert (dtype("mmap", 65499), dtype("mmap", 65500), dtype("mmap", None), dtype("lazy", 10)) == (
        np.uint16,
        np.int32,
        np.int32,
        np.int32,
    )
    with pytest.raises(ValueError, match="are uint16, which cannot hold all of 3 to 70000"):
        indexed.make_builder(str(tmp_path / "x.bin"), "mmap", 100).add_item([3, 70000])
    assert [indexed.code(dtype) for dtype in ("u1", "i1", "i2", "i4", "i8", "f4", "f8", "u2")] == [
        1,
        2,
        3,
        4,
        5,
        6,
        7,
        8,
    ]
    with pytest.raises(ValueError, match="tokens are uint8, .* got bool"):
        indexed.code(bool)


def test_what_is_not_finished_leaves_no_file(tmp_path):
    prefix = written(tmp_path, "mmap")
    builder = indexed.make_builder(prefix + ".bin", "mmap", 100)
    builder.add_item([1])
    assert MMapIndexedDataset(prefix)[0].tolist() == [1, 2, 3]  # the old files stand until the new ones are whole
    del builder
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text.bin", "text.idx"]


def test_sequences_asked_for_ahead_are_read_once(tmp_path):
    found = IndexedCachedDataset(placed(tmp_path, LAZY_INDEX, LAZY_DATA))
    found.prefetch([2, 0, -1])
    (tmp_path / "text.bin").write_bytes(bytes(len(LAZY_DATA)))
    assert found[2].tolist() == SEQUENCES[2] and found.get(2, 1, 2).tolist() == [6, 7] and found[1].tolist() == [0]


def test_sequences_of_the_lazy_kind_may_have_a_shape(tmp_path):
    builder = indexed.IndexedDatasetBuilder(str(tmp_path / "a.bin"), dtype=np.float32)
    builder.add_item([[1.5, 2], [3, 4]])
    builder.finalize(str(tmp_path / "a.idx"))
    assert IndexedDataset(str(tmp_path / "a"))[0].tolist() == [[1.5, 2], [3, 4]]


def test_an_empty_sequence_ends_a_document():
    assert indexed.create_doc_idx([2, 0, 3, 3, 0]) == [0, 2, 5]


def test_long_numbers(tmp_path):
    with open(tmp_path / "n", "wb") as file:
        indexed.write_longs(file, [1, -2])
    assert (tmp_path / "n").read_bytes() == struct.pack("<2q", 1, -2)
    with open(tmp_path / "n", "rb") as file:
        assert indexed.read_longs(file, 2).tolist() == [1, -2]


def damaged(content, at, value):
    return content[:at] + value + content[at + len(value) :]


@pytest.mark.parametrize(
    ("impl", "index", "data", "message"),
    [
        ("infer", b"something", MMAP_DATA, "text.idx is no index of tokens: it begins with neither"),
        ("lazy", MMAP_INDEX, MMAP_DATA, "files of the kind mmap, not lazy"),
        ("mmap", LAZY_INDEX, LAZY_DATA, "files of the kind lazy or cached, not mmap"),
        ("mmap", MMAP_INDEX[:-1], MMAP_DATA, r"text.idx has 93 bytes, 3 sequences and 3 document entries take 94"),
        ("mmap", damaged(MMAP_INDEX, 9, b"\x02"), MMAP_DATA, "version 2"),
        ("mmap", damaged(MMAP_INDEX, 17, b"\x09"), MMAP_DATA, "dtype code 9"),
        ("mmap", MMAP_INDEX, MMAP_DATA[:-2], "text.bin has 8 tokens, its index speaks of 9; .*cut short"),
        ("mmap", MMAP_INDEX, MMAP_DATA[:-1], "no whole number of 2-byte tokens"),
        ("mmap", damaged(MMAP_INDEX, 34, b"\xff\xff\xff\xff"), MMAP_DATA, "do not belong together"),
        (
            "mmap",
            MMAP_INDEX[:-8] + struct.pack("<q", 2),
            MMAP_DATA,
            "document index runs from 0 to the number of sequences, 3",
        ),
        ("lazy", LAZY_INDEX[:-1], LAZY_DATA, "text.idx ends after 2 of 3 numbers; it was cut short"),
        ("lazy", damaged(LAZY_INDEX, 8, b"\x02"), LAZY_DATA, "version 2, dtype code 4 and 4 bytes"),
        ("cached", LAZY_INDEX, LAZY_DATA[:-4], "text.bin has 8 tokens, its index speaks of 9"),
        ("lazy", LAZY_INDEX[:-8] + struct.pack("<q", 7), LAZY_DATA, "document index runs from 0"),
    ],
)
def test_damaged_files_are_one_error(tmp_path, impl, index, data, message):
    with pytest.raises(ValueError, match=message):
        get_indexed_dataset(placed(tmp_path, index, data), impl, True)


def test_what_is_not_there_is_said(tmp_path):
    prefix = placed(tmp_path, MMAP_INDEX, MMAP_DATA)
    with pytest.raises(ValueError, match="there is no .*nothing.idx; a data prefix is the path of two files"):
        get_indexed_dataset(str(tmp_path / "nothing"), "mmap", True)
    with pytest.raises(ValueError, match="data_impl is one of lazy, cached, mmap, or 'infer'.* got 'fast'"):
        get_indexed_dataset(prefix, "fast", True)
    with pytest.raises(IndexError, match="has 3 sequences, there is no number 3"):
        MMapIndexedDataset(prefix)[3]
    with pytest.raises(ValueError, match="contiguous, got the step 2"):
        MMapIndexedDataset(prefix)[::2]
    with pytest.raises(ValueError, match="is not an index of the lazy kind"):
        IndexedDataset(prefix)
    assert indexed.infer_dataset_impl(str(tmp_path / "nothing")) is None and indexed.get_available_dataset_impl() == [
        "lazy",
        "cached",
        "mmap",
    ]
    (tmp_path / "text.bin").unlink()
    with pytest.raises(ValueError, match="there is no .*text.bin"):
        get_indexed_dataset(prefix, "infer", True)
    (tmp_path / "text.idx").write_bytes(LAZY_INDEX)
    with pytest.raises(ValueError, match="text.bin cannot be read: there is no such file"):
        IndexedDataset(prefix)
    with pytest.raises(ValueError, match="other.idx cannot be read: No such file"):
        IndexedDataset(str(tmp_path / "other"))
