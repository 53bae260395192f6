"""Declarations of inputs under their earlier path."""

from oneflow.typing.definitions import FixedTensorDef, MirroredTensorDef, MirroredTensorListDef, input_blob_def

__all__ = ["FixedTensorDef", "MirroredTensorDef", "MirroredTensorListDef", "input_blob_def"]
