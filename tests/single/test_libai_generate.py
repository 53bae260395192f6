"""``generate`` gives, token for token, what ``transformers`` gives with the same model and settings; processors and
criteria by themselves."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch

import oneflow as flow
import oneflow.nn as nn
from libai.inference.generator import generation_logits_processor as ours
from libai.inference.generator.generation_beam_search import BeamHypotheses, BeamSearchScorer
from libai.inference.generator.generation_stopping_criteria import (
    MaxLengthCriteria,
    MaxTimeCriteria,
    StoppingCriteriaList,
    validate_stopping_criteria,
)
from libai.inference.generator.generation_utils import Generator

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of importing it
    transformers = pytest.importorskip("transformers")

WORDS, END, PAD = 40, 3, 1


class Adapted(nn.Module, Generator):
    """A model of ``transformers`` with our ``generate``: without a cache, or with its own."""

    def __init__(self, inner, keeps=False, **cfg):
        super().__init__()
        self.inner, self.keeps, self.cfg = inner, keeps, cfg
        self.lengths = []

    def prepare_inputs_for_generation(self, input_ids, past_key_values=None, attention_mask=None, **kwargs):
        self.lengths.append(input_ids.shape[1])
        if not self.keeps:
            return {"input_ids": input_ids, "attention_mask": attention_mask}
        past = past_key_values
        return {"input_ids": input_ids if past is None else input_ids[:, -1:], "past_key_values": past}

    def forward(self, input_ids, past_key_values=None, attention_mask=None):
        positions = None
        if attention_mask is not None:
            positions = (attention_mask.cumsum(-1) - 1).clamp(min=0)
        found = self.inner(
            input_ids,
            past_key_values=past_key_values,
            attention_mask=attention_mask,
            position_ids=positions,
            use_cache=self.keeps,
        )
        return {"logits": found.logits, **({"past_key_values": found.past_key_values} if self.keeps else {})}

    def _reorder_cache(self, past, rows):
        past.reorder_cache(rows)
        return past


def gpt2():
    torch.manual_seed(2)
    config = transformers.GPT2Config(
        vocab_size=WORDS,
        n_positions=64,
        n_embd=16,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=None,
        pad_token_id=PAD,
        initializer_range=0.6,
    )
    return transformers.GPT2LMHeadModel(config).eval()


@pytest.fixture(scope="module")
def model():
    return gpt2()


def prompts(rows=3, length=5):
    return torch.randint(4, WORDS, (rows, length), generator=torch.Generator().manual_seed(rows + length))


def theirs(model, ids, mask=None, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.generate(
            ids,
            attention_mask=torch.ones_like(ids) if mask is None else mask,
            **{"do_sample": False, "pad_token_id": PAD, **settings},
        )


SETTINGS = {
    "greedy": {"max_new_tokens": 12},
    "to an end": {"max_new_tokens": 20, "eos_token_id": END},
    "several ends": {"max_new_tokens": 20, "eos_token_id": [END, 7, 9]},
    "max_length": {"max_length": 11},
    "min_length": {"max_length": 30, "min_length": 25, "eos_token_id": END},
    "repetition_penalty": {"max_new_tokens": 15, "repetition_penalty": 1.7},
    "no_repeat_ngram_size": {"max_new_tokens": 20, "no_repeat_ngram_size": 2},
    "forced_eos_token_id": {"max_new_tokens": 6, "forced_eos_token_id": 8, "eos_token_id": 8},
    "decay": {"max_new_tokens": 20, "exponential_decay_length_penalty": (3, 1.5), "eos_token_id": END},
    "two beams": {"max_new_tokens": 10, "num_beams": 2},
    "beams to an end": {"max_new_tokens": 16, "num_beams": 4, "eos_token_id": END},
    "beams, all texts": {"max_new_tokens": 16, "num_beams": 4, "eos_token_id": [END, 7], "num_return_sequences": 3},
    "early stopping": {"max_new_tokens": 16, "num_beams": 3, "eos_token_id": END, "early_stopping": True},
    "never early": {"max_new_tokens": 16, "num_beams": 3, "eos_token_id": END, "early_stopping": "never", "length_penalty": 0.5},
    "short texts": {"max_new_tokens": 16, "num_beams": 3, "eos_token_id": END, "length_penalty": -1.0},
    "beams, processed": {"max_new_tokens": 12, "num_beams": 3, "no_repeat_ngram_size": 2, "repetition_penalty": 1.3, "eos_token_id": END},
    "renormalized": {"max_new_tokens": 12, "num_beams": 3, "renormalize_logits": True, "no_repeat_ngram_size": 1},
    "allowed": {"max_new_tokens": 6, "prefix_allowed_tokens_fn": lambda sample, ids: [4 + sample, 9, 12]},
}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_texts_are_those_of_transformers(model, name):
    ids = prompts()
    expected = theirs(model, ids, **SETTINGS[name])
    found = Adapted(model, pad_token_id=PAD).generate(ids, **SETTINGS[name])
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("settings", [{}, {"num_beams": 3, "eos_token_id": END}])
def test_a_model_with_a_cache_of_its_own_gets_one_token_at_a_time(model, settings):
    ids = prompts()
    adapted = Adapted(model, keeps=True, pad_token_id=PAD)
    assert (
        adapted.generate(ids, max_new_tokens=10, **settings).tolist()
        == theirs(model, ids, max_new_tokens=10, **settings).tolist()
    )


def test_prompts_of_different_lengths_are_filled_up_on_the_left(model):
    ids = prompts()
    ids[0, :3] = PAD
    mask = (ids != PAD).long()
    expected = theirs(model, ids, mask, max_new_tokens=8)
    assert Adapted(model, pad_token_id=PAD).generate(ids, max_new_tokens=8).tolist() == expected.tolist()
    assert Adapted(model).generate(ids, max_new_tokens=8, attention_mask=mask).tolist() == expected.tolist()
    alone = Adapted(model).generate(ids[:1, 3:], max_new_tokens=8)
    assert expected[0, 3:].tolist() == alone[0].tolist()


@pytest.mark.parametrize(
    "warping",
    [
        {},
        {"top_k": 5},
        {"top_p": 0.7, "top_k": 0},
        {"typical_p": 0.6},
        {"temperature": 0.5},
        {"temperature": 2.0, "top_k": 9, "top_p": 0.9},
    ],
)
def test_sampling_by_seed_is_that_of_transformers(model, warping):
    ids = prompts()
    drawn = []
    for generate in (
        lambda **said: theirs(model, ids, **said),
        lambda **said: Adapted(model, pad_token_id=PAD).generate(ids, **said),
    ):
        flow.manual_seed(5)
        drawn.append(
            generate(max_new_tokens=12, do_sample=True, num_return_sequences=2, eos_token_id=END, **warping).tolist()
        )
    assert drawn[0] == drawn[1]
    flow.manual_seed(6)
    assert (
        Adapted(model, pad_token_id=PAD)
        .generate(ids, max_new_tokens=12, do_sample=True, num_return_sequences=2, eos_token_id=END, **warping)
        .tolist()
        != drawn[0]
    )


def test_sampling_draws_each_token_as_often_as_its_probability_says(model):
    rows = 4000
    ids = prompts(1, 4).expand(rows, -1).contiguous()
    flow.manual_seed(0)
    found = Adapted(model).generate(ids, max_new_tokens=1, do_sample=True, top_k=6)[:, -1]
    scores = model(ids[:1]).logits[0, -1].detach()
    kept = scores.masked_fill(scores < scores.topk(6)[0][-1], -math.inf).softmax(-1)
    counted = torch.bincount(found, minlength=WORDS) / rows
    assert (counted - kept).abs().max() < 4 * (0.25 / rows) ** 0.5  # four standard deviations
    assert counted[kept == 0].sum() == 0


def test_scores_of_every_step(model):
    ids = prompts()
    found = Adapted(model, pad_token_id=PAD).generate(ids, max_new_tokens=4, output_scores=True)
    for step, scores in enumerate(found["scores"]):
        torch.testing.assert_close(
            scores, model(found["sequences"][:, : 5 + step]).logits[:, -1].detach(), rtol=0, atol=1e-5
        )
    adapted = Adapted(model, pad_token_id=PAD)
    beams = adapted.generate(
        ids, max_new_tokens=6, num_beams=3, num_return_sequences=2, output_scores=True, length_penalty=1.0
    )
    each = adapted.compute_transition_beam_scores(beams["sequences"], beams["scores"], beams["beam_indices"])
    torch.testing.assert_close(each.sum(1) / 6, beams["sequences_scores"], rtol=0, atol=1e-5)
    logs = model(beams["sequences"]).logits.log_softmax(-1).detach()
    torch.testing.assert_close(
        each, logs[:, 4:-1].gather(2, beams["sequences"][:, 5:, None])[..., 0], rtol=0, atol=1e-4
    )


def test_what_the_config_says_counts_unless_an_argument_says_otherwise(model):
    ids = prompts()
    adapted = Adapted(model, max_new_tokens=3, repetition_penalty=1.7, pad_token_id=PAD)
    assert adapted.generate(ids).tolist() == theirs(model, ids, max_new_tokens=3, repetition_penalty=1.7).tolist()
    assert (
        adapted.generate(ids, max_length=7, repetition_penalty=1.0).tolist()
        == theirs(model, ids, max_length=7).tolist()
    )
    assert Adapted(model, bos_token_id=9).generate(max_length=4)[0, 0] == 9


def test_own_criteria_and_time(model):
    ids = prompts()
    adapted = Adapted(model)
    seen = adapted.generate(ids, max_length=40, stopping_criteria=[lambda ids, scores: ids.shape[1] == 8])
    assert seen.shape[1] == 8
    assert adapted.generate(ids, max_length=40, max_time=0.0).shape[1] == 6
    assert adapted.greedy_search(ids, max_length=9).tolist() == theirs(model, ids, max_length=9).tolist()
    assert adapted.greedy_search(ids).shape[1] == 20


# ------------------------------------------------------------------------------------------------------ one by one

theirs_by_name = transformers.generation.logits_process


def random_scores(rows=4, words=30, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(0, words, (rows, 9), generator=draw), torch.randn(rows, words, generator=draw) * 3


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("TopKLogitsWarper", (7,)), ("TopKLogitsWarper", (2, -9.0, 5)), ("TopPLogitsWarper", (0.8,)), ("TopPLogitsWarper", (0.1, -math.inf, 3)),
        ("TypicalLogitsWarper", (0.4,)), ("TypicalLogitsWarper", (0.95, -5.0, 2)), ("TemperatureLogitsWarper", (0.3,)),
        ("RepetitionPenaltyLogitsProcessor", (1.9,)), ("NoRepeatNGramLogitsProcessor", (1,)), ("NoRepeatNGramLogitsProcessor", (3,)),
    ],
)  # fmt: skip
def test_a_processor_changes_scores_as_that_of_transformers(name, arguments):
    ids, scores = random_scores()
    ids[:, 5:] = ids[:, :4]
    kept = scores.clone()
    expected = getattr(theirs_by_name, name)(*arguments)(ids, scores.clone())
    torch.testing.assert_close(getattr(ours, name)(*arguments)(ids, scores), expected, rtol=0, atol=1e-6)
    assert torch.equal(scores, kept)


def test_processors_that_force_and_bar_tokens():
    ids, scores = random_scores()
    low = -math.inf
    forced = ours.ForcedEOSTokenLogitsProcessor(10, 4)(ids, scores)
    assert forced[:, 4].eq(0).all() and forced.eq(low).sum() == 4 * 29
    assert ours.ForcedEOSTokenLogitsProcessor(11, 4)(ids, scores) is scores
    assert (
        ours.ForcedBOSTokenLogitsProcessor(6)(ids[:, :1], scores)[:, 6].eq(0).all()
        and ours.ForcedBOSTokenLogitsProcessor(6)(ids, scores) is scores
    )
    barred = ours.MinLengthLogitsProcessor(10, [4, 5])(ids, scores)
    assert (
        barred.eq(low).nonzero()[:, 1].tolist() == [4, 5] * 4
        and ours.MinLengthLogitsProcessor(9, 4)(ids, scores) is scores
    )
    broken = torch.tensor([[math.nan, math.inf, low, 1.0]])
    limits = torch.finfo(torch.float32)
    assert ours.InfNanRemoveLogitsProcessor()(ids, broken).tolist() == [[0.0, limits.max, limits.min, 1.0]]
    assert ours.NormalizationLogitsProcessor()(ids, scores).exp().sum(1).sub(1).abs().max() < 1e-5
    encoder = torch.tensor([[1, 2, 3, 1, 2, 4]])
    found = ours.EncoderNoRepeatNGramLogitsProcessor(3, encoder)(torch.tensor([[9, 1, 2], [9, 2, 3]]), scores[:2])
    assert found.eq(low).nonzero().tolist() == [[0, 3], [0, 4], [1, 1]]
    chosen = torch.tensor([3, 3, 5, 6])
    diverse = ours.HammingDiversityLogitsProcessor(2.0, 4, 2)
    assert diverse(ids, scores[:2], chosen, 0) is not None and torch.equal(
        diverse(ids, scores[:2], chosen, 0), scores[:2]
    )
    lowered = diverse(ids, scores[:2], chosen, 1)
    assert torch.allclose(scores[:2, 3] - lowered[:, 3], torch.tensor(4.0)) and torch.equal(
        scores[:2, 4], lowered[:, 4]
    )


def test_a_list_hands_over_what_its_processors_take():
    ids, scores = random_scores()
    both = ours.LogitsProcessorList(
        [ours.TemperatureLogitsWarper(2.0), ours.HammingDiversityLogitsProcessor(1.0, 4, 2)]
    )
    assert torch.allclose(both(ids, scores, current_tokens=torch.tensor([1, 2, 3, 4]), beam_group_idx=0), scores / 2)
    with pytest.raises(ValueError, match="HammingDiversityLogitsProcessor needs current_tokens, beam_group_idx"):
        both(ids, scores)


def test_criteria():
    ids = torch.zeros(2, 5, dtype=torch.long)
    some = StoppingCriteriaList(
        [
            MaxLengthCriteria(6),
            lambda ids, scores: torch.tensor([True, False]),
            lambda ids, scores: torch.tensor([False, True]),
        ]
    )
    assert some.max_length == 6 and some(ids) and not StoppingCriteriaList([MaxLengthCriteria(6)])(ids)
    assert MaxTimeCriteria(1.0, initial_timestamp=0.0)(ids) and not MaxTimeCriteria(1e6)(ids)
    given = StoppingCriteriaList()
    assert validate_stopping_criteria(given, 9).max_length == 9 and given == []
    with pytest.warns(UserWarning, match="end at 6 tokens, max_length is 9: 6 counts"):
        assert validate_stopping_criteria(some, 9).max_length == 6


def test_beams_keep_the_best_texts():
    texts = BeamHypotheses(2, 1.0, False)
    for length, total in ((2, -4.0), (4, -4.0), (3, -9.0), (2, -1.0)):
        texts.add(torch.zeros(length), total)
    assert sorted(score for score, _, _ in texts.beams) == [-1.0, -0.5] and len(texts) == 2
    assert texts.is_done(-5.0, 5) and not texts.is_done(-4.0, 5)
    scorer = BeamSearchScorer(1, 2, device="cpu")
    ids = torch.tensor([[4], [4]])
    best = torch.tensor([[-1.0, -2.0, -3.0, -4.0]])
    step = scorer.process(
        ids, best, torch.tensor([[9, 3, 5, 6]]), torch.tensor([[0, 0, 1, 1]]), pad_token_id=1, eos_token_id=3
    )
    assert [step[f"next_beam_{name}"].tolist() for name in ("scores", "tokens", "indices")] == [
        [-1.0, -3.0],
        [9, 5],
        [0, 1],
    ] and not scorer.is_done
    done = scorer.finalize(
        torch.tensor([[4, 9], [4, 5]]),
        step["next_beam_scores"],
        step["next_beam_tokens"],
        step["next_beam_indices"],
        max_length=2,
        pad_token_id=1,
    )
    assert done["sequences"].tolist() == [[4, 9]] and np.isclose(done["sequence_scores"], -0.5)


# ----------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_length": 9, "max_new_tokens": 3}, "max_length=9 and max_new_tokens=3 both say when to stop"),
        (
            {"max_length": 4},
            "the prompt has 5 tokens, and a text ends at 4: give max_new_tokens, or max_length above 5",
        ),
        ({"num_beams": 0}, "num_beams is a whole number from 1 on, got 0"),
        ({"num_return_sequences": 2}, "num_return_sequences=2 is more than num_beams=1"),
        ({"num_beams": 4, "num_beam_groups": 2}, "beams in groups are not supported"),
        ({"num_beams": 4, "do_sample": True}, "beams by sampling are not supported; take one or the other"),
        (
            {"do_sample": True, "temperature": 0.0},
            "temperature is a number above 0; do_sample=False takes the likeliest token, got 0.0",
        ),
        ({"do_sample": True, "top_k": -1}, "top_k is a whole number from 1 on, got -1"),
        ({"do_sample": True, "top_p": 0.5, "typical_p": 0.0}, "typical_p is a number between 0 and 1, got 0.0"),
        ({"repetition_penalty": -1.0}, "repetition_penalty is a number above 0, got -1.0"),
        ({"encoder_no_repeat_ngram_size": 2}, "encoder_no_repeat_ngram_size needs a model with an encoder"),
        ({"exponential_decay_length_penalty": (2, 1.1)}, "raises the score of eos_token_id: give one"),
        ({"force_words_ids": [[1]]}, "no constrained beam search: leave force_words_ids out"),
        ({"attention_mask": torch.ones(3, 4)}, r"attention_mask has the shape of inputs, \(3, 5\); got \(3, 4\)"),
        ({"input_ids": prompts()}, "was given inputs and input_ids: give one of them"),
        ({"is_encoder_decoder": True}, "what does the decoder start with"),
        (
            {"prefix_allowed_tokens_fn": lambda sample, ids: []},
            r"prefix_allowed_tokens_fn gave no token for sample 0 after \[",
        ),
    ],
)
def test_settings_that_cannot_be(model, arguments, message):
    cfg = {"is_encoder_decoder": True} if arguments.pop("is_encoder_decoder", False) else {}
    with pytest.raises(ValueError, match=message):
        Adapted(model, **cfg).generate(prompts(), **arguments)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (None, "goes on from inputs.*or starts with bos_token_id"),
        ([[1, 2]], "inputs are tokens, a tensor.*got list"),
        (torch.ones(2), r"got torch.float32 of shape \(2,\)"),
    ],
)
def test_inputs_that_are_no_tokens(model, inputs, message):
    with pytest.raises(ValueError, match=message):
        Adapted(model).generate(inputs)


def test_a_model_without_scores():
    class Mute(nn.Module, Generator):
        def forward(self, input_ids):
            return {"losses": input_ids}

    with pytest.raises(
        ValueError, match="forward of Mute returned losses; generate.. looks for 'logits' or 'prediction_scores'"
    ):
        Mute().generate(prompts())
