"""``python -m oneflow COMMAND``: the same as the console script ``oneflow``."""

from __future__ import annotations

from oneflow.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    raise SystemExit(main())
