"""Tokenizers: the tokens of ``transformers``, special tokens, tensors, folders, and what cannot be read."""

from __future__ import annotations

import builtins
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from libai_texts import BERT_WORDS, bert_file, byte_files, piece_file, text_files
from omegaconf import OmegaConf

from libai.config import LazyCall, get_config
from libai.engine import DefaultTrainer
from libai.tokenizer import (
    BertTokenizer,
    GPT2Tokenizer,
    PreTrainedTokenizer,
    RobertaTokenizer,
    T5Tokenizer,
    build_tokenizer,
)
from libai.tokenizer.tokenization_bert import BasicTokenizer, WordpieceTokenizer, load_vocab, whitespace_tokenize
from libai.tokenizer.tokenization_gpt2 import bytes_to_unicode, get_pairs
from libai.utils import distributed as dist

SHARED = (
    Path(__file__).resolve().parents[3] / "shared" / "data"
)  # where whole vocabularies may lie, beside the repository
TEXTS = [
    "Hello, World! It's 5 o'clock: naïve café.",
    "  two  blanks\n\nand\tmore ",
    "the quick brown fox [MASK] jumped<mask> over <mask>the lazy dog[SEP]",
    "end<|endoftext|>of text <|endoftext|> and </s> more",
    "中文字符 mixed 日本語 with \U0001f600",
    "don't you'll we've unaffable",
]


def made(kind, folder, **arguments):
    """A small tokenizer of ours, and that of transformers."""
    if kind == "bert":
        file = bert_file(folder)
        return BertTokenizer(file, **arguments), transformers.BertTokenizer(file)
    if kind == "t5":
        ours = T5Tokenizer(piece_file(folder), **{"extra_ids": 10, **arguments})
        pieces = [
            (ours.sp_model.id_to_piece(i), ours.sp_model.get_score(i)) for i in range(ours.sp_model.get_piece_size())
        ]
        return ours, transformers.T5Tokenizer(
            pieces + [(f"<extra_id_{i}>", 0.0) for i in reversed(range(10))], extra_ids=10
        )
    files = byte_files(folder, kind)
    if kind == "gpt2":
        return GPT2Tokenizer(*files, **arguments), transformers.GPT2Tokenizer(*files)
    mask = transformers.AddedToken("<mask>", lstrip=True)  # as the published folders have it
    return RobertaTokenizer(*files, **arguments), transformers.RobertaTokenizer(*files, mask_token=mask)


KINDS = pytest.mark.parametrize("kind", ["bert", "gpt2", "roberta", "t5"])


@KINDS
def test_tokens_numbers_and_texts_are_those_of_transformers(tmp_path, kind):
    ours, theirs = made(kind, tmp_path)
    texts = TEXTS if kind != "t5" else [*TEXTS[1:4], "a <extra_id_0> fox<extra_id_1>and", "the dog</s>"]
    for text in texts:
        numbers = theirs.encode(text, add_special_tokens=False)
        assert ours.encode(text) == numbers, text
        if kind in ("bert", "gpt2"):  # the others show blanks of the text before special tokens
            assert ours.tokenize(text) == theirs.tokenize(text), text
        if kind != "t5":  # whose decoder there leaves out blanks around special tokens
            for skip in (False, True):
                assert ours.decode(numbers, skip_special_tokens=skip) == theirs.decode(
                    numbers, skip_special_tokens=skip, clean_up_tokenization_spaces=kind == "bert"
                ), text
    assert len(ours) == len(theirs) and {**ours.get_vocab(), **ours.get_added_vocab()} == theirs.get_vocab()
    assert ours.convert_tokens_to_ids("no such token") == theirs.convert_tokens_to_ids("no such token")


