"""States of optimizers that a graph was given by ``load_state_dict``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from oneflow.core.errors import GraphError
from oneflow.graph.counters import LOSS_SCALE, TRAIN_STEP
from oneflow.graph.optimizers import Added
from oneflow.graph.stand_in import variables_of
from oneflow.optim.optimizer import first_state


def counter_in(given: Mapping[str, Tensor], name: str) -> Tensor | None:
    """The saved counter of a name. That of a loss scale may be another graph's: with OneFlow its name has the number of the graph."""
    if name in given or not name.startswith(LOSS_SCALE):
        return given.get(name)
    ending = name[name.rindex("-") :]
    alike = [value for other, value in given.items() if other.startswith(LOSS_SCALE) and other.endswith(ending)]
    return alike[0] if len(alike) == 1 else None


def load_states(modules: Mapping[str, nn.Module], every: Sequence[Added], given: Mapping[str, Tensor]) -> None:
    """Copies loaded states into those that the optimizers keep of the modules' parameters."""
    names = {id(tensor): name for name, tensor in variables_of(modules).items()}
    for added in every:
        counter = given.get(f"System-Train-Updates-{type(added.optimizer).__name__}", given.get(TRAIN_STEP))  # OneFlow saves the steps alone
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
        raise GraphError(f"the loaded state {name!r} has the shape {tuple(loaded.shape)}, its parameter's is {tuple(kept.shape)}")
    kept.copy_(loaded)
