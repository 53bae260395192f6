"""Index maps: the samples that documents make, in the order of the original's twisters; and the files that keep
them."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import time

import numpy as np
import pytest

from libai.data.data_utils import compile_helper, get_samples_mapping, is_shared_folder
from libai.data.data_utils.map_file import IndexMap, cached_map, fingerprint
from libai.data.data_utils.sample_maps import sentence_map, token_map, twister_64

ENDLESS = 2**31


class Sentences:
    """The sizes and documents of token files, without tokens."""

    def __init__(self, sizes, documents):
        self.sizes, self.documents = np.asarray(sizes, np.int32), np.asarray(documents)

    def get_doc_idx(self):
        return self.documents


def some_text(sentences=400, seed=0):
    random = np.random.RandomState(seed)
    sizes = random.randint(1, 40, sentences)
    sizes[random.randint(0, sentences, 3)] = 513
    cuts = np.unique(random.randint(1, sentences, sentences // 6))
    return Sentences(sizes, [0, *cuts, sentences])


def by_sentence(text, epochs, count, longest, ratio, seed, least):
    """The map as its definition says, one sentence after the other."""
    draws, rows = np.random.RandomState(seed), []

    def target():
        if not ratio:
            return longest
        drawn = int(draws.randint(0, 2**32, dtype=np.uint32))
        return 2 + drawn % (longest - 1) if drawn % ratio == 0 else longest

    for _ in range(epochs):
        if len(rows) >= count:
            break
        for first, last in zip(text.documents, text.documents[1:]):
            if last - first < least or (text.sizes[first:last] > 512).any():
                continue
            start, goal, length = first, target(), 0
            for sentence in range(first, last):
                length += text.sizes[sentence]
                left = last - sentence - 1
                if (length >= goal and left > 1 and sentence + 1 - start >= least) or left == 0:
                    rows.append((start, sentence + 1, goal))
                    start, goal, length = sentence + 1, target(), 0
    twister = iter(twister_64(seed + 1, len(rows)).tolist())
    for place in range(len(rows) - 1, 0, -1):
        other = next(twister) % (place + 1)
        rows[place], rows[other] = rows[other], rows[place]
    return rows


def test_the_twister_is_the_one_of_the_c_plus_plus_standard():
    assert int(twister_64(5489, 10000)[-1]) == 9981545732273789042
    drawn = np.random.RandomState(5489).randint(0, 2**32, 10000, dtype=np.uint32)  # the 32-bit one is numpy's
    assert int(drawn[-1]) == 4123659995


@pytest.mark.parametrize("least", [1, 2])
@pytest.mark.parametrize("short", [0.0, 0.1, 0.5])
def test_a_map_of_sentences_is_that_of_its_definition(short, least):
    text = some_text()
    for epochs, count in ((1, ENDLESS), (ENDLESS, 200), (3, 10**6)):
        found = sentence_map(text.documents, text.sizes, epochs, count, 64, short, 11, least)
        assert found.dtype == np.uint32 and found.tolist() == [
            list(map(int, row))
            for row in by_sentence(text, epochs, count, 64, round(1 / short) if short else 0, 11, least)
        ]
    assert not len(sentence_map(text.documents, text.sizes, 5, 0, 64, short, 11, least))


def test_a_map_of_a_part_has_the_documents_of_that_part_alone():
    text = some_text()
    part = text.documents[10:31]
    rows = sentence_map(part, text.sizes, 1, ENDLESS, 64, 0.1, 3, 2)
    covered = sorted((int(first), int(last)) for first, last, _ in rows)
    assert covered[0][0] >= part[0] and covered[-1][1] <= part[-1]
    assert all(end <= begin for (_, end), (begin, _) in zip(covered, covered[1:]))  # no sentence twice


@pytest.mark.quiet
def test_a_million_sentences_take_less_than_ten_seconds():
    random = np.random.RandomState(1)
    sizes, documents = random.randint(5, 40, 1_000_000).astype(np.int32), np.arange(0, 1_000_001, 20)
    for short in (0.0, 0.1):
        start = time.perf_counter()
        rows = sentence_map(documents, sizes, 1, ENDLESS, 25, short, 1, 2)
        assert len(rows) > 300_000 and time.perf_counter() - start < 10


@pytest.mark.parametrize("wanted", [3, 12, 40, 43, 200])
def test_samples_of_tokens_cover_every_document_and_share_one_token(wanted):
    random = np.random.RandomState(wanted)
    sizes = random.randint(0, 30, 50)
    documents = np.array([0, 3, 4, 9, 20, 33, 50])
    length = 16
    tokens = [[1000 * number + i for i in range(size)] for number, size in enumerate(sizes)]
    found = token_map(documents, sizes, wanted, length, 5)
    row = np.concatenate([tokens[number] for number in found.sequences]).astype(int)
    count, epochs = len(found.order), len(found.sequences) // 50
    assert count >= wanted > (epochs - 1) * sizes.sum() // length - 1 and count == (epochs * sizes.sum() - 1) // length
    assert (
        sorted(found.order) == list(range(count))
        and found.starts.shape == (count + 1, 2)
        and found.starts.dtype == np.int32
    )
    for number in range(count + 1):
        place, inside = found.starts[number]
        assert tokens[found.sequences[place]][inside] == row[number * length]
    order = found.sequences.tolist()
    for first, last in zip(documents, documents[1:]):
        begins = [at for at, number in enumerate(order) if number == first]
        assert len(begins) == epochs and all(
            order[at : at + last - first] == list(range(first, last)) for at in begins
        )  # a document stays in one piece


def test_a_last_epoch_of_which_little_is_needed_is_read_last():
    sizes, documents = np.full(50, 17), np.arange(51)
    per_epoch = 50 * 17 // 16
    apart = token_map(documents, sizes, 2 * per_epoch + 5, 16, 5)
    cut = (2 * 50 * 17 - 1) // 16
    assert apart.order[:cut].max() < cut <= apart.order[cut:].min() and sorted(apart.sequences[100:]) == list(range(50))
    together = token_map(documents, sizes, 3 * per_epoch - 2, 16, 5)
    assert together.order[:cut].max() > cut


def test_a_map_is_kept_beside_the_data_and_made_anew_for_other_documents(tmp_path):
    text, prefix = some_text(), str(tmp_path / "text")
    ask = lambda: get_samples_mapping(text, prefix, None, 100, 64, 0.1, 7, "train", True)  # noqa: E731
    rows = ask()
    (path,) = tmp_path.iterdir()
    assert path.name == "text_train_indexmap_100mns_64msl_0.10ssp_7s.npy"
    assert np.array_equal(np.load(path), rows) and np.array_equal(
        rows, sentence_map(text.documents, text.sizes, ENDLESS, 100, 64, 0.1, 7, 2)
    )
    written = path.stat().st_mtime_ns
    assert np.array_equal(ask(), rows) and path.stat().st_mtime_ns == written
    text.documents = text.documents[:20]  # another split has the same name
    assert ask()[:, 1].max() <= text.documents[-1] and path.stat().st_mtime_ns != written
    np.save(path, rows)  # as another program has left it
    assert ask()[:, 1].max() <= text.documents[-1]
    assert get_samples_mapping(text, prefix, 2, None, 64, 0.0, 7, "valid", False).shape[1] == 3
    assert (tmp_path / "text_valid_indexmap_2ep_64msl_0.00ssp_7s.npy").exists()


def _count_builds(path, barrier, lines):
    barrier.wait(30)

    def build():
        with open(lines, "a") as file:
            file.write("built\n")
        return np.arange(5)

    assert cached_map(path, fingerprint(1), build).rows.tolist() == [0, 1, 2, 3, 4]


def test_ranks_that_come_at_once_build_a_map_once(tmp_path):
    fork = multiprocessing.get_context("fork")
    barrier, lines = fork.Barrier(4), tmp_path / "lines"
    ranks = [
        fork.Process(target=_count_builds, args=(str(tmp_path / "map.npy"), barrier, str(lines))) for _ in range(4)
    ]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(60)
    assert [rank.exitcode for rank in ranks] == [0] * 4 and lines.read_text() == "built\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lines", "map.npy"]


def test_a_map_is_pickled_by_its_file(tmp_path):
    kept = cached_map(str(tmp_path / "map.npy"), fingerprint(1), lambda: np.zeros(100_000))
    assert len(pickle.dumps(kept)) < 1000 and pickle.loads(pickle.dumps(kept)).rows.shape == (100_000,)
    assert pickle.loads(pickle.dumps(IndexMap(np.arange(3)))).rows.tolist() == [0, 1, 2]


def test_a_folder_that_cannot_be_written_to_costs_the_time_again(tmp_path, caplog):
    found = cached_map(str(tmp_path / "no folder" / "map.npy"), fingerprint(1), lambda: np.arange(3))
    assert (
        found.rows.tolist() == [0, 1, 2]
        and "cannot be kept (No such file or directory); it is built in every process" in caplog.text
    )


def test_what_makes_no_map_is_said(tmp_path):
    text, prefix = some_text(), str(tmp_path / "text")
    with pytest.raises(ValueError, match="needs max_num_samples or num_epochs"):
        get_samples_mapping(text, prefix, None, None, 64, 0.1, 7, "train", True)
    with pytest.raises(ValueError, match="short_seq_prob is a probability, got 2"):
        get_samples_mapping(text, prefix, 1, None, 64, 2, 7, "train", True)
    with pytest.raises(ValueError, match="room for two tokens or more beside the special ones, got 1"):
        get_samples_mapping(text, prefix, 1, None, 1, 0.1, 7, "train", True)
    with pytest.raises(ValueError, match="none of 2 documents can be used: a document has 2 sentences or more"):
        get_samples_mapping(Sentences([5, 600, 7], [0, 1, 3]), prefix, 1, None, 64, 0.1, 7, "train", True)
    with pytest.raises(ValueError, match="the documents 0 to 1 have 1 tokens"):
        token_map(np.array([0, 1]), np.array([1]), 3, 4, 1)


def test_folders_that_other_machines_see(tmp_path, monkeypatch):
    assert is_shared_folder("/proc/self/status") is False
    monkeypatch.setenv("IS_SHARED_FILE", "0")
    assert not is_shared_folder(str(tmp_path))
    monkeypatch.setenv("IS_SHARED_FILE", "1")
    assert is_shared_folder(str(tmp_path))
    compile_helper()
    assert os.listdir(tmp_path) == []
