"""Makes the data set that alexnet.py reads: OFRecord parts of JPEG pictures with their labels. Needs no network.

    python make_data.py                      drawn shapes in ten classes, to ./dataset/example
    python make_data.py --folder pictures    your own pictures: one sub-folder per class, in the order of their names

A record has the picture's file in ``encoded`` and its class in ``class/label``, counted from 1: class 0 is the
background.
"""

from __future__ import annotations

import argparse
import io
import math
import os
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

import oneflow as flow
from oneflow.core.record import record_pb2 as ofrecord

PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
Box = tuple[float, float, float, float]


def polygon(box: Box, corners: int, turn: float = 0.0, inner: float = 1.0) -> list[tuple[float, float]]:
    """The corners of a regular polygon in a box; with ``inner`` below 1 every second one lies further in, as in a
    star."""
    cx, cy, radius = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2, (box[2] - box[0]) / 2
    angles = [turn + 2 * math.pi * k / corners for k in range(corners)]
    lengths = [radius * (inner if k % 2 else 1.0) for k in range(corners)]
    return [(cx + r * math.sin(a), cy - r * math.cos(a)) for r, a in zip(lengths, angles)]


def draw_circle(draw: ImageDraw.ImageDraw, box: Box, color: tuple[int, ...]) -> None:
    draw.ellipse(box, fill=color)


def draw_square(draw: ImageDraw.ImageDraw, box: Box, color: tuple[int, ...]) -> None:
    draw.rectangle(box, fill=color)


def draw_triangle(draw: ImageDraw.ImageDraw, box: Box, color: tuple[int, ...]) -> None:
    draw.polygon(polygon(box, 3), fill=color)


def draw_diamond(draw: ImageDraw.ImageDraw, box: Box, color: tuple[int, ...]) -> None:
    draw.polygon(polygon(box, 4), fill=color)


def draw_hexagon(draw: ImageDraw.ImageDraw, box: Box, color: tuple[int, ...]) -> None:
    draw.polygon(polygon(box, 6), fill=color)


def draw_star(draw: ImageDraw.ImageDraw, box: Box, color: tuple[int, ...]) -> None:
    draw.polygon(polygon(box, 10, inner=0.4), fill=color)


def draw_ring(draw: ImageDraw.ImageDraw, box: Box, color: tuple[int, ...]) -> None:
    draw.ellipse(box, outline=color, width=max(1, round((box[2] - box[0]) / 6)))


def draw_cross(draw: ImageDraw.ImageDraw, box: Box, color: tuple[int, ...]) -> None:
    third = (box[2] - box[0]) / 3
    draw.rectangle((box[0] + third, box[1], box[2] - third, box[3]), fill=color)
    draw.rectangle((box[0], box[1] + third, box[2], box[3] - third), fill=color)


def draw_bars(draw: ImageDraw.ImageDraw, box: Box, color: tuple[int, ...]) -> None:
    step = (box[2] - box[0]) / 5
    for k in (0, 2, 4):
        draw.rectangle((box[0] + k * step, box[1], box[0] + (k + 1) * step, box[3]), fill=color)


def draw_stairs(draw: ImageDraw.ImageDraw, box: Box, color: tuple[int, ...]) -> None:
    step = (box[2] - box[0]) / 4
    for k in range(4):
        draw.rectangle((box[0] + k * step, box[3] - (k + 1) * step, box[0] + (k + 1) * step, box[3]), fill=color)


SHAPES: list[Callable[..., None]] = [
    draw_circle, draw_square, draw_triangle, draw_diamond, draw_hexagon, draw_star, draw_ring, draw_cross, draw_bars, draw_stairs,
]  # fmt: skip


def drawn(shape: Callable[..., None], size: int, rng: random.Random) -> bytes:
    """A JPEG of one shape, light or dark, on a noisy grey ground: place, size and colours at random."""
    noise = np.random.default_rng(rng.randrange(2**32)).integers(-12, 13, (size, size, 3))
    ground = np.array([rng.randrange(120, 151) for _ in range(3)]) + noise
    image = Image.fromarray(ground.astype(np.uint8))
    radius = size * rng.uniform(0.25, 0.45)
    x, y = (rng.uniform(radius, size - radius) for _ in range(2))
    lowest = rng.choice((0, 195))
    color = tuple(rng.randrange(lowest, lowest + 61) for _ in range(3))
    shape(ImageDraw.Draw(image), (x - radius, y - radius, x + radius, y + radius), color)
    data = io.BytesIO()
    image.save(data, "JPEG", quality=90)
    return data.getvalue()


def drawn_pictures(count: int, size: int, seed: int) -> list[tuple[bytes, int]]:
    """``count`` pictures and their labels, as many of each class, mixed."""
    rng = random.Random(seed)
    kinds = [number % len(SHAPES) for number in range(count)]
    rng.shuffle(kinds)
    return [(drawn(SHAPES[kind], size, rng), kind + 1) for kind in kinds]


def found_pictures(folder: Path, seed: int) -> list[tuple[Path, int]]:
    """The pictures of each sub-folder and its label, mixed."""
    classes = sorted(sub for sub in folder.iterdir() if sub.is_dir())
    found = [
        (path, label)
        for label, sub in enumerate(classes, 1)
        for path in sorted(sub.rglob("*"))
        if path.suffix.lower() in PICTURES
    ]
    if not found:
        raise SystemExit(f"{folder}: no pictures ({', '.join(PICTURES)}) in sub-folders; each sub-folder is a class")
    random.Random(seed).shuffle(found)
    return found


def record(picture: bytes, label: int) -> ofrecord.OFRecord:
    return ofrecord.OFRecord(
        feature={
            "encoded": ofrecord.Feature(bytes_list=ofrecord.BytesList(value=[picture])),
            "class/label": ofrecord.Feature(int32_list=ofrecord.Int32List(value=[label])),
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="make a small OFRecord data set for alexnet.py")
    parser.add_argument("-o", "--out", type=Path, default=Path("./dataset/example"), help="folder for the part files")
    parser.add_argument("--folder", type=Path, default=None, help="pictures of your own, one sub-folder per class")
    parser.add_argument("--count", type=int, default=480, help="how many shapes to draw")
    parser.add_argument("--size", type=int, default=256, help="their width and height")
    parser.add_argument("--parts", type=int, default=8, help="part files; alexnet.py reads 8")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    pictures: list[tuple[bytes, int]]
    if args.folder is not None:
        pictures = [(path.read_bytes(), label) for path, label in found_pictures(args.folder, args.seed)]
    else:
        pictures = drawn_pictures(args.count, args.size, args.seed)
    if len(pictures) < args.parts:
        raise SystemExit(f"{len(pictures)} pictures do not fill {args.parts} parts")
    os.makedirs(args.out, exist_ok=True)
    for part in range(args.parts):
        flow.data.write_records(args.out / f"part-{part}", [record(*pair) for pair in pictures[part :: args.parts]])
    classes = len({label for _, label in pictures})
    print(f"{len(pictures)} pictures of {classes} classes in {args.parts} parts: {args.out}")


if __name__ == "__main__":
    main()