@pytest.mark.skipif(not SHARED.exists(), reason="whole vocabularies are not there")
@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_whole_vocabularies_give_what_transformers_gives(kind):
    if kind == "bert":
        files = [str(SHARED / "vocab-bert" / "bert-base-uncased-vocab.txt")]
        ours, theirs = BertTokenizer(*files), transformers.BertTokenizer(*files)
    else:
        files = [str(SHARED / "vocab-gpt2" / name) for name in ("encoder.json", "vocab.bpe")]
        ours, theirs = GPT2Tokenizer.from_pretrained(SHARED / "vocab-gpt2"), transformers.GPT2Tokenizer(*files)
    play = (SHARED / "tinyshakespeare" / "input.txt").read_text()[:50_000]
    for text in [*TEXTS, play]:
        numbers = ours.encode(text)
        assert numbers == theirs.encode(text, add_special_tokens=False)
        assert ours.decode(numbers) == theirs.decode(numbers, clean_up_tokenization_spaces=kind == "bert")
    if kind == "gpt2":
        assert ours.decode(ours.encode(play)) == play


@KINDS
def test_special_tokens_are_put_in_only_if_asked_for(tmp_path, kind):
    for add in (False, True):
        ours, theirs = made(kind, tmp_path, add_bos_token=add)
        plain = theirs.encode("the fox", add_special_tokens=False)
        whole = {"gpt2": [ours.bos_token_id, *plain]}.get(kind) or theirs.encode("the fox")
        assert ours.encode("the fox") == (whole if add else plain)
        begin, end = [ours.start_token_id], [ours.end_token_id]
        pairs = {
            "gpt2": [*begin, 8, *begin, 9],
            "bert": [*begin, 8, *end, 9, *end],
            "roberta": [*begin, 8, *end, *end, 9, *end],
            "t5": [8, *end, 9, *end],
        }
        assert ours.build_inputs_with_special_tokens([8], [9]) == (pairs[kind] if add else [8, 9])
    if kind == "roberta":
        assert ours.create_token_type_ids_from_sequences([3], [4]) == [0] * 6


@KINDS
def test_a_tokenizer_goes_through_a_folder_and_through_pickle(tmp_path, kind):
    ours, _ = made(kind, tmp_path, add_bos_token=True)
    ours.add_tokens(["newword"])
    ours.add_special_tokens(
        {"eod_token": "<eod>", "additional_special_tokens": [*ours.additional_special_tokens, "<x>"]}
    )
    files = ours.save_pretrained(tmp_path / "saved")
    assert {Path(file).name for file in files} == {path.name for path in (tmp_path / "saved").iterdir()}
    for again in (type(ours).from_pretrained(tmp_path / "saved"), pickle.loads(pickle.dumps(ours))):
        for text in TEXTS:
            assert again.encode(text + " <eod> newword<x>") == ours.encode(text + " <eod> newword<x>")
        assert (
            again.special_tokens_map == ours.special_tokens_map
            and len(again) == len(ours)
            and again.get_added_vocab() == ours.get_added_vocab()
        )
    changed = type(ours).from_pretrained(tmp_path / "saved", add_bos_token=False, eod_token="<end>")
    assert (
        changed.eod_token == "<end>"
        and changed.encode("the fox") == ours.encode("the fox")[(kind != "t5") : None if kind == "gpt2" else -1]
    )


@pytest.mark.parametrize("kind", ["bert", "gpt2", "roberta"])
def test_folders_of_transformers_are_read(tmp_path, kind):
    _, theirs = made(kind, tmp_path)
    theirs.save_pretrained(tmp_path / "theirs")
    assert not (tmp_path / "theirs" / "vocab.txt").exists()  # it keeps everything in one file
    ours = {"bert": BertTokenizer, "gpt2": GPT2Tokenizer, "roberta": RobertaTokenizer}[kind].from_pretrained(
        str(tmp_path / "theirs")
    )
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False)


