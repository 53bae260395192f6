"""Beam search: which continuations are kept, and which texts are finished."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from libai.inference.generator.generation_logits_processor import TokenIds, as_list
from oneflow.engine.core.errors import ArgumentError


class BeamScorer(ABC):
    """Chooses, step by step, the beams that go on."""

    @abstractmethod
    def process(
        self, input_ids: Tensor, next_scores: Tensor, next_tokens: Tensor, next_indices: Tensor, **kwargs: Any
    ) -> dict[str, Tensor]:
        """The scores, tokens and origins of the beams that go on."""

    @abstractmethod
    def finalize(
        self,
        input_ids: Tensor,
        final_beam_scores: Tensor,
        final_beam_tokens: Tensor,
        final_beam_indices: Tensor,
        max_length: int,
        **kwargs: Any,
    ) -> Any:
        """The finished texts."""


class BeamHypotheses:
    """The best ``num_beams`` finished texts of one sample. A text's score is its log-probability over its length to the
    power ``length_penalty``; the first ``prompt_length`` tokens do not count."""

    def __init__(
        self,
        num_beams: int,
        length_penalty: float,
        early_stopping: bool | str,
        prompt_length: int = 0,
        max_length: int | None = None,
    ) -> None:
        self.num_beams, self.length_penalty, self.early_stopping = num_beams, length_penalty, early_stopping
        self.prompt_length, self.max_length = prompt_length, max_length
        self.beams: list[tuple[float, Tensor, Any]] = []
        self.worst_score = 1e9

    def __len__(self) -> int:
        return len(self.beams)

    def add(self, hyp: Tensor, sum_logprobs: float, beam_indices: Any = None) -> None:
        """Takes a text in, if it is among the best."""
        score = self._scaled(sum_logprobs, hyp.shape[-1])
        if len(self) < self.num_beams or score > self.worst_score:
            self.beams.append((score, hyp, beam_indices))
            if len(self) > self.num_beams:
                self.beams.remove(min(self.beams, key=_by_score))
            self.worst_score = min(map(_by_score, self.beams))

    def is_done(self, best_sum_logprobs: float, cur_len: int) -> bool:
        """Whether no open beam can become one of the best; with ``early_stopping`` whether there are enough texts."""
        if len(self) < self.num_beams:
            return False
        if self.early_stopping is True:
            return True
        # A longer text divides its log-probability, which is below 0, by more: with a penalty above 0 it may win by its
        # length alone.
        is_longest = self.early_stopping == "never" and self.length_penalty > 0 and self.max_length is not None
        return self.worst_score >= self._scaled(
            best_sum_logprobs, self.max_length if is_longest and self.max_length is not None else cur_len
        )

    def _scaled(self, sum_logprobs: float, length: int) -> float:
        counted = max(length - self.prompt_length, 1)
        return float(sum_logprobs / counted**self.length_penalty)


def _by_score(beam: tuple[float, Tensor, Any]) -> float:
    return beam[0]


class BeamSearchScorer(BeamScorer):
    """Beam search over ``batch_size`` samples, ``num_beams`` each; ``num_beam_hyps_to_keep`` texts of each are given in
    the end."""

    def __init__(
        self,
        batch_size: int,
        num_beams: int,
        length_penalty: float = 1.0,
        do_early_stopping: bool | str = False,
        num_beam_hyps_to_keep: int = 1,
        num_beam_groups: int = 1,
        device: Any = "cuda",
        prompt_length: int = 0,
        **kwargs: Any,
    ) -> None:
        if not isinstance(num_beams, int) or num_beams <= 1:
            raise ArgumentError(
                f"num_beams of a beam search is a whole number from 2 on, got {num_beams!r}; one beam is greedy_search"
            )
        if num_beam_groups != 1:
            raise ArgumentError(f"num_beam_groups={num_beam_groups}: beams in groups are not supported; leave it at 1")
        self.num_beams, self.group_size = num_beams, num_beams
        self.num_beam_hyps_to_keep = num_beam_hyps_to_keep
        limit = kwargs.get("max_length")
        self._beam_hyps = [
            BeamHypotheses(num_beams, length_penalty, do_early_stopping, prompt_length, limit)
            for _ in range(batch_size)
        ]
        self._done = [False] * batch_size

    @property
    def is_done(self) -> bool:
        """Whether every sample is done."""
        return all(self._done)

    def process(  # type: ignore[override]
        self,
        input_ids: Tensor,
        next_scores: Tensor,
        next_tokens: Tensor,
        next_indices: Tensor,
        pad_token_id: int | None = None,
        eos_token_id: TokenIds | None = None,
        beam_indices: Any = None,
        device: Any = "cuda",
    ) -> dict[str, Tensor]:
        """The beams that go on, of candidates in falling order of their scores: ``[batch, candidates]`` of scores,
        tokens, and beams they come from.

        Gives ``next_beam_scores``, ``next_beam_tokens`` and ``next_beam_indices``, each ``[batch * num_beams]``.
        """
        if len(self._beam_hyps) * self.group_size != len(input_ids):
            raise ArgumentError(
                f"{len(input_ids)} rows came for {len(self._beam_hyps)} samples of {self.group_size} beams each; "
                f"repeat every sample {self.group_size} times"
            )
        ends = [] if eos_token_id is None else as_list(eos_token_id)
        if ends and pad_token_id is None:
            pad_token_id = ends[0]
        scores, tokens, origins = next_scores.tolist(), next_tokens.tolist(), next_indices.tolist()
        kept: list[tuple[float, int, int]] = []
        for sample in range(len(self._beam_hyps)):
            if self._done[sample]:
                kept += [(0.0, pad_token_id or 0, sample * self.group_size)] * self.group_size
            else:
                kept += self._open(
                    sample, scores[sample], tokens[sample], origins[sample], input_ids, ends, beam_indices
                )
        as_tensor = dict(zip(("scores", "tokens", "indices"), zip(*kept)))
        return {
            "next_beam_scores": torch.tensor(as_tensor["scores"], dtype=next_scores.dtype, device=next_scores.device),
            "next_beam_tokens": torch.tensor(as_tensor["tokens"], dtype=next_tokens.dtype, device=next_tokens.device),
            "next_beam_indices": torch.tensor(
                as_tensor["indices"], dtype=next_indices.dtype, device=next_indices.device
            ),
        }

    def _open(
        self,
        sample: int,
        scores: list[float],
        tokens: list[int],
        origins: list[int],
        input_ids: Tensor,
        ends: Sequence[int],
        beam_indices: Any,
    ) -> list[Any]:
        """The beams of one sample that go on; what ends among its best becomes a finished text."""
        kept: list[tuple[float, int, int]] = []
        hyps = self._beam_hyps[sample]
        for rank, (score, token, origin) in enumerate(zip(scores, tokens, origins)):
            row = sample * self.group_size + origin
            if token not in ends:
                kept.append((score, token, row))
            elif rank < self.group_size:
                ended = torch.cat(
                    (input_ids[row], torch.tensor([token], dtype=input_ids.dtype, device=input_ids.device))
                )
                hyps.add(ended, score, None if beam_indices is None else (*beam_indices[row], row))
            if len(kept) == self.group_size:
                break
        else:
            raise ArgumentError(
                f"only {len(kept)} of {self.group_size} beams go on: give process() more candidates, twice as many as "
                f"beams for one eos_token_id"
            )
        self._done[sample] = self._done[sample] or hyps.is_done(kept[0][0], input_ids.shape[-1] + 1)
        return kept

    def finalize(  # type: ignore[override]
        self,
        input_ids: Tensor,
        final_beam_scores: Tensor,
        final_beam_tokens: Tensor,
        final_beam_indices: Tensor,
        max_length: int,
        pad_token_id: int | None = None,
        eos_token_id: TokenIds | None = None,
        beam_indices: Any = None,
        device: Any = "cuda",
    ) -> dict[str, Any]:
        """``sequences``, the best texts of each sample, filled up by ``pad_token_id``; their ``sequence_scores``, and
        ``beam_indices``."""
        scores = final_beam_scores.tolist()
        best: list[tuple[float, Tensor, Any]] = []
        for sample, hyps in enumerate(self._beam_hyps):
            if not self._done[sample]:
                for row in range(sample * self.num_beams, (sample + 1) * self.num_beams):
                    hyps.add(input_ids[row], scores[row], None if beam_indices is None else beam_indices[row])
            best += sorted(hyps.beams, key=_by_score, reverse=True)[: self.num_beam_hyps_to_keep]
        longest = max(len(text) for _, text, _ in best)
        if pad_token_id is None:
            pad_token_id = 0 if eos_token_id is None else as_list(eos_token_id)[0]
        sequences = torch.full(
            (len(best), min(longest, max_length)), pad_token_id, dtype=input_ids.dtype, device=input_ids.device
        )
        for row, (_, text, _) in enumerate(best):
            sequences[row, : len(text)] = text[: sequences.shape[1]]
        return {
            "sequences": sequences,
            "sequence_scores": torch.tensor([score for score, _, _ in best], device=final_beam_scores.device),
            "beam_indices": [indices for _, _, indices in best],
        }
