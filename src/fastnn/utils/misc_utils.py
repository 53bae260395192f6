"""Restoring variables from a checkpoint, and tables of variables."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import oneflow as flow
from fastnn.errors import FlagError
from fastnn.models.model_factory import NetworkFn, slim_name
from flowvision.models import slim

_log = logging.getLogger("fastnn")

Assignment = Callable[..., tuple[Mapping[str, str], Mapping[str, int]]]
_STATISTICS = ("moving_mean", "moving_variance", "running_mean", "running_var")


def get_assigment_map_from_checkpoint(
    tvars: Iterable[Any], init_checkpoint: str, scope_map: tuple[str, str] | None = None
) -> tuple[Mapping[str, str], Mapping[str, int]]:
    """Which variable of a checkpoint each variable of the network starts from: ``{name there: name here}``, and the
    names here with 1 each.

    ``tvars`` are variables' names, or pairs of name and tensor. Names are equal, or become equal when ``scope_map=(old,
    new)`` writes what begins with ``old`` in a name of the checkpoint anew. A program may give a function of its own in
    its place.
    """
    return _assigned(tvars, checkpoint_values(init_checkpoint), scope_map)


def _assigned(
    tvars: Iterable[Any], there: Iterable[str], scope_map: tuple[str, str] | None = None
) -> tuple[Mapping[str, str], Mapping[str, int]]:
    own = {(var if isinstance(var, str) else var[0]).removesuffix(":0") for var in tvars}
    found: OrderedDict[str, str] = OrderedDict()
    for name in there:
        renamed = name
        if name not in own and scope_map is not None and scope_map[0] in name:
            renamed = scope_map[1] + name[name.index(scope_map[0]) + len(scope_map[0]) :]
        if renamed in own:
            found[name] = renamed
    return found, {name: 1 for name in found.values()}


def checkpoint_values(path: str) -> dict[str, np.ndarray]:
    """The variables of a checkpoint by name: of slim's files, or of a folder that this program has saved."""
    folder = Path(path)
    if (folder / "model").is_dir():
        state = flow.load(folder / "model")
        return {slim_name(name): value.detach().cpu().numpy() for name, value in state.items()}
    return slim.load_slim_checkpoint(path)


def restore(
    network_fn: NetworkFn,
    path: str,
    exclude: Iterable[str] = (),
    with_statistics: bool = True,
    assignment: Assignment = get_assigment_map_from_checkpoint,
    require_all: bool = False,
) -> list[str]:
    """Gives the variables of a network their values in a checkpoint, and tells of each what became of it. Gives the
    names that were restored.

    Variables whose shape is another there, such as a classifier of other classes, keep their first values, and so do
    those of the scopes ``exclude``. A checkpoint that has none of the variables is an error; with ``require_all`` one
    that lacks any, but for auxiliary classifiers.
    """
    values = checkpoint_values(path)
    is_slim = network_fn.is_slim and not (Path(path) / "model").is_dir()
    own = network_fn.slim_module.slim_variables() if is_slim else _own_values(network_fn)
    wanted = [name for name in own if with_statistics or name.rsplit("/", 1)[-1] not in _STATISTICS]
    excluded = tuple(scope.strip().rstrip("/") for scope in exclude if scope.strip())
    named = [name for name in wanted if not _is_below(name, excluded)]
    # Only a function of the program's own reads the checkpoint once more.
    mapping, _ = (
        _assigned(named, values) if assignment is get_assigment_map_from_checkpoint else assignment(named, path)
    )
    taken = {here: values[there] for there, here in mapping.items() if there in values and here in own}
    fitting = {name: value for name, value in taken.items() if value.shape == own[name].shape}
    _report(own, taken, fitting, path)
    if not fitting:
        raise FlagError(
            f"the checkpoint {path} has no variable of {network_fn.name}; it has {', '.join(list(values)[:3])} ..."
        )
    if require_all:
        _require_all(network_fn.name, own, taken, fitting, path)
    if is_slim:
        network_fn.slim_module.load_slim_variables({**own, **fitting})
    else:
        _copy(network_fn, fitting)
    return list(fitting)


def _require_all(
    network: str,
    own: Mapping[str, np.ndarray],
    taken: Mapping[str, np.ndarray],
    fitting: Mapping[str, np.ndarray],
    path: str,
) -> None:
    lacking = [
        name
        for name in own
        if name not in fitting and "aux" not in name.lower() and not name.endswith("num_batches_tracked")
    ]
    if not lacking:
        return
    first = lacking[0]
    if first in taken:
        there, here = list(taken[first].shape), list(own[first].shape)
        raise FlagError(
            f"the checkpoint {path} has {first} of shape {there}, {network} has {here}; --num_classes (or "
            f"--train_image_size) is another than in training"
        )
    raise FlagError(
        f"the checkpoint {path} lacks {len(lacking)} of {len(own)} variables of {network}, such as {first}; "
        f"--model_name is another than in training"
    )


def _own_values(network_fn: NetworkFn) -> dict[str, np.ndarray]:
    return {slim_name(name): value.detach().cpu().numpy() for name, value in network_fn.module.state_dict().items()}


def _copy(network_fn: NetworkFn, values: Mapping[str, np.ndarray]) -> None:
    with torch.no_grad():
        for name, tensor in network_fn.module.state_dict().items():
            if slim_name(name) in values:
                tensor.copy_(torch.from_numpy(np.array(values[slim_name(name)])))


def _is_below(name: str, scopes: tuple[str, ...]) -> bool:
    return any(name == scope or name.startswith(scope + "/") for scope in scopes)


def _report(
    own: Mapping[str, np.ndarray], taken: Mapping[str, np.ndarray], fitting: Mapping[str, np.ndarray], path: str
) -> None:
    _log.info("variables of the network, and those that come from %s:", path)
    for name, value in own.items():
        said = ", *INIT_FROM_CKPT*" if name in fitting else ""
        if name in taken and name not in fitting:
            said = f", left as it is: {list(taken[name].shape)} in the checkpoint"
        _log.info("  name = %s, shape = %s%s", name, tuple(value.shape), said)
    _log.info("%d of %d variables restored", len(fitting), len(own))


def trained_variables(network_fn: NetworkFn, scopes: str | None) -> dict[str, Tensor]:
    """The variables that ``--trainable_scopes`` names, all without it. The others are frozen."""
    found = network_fn.variables()
    if not scopes:
        return found
    wanted = tuple(scope.strip().rstrip("/") for scope in scopes.split(",") if scope.strip())
    chosen = {name: p for name, p in found.items() if _is_below(name, wanted)}
    if not chosen:
        raise FlagError(
            f"--trainable_scopes={scopes}: no variable begins so; there are {', '.join(list(found)[:3])} ..."
        )
    for name, p in found.items():
        p.requires_grad_(name in chosen)
    return chosen


def print_variables(title: str, variables: Mapping[str, Tensor]) -> None:
    """A line per variable with its name, shape, device and number of elements, and their sum."""
    _log.info("--------------- %s ---------------", title)
    for name, value in variables.items():
        _log.info(
            "  %s %s %s %d",
            name,
            tuple(value.shape),
            value.placement.type if value.is_global else value.device,  # type: ignore[attr-defined]
            value.numel(),
        )
    _log.info("total: %d", sum(value.numel() for value in variables.values()))
