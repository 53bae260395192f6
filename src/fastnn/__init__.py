"""FastNN: image classification from flags, on the networks of :mod:`flowvision` and the trainer of :mod:`libai`."""

from oneflow.version import __version__

__all__ = ["__version__"]