def test_special_and_added_tokens(tmp_path):
    ours, _ = made("bert", tmp_path)
    count = len(BERT_WORDS)
    assert (ours.vocab_size, len(ours), ours.padded_vocab_size(), ours.padded_vocab_size(16)) == (
        count,
        count,
        count,
        32,
    )
    assert (ours.cls_token_id, ours.sep_token_id, ours.mask_token_id, ours.pad_token_id, ours.unk_token_id) == (
        2,
        3,
        4,
        0,
        1,
    )
    assert (ours.bos_token, ours.bos_token_id, ours.eod_token_id) == (None, None, None)
    assert (ours.start_token, ours.end_token, ours.start_token_id, ours.end_token_id) == ("[CLS]", "[SEP]", 2, 3)
    assert (
        ours.add_tokens(["fox", "wolf", "wolf"]) == 1
        and ours.get_added_vocab() == {"wolf": count}
        and len(ours) == count + 1
    )
    assert ours.tokenize("the wolf[CLS] werewolf") == ["the", "wolf", "[CLS]", "[UNK]", "wolf"]
    assert ours.add_special_tokens({"bos_token": "<s>", "additional_special_tokens": ["<a>", "[SEP]"]}) == 2
    assert (ours.bos_token_id, ours.start_token, ours.additional_special_tokens_ids) == (
        count + 1,
        "<s>",
        [count + 2, 3],
    )
    assert ours.all_special_tokens == ["<s>", "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]", "<a>"] and set(
        ours.all_special_ids
    ) == {count + 1, 1, 3, 0, 2, 4, count + 2}
    assert ours.decode(ours.encode("the<a>fox jumped wolf .")) == "the <a> fox jumped wolf." and ours.decode(5) == "the"
    assert (
        ours.decode(ours.encode("the<a>fox"), skip_special_tokens=True) == "the fox"
        and ours.decode(ours.encode("the<a>fox"), spaces_between_special_tokens=False) == "the<a>fox"
    )
    assert ours.convert_ids_to_tokens(5) == "the" and ours.convert_ids_to_tokens([5, 2], skip_special_tokens=True) == [
        "the"
    ]
    assert ours.add_tokens("<z>", special_tokens=True) == 1 and "<z>" in ours.additional_special_tokens
    ours.eod_token = "[SEP]"
    assert ours.eod_token_id == 3


def test_numbers_come_as_lists_arrays_and_tensors(tmp_path):
    dist.setup_dist_util({})
    ours, _ = made("bert", tmp_path, add_bos_token=True)
    assert ours.encode(["the fox", "the"]) == [[2, 5, 7, 3], [2, 5, 3]] and ours.encode([5, 7]) == [2, 5, 7, 3]
    assert ours.encode(["the fox", "the"], padding=True) == [[2, 5, 7, 3], [2, 5, 3, 0]] and ours.encode(
        "the fox jumped", max_length=4
    ) == [2, 5, 7, 3]
    array = ours.encode("the fox", return_tensors="np")
    assert isinstance(array, np.ndarray) and array.tolist() == [2, 5, 7, 3]
    tensor = ours.encode(["the fox", "fox the"], return_tensors="of", device="cpu")
    assert (
        tensor.dtype is torch.int64
        and tensor.tolist() == [[2, 5, 7, 3], [2, 7, 5, 3]]
        and ours.decode(tensor, skip_special_tokens=True) == ["the fox", "fox the"]
    )
    spread = ours.encode("the fox", return_tensors="of", is_global=True, device="cpu")
    assert spread.is_global and spread.numpy().tolist() == [2, 5, 7, 3]


def test_chinese_words_are_marked_for_masks_of_whole_words(tmp_path):
    ours = BertTokenizer(bert_file(tmp_path), do_chinese_wwm=True)
    assert ours.tokenize("中国 hello the中国[MASK]中文!") == [
        "中",
        "##国",
        "hello",
        "the",
        "中",
        "##国",
        "[MASK]",
        "中",
        "文",
        "!",
    ]  # "##文" is no piece of this vocabulary
    assert ours.decode(ours.encode("中国hello")) == "中国 hello"
    assert BertTokenizer(bert_file(tmp_path)).tokenize("中国") == ["中", "国"]


