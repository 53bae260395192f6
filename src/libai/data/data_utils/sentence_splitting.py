"""Sentences of a text, by punctuation: rules that need no data."""

from __future__ import annotations

import re

_CLOSERS = "\"'”’)\\]}」』】）》"
_END = re.compile(
    rf"(?:[.!?…]+[{_CLOSERS}]*(?=\s))"  # Latin: followed by a blank
    rf"|(?:[。！？]+[{_CLOSERS}]*)"  # Chinese and Japanese: no blank is needed
    r"|(?:\n[ \t]*(?=\n))"  # an empty line ends a paragraph
)
_ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof sr jr st gen col sgt capt lt rev hon gov sen rep pres vs etc inc ltd co corp dept est fig no vol pp ed eds al e.g i.e cf jan feb mar apr jun jul aug sep sept oct nov dec".split()
)


def split_sentences(text: str, keep_newlines: bool = False) -> list[str]:
    """The sentences of a text, without the blanks around them; with ``keep_newlines`` each has the blanks and line ends
    behind it."""
    found, start = [], 0
    for match in _END.finditer(text):
        if _goes_on(text, start, match):
            continue
        end = (
            match.end() + len(text[match.end() :]) - len(text[match.end() :].lstrip()) if keep_newlines else match.end()
        )
        found.append(text[start:end])
        start = end
    found.append(text[start:])
    sentences = [one if keep_newlines else " ".join(one.split()) for one in found]
    return [one for one in sentences if one.strip()]


def _goes_on(text: str, start: int, match: re.Match[str]) -> bool:
    """Whether a full stop is that of an abbreviation or initial, or the next word is in lower case."""
    if not match.group().startswith("."):
        return False
    words = text[max(start, match.start() - 40) : match.start()].split()
    last = words[-1].lstrip("(\"'“‘[").lower() if words else ""
    following = re.match(r"\s+(\S)", text[match.end() : match.end() + 40])
    is_lower = following is not None and following[1].islower()
    is_initial = len(last) == 1 and last.isalpha() and last != "i"
    return is_lower or is_initial or last in _ABBREVIATIONS or re.fullmatch(r"(?:[a-z]\.)+[a-z]", last) is not None
