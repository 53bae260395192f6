"""``get_variable``: persistent tensors that jobs share by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from oneflow.compat.spellings import spelled
from oneflow.engine.core.dtype import as_dtype
from oneflow.engine.core.errors import ArgumentError, DTypeError, JobError, NameError_, UnsupportedError, user_line
from oneflow.engine.core.number import flag, seed, wholes
from oneflow.engine.core.placement import Placement
from oneflow.engine.core.sbp import BROADCAST, Sbp, parse_sbp
from oneflow.engine.core.spec import TensorSpec
from oneflow.engine.core.variable import VariableDecl
from oneflow.engine.ir.blob import Blob
from oneflow.engine.ir.trace import Trace, require_trace
from oneflow.regularizers import Regularizer


@spelled("get_variable")
def get_variable(
    name: str,
    shape: Sequence[int] | None = None,
    dtype: torch.dtype | None = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool | None = None,
    model_name: str | None = None,
    random_seed: int | None = None,
    parallel_distribution: Sequence[str] | None = None,
    distribute: Sbp | None = None,
    reuse: bool = True,
) -> Blob:
    """The variable ``name`` of the session, made on first use.

    The full name is the open namespaces and ``name`` joined by "-". The same full name is the same storage in every
    job, so shape and dtype must agree. ``shape`` may be left out where this job has the variable already. ``dtype``
    defaults to the job's default data type, ``initializer`` to the job's default initializer. ``model_name="bias"``
    selects the secondary learning rate. Integers are not trained, whatever ``trainable`` says. ``reuse=False`` refuses
    a name that this job has already. ``distribute`` says how it lies over the devices of its placement (whole on each
    by default); ``parallel_distribution``, such as ("B", "S(0)"), says so for each axis.
    """
    trace = require_trace("flow.get_variable")
    full = trace.full_name(_name(name))
    have = trace.graph.decls.get(full)
    if have is not None and not reuse:
        raise NameError_(f"variable {full!r} exists in job {trace.graph.job!r} already and reuse=False was given")
    if have is not None and shape is None:
        return Blob(trace.graph.variables[full])
    kind = as_dtype(dtype) if dtype is not None else trace.settings.default_data_type
    decl = VariableDecl(
        name=full,
        spec=TensorSpec(_shape(full, shape), kind),
        initializer=_initializer(trace, full, initializer, have),
        regularizer=_regularizer(full, regularizer),
        trainable=kind.is_floating_point and (trainable is None or flag("trainable", trainable)),
        model_name=model_name or "weight",
        seed=None if random_seed is None else seed(random_seed),
        distribute=_distribute(trace, full, distribute, parallel_distribution, len(_shape(full, shape))),
        line=user_line(),
    )
    if kind.numpy is None:
        raise UnsupportedError(
            f"variable {full!r} cannot be {kind.name}, a checkpoint does not hold it; cast where it is used"
        )
    return Blob(trace.variable(decl))


def _name(name: Any) -> str:
    """A name that can also be a folder of a checkpoint."""
    if not isinstance(name, str) or not name or "/" in name or "\0" in name or name in (".", "..", "snapshot_done"):
        raise ArgumentError(f"a variable's name is a string without '/' that can name a folder, got {name!r}")
    return name


def _shape(name: str, shape: Sequence[int] | None) -> tuple[int, ...]:
    found = wholes(shape)
    if found is None or not all(n > 0 for n in found):
        raise ArgumentError(f"variable {name!r} needs a shape, a list or tuple of ints > 0; got {shape!r}")
    return found


def _regularizer(name: str, regularizer: Any) -> Regularizer | None:
    if regularizer is not None and not isinstance(regularizer, Regularizer):
        raise ArgumentError(
            f"{regularizer!r} is not a regularizer (variable {name!r}); use one of flow.regularizers, such as l2(0.01)"
        )
    return regularizer


def _distribute(trace: Trace, name: str, distribute: Any, per_axis: Any, rank: int) -> tuple[Sbp, ...]:
    """One layout per axis of the placement in force; () for a variable that is whole on every device."""
    if distribute is not None and not isinstance(distribute, Sbp):
        raise DTypeError(f"distribute is flow.distribute.split/broadcast/auto, got {distribute!r} (variable {name!r})")
    if distribute is not None and per_axis is not None:
        raise ArgumentError(f"variable {name!r}: give distribute or parallel_distribution, not both")
    placement = trace.placements[-1]
    layouts = (
        (distribute,) * len(placement.axes)
        if distribute is not None
        else distribution("parallel_distribution", per_axis, placement)
    )
    for layout in layouts:
        if layout.kind == "P" or (layout.dim is not None and layout.dim >= rank):
            raise ArgumentError(
                f"variable {name!r} of {rank} dims cannot lie as {layout}; use split of one of its dims, broadcast or "
                f"auto"
            )
    return layouts if any(layout is not BROADCAST for layout in layouts) else ()


def distribution(what: str, value: Any, placement: Placement) -> tuple[Sbp, ...]:
    """Layouts from their texts, such as ("S(0)", "B"): one for each axis of a placement; () for None and on one
    device."""
    if value is None:
        return ()
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ArgumentError(f"{what} is a list such as ['S(0)', 'B'], got {value!r}")
    layouts = tuple(parse_sbp(text, f"an entry of {what}") for text in value)
    if placement.size == 1:
        return ()
    if len(layouts) != len(placement.axes):
        raise ArgumentError(
            f"{what} has {len(layouts)} layouts, the placement {placement} has axes {placement.axes}; give one for each"
        )
    return layouts


def _initializer(trace: Trace, name: str, initializer: Any, have: VariableDecl | None) -> Any:
    if initializer is None:
        initializer = have.initializer if have is not None else trace.settings.default_initializer
    if initializer is None:
        raise JobError(
            f"variable {name!r} has no initializer; give one, such as initializer=flow.zeros_initializer(), "
            "or set a default with function_config().default_initializer_conf"
        )
    if not hasattr(initializer, "draw"):
        raise ArgumentError(f"{initializer!r} is not an initializer (variable {name!r}); use one of flow.*_initializer")
    return initializer
