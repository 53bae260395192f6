"""In which module the user's code is while a graph is built."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from oneflow.engine.capture.module_joint import Where
from oneflow.engine.core.placement import Placement
from oneflow.engine.graph.proxy import GraphModule


class Whereabouts:
    """Follows the calls of a graph's modules while it is entered. ``settings`` tells whose activations are not kept,
    ``placements`` where modules run, by their ids."""

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        name: str,
        settings: Mapping[int, GraphModule],
        placements: Mapping[int, Placement],
    ) -> None:
        self._placements = placements
        self._paths = {
            id(m): path for prefix, module in modules.items() for path, m in module.named_modules(prefix=prefix)
        }
        self._settings = settings
        self._stack = [Where(name, "Graph")]
        self._hooks: list[Any] = []
        self._regions = 0

    def here(self) -> Where:
        """The innermost module of the graph whose forward runs; the graph itself outside them."""
        return self._stack[-1]

    def __enter__(self) -> Whereabouts:
        self._hooks = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ]
        return self

    def __exit__(self, *exception: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _enter(self, module: nn.Module, inputs: Any) -> None:
        region = self._stack[-1].region
        settings = self._settings.get(id(module))
        if region is None and settings is not None and settings.activation_checkpointing:
            self._regions += 1
            region = self._regions
        place = self._placements.get(id(module), self._stack[-1].placement)
        self._stack.append(
            Where(self._paths.get(id(module), self._stack[-1].path), type(module).__name__, region, place)
        )

    def _leave(self, module: nn.Module, inputs: Any, results: Any) -> None:
        self._stack.pop()
