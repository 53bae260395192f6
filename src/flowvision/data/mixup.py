"""Mixup and CutMix: a batch mixed with itself in reverse, and its labels likewise. They draw from numpy's generator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oneflow.engine.core.errors import ArgumentError

Box = tuple[int, int, int, int]


def one_hot(x: Tensor, num_classes: int, on_value: float = 1.0, off_value: float = 0.0, device: Any = None) -> Tensor:
    """(n, num_classes) with ``on_value`` at the class of each row. It is made where ``x`` is, or on ``device``."""
    x = x.long().reshape(-1, 1)
    target = (
        x.device if device is None or (str(device).startswith("cuda") and not torch.cuda.is_available()) else device
    )
    return torch.full((len(x), num_classes), off_value, device=target).scatter_(1, x.to(target), on_value)


def mixup_target(
    target: Tensor, num_classes: int, lam: Any = 1.0, smoothing: float = 0.0, device: Any = None
) -> Tensor:
    """The labels, smoothed, as ``lam`` of their own and 1 - ``lam`` of those in reverse."""
    off = smoothing / num_classes
    on = 1.0 - smoothing + off
    own = one_hot(target, num_classes, on, off, device)
    return own * lam + own.flip(0) * (1.0 - lam)


def rand_bbox(img_shape: Sequence[int], lam: float, margin: float = 0.0, count: int | None = None) -> Any:
    """Top, bottom, left and right of a box of 1 - ``lam`` of the area, cut off at the sides; its middle lies ``margin``
    of its size inside."""
    ratio = np.sqrt(1 - lam)
    height, width = img_shape[-2:]
    cut_h, cut_w = int(height * ratio), int(width * ratio)
    margin_y, margin_x = int(margin * cut_h), int(margin * cut_w)
    y = np.random.randint(0 + margin_y, height - margin_y, size=count)
    x = np.random.randint(0 + margin_x, width - margin_x, size=count)
    return (
        np.clip(y - cut_h // 2, 0, height),
        np.clip(y + cut_h // 2, 0, height),
        np.clip(x - cut_w // 2, 0, width),
        np.clip(x + cut_w // 2, 0, width),
    )


def rand_bbox_minmax(img_shape: Sequence[int], minmax: Sequence[float], count: int | None = None) -> Any:
    """Top, bottom, left and right of a box whose sides are between two shares of the picture's."""
    height, width = img_shape[-2:]
    cut_h = np.random.randint(int(height * minmax[0]), int(height * minmax[1]), size=count)
    cut_w = np.random.randint(int(width * minmax[0]), int(width * minmax[1]), size=count)
    top, left = np.random.randint(0, height - cut_h, size=count), np.random.randint(0, width - cut_w, size=count)
    return top, top + cut_h, left, left + cut_w


def cutmix_bbox_and_lam(
    img_shape: Sequence[int],
    lam: float,
    ratio_minmax: Sequence[float] | None = None,
    correct_lam: bool = True,
    count: int | None = None,
) -> tuple[Any, float]:
    """A box, and the share of the area that is outside of it."""
    box = (
        rand_bbox(img_shape, lam, count=count)
        if ratio_minmax is None
        else rand_bbox_minmax(img_shape, ratio_minmax, count=count)
    )
    if correct_lam or ratio_minmax is not None:
        top, bottom, left, right = box
        lam = 1.0 - (bottom - top) * (right - left) / float(img_shape[-2] * img_shape[-1])
    return box, lam


