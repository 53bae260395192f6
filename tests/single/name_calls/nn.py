"""``oneflow.nn``: every module is made and called once."""

from __future__ import annotations

import io
import math
import struct
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import batch_norm, linear, relu

import oneflow as flow
from oneflow import nn
from oneflow.data import write_records
from oneflow.engine.core.record.messages import FeatureValue, encode_record


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def same(given: Any, wanted: Any) -> None:
    torch.testing.assert_close(given, wanted)


def as_torch(name: str, *args: Any, inputs: tuple[Any, ...], **kwargs: Any) -> None:
    """OneFlow's module with OneFlow's arguments is torch's with torch's: same parameters, same results."""
    torch.manual_seed(1)
    given = getattr(nn, name)(*args, **kwargs)
    torch.manual_seed(1)
    wanted = getattr(torch.nn, name)(*args, **kwargs)
    assert isinstance(given, getattr(torch.nn, name))
    torch.manual_seed(2)
    found = given(*inputs)
    torch.manual_seed(2)
    same(found, wanted(*inputs))


X1, X2, X3 = drawn(2, 4, 8), drawn(2, 4, 6, 8), drawn(2, 4, 4, 6, 8)
FLAT = drawn(3, 4)
LABELS = torch.tensor([1, 0, 3])

AS_TORCH: dict[str, Callable[[], None]] = {
    name: partial(as_torch, name, *args, inputs=inputs)
    for name, args, inputs in [
        ("AdaptiveAvgPool1d", (3,), (X1,)), ("AdaptiveAvgPool2d", ((3, 4),), (X2,)), ("AdaptiveAvgPool3d", (2,), (X3,)),
        ("AdaptiveMaxPool1d", (3,), (X1,)), ("AdaptiveMaxPool2d", ((3, 4),), (X2,)), ("AdaptiveMaxPool3d", (2,), (X3,)),
        ("AvgPool1d", (2, 1, 1), (X1,)), ("AvgPool2d", (2, 2, 1), (X2,)), ("AvgPool3d", (2,), (X3,)),
        ("MaxPool1d", (2, 1, 1), (X1,)), ("MaxPool2d", (3, 2, 1), (X2,)), ("MaxPool3d", (2,), (X3,)),
        ("BatchNorm1d", (4,), (X1,)), ("BatchNorm2d", (4, 1e-3, 0.2), (X2,)), ("BatchNorm3d", (4,), (X3,)), ("SyncBatchNorm", (4,), (X2,)),
        ("GroupNorm", (2, 4), (X2,)), ("LayerNorm", ((6, 8), 1e-4), (X2,)),
        ("InstanceNorm1d", (4,), (X1,)), ("InstanceNorm2d", (4, 1e-3, 0.1, True), (X2,)), ("InstanceNorm3d", (4,), (X3,)),
        ("CELU", (0.7,), (FLAT,)), ("ELU", (0.7,), (FLAT,)), ("GELU", ("tanh",), (FLAT,)), ("GLU", (1,), (FLAT,)), ("Hardsigmoid", (), (FLAT,)),
        ("Hardswish", (), (FLAT,)), ("Hardtanh", (-0.5, 0.5), (FLAT,)), ("LeakyReLU", (0.3,), (FLAT,)), ("LogSigmoid", (), (FLAT,)),
        ("LogSoftmax", (1,), (FLAT,)), ("Mish", (), (FLAT,)), ("PReLU", (4,), (FLAT,)), ("ReLU", (), (FLAT,)), ("ReLU6", (), (FLAT,)),
        ("SELU", (), (FLAT,)), ("SiLU", (), (FLAT,)), ("Sigmoid", (), (FLAT,)), ("Softmax", (0,), (FLAT,)), ("Softplus", (2,), (FLAT,)),
        ("Tanh", (), (FLAT,)), ("Threshold", (0.1, 20.0), (FLAT,)), ("Softshrink", (0.3,), (FLAT,)), ("Hardshrink", (0.3,), (FLAT,)),
        ("Softsign", (), (FLAT,)),
        ("ConstantPad1d", ((1, 2), 3.5), (X1,)), ("ConstantPad2d", (1, 3.5), (X2,)), ("ConstantPad3d", (1, 3.5), (X3,)),
        ("ReflectionPad1d", (2,), (X1,)), ("ReflectionPad2d", ((1, 2, 0, 1),), (X2,)), ("ReplicationPad1d", (2,), (X1,)),
        ("ReplicationPad2d", (2,), (X2,)), ("ZeroPad2d", ((1, 0, 2, 1),), (X2,)),
        ("Conv1d", (4, 6, 3), (X1,)), ("Conv2d", (4, 6, (3, 2), 2, 1, 1, 2), (X2,)), ("Conv3d", (4, 2, 2), (X3,)),
        ("ConvTranspose1d", (4, 6, 3), (X1,)), ("ConvTranspose2d", (4, 6, 3, 2, 1, 1), (X2,)), ("ConvTranspose3d", (4, 2, 2), (X3,)),
        ("CosineSimilarity", (1, 1e-6), (FLAT, drawn(3, 4, seed=1))), ("PairwiseDistance", (1.0,), (FLAT, drawn(3, 4, seed=1))),
        ("Embedding", (5, 3, 0), (LABELS,)), ("Flatten", (1, 2), (X2,)), ("Fold", ((4, 5), 2), (drawn(1, 12, 12),)), ("Unfold", (2,), (X2,)),
        ("Identity", (), (FLAT,)), ("Linear", (4, 2), (FLAT,)),
        ("GRU", (8, 3, 2), (X1,)), ("LSTM", (8, 3, 2), (X1,)), ("RNN", (8, 3, 2), (X1,)),
        ("GRUCell", (4, 3), (FLAT,)), ("LSTMCell", (4, 3), (FLAT,)), ("RNNCell", (4, 3), (FLAT,)),
        ("Upsample", (None, 2.0, "bilinear", False), (X2,)), ("UpsamplingBilinear2d", ((9, 9),), (X2,)), ("UpsamplingNearest2d", (None, 2), (X2,)),
        ("Dropout", (0.3,), (FLAT,)), ("Dropout1d", (0.3,), (X1,)), ("Dropout2d", (0.3,), (X2,)), ("Dropout3d", (0.3,), (X3,)),
        ("PixelShuffle", (2,), (X2,)),
        ("BCELoss", (), (FLAT.sigmoid(), drawn(3, 4, seed=1).sigmoid())), ("BCEWithLogitsLoss", (), (FLAT, drawn(3, 4, seed=1).sigmoid())),
        ("L1Loss", (), (FLAT, drawn(3, 4, seed=1))), ("MSELoss", (), (FLAT, drawn(3, 4, seed=1))), ("SmoothL1Loss", (), (FLAT, drawn(3, 4, seed=1))),
        ("MarginRankingLoss", (0.2,), (FLAT, drawn(3, 4, seed=1), drawn(3, 4, seed=2).sign())),
        ("TripletMarginLoss", (0.5, 1.0), (FLAT, drawn(3, 4, seed=1), drawn(3, 4, seed=2))),
        ("CrossEntropyLoss", (), (FLAT, LABELS)), ("NLLLoss", (), (FLAT, LABELS)),
        ("CTCLoss", (), (drawn(6, 2, 4).log_softmax(2), torch.tensor([[1, 2], [3, 1]]), torch.tensor([6, 5]), torch.tensor([2, 1]))),
    ]
}  # fmt: skip


