"""The functions of ``flow`` that change shapes and choose elements, under their earlier path."""

from oneflow.array import *  # noqa: F403
