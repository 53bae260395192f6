"""RoBERTa's tokenizer: byte pairs over bytes, with BERT's kind of special tokens."""

from __future__ import annotations

from typing import Any, ClassVar

from libai.tokenizer.byte_bpe import ByteBPETokenizer, bytes_to_unicode, get_pairs

__all__ = ["RobertaTokenizer", "bytes_to_unicode", "get_pairs"]


class RobertaTokenizer(ByteBPETokenizer):
    """The tokenizer of ``vocab.json`` and ``merges.txt``; ``<mask>`` takes the blank before it."""

    _takes_blanks: ClassVar[tuple[str, ...]] = ("mask_token",)

    def __init__(
        self,
        vocab_file: str,
        merges_file: str,
        errors: str = "replace",
        bos_token: str = "<s>",
        eos_token: str = "</s>",
        sep_token: str = "</s>",
        cls_token: str = "<s>",
        unk_token: str = "<unk>",
        pad_token: str = "<pad>",
        mask_token: str = "<mask>",
        add_bos_token: bool = False,
        **kwargs: Any,
    ) -> None:
        special = dict(
            bos_token=bos_token,
            eos_token=eos_token,
            sep_token=sep_token,
            cls_token=cls_token,
            unk_token=unk_token,
            pad_token=pad_token,
            mask_token=mask_token,
        )
        super().__init__(vocab_file, merges_file, errors, add_bos_token, **special, **kwargs)

    def build_inputs_with_special_tokens(
        self, token_ids_0: list[int], token_ids_1: list[int] | None = None
    ) -> list[int]:
        """``<s> a </s>`` or ``<s> a </s></s> b </s>`` with ``add_bos_token``; without it no special tokens."""
        begin, end = ([self.cls_token_id], [self.sep_token_id]) if self.add_bos_token else ([], [])
        return begin + token_ids_0 + end if token_ids_1 is None else begin + token_ids_0 + end + end + token_ids_1 + end

    def create_token_type_ids_from_sequences(
        self, token_ids_0: list[int], token_ids_1: list[int] | None = None
    ) -> list[int]:
        """A zero for every token: RoBERTa tells segments apart by nothing else than ``</s>``."""
        return [0] * len(self.build_inputs_with_special_tokens(token_ids_0, token_ids_1))
