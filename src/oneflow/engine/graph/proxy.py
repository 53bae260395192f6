"""Modules as a graph shows them: the module itself in all but name, and its settings in the graph behind
``.to(GraphModule)``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.number import flag, whole
from oneflow.engine.global_tensor.placement import placement as Place

_MODULES = ("modules", "children")
_NAMED = ("named_modules", "named_children")
_ONE = ("get_submodule",)


class GraphModule:
    """The settings of one module in one graph."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._recomputes = False
        self.stage_id: int | None = None
        self.stage_placement: Any = None

    @property
    def module(self) -> nn.Module:
        """The module itself."""
        return self._module

    @property
    def activation_checkpointing(self) -> bool:
        """Whether what the module makes in the forward pass is made again in the backward pass, in place of being
        kept."""
        return self._recomputes

    @activation_checkpointing.setter
    def activation_checkpointing(self, mode: bool) -> None:
        self._recomputes = flag("activation_checkpointing", mode)

    def set_stage(self, stage_id: int | None = None, placement: Any = None) -> None:
        """Has the module run on ``placement``, as stage ``stage_id`` of a pipeline; without one on the placement of its
        parameters, and if these are local, on an equal part of the ranks by the numbers of the stages. What comes to it
        from elsewhere is moved there. Where a graph accumulates gradients, its stages run several micro-batches at a
        time."""
        if stage_id is not None:
            self.stage_id = whole("stage_id", stage_id, 0)
        if placement is not None and not isinstance(placement, Place):
            raise ArgumentError(f"set_stage takes a flow.placement, got {placement!r}")
        self.stage_placement = placement

    @property
    def is_stage(self) -> bool:
        """Whether the module is a stage of a pipeline."""
        return self.stage_id is not None or self.stage_placement is not None

    def to(self, kind: Any) -> Any:
        """The module itself for ``nn.Module``."""
        return self._module if kind is nn.Module else self


class GraphTensor:
    """The settings of a tensor in a graph: there are none but its module's. The name is what programs give to
    ``.to``."""


class ProxyModule:
    """A module of a graph. Attributes, calls and items are the module's own; modules among them are proxies again.

    ``.to(nn.Module)`` and ``.origin`` give the module, ``.to(GraphModule)`` its settings in the graph; any other
    ``.to`` is the module's.
    """

    def __init__(self, module: nn.Module, settings: dict[int, GraphModule]) -> None:
        object.__setattr__(self, "_origin", module)
        object.__setattr__(self, "_settings", settings)

    @property
    def origin(self) -> nn.Module:
        """The module itself."""
        return self._origin

    @property
    def config(self) -> GraphModule:
        """The module's settings in the graph, as OneFlow 0.8 spelled it."""
        return self._settings.setdefault(id(self._origin), GraphModule(self._origin))

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """The module, its settings in the graph, or what ``Module.to`` gives."""
        if args and args[0] is nn.Module:
            return self._origin
        if args and args[0] is GraphModule:
            return self.config
        if args and args[0] is GraphTensor:
            raise ArgumentError("a module has settings as a GraphModule; GraphTensor is for tensors")
        self._origin.to(*args, **kwargs)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._origin(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._origin, name)
        if name in _MODULES:
            return lambda *args, **kwargs: map(self._shown, found(*args, **kwargs))
        if name in _NAMED:
            return lambda *args, **kwargs: ((path, self._shown(module)) for path, module in found(*args, **kwargs))
        if name in _ONE:
            return lambda *args, **kwargs: self._shown(found(*args, **kwargs))
        return self._shown(found)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._origin, name, origin_of(value))

    def __getitem__(self, index: Any) -> Any:
        return self._shown(self._origin[index])

    def __iter__(self) -> Iterator[Any]:
        return map(self._shown, iter(self._origin))

    def __len__(self) -> int:
        return len(self._origin)

    def __contains__(self, item: Any) -> bool:
        return origin_of(item) in self._origin

    def __repr__(self) -> str:
        return repr(self._origin)

    def _shown(self, value: Any) -> Any:
        return ProxyModule(value, self._settings) if isinstance(value, nn.Module) else value


def origin_of(value: Any) -> Any:
    """The module of a proxy; anything else is what it is."""
    return value.origin if isinstance(value, ProxyModule) else value
