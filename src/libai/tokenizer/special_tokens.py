"""The special tokens of a tokenizer: by name, and with their numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oneflow.engine.core.errors import DTypeError, KeywordError, nearest

NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token", "eod_token")
LIST = "additional_special_tokens"


def _named(name: str) -> Any:
    def get(self: SpecialTokens) -> str | None:
        return self._special.get(name)

    def set_(self: SpecialTokens, value: Any) -> None:
        self._special[name] = as_token(name, value)

    return property(get, set_, doc=f"The ``{name}``, or None.")


def _number(name: str) -> Any:
    def get(self: SpecialTokens) -> int | None:
        token = getattr(self, name)
        return None if token is None else self.convert_tokens_to_ids(token)

    return property(get, doc=f"The number of the ``{name}``, or None.")


class SpecialTokens:
    """Special tokens as attributes. Setting one does not put it into the vocabulary; ``add_special_tokens`` does."""

    _special: dict[str, str | None]
    _additional: list[str]

    bos_token, eos_token, unk_token, sep_token = (_named(name) for name in NAMES[:4])
    pad_token, cls_token, mask_token, eod_token = (_named(name) for name in NAMES[4:])
    bos_token_id, eos_token_id, unk_token_id, sep_token_id = (_number(name) for name in NAMES[:4])
    pad_token_id, cls_token_id, mask_token_id, eod_token_id = (_number(name) for name in NAMES[4:])
    start_token_id, end_token_id = _number("start_token"), _number("end_token")

    def _take_special(self, given: dict[str, Any]) -> None:
        self._special, self._additional = dict.fromkeys(NAMES), []
        for name, value in given.items():
            if name not in (*NAMES, LIST):
                raise KeywordError(f"{type(self).__name__} takes no argument {name!r}{nearest(name, (*NAMES, LIST))}")
            setattr(self, name, value)

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        raise NotImplementedError

    @property
    def start_token(self) -> str | None:
        """What a text begins with: ``bos_token``, else ``cls_token``."""
        return self.bos_token if self.bos_token is not None else self.cls_token

    @property
    def end_token(self) -> str | None:
        """What a text ends with: ``eos_token``, else ``sep_token``."""
        return self.eos_token if self.eos_token is not None else self.sep_token

    @property
    def additional_special_tokens(self) -> list[str]:
        """Special tokens without a name of their own."""
        return self._additional

    @additional_special_tokens.setter
    def additional_special_tokens(self, value: Iterable[Any] | None) -> None:
        if isinstance(value, str):
            raise DTypeError(f"{LIST} is a list of tokens, got the string {value!r}")
        self._additional = [str(as_token(LIST, token)) for token in value or ()]

    @property
    def additional_special_tokens_ids(self) -> list[int]:
        """The numbers of those."""
        return [self.convert_tokens_to_ids(token) for token in self._additional]

    @property
    def special_tokens_map(self) -> dict[str, Any]:
        """The special tokens that are set, by name."""
        found: dict[str, Any] = {name: token for name, token in self._special.items() if token is not None}
        return {**found, LIST: list(self._additional)} if self._additional else found

    @property
    def all_special_tokens(self) -> list[str]:
        """The special tokens, each once."""
        return list(
            dict.fromkeys([*(token for token in self._special.values() if token is not None), *self._additional])
        )

    @property
    def all_special_ids(self) -> list[int]:
        """The numbers of the special tokens."""
        return [self.convert_tokens_to_ids(token) for token in self.all_special_tokens]


def as_token(name: str, value: Any) -> str | None:
    """A token as a string; files of Hugging Face hold some as dictionaries with their ``content``."""
    if isinstance(value, dict) and isinstance(value.get("content"), str):
        return value["content"]
    if hasattr(value, "content"):
        return str(value.content)
    if value is not None and not isinstance(value, str):
        raise DTypeError(f"{name} is a string or None, got {value!r}")
    return value
