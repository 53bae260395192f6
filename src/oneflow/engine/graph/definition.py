"""What a graph is before it is compiled: all that tracing and compiling ask of it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from inspect import getdoc
from typing import TYPE_CHECKING, Any
from weakref import ref

import torch
from torch import Tensor, nn

from oneflow.engine.global_tensor.placement import placement
from oneflow.engine.graph.config import GraphConfig
from oneflow.engine.graph.proxy import GraphModule
from oneflow.optimizer.loss_scale import LossScale

if TYPE_CHECKING:
    from oneflow.engine.graph.optimizers import Added


_OWN = ("config", "modules", "added", "step", "loss_scale", "scale_state")


@dataclass
class Definition:
    """A graph as its user defined it, apart from the attributes of the user's own object, its ``owner``, which may have
    any name. ``step`` counts its steps; ``scale_state`` is its loss scale, and the good steps since that changed, where
    it is dynamic. ``entry`` is the first stage of a pipeline, once that is known. ``is_spread``: auto parallel has made
    global tensors of its parameters; ``has_laid``: it has chosen their layouts."""

    name: str
    owner: ref[Any]
    config: GraphConfig = field(default_factory=GraphConfig)
    modules: OrderedDict[str, nn.Module] = field(default_factory=OrderedDict)
    settings: dict[int, GraphModule] = field(default_factory=dict)
    added: list[Added] = field(default_factory=list)
    step: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.int64, device="cpu"))
    loss_scale: LossScale = LossScale()
    scale_state: tuple[Tensor, Tensor] | None = None
    is_spread: bool = False
    has_laid: bool = False
    auto: str = ""
    """What auto parallel has chosen, in words."""
    entry: placement | None = None

    @property
    def kind(self) -> str:
        """The name of the user's class."""
        return type(self._owner).__name__

    @property
    def has_stages(self) -> bool:
        """Whether modules were made stages of a pipeline."""
        return any(one.is_stage for one in self.settings.values())

    @property
    def doc(self) -> str | None:
        """What the user says of the class."""
        return getdoc(type(self._owner))

    @property
    def build(self) -> Callable[..., Any]:
        """The step, as the user wrote it."""
        return self._owner.build

    @property
    def attributes(self) -> dict[str, Any]:
        """What the user's object holds."""
        return vars(self._owner)

    @property
    def _owner(self) -> Any:
        owner = self.owner()
        assert owner is not None, "the graph is gone"
        return owner

    def copied(self, name: str, owner: Any, memo: dict[int, Any]) -> Definition:
        """The same definition of another object, with modules, optimizers and counters of its own; its settings can be
        changed."""
        made = replace(
            self, name=name, owner=ref(owner), settings={}, **{key: deepcopy(getattr(self, key), memo) for key in _OWN}
        )
        made.config.is_fixed = False
        for one in self.settings.values():
            other = deepcopy(one, memo)
            made.settings[id(other.module)] = other
        return made

    def scale_losses(self, by: LossScale) -> None:
        """Has losses multiplied before the backward pass."""
        self.loss_scale = by
        self.scale_state = (
            (torch.full((1,), by.initial, device="cpu"), torch.zeros(1, dtype=torch.int64, device="cpu"))
            if by.is_dynamic
            else None
        )
