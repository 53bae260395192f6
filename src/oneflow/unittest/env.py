"""What a test run is told by environment variables."""

from __future__ import annotations

import os

from oneflow.engine.core.errors import ArgumentError

__all__ = [
    "device_num", "eager_execution_enabled", "has_node_list", "has_world_size", "node_list", "node_size", "typing_check_enabled", "world_size",
]  # fmt: skip


def eager_execution_enabled() -> bool:
    """Whether ``ONEFLOW_TEST_ENABLE_EAGER`` is 1: job bodies run at every call."""
    return os.getenv("ONEFLOW_TEST_ENABLE_EAGER") == "1"


def typing_check_enabled() -> bool:
    """Whether ``ONEFLOW_TEST_ENABLE_TYPING_CHECK`` is 1. Annotations are always checked, so nothing depends on it."""
    return os.getenv("ONEFLOW_TEST_ENABLE_TYPING_CHECK") == "1"


def device_num() -> int:
    """The devices of each machine that tests ask for: ``ONEFLOW_TEST_DEVICE_NUM``, 1 without it."""
    return _number("ONEFLOW_TEST_DEVICE_NUM")


def has_node_list() -> bool:
    """Whether ``ONEFLOW_TEST_NODE_LIST`` names machines."""
    return bool(os.getenv("ONEFLOW_TEST_NODE_LIST"))


def node_list() -> list[str]:
    """The machines that ``ONEFLOW_TEST_NODE_LIST`` names, between commas."""
    return [name.strip() for name in os.environ.get("ONEFLOW_TEST_NODE_LIST", "").split(",") if name.strip()]


def has_world_size() -> bool:
    """Whether ``ONEFLOW_TEST_WORLD_SIZE`` says how many processes a test has."""
    return bool(os.getenv("ONEFLOW_TEST_WORLD_SIZE"))


def world_size() -> int:
    """What ``ONEFLOW_TEST_WORLD_SIZE`` says."""
    return _number("ONEFLOW_TEST_WORLD_SIZE")


def node_size() -> int:
    """How many machines a test has: as many as are named, or as processes are said, or 1."""
    return len(node_list()) if has_node_list() else world_size() if has_world_size() else 1


def _number(name: str) -> int:
    text = os.getenv(name) or "1"
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentError(f"the environment variable {name} is a number above 0, got {text!r}")
    return int(text)
