"""Which samples make the batches of a rank."""

from libai.data.samplers.samplers import CyclicSampler, SingleRoundSampler

__all__ = ["CyclicSampler", "SingleRoundSampler"]
