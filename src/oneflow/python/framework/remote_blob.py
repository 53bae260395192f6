"""The type of blobs under its earlier path, for annotations and ``isinstance``."""

from oneflow.engine.ir.blob import Blob

BlobDef = ConsistentBlob = MirroredBlob = LazyConsistentBlob = LazyMirroredBlob = EagerConsistentBlob = (
    EagerMirroredBlob
) = Blob
__all__ = [
    "BlobDef",
    "ConsistentBlob",
    "EagerConsistentBlob",
    "EagerMirroredBlob",
    "LazyConsistentBlob",
    "LazyMirroredBlob",
    "MirroredBlob",
]
