"""``flow.optimizer.loss_scale``: what the loss is multiplied by before the backward pass, and divided out after it."""

from __future__ import annotations

from dataclasses import dataclass

from oneflow.engine.core.number import number, whole

__all__ = ["dynamic_loss_scale", "static_loss_scale"]


@dataclass(frozen=True)
class LossScale:
    """A static scale, or a dynamic one when ``increment_period`` is given."""

    initial: float = 1.0
    increment_period: int | None = None
    multiplier: float = 2.0

    @property
    def is_dynamic(self) -> bool:
        return self.increment_period is not None

    def adjusted(self, scale: float, good_steps: int, finite: bool) -> tuple[float, int]:
        """Scale and count of good steps after a step whose gradients were finite or not."""
        if not finite:
            return max(scale / self.multiplier, 1.0), 0
        if good_steps + 1 == self.increment_period:
            return min(scale * self.multiplier, 3.4028234663852886e38), 0
        return scale, good_steps + 1


def static_loss_scale(loss_scale_factor: float) -> LossScale:
    """A fixed factor; neutral in float32."""
    return LossScale(number("loss_scale_factor", loss_scale_factor, above=0))


def dynamic_loss_scale(
    initial_loss_scale: float = 2**30, increment_period: int = 2000, multiplier: float = 2.0
) -> LossScale:
    """A factor that falls when gradients overflow (that update is skipped) and grows after ``increment_period`` good
    steps."""
    return LossScale(
        number("initial_loss_scale", initial_loss_scale, 1),
        whole("increment_period", increment_period, above=0),
        number("multiplier", multiplier, above=1),
    )