def test_words_that_are_never_split_and_words_without_the_basic_step(tmp_path):
    file = bert_file(tmp_path)
    assert BertTokenizer(file, never_split=["fox,the"]).tokenize("Hello fox,the World") == ["hello", "fox,the", "world"]
    assert BertTokenizer(file, do_basic_tokenize=False).tokenize("hello unaffable, the") == ["hello", "[UNK]", "the"]
    assert BertTokenizer(file, do_lower_case=False).tokenize("Hello the") == ["[UNK]", "the"]
    assert BasicTokenizer().tokenize("Naïve,café 中国") == ["naive", ",", "cafe", "中", "国"] and BasicTokenizer(
        tokenize_chinese_chars=False
    ).tokenize("中国") == ["中国"]
    assert BasicTokenizer(do_lower_case=False).tokenize("A-B [SEP] x", never_split=["[SEP]"]) == [
        "A",
        "-",
        "B",
        "[SEP]",
        "x",
    ]
    pieces = WordpieceTokenizer(load_vocab(file), "[UNK]", max_input_chars_per_word=9)
    assert pieces.tokenize("unaffable jumped  unaffableed") == [
        "un",
        "##aff",
        "##able",
        "jump",
        "##ed",
        "[UNK]",
    ] and whitespace_tokenize(" a  b ") == ["a", "b"]


def test_byte_pairs(tmp_path):
    ours, _ = made("gpt2", tmp_path)
    assert ours.bpe("Ġthe") == "Ġthe" and ours.bpe("zz") == "z z" and get_pairs("abab") == {("a", "b"), ("b", "a")}
    assert (
        sorted(map(ord, bytes_to_unicode().values()))[-1] == 256 + 67 and len(set(bytes_to_unicode().values())) == 256
    )
    assert ours.decode(ours.encode("any \x00 bytes\n .")) == "any \x00 bytes\n ."


def test_sentinels_count_down_from_the_last_number(tmp_path):
    ours, _ = made("t5", tmp_path)
    assert ours.additional_special_tokens_ids == [89 - i for i in range(10)] and ours.vocab_size == len(ours) == 90
    assert ours.convert_ids_to_tokens([89, 80]) == ["<extra_id_0>", "<extra_id_9>"] and ours.bos_token_id is None
    assert ours.decode(ours.encode("the fox <extra_id_0> the dog </s>")) == "the fox <extra_id_0> the dog </s>"


def test_the_tokenizer_of_a_config(tmp_path):
    files = dict(zip(("vocab_file", "merges_file"), byte_files(tmp_path)))
    described = OmegaConf.create({"append_eod": True, "make_vocab_size_divisible_by": 128})
    described.tokenizer = LazyCall(GPT2Tokenizer)(**files)
    assert build_tokenizer(described).eod_token == "<|endoftext|>"
    described.tokenizer.eod_token = "<eod>"
    assert build_tokenizer(described).eod_token == "<eod>"
    described.append_eod, described.tokenizer = False, LazyCall(BertTokenizer)(vocab_file=bert_file(tmp_path))
    assert build_tokenizer(described).eod_token is None
    described.append_eod = True
    assert build_tokenizer(described).eod_token == "[PAD]"


@pytest.mark.parametrize("kind", ["bert", "roberta", "gpt", "t5"])
def test_the_configs_of_data_sets_feed_the_trainer(tmp_path, kind):
    dist.setup_dist_util({})
    prefix = text_files(tmp_path, impl="mmap")
    cfg = get_config(f"common/data/{kind}_dataset.py")
    cfg.train, cfg.graph, cfg.optim = (
        get_config("common/train.py").train,
        get_config("common/models/graph.py").graph,
        get_config("common/optim.py").optim,
    )
    cfg.model = LazyCall(dict)(cfg=dict(vocab_size=1))
    cfg.train.update(dict(train_iter=3, train_micro_batch_size=4, test_micro_batch_size=2))
    cfg.train.evaluation.update(dict(eval_iter=2, eval_period=2))
    files = {"bert": lambda: {"vocab_file": bert_file(tmp_path)}, "t5": lambda: {"vocab_file": piece_file(tmp_path)}}
    cfg.tokenization.tokenizer.update(
        files.get(
            kind,
            lambda: dict(
                zip(("vocab_file", "merges_file"), byte_files(tmp_path, "roberta" if kind == "roberta" else "gpt2"))
            ),
        )()
    )
    cfg.dataloader.train.update(num_workers=0, splits=[[6, 2, 2]])
    dataset = cfg.dataloader.train.dataset[0]
    dataset.data_prefix = dataset.indexed_dataset.data_prefix = prefix
    dataset.max_seq_length = 40
    if kind == "bert":  # the token files have more tokens than this vocabulary
        (tmp_path / "vocab.txt").write_text("\n".join([*BERT_WORDS, *(f"x{i}" for i in range(100))]), encoding="utf-8")
    tokenizer = DefaultTrainer.tokenizer_for_model(cfg)
    assert cfg.model.cfg.vocab_size % 128 == 0 and len(tokenizer) <= cfg.model.cfg.vocab_size < len(tokenizer) + 128
    loaders = DefaultTrainer.build_train_loader(cfg, tokenizer)
    assert loaders[0].dataset.tokenizer.get_vocab() == tokenizer.get_vocab()
    for loader, rows in zip(loaders, (4, 2, 2)):
        batch = next(iter(loader))
        assert {len(value.tensor) for value in batch.get_fields().values()} == {rows}


