"""Counters of graphs and states of optimizers, as they are saved and as ``load_state_dict`` was given them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from oneflow.engine.core.errors import GraphError
from oneflow.engine.global_tensor.placement import placement
from oneflow.engine.global_tensor.sbp import public
from oneflow.engine.global_tensor.spec import fresh, without_sums
from oneflow.engine.global_tensor.tensor import GlobalTensor
from oneflow.engine.graph.counters import LOSS_SCALE, TRAIN_STEP
from oneflow.engine.graph.optimizers import Added
from oneflow.engine.graph.variables import variables_of
from oneflow.engine.sharding.mesh import whole_on
from oneflow.optim.optimizer import first_state


def saved_counters(modules: Mapping[str, nn.Module], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What a graph keeps, as it is saved: of one whose parameters are global tensors counters are too, whole on every
    rank, so that all of its state can be saved by one rank."""
    if not any(isinstance(tensor, GlobalTensor) for tensor in variables_of(modules).values()):
        return dict(own)
    everywhere = whole_on(placement.all("cpu")._mesh)
    return {
        name: value
        if isinstance(value, GlobalTensor)
        else GlobalTensor(value.clone(), fresh(value.shape, value.dtype, everywhere, value.device))
        for name, value in own.items()
    }


def laid_as(kept: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Loaded tensors on the placements of those that they are copied into; such as those that one rank has read. All
    ranks come here."""
    if not any(isinstance(value, GlobalTensor) for value in given.values()):
        return given
    return {name: _brought(value, kept.get(name)) for name, value in given.items()}


def _brought(value: Any, kept: Any) -> Any:
    from oneflow.engine.global_tensor.convert import relaid

    if (
        not (isinstance(value, GlobalTensor) and isinstance(kept, GlobalTensor))
        or value._spec.layout.mesh == kept._spec.layout.mesh
    ):
        return value
    place = placement.of(kept._spec.device.type, kept._spec.layout.mesh)
    return relaid(value, place, list(map(public, without_sums(kept._spec.sbp))), None)


def counter_in(given: Mapping[str, Tensor], name: str) -> Tensor | None:
    """The saved counter of a name. That of a loss scale may be another graph's: with OneFlow its name has the number of
    the graph."""
    if name in given or not name.startswith(LOSS_SCALE):
        return _local(given.get(name))
    ending = name[name.rindex("-") :]
    alike = [value for other, value in given.items() if other.startswith(LOSS_SCALE) and other.endswith(ending)]
    return _local(alike[0]) if len(alike) == 1 else None


def _local(counter: Tensor | None) -> Tensor | None:
    return torch.from_numpy(counter.numpy()) if isinstance(counter, GlobalTensor) else counter


def load_states(modules: Mapping[str, nn.Module], every: Sequence[Added], given: Mapping[str, Tensor]) -> None:
    """Copies loaded states into those that the optimizers keep of the modules' parameters."""
    names = {id(tensor): name for name, tensor in variables_of(modules).items()}
    for added in every:
        counter = given.get(
            f"System-Train-Updates-{type(added.optimizer).__name__}", given.get(TRAIN_STEP)
        )  # OneFlow saves the steps alone
        if counter is not None:
            added.optimizer.step_count = int(counter)
        for group in added.optimizer.param_groups:
            row, numbers = added.optimizer.update_of(group)
            for p in group["params"]:
                for state in row.states:
                    loaded = given.get(f"{names.get(id(p))}-{state.suffix}")
                    if loaded is not None:
                        kept = added.optimizer.state[p].setdefault(state.suffix, first_state(p, state, numbers))
                        _copy(kept, loaded, f"{names[id(p)]}-{state.suffix}")


def _copy(kept: Tensor, loaded: Tensor, name: str) -> None:
    if kept.shape != loaded.shape:
        raise GraphError(
            f"the loaded state {name!r} has the shape {tuple(loaded.shape)}, its parameter's is {tuple(kept.shape)}"
        )
    with torch.no_grad():
        kept.copy_(_brought(loaded, kept))
