"""One tensor on disk: a folder with its raw values in ``out`` and its shape and data type in ``meta``, as in
checkpoints of jobs.

What is read may come from anywhere: nothing is allocated before the length of ``out`` is known to be that of the shape,
and links, pipes and devices are not followed.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import torch

from oneflow.engine.checkpoint.folder import LARGEST_META, meta_text, open_regular, parse_meta
from oneflow.engine.core.errors import CheckpointError

DATA_TYPES = {
    torch.float32: "kFloat",
    torch.float64: "kDouble",
    torch.float16: "kFloat16",
    torch.bfloat16: "kBFloat16",
    torch.int8: "kInt8",
    torch.int16: "kInt16",
    torch.int32: "kInt32",
    torch.int64: "kInt64",
    torch.uint8: "kUInt8",
    torch.bool: "kBool",
    torch.complex64: "kComplex64",
    torch.complex128: "kComplex128",
}
_BY_NAME = {name: dtype for dtype, name in DATA_TYPES.items()} | {"kChar": torch.int8}
# Whole numbers of a width stand for whatever has that width: numpy has no bfloat16.
_BITS = {
    1: (torch.uint8, "<u1"),
    2: (torch.int16, "<i2"),
    4: (torch.int32, "<i4"),
    8: (torch.int64, "<i8"),
    16: (torch.complex128, "<c16"),
}


def write_tensor(folder: Path, tensor: torch.Tensor) -> None:
    """Writes the values of a tensor with memory, on any device and of any strides, into a new folder. The disk need not
    have them yet."""
    bits, little = _BITS[tensor.dtype.itemsize]
    values = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().flatten().view(bits).numpy()
    folder.mkdir()
    with open(folder / "out", "wb") as file:
        file.write(values.astype(little, copy=False).data)
    (folder / "meta").write_text(meta_text(tensor.shape, DATA_TYPES[tensor.dtype]))


def read_tensor(folder: Path) -> torch.Tensor:
    """The tensor of a folder, on the CPU."""
    if folder.is_symlink() or not folder.is_dir():
        raise CheckpointError(
            f"{str(folder)!r} should be a folder with the files 'meta' and 'out' of a tensor; the saved directory is "
            f"damaged"
        )
    shape, dtype = _read_meta(folder / "meta")
    values = _read_out(folder / "out", math.prod(shape), dtype)
    try:
        return values.view(dtype).reshape(shape)
    except (RuntimeError, TypeError, OverflowError) as error:  # empty, of a shape that no tensor can have
        raise CheckpointError(
            f"{str(folder / 'meta')!r}: no tensor has the shape {shape}: {str(error).splitlines()[0]}"
        ) from None


def _read_meta(path: Path) -> tuple[tuple[int, ...], torch.dtype]:
    with open_regular(path) as file:
        text = file.read(LARGEST_META + 1).decode(errors="replace")
    found = parse_meta(text) if len(text) <= LARGEST_META else None
    if found is None or found[1] not in _BY_NAME:
        raise CheckpointError(
            f"{str(path)!r} is not the meta file of a tensor: expected a shape block and a data_type of "
            f"{list(_BY_NAME)}"
        )
    return found[0], _BY_NAME[found[1]]


def _read_out(path: Path, elements: int, dtype: torch.dtype) -> torch.Tensor:
    _, little = _BITS[dtype.itemsize]
    with open_regular(path) as file:
        length, needed = os.fstat(file.fileno()).st_size, elements * dtype.itemsize
        if length != needed:
            raise CheckpointError(
                f"{str(path)!r} has {length} bytes, its meta file says {needed}: one of them is cut off or damaged"
            )
        values = np.fromfile(file, little, elements).astype(np.dtype(little).newbyteorder("="), copy=False)
    if len(values) != elements:
        raise CheckpointError(f"{str(path)!r} became shorter while it was read")
    if dtype == torch.bool and elements and values.max() > 1:
        raise CheckpointError(
            f"{str(path)!r} holds the byte {values.max()} where a bool, 0 or 1, should be: it is damaged"
        )
    return torch.from_numpy(values)
