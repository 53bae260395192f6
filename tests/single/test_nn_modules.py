"""What ``flow.nn`` writes itself on tensors, against formulas: values, gradients, errors."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from oneflow import nn
from oneflow.engine.core.errors import ArgumentError, DTypeError
from oneflow.nn import functional as F

INT_TYPES = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    """Float64 that wants a gradient."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def close(given, wanted) -> None:
    torch.testing.assert_close(given, wanted, check_dtype=False)


# ------------------------------------------------------------------ losses


@pytest.mark.parametrize("dtype", INT_TYPES)
def test_class_numbers_are_of_any_integer_type(dtype):
    x, target = drawn(3, 4), torch.tensor([1, 0, 3])
    wanted = -x.log_softmax(1)[torch.arange(3), target]
    close(nn.CrossEntropyLoss()(x, target.to(dtype)), wanted.mean())
    close(F.cross_entropy(x, target.to(dtype), reduction="sum"), wanted.sum())
    close(nn.NLLLoss()(x.log_softmax(1), target.to(dtype)), wanted.mean())
    close(F.sparse_softmax_cross_entropy(target.to(dtype), x), wanted)
    close(F.one_hot(target.to(dtype), 4), torch.eye(4)[target])


def test_one_hot_rows_may_have_other_values():
    assert F.one_hot(torch.tensor([1, 0], dtype=torch.int32), 2, on_value=5.0, off_value=-1.0).tolist() == [
        [-1.0, 5.0],
        [5.0, -1.0],
    ]


def test_cross_entropy_takes_oneflows_parameters_by_position():
    x, weight = drawn(4, 3), torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    target = torch.tensor([0, 2, 1, 2], dtype=torch.int32)
    scores = -x.log_softmax(1)
    kept = torch.tensor([1.0, 0.0, 1.0, 0.0])  # 2 is ignored
    smooth = 0.9 * (weight[target.long()] * scores[torch.arange(4), target.long()]) + 0.1 / 3 * (scores * weight).sum(1)
    wanted = (smooth * kept).sum()
    close(nn.CrossEntropyLoss(weight, 2, "sum", 0.1)(x, target), wanted)
    close(F.cross_entropy(x, target, weight, 2, "sum", 0.1), wanted)


def test_cross_entropy_against_probabilities_keeps_their_gradient():
    x, shares = drawn(3, 4), drawn(3, 4, seed=1).softmax(1)
    close(F.cross_entropy(x, shares), -(shares * x.log_softmax(1)).sum(1).mean())
    assert gradcheck(F.cross_entropy, (x, shares))


@pytest.mark.parametrize(
    ("name", "args", "formula"),
    [
        ("L1Loss", ("sum",), lambda x, y: (x - y).abs().sum()),
        ("MSELoss", ("none",), lambda x, y: (x - y).square()),
        (
            "SmoothL1Loss",
            ("sum", 0.5),
            lambda x, y: torch.where((x - y).abs() < 0.5, (x - y).square(), (x - y).abs() - 0.25).sum(),
        ),
        ("KLDivLoss", ("mean", True), lambda x, y: (y.exp() * (y - x)).mean()),
        ("KLDivLoss", ("batchmean", True), lambda x, y: (y.exp() * (y - x)).sum() / 3),
        ("BCEWithLogitsLoss", (None, "sum"), lambda x, y: (torch.log1p(x.exp()) - x * y).sum()),
    ],
)
def test_losses_take_their_reduction_by_position(name, args, formula):
    x, y = drawn(3, 4), drawn(3, 4, seed=1)
    close(getattr(nn, name)(*args)(x, y), formula(x, y))


def test_torchs_names_of_the_reduction_are_taken_by_name():
    x, y = drawn(3, 4), drawn(3, 4, seed=1)
    with pytest.warns(UserWarning, match="size_average and reduce args will be deprecated"):
        close(F.mse_loss(x, y, size_average=False), (x - y).square().sum())
    with pytest.warns(UserWarning, match="size_average and reduce args will be deprecated"):
        close(nn.L1Loss(reduce=False)(x, y), (x - y).abs())


@pytest.mark.parametrize(
    "name",
    ["L1Loss", "MSELoss", "KLDivLoss", "SmoothL1Loss", "CrossEntropyLoss", "NLLLoss", "BCELoss", "BCEWithLogitsLoss"],
)
def test_an_unknown_reduction_is_named(name):
    with pytest.raises(ArgumentError, match=f"{name}: reduction is one of 'mean', 'sum', 'none'; got 'average'"):
        getattr(nn, name)(reduction="average")