class Mixup:
    """Mixes a batch (n, channels, height, width), n even, with itself in reverse, in place; gives it with soft labels
    (n, num_classes).

    With ``mixup_alpha`` pictures are blended, with ``cutmix_alpha`` a box of one is put into the other; with both, the
    latter with probability ``switch_prob``. How much is drawn from a beta distribution of that alpha: once for a batch
    ("batch"), for each pair ("pair") or each picture ("elem"). ``prob`` is the probability of mixing at all;
    ``cutmix_minmax`` bounds the sides of the box; ``correct_lam`` counts labels by the box's true area.
    """

    def __init__(
        self,
        mixup_alpha: float = 1.0,
        cutmix_alpha: float = 0.0,
        cutmix_minmax: Sequence[float] | None = None,
        prob: float = 1.0,
        switch_prob: float = 0.5,
        mode: str = "batch",
        correct_lam: bool = True,
        label_smoothing: float = 0.1,
        num_classes: int = 1000,
    ) -> None:
        if mode not in ("batch", "pair", "elem"):
            raise ArgumentError(f"mode is 'batch', 'pair' or 'elem', got {mode!r}")
        if cutmix_minmax is not None and len(cutmix_minmax) != 2:
            raise ArgumentError(f"cutmix_minmax is two shares, got {cutmix_minmax!r}")
        self.mixup_alpha, self.cutmix_alpha, self.cutmix_minmax = (
            mixup_alpha,
            1.0 if cutmix_minmax is not None else cutmix_alpha,
            cutmix_minmax,
        )
        if self.mixup_alpha <= 0 and self.cutmix_alpha <= 0:
            raise ArgumentError("one of mixup_alpha and cutmix_alpha is above 0, or cutmix_minmax is given")
        self.mix_prob, self.switch_prob, self.mode, self.correct_lam = prob, switch_prob, mode, correct_lam
        self.label_smoothing, self.num_classes = label_smoothing, num_classes
        self.mixup_enabled = True

    def __call__(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        if len(x) % 2:
            raise ArgumentError(f"Mixup takes a batch of an even size, got {len(x)}")
        lam: Any = self._whole(x) if self.mode == "batch" else self._each(x)
        return x, mixup_target(target, self.num_classes, lam, self.label_smoothing, x.device)

    def _drawn(self) -> tuple[float, bool]:
        """How much of the picture itself stays, and whether by a box."""
        if not self.mixup_enabled or np.random.rand() >= self.mix_prob:
            return 1.0, False
        both = self.mixup_alpha > 0 and self.cutmix_alpha > 0
        cuts = np.random.rand() < self.switch_prob if both else self.cutmix_alpha > 0
        alpha = self.cutmix_alpha if cuts else self.mixup_alpha
        return float(np.random.beta(alpha, alpha)), bool(cuts)

    def _whole(self, x: Tensor) -> float:
        lam, cuts = self._drawn()
        if lam == 1.0:
            return 1.0
        if not cuts:
            other = x.flip(0).mul_(1.0 - lam)  # before x is changed
            x.mul_(lam).add_(other)
            return lam
        (top, bottom, left, right), lam = cutmix_bbox_and_lam(x.shape, lam, self.cutmix_minmax, self.correct_lam)
        x[:, :, top:bottom, left:right] = x.flip(0)[:, :, top:bottom, left:right]
        return lam

    def _each(self, x: Tensor) -> Tensor:
        """As ``_whole`` for each picture, or each pair, and its partner from the other end."""
        before = x.clone()
        count = len(x) // 2 if self.mode == "pair" else len(x)
        lams = []
        for i in range(count):
            lam, cuts = self._drawn()
            rows = (i, len(x) - 1 - i) if self.mode == "pair" else (i,)
            box = None
            if cuts and lam < 1.0:
                box, lam = cutmix_bbox_and_lam(x.shape, lam, self.cutmix_minmax, self.correct_lam)
            for row in rows:
                _mix_row(x, before, row, lam, box)
            lams.append(lam)
        whole = lams + lams[::-1] if self.mode == "pair" else lams
        return torch.tensor(whole, dtype=x.dtype, device=x.device).unsqueeze(1)


def _mix_row(x: Tensor, before: Tensor, row: int, lam: float, box: Box | None) -> None:
    other = before[len(x) - 1 - row]
    if lam == 1.0:
        return
    if box is None:
        x[row] = before[row] * lam + other * (1 - lam)
    else:
        top, bottom, left, right = box
        x[row, :, top:bottom, left:right] = other[:, top:bottom, left:right]
