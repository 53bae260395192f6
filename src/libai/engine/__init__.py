"""The trainer, its hooks and the setup of training programs."""

from libai.engine.default import DefaultTrainer, default_setup

__all__ = ["DefaultTrainer", "default_setup"]
