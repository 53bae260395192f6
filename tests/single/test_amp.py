"""``flow.amp``: autocast, and loss scales in eager programs and as graphs take them."""

from __future__ import annotations

import pytest
import torch

from oneflow import amp, optim
from oneflow.amp.grad_scaler import GradScaler as ByPath
from oneflow.cuda import amp as cuda_amp
from oneflow.optimizer.loss_scale import LossScale

HAS_NO_GPU = not torch.cuda.is_available()


def made(gradient: float = 2.0) -> tuple[torch.nn.Parameter, torch.optim.Optimizer, torch.Tensor]:
    """A parameter, its optimizer, and a loss with that gradient."""
    w = torch.nn.Parameter(torch.ones(2))
    return w, optim.SGD([w], lr=0.5), (w * gradient).sum()


# ---------------------------------------------------------------------------------------------------------------
# autocast


def test_autocast_computes_in_bfloat16_on_the_cpu():
    a = torch.randn(4, 4)
    with amp.autocast("cpu"):
        assert (a @ a).dtype == torch.bfloat16
        with amp.autocast("cpu", enabled=False):
            assert (a @ a).dtype == torch.float32
    with amp.autocast("cpu", dtype=torch.float16):
        assert (a @ a).dtype == torch.float16


def test_a_function_can_be_wrapped():
    product = amp.autocast_decorator(amp.autocast("cpu"), lambda a: a @ a)
    assert product(torch.randn(4, 4)).dtype == torch.bfloat16


@pytest.mark.skipif(not HAS_NO_GPU, reason="tells what happens without a GPU")
@pytest.mark.parametrize("make", [lambda: amp.autocast("cuda"), cuda_amp.autocast])
def test_autocast_for_a_gpu_that_is_not_there_warns_and_does_nothing(make):
    a = torch.randn(4, 4)
    with pytest.warns(UserWarning, match="CUDA is not available"):
        context = make()
    with context:
        assert (a @ a).dtype == torch.float32


# ---------------------------------------------------------------------------------------------------------------
# scalers


def test_a_scale_is_divided_out_of_the_gradients():
    w, optimizer, loss = made()
    scaler = amp.GradScaler(init_scale=8.0)
    scaler.scale(loss).backward()
    assert w.grad.tolist() == [16.0, 16.0]
    scaler.step(optimizer)
    scaler.update()
    assert w.tolist() == [0.0, 0.0] and scaler.get_scale() == 8.0


def test_gradients_are_unscaled_before_they_are_clipped():
    w = torch.nn.Parameter(torch.ones(4))
    optimizer = optim.SGD([{"params": [w], "clip_grad_max_norm": 1.0, "clip_grad_norm_type": 2.0}], lr=1.0)
    scaler = amp.GradScaler(init_scale=8.0)
    scaler.scale((w * 3).sum()).backward()
    scaler.unscale_(optimizer)
    assert w.grad.tolist() == [3.0] * 4
    optimizer.clip_grad()
    scaler.step(optimizer)
    assert w.tolist() == pytest.approx([0.5] * 4, rel=1e-5)


def test_an_update_that_overflows_is_left_out_and_the_scale_falls():
    w, optimizer, loss = made(float("inf"))
    scaler = amp.GradScaler(init_scale=8.0, growth_factor=4.0, backoff_factor=0.25, growth_interval=2)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert w.tolist() == [1.0, 1.0] and optimizer.step_count == 0 and scaler.get_scale() == 2.0
    for scale in (2.0, 8.0):
        optimizer.zero_grad()
        scaler.scale((w * 2).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == scale


def test_a_scaler_tells_a_graph_its_numbers():
    scaler = amp.GradScaler(init_scale=8.0, growth_factor=4.0, backoff_factor=0.25, growth_interval=3)
    assert scaler.loss_scale() == LossScale(8.0, 3, 4.0) and scaler.loss_scale().is_dynamic
    assert amp.GradScaler().loss_scale() == LossScale(2.0**16, 2000, 2.0)
    assert amp.GradScaler(enabled=False).loss_scale() == LossScale()
    assert (
        amp.StaticGradScaler(128).loss_scale() == LossScale(128.0)
        and not amp.StaticGradScaler(128).loss_scale().is_dynamic
    )


def test_the_state_of_a_scaler_is_saved_and_loaded():
    scaler = amp.GradScaler(init_scale=8.0)
    scaler.load_state_dict(amp.GradScaler(init_scale=32.0, growth_interval=5).state_dict())
    assert scaler.get_scale() == 32.0 and scaler.loss_scale() == LossScale(32.0, 5, 2.0)
    static = amp.StaticGradScaler(8.0)
    static.load_state_dict(amp.StaticGradScaler(4.0).state_dict())
    assert static.get_scale() == 4.0


def test_a_static_scale_is_divided_out_once_and_stays():
    w, optimizer, loss = made()
    scaler = amp.StaticGradScaler(8.0)
    for _ in range(2):
        optimizer.zero_grad()
        scaler.scale([(w * 2).sum()])[0].backward()
        scaler.unscale_(optimizer)
        assert w.grad.tolist() == [2.0, 2.0]
        with pytest.raises(ValueError, match=r"unscale_\(\) was called for this optimizer since its last step\(\)"):
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    optimizer.zero_grad()
    scaler.scale((w * 2).sum()).backward()
    scaler.step(optimizer)
    assert w.tolist() == [-2.0, -2.0] and scaler.get_scale() == 8.0


def test_the_paths_of_older_programs():
    assert ByPath is amp.GradScaler is cuda_amp.GradScaler and cuda_amp.StaticGradScaler is amp.StaticGradScaler


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: amp.GradScaler(growth_factor=2.0, backoff_factor=0.25),
            "backoff_factor is 1 / growth_factor, so 0.5 for 2.0; got 0.25",
        ),
        (lambda: amp.GradScaler(growth_factor=1.0, backoff_factor=1.0), "growth_factor is a number > 1, got 1.0"),
        (lambda: amp.GradScaler(init_scale=0), "init_scale is a number > 0, got 0"),
        (lambda: amp.GradScaler(growth_interval=0), "growth_interval is an int > 0, got 0"),
        (lambda: amp.StaticGradScaler(0), "scale_factor is a number > 0, got 0"),
        (
            lambda: amp.StaticGradScaler(2).scale("loss"),
            r"scale\(\) takes a tensor, or a list or tuple of them, got str",
        ),
    ],
)
def test_what_scalers_refuse(make, message):
    with pytest.raises(ValueError, match=message):
        make()
