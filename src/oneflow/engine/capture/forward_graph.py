"""The forward pass of a function or a module as a graph of aten ops, without autograd and without data."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx
from torch.fx.traceback import preserve_node_meta, set_current_meta
from torch.overrides import TorchFunctionMode

from oneflow.engine.capture.cleanup import writes
from oneflow.engine.capture.joint import Like
from oneflow.engine.capture.tracer import NEEDS_VALUES, Tracer
from oneflow.engine.core.errors import UNKNOWN_LINE, UnsupportedError, is_users_file, user_line

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


@dataclass(frozen=True)
class Captured:
    """A forward graph and what its placeholders and outputs stand for.

    Nodes are aten ops on tensors; ``node.meta["val"]`` is what a node gives, without data. ``meta["stack_trace"]`` and
    ``meta["nn_module_stack"]``, where they are there, tell line and module. ``names`` has a name for each placeholder,
    in order: those in ``constants`` are parameters and buffers under the names of the modules' state dict, the others
    are inputs. ``outputs`` has a name for each tensor that the output node lists; ``attributes`` the tensors of
    ``get_attr`` nodes. ``value_names`` has the names of values that users know by one, such as results of a job's ops.
    """

    graph: fx.Graph
    names: tuple[str, ...]
    constants: Mapping[str, torch.Tensor]
    outputs: tuple[str, ...]
    attributes: Mapping[str, torch.Tensor] = field(default_factory=dict)
    title: str = "graph"
    doc: str = ""
    value_names: Mapping[fx.Node, str] = field(default_factory=dict)

    def placeholders(self) -> dict[str, fx.Node]:
        """The placeholders by name."""
        found = [node for node in self.graph.nodes if node.op == "placeholder"]
        return dict(zip(self.names, found, strict=True))

    def inputs(self) -> list[str]:
        """The names of those that are inputs."""
        return [name for name in self.names if name not in self.constants]

    def output_nodes(self) -> list[fx.Node]:
        returned = next(node for node in reversed(self.graph.nodes) if node.op == "output").args[0]
        return list(returned) if isinstance(returned, (list, tuple)) else [returned]

    def run(self, inputs: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        """The outputs for these inputs, computed by torch op by op."""
        values = [self.constants[name] if name in self.constants else inputs[name] for name in self.names]
        with torch.no_grad():
            return _interpret(self, values)


def forward_graph(
    function: Callable[..., list[torch.Tensor]],
    tensors: Sequence[torch.Tensor],
    modules: Mapping[str, torch.nn.Module] | None = None,
) -> tuple[fx.Graph, dict[str, torch.Tensor]]:
    """The graph of ``function(*tensors)``, with a placeholder for each tensor, and the tensors of its ``get_attr``
    nodes.

    Nothing is computed: the function runs on tensors without data. ``modules`` are those that it calls, by their paths,
    which nodes then know. Nodes of in-place ops stay as they are; ``functional`` takes them out.
    """
    tracer = Tracer(_Place())
    fakes = [tracer.fake(tensor) for tensor in tensors]
    with _forward_only(), _Places(modules or {}, tracer).watched(), _values_needed_at_line():
        module = tracer.trace(function, fakes)
    for node, place in tracer.origins(module.graph):
        place.note(node)
    return module.graph, _attributes(module)


def functional(captured: Captured) -> Captured:
    """The same computation without ops that write into a tensor, save final ``copy_`` into placeholders that the graph
    writes."""
    if not any(writes(node) for node in captured.graph.nodes):
        return captured
    tracer = Tracer(_Place())
    fakes = [tracer.fake(_like(node.meta["val"])) for node in captured.graph.nodes if node.op == "placeholder"]
    with _forward_only(), preserve_node_meta():
        module = tracer.trace(torch.func.functionalize(lambda *values: _interpret(captured, values)), fakes)
    return replace(captured, graph=module.graph, attributes=_attributes(module))


def _like(tensor: torch.Tensor) -> Like:
    return Like(tuple(tensor.shape), tensor.dtype, tensor.device, strides=tensor.stride())


def _interpret(captured: Captured, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Runs the graph node by node. What is traced meanwhile gets the notes of the node. (torch's own interpreter starts
    a thread of tqdm's.)"""
    following = iter(values)
    env: dict[fx.Node, Any] = {}
    for node in captured.graph.nodes:
        if node.op == "placeholder":
            env[node] = next(following)
        elif node.op == "get_attr":
            env[node] = captured.attributes[str(node.target)]
        elif node.op == "call_function":
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), env.__getitem__)
            with set_current_meta(node):
                env[node] = node.target(*args, **kwargs)
    return [env[node] for node in captured.output_nodes()]


