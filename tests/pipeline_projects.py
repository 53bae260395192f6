"""Small projects for pipelines: a config, a vocabulary, and weights as ``transformers`` saves them."""

from __future__ import annotations

import json
from pathlib import Path

import huggingface_models as hf

_WRITER = """
from libai.config import LazyCall, get_config
from libai.models import GPTForPreTraining
from libai.tokenizer import GPT2Tokenizer

cfg = get_config("common/models/gpt.py").cfg
cfg.update(hidden_layers=2, vocab_size={words}, hidden_size=16, ffn_hidden_size=24, num_attention_heads=4, max_seq_length=24)
model = LazyCall(GPTForPreTraining)(cfg=cfg)
tokenization = dict(tokenizer=LazyCall(GPT2Tokenizer)(vocab_file=r"{folder}/vocab.json", merges_file=r"{folder}/merges.txt"))
"""
_CLASSIFIER = """
from libai.config import LazyCall, get_config
from libai.models import BertForClassification
from libai.tokenizer import BertTokenizer

cfg = get_config("common/models/bert.py").cfg
cfg.update(num_labels=3, classifier_dropout=0.0)
model = LazyCall(BertForClassification)(cfg=cfg)
tokenization = dict(tokenizer=LazyCall(BertTokenizer)(vocab_file=r"{folder}/vocab.txt", add_bos_token=True))
"""


def writer(folder: Path) -> Path:
    """GPT-2 whose tokens are letters."""
    names = [
        "<|endoftext|>",
        *map(chr, range(ord("a"), ord("z") + 1)),
        *map(chr, range(ord("A"), ord("A") + hf.WORDS - 27)),
    ]
    (folder / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    (folder / "config.py").write_text(_WRITER.format(folder=folder, words=hf.WORDS))
    hf.save(hf.theirs("GPT-2"), folder / "weights")
    return folder


def classifier(folder: Path) -> Path:
    """BERT with three classes, whose words are letters."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(chr, range(ord("a"), ord("z") + 1))]
    (folder / "vocab.txt").write_text("\n".join(names + [f"word{i}" for i in range(hf.WORDS - len(names))]) + "\n")
    (folder / "config.py").write_text(_CLASSIFIER.format(folder=folder))
    hf.save(hf.theirs("BERT, classifier"), folder / "weights")
    return folder
