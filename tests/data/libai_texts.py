"""Small texts in token files, and a tokenizer of numbered words for them: what tests of text data sets share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from libai.data.data_utils.indexed_dataset import make_builder

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = 60


class Numbered:
    """Words ``w0`` to ``w59``, pieces ``##p0`` to ``##p19`` that go on with a word, and sentinels; what data sets ask a tokenizer for."""

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
        found += [len(SPECIAL) + random.randint(WORDS), *(len(SPECIAL) + WORDS + random.randint(0, 20, random.randint(3)))]
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
