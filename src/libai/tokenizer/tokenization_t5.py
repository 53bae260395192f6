"""T5's tokenizer: a sentencepiece model, and sentinels."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from libai.tokenizer.tokenization_base import PreTrainedTokenizer
from libai.utils.whole_file import whole_file
from oneflow.engine.core.errors import ArgumentError, DataError
from oneflow.engine.core.optional import package_or_stub

sentencepiece = package_or_stub("sentencepiece", "text", "T5Tokenizer")


class T5Tokenizer(PreTrainedTokenizer):
    """The tokenizer of a sentencepiece model. ``<extra_id_0>`` has the last number, ``<extra_id_1>`` the one before it,
    and so on."""

    vocab_files_names: ClassVar[dict[str, str]] = {"vocab_file": "spiece.model"}

    def __init__(
        self,
        vocab_file: str,
        eos_token: str = "</s>",
        unk_token: str = "<unk>",
        pad_token: str = "<pad>",
        extra_ids: int = 100,
        additional_special_tokens: Iterable[str] | None = None,
        add_bos_token: bool = False,
        **kwargs: Any,
    ) -> None:
        sentinels, given = [f"<extra_id_{i}>" for i in range(extra_ids)], list(additional_special_tokens or ())
        if (
            any("<extra_id_" in token for token in given)
            and [token for token in given if "<extra_id_" in token] != sentinels
        ):
            raise ArgumentError(
                f"extra_ids={extra_ids} asks for <extra_id_0> to <extra_id_{extra_ids - 1}>, additional_special_tokens "
                f"has others; leave one of them out"
            )
        others = [token for token in given if token not in sentinels]
        super().__init__(
            eos_token=eos_token,
            unk_token=unk_token,
            pad_token=pad_token,
            additional_special_tokens=sentinels + others,
            **kwargs,
        )
        self.sp_model = _model(os.fspath(vocab_file))
        self._count = self.sp_model.get_piece_size()
        self.extra_ids, self.add_bos_token = extra_ids, add_bos_token
        self._sentinels = {token: self._count + extra_ids - 1 - i for i, token in enumerate(sentinels)}
        self._sentinel_names = {number: token for token, number in self._sentinels.items()}
        self.init_kwargs = {"extra_ids": extra_ids, "add_bos_token": add_bos_token}
        self.sanitize_special_tokens()

    @property
    def vocab_size(self) -> int:
        """The number of pieces and sentinels."""
        return self._count + self.extra_ids

    def get_vocab(self) -> dict[str, int]:
        """The pieces and sentinels with their numbers."""
        return {**{self.sp_model.id_to_piece(number): number for number in range(self._count)}, **self._sentinels}

    def _tokenize(self, text: str, **kwargs: Any) -> list[str]:
        return self.sp_model.encode(text, out_type=str)

    def _convert_token_to_id(self, token: str) -> int:
        return self._sentinels[token] if token in self._sentinels else self.sp_model.piece_to_id(token)

    def _convert_id_to_token(self, index: int) -> str:
        if index in self._sentinel_names:
            return self._sentinel_names[index]
        return self.sp_model.id_to_piece(index) if 0 <= index < self._count else str(self.unk_token)

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        """The text of tokens; special ones stand between blanks."""
        special, parts, run = set(self.all_special_tokens), list[str](), list[str]()
        for token in tokens:
            if token in special:
                parts += [self.sp_model.decode(run)] if run else []
                parts.append(token)
                run = []
            else:
                run.append(token)
        parts += [self.sp_model.decode(run)] if run else []
        return " ".join(parts)

    def build_inputs_with_special_tokens(
        self, token_ids_0: list[int], token_ids_1: list[int] | None = None
    ) -> list[int]:
        """``</s>`` behind each text with ``add_bos_token``; without it no special tokens."""
        end = [self.eos_token_id] if self.add_bos_token else []
        return token_ids_0 + end if token_ids_1 is None else token_ids_0 + end + token_ids_1 + end

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple[str, ...]:
        """Writes ``spiece.model``, and returns its name."""
        path = os.path.join(
            save_directory, (f"{filename_prefix}-" if filename_prefix else "") + self.vocab_files_names["vocab_file"]
        )
        with whole_file(path) as file:
            file.write(self.sp_model.serialized_model_proto())
        return (path,)


def _model(path: str) -> Any:
    if not os.path.isfile(path):
        raise DataError(f"there is no sentencepiece model {path!r}; T5's is called spiece.model")
    try:
        return sentencepiece.SentencePieceProcessor(model_file=path)
    except (RuntimeError, OSError) as error:
        raise DataError(f"{path} is no sentencepiece model: {' '.join(str(error).split())}") from None
