"""``flow.keras``: the activations and sums of the earliest programs, under the names they had there."""

from oneflow.keras import activations, maths

__all__ = ["activations", "maths"]
