"""``flow.watch`` and ``flow.watch_diff``: values and gradients of blobs, handed out after each step."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from oneflow.compat.spellings import spelled
from oneflow.engine.core.errors import ArgumentError, JobError
from oneflow.engine.ir.blob import Blob
from oneflow.engine.ir.notes import op_note
from oneflow.engine.ir.trace import require_trace
from oneflow.engine.job.result import Rows
from oneflow.typing import ListNumpy, Numpy

Handler = Callable[..., None]


@spelled("watch")
def watch(blob: Blob | Sequence[Blob], handler_or_prompt: Handler | str | None = None) -> None:
    """Calls the handler with the blob's value after every step; a string is printed before the value.

    With a list of blobs the handler gets their values as separate arguments.
    """
    trace = require_trace("flow.watch")
    blobs = list(blob) if isinstance(blob, (list, tuple)) else [blob]
    handlers = _gathering(_handler(handler_or_prompt), len(blobs))
    for one, handler in zip(blobs, handlers):
        node = _node(one)
        count = op_note(node).count
        for part, keep in [(node, handler)] if count is None else zip((node, count), _gathering(_cutting(handler), 2)):
            trace.watch(part, keep, diff=False)


@spelled("watch_diff")
def watch_diff(blob: Blob, handler_or_prompt: Handler | str | None = None) -> None:
    """Calls the handler with the gradient of the summed losses by ``blob``, after every step of a train job.

    The gradient is that of the sum times the loss scale: it is neither divided by the number of loss elements nor
    unscaled, as the optimizer's is. Where nothing differentiates, as of integers, it is 0.
    """
    trace = require_trace("flow.watch_diff")
    if not trace.is_train:
        raise JobError(f"flow.watch_diff: job {trace.graph.job!r} is a predict job and has no gradients")
    node = _node(blob, "flow.watch_diff")
    handler, count = _handler(handler_or_prompt), op_note(node).count
    for part, keep in [(node, handler)] if count is None else zip((node, count), _gathering(_cutting(handler), 2)):
        trace.watch(part, keep, diff=part is node)


def _cutting(handler: Handler) -> Handler:
    return lambda rows, count: handler(Rows(rows, count).cut())


def _node(blob: Any, what: str = "flow.watch") -> Any:
    if not isinstance(blob, Blob):
        raise ArgumentError(f"{what} takes a blob, got {blob!r}")
    return blob.node


def _handler(handler_or_prompt: Handler | str | None) -> Handler:
    if handler_or_prompt is None:
        return lambda *values: print(*values)
    if isinstance(handler_or_prompt, str):
        return lambda *values: print(handler_or_prompt, *values)
    if not callable(handler_or_prompt):
        raise ArgumentError(f"a watch handler is a function, a prompt or None; got {handler_or_prompt!r}")
    return _annotated(handler_or_prompt)


def _annotated(handler: Handler) -> Handler:
    """Converts the values to what the handler's parameter annotation asks for."""
    try:
        hints = [h for name, h in inspect.get_annotations(handler, eval_str=True).items() if name != "return"]
    except (TypeError, NameError):
        hints = []
    if hints and hints[0] is Numpy:
        return lambda *values: handler(*(v.numpy() for v in values))
    if hints and hints[0] is ListNumpy:
        return lambda *values: handler(*(v.numpy_list() for v in values))
    return handler


def _gathering(handler: Handler, count: int) -> list[Handler]:
    """For each of ``count`` blobs a handler that keeps its value; the last one calls ``handler`` with all."""
    if count == 1:
        return [handler]
    values: list[Any] = []

    def keep(value: Any) -> None:
        values.append(value)
        if len(values) == count:
            every = tuple(values)
            values.clear()
            handler(*every)

    return [keep] * count