def test_sparse_softmax_cross_entropy_has_the_gradient_of_its_formula():
    x, labels = drawn(2, 3, 4), torch.tensor([[0, 3, 1], [2, 2, 0]], dtype=torch.int32)
    (given,) = torch.autograd.grad(F.sparse_softmax_cross_entropy(labels, x).sum(), x)
    close(given, x.softmax(-1) - torch.nn.functional.one_hot(labels.long(), 4))


def test_sparse_softmax_cross_entropy_refuses_what_are_no_labels():
    with pytest.raises(
        DTypeError, match=r"labels are class numbers, got torch.float32; the order is \(labels, logits\)"
    ):
        F.sparse_softmax_cross_entropy(torch.ones(3, 4), torch.ones(3))
    with pytest.raises(ArgumentError, match=r"got labels \(4,\) and logits \(3, 4\)"):
        F.sparse_softmax_cross_entropy(torch.ones(4, dtype=torch.int32), torch.ones(3, 4))


@pytest.mark.parametrize("margins", [(1.0, 0.5, 0.0), (0.9, 0.4, 0.15), (1.0, 0.0, 0.35)])
def test_combined_margins_change_the_labels_cosine_alone(margins):
    cosines, labels = drawn(3, 5).detach().tanh().requires_grad_(), torch.tensor([4, 0, 2], dtype=torch.int32)
    m1, m2, m3 = margins
    wanted = cosines.detach().numpy().copy()
    for row, label in enumerate(labels.tolist()):
        wanted[row, label] = math.cos(m1 * math.acos(wanted[row, label]) + m2) - m3
    layer = nn.CombinedMarginLoss(*margins)
    close(layer(cosines, labels).detach(), torch.from_numpy(wanted))
    assert gradcheck(lambda x: layer(x, labels), (cosines,))


def test_a_margin_without_an_angle_has_a_gradient_at_one():
    cosines = torch.ones(1, 2, requires_grad=True)
    nn.CombinedMarginLoss(m3=0.2)(cosines, torch.tensor([1])).sum().backward()
    assert cosines.grad.tolist() == [[1.0, 1.0]]


def test_combined_margins_refuse_shapes_that_do_not_fit():
    with pytest.raises(
        ArgumentError, match=r"cosines \(batch, classes\) and labels \(batch,\), got \(3, 5\) and \(3, 1\)"
    ):
        nn.CombinedMarginLoss()(torch.ones(3, 5), torch.ones(3, 1, dtype=torch.int64))


# ------------------------------------------------------------------ activations and dropout


@pytest.mark.parametrize("shape", [(5,), (2, 3), (2, 3, 4), (2, 3, 4, 5)])
def test_softmax_without_dim_is_over_the_last(shape):
    x = drawn(*shape)
    wanted = x.exp() / x.exp().sum(-1, keepdim=True)
    for given in (F.softmax(x), nn.Softmax()(x), F.log_softmax(x).exp(), nn.LogSoftmax()(x).exp()):
        close(given, wanted)


@pytest.mark.parametrize(("layer", "formula"), [
    (nn.Hardshrink, lambda x: torch.where(x.abs() > 0.5, x, 0.0)),
    (nn.Softshrink, lambda x: torch.sign(x) * (x.abs() - 0.5).clamp(min=0)),
    (nn.Softsign, lambda x: x / (1 + x.abs())),
])  # fmt: skip
def test_in_place_activations_write_over_their_input_and_keep_its_gradient(layer, formula):
    x = drawn(4, 5)
    inner = x * 2
    result = layer(inplace=True)(inner)
    assert result.data_ptr() == inner.data_ptr()
    close(result, formula(x * 2))
    (given,) = torch.autograd.grad(result.sum(), x)
    (wanted,) = torch.autograd.grad(formula(x * 2).sum(), x)
    close(given, wanted)
    plain = torch.ones(3)
    assert layer(inplace=True)(plain) is plain and layer()(plain) is not plain


def test_quick_gelu_has_the_gradient_of_its_formula():
    assert gradcheck(nn.QuickGELU(), (drawn(3, 4),))


