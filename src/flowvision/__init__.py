"""Data sets, transforms and networks for pictures, on :mod:`oneflow`.

Each part is imported by its own name (``from flowvision import transforms``), so that a program which reads pictures
does not wait for a model zoo to load.
"""

from oneflow.version import __version__

__all__ = ["__version__"]
