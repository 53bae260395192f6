"""What ``generate`` was asked for: its arguments, what the model's config says, and the defaults, in this order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from libai.inference.generator import generation_logits_processor as processors
from libai.inference.generator.generation_logits_processor import LogitsProcessorList
from libai.inference.generator.generation_stopping_criteria import (
    MaxLengthCriteria,
    MaxTimeCriteria,
    StoppingCriteriaList,
)
from oneflow.engine.core.errors import ArgumentError

DEFAULTS: dict[str, Any] = {
    "max_length": 20, "min_length": 0, "do_sample": False, "early_stopping": False, "num_beams": 1, "temperature": 1.0, "top_k": 50, "top_p": 1.0,
    "typical_p": 1.0, "repetition_penalty": 1.0, "bos_token_id": None, "pad_token_id": None, "eos_token_id": None, "length_penalty": 1.0,
    "no_repeat_ngram_size": 0, "encoder_no_repeat_ngram_size": 0, "num_return_sequences": 1, "max_time": None, "max_new_tokens": None,
    "decoder_start_token_id": None, "use_cache": True, "num_beam_groups": 1, "diversity_penalty": 0.0, "renormalize_logits": False,
    "output_scores": False, "forced_bos_token_id": None, "forced_eos_token_id": None, "remove_invalid_values": False,
    "exponential_decay_length_penalty": None, "is_encoder_decoder": False,
}  # fmt: skip


class Settings:
    """The settings of one call, by name."""

    def __init__(self, given: Mapping[str, Any], cfg: Any) -> None:
        self.values: dict[str, Any] = {}
        for name, default in DEFAULTS.items():
            said = given.get(name)
            if said is None and cfg is not None:
                said = cfg.get(name)
            self.values[name] = default if said is None else said
        if given.get("max_new_tokens") is not None:
            if given.get("max_length") is not None:
                raise ArgumentError(
                    f"max_length={given['max_length']} and max_new_tokens={given['max_new_tokens']} both say when to "
                    f"stop; max_length counts the prompt too. Give one"
                )
        elif given.get("max_length") is not None:
            self.values["max_new_tokens"] = None  # the config's, which an argument overrides
        self._check()

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["values"][name]
        except KeyError:
            raise AttributeError(name) from None

    def _check(self) -> None:
        for name in ("num_beams", "num_return_sequences"):
            if not isinstance(self.values[name], int) or self.values[name] < 1:
                raise ArgumentError(f"{name} is a whole number from 1 on, got {self.values[name]!r}")
        if self.num_beam_groups != 1 or self.diversity_penalty:
            raise ArgumentError(
                f"num_beam_groups={self.num_beam_groups}, diversity_penalty={self.diversity_penalty}: beams in groups "
                f"are not supported"
            )
        if self.num_beams > 1 and self.do_sample:
            raise ArgumentError(
                f"num_beams={self.num_beams} with do_sample=True: beams by sampling are not supported; take one or the "
                f"other"
            )
        if not self.do_sample and self.num_return_sequences > self.num_beams:
            raise ArgumentError(
                f"num_return_sequences={self.num_return_sequences} is more than num_beams={self.num_beams}: without "
                f"do_sample=True there are no more different texts"
            )

    def length(self, prompt: int) -> int:
        """How many tokens a text has at most, those of the prompt included."""
        found = prompt + self.max_new_tokens if self.max_new_tokens is not None else self.max_length
        if found <= prompt:
            raise ArgumentError(
                f"the prompt has {prompt} tokens, and a text ends at {found}: give max_new_tokens, or max_length above "
                f"{prompt}"
            )
        return int(found)

    def pad(self) -> int | None:
        """What fills up texts that have ended."""
        if self.pad_token_id is None and self.eos_token_id is not None:
            return processors.as_list(self.eos_token_id)[0]
        return None if self.pad_token_id is None else int(self.pad_token_id)

    def processors(
        self, prompt: int, max_length: int, encoder_input_ids: Any, allowed: Any, own: LogitsProcessorList
    ) -> LogitsProcessorList:
        """The processors that the settings ask for, the caller's last but for the normalising one."""
        p, s, found = processors, self, LogitsProcessorList()
        if s.repetition_penalty != 1.0:
            found.append(p.RepetitionPenaltyLogitsProcessor(s.repetition_penalty))
        if s.no_repeat_ngram_size:
            found.append(p.NoRepeatNGramLogitsProcessor(s.no_repeat_ngram_size))
        if s.encoder_no_repeat_ngram_size:
            if encoder_input_ids is None:
                raise ArgumentError(
                    "encoder_no_repeat_ngram_size needs a model with an encoder and a decoder; no_repeat_ngram_size is "
                    "about the text itself"
                )
            found.append(p.EncoderNoRepeatNGramLogitsProcessor(s.encoder_no_repeat_ngram_size, encoder_input_ids))
        if s.min_length and s.eos_token_id is not None:
            found.append(p.MinLengthLogitsProcessor(s.min_length, s.eos_token_id))
        if allowed is not None:
            found.append(p.PrefixConstrainedLogitsProcessor(allowed, s.num_beams))
        if s.forced_bos_token_id is not None:
            found.append(p.ForcedBOSTokenLogitsProcessor(s.forced_bos_token_id))
        if s.forced_eos_token_id is not None:
            found.append(p.ForcedEOSTokenLogitsProcessor(max_length, s.forced_eos_token_id))
        if s.remove_invalid_values:
            found.append(p.InfNanRemoveLogitsProcessor())
        if s.exponential_decay_length_penalty is not None:
            if s.eos_token_id is None:
                raise ArgumentError("exponential_decay_length_penalty raises the score of eos_token_id: give one")
            found.append(
                p.ExponentialDecayLengthPenalty(tuple(s.exponential_decay_length_penalty), s.eos_token_id, prompt)
            )
        found.extend(own)
        if s.renormalize_logits:
            found.append(p.NormalizationLogitsProcessor())
        return found

    def warpers(self) -> LogitsProcessorList:
        """What sampling leaves out."""
        found = LogitsProcessorList()
        if self.temperature != 1.0:
            found.append(processors.TemperatureLogitsWarper(self.temperature))
        if self.top_k:
            found.append(processors.TopKLogitsWarper(self.top_k))
        if self.top_p < 1.0:
            found.append(processors.TopPLogitsWarper(self.top_p))
        if self.typical_p < 1.0:
            found.append(processors.TypicalLogitsWarper(self.typical_p))
        if self.renormalize_logits:
            found.append(processors.NormalizationLogitsProcessor())
        return found

    def criteria(self, max_length: int, own: StoppingCriteriaList) -> StoppingCriteriaList:
        """When to stop, the caller's criteria included."""
        found = StoppingCriteriaList([MaxLengthCriteria(max_length)])
        if self.max_time is not None:
            found.append(MaxTimeCriteria(self.max_time))
        found.extend(own)
        return found
