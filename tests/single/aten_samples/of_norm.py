"""Samples of ``onnx/aten/norm.py``."""

import torch

from aten_samples.sample import AtenSample, call, rand, randn

F = randn


def by_running(x, weight, bias, mean, var, *rest):
    """One result of which the others, statistics of training, are empty."""
    return torch.nn.functional.batch_norm(x, mean, var, weight, bias, eps=rest[-1]), torch.zeros(0), torch.zeros(0)


def four(*args):
    return (*by_running(*args), torch.zeros(0))


def rms(x, shape, weight, eps):
    rstd = (x.square().mean(-1, keepdim=True) + eps).rsqrt()
    return x * rstd * weight, rstd


STATISTICS = (None, None, True, 0.1, 1e-5)

SAMPLES = [
    AtenSample("native_layer_norm.default", lambda n: call(F(n, 3, 4), [4], F(4), F(4), 1e-5), results=(0,)),
    AtenSample("native_layer_norm.default", lambda n: call(F(n, 3, 4), [3, 4], None, None, 1e-3)),
    AtenSample("native_layer_norm.default", lambda n: call(F(n, 3, 4), [4], F(4), None, 1e-5), results=(0,)),
    AtenSample("native_layer_norm.default", lambda n: call(F(n, 3, 4), [4], F(4), F(4), 1e-5), results=(0,), opset=13),
    AtenSample("_fused_rms_norm.default", lambda n: call(F(n, 3, 4), [4], F(4), 1e-5), expect=rms),
    AtenSample("native_group_norm.default", lambda n: call(F(n, 6, 4, 3), F(6), F(6), n, 6, 12, 3, 1e-5)),
    AtenSample("native_group_norm.default", lambda n: call(F(n, 6, 5), None, None, n, 6, 5, 2, 1e-5)),
    AtenSample(
        "native_batch_norm.default",
        lambda n: call(F(n, 3, 4, 4), F(3), F(3), F(3), rand(3), False, 0.1, 1e-5),
        results=(0,),
    ),
    AtenSample(
        "native_batch_norm.default", lambda n: call(F(n, 3), None, None, F(3), rand(3), False, 0.1, 1e-5), results=(0,)
    ),
    AtenSample(
        "native_batch_norm.default",
        lambda n: call(F(n, 3, 4), F(3), F(3), F(3), rand(3), False, 0.1, 1e-5),
        results=(0,),
        opset=13,
    ),
    AtenSample(
        "native_batch_norm.default", lambda n: call(F(1, n, 4, 4), F(n), F(n), *STATISTICS), results=(0,), fixed=True
    ),
    AtenSample(
        "_native_batch_norm_legit.no_stats", lambda n: call(F(n, 3, 4), F(3), F(3), True, 0.1, 1e-5), results=(0,)
    ),
    AtenSample(
        "_native_batch_norm_legit_no_training.default",
        lambda n: call(F(n, 3, 4), F(3), F(3), F(3), rand(3), 0.1, 1e-5),
        results=(0,),
    ),
    AtenSample(
        "_batch_norm_no_update.default",
        lambda n: call(F(n, 3, 4), F(3), F(3), F(3), rand(3), 0.1, 1e-5),
        results=(0,),
        expect=four,
    ),
    AtenSample(
        "cudnn_batch_norm.default",
        lambda n: call(F(n, 3, 4), F(3), F(3), F(3), rand(3), False, 0.1, 1e-5),
        results=(0,),
        expect=four,
    ),
    AtenSample(
        "miopen_batch_norm.default",
        lambda n: call(F(n, 3, 4), F(3), F(3), F(3), rand(3), False, 0.1, 1e-5),
        results=(0,),
        expect=by_running,
    ),
    AtenSample("_weight_norm_interface.default", lambda n: call(F(n, 3, 4), F(n, 1, 1))),
]
