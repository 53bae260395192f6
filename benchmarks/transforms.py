"""What the usual transforms of training cost for one picture, beside the same by hand in PIL and numpy.

python benchmarks/transforms.py [--calls 200] [--rounds 9]
"""

from __future__ import annotations

import argparse
import math
import random

import numpy as np
import torch
from measure import alternate, machine, parse, report
from PIL import Image

from flowvision import transforms

SIZE = 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def picture() -> Image.Image:
    y, x = np.mgrid[0:375, 0:500]
    noise = np.random.default_rng(0).integers(0, 40, (375, 500, 3))
    return Image.fromarray((np.stack([x // 3, y // 2, (x + y) // 5], -1) + noise).astype(np.uint8))


def by_hand(img: Image.Image) -> np.ndarray:
    """As a program without a library of transforms writes it."""
    width, height = img.size
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1.0)
        aspect = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if w <= width and h <= height:
            break
    else:
        w, h = width, height
    left, top = random.randint(0, width - w), random.randint(0, height - h)
    img = img.crop((left, top, left + w, top + h)).resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    if random.random() < 0.5:
        img = img.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    array = (np.asarray(img, np.float32) / 255 - np.float32(MEAN)) / np.float32(STD)
    return np.ascontiguousarray(array.transpose(2, 0, 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parse(parser, {"calls": 2, "rounds": 1})
    torch.set_num_threads(1)  # as in a loader's worker
    img = picture()
    ours = transforms.Compose(
        [
            transforms.RandomResizedCrop(SIZE),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )
    print(machine())
    timings = alternate(
        {"flowvision.transforms": lambda: ours(img), "PIL and numpy": lambda: by_hand(img)},
        arguments.calls,
        arguments.rounds,
    )
    report("a picture of 500 x 375 to 224 x 224", timings, "flowvision.transforms")


if __name__ == "__main__":
    main()
