"""Masks for language models: which words of a sample are hidden, and by what."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oneflow.engine.core.errors import ArgumentError

STYLES = ("bert", "bert-cn-wwm", "t5")
_CHINESE_PIECE = re.compile("##[\u4e00-\u9fff]")
_GEOMETRIC = 0.2


@dataclass
class MaskedSpan:
    """Neighbouring tokens that are hidden together: their places, and what they were."""

    index: list[int]
    label: list[int]


def is_start_piece(piece: str) -> bool:
    """Whether a piece begins a word; those inside begin with ``##``."""
    return not piece.startswith("##")


def create_masked_lm_predictions(
    tokenizer: Any,
    tokens: Sequence[int],
    vocab_id_list: Sequence[int],
    vocab_id_to_token_dict: Mapping[int, str],
    masked_lm_prob: float,
    cls_id: int | None,
    sep_id: int | None,
    mask_id: int | None,
    max_predictions_per_seq: float,
    np_rng: np.random.RandomState,
    max_ngrams: int = 3,
    do_whole_word_mask: bool = True,
    favor_longer_ngram: bool = False,
    do_permutation: bool = False,
    geometric_dist: bool = False,
    masking_style: str = "bert",
) -> tuple[list[int], list[int], list[int], list[int], list[MaskedSpan]]:
    """The tokens with some of them masked, the places of these, what stood there, which tokens begin a word (1 or 0),
    and the spans in their order.

    ``round(len(tokens) * masked_lm_prob)`` are hidden, at least one and at most ``max_predictions_per_seq``: runs of 1
    to ``max_ngrams`` whole words, of n words with a probability like 1/n (``favor_longer_ngram``: the other way round;
    ``geometric_dist``: geometric with 0.2). Of the style "bert" a hidden token is the mask in 80 % of the cases, itself
    in 10 % and any token in 10 %; "bert-cn-wwm" is the same, and Chinese pieces lose their ``##``; of the style "t5" it
    is the mask. ``do_permutation`` also mixes the tokens of as many runs again.
    """
    if masking_style not in STYLES:
        raise ArgumentError(f"masking_style is one of {', '.join(STYLES)}, got {masking_style!r}")
    given = [int(token) for token in tokens]
    begins = [token in (cls_id, sep_id) or is_start_piece(vocab_id_to_token_dict[token]) for token in given]
    words = _words(given, begins, (cls_id, sep_id), do_whole_word_mask)
    if masking_style == "bert-cn-wwm":
        given = [_without_hashes(token, vocab_id_to_token_dict, tokenizer) for token in given]
    boundary = [int(begin) for begin in begins]
    if masked_lm_prob == 0 or not words:
        return given, [], [], boundary, []
    count = min(max_predictions_per_seq, max(1, round(len(given) * masked_lm_prob)))
    lengths = _run_lengths(len(words), max_ngrams, favor_longer_ngram, geometric_dist, np_rng)
    covered: set[int] = set()
    spans = _spans(words, lengths, count, covered, np_rng)
    output = list(given)
    for place in (place for span in spans for place in span):
        output[place] = _hidden(given[place], masking_style, mask_id, vocab_id_list, np_rng)
    if do_permutation:
        mixed = [place for span in _spans(words, lengths, 2 * count, covered, np_rng) for place in span]
        for place, source in zip(mixed, np_rng.permutation(mixed)):
            output[place] = given[source]
    places = sorted(covered)
    found = [MaskedSpan(span, [given[place] for place in span]) for span in sorted(spans)]
    return output, places, [given[place] for place in places], boundary, found


def _words(tokens: list[int], begins: list[bool], special: tuple[int | None, ...], whole: bool) -> list[list[int]]:
    """The places of each word; special tokens belong to none."""
    words: list[list[int]] = []
    for place, token in enumerate(tokens):
        if token in special:
            continue
        if whole and words and not begins[place]:
            words[-1].append(place)
        else:
            words.append([place])
    return words


def _run_lengths(
    count: int, longest: int, favor_longer: bool, geometric: bool, random: np.random.RandomState
) -> list[int]:
    """How many words a run takes that begins at each word."""
    room = np.minimum(longest, np.arange(count, 0, -1))  # words up to the end
    if geometric:
        return np.minimum(random.geometric(_GEOMETRIC, count), room).tolist()
    weights = 1.0 / np.arange(1, longest + 1)
    ends = np.cumsum(weights[::-1] if favor_longer else weights)
    drawn = random.random_sample(count) * ends[room - 1]
    return (1 + (drawn[:, None] >= ends).sum(axis=1)).tolist()


def _spans(
    words: list[list[int]], lengths: list[int], count: float, covered: set[int], random: np.random.RandomState
) -> list[list[int]]:
    """Runs of words, from random places, until ``covered`` has ``count`` tokens; one that does not fit is shortened."""
    spans = []
    for first in random.permutation(len(words)).tolist():
        if len(covered) >= count:
            break
        for length in range(lengths[first], 0, -1):
            run = [place for word in words[first : first + length] for place in word]
            if len(covered) + len(run) <= count:
                if covered.isdisjoint(run):
                    spans.append(run)
                    covered.update(run)
                break
    return spans


def _hidden(
    token: int, style: str, mask_id: int | None, vocabulary: Sequence[int], random: np.random.RandomState
) -> Any:
    if style == "t5" or random.random_sample() < 0.8:
        return mask_id
    return token if random.random_sample() < 0.5 else int(vocabulary[random.randint(0, len(vocabulary))])


def _without_hashes(token: int, pieces: Mapping[int, str], tokenizer: Any) -> int:
    piece = pieces[token]
    return tokenizer.convert_tokens_to_ids(piece[2:]) if _CHINESE_PIECE.match(piece) else token
