"""Pickles and saved directories written by hand, byte by byte, as another program may have written them."""

from __future__ import annotations

import struct
from pathlib import Path

MARK, STOP, BUILD, REDUCE, NEWOBJ, EMPTY_TUPLE, EMPTY_DICT, NONE, TRUE = (
    b"(",
    b".",
    b"b",
    b"R",
    b"\x81",
    b")",
    b"}",
    b"N",
    b"\x88",
)


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def of_global(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def mapping(**values: bytes) -> bytes:
    return EMPTY_DICT + MARK + b"".join(text(name) + value for name, value in values.items()) + b"u"


def tuple_of(*values: bytes) -> bytes:
    return MARK + b"".join(values) + b"t"


def built(module: str, name: str, state: bytes) -> bytes:
    """An object that is made without arguments and then told its state, as ``object.__reduce_ex__`` does it."""
    return of_global(module, name) + EMPTY_TUPLE + NEWOBJ + state + BUILD


def called(module: str, name: str, *arguments: bytes) -> bytes:
    return of_global(module, name) + tuple_of(*arguments) + REDUCE


def saved(data: bytes, version: int = 1) -> bytes:
    """The whole of ``pickled_data`` around the code of an object."""
    return b"\x80\x03" + mapping(protocol_version=b"K" + bytes([version]), data=data) + STOP


def write_directory(folder: Path, pickled: bytes, **tensors: tuple[str, bytes]) -> Path:
    """A saved directory with these tensors: what their ``meta`` says, and the bytes of ``out``."""
    folder.mkdir(exist_ok=True)
    (folder / "pickled_data").write_bytes(pickled)
    for name, (meta, out) in tensors.items():
        (folder / name).mkdir()
        (folder / name / "meta").write_text(meta)
        (folder / name / "out").write_bytes(out)
    return folder


TWO_BY_THREE = ("shape {\n  dim: 2\n  dim: 3\n}\ndata_type: kFloat\n", struct.pack("<6f", 0, 1, 2, 3, 4, -5.5))
