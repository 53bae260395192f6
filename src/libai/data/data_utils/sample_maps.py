"""Index maps: which sentences, or which tokens, make up each sample. Pure functions of sizes and seeds.

The numbers are those of the C++ helper that LiBai compiles: the same draws of the same twisters, so the same maps.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from oneflow.engine.core.errors import ArgumentError, DataError

LONG_SENTENCE = 512  # a document with a longer sentence is left out
_NEARLY_ALL = 0.8


def sentence_map(
    documents: np.ndarray,
    sizes: np.ndarray,
    num_epochs: int,
    max_num_samples: int,
    max_seq_length: int,
    short_seq_prob: float,
    seed: int,
    min_sentences: int,
) -> np.ndarray:
    """Rows (first sentence, last one + 1, target length), mixed. Whole epochs are added until there are
    ``max_num_samples`` or ``num_epochs`` of them.

    A sample takes sentences of its document until it has the target length, which is ``max_seq_length`` or, with
    ``short_seq_prob``, a random smaller one, and at least ``min_sentences``; one sentence alone is never left over.
    """
    if max_seq_length < 2:
        raise ArgumentError(
            f"samples have room for two tokens or more beside the special ones, got {max_seq_length}; raise "
            f"max_seq_length"
        )
    used = _usable(documents, sizes, min_sentences)
    if not len(used):
        raise DataError(
            f"none of {len(documents) - 1} documents can be used: a document has {min_sentences} sentences or more, "
            f"and none of more than {LONG_SENTENCE} tokens"
        )
    ratio = round(1 / short_seq_prob) if short_seq_prob > 0 else 0
    targets = _targets(ratio, max_seq_length, seed)
    ends = np.concatenate([[0], np.cumsum(sizes[documents[0] : documents[-1]], dtype=np.int64)])
    epochs: list[np.ndarray] = []
    count = 0
    while count < max_num_samples and len(epochs) < num_epochs:
        # Without draws every epoch is the same.
        epochs.append(
            epochs[0] if epochs and not ratio else _epoch(used, ends, int(documents[0]), targets, min_sentences)
        )
        count += len(epochs[-1])
    rows = np.concatenate(epochs) if epochs else np.empty((0, 3), np.int64)
    return rows[_shuffled(len(rows), seed + 1)].astype(
        np.uint32 if len(sizes) <= np.iinfo(np.uint32).max else np.uint64
    )


def _usable(documents: np.ndarray, sizes: np.ndarray, min_sentences: int) -> list[tuple[int, int]]:
    """The first and last sentence + 1 of documents that are long enough and have no sentence that is too long."""
    before = np.concatenate([[0], np.cumsum(sizes[documents[0] : documents[-1]] > LONG_SENTENCE)])
    first, last = documents[:-1], documents[1:]
    fits = (
        (last - first >= min_sentences) & (before[last - documents[0]] == before[first - documents[0]]) & (last > first)
    )
    return list(zip(first[fits].tolist(), last[fits].tolist()))


def _epoch(
    used: list[tuple[int, int]], ends: np.ndarray, base: int, targets: Iterator[int], min_sentences: int
) -> np.ndarray:
    rows: list[int] = []
    for first, last in used:
        tokens = ends[
            first - base : last - base + 1
        ].tolist()  # tokens before each sentence of the document, and before its end
        start, count = 0, last - first
        target = next(targets)
        while start < count:
            end = max(bisect_left(tokens, tokens[start] + target, start + 1), start + min_sentences)
            if count - end <= 1:
                end = count
            rows += (first + start, first + end, target)
            start, target = end, next(targets)
    return np.array(rows, np.int64).reshape(-1, 3)


def _targets(ratio: int, longest: int, seed: int) -> Iterator[int]:
    """The longest length, and one time in ``ratio`` a random one."""
    if not ratio:
        while True:
            yield longest
    twister = np.random.RandomState(seed % 2**32)
    while True:
        drawn = twister.randint(0, 2**32, 1 << 14, dtype=np.uint32).astype(
            np.int64
        )  # the numbers of the 32-bit twister as they come
        yield from np.where(drawn % ratio == 0, 2 + drawn % (longest - 1), longest).tolist()


def _shuffled(count: int, seed: int) -> np.ndarray:
    """A permutation by Fisher and Yates: from the last place down, each changes with one below or itself."""
    places = np.arange(count - 1, 0, -1, dtype=np.uint64)
    partners = (twister_64(seed, len(places)) % (places + np.uint64(1))).tolist()
    order = list(range(count))
    for place, partner in zip(range(count - 1, 0, -1), partners):
        order[place], order[partner] = order[partner], order[place]
    return np.array(order, np.int64)


def twister_64(seed: int, count: int) -> np.ndarray:
    """The first numbers of the 64-bit Mersenne twister, mt19937_64."""
    state = [seed % 2**64]
    for i in range(1, 312):
        state.append((6364136223846793005 * (state[-1] ^ (state[-1] >> 62)) + i) % 2**64)
    words = np.array(state, np.uint64)
    blocks = []
    for _ in range(-(-count // 312)):
        words = _twisted(words)
        blocks.append(words)
    return _tempered(np.concatenate(blocks))[:count] if blocks else np.empty(0, np.uint64)


def _twisted(words: np.ndarray) -> np.ndarray:
    new = np.empty_like(words)
    low = np.uint64(0x7FFFFFFF)

    def mixed(upper: np.ndarray, lower: np.ndarray, far: np.ndarray) -> np.ndarray:
        joined = (upper & ~low) | (lower & low)
        return (
            far
            ^ (joined >> np.uint64(1))
            ^ np.where(joined & np.uint64(1), np.uint64(0xB5026F5AA96619E9), np.uint64(0))
        )

    # The second half of a round reads what the first has made.
    new[:156] = mixed(words[:156], words[1:157], words[156:])
    new[156:311] = mixed(words[156:311], words[157:], new[:155])
    new[311:] = mixed(words[311:], new[:1], new[155:156])
    return new


def _tempered(words: np.ndarray) -> np.ndarray:
    words = words ^ ((words >> np.uint64(29)) & np.uint64(0x5555555555555555))
    words = words ^ ((words << np.uint64(17)) & np.uint64(0x71D67FFFEDA60000))
    words = words ^ ((words << np.uint64(37)) & np.uint64(0xFFF7EEE000000000))
    return words ^ (words >> np.uint64(43))


@dataclass(frozen=True)
class TokenMap:
    """Samples that run on through documents: ``sequences`` in the order in which they are read, ``starts`` of each
    sample as (place among these, token of that one), one more than there are samples, and the ``order`` of samples."""

    sequences: np.ndarray
    starts: np.ndarray
    order: np.ndarray


def token_map(documents: np.ndarray, sizes: np.ndarray, num_samples: int, length: int, seed: int) -> TokenMap:
    """At least ``num_samples`` samples of ``length + 1`` tokens, each beginning with the last token of the one before,
    from as many epochs as it takes.

    Documents are mixed over all epochs, and samples too. If less than 80 % of the last epoch is needed it is mixed
    apart, so that the others are read whole first.
    """
    tokens = int(sizes[documents[0] : documents[-1]].sum(dtype=np.int64))
    if tokens < 2:
        raise DataError(
            f"the documents {int(documents[0])} to {int(documents[-1])} have {tokens} tokens; a sample takes two or "
            f"more"
        )
    epochs = max(1, -(-(num_samples * length + 1) // tokens))
    before = ((epochs - 1) * tokens - 1) // length if epochs > 1 else 0
    is_apart = epochs > 1 and num_samples - before < int(_NEARLY_ALL * ((tokens - 1) // length))
    random = np.random.RandomState(seed)
    parts = [epochs - 1, 1] if is_apart else [epochs]
    sequences = np.concatenate([_mixed_documents(documents, part, random) for part in parts])
    count = (epochs * tokens - 1) // length
    cut = before if is_apart else count
    order = np.concatenate([_mixed(0, cut, random), _mixed(cut, count, random)])
    return TokenMap(_smallest(sequences), _starts(sizes, sequences, count, length), _smallest(order))


def _mixed_documents(documents: np.ndarray, epochs: int, random: np.random.RandomState) -> np.ndarray:
    """The sequences of mixed documents, each document in one piece."""
    order = np.tile(np.arange(len(documents) - 1), epochs)
    random.shuffle(order)
    lengths = np.diff(documents)[order]
    inside = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return np.repeat(documents[:-1][order], lengths) + inside


def _mixed(begin: int, end: int, random: np.random.RandomState) -> np.ndarray:
    order = np.arange(begin, end)
    random.shuffle(order)
    return order


def _starts(sizes: np.ndarray, sequences: np.ndarray, count: int, length: int) -> np.ndarray:
    lengths = sizes[sequences].astype(np.int64)
    ends = np.cumsum(lengths)
    positions = np.arange(count + 1, dtype=np.int64) * length
    places = np.searchsorted(ends, positions, side="right")
    return _smallest(np.stack([places, positions - (ends - lengths)[places]], axis=1))


def _smallest(values: np.ndarray) -> np.ndarray:
    return values.astype(np.int32 if not values.size or values.max() <= np.iinfo(np.int32).max else np.int64)
