"""Progress bars: on stderr, and only on a terminal."""

from __future__ import annotations

import sys
from typing import Any


def terminal_bar(total: int, done: int = 0) -> Any:
    """A bar of rank 0's terminal, or None where there is no terminal."""
    from libai.utils import distributed as dist

    if not sys.stderr.isatty() or not dist.is_main_process():
        return None
    from tqdm import tqdm

    return tqdm(total=total, initial=done, unit="it", dynamic_ncols=True, leave=False)