def test_a_dropout_with_a_generator_draws_from_it_alone():
    x = torch.ones(1000)
    layer = nn.Dropout(0.25, generator=torch.Generator().manual_seed(5))
    torch.manual_seed(0)
    first, state = layer(x), torch.get_rng_state()
    torch.manual_seed(0)
    assert torch.equal(torch.get_rng_state(), state)
    assert first.unique().tolist() == pytest.approx([0.0, 4 / 3]) and 200 < int((first == 0).sum()) < 300
    assert not torch.equal(first, layer(x)) and torch.equal(
        first, nn.Dropout(0.25, generator=torch.Generator().manual_seed(5))(x)
    )
    assert layer.eval()(x) is x


@pytest.mark.parametrize(
    ("layer", "shape"), [(nn.Dropout1d, (50, 8, 3)), (nn.Dropout2d, (50, 8, 2, 3)), (nn.Dropout3d, (50, 8, 2, 2, 3))]
)
def test_channel_dropouts_drop_whole_channels(layer, shape):
    x = torch.ones(shape)
    found = layer(0.5, generator=torch.Generator().manual_seed(1))(x).flatten(2)
    assert torch.equal(found, found[:, :, :1].expand_as(found)) and set(found.unique().tolist()) == {0.0, 2.0}
    written = layer(0.5, True, torch.Generator().manual_seed(1))(x)
    assert written is x and torch.equal(written.flatten(2), found)


def test_dropout_adds_its_addend_after_dropping():
    x, addend = drawn(40), drawn(40, seed=1)
    found = nn.Dropout(0.5, generator=torch.Generator().manual_seed(1))(x, addend)
    mask = (found - addend).detach() / x.detach()
    assert set(mask.round(decimals=9).unique().tolist()) == {0.0, 2.0}
    given = torch.autograd.grad(found.sum(), (x, addend))
    close(given[0], mask)
    close(given[1], torch.ones(40))


def test_everything_is_dropped_at_one_and_nothing_at_zero():
    x = torch.ones(5)
    generator = torch.Generator().manual_seed(1)
    assert F.dropout(x, 1.0, generator=generator).tolist() == [0.0] * 5 and F.dropout(x, 0.0, generator=generator) is x
    assert F.dropout(x, 0.0, True, True) is x, "torch's fourth parameter is inplace"


def test_a_dropout_refuses_what_is_no_generator_or_rate():
    with pytest.raises(DTypeError, match="Dropout2d: generator is a flow.Generator or None, got 3"):
        nn.Dropout2d(generator=3)
    with pytest.raises(DTypeError, match="generator is a flow.Generator or None, got 3"):
        F.dropout(torch.ones(2), generator=3)
    with pytest.raises(ArgumentError, match="p is a number from 0 to 1, got 1.5"):
        F.dropout(torch.ones(2), 1.5, generator=torch.Generator())


def test_two_names_of_one_parameter_are_refused():
    with pytest.raises(ArgumentError, match="leaky_relu: alpha and negative_slope are two names of one parameter"):
        F.leaky_relu(torch.ones(2), alpha=0.1, negative_slope=0.1)
    with pytest.raises(ArgumentError, match="ParameterList: parameters and values are two names of one parameter"):
        nn.ParameterList([], values=[])


def test_gumbel_softmax_tells_its_order():
    with pytest.raises(ArgumentError, match=r"dim is an int, got 0.5; the order is \(x, dim, tau, hard\)"):
        F.gumbel_softmax(torch.ones(2, 3), 0.5, True)
    hard = F.gumbel_softmax(torch.zeros(4, 3), 1, 1.0, True)
    assert hard.sum(1).tolist() == [1.0] * 4 and set(hard.unique().tolist()) == {0.0, 1.0}


def test_a_name_of_torchs_is_taken_too():
    x = drawn(2, 3)
    close(F.softmax(input=x, dim=0), x.softmax(0))
    close(F.max_pool1d(input=x, kernel_size=2), torch.nn.functional.max_pool1d(x, 2))
    close(F.normalize(x, eps=50.0), x / 50)
    close(F.gumbel_softmax(logits=x, tau=1.0, hard=True).sum(-1), torch.ones(2))


# ------------------------------------------------------------------ pools and pixels


