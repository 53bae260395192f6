"""A text into a vocabulary of byte pairs and token files: what ``tools/preprocess_data.py`` does for texts with a
vocabulary of their own, in a few lines."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tokenizers import ByteLevelBPETokenizer

from libai.data.data_utils.indexed_dataset import data_file_path, index_file_path, make_builder
from libai.tokenizer import GPT2Tokenizer

END = "<|endoftext|>"
DOCUMENT = 500  # characters, more or less: documents are what training and validation are cut by
OWN = Path(__file__).parent / "sonnets.txt"


def prepare(file: str, folder: str, vocab_size: int) -> None:
    """Writes ``vocab.json``, ``merges.txt``, ``text_document.bin`` and ``text_document.idx`` into the folder; without a
    file, of the sonnets."""
    if file and not os.path.isfile(file):
        sys.exit(f"text.file: there is no file {file!r}; leave it out, and the sonnets are read")
    text = Path(file or OWN).read_text(encoding="utf-8")
    os.makedirs(folder, exist_ok=True)
    learned = ByteLevelBPETokenizer()
    learned.train_from_iterator(
        text.splitlines(keepends=True), vocab_size=vocab_size, special_tokens=[END], show_progress=False
    )
    learned.save_model(folder)
    tokenizer = GPT2Tokenizer.from_pretrained(folder)
    prefix = os.path.join(folder, "text_document")
    builder = make_builder(data_file_path(prefix), "mmap", len(tokenizer))
    for document in documents(text):
        builder.add_item(tokenizer.encode(document))
        builder.end_document()
    builder.finalize(index_file_path(prefix))


def documents(text: str) -> list[str]:
    """The text in pieces that end with an empty line."""
    found = [""]
    for part in text.split("\n\n"):
        if len(found[-1]) > DOCUMENT:
            found.append("")
        found[-1] += part + "\n\n"
    return found
