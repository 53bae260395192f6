"""``flow.typing`` under its earlier path."""

from oneflow.typing import *  # noqa: F403