def test_pools_with_channels_last_give_places_in_the_plane():
    x = drawn(2, 6, 7, 3)
    largest, places = F.max_pool2d(x, 2, return_indices=True, data_format="channels_last")
    wanted, at = torch.nn.functional.max_pool2d(x.permute(0, 3, 1, 2), 2, return_indices=True)
    assert torch.equal(largest, wanted.permute(0, 2, 3, 1)) and torch.equal(places, at.permute(0, 2, 3, 1))
    assert gradcheck(lambda value: F.max_pool2d(value, 2, data_format="channels_last"), (x,))
    with pytest.raises(
        ArgumentError, match="max_pool3d: data_format is 'channels_first' or 'channels_last', got 'NCDHW'"
    ):
        F.max_pool3d(torch.ones(1, 1, 2, 2, 2), 2, data_format="NCDHW")


def test_pixels_are_shuffled_by_two_factors():
    x = drawn(2, 12, 4, 5)
    found = nn.PixelShuffle(h_upscale_factor=2, w_upscale_factor=3)(x)
    wanted = np.zeros((2, 2, 8, 15))
    for c in range(2):
        for i in range(2):
            for j in range(3):
                wanted[:, c, i::2, j::3] = x.detach()[:, c * 6 + i * 3 + j]
    close(found.detach(), torch.from_numpy(wanted))
    assert gradcheck(nn.PixelShuffle(None, 2, 3), (x,))


@pytest.mark.parametrize("factors", [(), (2, 2, None), (2, 2, 2), (None, 2, None)])
def test_pixel_shuffle_takes_one_factor_or_two(factors):
    with pytest.raises(
        ArgumentError, match="PixelShuffle takes upscale_factor, or h_upscale_factor and w_upscale_factor; got"
    ):
        nn.PixelShuffle(*factors)


def test_pixel_shuffle_refuses_what_cannot_be_shuffled():
    with pytest.raises(ArgumentError, match="PixelShuffle's upscale factor is an int > 0, got 0"):
        nn.PixelShuffle(0)
    with pytest.raises(
        ArgumentError,
        match=r"PixelShuffle by 2 x 3 takes \(..., channels, height, width\), channels a multiple of 6; got \(1, 4, 2, 2\)",
    ):
        nn.PixelShuffle(None, 2, 3)(torch.ones(1, 4, 2, 2))


# ------------------------------------------------------------------ normalisation and layers


def test_rms_norms_have_their_formula_and_gradient():
    x = drawn(3, 4)
    for layer, epsilon in ((nn.RMSNorm(4), 1e-5), (nn.RMSLayerNorm(4), 1e-6), (nn.RMSNorm((4,), 0.1), 0.1)):
        layer = layer.double()
        torch.nn.init.normal_(layer.weight)
        close(layer(x), x / (x.square().mean(1, keepdim=True) + epsilon).sqrt() * layer.weight)
        assert gradcheck(layer, (x,))


def test_rms_layer_norm_computes_in_float32_and_gives_the_weights_dtype():
    x = torch.full((2, 8), 300.0, dtype=torch.float16)  # the square is beyond float16
    layer = nn.RMSLayerNorm(8).half()
    assert layer(x).dtype == torch.float16
    close(layer(x), torch.ones(2, 8))


@pytest.mark.parametrize(
    ("layer", "shape"),
    [(nn.FusedBatchNorm1d, (6, 3)), (nn.FusedBatchNorm2d, (2, 3, 2, 3)), (nn.FusedBatchNorm3d, (2, 3, 2, 2, 2))],
)
def test_fused_batch_norms_add_and_cut_off(layer, shape):
    x, addend = drawn(*shape), drawn(*shape, seed=1)
    fused = layer(3).double()
    dims = [d for d in range(len(shape)) if d != 1]
    normal = (x - x.mean(dims, keepdim=True)) / (x.var(dims, correction=0, keepdim=True) + 1e-5).sqrt()
    close(fused(x, addend), (normal + addend).clamp(min=0))
    close(fused(x), normal.clamp(min=0))
    assert int(fused.num_batches_tracked) == 2 and isinstance(fused, torch.nn.modules.batchnorm._BatchNorm)
    assert gradcheck(fused, (x, addend))
    with pytest.raises(ArgumentError, match="a fused batch norm takes an addend of the shape of its input"):
        fused(x, addend[:1])


