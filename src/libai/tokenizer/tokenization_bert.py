"""BERT's tokenizer: words, and pieces of words."""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from libai.tokenizer.folders import WHOLE, read_text, read_vocabulary
from libai.tokenizer.tokenization_base import PreTrainedTokenizer
from libai.utils.whole_file import write_whole
from oneflow.engine.core.errors import DataError, UnsupportedError
from oneflow.engine.core.optional import package_or_stub

tokenizers = package_or_stub("tokenizers", "text", "BertTokenizer")

_CHINESE = "\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002ebef\U0002f800-\U0002fa1f"
_CHINESE_RUN = re.compile(f"([{_CHINESE}]+)")


def load_vocab(vocab_file: str) -> dict[str, int]:
    """The tokens of a file, one on each line, with their numbers."""
    if vocab_file.endswith(".json"):
        return read_vocabulary(vocab_file, "vocabulary")
    lines = read_text(vocab_file, "vocabulary").split("\n")
    return {line.rstrip("\r"): number for number, line in enumerate(lines[:-1] if lines[-1] == "" else lines)}


def whitespace_tokenize(text: str) -> list[str]:
    """The parts of a text between blanks."""
    return text.split()


class BertTokenizer(PreTrainedTokenizer):
    """Words by blanks, punctuation and Chinese characters, then the longest pieces of the vocabulary. ``never_split``
    are words that stay as they are.

    With ``do_chinese_wwm`` the characters of a Chinese word but its first begin with ``##``, as pieces of a word do, so
    that whole words are masked; words are found by jieba.
    """

    vocab_files_names: ClassVar[dict[str, str]] = {"vocab_file": "vocab.txt"}
    other_file_names: ClassVar[dict[str, tuple[str, ...]]] = {"vocab_file": (WHOLE,)}

    def __init__(
        self,
        vocab_file: str,
        do_lower_case: bool = True,
        do_basic_tokenize: bool = True,
        never_split: Iterable[str] | None = None,
        unk_token: str = "[UNK]",
        sep_token: str = "[SEP]",
        pad_token: str = "[PAD]",
        cls_token: str = "[CLS]",
        mask_token: str = "[MASK]",
        tokenize_chinese_chars: bool = True,
        do_chinese_wwm: bool = False,
        add_bos_token: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            unk_token=unk_token,
            sep_token=sep_token,
            pad_token=pad_token,
            cls_token=cls_token,
            mask_token=mask_token,
            **kwargs,
        )
        self.vocab = load_vocab(os.fspath(vocab_file))
        self.ids_to_tokens = {number: token for token, number in self.vocab.items()}
        if self.unk_token not in self.vocab:
            raise DataError(
                f"{vocab_file} has no token {self.unk_token!r}: it is no vocabulary of BERT, or unk_token= has another "
                f"name in it"
            )
        self.add_bos_token, self.do_basic_tokenize, self.do_chinese_wwm = (
            add_bos_token,
            do_basic_tokenize,
            do_chinese_wwm,
        )
        words = BasicTokenizerWithChineseWWM if do_chinese_wwm else BasicTokenizer
        self.basic_tokenizer = words(do_lower_case, never_split, tokenize_chinese_chars)
        self.wordpiece_tokenizer = WordpieceTokenizer(self.vocab, self.unk_token)
        self._at_once = (
            _whole_way(self.vocab, self.unk_token, self.basic_tokenizer)
            if do_basic_tokenize and not never_split and not do_chinese_wwm
            else None
        )
        self.init_kwargs = {
            "do_lower_case": do_lower_case, "do_basic_tokenize": do_basic_tokenize, "never_split": sorted(never_split or ()),
            "tokenize_chinese_chars": tokenize_chinese_chars, "do_chinese_wwm": do_chinese_wwm, "add_bos_token": add_bos_token,
        }  # fmt: skip
        self.sanitize_special_tokens()

    @property
    def vocab_size(self) -> int:
        """The number of tokens of the vocabulary."""
        return len(self.vocab)

    def get_vocab(self) -> dict[str, int]:
        """The tokens of the vocabulary with their numbers."""
        return dict(self.vocab)

    def _tokenize(self, text: str, **kwargs: Any) -> list[str]:
        if self._at_once is not None:
            return self._at_once.encode(text, add_special_tokens=False).tokens
        if not self.do_basic_tokenize:
            return self.wordpiece_tokenizer.tokenize(text)
        found: list[str] = []
        for word in self.basic_tokenizer.tokenize(text, never_split=self.all_special_tokens):
            if word in self.basic_tokenizer.never_split or (
                self.do_chinese_wwm and word.startswith("##") and word in self.vocab
            ):
                found.append(word)
            else:  # a vocabulary need not have every character as a piece
                found += self.wordpiece_tokenizer.tokenize(word.removeprefix("##") if self.do_chinese_wwm else word)
        return found

    def _convert_token_to_id(self, token: str) -> int:
        return self.vocab.get(token, self.vocab[self.unk_token])

    def _convert_id_to_token(self, index: int) -> str:
        return self.ids_to_tokens.get(index, self.unk_token)

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        """The text of tokens: pieces joined to words, words with blanks between them."""
        return " ".join(tokens).replace(" ##", "").strip()

    def build_inputs_with_special_tokens(
        self, token_ids_0: list[int], token_ids_1: list[int] | None = None
    ) -> list[int]:
        """``[CLS] a [SEP]`` or ``[CLS] a [SEP] b [SEP]`` with ``add_bos_token``; without it no special tokens."""
        begin, end = ([self.cls_token_id], [self.sep_token_id]) if self.add_bos_token else ([], [])
        return begin + token_ids_0 + end if token_ids_1 is None else begin + token_ids_0 + end + token_ids_1 + end

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple[str, ...]:
        """Writes ``vocab.txt``, and returns its name."""
        path = os.path.join(
            save_directory, (f"{filename_prefix}-" if filename_prefix else "") + self.vocab_files_names["vocab_file"]
        )
        write_whole(path, "".join(f"{token}\n" for token, _ in sorted(self.vocab.items(), key=lambda item: item[1])))
        return (path,)


