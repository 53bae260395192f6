"""Another path of ``oneflow.errors``."""

from oneflow.errors import *  # noqa: F403
