"""The tracer behind all three front ends: jobs (``joint.py``), modules (``module_joint.py``), forward passes
(``forward_graph.py``).

A function runs once on fake tensors, which have shapes but no data, and becomes a graph of aten ops. The front end
names the current origin with ``enter``; every node traced from then on gets it, nodes of the backward pass included.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx, track_tensor_tree
from torch.utils._python_dispatch import _disable_current_modes

from oneflow.engine.capture.joint import Like

Origin = TypeVar("Origin")

NEEDS_VALUES = (DataDependentOutputException, DynamicOutputShapeException)
"""What torch raises where a traced function needs the values of a tensor, or a shape that depends on them."""


class Tracer(Generic[Origin]):
    """Traces one function. ``unknown`` is the origin of nodes traced before the first ``enter``."""

    def __init__(self, unknown: Origin) -> None:
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._starts: list[tuple[int, Origin]] = [(0, unknown)]
        self._followed: set[Any] = set()

    def fake(self, tensor: Tensor | Like) -> Tensor:
        """A tensor without data that is like the given one."""
        if isinstance(tensor, Tensor):
            return self._mode.from_tensor(tensor)
        with self._mode:
            return tensor.empty()

    def trace(
        self,
        function: Callable[..., list[Tensor]],
        arguments: Sequence[Tensor],
        decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    ) -> fx.GraphModule:
        """The aten graph of ``function(*arguments)``; the arguments are fake."""
        with self._mode, quiet_fake_tensors():
            return make_fx(function, decomposition_table=decompositions)(*arguments)

    def enter(self, origin: Origin) -> None:
        """Gives ``origin`` to the nodes that are traced from now on."""
        _start(self._starts, origin)

    def follow_backward(self, values: Iterable[Any], origin: Origin) -> None:
        """Gives ``origin`` to the backward pass of what produced ``values`` and was not followed yet."""
        starts = self._starts  # not self: results keep autograd's graph, whose hooks the garbage collector cannot see
        pending = [value.grad_fn for value in values if isinstance(value, Tensor) and value.grad_fn is not None]
        while pending:
            function = pending.pop()
            if function not in self._followed:
                self._followed.add(function)
                function.register_prehook(lambda gradients: _start(starts, origin))
                pending.extend(following for following, _ in function.next_functions if following is not None)

    def origins(self, graph: fx.Graph) -> Iterator[tuple[fx.Node, Origin]]:
        """Each node of the traced graph with its origin."""
        nodes = list(graph.nodes)
        ends = [start for start, _ in self._starts[1:]] + [len(nodes)]
        for (start, origin), end in zip(self._starts, ends):
            for node in nodes[start:end]:
                yield node, origin

    def add_placeholder(self, name: str, tensor: Tensor) -> tuple[Tensor, fx.Node]:
        """Another argument of the function that is being traced: its fake tensor and its node."""
        proxies = get_proxy_mode()
        assert proxies is not None
        with untraced():
            value = self._mode.from_tensor(tensor.detach())
            proxy = proxies.tracer.create_proxy("placeholder", name, (), {})
            track_tensor_tree(value, proxy, constant=None, tracer=proxies.tracer)
        return value, proxy.node


def _start(starts: list[tuple[int, Origin]], origin: Origin) -> None:
    mode = get_proxy_mode()
    if mode is not None:  # None where torch computes by itself, such as on constants
        starts.append((len(mode.tracer.graph.nodes), origin))


def traced_nodes() -> int:
    """The number of nodes of the trace under way so far."""
    mode = get_proxy_mode()
    assert mode is not None, "nothing is being traced"
    return len(mode.tracer.graph.nodes)


@contextmanager
def untraced() -> Iterator[None]:
    """Computes with real data in the midst of a trace."""
    with (
        torch._C.DisableTorchFunction(),
        _disable_current_modes(),
        torch.no_grad(),
        torch.autocast("cpu", enabled=False),
    ):
        yield


@contextmanager
def quiet_fake_tensors() -> Iterator[None]:
    """Keeps torch from logging the errors that it raises."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def unaliased(outputs: list[Tensor], inputs: list[Tensor]) -> list[Tensor]:
    """Outputs that share no memory with an input (a variable is updated in place) or with each other."""
    taken = {tensor.untyped_storage()._cdata for tensor in inputs}
    fresh = []
    for output in outputs:
        output = output.detach()
        if output.untyped_storage()._cdata in taken:
            output = output.clone()
        taken.add(output.untyped_storage()._cdata)
        fresh.append(output)
    return fresh
