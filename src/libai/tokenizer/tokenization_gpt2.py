"""GPT-2's tokenizer: byte pairs over bytes."""

from __future__ import annotations

from typing import Any

from libai.tokenizer.byte_bpe import ByteBPETokenizer, bytes_to_unicode, get_pairs

__all__ = ["GPT2Tokenizer", "bytes_to_unicode", "get_pairs"]


class GPT2Tokenizer(ByteBPETokenizer):
    """The tokenizer of ``vocab.json`` (or ``encoder.json``) and ``merges.txt`` (or ``vocab.bpe``)."""

    def __init__(
        self,
        vocab_file: str,
        merges_file: str,
        errors: str = "replace",
        unk_token: str = "<|endoftext|>",
        bos_token: str = "<|endoftext|>",
        eos_token: str = "<|endoftext|>",
        add_bos_token: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            vocab_file,
            merges_file,
            errors,
            add_bos_token,
            unk_token=unk_token,
            bos_token=bos_token,
            eos_token=eos_token,
            **kwargs,
        )

    def build_inputs_with_special_tokens(
        self, token_ids_0: list[int], token_ids_1: list[int] | None = None
    ) -> list[int]:
        """``bos`` before each text with ``add_bos_token``; without it no special tokens."""
        begin = [self.bos_token_id] if self.add_bos_token else []
        return begin + token_ids_0 if token_ids_1 is None else begin + token_ids_0 + begin + token_ids_1
