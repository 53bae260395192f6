"""The type of blobs under its earlier path, for annotations and ``isinstance``."""

from oneflow.ir.blob import Blob

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
