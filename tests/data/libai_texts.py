"""Small texts in token files, a tokenizer of numbered words for them, and small vocabularies: what tests of texts
share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

from libai.data.data_utils.indexed_dataset import make_builder
from libai.tokenizer.tokenization_gpt2 import bytes_to_unicode

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = 60


class Numbered:
    """Words ``w0`` to ``w59``, pieces ``##p0`` to ``##p19`` that go on with a word, and sentinels; what data sets ask a
    tokenizer for."""

    def __init__(self, sentinels: int = 20) -> None:
        tokens = SPECIAL + [f"w{i}" for i in range(WORDS)] + [f"##p{i}" for i in range(20)]
        self._vocab = {token: number for number, token in enumerate(tokens)}
        self._added = {f"<extra_id_{i}>": len(tokens) + i for i in range(sentinels)}
        for kind in ("pad", "cls", "sep", "mask"):
            setattr(self, f"{kind}_token_id", self._vocab[f"[{kind.upper()}]"])
        self.additional_special_tokens_ids = list(self._added.values())

    def get_vocab(self) -> dict[str, int]:
        return self._vocab

    def get_added_vocab(self) -> dict[str, int]:
        return self._added

    def convert_tokens_to_ids(self, token: str) -> int:
        return self._vocab[token]


def sentence(random: np.random.RandomState) -> list[int]:
    """Words, each with up to two pieces."""
    found: list[int] = []
    for _ in range(random.randint(2, 12)):
        found += [
            len(SPECIAL) + random.randint(WORDS),
            *(len(SPECIAL) + WORDS + random.randint(0, 20, random.randint(3))),
        ]
    return found


def text_files(folder: Path, documents: int = 30, impl: str = "mmap", sentences: int = 8) -> str:
    """The prefix of token files with random documents."""
    random, prefix = np.random.RandomState(0), str(folder / "text")
    builder = make_builder(f"{prefix}.bin", impl, 100)
    for _ in range(documents):
        for _ in range(random.randint(2, sentences + 1) if sentences > 1 else 1):
            builder.add_item(sentence(random))
        builder.end_document()
    builder.finalize(f"{prefix}.idx")
    return prefix


def fields(instance: Any) -> dict[str, list[Any]]:
    """The values of a sample by name."""
    return {name: value.tensor.tolist() for name, value in instance.get_fields().items()}


TRAINING = (
    "the quick brown fox jumped over the lazy dog and the other dog was not amused at all by what the fox did to it\n"
    * 8
)
BERT_WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "quick",
    "fox",
    "jump",
    "##ed",
    "over",
    "un",
    "##aff",
    "##able",
    ",",
    ".",
    "!",
    "hello",
    "world",
    "中",
    "国",
    "##国",
    "文",
]
BYTE_SPECIAL = {"gpt2": ["<|endoftext|>"], "roberta": ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]}


def bert_file(folder: Path) -> str:
    """A vocabulary of BERT."""
    (folder / "vocab.txt").write_text("\n".join(BERT_WORDS) + "\n", encoding="utf-8")
    return str(folder / "vocab.txt")


def byte_files(folder: Path, kind: str = "gpt2") -> tuple[str, str]:
    """A byte-pair vocabulary learned from a few words, by counting pairs."""
    alphabet = bytes_to_unicode()
    words = [
        [alphabet[byte] for byte in ((" " if place else "") + word).encode()]
        for place, word in enumerate(TRAINING.split())
    ]
    merges: list[tuple[str, str]] = []
    for _ in range(40):
        counts: dict[tuple[str, str], int] = {}
        for word in words:
            for pair in zip(word, word[1:]):
                counts[pair] = counts.get(pair, 0) + 1
        best = max(counts, key=lambda pair: (counts[pair], pair))
        merges.append(best)
        for word in words:
            place = 0
            while place < len(word) - 1:
                if (word[place], word[place + 1]) == best:
                    word[place : place + 2] = ["".join(best)]
                place += 1
    tokens = list(dict.fromkeys([*BYTE_SPECIAL[kind], *alphabet.values(), *("".join(pair) for pair in merges)]))
    (folder / "vocab.json").write_text(
        json.dumps({token: number for number, token in enumerate(tokens)}), encoding="utf-8"
    )
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges), encoding="utf-8")
    return str(folder / "vocab.json"), str(folder / "merges.txt")


def piece_file(folder: Path) -> str:
    """A sentencepiece model of 80 pieces."""
    syllables = "\n".join(f"{a}{b}o{c}a the {c}{a}" for a in "bdgklmnprst" for b in "aeiou" for c in "mnrst")
    (folder / "text.txt").write_text(
        TRAINING + syllables + "\nHello, World! naïve café it's 5 o'clock\n", encoding="utf-8"
    )
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text.txt"),
        model_prefix=str(folder / "spiece"),
        vocab_size=80,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
    )
    return str(folder / "spiece.model")
