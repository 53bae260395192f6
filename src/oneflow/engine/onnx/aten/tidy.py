"""An ONNX graph as plain values, made shorter: every value stays what it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from oneflow.engine.onnx.builder import Node
from oneflow.engine.onnx.parts import OnnxParts


def transposed_in_gemm(parts: OnnxParts) -> OnnxParts:
    """Gemm reads a transposed matrix as it is: a Transpose before it is not needed, as that of every weight of a dense
    layer."""
    turned = {
        n.outputs[0]: n.inputs[0] for n in parts.nodes if n.kind == "Transpose" and n.attributes.get("perm") == [1, 0]
    }

    def read(node: Node) -> Node:
        if node.kind != "Gemm":
            return node
        inputs, attributes = list(node.inputs), dict(node.attributes)
        for i, key in enumerate(("transA", "transB")):
            if inputs[i] in turned:
                inputs[i], attributes[key] = turned[inputs[i]], 1 - attributes.get(key, 0)
        return replace(node, inputs=tuple(inputs), attributes=attributes)

    return replace(parts, nodes=[read(node) for node in parts.nodes])


def only_used(parts: OnnxParts) -> OnnxParts:
    """Without nodes, constants and told shapes that no output depends on, and without copies at the end."""
    nodes = _used(parts)
    nodes, renamed = _named_as_outputs(nodes, parts)
    seen = {name for node in nodes for name in (*node.inputs, *node.outputs)}
    return replace(
        parts,
        nodes=nodes,
        constants={name: value for name, value in parts.constants.items() if name in seen},
        variables=[name for name in parts.variables if name in seen],
        values=[value for value in parts.values if value.name in seen and value.name not in renamed],
    )


def _used(parts: OnnxParts) -> list[Node]:
    wanted = {value.name for value in parts.outputs}
    kept = []
    for node in reversed(parts.nodes):
        if wanted & set(node.outputs):
            kept.append(node)
            wanted.update(node.inputs)
    return kept[::-1]


def _named_as_outputs(nodes: list[Node], parts: OnnxParts) -> tuple[list[Node], dict[str, str]]:
    """The node that makes an output gives it its name at once; what no node makes, or two outputs share, is copied
    under it."""
    outputs = {value.name for value in parts.outputs}
    made = {name for node in nodes for name in node.outputs}
    new: dict[str, str] = {}
    for node in nodes:
        if _is_copy(node, outputs) and node.inputs[0] in made - outputs and node.inputs[0] not in new:
            new[node.inputs[0]] = node.outputs[0]
    rename: Callable[[tuple[str, ...]], tuple[str, ...]] = lambda names: tuple(new.get(name, name) for name in names)  # noqa: E731
    kept = [node for node in nodes if not (_is_copy(node, outputs) and new.get(node.inputs[0]) == node.outputs[0])]
    return [replace(node, inputs=rename(node.inputs), outputs=rename(node.outputs)) for node in kept], new


def _is_copy(node: Node, outputs: set[str]) -> bool:
    return node.kind == "Identity" and node.outputs[0] in outputs and node.name == f"{node.outputs[0]}/result"