def test_a_fused_mlp_is_linear_layers():
    mlp = nn.FusedMLP(4, [5, 3], 2).double()
    x = drawn(6, 4)
    wanted = x
    for number in range(3):
        wanted = (wanted @ mlp.weight(number).t() + mlp.bias(number)).clamp(min=0)
    close(mlp(x), wanted)
    assert gradcheck(nn.FusedMLP(4, (5,), 2, skip_final_activation=True).double(), (x,))
    assert sorted(mlp.state_dict()) == ["bias_0", "bias_1", "bias_2", "weight_0", "weight_1", "weight_2"]
    assert all(bool((value.detach().abs() <= 0.5).all()) for value in (mlp.weight_0, mlp.bias_0)), (
        "1 / sqrt(4) is the bound"
    )


def test_a_fused_mlp_drops_in_training_alone():
    mlp = nn.FusedMLP(4, (1000,), 3, (0.5,), 0.0, True)
    x = torch.ones(1, 4)
    torch.manual_seed(1)
    first, second = mlp(x), mlp(x)
    assert not torch.equal(first, second) and torch.equal(mlp.eval()(x), mlp(x))


def test_a_fused_mlp_refuses_rates_that_do_not_fit():
    with pytest.raises(ArgumentError, match="hidden_dropout_rate has a rate for each of the 2 hidden layers, got 1"):
        nn.FusedMLP(4, (5, 6), 2, (0.1,))
    with pytest.raises(ArgumentError, match=r"a dropout rate is from 0 to 1, got \(0.0, 1.5\)"):
        nn.FusedMLP(4, (5,), 2, out_dropout_rate=1.5)


# ------------------------------------------------------------------ ctc and deformable convolution


def greedy(scores: np.ndarray, length: int, merge: bool) -> list[int]:
    best = scores[:length].argmax(1).tolist()
    kept = [c for t, c in enumerate(best) if not (merge and t and best[t - 1] == c)]
    return [c for c in kept if c != 0]


@pytest.mark.parametrize("merge", [True, False])
def test_ctc_greedy_decoding_takes_the_best_of_each_step(merge):
    scores = np.random.default_rng(3).normal(size=(9, 5, 3))
    lengths = [9, 0, 4, 1, 7]
    decoded, negated = F.ctc_greedy_decoder(torch.from_numpy(scores), torch.tensor(lengths, dtype=torch.int32), merge)
    for n, length in enumerate(lengths):
        wanted = greedy(scores[:, n], length, merge)
        assert decoded[n].tolist() == wanted + [0] * (9 - len(wanted))
    close(
        negated[:, 0],
        torch.tensor([-scores[:length, n].max(1).sum() if length else 0.0 for n, length in enumerate(lengths)]),
    )


def test_ctc_greedy_decoding_refuses_what_does_not_fit():
    with pytest.raises(
        ArgumentError,
        match=r"log_probs is \(time, batch, classes\) and input_lengths \(batch,\), got \(4, 3\) and \(3,\)",
    ):
        F.ctc_greedy_decoder(torch.ones(4, 3), torch.ones(3))
    with pytest.raises(ArgumentError, match=r"input_lengths are from 0 to 4, got \[5\]"):
        F.ctc_greedy_decoder(torch.ones(4, 1, 3), torch.tensor([5]))


def sampled(plane: np.ndarray, y: float, x: float) -> float:
    """Bilinear, zeros outside."""
    total, top, left = 0.0, math.floor(y), math.floor(x)
    for i in (top, top + 1):
        for j in (left, left + 1):
            if 0 <= i < plane.shape[0] and 0 <= j < plane.shape[1]:
                total += plane[i, j] * (1 - abs(y - i)) * (1 - abs(x - j))
    return total


def deformed(x, offset, weight, mask, stride, padding, dilation) -> np.ndarray:
    """The convolution written out, loop by loop."""
    n, c = x.shape[:2]
    out, per_group, kh, kw = weight.shape
    oh, ow = offset.shape[2:]
    groups, offset_groups = c // per_group, offset.shape[1] // (2 * kh * kw)
    result = np.zeros((n, out, oh, ow))
    for b, o, p, q, k, i, j in np.ndindex(n, out, oh, ow, per_group, kh, kw):
        channel = o // (out // groups) * per_group + k
        point = channel // (c // offset_groups) * kh * kw + i * kw + j
        y = p * stride[0] - padding[0] + i * dilation[0] + offset[b, 2 * point, p, q]
        z = q * stride[1] - padding[1] + j * dilation[1] + offset[b, 2 * point + 1, p, q]
        result[b, o, p, q] += weight[o, k, i, j] * mask[b, point, p, q] * sampled(x[b, channel], y, z)
    return result


