"""A page that shows runs while they train: ``python -m libai.board output/``."""

from libai.board.server import serve

__all__ = ["serve"]
