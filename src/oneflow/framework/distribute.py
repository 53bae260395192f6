"""``flow.distribute`` under its path of 2021."""

from oneflow.distribute import (
    assert_is_valid_distribute,
    auto,
    broadcast,
    consistent_strategy,
    consistent_strategy_enabled,
    mirrored_strategy,
    mirrored_strategy_enabled,
    split,
)  # fmt: skip

__all__ = [
    "assert_is_valid_distribute", "auto", "broadcast", "consistent_strategy", "consistent_strategy_enabled", "mirrored_strategy",
    "mirrored_strategy_enabled", "split",
]  # fmt: skip
