"""``flow.nn`` under its earlier path."""

from oneflow.nn import *  # noqa: F403
