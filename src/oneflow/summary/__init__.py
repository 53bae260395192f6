"""``flow.summary``: values written to TensorBoard event files.

Every function works outside a job on numbers and arrays, at once, and inside a job body on blobs, after each step. A
step that is not given is the number of times the tag was written before. Tags and texts are strings, or int8 blobs of
their bytes. ``name=``, which programs give here as to ops, has no effect: there is one writer. It names the op of a
flush inside a job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from oneflow.compat.spellings import spelled
from oneflow.engine.core import dtype as dtypes
from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.ir.blob import Blob, emit
from oneflow.engine.ir.trace import current
from oneflow.engine.job.watch import watch
from oneflow.engine.ops import create
from oneflow.summary._objects import Graph, HParam, Hparam, IntegerRange, Metric, Projector, RealRange, ValueSet
from oneflow.summary._writer import Events, require_tensorboard

__all__ = [
    "Graph",
    "HParam",
    "Hparam",
    "IntegerRange",
    "Metric",
    "Projector",
    "RealRange",
    "ValueSet",
    "close_summary_writer",
    "create_summary_writer",
    "flush_summary_writer",
    "histogram",
    "hparams",
    "image",
    "pb",
    "scalar",
    "text",
]

_EVENTS = Events()
_IMAGE_FORMATS = {"NHWC": {2: "HW", 3: "HWC", 4: "NHWC"}, "NCHW": {2: "HW", 3: "CHW", 4: "NCHW"}}


def create_summary_writer(logdir: str | Path, name: str | None = None) -> None:
    """Opens an event file in the folder ``logdir``; later calls of this namespace write to it."""
    _EVENTS.open(logdir)


def flush_summary_writer(name: str | None = None) -> None:
    """Puts everything written so far on disk; inside a job, after each of its steps."""
    if current() is None:
        _EVENTS.flush()
    else:
        tick = emit(create.constant, value=0.0, shape=(1,), dtype=dtypes.float32.torch, name=name)
        watch(tick, lambda _: _EVENTS.flush())


def close_summary_writer() -> None:
    """Closes the event file; it is also closed when the program ends."""
    _EVENTS.close()


def scalar(value: Any, step: Any = None, tag: Any = None, name: str | None = None) -> None:
    """Writes one number: a number, or an array or blob of one element."""
    if isinstance(value, Blob) and value.spec.elements != 1 and not value.is_dynamic:
        raise ArgumentError(f"flow.summary.scalar takes a blob of one element, got {value!r}")

    def write(writer: Any, value: np.ndarray, step: int, tag: str) -> None:
        if value.size != 1:
            raise ArgumentError(f"flow.summary.scalar takes one number, got an array of shape {value.shape}")
        writer.add_scalar(tag, value.item(), step)

    _put("scalar", write, value, step, tag)


def histogram(value: Any, step: Any = None, tag: Any = None, name: str | None = None) -> None:
    """Writes how the elements of an array or blob are distributed."""

    def write(writer: Any, value: np.ndarray, step: int, tag: str) -> None:
        writer.add_histogram(tag, value, step)

    _put("histogram", write, value, step, tag)


def image(value: Any, step: Any = None, tag: Any = None, name: str | None = None, data_format: str = "NHWC") -> None:
    """Writes an image, or a batch of them as a grid: uint8, or float from 0 to 1.

    ``data_format`` is "NHWC" or "NCHW"; a value of three dims is one image, one of two dims a grey image.
    """
    if data_format not in _IMAGE_FORMATS:
        raise ArgumentError(f"flow.summary.image: data_format is 'NHWC' or 'NCHW', got {data_format!r}")
    rank = len(value.shape) if hasattr(value, "shape") else np.ndim(value)
    if rank not in (2, 3, 4):
        raise ArgumentError(f"flow.summary.image takes 2, 3 or 4 dims, got {rank}")
    dims = _IMAGE_FORMATS[data_format][rank]

    def write(writer: Any, value: np.ndarray, step: int, tag: str) -> None:
        add = writer.add_images if rank == 4 else writer.add_image
        add(tag, value, step, dataformats=dims)

    _put("image", write, value, step, tag)


@spelled("summary.text")
def text(text: Any, step: Any = None, tag: Any = None, name: str | None = None) -> None:
    """Writes a text, which TensorBoard shows as Markdown."""

    def write(writer: Any, value: Any, step: int, tag: str) -> None:
        writer.add_text(tag, _string(value), step)

    _put("text", write, text, step, tag)


def hparams(hparams: Mapping[Any, bool | float | str], metrics: Mapping[str, float] | None = None) -> None:
    """Writes the run's hyperparameters, by name or ``Hparam``, with the results they led to, also by ``Metric``. Not
    for use inside a job."""
    require_tensorboard()
    from torch.utils.tensorboard.summary import hparams as make_summaries

    writer = _EVENTS.writer("flow.summary.hparams")
    _outside("hparams")
    results = {**(metrics or {}), **{key.name: value for key, value in hparams.items() if isinstance(key, Metric)}}
    settings = {}
    for key, value in hparams.items():
        if isinstance(key, Hparam):
            key.check(value)
        if not isinstance(key, Metric):
            settings[key.name if isinstance(key, Hparam) else key] = value
    for part in make_summaries(settings, results):
        writer.file_writer.add_summary(part)
    for tag, number in results.items():
        writer.add_scalar(tag, number)


def pb(value: bytes, step: int | None = None, name: str | None = None) -> None:
    """Writes a serialised ``tensorboard.Summary`` message as it is. Not for use inside a job."""
    require_tensorboard()
    from tensorboard.compat.proto.summary_pb2 import Summary

    writer = _EVENTS.writer("flow.summary.pb")
    _outside("pb")
    writer.file_writer.add_summary(Summary.FromString(bytes(value)), step)


def _put(kind: str, write: Callable[[Any, Any, int, str], None], value: Any, step: Any, tag: Any) -> None:
    """Writes now, or where any argument is a blob after each step of the job whose body is running."""
    what = f"flow.summary.{kind}"
    parts = (value, step, kind if tag is None else tag)
    blobs = [part for part in parts if isinstance(part, Blob)]

    def finish(*arrays: np.ndarray) -> None:
        given = iter(arrays)
        now, at, label = (np.asarray(next(given)) if isinstance(part, Blob) else part for part in parts)
        written = now if isinstance(now, str) else np.asarray(now)
        writer, name = _EVENTS.writer(what), _string(label)
        write(writer, written, _EVENTS.step(name, _whole(what, at)), name)

    if blobs:
        watch(blobs, finish)
    else:
        _outside(kind)
        finish()


def _outside(kind: str) -> None:
    """Inside a body a plain value would be written once, while the job is traced: surely not what was meant."""
    trace = current()
    if trace is not None:
        raise ArgumentError(
            f"flow.summary.{kind} inside job {trace.graph.job!r} has no blob to wait for, and the body runs only once; "
            "call it outside the job"
        )


def _whole(what: str, step: Any) -> int | None:
    if step is None:
        return None
    number = np.asarray(step)
    if number.size != 1 or number.dtype.kind not in "iu":
        raise ArgumentError(f"{what}: a step is one whole number, got {step!r}")
    return int(number.item())


def _string(value: Any) -> str:
    """A string, or the bytes of one in an array; bytes after a zero are filling."""
    if isinstance(value, str):
        return value
    array = np.asarray(value)
    if array.dtype.kind in "US" and array.ndim == 0:
        return str(array.item()) if array.dtype.kind == "U" else array.item().decode()
    if array.dtype.itemsize != 1 or array.dtype.kind not in "iu":
        raise ArgumentError(f"a tag or text is a string or an int8 array of its bytes, got {value!r}")
    return array.astype(np.uint8).tobytes().split(b"\0", 1)[0].decode()
