"""Records of small pictures, and decoders of them."""

from __future__ import annotations

import io
from itertools import islice

import numpy as np
import torch
from PIL import Image

from oneflow.data import ImageDecoder, Loader, RandomCrop, RawDecoder
from oneflow.engine.core.record.messages import FeatureValue, encode_record

N = 37
SIZES = (20, 1, 16)


def picture(i: int) -> bytes:
    pixels = np.random.default_rng(i).integers(0, 256, (20 + i % 7, 30 + i % 5, 3), dtype=np.uint8)
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "JPEG")
    return data.getvalue()


def record(i: int, **more: FeatureValue) -> bytes:
    return encode_record(
        {
            "label": FeatureValue("int32_list", np.array([i], np.int32)),
            "encoded": FeatureValue("bytes_list", [picture(i)]),
            "words": FeatureValue("bytes_list", [b"ab", b"c"]),
            **more,
        }
    )


LABEL = RawDecoder("label", (), "int32")
IMAGE = ImageDecoder("encoded", 16, RandomCrop(), flip=0.5)
ORDERS = [{}, {"order": "shuffle", "seed": 5}, {"order": "oneflow", "shuffle_buffer_size": 9, "seed": 2}]


def take(loader: Loader, count: int) -> list:
    with loader:
        return [batch.tolist() if isinstance(batch, torch.Tensor) else batch for batch in islice(loader, count)]


def labels(folder, count, batch_size=4, **more):
    return [label for batch in take(Loader(folder, batch_size, LABEL, **more), count) for label in batch]
