"""Samples of ``onnx/aten/binary.py``, with the dtypes that torch promotes."""

import torch

from aten_samples.sample import AtenSample, bools, call, ints, rand, randn

F, I, B = randn, ints, bools
NAN = float("nan")


def nonzero(*shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return ints(*shape, low=1, high=5, dtype=dtype) * (1 - 2 * ints(*shape, low=0, high=2, dtype=dtype))


def holed(n: int) -> torch.Tensor:
    x = randn(n, 4)
    x[:, 1] = NAN
    return x


ARITHMETIC = ("add", "sub", "mul")
COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")

SAMPLES = [
    # Tensors of one dtype, broadcast, of two dtypes, with numbers and with tensors without dims.
    *(AtenSample(f"{name}.Tensor", lambda n: call(F(n, 4), F(4))) for name in (*ARITHMETIC, "div")),
    *(AtenSample(f"{name}.Tensor", lambda n: call(I(n, 4), F(n, 1) + 3)) for name in (*ARITHMETIC, "div")),
    *(
        AtenSample(f"{name}.Tensor", lambda n: call(I(n, 4), nonzero(4, dtype=torch.int32)))
        for name in (*ARITHMETIC, "div")
    ),
    *(AtenSample(f"{name}.Tensor", lambda n: call(I(n, 4), 2.5)) for name in (*ARITHMETIC, "div")),
    *(AtenSample(f"{name}.Tensor", lambda n: call(I(n, 4), 3)) for name in (*ARITHMETIC, "div")),
    *(
        AtenSample(f"{name}.Tensor", lambda n: call(F(n, 4), torch.tensor(3, dtype=torch.int64)))
        for name in (*ARITHMETIC, "div")
    ),
    *(
        AtenSample(f"{name}.Tensor", lambda n: call(F(n, 4), torch.tensor(1.5, dtype=torch.float64)))
        for name in (*ARITHMETIC, "div")
    ),
    *(AtenSample(f"{name}.Tensor", lambda n: call(B(n, 4), F(n, 4) + 4)) for name in ("add", "mul", "div")),
    *(AtenSample(f"{name}.Scalar", lambda n: call(I(n, 4), 2.5)) for name in (*ARITHMETIC, "div")),
    *(
        AtenSample(f"{name}.Tensor", lambda n: call(I(n, 4, dtype=torch.int8), I(n, 4, dtype=torch.int8)))
        for name in ARITHMETIC
    ),
    *(AtenSample(f"{name}.Tensor", lambda n: call(B(n, 4), B(n, 4))) for name in ("add", "mul")),
    *(AtenSample(f"{name}.Tensor", lambda n: call(F(n, 4), F(n, 4), alpha=0.5)) for name in ("add", "sub", "rsub")),
    AtenSample("add.Tensor", lambda n: call(I(n, 4), I(n, 4), alpha=3)),
    AtenSample("add.Scalar", lambda n: call(B(n, 4), 2)),
    AtenSample("rsub.Scalar", lambda n: call(F(n, 4), 1.0)),
    AtenSample("rsub.Scalar", lambda n: call(I(n, 4), 1.5, 2)),
    AtenSample("true_divide.Tensor", lambda n: call(I(n, 4), nonzero(n, 4))),
    # Quotients and remainders of every sign.
    *(
        AtenSample("div.Tensor_mode", lambda n, m=mode: call(I(n, 9), nonzero(n, 9), rounding_mode=m))
        for mode in ("floor", "trunc")
    ),
    *(
        AtenSample("div.Tensor_mode", lambda n, m=mode: call(F(n, 9) * 9, F(n, 9), rounding_mode=m))
        for mode in ("floor", "trunc", None)
    ),
    *(
        AtenSample("div.Scalar_mode", lambda n, m=mode: call(I(n, 9), -2, rounding_mode=m))
        for mode in ("floor", "trunc")
    ),
    AtenSample("floor_divide.default", lambda n: call(I(n, 9), nonzero(n, 9))),
    AtenSample("floor_divide.Scalar", lambda n: call(I(n, 9), 2)),
    *(AtenSample(f"{name}.Tensor", lambda n: call(I(n, 9), nonzero(n, 9))) for name in ("remainder", "fmod")),
    *(AtenSample(f"{name}.Tensor", lambda n: call(F(n, 9) * 9, F(n, 9) * 2)) for name in ("remainder", "fmod")),
    *(AtenSample(f"{name}.Scalar", lambda n: call(I(n, 9), -3)) for name in ("remainder", "fmod")),
    *(AtenSample(f"{name}.Scalar", lambda n: call(F(n, 9) * 9, 2.5)) for name in ("remainder", "fmod")),
    AtenSample("remainder.Scalar_Tensor", lambda n: call(7, nonzero(n, 9))),
    AtenSample("fmod.Tensor", lambda n: call(I(n, 9, dtype=torch.int8), nonzero(n, 9, dtype=torch.int8))),
    # Powers.
    AtenSample("pow.Tensor_Tensor", lambda n: call(rand(n, 4), F(n, 4))),
    AtenSample("pow.Tensor_Tensor", lambda n: call(I(n, 4), I(n, 4, low=0, high=3))),
    AtenSample("pow.Tensor_Scalar", lambda n: call(F(n, 4), 2)),
    AtenSample("pow.Tensor_Scalar", lambda n: call(F(n, 4), 3.0)),
    AtenSample("pow.Tensor_Scalar", lambda n: call(I(n, 4), 0.0)),
    AtenSample("pow.Tensor_Scalar", lambda n: call(I(n, 4), 2)),
    AtenSample("pow.Scalar", lambda n: call(2, F(n, 4))),
    AtenSample("pow.Scalar", lambda n: call(10000.0, I(n, 4, low=0, high=3)), tolerance=1e-4),
    # Extremes and limits.
    *(AtenSample(f"{name}.default", lambda n: call(F(n, 4), F(4))) for name in ("maximum", "minimum", "fmax", "fmin")),
    *(AtenSample(f"{name}.default", lambda n: call(I(n, 4), F(n, 4))) for name in ("maximum", "minimum")),
    *(AtenSample(f"{name}.default", lambda n: call(B(n, 4), B(n, 4))) for name in ("maximum", "minimum")),
    *(AtenSample(f"{name}.default", lambda n: call(holed(n), F(n, 4))) for name in ("fmax", "fmin")),
    *(AtenSample(f"{name}.default", lambda n: call(I(n, 4), I(n, 4))) for name in ("fmax", "fmin")),
    AtenSample("clamp.default", lambda n: call(F(n, 4), -0.5, 0.5)),
    AtenSample("clamp.default", lambda n: call(I(n, 4), -1.5, None)),
    AtenSample("clamp.default", lambda n: call(I(n, 4), None, 2)),
    AtenSample("clip.default", lambda n: call(F(n, 4), -0.5, 0.5), expect=torch.clamp),
    AtenSample("clamp.Tensor", lambda n: call(F(n, 4), F(4) - 1, F(4) + 1)),
    AtenSample("clamp_min.default", lambda n: call(F(n, 4), 0.1)),
    AtenSample("clamp_max.default", lambda n: call(I(n, 4, dtype=torch.int8), 1)),
    AtenSample("clamp_min.Tensor", lambda n: call(F(n, 4), F(4))),
    AtenSample("clamp_max.Tensor", lambda n: call(F(n, 4), F(4))),
    # Others.
    AtenSample("atan2.default", lambda n: call(F(n, 9), F(n, 9))),
    AtenSample(
        "xlogy.Tensor", lambda n: call(torch.tensor([[0.0, 1.0, 2.0]]).repeat(n, 1), torch.tensor([0.0, 0.5, 3.0]))
    ),
    AtenSample("hypot.default", lambda n: call(F(n, 4), F(n, 4))),
    AtenSample("copysign.Tensor", lambda n: call(F(n, 4), F(n, 4))),
    AtenSample("copysign.Scalar", lambda n: call(I(n, 4), -1.0)),
    AtenSample("heaviside.default", lambda n: call(torch.tensor([[0.0, -1.0, 2.0]]).repeat(n, 1), F(3))),
    AtenSample("logaddexp.default", lambda n: call(F(n, 4), F(n, 4))),
    AtenSample("lerp.Scalar", lambda n: call(F(n, 4), F(n, 4), 0.3)),
    AtenSample("lerp.Tensor", lambda n: call(F(n, 4), F(n, 4), rand(4))),
    AtenSample("addcmul.default", lambda n: call(F(n, 4), F(n, 4), F(4), value=0.5)),
    AtenSample("addcdiv.default", lambda n: call(F(n, 4), F(n, 4), rand(4), value=2)),
    # Bits and logic.
    *(AtenSample(f"bitwise_{name}.Tensor", lambda n: call(B(n, 4), B(4))) for name in ("and", "or", "xor")),
    *(AtenSample(f"bitwise_{name}.Tensor", lambda n: call(I(n, 4), I(4)), opset=18) for name in ("and", "or", "xor")),
    *(AtenSample(f"bitwise_{name}.Scalar", lambda n: call(B(n, 4), True)) for name in ("and", "or", "xor")),
    *(
        AtenSample(f"bitwise_{way}_shift.Tensor", lambda n: call(I(n, 4), I(4, low=0, high=4)))
        for way in ("left", "right")
    ),
    *(AtenSample(f"bitwise_{way}_shift.Tensor_Scalar", lambda n: call(I(n, 4), 2)) for way in ("left", "right")),
    *(
        AtenSample(f"logical_{name}.default", lambda n: call(F(n, 4).round(), I(n, 4, low=0, high=2)))
        for name in ("and", "or", "xor")
    ),
    # Comparisons.
    *(AtenSample(f"{name}.Tensor", lambda n: call(I(n, 9), I(9))) for name in COMPARED),
    *(AtenSample(f"{name}.Tensor", lambda n: call(I(n, 9), I(n, 9).float() + 0.5 * B(n, 9))) for name in COMPARED),
    *(AtenSample(f"{name}.Tensor", lambda n: call(B(n, 9), B(n, 9))) for name in COMPARED),
    *(AtenSample(f"{name}.Scalar", lambda n: call(I(n, 9), 1.5)) for name in COMPARED),
    *(AtenSample(f"{name}.Scalar", lambda n: call(I(n, 9, low=0, dtype=torch.uint8), 2)) for name in COMPARED),
    *(AtenSample(f"{name}.Scalar", lambda n: call(holed(n), 0.0)) for name in COMPARED),
    # Choice.
    AtenSample("where.self", lambda n: call(B(n, 4), F(n, 4), F(4))),
    AtenSample("where.self", lambda n: call(B(n, 4), F(n, 4), torch.tensor(2))),
    AtenSample("where.self", lambda n: call(B(n, 1), I(n, 4), F(4))),
    AtenSample("where.self", lambda n: call(B(n, 4), B(n, 4), B(n, 4))),
    AtenSample("masked_fill.Scalar", lambda n: call(F(n, 4), B(n, 4), -float("inf"))),
    AtenSample("masked_fill.Scalar", lambda n: call(I(n, 4), B(4), 7)),
    AtenSample("masked_fill.Scalar", lambda n: call(B(n, 4), B(4), True)),
    AtenSample("masked_fill.Tensor", lambda n: call(F(n, 4), B(n, 4), torch.tensor(3))),
]