def kl_div_loss() -> None:
    p, q = drawn(3, 4).log_softmax(1), drawn(3, 4, seed=1).softmax(1)
    same(nn.KLDivLoss()(p, q), (q * (q.log() - p)).mean())


def unpooled(name: str, pool: str, x: torch.Tensor) -> None:
    largest, places = getattr(torch.nn, pool)(2, return_indices=True)(x)
    found = getattr(nn, name)(2)(largest, places)
    assert found.shape == x.shape
    same(found.sum(), largest.sum())


def containers(kind: str) -> None:
    layers = {"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)}
    values = {"a": nn.Parameter(torch.ones(1)), "b": nn.Parameter(torch.ones(2))}
    made = {
        "ModuleDict": lambda: nn.ModuleDict(layers),
        "ModuleList": lambda: nn.ModuleList(layers.values()),
        "Sequential": lambda: nn.Sequential(*layers.values()),
        "ParameterDict": lambda: nn.ParameterDict(values),
        "ParameterList": lambda: nn.ParameterList(parameters=values.values()),
    }[kind]()
    assert isinstance(made, getattr(torch.nn, kind)) and len(made) == 2
    assert len(list(made.parameters())) == (2 if kind.startswith("P") else 4)


def module() -> None:
    assert nn.Module is torch.nn.Module


def parameter() -> None:
    assert nn.Parameter is torch.nn.Parameter and flow.nn.parameter.Parameter is nn.Parameter


def recurrent_bases() -> None:
    assert issubclass(nn.LSTM, nn.RNNBase) and issubclass(nn.GRUCell, nn.RNNCellBase)


def rms_norm() -> None:
    same(nn.RMSNorm(4)(FLAT), FLAT / (FLAT.square().mean(1, keepdim=True) + 1e-5).sqrt())


def rms_layer_norm() -> None:
    same(nn.RMSLayerNorm(4)(FLAT), FLAT / (FLAT.square().mean(1, keepdim=True) + 1e-6).sqrt())


def combined_margin_loss() -> None:
    cosines = FLAT.tanh()
    wanted = cosines.clone()
    for row, label in enumerate(LABELS.tolist()):
        wanted[row, label] = math.cos(0.9 * math.acos(cosines[row, label]) + 0.4) - 0.1
    same(nn.CombinedMarginLoss(0.9, 0.4, 0.1)(cosines, LABELS), wanted)


def fused_batch_norm(dims: int, x: torch.Tensor) -> None:
    layer = getattr(nn, f"FusedBatchNorm{dims}d")(4)
    addend = drawn(*x.shape, seed=3)
    same(layer(x, addend), relu(batch_norm(x, torch.zeros(4), torch.ones(4), training=True) + addend))


def fused_mlp() -> None:
    mlp = nn.FusedMLP(4, (5, 6), 2, skip_final_activation=True)
    hidden = relu(linear(relu(linear(FLAT, mlp.weight_0, mlp.bias_0)), mlp.weight_1, mlp.bias_1))
    same(mlp(FLAT), linear(hidden, mlp.weight_2, mlp.bias_2))


def quick_gelu() -> None:
    same(nn.QuickGELU()(FLAT), FLAT / (1 + (-1.702 * FLAT).exp()))


# ------------------------------------------------------------------ data


def with_records(check: Callable[[Any], None], kind: Callable[..., Any] = nn.OFRecordReader) -> None:
    """Calls ``check`` with a reader of three records: number i with its pixels, a PNG of size (5 + i, 4) whose every
    level is 10 · i."""
    with tempfile.TemporaryDirectory() as folder:
        write_records(Path(folder) / "part-0", [encode_record(features(i)) for i in range(3)])
        reader = kind(folder, batch_size=3)
        try:
            check(reader)
        finally:
            reader.close()


def features(i: int) -> dict[str, FeatureValue]:
    file = io.BytesIO()
    Image.fromarray(np.full((4, 5 + i, 3), 10 * i, np.uint8)).save(file, "PNG")
    return {
        "label": FeatureValue("int32_list", np.array([i], np.int32)),
        "encoded": FeatureValue("bytes_list", [file.getvalue()]),
    }


def labels(reader: Callable[..., Any], decoder: Callable[..., Any]) -> None:
    def check(reading: Any) -> None:
        found = decoder("label", shape=(), dtype=torch.int32)(reading())
        assert found.dtype == torch.int32 and found.tolist() == [0, 1, 2]

    with_records(check, reader)


def decoded(make: Callable[[], torch.nn.Module], is_whole: bool) -> None:
    def check(reader: Any) -> None:
        pictures = make()(reader())
        assert [int(picture.unique()) for picture in pictures] == [0, 10, 20]
        assert not is_whole or [tuple(picture.shape) for picture in pictures] == [(4, 5, 3), (4, 6, 3), (4, 7, 3)]

    with_records(check)


def bytes_of_records() -> None:
    with_records(
        lambda reader: same(
            nn.OFRecordBytesDecoder("encoded")(reader())[0][:4], torch.tensor([137, 80, 78, 71], dtype=torch.uint8)
        )
    )


def crop_mirror_normalize() -> None:
    pixels = torch.arange(2 * 2 * 4 * 3, dtype=torch.uint8).reshape(2, 2, 4, 3)
    found = nn.CropMirrorNormalize("RGB", crop_w=2, mean=[1.0], std=[2.0])(
        pixels, torch.tensor([1, 0], dtype=torch.int8)
    )
    wanted = (pixels[:, :, 1:3].float() - 1) / 2
    wanted[0] = wanted[0].flip(1)
    same(found, wanted.permute(0, 3, 1, 2).contiguous())


def coin_flip() -> None:
    assert nn.CoinFlip(5, probability=1.0)().tolist() == [1] * 5 and nn.CoinFlip(5, 3)().dtype == torch.int8
    assert 400 < int(nn.CoinFlip(1000, random_seed=3)().sum()) < 600


def raw_reader() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows"
        np.arange(12, dtype=np.float32).tofile(path)
        reader = nn.RawReader([path], (2,), torch.float32, 3, random_shuffle=False)
        assert [reader().tolist() for _ in range(2)] == [[[0, 1], [2, 3], [4, 5]], [[6, 7], [8, 9], [10, 11]]]
        del reader


def gpt_reader() -> None:
    with tempfile.TemporaryDirectory() as folder:
        prefix = Path(folder) / "text"
        np.arange(10, dtype=np.uint16).tofile(f"{prefix}.bin")
        index = struct.pack("<9sQBQQ2i2q3q", b"MMIDIDX\0\0", 1, 8, 2, 3, 4, 6, 0, 8, 0, 1, 2)
        Path(f"{prefix}.idx").write_bytes(index)
        reader = nn.GPTIndexedBinDataReader(prefix, 3, 3, 3, shuffle=False)
        assert reader().tolist() == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]
        reader.close()


