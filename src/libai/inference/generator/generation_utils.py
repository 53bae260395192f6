"""``generate`` for models: a mix-in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

import oneflow as flow
from libai.inference.generator.generation_beam_search import BeamScorer, BeamSearchScorer
from libai.inference.generator.generation_logits_processor import LogitsProcessorList, TokenIds, as_list
from libai.inference.generator.generation_stopping_criteria import (
    MaxLengthCriteria,
    StoppingCriteriaList,
    validate_stopping_criteria,
)
from libai.inference.generator.settings import DEFAULTS, Settings
from libai.inference.generator.steps import CachedSteps, ModelSteps, as_global
from libai.utils import distributed as dist
from oneflow.engine.core.errors import ArgumentError

_UNLIKELY = -1e9


class Generator:
    """For a model whose ``forward`` gives ``logits`` or ``prediction_scores``, ``[rows, length, vocabulary]``: what of
    :meth:`generate` is not said comes from ``self.cfg``, if the model has one. Dropout is off while it generates. All
    ranks call it together and get the same."""

    is_encoder_decoder: bool | None = None
    """Whether ``inputs`` are those of an encoder; what the config says, if this says nothing."""

    def prepare_inputs_for_generation(self, input_ids: Any, **kwargs: Any) -> dict[str, Any]:
        """What ``forward`` is called with, for the tokens so far; a model that takes more says so here."""
        return {"input_ids": input_ids}

    def cached_decoder(self, rows: int, capacity: int, **model_kwargs: Any) -> Any:
        """A decoder that keeps keys and values of ``rows`` texts of up to ``capacity`` tokens; None for a model that
        has none."""
        return None

    # ------------------------------------------------------------------------------------------------------------ ways

    def greedy_search(
        self,
        input_ids: Any,
        logits_processor: LogitsProcessorList | None = None,
        stopping_criteria: StoppingCriteriaList | None = None,
        max_length: int | None = None,
        pad_token_id: int | None = None,
        eos_token_id: TokenIds | None = None,
        is_encoder_decoder: bool = False,
        output_scores: bool = False,
        **model_kwargs: Any,
    ) -> Any:
        """The likeliest token, again and again."""
        criteria = self._criteria(stopping_criteria, max_length)
        return self._one_by_one(
            input_ids,
            logits_processor or LogitsProcessorList(),
            criteria,
            _likeliest,
            pad_token_id,
            eos_token_id,
            output_scores,
            model_kwargs,
        )

    def multinomial_sample(
        self,
        input_ids: Any,
        logits_processor: LogitsProcessorList | None = None,
        stopping_criteria: StoppingCriteriaList | None = None,
        logits_warper: LogitsProcessorList | None = None,
        max_length: int | None = None,
        pad_token_id: int | None = None,
        eos_token_id: TokenIds | None = None,
        is_encoder_decoder: bool = False,
        output_scores: bool = False,
        **model_kwargs: Any,
    ) -> Any:
        """A token by chance, as likely as its score says, again and again; torch's generator draws."""
        criteria = self._criteria(stopping_criteria, max_length)
        processors = LogitsProcessorList([*(logits_processor or []), *(logits_warper or [])])
        return self._one_by_one(
            input_ids, processors, criteria, _drawn, pad_token_id, eos_token_id, output_scores, model_kwargs
        )

    def beam_search(
        self,
        input_ids: Any,
        beam_scorer: BeamScorer,
        logits_processor: LogitsProcessorList | None = None,
        stopping_criteria: StoppingCriteriaList | None = None,
        max_length: int | None = None,
        pad_token_id: int | None = None,
        eos_token_id: TokenIds | None = None,
        is_encoder_decoder: bool = False,
        output_scores: bool = False,
        **model_kwargs: Any,
    ) -> Any:
        """The likeliest texts among those that go on from ``num_beams`` at every token; ``input_ids`` has each prompt
        so many times."""
        criteria, processors = self._criteria(stopping_criteria, max_length), logits_processor or LogitsProcessorList()
        scorer: Any = beam_scorer
        with torch.no_grad():
            ids = _local(input_ids)
            texts, steps = _Texts(ids, _length(criteria)), self._steps(ids, _length(criteria), model_kwargs)
            beams, kept = scorer.num_beams, _Kept(output_scores)
            totals = torch.zeros(len(ids) // beams, beams, device=ids.device)
            totals[:, 1:] = _UNLIKELY  # the beams of a sample are the same at first: the best of the first one go on
            totals = totals.view(-1)
            candidates = max(2, 1 + len(_ends(eos_token_id))) * beams
            origins: list[tuple[int, ...]] = [()] * len(ids)
            while True:
                found = processors(texts.ids, steps.scores(texts.ids).float().log_softmax(-1))
                kept.add(found)
                words = found.shape[-1]
                best, places = (found + totals[:, None]).view(-1, beams * words).topk(candidates, dim=1)
                chosen = scorer.process(
                    texts.ids,
                    best,
                    places % words,
                    places // words,
                    pad_token_id=pad_token_id,
                    eos_token_id=eos_token_id,
                    beam_indices=origins,
                    device=ids.device,
                )
                totals, rows = chosen["next_beam_scores"], chosen["next_beam_indices"]
                origins = [(*origins[row], row) for row in rows.tolist()]
                texts.reorder(rows)
                texts.add(chosen["next_beam_tokens"])
                if _agreed(scorer.is_done or criteria(texts.ids, kept.scores), criteria):
                    break
                steps.reorder(rows)
            done = scorer.finalize(
                texts.ids, totals, chosen["next_beam_tokens"], rows, max_length=_length(criteria), pad_token_id=pad_token_id, eos_token_id=eos_token_id,
                beam_indices=origins, device=ids.device,
            )  # fmt: skip
            more = {"sequences_scores": done["sequence_scores"], "beam_indices": done["beam_indices"]}
            return kept.result(_as_given(done["sequences"], input_ids), more)

    # -------------------------------------------------------------------------------------------------------- generate

    def generate(
        self,
        inputs: Any = None,
        max_length: int | None = None,
        min_length: int | None = None,
        do_sample: bool | None = None,
        early_stopping: bool | str | None = None,
        num_beams: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        typical_p: float | None = None,
        repetition_penalty: float | None = None,
        force_words_ids: Any = None,
        bos_token_id: int | None = None,
        pad_token_id: int | None = None,
        eos_token_id: TokenIds | None = None,
        length_penalty: float | None = None,
        no_repeat_ngram_size: int | None = None,
        encoder_no_repeat_ngram_size: int | None = None,
        num_return_sequences: int | None = None,
        max_time: float | None = None,
        max_new_tokens: int | None = None,
        decoder_start_token_id: int | None = None,
        use_cache: bool | None = None,
        num_beam_groups: int | None = None,
        diversity_penalty: float | None = None,
        prefix_allowed_tokens_fn: Callable[[int, Tensor], list[int]] | None = None,
        logits_processor: LogitsProcessorList | None = None,
        renormalize_logits: bool | None = None,
        stopping_criteria: StoppingCriteriaList | None = None,
        constraints: Any = None,
        output_scores: bool | None = None,
        forced_bos_token_id: int | None = None,
        forced_eos_token_id: TokenIds | None = None,
        remove_invalid_values: bool | None = None,
        exponential_decay_length_penalty: tuple[int, float] | None = None,
        **model_kwargs: Any,
    ) -> Any:
        """Texts that go on from ``inputs``, ``[rows, length]`` of tokens: prompts, or what an encoder reads. Greedy,
        with ``num_beams`` by beam search, with ``do_sample`` by chance. Ends at ``eos_token_id``, at ``max_length``
        tokens with those of the prompt, or at ``max_new_tokens`` without them.

        Gives the tokens, prompts first; with ``output_scores`` a dictionary of ``sequences``, ``scores`` of every step,
        and of beams ``sequences_scores`` and ``beam_indices``. ``attention_mask`` is 0 where a prompt is filled up, on
        the left; without one, ``pad_token_id`` says it.
        """
        given = {name: value for name, value in locals().items() if name in DEFAULTS} | {
            "is_encoder_decoder": self.is_encoder_decoder
        }
        _refuse(force_words_ids=force_words_ids, constraints=constraints)
        settings = Settings(given, getattr(self, "cfg", None))
        prompt = _prompts(inputs, model_kwargs, settings)
        read = _local(prompt)
        mask = _mask(read, model_kwargs.pop("attention_mask", None), settings)
        ids, encoder_ids = (
            (self._first_tokens(read, settings, model_kwargs), read) if settings.is_encoder_decoder else (read, None)
        )
        limit = settings.length(ids.shape[1])
        own = [*(logits_processor or [])]
        processors = settings.processors(
            ids.shape[1], limit, encoder_ids, prefix_allowed_tokens_fn, LogitsProcessorList(own)
        )
        criteria = settings.criteria(limit, StoppingCriteriaList(stopping_criteria or []))
        copies = settings.num_beams if settings.num_beams > 1 else settings.num_return_sequences
        more = {**model_kwargs, "attention_mask": mask, "encoder_input_ids": encoder_ids}
        more = {
            name: value.repeat_interleave(copies, 0) if isinstance(value, Tensor) and copies > 1 else value
            for name, value in more.items()
        }
        told = {
            "logits_processor": processors, "stopping_criteria": criteria, "pad_token_id": settings.pad(), "eos_token_id": settings.eos_token_id,
            "is_encoder_decoder": settings.is_encoder_decoder, "output_scores": settings.output_scores, "use_cache": settings.use_cache,
            **{name: value for name, value in more.items() if value is not None},
        }  # fmt: skip
        rows = _as_given(ids.repeat_interleave(copies, 0), prompt)
        if settings.num_beams > 1:
            scorer = BeamSearchScorer(
                len(ids), settings.num_beams, settings.length_penalty, settings.early_stopping, settings.num_return_sequences,
                device=ids.device, prompt_length=ids.shape[1], max_length=limit,
            )  # fmt: skip
            return self.beam_search(rows, scorer, **told)
        if settings.do_sample:
            return self.multinomial_sample(rows, logits_warper=settings.warpers(), **told)
        return self.greedy_search(rows, **told)

    def compute_transition_beam_scores(
        self, sequences: Any, scores: Sequence[Tensor], beam_indices: Any, eos_token_id: TokenIds | None = None
    ) -> Tensor:
        """The log-probability of every new token of texts that a beam search has found, ``[texts, steps]``; 0 behind
        their ends."""
        texts = _local(sequences)
        longest = max(len(one) for one in beam_indices)
        found = torch.zeros(len(texts), longest, device=texts.device)
        start = texts.shape[1] - longest
        for i, origins in enumerate(beam_indices):
            for step, row in enumerate(origins):
                if row < 0:
                    break
                found[i, step] = scores[step][row, texts[i, start + step]]
        return found

    # --------------------------------------------------------------------------------------------------------- parts

    def _one_by_one(
        self,
        input_ids: Any,
        processors: Any,
        criteria: StoppingCriteriaList,
        choose: Any,
        pad: int | None,
        eos: TokenIds | None,
        output_scores: bool,
        model_kwargs: Any,
    ) -> Any:
        ends = _ends(eos)
        with torch.no_grad():
            ids = _local(input_ids)
            filler = pad if pad is not None else ends[0] if ends else 0
            last = torch.tensor(ends, device=ids.device)
            is_open = torch.ones(len(ids), dtype=torch.bool, device=ids.device)
            texts, steps, kept = (
                _Texts(ids, _length(criteria)),
                self._steps(ids, _length(criteria), model_kwargs),
                _Kept(output_scores),
            )
            while True:
                found = processors(texts.ids, steps.scores(texts.ids))
                kept.add(found)
                tokens = choose(found)
                if ends:
                    tokens = torch.where(is_open, tokens, filler)
                    is_open &= ~torch.isin(tokens, last)
                texts.add(tokens)
                is_over = bool(ends) and not bool(is_open.any())
                if _agreed(is_over or criteria(texts.ids, kept.scores), criteria):
                    return kept.result(_as_given(texts.ids.clone(), input_ids), {})

    def _criteria(self, given: StoppingCriteriaList | None, max_length: int | None) -> StoppingCriteriaList:
        found = StoppingCriteriaList(given or [])
        if max_length is not None:
            return validate_stopping_criteria(found, max_length)
        if found.max_length is None:
            said = getattr(self, "cfg", None)
            found.append(
                MaxLengthCriteria((said.get("max_length") if said is not None else None) or DEFAULTS["max_length"])
            )
        return found

    def _steps(self, ids: Tensor, capacity: int, model_kwargs: dict[str, Any]) -> Any:
        more = dict(model_kwargs)
        use_cache = more.pop("use_cache", True)
        if use_cache and dist.get_pipeline_parallel_size() == 1:
            with torch.inference_mode():
                decoder = self.cached_decoder(len(ids), capacity, **more)
            if decoder is not None:
                return CachedSteps(decoder, None if "encoder_input_ids" in more else more.get("attention_mask"))
        return ModelSteps(self, {**more, "use_cache": use_cache})

    def _first_tokens(self, read: Tensor, settings: Settings, model_kwargs: dict[str, Any]) -> Tensor:
        given = model_kwargs.pop("decoder_input_ids", None)
        if given is not None:
            return _local(given)
        start = (
            settings.decoder_start_token_id if settings.decoder_start_token_id is not None else settings.bos_token_id
        )
        if start is None:
            raise ArgumentError(
                "what does the decoder start with? Give decoder_start_token_id, bos_token_id or decoder_input_ids, or "
                "set one in the model's config"
            )
        return torch.full((len(read), 1), start, dtype=read.dtype, device=read.device)


def going_on(
    input_ids: Any, past_key_values: Any = None, attention_mask: Any = None, use_cache: bool = True, **kwargs: Any
) -> dict[str, Any]:
    """What a decoder is called with: after the first call the last token, and what it kept of those before."""
    ids = input_ids if past_key_values is None else input_ids[:, -1:]
    return {
        "input_ids": ids,
        "past_key_values": past_key_values,
        "attention_mask": attention_mask,
        "use_cache": use_cache,
    }


class _Texts:
    """Tokens so far, in a tensor that is as long as texts may become."""

    def __init__(self, ids: Tensor, capacity: int) -> None:
        self._all = torch.zeros(len(ids), max(capacity, ids.shape[1] + 1), dtype=ids.dtype, device=ids.device)
        self._all[:, : ids.shape[1]] = ids
        self.ids = self._all[:, : ids.shape[1]]

    def add(self, tokens: Tensor) -> None:
        length = self.ids.shape[1]
        self._all[:, length] = tokens
        self.ids = self._all[:, : length + 1]

    def reorder(self, rows: Tensor) -> None:
        self.ids.copy_(self.ids.index_select(0, rows))


class _Kept:
    """The scores of every step, if they are asked for."""

    def __init__(self, is_asked: bool) -> None:
        self.scores: tuple[Tensor, ...] | None = () if is_asked else None

    def add(self, found: Tensor) -> None:
        if self.scores is not None:
            self.scores += (found.clone(),)

    def result(self, sequences: Any, more: dict[str, Any]) -> Any:
        return sequences if self.scores is None else {"sequences": sequences, "scores": self.scores, **more}


def _likeliest(scores: Tensor) -> Tensor:
    return scores.argmax(-1)


def _drawn(scores: Tensor) -> Tensor:
    tokens = torch.multinomial(scores.softmax(-1), 1).squeeze(1)
    if dist.get_world_size() > 1:
        flow.comm.broadcast(tokens, 0)  # every rank has a generator of its own: that of the first counts
    return tokens


def _agreed(is_over: bool, criteria: StoppingCriteriaList) -> bool:
    """Whether to stop; where ranks could differ in it, by their clocks, what the first says."""
    is_certain = dist.get_world_size() == 1 or all(isinstance(one, MaxLengthCriteria) for one in criteria)
    return is_over if is_certain else bool(dist.broadcast_py_object(is_over))


def _ends(eos: TokenIds | None) -> list[int]:
    return [] if eos is None else as_list(eos)


def _length(criteria: StoppingCriteriaList) -> int:
    found = criteria.max_length
    assert found is not None  # _criteria has seen to it
    return found


def _local(ids: Any) -> Tensor:
    """All tokens on every rank."""
    found: Tensor = (
        dist.ttol(ids, device=ids.placement.type, ranks=list(range(dist.get_world_size()))) if ids.is_global else ids
    )
    return found


def _as_given(ids: Tensor, like: Any) -> Any:
    return as_global(ids) if like.is_global else ids


def _refuse(**given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise ArgumentError(
                f"generate() has no constrained beam search: leave {name} out; prefix_allowed_tokens_fn says which "
                f"tokens may come"
            )


def _prompts(inputs: Any, model_kwargs: dict[str, Any], settings: Settings) -> Any:
    named = [name for name in ("input_ids", "encoder_input_ids") if model_kwargs.get(name) is not None]
    if inputs is not None and named:
        raise ArgumentError(f"generate() was given inputs and {named[0]}: give one of them")
    found = inputs if inputs is not None else model_kwargs.pop(named[0]) if named else None
    if found is None:
        if settings.bos_token_id is None:
            raise ArgumentError(
                "generate() goes on from inputs, [rows, length] of tokens, or starts with bos_token_id: give one of "
                "them"
            )
        return torch.full((1, 1), settings.bos_token_id)
    if not isinstance(found, Tensor) or found.dim() != 2 or found.is_floating_point() or not found.shape[1]:
        got = f"{found.dtype} of shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise ArgumentError(f"inputs are tokens, a tensor of whole numbers, [rows, length]; got {got}")
    return found.long()


def _mask(ids: Tensor, given: Any, settings: Settings) -> Tensor | None:
    """0 where a prompt is filled up; None where none is."""
    if given is None:
        pad = settings.pad_token_id
        if pad is None or pad in _ends(settings.eos_token_id):
            return None
        given = (ids != pad).long()
    mask = _local(given)
    if mask.shape != ids.shape:
        raise ArgumentError(f"attention_mask has the shape of inputs, {tuple(ids.shape)}; got {tuple(mask.shape)}")
    return None if bool(mask.all()) else mask