def test_a_run_that_is_told_in_epochs_has_the_samples_of_one(tmp_path):
    dist.setup_dist_util({})
    prefix, (vocab, merges) = text_files(tmp_path), byte_files(tmp_path)
    cfg = get_config("common/data/gpt_dataset.py")
    cfg.train, cfg.graph, cfg.optim = (
        get_config("common/train.py").train,
        get_config("common/models/graph.py").graph,
        get_config("common/optim.py").optim,
    )
    cfg.train.update(dict(train_iter=0, train_epoch=3, train_micro_batch_size=4))
    cfg.train.evaluation.enabled = False
    cfg.model = LazyCall(dict)()
    cfg.dataloader.train.update(num_workers=0, splits=[[1, 0, 0]])
    dataset = cfg.dataloader.train.dataset[0]
    dataset.max_seq_length, dataset.data_prefix, dataset.indexed_dataset.data_prefix = 16, prefix, prefix
    loader, _, _ = DefaultTrainer.build_train_loader(cfg, GPT2Tokenizer(vocab, merges))
    tokens = int(loader.dataset.indexed_dataset.sizes.sum())
    assert len(loader.dataset) == (tokens - 1) // 16


def refused(call, message, kind=ValueError):
    with pytest.raises(kind, match=message):
        call()


def test_what_is_no_vocabulary_is_said(tmp_path):
    vocab, merges = byte_files(tmp_path)
    (tmp_path / "words.txt").write_text("a\nb\n")
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "other.json").write_text('{"a": 0}')
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\n")
    refused(
        lambda: BertTokenizer(str(tmp_path / "none.txt")), "the vocabulary .*none.txt' cannot be read: No such file"
    )
    refused(lambda: BertTokenizer(str(tmp_path / "latin.txt")), "cannot be read: 'utf-8' codec")
    refused(lambda: BertTokenizer(str(tmp_path / "words.txt")), r"has no token '\[UNK\]': it is no vocabulary of BERT")
    refused(lambda: GPT2Tokenizer(str(tmp_path / "broken.json"), merges), "broken.json is no vocabulary: Expecting")
    refused(
        lambda: GPT2Tokenizer(str(tmp_path / "list.json"), merges),
        "is no vocabulary: a JSON object is expected, it holds a list",
    )
    refused(lambda: GPT2Tokenizer(vocab, str(tmp_path / "words.txt")), "is no list of merges: each line has two pieces")
    refused(lambda: GPT2Tokenizer(vocab, str(tmp_path / "other.json")), "is no list of merges")
    refused(
        lambda: GPT2Tokenizer(str(tmp_path / "other.json"), merges),
        "other.json and .*merges.txt do not belong together",
    )
    (tmp_path / "other.json").write_text('{"a": "b"}')
    refused(
        lambda: GPT2Tokenizer(str(tmp_path / "other.json"), merges),
        "is no vocabulary: a JSON object of tokens and their numbers",
    )
    refused(
        lambda: T5Tokenizer(str(tmp_path / "none.model")),
        "there is no sentencepiece model .*none.model'; T5's is called spiece.model",
    )
    refused(lambda: T5Tokenizer(str(tmp_path / "words.txt")), "words.txt is no sentencepiece model")