class BasicTokenizer:
    """Words by blanks and punctuation, each Chinese character a word; lower case without accents if
    ``do_lower_case``."""

    def __init__(
        self, do_lower_case: bool = True, never_split: Iterable[str] | None = None, tokenize_chinese_chars: bool = True
    ) -> None:
        self.do_lower_case, self.tokenize_chinese_chars, self.never_split = (
            do_lower_case,
            tokenize_chinese_chars,
            set(never_split or ()),
        )
        self.normalizer = tokenizers.normalizers.BertNormalizer(
            clean_text=True, handle_chinese_chars=tokenize_chinese_chars, strip_accents=None, lowercase=do_lower_case
        )
        self._spacing = tokenizers.normalizers.BertNormalizer(
            clean_text=True, handle_chinese_chars=tokenize_chinese_chars, strip_accents=False, lowercase=False
        )
        self.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()

    def tokenize(self, text: str, never_split: Iterable[str] | None = None) -> list[str]:
        """The words of a text; those in ``never_split`` stay as they are."""
        kept = self.never_split | set(never_split or ())
        if not any(word in text for word in kept):
            return self._words(text)
        return [
            found
            for word in whitespace_tokenize(self._spacing.normalize_str(text))
            for found in ([word] if word in kept else self._words(word))
        ]

    def _words(self, text: str) -> list[str]:
        return [word for word, _ in self.pre_tokenizer.pre_tokenize_str(self.normalizer.normalize_str(text))]


class BasicTokenizerWithChineseWWM(BasicTokenizer):
    """As the basic one, and inside a Chinese word every character but the first begins with ``##``."""

    def __init__(
        self, do_lower_case: bool = True, never_split: Iterable[str] | None = None, tokenize_chinese_chars: bool = True
    ) -> None:
        _jieba()
        super().__init__(do_lower_case, never_split, tokenize_chinese_chars)

    def _words(self, text: str) -> list[str]:
        found: list[str] = []
        for number, part in enumerate(_CHINESE_RUN.split(text)):
            if number % 2:
                found += [
                    character if place == 0 else f"##{character}"
                    for word in _jieba().cut(part, HMM=False)
                    for place, character in enumerate(word)
                ]
            elif part:
                found += super()._words(part)
        return found


class WordpieceTokenizer:
    """The longest pieces of a vocabulary, from the left; a word that has none is ``unk_token``."""

    def __init__(self, vocab: dict[str, int], unk_token: str, max_input_chars_per_word: int = 100) -> None:
        self.vocab, self.unk_token, self.max_input_chars_per_word = vocab, unk_token, max_input_chars_per_word
        self._model = tokenizers.models.WordPiece(
            vocab, unk_token=unk_token, max_input_chars_per_word=max_input_chars_per_word
        )

    def tokenize(self, text: str) -> list[str]:
        """The pieces of the words between blanks."""
        return [piece.value for word in whitespace_tokenize(text) for piece in self._model.tokenize(word)]


def _whole_way(vocab: dict[str, int], unk_token: str, words: BasicTokenizer) -> Any:
    """Words and pieces in one call."""
    found = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocab, unk_token=unk_token))
    found.normalizer, found.pre_tokenizer = words.normalizer, words.pre_tokenizer
    return found


def _jieba() -> Any:
    try:
        with warnings.catch_warnings():  # its own source warns on newer Pythons
            warnings.simplefilter("ignore")
            import jieba
    except ImportError:
        raise UnsupportedError(
            "do_chinese_wwm finds Chinese words with jieba, which is not installed: pip install jieba, or pip install "
            "'oneflow-torch[chinese]'"
        ) from None
    jieba.setLogLevel(logging.WARNING)
    return jieba
