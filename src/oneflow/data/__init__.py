"""``flow.data``: OFRecord files inside a job, random batches, MNIST."""

from oneflow.data.mnist_files import load_mnist
from oneflow.data.sources import (
    BlobConf,
    OFRecordRawDecoder,
    RawCodec,
    decode_ofrecord,
    decode_random,
    ofrecord_raw_decoder,
    ofrecord_reader,
)

__all__ = [
    "BlobConf",
    "OFRecordRawDecoder",
    "RawCodec",
    "decode_ofrecord",
    "decode_random",
    "load_mnist",
    "ofrecord_raw_decoder",
    "ofrecord_reader",
]