def test_what_a_folder_has_not_is_said(tmp_path):
    refused(
        lambda: BertTokenizer.from_pretrained("bert-base-uncased"),
        "there is no folder 'bert-base-uncased': BertTokenizer.from_pretrained takes one that has vocab.txt",
    )
    refused(
        lambda: GPT2Tokenizer.from_pretrained(str(tmp_path)),
        "has no vocab.json, which GPT2Tokenizer needs; it has nothing",
    )
    file = bert_file(tmp_path)
    assert BertTokenizer.from_pretrained(file, do_lower_case=False).vocab_size == len(BERT_WORDS)
    refused(
        lambda: GPT2Tokenizer.from_pretrained(file),
        "has the files vocab.json and merges.txt; give from_pretrained their folder",
    )
    refused(lambda: BertTokenizer(file).save_pretrained(file), "takes a folder, .* is a file")
    (tmp_path / "added_tokens.json").write_text('{"<x>": 99}')
    refused(
        lambda: BertTokenizer.from_pretrained(tmp_path),
        "the tokens that were added in .* do not fit its vocabulary: {'<x>': 99} have other numbers",
    )


def test_wrong_arguments_are_said(tmp_path, monkeypatch):
    file = bert_file(tmp_path)
    ours = BertTokenizer(file)
    refused(
        lambda: BertTokenizer(file, bos_tokn="x"), "BertTokenizer takes no argument 'bos_tokn'.*bos_token", TypeError
    )
    refused(lambda: BertTokenizer(file, bos_token=3), "bos_token is a string or None, got 3", TypeError)
    refused(
        lambda: BertTokenizer(file, additional_special_tokens="<a>"),
        "is a list of tokens, got the string '<a>'",
        TypeError,
    )
    refused(
        lambda: ours.add_special_tokens({"mask": "x"}), "add_special_tokens takes bos_token, .* got 'mask'", TypeError
    )
    refused(lambda: ours.tokenize(3), "tokenize takes a string, got int", TypeError)
    refused(
        lambda: ours.encode(3.5),
        "encode takes a string, a list of strings or a list of numbers, got 'float'",
        TypeError,
    )
    refused(lambda: ours.encode(["a", 3]), r"got \['a', 3\]", TypeError)
    refused(lambda: ours.encode("the", return_tensors="tf"), "return_tensors is one of None, 'np' and 'of', got 'tf'")
    refused(
        lambda: ours.encode(["the", "the fox"], return_tensors="np"),
        "texts of 1, 2 tokens make no tensor; give padding=True",
    )
    refused(lambda: ours.padded_vocab_size(0), "a multiple of 1 or more, got 0")
    gpt = GPT2Tokenizer(*byte_files(tmp_path))
    refused(
        lambda: gpt.encode(["a", "the fox"], padding=True), "padding needs a pad_token, GPT2Tokenizer has none; set one"
    )
    refused(
        lambda: T5Tokenizer(piece_file(tmp_path), extra_ids=2, additional_special_tokens=["<extra_id_0>"]),
        "extra_ids=2 asks for <extra_id_0> to <extra_id_1>",
    )
    real = builtins.__import__
    monkeypatch.setattr(
        builtins,
        "__import__",
        lambda name, *rest: (_ for _ in ()).throw(ImportError(name)) if name == "jieba" else real(name, *rest),
    )
    refused(
        lambda: BertTokenizer(file, do_chinese_wwm=True),
        "with jieba, which is not installed: pip install jieba",
        NotImplementedError,
    )


class Letters(PreTrainedTokenizer):
    """A tokenizer of one's own, as the base asks for it."""

    vocab_size = 26

    def get_vocab(self):
        return {chr(97 + i): i for i in range(26)}

    def _tokenize(self, text, **kwargs):
        return [letter for letter in text if letter.islower()]

    def _convert_token_to_id(self, token):
        return ord(token) - 97

    def _convert_id_to_token(self, index):
        return chr(97 + index)


def test_a_tokenizer_of_one_s_own():
    ours = Letters(pad_token="<pad>")
    assert (
        ours.sanitize_special_tokens() == 1
        and ours.encode("a b<pad>") == [0, 1, 26]
        and ours.decode([0, 1, 26]) == "a b <pad>"
        and len(ours) == 27
    )
