"""``flow.data``: records and pictures as batches, inside a job and as plain Python; random batches; MNIST."""

from oneflow.compat.absent import absent
from oneflow.compat.refused import REFUSED_DATA
from oneflow.engine.core.record.messages import FeatureValue
from oneflow.engine.data.blob_conf import (
    BlobConf,
    BytesListCodec,
    ImageCenterCropPreprocessor,
    ImageCodec,
    ImageCropPreprocessor,
    ImageCropWithRandomSizePreprocessor,
    ImagePreprocessor,
    ImageResizePreprocessor,
    ImageTargetResizePreprocessor,
    NormByChannelPreprocessor,
    RawCodec,
    decode_ofrecord,
)
from oneflow.engine.data.dataset import Parts
from oneflow.engine.data.decode import BytesDecoder, Coin, Decoder, ImageDecoder, PixelDecoder, RandomCrop, RawDecoder
from oneflow.engine.data.formats.index import RecordFile
from oneflow.engine.data.formats.mnist_files import load_mnist
from oneflow.engine.data.formats.records import RecordWriter, read_records, write_records
from oneflow.engine.data.loader import Loader
from oneflow.engine.data.order import Draws
from oneflow.engine.data.random_batch import decode_random
from oneflow.engine.data.reader_ops import (
    ImageDecoderRandomCropResize,
    OFRecordBytesDecoder,
    OFRecordImageDecoder,
    OFRecordImageDecoderRandomCrop,
    OFRecordRawDecoder,
    image_decoder_random_crop_resize,
    ofrecord_bytes_decoder,
    ofrecord_image_classification_reader,
    ofrecord_image_decoder,
    ofrecord_image_decoder_random_crop,
    ofrecord_loader,
    ofrecord_raw_decoder,
    ofrecord_reader,
)
from oneflow.engine.data.token_source import MegatronGPTMMapDataLoader, megatron_gpt_mmap_data_loader

__all__ = [
    "ImageDecoderRandomCropResize",
    "image_decoder_random_crop_resize",
    "MegatronGPTMMapDataLoader",
    "megatron_gpt_mmap_data_loader",
    "ofrecord_image_classification_reader",
    "BlobConf",
    "BytesDecoder",
    "BytesListCodec",
    "Coin",
    "Decoder",
    "Draws",
    "FeatureValue",
    "ImageCenterCropPreprocessor",
    "ImageCodec",
    "ImageCropPreprocessor",
    "ImageCropWithRandomSizePreprocessor",
    "ImageDecoder",
    "ImagePreprocessor",
    "ImageResizePreprocessor",
    "ImageTargetResizePreprocessor",
    "Loader",
    "NormByChannelPreprocessor",
    "OFRecordBytesDecoder",
    "OFRecordImageDecoder",
    "OFRecordImageDecoderRandomCrop",
    "OFRecordRawDecoder",
    "Parts",
    "PixelDecoder",
    "RandomCrop",
    "RawCodec",
    "RawDecoder",
    "RecordFile",
    "RecordWriter",
    "decode_ofrecord",
    "decode_random",
    "load_mnist",
    "ofrecord_bytes_decoder",
    "ofrecord_image_decoder",
    "ofrecord_image_decoder_random_crop",
    "ofrecord_loader",
    "ofrecord_raw_decoder",
    "ofrecord_reader",
    "read_records",
    "write_records",
]

__getattr__ = absent("oneflow.data", REFUSED_DATA, lambda: globals())
