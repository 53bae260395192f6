"""What all tokenizers share: special and added tokens, numbers, tensors, folders."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch

from libai.tokenizer import folders
from libai.tokenizer.special_tokens import LIST, NAMES, SpecialTokens, as_token
from libai.utils import distributed as dist
from oneflow import sbp as sbp_values
from oneflow.engine.core.errors import ArgumentError, DTypeError, KeywordError, nearest

_TENSORS = (None, "np", "of", "pt")
_CLEANED = (
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
)


class PreTrainedTokenizer(SpecialTokens):
    """The base of tokenizers. One of your own has ``vocab_size``, ``get_vocab``, ``_tokenize(text)``,
    ``_convert_token_to_id(token)``, ``_convert_id_to_token(index)`` and ``save_vocabulary``, and names its files in
    ``vocab_files_names`` by the arguments that take them. Further arguments are special tokens."""

    vocab_files_names: ClassVar[dict[str, str]] = {}
    # Other names under which folders hold these files.
    other_file_names: ClassVar[dict[str, tuple[str, ...]]] = {}
    # Special tokens that take the blanks before them.
    _takes_blanks: ClassVar[tuple[str, ...]] = ()

    def __init__(self, verbose: bool = True, **kwargs: Any) -> None:
        self.verbose = verbose
        self._added: dict[str, int] = {}
        self._take_special(kwargs)

    # ------------------------------------------------------------------------------------------------------- folders

    @classmethod
    def from_pretrained(cls, *inputs: Any, **kwargs: Any) -> Any:
        """The tokenizer of a folder as ``save_pretrained`` or Hugging Face's tokenizers leave it; arguments replace
        those of the folder."""
        return folders.load(cls, *inputs, **kwargs)

    def save_pretrained(self, save_directory: str | os.PathLike[str]) -> tuple[str, ...]:
        """Writes everything into a folder, and returns the names of the files."""
        return folders.save(self, os.fspath(save_directory))

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple[str, ...]:
        """Writes the vocabulary into a folder, and returns the names of the files."""
        raise NotImplementedError

    # ---------------------------------------------------------------------------------------------------- vocabulary

    @property
    def vocab_size(self) -> int:
        """The number of tokens of the vocabulary, without those that were added."""
        raise NotImplementedError

    def __len__(self) -> int:
        return self.vocab_size + len(self._added)

    def padded_vocab_size(self, multiple: int = 1) -> int:
        """The number of all tokens, rounded up to a multiple."""
        if multiple < 1:
            raise ArgumentError(f"padded_vocab_size rounds up to a multiple of 1 or more, got {multiple}")
        return -(-len(self) // multiple) * multiple

    def get_vocab(self) -> dict[str, int]:
        """The tokens of the vocabulary with their numbers."""
        raise NotImplementedError

    def get_added_vocab(self) -> dict[str, int]:
        """The tokens that were added, with their numbers."""
        return dict(self._added)

    def add_tokens(self, new_tokens: str | Iterable[Any], special_tokens: bool = False) -> int:
        """Adds those tokens that are not there yet, and returns how many these are. With ``special_tokens`` they are
        special."""
        given = [
            str(as_token("new_tokens", token))
            for token in ([new_tokens] if isinstance(new_tokens, str) else new_tokens)
        ]
        before, known = len(self._added), self.get_vocab()
        for token in given:
            if token not in known and token not in self._added and token:
                self._added[token] = len(self)
        if special_tokens:
            self._additional += [token for token in given if token not in self.all_special_tokens]
        self._forget()
        return len(self._added) - before

    def set_added_tokens(self, tokens: Iterable[str]) -> None:
        """Adds these tokens, in their order, in place of those that were added before, and then what special tokens are
        missing."""
        self._added.clear()
        self.add_tokens(tokens)
        self.sanitize_special_tokens()

    def sanitize_special_tokens(self) -> int:
        """Adds the special tokens that the vocabulary has not, and returns how many these are."""
        return self.add_tokens(self.all_special_tokens)

    def add_special_tokens(self, special_tokens_dict: dict[str, Any]) -> int:
        """Sets special tokens by name, adds those that are new, and returns how many these are."""
        for name, value in special_tokens_dict.items():
            if name not in (*NAMES, LIST):
                raise KeywordError(
                    f"add_special_tokens takes {', '.join((*NAMES, LIST))}, got {name!r}{nearest(name, (*NAMES, LIST))}"
                )
            setattr(self, name, value)
        return self.sanitize_special_tokens()

    @cached_property
    def _names_of_added(self) -> dict[int, str]:
        return {number: token for token, number in self._added.items()}

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in NAMES or name == LIST:
            self._forget()

    def _forget(self) -> None:
        """What was worked out from special and added tokens is worked out anew."""
        for name in ("_names_of_added", "_whole_tokens"):
            self.__dict__.pop(name, None)

    # --------------------------------------------------------------------------------------------------- text to
    # numbers

    @cached_property
    def _whole_tokens(self) -> re.Pattern[str] | None:
        """Finds tokens that are never cut; of two that begin alike the longer."""
        tokens = sorted({*self.all_special_tokens, *self._added}, key=len, reverse=True)
        blanks = {getattr(self, name) for name in self._takes_blanks}
        found = [rf"\s*{re.escape(token)}" if token in blanks else re.escape(token) for token in tokens]
        return re.compile(f"({'|'.join(found)})") if found else None

    def tokenize(self, text: str, **kwargs: Any) -> list[str]:
        """The tokens of a text; special and added ones stay whole."""
        if not isinstance(text, str):
            raise DTypeError(f"tokenize takes a string, got {type(text).__name__}")
        if self._whole_tokens is None:
            return self._tokenize(text, **kwargs)
        tokens: list[str] = []
        for number, part in enumerate(self._whole_tokens.split(text)):
            if number % 2:
                tokens.append(part if part in self._added or part in self.all_special_tokens else part.lstrip())
            elif part:
                tokens += self._tokenize(part, **kwargs)
        return tokens

    def _tokenize(self, text: str, **kwargs: Any) -> list[str]:
        raise NotImplementedError

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        """The number of a token, or those of a list; an unknown one has that of ``unk_token``."""
        if tokens is None or isinstance(tokens, str):
            return self._token_to_id(tokens)
        return [self._token_to_id(token) for token in tokens]

    def _token_to_id(self, token: str | None) -> Any:
        if token is None:
            return None
        return self._added[token] if token in self._added else self._convert_token_to_id(token)

    def _convert_token_to_id(self, token: str) -> Any:
        raise NotImplementedError

    def build_inputs_with_special_tokens(
        self, token_ids_0: list[int], token_ids_1: list[int] | None = None
    ) -> list[int]:
        """A text, or a pair, with the special tokens of the model."""
        return token_ids_0 if token_ids_1 is None else token_ids_0 + token_ids_1

    def encode(
        self,
        text: Any,
        return_tensors: str | None = None,
        is_global: bool = False,
        device: str = "cuda",
        padding: bool = False,
        max_length: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """The numbers of a text, of each of a list of texts, or numbers as they are; with the special tokens of the
        model if it was made with ``add_bos_token=True``.

        ``max_length`` cuts texts, ``padding`` fills those of a list up to the longest. ``return_tensors`` is None for
        lists, "np" for an array, "of" for a tensor, which with ``is_global`` is the same on all ranks (``sbp`` and
        ``placement`` may be given).
        """
        if isinstance(text, str):
            return self.convert_to_tensors(self._numbers(text, max_length), return_tensors, is_global, device, **kwargs)
        if (
            not isinstance(text, (list, tuple))
            or not text
            or not all(isinstance(one, type(text[0])) for one in text)
            or not isinstance(text[0], (str, int))
        ):
            raise DTypeError(
                f"encode takes a string, a list of strings or a list of numbers, got "
                f"{text if isinstance(text, (list, tuple)) else type(text).__name__!r}"
            )
        if isinstance(text[0], int):
            return self.convert_to_tensors(
                self._finished(list(text), max_length), return_tensors, is_global, device, **kwargs
            )
        rows = [self._numbers(one, max_length) for one in text]
        return self.convert_to_tensors(
            self._padded(rows) if padding else rows, return_tensors, is_global, device, **kwargs
        )

    def _numbers(self, text: str, max_length: int | None) -> list[int]:
        return self._finished(self.convert_tokens_to_ids(self.tokenize(text)), max_length)

    def _finished(self, numbers: list[int], max_length: int | None) -> list[int]:
        """With special tokens; those stay when a text is cut."""
        if max_length is not None:
            special = len(self.build_inputs_with_special_tokens([]))
            numbers = numbers[: max(0, max_length - special)]
        return self.build_inputs_with_special_tokens(numbers)

    def _padded(self, rows: list[list[int]]) -> list[list[int]]:
        if self.pad_token_id is None:
            raise ArgumentError(
                f"padding needs a pad_token, {type(self).__name__} has none; set one, such as tokenizer.pad_token = "
                f"tokenizer.eos_token"
            )
        longest = max(map(len, rows))
        return [row + [self.pad_token_id] * (longest - len(row)) for row in rows]

    def convert_to_tensors(
        self,
        token_ids: Any,
        return_tensors: str | None = None,
        is_global: bool = False,
        device: str = "cuda",
        **kwargs: Any,
    ) -> Any:
        """Numbers as a list, an array ("np") or a tensor ("of")."""
        if return_tensors not in _TENSORS:
            raise ArgumentError(f"return_tensors is one of None, 'np' and 'of', got {return_tensors!r}")
        if return_tensors is None:
            return token_ids
        if len(token_ids) and isinstance(token_ids[0], list) and len({len(row) for row in token_ids}) > 1:
            raise ArgumentError(
                f"texts of {', '.join(str(len(row)) for row in token_ids)} tokens make no tensor; give padding=True"
            )
        if return_tensors == "np":
            return np.array(token_ids, np.int64)
        tensor: Any = torch.tensor(token_ids, dtype=torch.long, device=dist.available(device))
        if not is_global:
            return tensor
        placement = kwargs.get("placement") or dist.get_layer_placement(0, device)
        return tensor.to_global(
            placement=placement, sbp=kwargs.get("sbp") or dist.get_nd_sbp([sbp_values.broadcast, sbp_values.broadcast])
        )

    # --------------------------------------------------------------------------------------------------- numbers to
    # text

    def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> Any:
        """The token of a number, or those of a list."""
        if isinstance(ids, (int, np.integer)):
            return self._id_to_token(int(ids))
        special = set(self.all_special_ids) if skip_special_tokens else ()
        return [self._id_to_token(int(number)) for number in ids if int(number) not in special]

    def _id_to_token(self, number: int) -> str:
        return self._names_of_added[number] if number in self._names_of_added else self._convert_id_to_token(number)

    def _convert_id_to_token(self, index: int) -> str:
        raise NotImplementedError

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        """The text of tokens."""
        return " ".join(tokens)

    def decode(
        self,
        token_ids: Any,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool = True,
        spaces_between_special_tokens: bool = True,
    ) -> Any:
        """The text of numbers; of rows of numbers a list of texts. ``clean_up_tokenization_spaces`` takes the blanks
        before punctuation, ``spaces_between_special_tokens`` puts some around tokens that were added."""
        numbers = token_ids.tolist() if hasattr(token_ids, "tolist") else token_ids
        numbers = [numbers] if isinstance(numbers, int) else list(numbers)
        if numbers and not isinstance(numbers[0], (int, np.integer)):
            return [
                self.decode(row, skip_special_tokens, clean_up_tokenization_spaces, spaces_between_special_tokens)
                for row in numbers
            ]
        parts: list[str] = []
        run: list[str] = []
        for token in self.convert_ids_to_tokens(numbers, skip_special_tokens):
            if token in self._added:
                parts += [self.convert_tokens_to_string(run)] if run else []
                parts.append(token)
                run = []
            else:
                run.append(token)
        parts += [self.convert_tokens_to_string(run)] if run else []
        text = (" " if spaces_between_special_tokens else "").join(parts)
        return self.clean_up_tokenization(text) if clean_up_tokenization_spaces else text

    @staticmethod
    def clean_up_tokenization(out_string: str) -> str:
        """Takes the blanks before punctuation and English contractions."""
        for found, instead in _CLEANED:
            out_string = out_string.replace(found, instead)
        return out_string
