"""The tokenizer of a config."""

from __future__ import annotations

from typing import Any

from libai.config import instantiate


def build_tokenizer(cfg: Any) -> Any:
    """The tokenizer that ``cfg.tokenizer`` describes. With ``append_eod`` it has a token that ends documents: its own,
    else that which ends sentences, else padding."""
    tokenizer = instantiate(cfg["tokenizer"])
    if cfg.get("append_eod") and tokenizer.eod_token is None:
        tokenizer.eod_token = tokenizer.pad_token if tokenizer.eos_token is None else tokenizer.eos_token
    return tokenizer