@pytest.mark.parametrize(("groups", "offset_groups"), [(1, 1), (2, 2), (2, 1)])
def test_deformable_convolution_samples_at_moved_points(groups, offset_groups):
    stride, padding, dilation = (2, 1), (1, 0), (1, 2)
    x, weight = drawn(1, 4, 5, 6), drawn(2, 4 // groups, 2, 2, seed=1)
    size = ((5 + 2 - 1 - 1) // 2 + 1, (6 - 2 - 1) + 1)
    offset, mask = drawn(1, 8 * offset_groups, *size, seed=2), drawn(1, 4 * offset_groups, *size, seed=3)
    bias = drawn(2, seed=4)

    def call(*inputs):
        return F.deform_conv2d(*inputs[:4], stride, padding, dilation, inputs[4])

    inputs = (x, offset, weight, bias, mask)
    numbers = [value.detach().numpy() for value in (x, offset, weight, mask)]
    close(
        call(*inputs).detach(),
        torch.from_numpy(deformed(*numbers, stride, padding, dilation)) + bias.detach().reshape(1, -1, 1, 1),
    )
    assert gradcheck(call, inputs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input": torch.ones(4, 5, 5)}, "input, offset and weight have rank 4, got 3, 4 and 4"),
        (
            {"offset": torch.ones(1, 8, 5, 5)},
            r"offset is \(batch, 2 x groups x 4, 4, 4\) with groups that divide the 4 channels, got \(1, 8, 5, 5\)",
        ),
        ({"offset": torch.ones(1, 2, 4, 4)}, r"got \(1, 2, 4, 4\) for a batch of 1"),
        ({"weight": torch.ones(3, 3, 2, 2)}, r"weight \(3, 3, 2, 2\) does not fit 4 channels"),
        ({"mask": torch.ones(1, 3, 4, 4)}, r"mask is \(1, 4, 4, 4\), got \(1, 3, 4, 4\)"),
        ({"stride": (1, 2, 3)}, r"stride is an int or two, got \(1, 2, 3\)"),
    ],
)
def test_deformable_convolution_refuses_what_does_not_fit(changes, message):
    fitting = {"input": torch.ones(1, 4, 5, 5), "offset": torch.zeros(1, 8, 4, 4), "weight": torch.ones(2, 4, 2, 2)}
    with pytest.raises(ArgumentError, match=f"deform_conv2d: .*{message}"):
        F.deform_conv2d(**{**fitting, **changes})


# ------------------------------------------------------------------ weight norm, and modules as values


def test_a_weight_norm_comes_once_and_only_on_parameters():
    layer = nn.utils.weight_norm(nn.Linear(3, 2))
    with pytest.raises(ArgumentError, match="parameter 'weight' has a weight_norm already"):
        nn.utils.weight_norm(layer)
    with pytest.raises(ArgumentError, match=r"Linear has no parameter 'bias'; it has \['weight'\]"):
        nn.utils.weight_norm(nn.Linear(3, 2, bias=False), "bias")


@pytest.mark.parametrize(
    "layer",
    [nn.Dropout(0.3, generator=torch.Generator().manual_seed(1)), nn.CrossEntropyLoss(None, 3), nn.FusedMLP(2, (3,), 1), nn.PixelShuffle(None, 2, 3), nn.RMSLayerNorm(4)],
    ids=lambda layer: type(layer).__name__,
)  # fmt: skip
def test_modules_written_here_are_pickled_as_any_other(layer):
    again = pickle.loads(pickle.dumps(layer))
    assert type(again) is type(layer) and repr(again) == repr(layer)
    assert all(torch.equal(a, b) for a, b in zip(again.state_dict().values(), layer.state_dict().values()))


def test_a_small_network_of_both_learns():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.RMSNorm(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
    x = torch.randn(64, 4)
    y = x[:, :3].argmax(1).int()
    loss, optimizer = nn.CrossEntropyLoss(), torch.optim.Adam(net.parameters(), 0.05)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        losses.append(loss(net(x), y))
        losses[-1].backward()
        optimizer.step()
    assert float(losses[-1].detach()) < 0.3 * float(losses[0].detach())
