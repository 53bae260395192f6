"""The trainer, its hooks, and what a training program does before it."""

from libai.engine.default import DefaultTrainer, default_setup

__all__ = ["DefaultTrainer", "default_setup"]
