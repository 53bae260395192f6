"""``flow.regularizers`` under its earlier path."""

from oneflow.regularizers import *  # noqa: F403
