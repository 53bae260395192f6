"""Arrays written as a TensorFlow checkpoint of version 2, which TensorFlow's own saver and ``tf.train.load_checkpoint``
read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from flowvision.models.slim.checkpoint import messages
from flowvision.models.slim.checkpoint.table import write_table
from flowvision.models.slim.network import SlimNetwork
from oneflow.engine.core.errors import ArgumentError, DTypeError
from oneflow.engine.data.formats.files import written_beside
from oneflow.engine.data.formats.tfrecord import masked_crc


def save_slim_checkpoint(
    variables: SlimNetwork | Mapping[str, np.ndarray], path: str | os.PathLike[str], global_step: int | None = None
) -> Path:
    """Writes ``<path>.index`` and ``<path>.data-00000-of-00001``, and the file ``checkpoint`` that names the folder's
    latest; returns the prefix.

    ``variables`` is a network of slim's, or arrays by name. ``global_step`` goes in as TensorFlow's variable of that
    name. Each file is written beside its place and renamed, the index last.
    """
    arrays = dict(variables.slim_variables() if isinstance(variables, SlimNetwork) else variables)
    if global_step is not None:
        arrays["global_step"] = np.array(global_step, np.int64)
    if "" in arrays:
        raise ArgumentError("a variable needs a name: the empty one is the header's in a checkpoint")
    prefix = Path(path)
    prefix.parent.mkdir(parents=True, exist_ok=True)
    entries = [(b"", messages.written_bundle_header())]
    with written_beside(f"{prefix}.data-00000-of-00001") as file:
        offset = 0
        for name in sorted(arrays, key=str.encode):
            value = np.asarray(arrays[name])
            raw = _little_endian(name, value).tobytes()
            entries.append(
                (
                    name.encode(),
                    messages.written_bundle_entry(
                        messages.NUMBERS[value.dtype.newbyteorder("=")], value.shape, offset, len(raw), masked_crc(raw)
                    ),
                )
            )
            file.write(raw)
            offset += len(raw)
    with written_beside(f"{prefix}.index") as file:
        write_table(file, entries)
    with written_beside(prefix.parent / "checkpoint") as file:
        file.write(f'model_checkpoint_path: "{prefix.name}"\nall_model_checkpoint_paths: "{prefix.name}"\n'.encode())
    return prefix


def _little_endian(name: str, value: np.ndarray) -> np.ndarray:
    if value.dtype.newbyteorder("=") not in messages.NUMBERS:
        raise DTypeError(
            f"{name} has dtype {value.dtype}; a checkpoint takes "
            f"{', '.join(sorted(str(dtype) for dtype in messages.NUMBERS))}"
        )
    return value.astype(value.dtype.newbyteorder("<"), copy=False)
