"""Nested lists, tuples and dicts: what jobs take and return, and the arguments of ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    """The same structure with ``function`` of every leaf; whatever is no list, tuple or dict is a leaf."""
    if isinstance(tree, dict):
        return {key: tree_map(function, value) for key, value in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(tree_map(function, value) for value in tree))
    if isinstance(tree, tuple):
        return tuple(tree_map(function, value) for value in tree)
    if isinstance(tree, list):
        return [tree_map(function, value) for value in tree]
    return function(tree)


def tree_leaves(tree: Any) -> list[Any]:
    """All leaves, in the order ``tree_map`` meets them."""
    leaves: list[Any] = []
    tree_map(leaves.append, tree)
    return leaves
