"""Where ``flow.nn`` on tensors is not torch, or not OneFlow: what each does, and what is done here. And the names that
are absent.

The tables of the documents are checked against these.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Choice:
    """``names`` in ``namespace``: what OneFlow 0.9 does where torch does otherwise, and what this package does."""

    namespace: str
    names: tuple[str, ...]
    oneflow: str
    here: str


_NN, _F, _INIT, _UTILS = "oneflow.nn", "oneflow.nn.functional", "oneflow.nn.init", "oneflow.nn.utils"

CHOICES = (
    Choice(_NN, ("CrossEntropyLoss", "NLLLoss"), "targets are int32 or int64", "as OneFlow: any integer type"),
    Choice(_F, ("cross_entropy", "one_hot"), "class numbers are int32 or int64", "as OneFlow: any integer type"),
    Choice(
        _NN,
        (
            "L1Loss",
            "MSELoss",
            "BCELoss",
            "BCEWithLogitsLoss",
            "KLDivLoss",
            "MarginRankingLoss",
            "CrossEntropyLoss",
            "NLLLoss",
            "SmoothL1Loss",
        ),
        "no size_average and reduce: reduction stands in their place",
        "as OneFlow by position; size_average and reduce by name",
    ),
    Choice(
        _F,
        ("binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "kl_div", "l1_loss", "mse_loss"),
        "no size_average and reduce: reduction stands in their place",
        "as OneFlow by position; size_average and reduce by name",
    ),
    Choice(_NN, ("KLDivLoss",), "the mean without a warning", "as OneFlow"),
    Choice(_NN, ("Softmax", "LogSoftmax"), "dim may be left out", "the last dimension, without torch's warning"),
    Choice(_F, ("softmax", "log_softmax"), "dim may be left out", "the last dimension, without torch's warning"),
    Choice(
        _NN,
        ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d"),
        "generator=; each module owns one with the default seed, so that the first calls of all modules drop alike",
        "generator=; without one torch's default generator, so that masks differ",
    ),
    Choice(
        _F, ("dropout",), "generator= and addend=, which is added to the result", "as OneFlow, and torch's inplace="
    ),
    Choice(_F, ("normalize",), "dim is 0 unless said, and epsilon the name of eps", "as OneFlow; eps is taken too"),
    Choice(_F, ("gumbel_softmax",), "the order is (x, dim, tau, hard)", "as OneFlow; logits is taken for x"),
    Choice(
        _F,
        ("max_pool1d", "max_pool2d", "max_pool3d"),
        "return_indices before ceil_mode, and data_format",
        "as OneFlow; input is taken for x",
    ),
    Choice(_F, ("leaky_relu",), "alpha", "alpha or negative_slope"),
    Choice(
        _F,
        (
            "celu",
            "elu",
            "hardsigmoid",
            "hardswish",
            "mish",
            "selu",
            "silu",
            "softsign",
            "tanh",
            "dropout1d",
            "dropout2d",
            "dropout3d",
        ),
        "the first parameter is x",
        "x or input",
    ),
    Choice(
        _F, ("affine_grid", "grid_sample"), "align_corners is False unless said", "as OneFlow, without torch's warning"
    ),
    Choice(_F, ("upsample",), "stays beside interpolate", "as OneFlow, without torch's warning"),
    Choice(_F, ("ctc_greedy_decoder",), "not in torch; blanks are class 0", "as OneFlow"),
    Choice(_F, ("deform_conv2d", "quick_gelu", "sparse_softmax_cross_entropy"), "not in torch", "as OneFlow"),
    Choice(_NN, ("RMSNorm",), "eps is 1e-5 unless said", "as OneFlow"),
    Choice(_NN, ("Hardshrink", "Softshrink", "Softsign"), "inplace=", "as OneFlow"),
    Choice(_NN, ("ParameterList",), "the parameter is called parameters", "parameters or values"),
    Choice(_NN, ("PixelShuffle",), "one factor for the height and one for the width", "as OneFlow"),
    Choice(
        _NN,
        (
            "CombinedMarginLoss",
            "FusedBatchNorm1d",
            "FusedBatchNorm2d",
            "FusedBatchNorm3d",
            "FusedMLP",
            "QuickGELU",
            "RMSLayerNorm",
        ),
        "not in torch",
        "as OneFlow, by torch's ops: what is fused there is several ops here",
    ),
    Choice(_NN, ("LayerNorm",), "fewer parameters", "torch's class"),
    Choice(
        _NN,
        ("Conv2d",),
        "the parameters of torch up to padding_mode",
        "torch's class: device and dtype follow padding_mode",
    ),
    Choice(
        _F,
        ("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "hardtanh", "interpolate", "threshold"),
        "fewer parameters",
        "torch's",
    ),
    Choice(
        _INIT,
        ("kaiming_normal_", "kaiming_uniform_", "xavier_normal_", "xavier_uniform_"),
        "data_format= for weights with their channels last",
        "as OneFlow, and torch's generator=",
    ),
    Choice(_INIT, ("normal_", "orthogonal_", "trunc_normal_", "uniform_"), "no generator=", "torch's"),
    Choice(_INIT, ("calc_fan", "get_data_format"), "not in torch", "as OneFlow"),
    Choice(_UTILS, ("weight_norm",), "parameters <name>_g and <name>_v", "as OneFlow, without torch's warning"),
    Choice(
        _UTILS,
        ("clip_grad_norm_",),
        "fewer parameters",
        "torch's; over all parts of global gradients, on several placements too",
    ),
    Choice(_UTILS, ("clip_grad_value_",), "fewer parameters", "torch's"),
    Choice(
        _NN,
        ("OFRecordReader", "OfrecordReader", "RawReader", "GPTIndexedBinDataReader"),
        "an order that follows from the library's own generator; placement= and sbp= make batches global; a graph may "
        "call them",
        "the order of a job's reader, a function of random_seed and the files (-1 or None: flow.manual_seed); local; "
        "a graph may call them",
    ),
    Choice(
        _NN,
        ("OFRecordBytesDecoder", "OFRecordImageDecoder", "OFRecordImageDecoderRandomCrop"),
        "tensor buffers",
        "a sequence of uint8 tensors, each of its own size",
    ),
    Choice(
        _NN,
        ("OFRecordRawDecoder", "OfrecordRawDecoder"),
        "dim1_varying_length=",
        "refused: auto_zero_padding and a largest shape",
    ),
    Choice(_NN, ("CoinFlip", "CropMirrorNormalize"), "not in torch", "as OneFlow; local tensors"),
)

_QUANTIZATION = "quantization-aware training is not part of this package; torch.ao.quantization works on these modules"

ABSENT = {
    "COCOReader": "read the annotations with pycocotools in a flow.utils.data.Dataset",
    "OneRecReader": "write the data as OFRecord files and read them with flow.nn.OFRecordReader",
    "OFRecordImageGpuDecoderRandomCropResize": "pictures are decoded on the CPU; use OFRecordImageDecoderRandomCrop and image.Resize",
    "FakeQuantization": _QUANTIZATION,
    "MinMaxObserver": _QUANTIZATION,
    "MovingAverageMinMaxObserver": _QUANTIZATION,
    "QatConv1d": _QUANTIZATION,
    "QatConv2d": _QUANTIZATION,
    "QatConv3d": _QUANTIZATION,
    "Quantization": _QUANTIZATION,
}
