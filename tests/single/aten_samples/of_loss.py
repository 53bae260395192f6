"""Samples of ``onnx/aten/loss.py``."""

import torch

from aten_samples.sample import AtenSample, call, ints, rand, randn

F = randn


def classes(*shape: int) -> torch.Tensor:
    found = ints(*shape, low=0, high=4)
    found.flatten()[0] = 1
    found.flatten()[1] = -100
    return found


SAMPLES = [
    *(
        AtenSample(f"{name}.default", lambda n, r=r: call(F(n, 3), F(n, 3), r))
        for name in ("mse_loss", "huber_loss", "smooth_l1_loss")
        for r in (0, 1, 2)
    ),
    AtenSample("huber_loss.default", lambda n: call(F(n, 3) * 3, F(n, 3), 1, 0.7)),
    AtenSample("smooth_l1_loss.default", lambda n: call(F(n, 3) * 3, F(n, 3), 2, 0.7)),
    AtenSample("smooth_l1_loss.default", lambda n: call(F(n, 3) * 3, F(n, 3), 1, 0.0)),
    AtenSample("soft_margin_loss.default", lambda n: call(F(n, 3), F(n, 3).sign())),
    AtenSample("binary_cross_entropy.default", lambda n: call(rand(n, 3), rand(n, 3), rand(3))),
    AtenSample(
        "binary_cross_entropy.default",
        lambda n: call(torch.tensor([[0.0, 1.0, 0.5]]).repeat(n, 1), rand(n, 3), None, 0),
    ),
    AtenSample("binary_cross_entropy_with_logits.default", lambda n: call(F(n, 3) * 4, rand(n, 3))),
    AtenSample("binary_cross_entropy_with_logits.default", lambda n: call(F(n, 3), rand(n, 3), rand(3), rand(3), 2)),
    *(
        AtenSample("nll_loss_forward.default", lambda n, r=r: call(F(2 * n, 4), classes(2 * n), rand(4), r, -100))
        for r in (0, 1, 2)
    ),
    AtenSample("nll_loss_forward.default", lambda n: call(F(2 * n, 4), classes(2 * n), None, 1, -100)),
    AtenSample("nll_loss_forward.default", lambda n: call(F(4), torch.tensor(2), None, 1, -100), fixed=True),
    AtenSample("nll_loss2d_forward.default", lambda n: call(F(n, 4, 2, 3), classes(n, 2, 3), rand(4), 1, -100)),
]
