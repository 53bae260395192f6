"""``flow.initializer`` under its earlier path."""

from oneflow.initializer import *  # noqa: F403
