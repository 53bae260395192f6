"""The optimizer and its learning rate, from the flags."""

from __future__ import annotations

from typing import Any

from config import Arguments

import oneflow as flow

BATCH_NORM = "_bn[-_]"  # what the variables of batch normalisations have in their names


def learning_rate(args: Arguments) -> Any:
    """Rises from 0 for the epochs of warm-up, then falls as ``--lr_decay`` says, so that the last epoch is the end of
    it."""
    base, steps = args.learning_rate, args.num_epochs * args.epoch_size
    warmup_steps = args.warmup_epochs * args.epoch_size
    warmup = flow.optimizer.warmup.linear(warmup_steps, 0.0) if warmup_steps else None
    if args.lr_decay == "cosine":
        return flow.optimizer.CosineScheduler(base, steps, warmup=warmup)
    if args.lr_decay == "step":
        boundaries = [epoch * args.epoch_size for epoch in (30, 60, 80)]
        return flow.optimizer.PiecewiseScalingScheduler(base, boundaries, [0.1, 0.01, 0.001], warmup=warmup)
    if args.lr_decay == "polynomial":
        return flow.optimizer.PolynomialScheduler(base, steps, end_learning_rate=1e-5, warmup=warmup)
    if args.lr_decay == "exponential":
        return flow.optimizer.ExponentialScheduler(
            base, args.lr_decay_epochs * args.epoch_size, args.lr_decay_rate, warmup=warmup
        )
    return flow.optimizer.PiecewiseConstantScheduler([], [base], warmup=warmup)


def make_optimizer(args: Arguments) -> Any:
    """``--wd`` decays all but batch normalisation, and works with every optimizer but rmsprop."""
    common: dict[str, Any] = {}
    if args.gradient_clipping > 0:
        common["grad_clipping"] = flow.optimizer.grad_clipping.by_global_norm(args.gradient_clipping)
    if args.use_fp16:
        common["loss_scale_policy"] = flow.optimizer.loss_scale.dynamic_loss_scale(increment_period=2000)
    decay = {"weight_decay": args.wd, "weight_decay_excludes": BATCH_NORM}
    rate = learning_rate(args)
    if args.model_update == "rmsprop":
        return flow.optimizer.RMSProp(rate, decay_rate=args.decay_rate, epsilon=args.epsilon, **common)
    if args.model_update == "adam":
        return flow.optimizer.AdamW(rate, **decay, **common)
    momentum = args.mom if args.model_update == "momentum" else 0.0
    return flow.optimizer.SGDW(rate, momentum=momentum, **decay, **common)
