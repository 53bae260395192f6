"""What a node of a program is to the user: an op and its line, the backward of one, an update, or a change of layout."""

from __future__ import annotations

from torch import fx


def what_of(node: fx.Node) -> str:
    """How errors name a node of a program."""
    source = node.meta.get("node", node)
    origin = source.meta.get("origin")
    if "what" in node.meta or origin is None:
        return node.meta.get("what") or (
            f"the boxing of {node.meta['boxed'].name}" if "boxed" in node.meta else f"the backward pass ({node.target})"
        )
    part = "the backward of " if source.meta.get("part") == "backward" else ""
    return f"{part}op {origin.meta['name']!r} ({origin.target}) from {origin.meta['line']}"
