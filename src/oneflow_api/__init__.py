"""The name that programs of early 2021 import types of the compiled core from, for annotations."""

from oneflow import distribute
from oneflow.engine.ir.blob import Blob as BlobDesc
from oneflow.engine.ir.blob import Blob as ConsistentBlob
from oneflow.engine.ir.blob import Blob as LazyConsistentBlob
from oneflow.engine.ir.blob import Blob as MirroredBlob

__all__ = ["BlobDesc", "ConsistentBlob", "LazyConsistentBlob", "MirroredBlob", "distribute"]
