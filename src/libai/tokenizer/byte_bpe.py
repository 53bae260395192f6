"""Byte pairs over bytes: what the tokenizers of GPT-2 and RoBERTa share."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Sequence
from typing import Any, ClassVar

from libai.tokenizer.folders import WHOLE, parsed, read_text, read_vocabulary
from libai.tokenizer.tokenization_base import PreTrainedTokenizer
from libai.utils.whole_file import write_whole
from oneflow.engine.core.errors import DataError
from oneflow.engine.core.optional import package_or_stub

tokenizers = package_or_stub("tokenizers", "text", "the tokenizer of GPT-2 and RoBERTa")


@functools.cache
def bytes_to_unicode() -> dict[int, str]:
    """A printable character for every byte: itself where it is one, else one from 256 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {**{byte: chr(byte) for byte in printable}, **{byte: chr(256 + place) for place, byte in enumerate(others)}}


def get_pairs(word: Sequence[str]) -> set[tuple[str, str]]:
    """The pairs of neighbours in a word."""
    return set(zip(word, word[1:]))


class ByteBPETokenizer(PreTrainedTokenizer):
    """Words with the blank before them, as bytes, put together by the merges of a file."""

    vocab_files_names: ClassVar[dict[str, str]] = {"vocab_file": "vocab.json", "merges_file": "merges.txt"}
    other_file_names: ClassVar[dict[str, tuple[str, ...]]] = {
        "vocab_file": ("encoder.json", WHOLE),
        "merges_file": ("vocab.bpe", WHOLE),
    }

    def __init__(self, vocab_file: str, merges_file: str, errors: str, add_bos_token: bool, **special: Any) -> None:
        super().__init__(**special)
        self.encoder = read_vocabulary(os.fspath(vocab_file), "vocabulary")
        self.decoder = {number: token for token, number in self.encoder.items()}
        self._merges = _read_merges(os.fspath(merges_file))
        self.errors, self.add_bos_token = errors, add_bos_token
        self._model = _bpe(self.encoder, self._merges, f"{vocab_file} and {merges_file}")
        self._pieces = tokenizers.Tokenizer(self._model)
        self._pieces.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        self.byte_encoder = bytes_to_unicode()
        self.byte_decoder = {character: byte for byte, character in self.byte_encoder.items()}
        self.init_kwargs = {"errors": errors, "add_bos_token": add_bos_token}
        self.sanitize_special_tokens()

    @property
    def vocab_size(self) -> int:
        """The number of tokens of the vocabulary."""
        return len(self.encoder)

    def get_vocab(self) -> dict[str, int]:
        """The tokens of the vocabulary with their numbers."""
        return dict(self.encoder)

    def bpe(self, token: str) -> str:
        """The pieces of a word of byte characters, with blanks between them."""
        return " ".join(piece.value for piece in self._model.tokenize(token))

    def _tokenize(self, text: str, **kwargs: Any) -> list[str]:
        return self._pieces.encode(text, add_special_tokens=False).tokens

    def _convert_token_to_id(self, token: str) -> Any:
        return self.encoder.get(token, self.encoder.get(self.unk_token))

    def _convert_id_to_token(self, index: int) -> str:
        return self.decoder.get(index, self.unk_token)

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        """The text of tokens; bytes that are no text are treated as ``errors`` says."""
        return bytearray(self.byte_decoder[character] for character in "".join(tokens)).decode(
            "utf-8", errors=self.errors
        )

    @staticmethod
    def clean_up_tokenization(out_string: str) -> str:
        """The text as it is: its blanks are its own, none stand for the borders of words."""
        return out_string

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple[str, ...]:
        """Writes ``vocab.json`` and ``merges.txt``, and returns their names."""
        names = [
            os.path.join(save_directory, (f"{filename_prefix}-" if filename_prefix else "") + name)
            for name in self.vocab_files_names.values()
        ]
        write_whole(names[0], json.dumps(self.encoder, ensure_ascii=False))
        write_whole(names[1], "#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in self._merges))
        return tuple(names)


def _read_merges(path: str) -> list[tuple[str, str]]:
    if path.endswith(".json"):
        given = parsed(path, "list of merges").get("model", {}).get("merges")
        lines = None if given is None else [one if isinstance(one, str) else " ".join(one) for one in given]
    else:
        lines = [
            line for line in read_text(path, "list of merges").splitlines() if line and not line.startswith("#version")
        ]
    pairs = [tuple(line.split()) for line in lines or ()]
    if lines is None or any(len(pair) != 2 for pair in pairs):
        raise DataError(f"{path} is no list of merges: each line has two pieces with a blank between them")
    return pairs  # type: ignore[return-value]


def _bpe(vocabulary: dict[str, int], merges: list[tuple[str, str]], files: str) -> Any:
    try:
        return tokenizers.models.BPE(vocab=vocabulary, merges=merges)
    except Exception as error:  # the library raises that class
        raise DataError(f"{files} do not belong together: {error}") from None
