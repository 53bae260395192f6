"""Functions of tensors that are written here: what they refuse, and their gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import oneflow as flow
from oneflow.engine.core.errors import ArgumentError, UnsupportedError

REFUSED = {
    "indices of another batch": (
        lambda: flow.batch_gather(flow.ones(2, 3), flow.zeros(3, 1, dtype=flow.int64)),
        r"batch_gather takes indices whose leading dims are those of input; got \(2, 3\) and \(3, 1\)",
    ),
    "too few new axes": (
        lambda: flow.broadcast_like(flow.ones(3), flow.ones(2, 3, 4), [0]),
        r"broadcast_axes names \[0\]; x has 1 dims and the like tensor 3, so 2 axes are new",
    ),
    "no dim of three": (
        lambda: flow.cross(flow.ones(2, 4), flow.ones(2, 4)),
        r"flow.cross takes tensors with a dim of size 3, got \(2, 4\)",
    ),
    "labels of one kind": (
        lambda: flow.roc_auc_score(flow.ones(3), flow.rand(3)),
        "needs labels of both kinds, got 3 that are not 0 and 0 that are",
    ),
    "fewer labels": (
        lambda: flow.roc_auc_score(flow.ones(2), flow.rand(3)),
        r"as many labels as predictions, got \(2,\) and \(3,\)",
    ),
    "groups that the shapes have not": (
        lambda: flow.deform_conv2d(
            *(flow.ones(1, 4, 5, 5), flow.ones(2, 2, 2, 2), flow.zeros(1, 8, 4, 4), None, None),
            *(1, 1, 0, 0, 1, 1),
            1,
            2,
            False,
        ),
        r"have 2 groups and 1 groups of offsets for 4 channels, got groups=1 and offset_groups=2; give these, or other shapes",
    ),
    "half of a slice": (
        lambda: flow.slice(flow.ones(3), [[0, 1]]),
        r"flow.slice takes \(start, stop, step\) for at most 1 dims, got \[\[0, 1\]\]",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_arguments_are_refused_at_the_users_line(case):
    call, message = REFUSED[case]
    with pytest.raises(ArgumentError, match=rf"test_eager.py:\d+: .*{message}"):
        call()


def test_numpy_has_no_bfloat16():
    with pytest.raises(UnsupportedError, match="numpy has no torch.bfloat16; cast the tensor to float32 first"):
        flow.convert_oneflow_dtype_to_numpy_dtype(flow.bfloat16)
    assert flow.convert_oneflow_dtype_to_numpy_dtype(flow.bool) is np.bool_


def test_a_name_that_nobody_knows_is_told_the_nearest():
    with pytest.raises(AttributeError, match="module 'oneflow' has no attribute 'resahpe'. Did you mean 'reshape'?"):
        flow.resahpe  # noqa: B018
    with pytest.raises(
        AttributeError, match="module 'oneflow._C' has no attribute 'fused_glue'. Did you mean 'fused_glu'?"
    ):
        flow._C.fused_glue  # noqa: B018


def test_broadcast_like_puts_new_axes_where_they_are_named():
    x, like = flow.tensor([1.0, 2.0, 3.0]), flow.ones(2, 3, 4)
    np.testing.assert_array_equal(
        flow.broadcast_like(x, like, [0, -1]), np.broadcast_to(np.array([1, 2, 3])[None, :, None], (2, 3, 4))
    )


def test_sampling_between_pixels_has_gradients():
    generator = torch.Generator().manual_seed(0)
    maps = torch.rand(1, 2, 4, 4, dtype=torch.float64, generator=generator, requires_grad=True)
    weight = torch.rand(2, 1, 2, 2, dtype=torch.float64, generator=generator, requires_grad=True)
    offset = (torch.rand(1, 8, 3, 3, dtype=torch.float64, generator=generator) * 0.8 + 0.1).requires_grad_()
    mask = torch.rand(1, 4, 3, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    rois = flow.tensor([[0, 0.3, 0.2, 3.1, 3.3]], dtype=flow.float64)
    assert torch.autograd.gradcheck(lambda m: flow.roi_align(m, rois, 1.0, 2, 2, 2, True), maps)
    conv = lambda m, w, o, k: flow.deform_conv2d(m, w, o, k, None, 1, 1, 0, 0, 1, 1, 2, 1, True)  # noqa: E731
    assert torch.autograd.gradcheck(conv, (maps, weight, offset, mask))


def test_a_deformable_convolution_without_offsets_is_a_convolution():
    x, weight, bias = torch.randn(2, 4, 7, 6), torch.randn(6, 2, 3, 2), torch.randn(6)
    expected = torch.nn.functional.conv2d(x, weight, bias, (2, 1), (1, 2), (2, 1), 2)
    found = flow.deform_conv2d(
        x, weight, torch.zeros(2, 12, *expected.shape[2:]), None, bias, 2, 1, 1, 2, 2, 1, 2, 1, False
    )
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", ["scatter_nd", "tensor_scatter_nd_update", "gather_nd", "batch_gather"])
def test_positions_pass_gradients(name):
    x = torch.rand(3, 2, dtype=torch.float64, requires_grad=True)
    index = flow.tensor([[2], [0]], dtype=flow.int32)
    calls = {
        "scatter_nd": lambda t: flow.scatter_nd(index, t[:2], (3, 2)),
        "tensor_scatter_nd_update": lambda t: flow.tensor_scatter_nd_update(t, index, t[:2] * 2),
        "gather_nd": lambda t: flow.gather_nd(t, index),
        "batch_gather": lambda t: flow.batch_gather(t[:2], index * 0 + 1),
    }
    assert torch.autograd.gradcheck(calls[name], x)


def test_a_graph_under_way_makes_tensors_lazy():
    from torch.fx.experimental.proxy_tensor import make_fx

    seen = []
    make_fx(lambda t: (seen.append((t.is_lazy, t.is_eager)), t + 1)[1])(flow.ones(2))
    assert seen == [(True, False)] and flow.ones(2).is_eager
