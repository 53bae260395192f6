"""What text data sets are made with: parts of the documents, index maps on disk, masks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from libai.data.data_utils.map_file import IndexMap, cached_map, fingerprint
from libai.data.data_utils.masking import create_masked_lm_predictions, is_start_piece
from libai.data.data_utils.sample_maps import sentence_map
from oneflow.engine.core.errors import ArgumentError

__all__ = [
    "compile_helper",
    "create_masked_lm_predictions",
    "get_samples_mapping",
    "get_train_valid_test_split_",
    "is_shared_folder",
    "is_start_piece",
]

_PARTS = 3
_ENDLESS_EPOCHS, _ENDLESS_SAMPLES = np.iinfo(np.int32).max - 1, np.iinfo(np.int64).max - 1
_SHARED_TYPES = ("nfs", "lustre", "gpfs", "ceph", "glusterfs", "beegfs", "fuse.", "cifs", "smb", "9p")


def compile_helper() -> None:
    """Nothing has to be compiled: index maps are made with numpy. Programs that call this go on."""


def is_shared_folder(filename: str) -> bool:
    """Whether a file lies where other machines see it too: by the type of its file system, or because
    ``IS_SHARED_FILE=1`` says so."""
    if os.environ.get("IS_SHARED_FILE") is not None:
        return os.environ["IS_SHARED_FILE"] == "1"
    path = os.path.realpath(filename)
    try:
        with open("/proc/self/mounts", encoding="utf-8") as file:
            mounts = [line.split()[1:3] for line in file]
    except OSError:
        return False
    over = [(len(point), kind) for point, kind in mounts if path == point or path.startswith(point.rstrip("/") + "/")]
    return bool(over) and max(over)[1].startswith(_SHARED_TYPES)


def get_samples_mapping(
    indexed_dataset: Any,
    data_prefix: str,
    num_epochs: int | None,
    max_num_samples: int | None,
    max_seq_length: int,
    short_seq_prob: float,
    seed: int,
    name: str,
    binary_head: bool,
) -> np.ndarray:
    """Rows (first sentence, last one + 1, target length) of the documents of ``indexed_dataset``, from a file beside
    the data.

    Whole epochs, at most ``num_epochs``, until there are ``max_num_samples``. With ``binary_head`` a sample has two
    sentences or more.
    """
    return samples_map(
        indexed_dataset,
        data_prefix,
        num_epochs,
        max_num_samples,
        max_seq_length,
        short_seq_prob,
        seed,
        name,
        binary_head,
    ).rows


def samples_map(
    indexed_dataset: Any,
    data_prefix: str,
    num_epochs: int | None,
    max_num_samples: int | None,
    max_seq_length: int,
    short_seq_prob: float,
    seed: int,
    name: str,
    binary_head: bool,
) -> IndexMap:
    """As :func:`get_samples_mapping`, in a form that is pickled by its file."""
    if num_epochs is None and max_num_samples is None:
        raise ArgumentError("an index map needs max_num_samples or num_epochs: without either it has no end")
    if not 0 <= short_seq_prob <= 1:
        raise ArgumentError(f"short_seq_prob is a probability, got {short_seq_prob!r}")
    epochs, samples = num_epochs or _ENDLESS_EPOCHS, _ENDLESS_SAMPLES if max_num_samples is None else max_num_samples
    path = f"{data_prefix}_{name}_indexmap"
    path += "" if num_epochs is None else f"_{num_epochs}ep"
    path += "" if max_num_samples is None else f"_{max_num_samples}mns"
    path += f"_{max_seq_length}msl_{short_seq_prob:0.2f}ssp_{seed}s.npy"
    documents, sizes = indexed_dataset.get_doc_idx(), indexed_dataset.sizes
    arguments = (epochs, samples, max_seq_length, short_seq_prob, seed, 2 if binary_head else 1)
    mark = fingerprint("sentences", arguments, np.asarray(documents), np.asarray(sizes[documents[0] : documents[-1]]))
    return cached_map(path, mark, lambda: sentence_map(documents, sizes, *arguments))


def get_train_valid_test_split_(size: int, splits: Sequence[float] | None = None) -> list[int]:
    """The four bounds of the parts for training, validation and test of ``size`` documents, by ratios; without ratios
    all are for training.

    Each part is rounded; what rounding adds or leaves over comes off every bound but the first.
    """
    ratios = [float(ratio) for ratio in (splits or [1.0])][:_PARTS]
    ratios += [0.0] * (_PARTS - len(ratios))
    if min(ratios) < 0 or sum(ratios) <= 0:
        raise ArgumentError(f"splits are three ratios, not negative and not all zero, got {splits!r}")
    bounds = [0]
    for ratio in ratios:
        bounds.append(bounds[-1] + round(ratio / sum(ratios) * size))
    over = bounds[-1] - size
    return [0, *(bound - over for bound in bounds[1:])]
