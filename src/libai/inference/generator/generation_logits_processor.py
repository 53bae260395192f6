"""What changes the scores of the next token before one is chosen.

A processor is called with the tokens so far, ``[rows, length]``, and the scores of the next, ``[rows, vocabulary]``,
and gives the new scores. Warpers are processors that sampling alone uses; they leave out unlikely tokens.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from oneflow.engine.core.errors import ArgumentError

Ngrams = dict[tuple[int, ...], list[int]]
TokenIds = int | Sequence[int]


class LogitsProcessorList(list[Any]):
    """Processors, applied in order."""

    def __call__(self, input_ids: Tensor, scores: Tensor, **kwargs: Any) -> Tensor:
        for processor in self:
            more = list(inspect.signature(processor.__call__).parameters)[2:]
            missing = [name for name in more if name not in kwargs]
            if missing:
                raise ArgumentError(
                    f"{type(processor).__name__} needs {', '.join(missing)}: call the list with "
                    f"{', '.join(f'{name}=...' for name in missing)}"
                )
            scores = processor(input_ids, scores, **{name: kwargs[name] for name in more})
        return scores


class NormalizationLogitsProcessor:
    """Log-probabilities in place of scores."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        return scores.log_softmax(-1)


class InfNanRemoveLogitsProcessor:
    """0 for NaN, the largest and the smallest number for infinite ones."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        limits = torch.finfo(scores.dtype)
        return torch.nan_to_num(scores, nan=0.0, posinf=limits.max, neginf=limits.min)


class ForcedEOSTokenLogitsProcessor:
    """The last token of ``max_length`` is the end of the text."""

    def __init__(self, max_length: int, eos_token_id: TokenIds) -> None:
        self.max_length, self.eos_token_id = max_length, eos_token_id

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        return _only(scores, self.eos_token_id) if input_ids.shape[-1] == self.max_length - 1 else scores


class ForcedBOSTokenLogitsProcessor:
    """The first token after the one that a decoder starts with."""

    def __init__(self, bos_token_id: int) -> None:
        self.bos_token_id = bos_token_id

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        return _only(scores, self.bos_token_id) if input_ids.shape[-1] == 1 else scores


class RepetitionPenaltyLogitsProcessor:
    """Divides the scores of tokens that have come already by ``penalty``, or multiplies negative ones by it."""

    def __init__(self, penalty: float) -> None:
        _require(isinstance(penalty, (int, float)) and penalty > 0, "repetition_penalty", "a number above 0", penalty)
        self.penalty = float(penalty)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        come = scores.gather(1, input_ids)
        return scores.scatter(1, input_ids, torch.where(come < 0, come * self.penalty, come / self.penalty))


class HammingDiversityLogitsProcessor:
    """Lowers, for a group of beams, the scores of tokens that earlier groups have just chosen."""

    def __init__(self, diversity_penalty: float, num_beams: int, num_beam_groups: int) -> None:
        _require(
            isinstance(diversity_penalty, float) and diversity_penalty > 0,
            "diversity_penalty",
            "a float above 0",
            diversity_penalty,
        )
        _require(isinstance(num_beams, int) and num_beams >= 2, "num_beams", "a whole number from 2 on", num_beams)
        is_group_count = isinstance(num_beam_groups, int) and 2 <= num_beam_groups <= num_beams
        _require(is_group_count, "num_beam_groups", f"a whole number from 2 to num_beams={num_beams}", num_beam_groups)
        self._penalty = diversity_penalty
        self._num_beams, self._group_size = num_beams, num_beams // num_beam_groups

    def __call__(self, input_ids: Tensor, scores: Tensor, current_tokens: Tensor, beam_group_idx: int) -> Tensor:
        start = beam_group_idx * self._group_size
        end = min(start + self._group_size, self._num_beams)
        if not start:
            return scores
        chosen = current_tokens.view(-1, self._num_beams)[:, :start]
        counts = torch.zeros(len(chosen), scores.shape[-1], dtype=scores.dtype, device=scores.device)
        counts.scatter_add_(1, chosen, torch.ones_like(chosen, dtype=scores.dtype))
        return scores - self._penalty * counts.repeat_interleave(end - start, 0)


class NoRepeatNGramLogitsProcessor:
    """No ``ngram_size`` tokens in a row come twice."""

    def __init__(self, ngram_size: int) -> None:
        _require(
            isinstance(ngram_size, int) and ngram_size > 0,
            "no_repeat_ngram_size",
            "a whole number from 1 on",
            ngram_size,
        )
        self.ngram_size = ngram_size

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        rows = input_ids.tolist()
        return _without(scores, [_next_of(row, _ngrams(row, self.ngram_size), self.ngram_size) for row in rows])


class EncoderNoRepeatNGramLogitsProcessor:
    """No ``encoder_ngram_size`` tokens in a row of the encoder's input come again."""

    def __init__(self, encoder_ngram_size: int, encoder_input_ids: Tensor) -> None:
        _require(
            isinstance(encoder_ngram_size, int) and encoder_ngram_size > 0,
            "encoder_no_repeat_ngram_size",
            "a whole number from 1 on",
            encoder_ngram_size,
        )
        self.ngram_size = encoder_ngram_size
        if encoder_input_ids.dim() == 1:
            encoder_input_ids = encoder_input_ids.unsqueeze(0)
        self._ngrams = [_ngrams(row, encoder_ngram_size) for row in encoder_input_ids.tolist()]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        beams = len(input_ids) // len(self._ngrams)
        return _without(
            scores,
            [_next_of(row, self._ngrams[i // beams], self.ngram_size) for i, row in enumerate(input_ids.tolist())],
        )


class MinLengthLogitsProcessor:
    """No end of the text before ``min_length`` tokens."""

    def __init__(self, min_length: int, eos_token_id: TokenIds) -> None:
        _require(isinstance(min_length, int) and min_length >= 0, "min_length", "a whole number from 0 on", min_length)
        _require(
            all(one >= 0 for one in as_list(eos_token_id)), "eos_token_id", "a whole number from 0 on", eos_token_id
        )
        self.min_length, self.eos_token_id = min_length, eos_token_id

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        return (
            _without(scores, [as_list(self.eos_token_id)] * len(scores))
            if input_ids.shape[-1] < self.min_length
            else scores
        )


class PrefixConstrainedLogitsProcessor:
    """Only the tokens that ``prefix_allowed_tokens_fn(sample, tokens)`` gives."""

    def __init__(self, prefix_allowed_tokens_fn: Callable[[int, Tensor], list[int]], num_beams: int) -> None:
        self._allowed, self._num_beams = prefix_allowed_tokens_fn, num_beams

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        barred = torch.full_like(scores, -math.inf)
        for i, row in enumerate(input_ids):
            allowed = self._allowed(i // self._num_beams, row)
            if not len(allowed):
                raise ArgumentError(
                    f"prefix_allowed_tokens_fn gave no token for sample {i // self._num_beams} after {row.tolist()}; "
                    f"give one at least"
                )
            barred[i, allowed] = 0
        return scores + barred


class ExponentialDecayLengthPenalty:
    """Raises the score of the end of the text more and more: ``(start, factor)``, from ``start`` new tokens on."""

    def __init__(
        self, exponential_decay_length_penalty: tuple[int, float], eos_token_id: TokenIds, input_ids_seq_length: int
    ) -> None:
        self.regulation_start = exponential_decay_length_penalty[0] + input_ids_seq_length
        self.regulation_factor = exponential_decay_length_penalty[1]
        self.eos_token_id = eos_token_id

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        late = input_ids.shape[-1] - self.regulation_start
        if late <= 0:
            return scores
        scores = scores.clone()
        ends = as_list(self.eos_token_id)
        scores[:, ends] += scores[:, ends].abs() * (self.regulation_factor**late - 1)  # scores below 0 rise too
        return scores


class TemperatureLogitsWarper:
    """Divides by ``temperature``: below 1 likely tokens become likelier."""

    def __init__(self, temperature: float) -> None:
        _require(
            isinstance(temperature, (int, float)) and temperature > 0,
            "temperature",
            "a number above 0; do_sample=False takes the likeliest token",
            temperature,
        )
        self.temperature = float(temperature)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        return scores / self.temperature


class TopPLogitsWarper:
    """The likeliest tokens that have the probability ``top_p`` together."""

    def __init__(self, top_p: float, filter_value: float = -float("Inf"), min_tokens_to_keep: int = 1) -> None:
        _require(0 <= float(top_p) <= 1, "top_p", "a number from 0 to 1", top_p)
        _require(
            isinstance(min_tokens_to_keep, int) and min_tokens_to_keep >= 1,
            "min_tokens_to_keep",
            "a whole number from 1 on",
            min_tokens_to_keep,
        )
        self.top_p, self.filter_value, self.min_tokens_to_keep = float(top_p), filter_value, min_tokens_to_keep

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        ordered, places = scores.sort(descending=False)
        left_out = ordered.softmax(-1).cumsum(-1) <= 1 - self.top_p
        left_out[..., -self.min_tokens_to_keep :] = False
        return scores.masked_fill(left_out.scatter(1, places, left_out), self.filter_value)


class TopKLogitsWarper:
    """The ``top_k`` likeliest tokens."""

    def __init__(self, top_k: int, filter_value: float = -float("Inf"), min_tokens_to_keep: int = 1) -> None:
        _require(isinstance(top_k, int) and top_k > 0, "top_k", "a whole number from 1 on", top_k)
        self.top_k, self.filter_value = max(top_k, min_tokens_to_keep), filter_value

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        least = scores.topk(min(self.top_k, scores.shape[-1]))[0][..., -1:]
        return scores.masked_fill(scores < least, self.filter_value)


class TypicalLogitsWarper:
    """The tokens whose surprise is nearest to the expected one, until they have the probability ``mass`` together."""

    def __init__(self, mass: float = 0.9, filter_value: float = -float("Inf"), min_tokens_to_keep: int = 1) -> None:
        _require(0 < float(mass) < 1, "typical_p", "a number between 0 and 1", mass)
        _require(
            isinstance(min_tokens_to_keep, int) and min_tokens_to_keep >= 1,
            "min_tokens_to_keep",
            "a whole number from 1 on",
            min_tokens_to_keep,
        )
        self.mass, self.filter_value, self.min_tokens_to_keep = float(mass), filter_value, min_tokens_to_keep

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        logs = scores.log_softmax(-1)
        entropy = -(logs * logs.exp()).nansum(-1, keepdim=True)
        distances, places = (-logs - entropy).abs().sort(descending=False)
        sums = scores.gather(-1, places).softmax(-1).cumsum(-1)
        last = (sums < self.mass).sum(1, keepdim=True).clamp_(max=sums.shape[-1] - 1)
        left_out = distances > distances.gather(1, last)
        left_out[..., : self.min_tokens_to_keep] = False
        return scores.masked_fill(left_out.scatter(1, places, left_out), self.filter_value)


def as_list(ids: TokenIds) -> list[int]:
    """One token id, or several, as a list."""
    return [ids] if isinstance(ids, int) else [int(one) for one in ids]


def _require(holds: bool, name: str, expected: str, got: Any) -> None:
    if not holds:
        raise ArgumentError(f"{name} is {expected}, got {got!r}")


def _only(scores: Tensor, ids: TokenIds) -> Tensor:
    left = torch.full_like(scores, -math.inf)
    left[:, as_list(ids)] = 0
    return left


def _without(scores: Tensor, barred: list[list[int]]) -> Tensor:
    places = [(row, token) for row, tokens in enumerate(barred) for token in tokens]
    if not places:
        return scores
    rows, tokens = zip(*places)
    scores = scores.clone()
    scores[list(rows), list(tokens)] = -math.inf
    return scores


def _ngrams(row: list[int], size: int) -> Ngrams:
    """What has come after each run of ``size - 1`` tokens."""
    found: Ngrams = {}
    for i in range(len(row) - size + 1):
        found.setdefault(tuple(row[i : i + size - 1]), []).append(row[i + size - 1])
    return found


def _next_of(row: list[int], found: Ngrams, size: int) -> list[int]:
    return found.get(tuple(row[len(row) - size + 1 :]), []) if len(row) + 1 >= size else []
