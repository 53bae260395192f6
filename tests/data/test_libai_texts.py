"""The data sets of BERT, RoBERTa, GPT-2 and T5: what a sample is made of, that it belongs to its number, and how
loaders share it out."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from libai_texts import SPECIAL, WORDS, Numbered, fields, text_files

from libai.config import LazyCall
from libai.data import build_nlp_train_val_test_loader
from libai.data.data_utils import create_masked_lm_predictions, get_indexed_dataset
from libai.data.datasets import (
    BertDataset,
    GPT2Dataset,
    RobertaDataset,
    T5Dataset,
    bert_dataset,
    roberta_dataset,
    t5_dataset,
)
from libai.utils import distributed as dist

PAD, UNK, CLS, SEP, MASK = range(5)
LENGTH = 48
COMMON = dict(mask_lm_prob=0.15, max_seq_length=LENGTH, short_seq_prob=0.1, seed=5)
PIECES = range(len(SPECIAL) + WORDS, len(SPECIAL) + WORDS + 20)


def made(kind, prefix, tokenizer=None, **changed):
    indexed = get_indexed_dataset(prefix, "infer", True)
    given = dict(
        name="train", tokenizer=tokenizer or Numbered(), data_prefix=prefix, indexed_dataset=indexed, max_num_samples=40
    )
    if kind is GPT2Dataset:
        given |= dict(max_seq_length=LENGTH, seed=5)
    elif kind is T5Dataset:
        given |= dict(masked_lm_prob=0.15, max_seq_length=LENGTH, max_seq_length_dec=24, short_seq_prob=0.1, seed=5)
    else:
        given |= COMMON
    return kind(**given | changed)


@pytest.mark.parametrize("impl", ["mmap", "lazy", "cached"])
@pytest.mark.parametrize("kind", [BertDataset, RobertaDataset, GPT2Dataset, T5Dataset])
def test_a_sample_is_a_function_of_its_number_and_the_data_set_can_be_pickled(tmp_path, kind, impl):
    found = made(kind, text_files(tmp_path, impl=impl))
    again = pickle.loads(pickle.dumps(found))
    backwards = [fields(again[i]) for i in reversed(range(len(found)))]
    forwards = [fields(found[i]) for i in range(len(found))]
    assert forwards == backwards[::-1] and len(found) >= 40
    assert len({str(sample) for sample in forwards}) > 30
    assert fields(made(kind, found.indexed_dataset._path, seed=6)[0]) != forwards[0]


def restored(sample):
    """The tokens of a sample as they were before masking."""
    return [token if label == -1 else label for token, label in zip(sample["input_ids"], sample["lm_labels"])]


def test_a_sample_of_bert_is_two_segments_of_one_document_in_either_order(tmp_path):
    found = made(BertDataset, text_files(tmp_path))
    orders = set()
    for number in range(len(found)):
        sample = fields(found[number])
        assert list(sample) == ["input_ids", "attention_mask", "tokentype_ids", "ns_labels", "lm_labels", "loss_mask"]
        tokens, count = restored(sample), sum(sample["attention_mask"])
        assert sample["attention_mask"] == [True] * count + [False] * (LENGTH - count)
        assert tokens[0] == CLS and tokens.count(SEP) == 2 and tokens[count - 1] == SEP and set(tokens[count:]) <= {PAD}
        middle = tokens.index(SEP)
        assert sample["tokentype_ids"][:count] == [0] * (middle + 1) + [1] * (count - middle - 1)
        assert [label != -1 for label in sample["lm_labels"]] == sample["loss_mask"]
        first, end, target = found.samples_mapping[number]
        whole = [token for i in range(first, end) for token in found.indexed_dataset[i].tolist()]
        assert count - 3 == min(len(whole), target)
        a, b = tokens[1:middle], tokens[middle + 1 : count - 1]
        if len(whole) <= target:
            assert whole == (b + a if sample["ns_labels"] else a + b)
        orders.add(sample["ns_labels"])
        hidden = sum(sample["loss_mask"])
        assert 1 <= hidden <= max(1, min(round(count * 0.15), int(0.15 * int(target))))
    assert orders == {0, 1}
    instance = found[0]
    assert [
        instance.get(name).placement_idx
        for name in ("input_ids", "attention_mask", "tokentype_ids", "ns_labels", "lm_labels", "loss_mask")
    ] == [0, 0, 0, -1, -1, -1]
    assert (
        str(instance.input_ids.tensor.dtype) == "torch.int64" and str(instance.loss_mask.tensor.dtype) == "torch.bool"
    )
    alone = fields(made(BertDataset, found.indexed_dataset._path, binary_head=False)[0])
    assert restored(alone).count(SEP) == 1 and not any(alone["tokentype_ids"])


def test_a_sample_of_roberta_is_one_segment(tmp_path):
    found = made(RobertaDataset, text_files(tmp_path))
    found.pad_id = 1  # as in RoBERTa's vocabulary; it is no type of token
    for number in range(len(found)):
        sample = fields(found[number])
        assert list(sample) == ["input_ids", "attention_mask", "tokentype_ids", "lm_labels", "loss_mask"]
        tokens, count = restored(sample), sum(sample["attention_mask"])
        first, end, target = found.samples_mapping[number]
        whole = [token for i in range(first, end) for token in found.indexed_dataset[i].tolist()]
        assert (tokens[0], tokens[count - 1], count - 2) == (CLS, SEP, min(len(whole), target))
        assert " ".join(map(str, tokens[1 : count - 1])) in " ".join(map(str, whole))
        assert not any(sample["tokentype_ids"])


def test_samples_of_gpt_run_on_through_the_documents(tmp_path):
    found = made(GPT2Dataset, text_files(tmp_path), max_num_samples=5)
    row = np.concatenate([found.indexed_dataset[i] for i in found.doc_idx]).tolist()
    for number in range(len(found)):
        sample = fields(found[number])
        assert list(sample) == ["input_ids", "labels"]
        begin = int(found.shuffle_idx[number]) * LENGTH
        assert (
            sample["input_ids"] == row[begin : begin + LENGTH]
            and sample["labels"] == row[begin + 1 : begin + LENGTH + 1]
        )
    assert found[0].labels.placement_idx == -1
    names = sorted(path.name for path in tmp_path.glob("*.npy"))
    assert names == [f"text_train_indexmap_5mns_{LENGTH}msl_5s_{part}_idx.npy" for part in ("doc", "sample", "shuffle")]


def test_a_sample_of_t5_has_its_spans_behind_sentinels(tmp_path):
    found = made(T5Dataset, text_files(tmp_path))
    sentinels = found.sentinel_tokens
    for number in range(len(found)):
        sample = fields(found[number])
        source = [token for token in sample["encoder_input_ids"] if token != PAD]
        count = sum(sample["loss_mask"])
        target = sample["lm_labels"][:count]
        assert (
            sample["decoder_input_ids"][:count] == [CLS, *target[:-1]]
            and target[-1] == SEP
            and set(sample["lm_labels"][count:]) <= {-1}
        )
        spans, used = {}, []
        for token in target[:-1]:
            if token in sentinels:
                used.append(token)
                spans[token] = []
            else:
                spans[used[-1]].append(token)
        assert used == sentinels[: len(used)] == [token for token in source if token in sentinels]
        assert used or len(source) < 10  # in a short text no word may be short enough
        whole = [token for token in source for token in spans.get(token, [token])]
        first, end, goal = found.samples_mapping[number]
        assert whole == [token for i in range(first, end) for token in found.indexed_dataset[i].tolist()][:goal]
        encoder, decoder = np.arange(LENGTH) < len(source), np.arange(24) < count
        assert np.array_equal(sample["encoder_attn_mask"], encoder[:, None] & encoder)
        assert np.array_equal(sample["decoder_attn_mask"], np.tril(decoder[:, None] & decoder))
        assert np.array_equal(sample["encoder_decoder_attn_mask"], decoder[:, None] & encoder)


def masked(tokens, probability=0.15, most=1000, seed=0, **changed):
    tokenizer = changed.pop("tokenizer", Numbered())
    names = {number: token for token, number in tokenizer.get_vocab().items()}
    return create_masked_lm_predictions(
        tokenizer, tokens, list(names), names, probability, CLS, SEP, MASK, most, np.random.RandomState(seed), **changed
    )


def some_tokens(count, pieces=0.3):
    random = np.random.RandomState(1)
    return [
        CLS,
        *np.where(
            random.rand(count) < pieces, random.choice(PIECES, count), 5 + random.randint(0, WORDS, count)
        ).tolist(),
        SEP,
    ]


def test_masks_hide_whole_words_in_the_given_number():
    tokens = some_tokens(500)
    for seed in range(5):
        output, places, labels, begins, spans = masked(tokens, seed=seed)
        assert (
            len(places) == round(502 * 0.15) == 75
            and places == sorted(set(places))
            and labels == [tokens[i] for i in places]
        )
        assert [i for i in range(len(tokens)) if output[i] != tokens[i]] == [
            i for i in places if output[i] != tokens[i]
        ]
        assert begins == [int(token not in PIECES) for token in tokens]
        hidden = set(places)
        assert all(
            (i - 1 in hidden) == (i in hidden) or tokens[i - 1] == CLS for i in range(1, 502) if tokens[i] in PIECES
        )
        assert sorted(i for span in spans for i in span.index) == places and not {0, 501} & hidden
        assert all(
            span.index == list(range(span.index[0], span.index[-1] + 1))
            and span.label == [tokens[i] for i in span.index]
            for span in spans
        )
        assert [span.index for span in spans] == sorted(span.index for span in spans)
    assert len(masked(tokens, most=10)[1]) == 10 and len(masked([CLS, 7, 8, SEP], 0.01)[1]) == 1
    assert masked(tokens, 0.0)[:3] == (tokens, [], [])


def test_eight_in_ten_are_masks_and_one_in_ten_is_left():
    tokens = some_tokens(40_000, pieces=0)
    output, places, *_ = masked(tokens)
    kinds = np.array([[output[i] == MASK, output[i] == tokens[i]] for i in places]).mean(axis=0)
    assert abs(kinds[0] - 0.8) < 0.02 and abs(kinds[1] - 0.1) < 0.02
    output, places, *_ = masked(tokens, masking_style="t5")
    assert {output[i] for i in places} == {MASK}


def test_runs_of_n_words_come_with_a_probability_like_one_over_n():
    tokens = some_tokens(200_000, pieces=0)

    def lengths(**changed):
        return np.bincount([len(span.index) for span in masked(tokens, 0.02, 10**6, **changed)[4]], minlength=11) / 1.0  # noqa: E731

    for changed, weights in (({}, [6, 3, 2]), ({"favor_longer_ngram": True}, [2, 3, 6])):
        found = lengths(**changed)
        np.testing.assert_allclose(found[1:4] / found.sum(), np.array(weights) / 11, atol=0.03)
    found = lengths(max_ngrams=10, geometric_dist=True)
    np.testing.assert_allclose(found[1:4] / found.sum(), 0.2 * 0.8 ** np.arange(3), atol=0.04)
    assert len(found) == 11


def test_a_permutation_mixes_as_many_again():
    tokens = some_tokens(500, pieces=0)
    output, places, labels, _, spans = masked(tokens, do_permutation=True)
    hidden = {i for span in spans for i in span.index}
    mixed = [i for i in places if i not in hidden]
    assert (
        len(hidden) == len(mixed) == 75
        and sorted(output[i] for i in mixed) == sorted(tokens[i] for i in mixed)
        and labels == [tokens[i] for i in places]
    )


class Chinese(Numbered):
    def __init__(self):
        self._vocab = {token: i for i, token in enumerate([*SPECIAL, "中", "##国", "国", "##ing"])}


def test_chinese_pieces_lose_their_mark_once_words_are_masked_whole():
    output, places, labels, begins, _ = masked(
        [CLS, 5, 6, 8, SEP], 1.0, tokenizer=Chinese(), masking_style="bert-cn-wwm", seed=2
    )
    assert begins == [1, 1, 0, 0, 1] and places == [1, 2, 3] and labels == [5, 7, 8]
    assert masked([CLS, 5, 6, 8, SEP], 0.0, tokenizer=Chinese(), masking_style="bert-cn-wwm")[0] == [CLS, 5, 7, 8, SEP]


def test_documents_are_cut_into_parts_that_have_none_in_common(tmp_path):
    dist.setup_dist_util({})
    prefix = text_files(tmp_path)
    for kind in (BertDataset, GPT2Dataset, RobertaDataset, T5Dataset):
        indexed = LazyCall(get_indexed_dataset)(data_prefix=prefix, data_impl="mmap", skip_warmup=True)
        given = {"seed": 5, "max_seq_length": LENGTH, "data_prefix": prefix}
        given |= (
            {"masked_lm_prob": 0.15, "max_seq_length_dec": 24, "short_seq_prob": 0.1}
            if kind is T5Dataset
            else {}
            if kind is GPT2Dataset
            else {"mask_lm_prob": 0.15}
        )
        described = LazyCall(kind)(tokenizer=Numbered(), indexed_dataset=indexed, **given)
        loaders = build_nlp_train_val_test_loader(
            [described], [[0.6, 0.2, 0.2]], [1.0], [64, 8, 8], 4, 2, num_workers=1 if kind is BertDataset else 0
        )
        parts = []
        for loader in loaders:
            rows = (
                loader.dataset.doc_idx
                if kind is GPT2Dataset
                else [i for first, end, _ in loader.dataset.samples_mapping for i in range(first, end)]
            )
            parts.append({int(i) for i in rows})
            batch = next(iter(loader))
            assert {len(value.tensor) for value in batch.get_fields().values()} == {4 if loader is loaders[0] else 2}
            loader.close()
        assert all(parts) and not parts[0] & parts[1] and not parts[1] & parts[2] and not parts[0] & parts[2]


def refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_what_makes_no_sample_is_said(tmp_path):
    prefix, random = text_files(tmp_path), np.random.RandomState(0)
    without = Numbered(sentinels=0)
    refused(
        lambda: made(T5Dataset, prefix, without),
        "needs a tokenizer with sentinels, one for each hidden span: T5Tokenizer",
    )
    refused(
        lambda: made(T5Dataset, prefix, Numbered(sentinels=1), masked_lm_prob=0.5)[0],
        "spans are hidden and there are 1 sentinels",
    )
    refused(lambda: made(T5Dataset, prefix, max_seq_length_dec=2)[0], "max_seq_length_dec=2 are less")
    del without.cls_token_id
    for kind in (BertDataset, RobertaDataset):
        refused(lambda: made(kind, prefix, without), "tokenizer with a cls_token; Numbered has none")  # noqa: B023
        refused(
            lambda: made(kind, prefix, masking_style="gpt")[0],  # noqa: B023
            "masking_style is one of bert, bert-cn-wwm, t5, got 'gpt'",
        )
    refused(lambda: made(GPT2Dataset, prefix, max_seq_length=0), "1 or more, got 0 and 40")
    refused(
        lambda: bert_dataset.get_a_and_b_segments([[1]], random),
        "two sentences or more, got 1; make the data with --split-sentences",
    )
    refused(lambda: bert_dataset.truncate_segments([], [], 0, 0, 5, random), "the first segment is empty")
    refused(lambda: roberta_dataset.truncate_segments([], 0, 5, random), "the segment is empty")
    refused(
        lambda: bert_dataset.pad_and_convert_to_numpy([1] * 5, [0] * 5, [], [], 0, 4),
        "5 tokens does not go into max_seq_length=4",
    )
    arguments = (None, [[1]], 9, 8, [], {}, 2, 3, 4, 0, 0.1, random)
    refused(lambda: bert_dataset.build_training_sample(*arguments, True), "at most max_seq_length, got 9 and 8")
    refused(lambda: roberta_dataset.build_training_sample(*arguments), "at most max_seq_length, got 9 and 8")
    refused(
        lambda: t5_dataset.build_training_sample(None, [[1]], 9, 8, 8, *arguments[4:]),
        "at most max_seq_length, got 9 and 8",
    )