CALLS: dict[str, Callable[[], None]] = {
    f"oneflow.nn.{name}": call
    for name, call in {
        **AS_TORCH,
        "KLDivLoss": kl_div_loss,
        "MaxUnpool1d": partial(unpooled, "MaxUnpool1d", "MaxPool1d", X1),
        "MaxUnpool2d": partial(unpooled, "MaxUnpool2d", "MaxPool2d", X2),
        "MaxUnpool3d": partial(unpooled, "MaxUnpool3d", "MaxPool3d", X3),
        **{
            kind: partial(containers, kind)
            for kind in ("ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential")
        },
        "Module": module,
        "Parameter": parameter,
        "RNNBase": recurrent_bases,
        "RNNCellBase": recurrent_bases,
        "RMSNorm": rms_norm,
        "RMSLayerNorm": rms_layer_norm,
        "CombinedMarginLoss": combined_margin_loss,
        "FusedBatchNorm1d": partial(fused_batch_norm, 1, X1),
        "FusedBatchNorm2d": partial(fused_batch_norm, 2, X2),
        "FusedBatchNorm3d": partial(fused_batch_norm, 3, X3),
        "FusedMLP": fused_mlp,
        "QuickGELU": quick_gelu,
        "OFRecordReader": partial(labels, nn.OFRecordReader, nn.OFRecordRawDecoder),
        "OfrecordReader": partial(labels, nn.OfrecordReader, nn.OFRecordRawDecoder),
        "OFRecordRawDecoder": partial(labels, nn.OFRecordReader, nn.OFRecordRawDecoder),
        "OfrecordRawDecoder": partial(labels, nn.OfrecordReader, nn.OfrecordRawDecoder),
        "OFRecordBytesDecoder": bytes_of_records,
        "OFRecordImageDecoder": partial(decoded, lambda: nn.OFRecordImageDecoder("encoded", "RGB"), True),
        "OFRecordImageDecoderRandomCrop": partial(decoded, lambda: nn.OFRecordImageDecoderRandomCrop("encoded"), False),
        "CropMirrorNormalize": crop_mirror_normalize,
        "CoinFlip": coin_flip,
        "RawReader": raw_reader,
        "GPTIndexedBinDataReader": gpt_reader,
    }.items()
}
