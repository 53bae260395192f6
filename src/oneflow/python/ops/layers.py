"""``flow.layers`` under its earlier path."""

from oneflow.layers import *  # noqa: F403
