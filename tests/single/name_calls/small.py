"""Calls of the names of ``oneflow.linalg``, ``oneflow.autograd``, ``oneflow.cuda`` and ``oneflow.profiler``."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from called import gives, same

import oneflow as flow
from oneflow.engine.core.errors import ArgumentError, NoDeviceError

SQ = np.array([[4.0, 1.0], [2.0, 3.0]], np.float32)
sq = torch.from_numpy(SQ)

LINALG = {
    "cross": (lambda: flow.linalg.cross(flow.tensor([1.0, 0, 0]), flow.tensor([0, 1.0, 0])), [0, 0, 1]),
    "diagonal": (lambda: flow.linalg.diagonal(sq), [4, 3]),
    "inv": (lambda: flow.linalg.inv(sq), np.linalg.inv(SQ)),
    "matrix_norm": (lambda: flow.linalg.matrix_norm(sq), np.linalg.norm(SQ)),
    "norm": (lambda: flow.linalg.norm(sq), np.linalg.norm(SQ)),
    "vector_norm": (lambda: flow.linalg.vector_norm(sq, 1), np.abs(SQ).sum()),
}


class Cube(flow.autograd.Function):
    """x^3 with a gradient of its own."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        return grad * 3 * ctx.saved_tensors[0] ** 2


def _autograd():
    x = flow.tensor([2.0], requires_grad=True)
    same(flow.autograd.grad(Cube.apply(x), x), [[12]])
    flow.autograd.backward([x * 5], [flow.ones(1)])
    same(x.grad, [5])
    with flow.autograd.no_grad():
        assert not flow.autograd.is_grad_enabled()
        with flow.autograd.enable_grad():
            assert flow.autograd.is_grad_enabled()
        with flow.autograd.set_grad_enabled(is_train=True):
            assert flow.autograd.is_grad_enabled()
    with flow.autograd.inference_mode():
        assert flow.ones(1).is_inference()
    same(flow.autograd.functional.jacobian(lambda a: a**2, flow.tensor([1.0, 2.0])), [[2, 0], [0, 4]])
    with flow.autograd.graph.saved_tensors_hooks(lambda t: t * 0, lambda t: t):
        same(flow.autograd.grad((x * x).sum(), x), [[0]])


NEEDS_A_DEVICE = ("current_device", "get_device_capability", "get_device_name", "get_device_properties", "set_device")


def _cuda():
    assert (
        flow.cuda.device_count() == torch.cuda.device_count() and flow.cuda.is_available() == torch.cuda.is_available()
    )
    flow.cuda.manual_seed(1)
    flow.cuda.manual_seed_all(1)
    flow.cuda.empty_cache()
    flow.cuda.synchronize()
    if not torch.cuda.is_available():
        for name in NEEDS_A_DEVICE:
            with pytest.raises(
                NoDeviceError,
                match=f"flow.cuda.{name} needs a CUDA device and there is none; ask flow.cuda.is_available",
            ):
                getattr(flow.cuda, name)(*[0] * (name == "set_device"))
    assert all(issubclass(type(getattr(flow.cuda, f"{kind}Tensor")), type) for kind in KINDS)


KINDS = ("Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long")


def _profiler():
    with flow.profiler.profile(activities=[flow.profiler.ProfilerActivity.CPU], record_shapes=True) as found:
        with flow.profiler.record_function("mine"):
            sq @ sq
        flow.profiler.range_push("outer")
        flow.profiler.range_pop()
    names = {event.key for event in found.key_averages()}
    assert {"mine", "outer", "aten::mm"} <= names, names
    with pytest.raises(ArgumentError, match="none is open in this thread"):
        flow.profiler.range_pop()
    with pytest.raises(ArgumentError, match="record_bandwidth_for_cuda is not measured"):
        flow.profiler.profile(record_bandwidth_for_cuda=True)
    if not torch.cuda.is_available():
        for steer in (flow.profiler.profiler_start, flow.profiler.profiler_stop):
            with pytest.raises(NoDeviceError, match="steers NVIDIA's profilers and there is no CUDA device"):
                steer()


GROUPS = {
    "autograd": (
        _autograd,
        [
            "Function",
            "backward",
            "enable_grad",
            "grad",
            "inference_mode",
            "is_grad_enabled",
            "no_grad",
            "set_grad_enabled",
        ],
    ),
    "cuda": (
        _cuda,
        [
            *NEEDS_A_DEVICE,
            "device_count",
            "is_available",
            "manual_seed",
            "manual_seed_all",
            "empty_cache",
            "synchronize",
            *(f"{k}Tensor" for k in KINDS),
        ],
    ),
    "profiler": (
        _profiler,
        [
            "ProfilerActivity",
            "profile",
            "profiler_start",
            "profiler_stop",
            "range_pop",
            "range_push",
            "record_function",
        ],
    ),
}
CALLS = {f"oneflow.linalg.{name}": gives(*row) for name, row in LINALG.items()}
CALLS |= {f"oneflow.{space}.{name}": call for space, (call, names) in GROUPS.items() for name in names}
