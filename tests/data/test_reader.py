"""RecordReader: endless batches, shuffling, exact resume."""

import json

import pytest

from oneflow.core.errors import DataError
from oneflow.data.reader import RecordReader
from oneflow.data.records import write_records


@pytest.fixture
def parts(tmp_path):
    """Three parts of 5, 1 and 4 records, whose bodies are their numbers."""
    numbers = iter(range(10))
    paths = []
    for part, size in enumerate((5, 1, 4)):
        paths.append(str(tmp_path / f"part-{part}"))
        write_records(paths[-1], [str(next(numbers)).encode() for _ in range(size)])
    return paths


def read(reader, first, last):
    return [[int(record.body) for record in reader.batch(k)] for k in range(first, last)]


def test_batches_straddle_the_end_without_loss(parts):
    assert read(RecordReader(parts, 4), 0, 5) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1], [2, 3, 4, 5], [6, 7, 8, 9]]


def test_three_records_in_batches_of_two(tmp_path):
    write_records(tmp_path / "part-0", [b"0", b"1", b"2"])
    assert read(RecordReader([str(tmp_path / "part-0")], 2), 0, 3) == [[0, 1], [2, 0], [1, 2]]


def test_a_batch_larger_than_the_data(parts):
    assert read(RecordReader(parts, 25), 0, 1)[0] == [*range(10), *range(10), *range(5)]


def test_shuffle_after_epoch_moves_whole_parts(parts):
    (first, *later) = read(RecordReader(parts, 10, shuffle_after_epoch=True), 0, 12)
    assert first == list(range(10))
    assert all(sorted(epoch) == list(range(10)) for epoch in later)
    assert len({tuple(epoch) for epoch in later}) > 2
    for epoch in later:
        at = epoch.index(0)
        assert epoch[at : at + 5] == [0, 1, 2, 3, 4]


def test_buffer_shuffle_is_a_function_of_the_seed(parts):
    def order(seed):
        return read(RecordReader(parts, 10, buffer_size=6, seed=seed), 0, 6)

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert order(1)[0] != list(range(10))


def test_decoders_of_one_reader_share_a_batch(parts):
    reader = RecordReader(parts, 2)
    assert reader.batch(0) is reader.batch(0)
    assert reader.batch(1) is reader.batch(1)
    with pytest.raises(DataError, match="go in step"):
        reader.batch(0)
    with pytest.raises(DataError, match="go in step"):
        reader.batch(3)


@pytest.mark.parametrize("shuffle", [{}, {"buffer_size": 6}, {"shuffle_after_epoch": True}, {"buffer_size": 13, "shuffle_after_epoch": True}])
@pytest.mark.parametrize("stop", [0, 1, 2, 5, 7, 10])  # 5 and 10 batches of two are exactly one and two epochs
def test_a_resumed_reader_goes_on_as_if_never_stopped(parts, shuffle, stop):
    whole = read(RecordReader(parts, 2, seed=3, **shuffle), 0, 30)
    first = RecordReader(parts, 2, seed=3, **shuffle)
    assert read(first, 0, stop) == whole[:stop]
    state = json.loads(json.dumps(first.state()))
    second = RecordReader(parts, 2, seed=3, **shuffle)
    read(second, 0, 3)
    second.load_state(state)
    assert second.state() == state
    assert read(second, stop, 30) == whole[stop:]


def test_taking_the_state_changes_nothing(parts):
    watched, plain = RecordReader(parts, 3, buffer_size=4), RecordReader(parts, 3, buffer_size=4)
    for k in range(10):
        watched.state()
        assert read(watched, k, k + 1) == read(plain, k, k + 1)


def test_a_state_of_other_files_or_another_shuffle_is_refused(parts, tmp_path):
    state = RecordReader(parts, 2).state()
    for other in (RecordReader(parts[:2], 2), RecordReader(parts, 2, buffer_size=4), RecordReader(parts, 2, seed=1)):
        with pytest.raises(DataError, match="same part files and shuffle arguments"):
            other.load_state(state)
    write_records(parts[0], [b"0"])
    with pytest.raises(DataError, match="same part files"):
        RecordReader(parts, 2).load_state(state)


def test_a_missing_part_is_seen_at_once(parts, tmp_path):
    with pytest.raises(DataError, match=r"part-3 cannot be read: No such file.*data_part_num"):
        RecordReader([*parts, str(tmp_path / "part-3")], 2)


def test_empty_parts_are_passed_over_but_not_all(tmp_path, parts):
    empty = str(tmp_path / "empty")
    write_records(empty, [])
    assert read(RecordReader([empty, parts[1], empty], 3), 0, 1) == [[5, 5, 5]]
    with pytest.raises(DataError, match="not one record"):
        RecordReader([empty, empty], 1).batch(0)


def test_damage_is_reported_when_it_is_reached(parts):
    with open(parts[2], "r+b") as file:
        file.truncate(20)
    reader = RecordReader(parts, 2)
    assert read(reader, 0, 4) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    with pytest.raises(DataError, match="part-2: record 2 at byte 18"):
        reader.batch(4)
