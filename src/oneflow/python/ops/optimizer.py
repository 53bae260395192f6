"""``flow.optimizer`` under its earlier path."""

from oneflow.optimizer import *  # noqa: F403
