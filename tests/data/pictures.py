"""Pictures made for tests, and the files they are stored in."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable

import numpy as np
from PIL import Image


def photo(width: int, height: int, seed: int = 0) -> np.ndarray:
    """Something with smooth colours, edges and a little noise, uint8 (height, width, 3)."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (height // 8 + 2, width // 8 + 2, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC)).astype(np.float32)
    smooth[height // 3 : height // 2, width // 4 : width // 2] = (250, 20, 90)
    return np.clip(smooth + rng.normal(0, 8, smooth.shape), 0, 255).astype(np.uint8)


def stored(pixels: np.ndarray | Image.Image, kind: str = "JPEG", **options: object) -> bytes:
    """The file that Pillow writes."""
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def read_back(data: bytes, mode: str = "RGB") -> np.ndarray:
    """What Pillow makes of a file."""
    with Image.open(io.BytesIO(data)) as image:
        return np.array(image.convert(mode))


def ticks_during(work: Callable[[], object]) -> int:
    """How often another thread had its turn while ``work`` ran in this one."""
    times: list[float] = []
    done = threading.Event()

    def tick() -> None:
        while not done.is_set():
            times.append(time.perf_counter())
            time.sleep(0.0005)

    ticker = threading.Thread(target=tick)
    ticker.start()
    start = time.perf_counter()
    work()
    end = time.perf_counter()
    done.set()
    ticker.join()
    return sum(start < t < end for t in times)
