"""Dtypes under their earlier path."""

from torch import float16, float32, float64, int8, int32, int64, uint8
from torch import int8 as char

from oneflow.engine.eager.settings import convert_oneflow_dtype_to_numpy_dtype, dtypes

float = float32
double = float64
__all__ = [
    "char", "convert_oneflow_dtype_to_numpy_dtype", "double", "dtypes", "float", "float16", "float32", "float64", "int8", "int32", "int64", "uint8",
]  # fmt: skip
