"""The type that the ``meta`` file of a saved variable had, for annotations."""

from __future__ import annotations

from oneflow.engine.core.spec import TensorSpec as VariableMetaInfo

__all__ = ["VariableMetaInfo"]
