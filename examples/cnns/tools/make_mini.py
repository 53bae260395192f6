"""Draws a small data set, with no network: train and validation records of five classes, and a picture to try inference
on.

python3 tools/make_mini.py          to data/imagenet/ofrecord/train and validation, and data/fish.jpg
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from oneflow.data.__main__ import main as data_command

Color = tuple[int, ...]
Draw = ImageDraw.ImageDraw


class Pen:
    """Draws in a square of side 1 around a place of a picture."""

    def __init__(self, draw: Draw, x: float, y: float, scale: float) -> None:
        self._draw, self._x, self._y, self._scale = draw, x, y, scale

    def _at(self, x: float, y: float) -> tuple[float, float]:
        return self._x + (x - 0.5) * self._scale, self._y + (y - 0.5) * self._scale

    def oval(self, left: float, top: float, right: float, bottom: float, color: Color) -> None:
        self._draw.ellipse((*self._at(left, top), *self._at(right, bottom)), fill=color)

    def shape(self, corners: list[tuple[float, float]], color: Color) -> None:
        self._draw.polygon([self._at(x, y) for x, y in corners], fill=color)


def boat(pen: Pen, color: Color) -> None:
    pen.shape([(0.05, 0.65), (0.95, 0.65), (0.8, 0.9), (0.2, 0.9)], (110, 70, 40))
    pen.shape([(0.5, 0.05), (0.5, 0.6), (0.9, 0.6)], color)


def goldfish(pen: Pen, color: Color) -> None:
    orange = (240, 130 + color[1] % 40, 30)
    pen.oval(0.05, 0.3, 0.75, 0.7, orange)
    pen.shape([(0.65, 0.5), (0.98, 0.22), (0.98, 0.78)], orange)
    pen.oval(0.15, 0.4, 0.23, 0.48, (10, 10, 10))


def house(pen: Pen, color: Color) -> None:
    pen.shape([(0.15, 0.45), (0.85, 0.45), (0.85, 0.95), (0.15, 0.95)], color)
    pen.shape([(0.05, 0.45), (0.5, 0.05), (0.95, 0.45)], (160, 50, 40))
    pen.shape([(0.42, 0.65), (0.58, 0.65), (0.58, 0.95), (0.42, 0.95)], (70, 50, 30))


def star(pen: Pen, color: Color) -> None:
    radii = [0.48 if corner % 2 == 0 else 0.2 for corner in range(10)]
    angles = [math.pi * corner / 5 for corner in range(10)]
    pen.shape(
        [(0.5 + r * math.sin(a), 0.5 - r * math.cos(a)) for r, a in zip(radii, angles)], (250, 220, color[2] % 90)
    )


def tree(pen: Pen, color: Color) -> None:
    pen.shape([(0.43, 0.6), (0.57, 0.6), (0.57, 0.98), (0.43, 0.98)], (100, 65, 35))
    for top in (0.02, 0.2, 0.38):
        pen.shape([(0.5, top), (0.85, top + 0.32), (0.15, top + 0.32)], (30, 110 + color[0] % 60, 50))


CLASSES = (boat, goldfish, house, star, tree)


def picture(draw_class, rng: random.Random, size: int) -> Image.Image:
    """One thing on a ground of sky colours with noise; place, size and colours at random."""
    noise = np.random.default_rng(rng.randrange(2**32)).integers(-10, 11, (size, size, 3))
    ground = np.array([rng.randrange(low, low + 40) for low in (120, 150, 190)]) + noise
    image = Image.fromarray(ground.astype(np.uint8))
    scale = size * rng.uniform(0.6, 0.9)
    x, y = (rng.uniform(scale / 2, size - scale / 2) for _ in range(2))
    color = tuple(rng.randrange(40, 256) for _ in range(3))
    draw_class(Pen(ImageDraw.Draw(image), x, y, scale), color)
    return image


def draw_split(folder: Path, count: int, size: int, rng: random.Random) -> None:
    for number in range(count):
        draw_class = CLASSES[number % len(CLASSES)]
        place = folder / draw_class.__name__
        place.mkdir(parents=True, exist_ok=True)
        picture(draw_class, rng, size).save(place / f"{number:05d}.jpg", quality=90)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("data"), help="imagenet/ofrecord and fish.jpg go here")
    parser.add_argument("--num_examples", type=int, default=50, help="pictures to train on")
    parser.add_argument("--num_val_examples", type=int, default=50, help="pictures to validate with")
    parser.add_argument("--size", type=int, default=256, help="width and height")
    parser.add_argument("--parts", type=int, default=1, help="part files of each")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if min(args.num_examples, args.num_val_examples) < max(len(CLASSES), args.parts) or args.size < 16:
        parser.error(
            f"a split has a picture of each of the {len(CLASSES)} classes and one for each part; --size is 16 or more"
        )
    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as pictures:
        draw_split(Path(pictures, "train"), args.num_examples, args.size, rng)
        draw_split(Path(pictures, "validation"), args.num_val_examples, args.size, rng)
        done = data_command(["imagenet", pictures, str(args.out / "imagenet" / "ofrecord"), "--parts", str(args.parts)])
    if done == 0:
        picture(goldfish, rng, args.size).save(args.out / "fish.jpg", quality=90)
        print(f"a picture to try: {args.out / 'fish.jpg'}")
    return done


if __name__ == "__main__":
    sys.exit(main())
