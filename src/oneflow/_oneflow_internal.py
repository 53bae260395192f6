"""The name that programs of 2021 import types of the compiled core from, for annotations; in early 2021 it was
``oneflow_api``."""

import oneflow.distribute as distribute
from oneflow.engine.ir.blob import Blob

BlobDesc = ConsistentBlob = LazyConsistentBlob = MirroredBlob = Blob
__all__ = ["BlobDesc", "ConsistentBlob", "LazyConsistentBlob", "MirroredBlob", "distribute"]