def _attributes(module: fx.GraphModule) -> dict[str, torch.Tensor]:
    return {str(node.target): getattr(module, str(node.target)) for node in module.graph.nodes if node.op == "get_attr"}


@contextmanager
def _forward_only() -> Iterator[None]:
    """Without autograd, and without the fused kernel of whole encoder layers that torch takes then: it is one opaque
    op."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@dataclass(frozen=True)
class _Place:
    """The path of the module that runs, and the user's line that calls torch."""

    path: str = ""
    line: str = UNKNOWN_LINE

    def note(self, node: fx.Node) -> None:
        """Writes the place on a node."""
        set_place(node, self.path, self.line)


class _Places(TorchFunctionMode):
    """Tells the tracer which module runs and which of the user's lines calls torch."""

    def __init__(self, modules: Mapping[str, torch.nn.Module], tracer: Tracer[_Place]) -> None:
        super().__init__()
        self._modules = modules
        self._tracer = tracer
        self._running = [""]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._mark(user_line())
        return func(*args, **(kwargs or {}))

    def _mark(self, line: str = UNKNOWN_LINE) -> None:
        self._tracer.enter(_Place(self._running[-1], line))

    def _enter(self, path: str) -> None:
        self._running.append(path)
        self._mark()

    def _leave(self) -> None:
        self._running.pop()
        self._mark()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Follows the calls of the modules and of torch's functions."""
        handles = []
        for path, module in self._modules.items():
            handles.append(module.register_forward_pre_hook(lambda *_, path=path: self._enter(path)))
            handles.append(module.register_forward_hook(lambda *_: self._leave()))
        try:
            with self:
                yield
        finally:
            for handle in handles:
                handle.remove()


@contextmanager
def _values_needed_at_line() -> Iterator[None]:
    """Raises our own error, with the user's line, where the function needs the values of a tensor."""
    try:
        yield
    except NEEDS_VALUES as error:
        raise UnsupportedError(_needs_values(error, str(error.func))) from None
    except RuntimeError as error:
        if "trying to get a value out of" not in str(error):
            raise
        raise UnsupportedError(_needs_values(error, "aten._local_scalar_dense.default")) from None


def _needs_values(error: BaseException, op: str) -> str:
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if is_users_file(frame.filename) and not frame.filename.startswith("<")
    ]
    line = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else UNKNOWN_LINE
    return (
        f"{line}: the forward pass needs the values of a tensor here ({op}: .item(), bool(), int(), a boolean mask as "
        f"index, nonzero ...), "
        "which a graph does not have; write it with torch.where, masked_fill or other ops that keep shapes"
    )


def set_place(node: fx.Node, path: str, line: str, kind: str = "") -> None:
    """Notes the module or op that a node came from, and the user's line, where torch's own tracers do.

    Args:
        node: A node of a forward graph.
        path: The path of a module, or the name of an op of a job; empty if there is none.
        line: ``file:line`` of the user's code.
        kind: The row of an op of a job; empty for a module.
    """
    if path:
        node.meta["nn_module_stack"] = {path: (path, kind)}
    if line != UNKNOWN_LINE:
        name, number = line.rsplit(":", 1)
        node.meta["stack_trace"] = f'File "{name}", line {number}'


def node_line(node: Any) -> str:
    """``file:line`` of the user's code that a node came from."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [f"{name}:{number}" for name, number in frames if is_users_file(name)]
    return own[-1] if own else UNKNOWN_LINE


def node_path(node: Any) -> str:
    """The path of the innermost module, or the name of the job's op, that a node came from; empty if there is none."""
    return _innermost(node)[0]


def node_kind(node: Any) -> str:
    """The row of the job's op that a node came from; empty if it came from none."""
    return _innermost(node)[1]


def describe_node(node: Any) -> str:
    """The op of a node with the user's line, as errors name it: a job's op by row and name, others by aten op."""
    path, kind = _innermost(node)
    line = node_line(node)
    where = f" (in module {path!r})" if path else ""
    what = f"{kind} ({path!r})" if kind else f"{node.target}{where}"
    return what if line == UNKNOWN_LINE else f"{line}: {what}"


def _innermost(node: Any) -> tuple[str, str]:
    """Path and kind of the innermost module or op that a node came from."""
    stack = node.meta.get("nn_module_stack") or {}
    if not stack:
        return "", ""
    path, kind = list(stack.values())[-1]
    return str(path), str(kind)
