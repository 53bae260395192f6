"""``flow.math`` under its earlier path."""

from oneflow.math import *  # noqa: F403
