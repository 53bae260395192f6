"""What stands for a tensor in ``pickled_data``: the name of the folder that its values are in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from pickle import UnpicklingError
from typing import Any

FOLDER = re.compile(r"(?:global_)?tensor_\w+", re.ASCII)
_PLAIN_NAME = re.compile(r"[\w-][\w.-]*", re.ASCII)
_PATH_KEYS = ("path", "dir", "folder", "file", "name")


@dataclass(frozen=True)
class StoredTensor:
    """A reference to the tensor in ``folder``. A pickle that we write names this class by its path, with these three
    values."""

    folder: str
    is_parameter: bool = False
    requires_grad: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.folder, str) or not _PLAIN_NAME.fullmatch(self.folder):
            raise UnpicklingError(
                f"a tensor's folder is called {self.folder!r}; only a plain name beside 'pickled_data' is read"
            )


def reference_in(state: Any, is_parameter: bool) -> StoredTensor:
    """The reference that OneFlow's own pickles hold: what one of its tensors was reduced to, of which the folder's name
    is a part.

    That is a string or a path, by itself or in a tuple or dictionary. Where there are several strings, such as a device
    beside the folder, the folder is the one that is called like one, or stands under a key that speaks of a path.
    """
    leaves = list(_leaves(state, "", set()))
    found = [(key, str(value)) for key, value in leaves if isinstance(value, (str, PurePath))]
    requires_grad = is_parameter or ("requires_grad", True) in leaves
    for wanted in (_is_folder, _is_path, _is_any):
        names = {name for key, name in found if wanted(key, name)}
        if len(names) == 1:
            return StoredTensor(names.pop(), is_parameter, requires_grad)
    raise UnpicklingError(
        f"a tensor was pickled without the name of its folder: it holds {[name for _, name in found]}"
    )


def _is_folder(key: str, name: str) -> bool:
    return FOLDER.fullmatch(name) is not None


def _is_path(key: str, name: str) -> bool:
    return any(word in key for word in _PATH_KEYS)


def _is_any(key: str, name: str) -> bool:
    return True


def _leaves(state: Any, key: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Every string, path and bool of a state, with the key that it, or what it is in, stands under. A container is
    looked into once."""
    if isinstance(state, (str, PurePath, bool)):
        yield key, state
    elif isinstance(state, (dict, tuple, list)) and id(state) not in seen:
        seen.add(id(state))
        for name, value in state.items() if isinstance(state, dict) else ((key, value) for value in state):
            yield from _leaves(value, str(name), seen)
