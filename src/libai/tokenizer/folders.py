"""Tokenizers in folders: vocabulary files, ``tokenizer_config.json``, ``special_tokens_map.json``,
``added_tokens.json``."""

from __future__ import annotations

import inspect
import json
import os
from typing import Any

from libai.tokenizer.special_tokens import LIST, NAMES, as_token
from libai.utils.whole_file import write_whole
from oneflow.engine.core.errors import ArgumentError, DataError

CONFIG, SPECIAL, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
WHOLE = "tokenizer.json"  # Hugging Face's file of a whole tokenizer, vocabulary included


def load(cls: Any, path: Any = None, *inputs: Any, **kwargs: Any) -> Any:
    """A tokenizer of the class from a folder, or from its vocabulary file where it has only one."""
    if path is None or not os.path.exists(os.fspath(path)):
        needed = " and ".join(cls.vocab_files_names.values())
        raise ArgumentError(
            f"there is no folder {str(path)!r}: {cls.__name__}.from_pretrained takes one that has {needed}; nothing is "
            f"downloaded"
        )
    path = os.fspath(path)
    if os.path.isfile(path):
        if len(cls.vocab_files_names) != 1:
            raise ArgumentError(
                f"{cls.__name__} has the files {' and '.join(cls.vocab_files_names.values())}; give from_pretrained "
                f"their folder, not {path}"
            )
        return cls(path, *inputs, **kwargs)
    files = {argument: _found(cls, path, argument, name) for argument, name in cls.vocab_files_names.items()}
    settings, added = {**_json(path, CONFIG), **_json(path, SPECIAL)}, _added(path)
    # Further arguments of constructors are special tokens; folders hold much else.
    takes = {*inspect.signature(cls.__init__).parameters, *NAMES, LIST}
    saved = {name: value for name, value in settings.items() if name in takes and name not in files} | kwargs
    tokenizer = cls(*inputs, **{**files, **saved})
    # Tokens have the numbers of the folder, not those of the order of the arguments.
    tokenizer.set_added_tokens(sorted(added, key=added.__getitem__))
    wrong = {token: number for token, number in added.items() if tokenizer.convert_tokens_to_ids(token) != number}
    if wrong:
        raise DataError(
            f"the tokens that were added in {path} do not fit its vocabulary: {wrong} have other numbers in it"
        )
    return tokenizer


def save(tokenizer: Any, folder: str) -> tuple[str, ...]:
    """Writes a tokenizer into a folder; the names of the files."""
    if os.path.isfile(folder):
        raise ArgumentError(f"save_pretrained takes a folder, {folder} is a file")
    os.makedirs(folder, exist_ok=True)
    written = [*tokenizer.save_vocabulary(folder)]
    config = {
        "tokenizer_class": type(tokenizer).__name__,
        **getattr(tokenizer, "init_kwargs", {}),
        **tokenizer.special_tokens_map,
    }
    for name, content in (
        (CONFIG, config),
        (SPECIAL, tokenizer.special_tokens_map),
        (ADDED, tokenizer.get_added_vocab()),
    ):
        if content:
            write_whole(os.path.join(folder, name), json.dumps(content, ensure_ascii=False, indent=2) + "\n")
            written.append(os.path.join(folder, name))
    return tuple(written)


def read_vocabulary(path: str, what: str) -> dict[str, int]:
    """The vocabulary of a JSON file, or that within Hugging Face's file of a whole tokenizer."""
    content = parsed(path, what)
    vocabulary = content.get("model", {}).get("vocab") if isinstance(content.get("model"), dict) else content
    if not isinstance(vocabulary, dict) or not all(isinstance(number, int) for number in vocabulary.values()):
        raise DataError(f"{path} is no {what}: a JSON object of tokens and their numbers is expected")
    return vocabulary


def parsed(path: str, what: str) -> dict[str, Any]:
    """A JSON object from a file."""
    try:
        content = json.loads(read_text(path, what))
    except json.JSONDecodeError as error:
        raise DataError(f"{path} is no {what}: {error}") from None
    if not isinstance(content, dict):
        raise DataError(f"{path} is no {what}: a JSON object is expected, it holds a {type(content).__name__}")
    return content


def read_text(path: str, what: str) -> str:
    """The text of a file."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the {what} {path!r} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _found(cls: Any, folder: str, argument: str, name: str) -> str:
    for candidate in (name, *cls.other_file_names.get(argument, ())):
        if os.path.exists(os.path.join(folder, candidate)):
            return os.path.join(folder, candidate)
    raise ArgumentError(
        f"{folder} has no {name}, which {cls.__name__} needs; it has "
        f"{', '.join(sorted(os.listdir(folder))[:10]) or 'nothing'}"
    )


def _added(folder: str) -> dict[str, int]:
    """Tokens that were added to the vocabulary of a folder, with their numbers, by whichever file tells."""
    if found := _json(folder, ADDED):
        return found
    if decoder := _json(folder, CONFIG).get("added_tokens_decoder"):
        return {str(as_token(CONFIG, token)): int(number) for number, token in decoder.items()}
    return {str(as_token(WHOLE, token)): int(token["id"]) for token in _json(folder, WHOLE).get("added_tokens") or ()}


def _json(folder: str, name: str) -> dict[str, Any]:
    path = os.path.join(folder, name)
    return parsed(path, name) if os.path.exists(path) else {}
