"""From TFRecord files to updated weights: FastNN against a plain PyTorch program, the same network on the same records.

The rival reads the same files by our reader in two ``DataLoader`` workers, decodes and preprocesses with Pillow and
numpy, and trains eagerly in channels-last memory with torch's optimizer. resnet_v1_50 (batch 16, pictures of about 500
x 375 to 224) and cifarnet (batch 128, 32 x 32). The two take turns in one run; a turn is some steps, data included.
Both have two threads of torch, and four batches ahead.

``python benchmarks/fastnn.py [--rounds N] [--steps N] [--only NAME] [--small]``
"""

from __future__ import annotations

import argparse
import io
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from input_pipeline import drawn
from measure import alternate, machine, parse, report
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

from oneflow.data import Parts, write_records
from oneflow.engine.core.record.messages import FeatureValue

# This file has the name of the package it measures: from here on only the package is found.
sys.path = [place for place in sys.path if Path(place or ".").resolve() != Path(__file__).resolve().parent]
from fastnn.datasets.dataset_factory import get_dataset_iterator  # noqa: E402
from fastnn.flags import TABLE, Flags  # noqa: E402
from fastnn.graphs import TrainGraph  # noqa: E402
from fastnn.models.model_factory import get_model_fn  # noqa: E402
from fastnn.preprocessing.preprocessing_factory import get_preprocessing  # noqa: E402
from fastnn.utils import optimizer_utils  # noqa: E402

MEANS = np.array([123.68, 116.78, 103.94], np.float32)


def write_pictures(folder: Path, count: int, is_small: bool) -> None:
    rng = np.random.default_rng(0)
    records = []
    for number in range(count):
        if is_small:
            file = io.BytesIO()
            Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(file, "PNG")
            data = file.getvalue()
        else:
            data = drawn(number)
        records.append(
            {
                "image/encoded": FeatureValue("bytes_list", [data]),
                "image/class/label": FeatureValue("int64_list", [number % 10]),
            }
        )
    write_records(folder / "cifar10_train.tfrecord", records, "tfrecord")


def flags_for(folder: Path, network: str, batch: int, size: int) -> Flags:
    flags = Flags(TABLE)
    flags.parse(
        [f"--dataset_dir={folder}", "--dataset_name=cifar10", f"--model_name={network}", f"--batch_size={batch}", "--num_classes=10", "--use_fp16=False",
         "--optimizer=momentum", "--num_epochs=1000000", "--stop_at_step=1000000", "--prefetch_buffer_size=3", "--num_parallel_batches=1", f"--train_image_size={size}"]
    )  # fmt: skip
    return flags


def ours(flags: Flags) -> tuple[Callable[[], object], Callable[[], None]]:
    network_fn = get_model_fn(flags.model_name, 10, flags.weight_decay, True, flags.train_image_size)
    iterator = get_dataset_iterator(
        "cifar10", network_fn.default_image_size, get_preprocessing(flags.model_name, True), flags=flags
    )
    optimizer = optimizer_utils.get_optimizer(network_fn.variables().items(), flags)
    graph = TrainGraph(network_fn, optimizer, optimizer_utils.FlagSchedule(optimizer, flags), flags, "cpu")
    return lambda: graph(*next(iterator)), iterator.close


# ------------------------------------------------------------------ the rival


class Pictures(Dataset):
    """Records by our reader, decoded by Pillow, preprocessed as the network's own does it, in Pillow and numpy."""

    def __init__(self, path: str, is_small: bool, size: int) -> None:
        self.path, self.is_small, self.size = path, is_small, size
        self.parts: Parts | None = None
        with Parts([path]) as parts:
            self.count = len(parts)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self.parts is None:
            self.parts = Parts([self.path])
        found = self.parts[index].pick(("image/encoded", "image/class/label"))
        image = Image.open(io.BytesIO(bytes(found["image/encoded"].values[0]))).convert("RGB")
        pixels = small_picture(image) if self.is_small else large_picture(image, self.size)
        return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1))), int(
            found["image/class/label"].values[0]
        )


def large_picture(image: Image.Image, size: int) -> np.ndarray:
    """VGG's way: the shorter side from 256 to 512, a random crop, perhaps flipped, less the mean colour."""
    scale = random.randint(256, 512) / min(image.size)
    image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BILINEAR)
    left, top = random.randint(0, image.width - size), random.randint(0, image.height - size)
    image = image.crop((left, top, left + size, top + size))
    if random.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(image, np.float32) - MEANS


def small_picture(image: Image.Image) -> np.ndarray:
    """CifarNet's way: a crop of the padded picture, perhaps flipped, brightness, contrast, standardized."""
    pixels = np.pad(np.asarray(image, np.float32), [(4, 4), (4, 4), (0, 0)])
    top, left = random.randint(0, 8), random.randint(0, 8)
    pixels = pixels[top : top + 32, left : left + 32]
    if random.random() < 0.5:
        pixels = pixels[:, ::-1]
    pixels = pixels + random.uniform(-63, 63)
    mean = pixels.mean((0, 1))
    pixels = (pixels - mean) * random.uniform(0.2, 1.8) + mean
    return ((pixels - pixels.mean()) / max(pixels.std(), 1 / 55.4)).astype(np.float32)


class CifarNet(nn.Module):
    """slim's network as one writes it in PyTorch, with torch's own LRN."""

    def __init__(self) -> None:
        super().__init__()
        norm = nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1.0)
        pictures = [
            nn.Conv2d(3, 64, 5, padding=2),
            nn.ReLU(True),
            nn.MaxPool2d(2),
            norm,
            nn.Conv2d(64, 64, 5, padding=2),
            nn.ReLU(True),
            norm,
            nn.MaxPool2d(2),
        ]
        dense = [
            nn.Flatten(),
            nn.Linear(4096, 384),
            nn.ReLU(True),
            nn.Dropout(),
            nn.Linear(384, 192),
            nn.ReLU(True),
            nn.Linear(192, 10),
        ]
        self.layers = nn.Sequential(*pictures, *dense)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        return (self.layers(x),)


def rival(flags: Flags, is_small: bool) -> tuple[Callable[[], object], Callable[[], None]]:
    network: nn.Module = (
        CifarNet() if is_small else get_model_fn(flags.model_name, 10, 0.0, True, flags.train_image_size).module
    )
    module = network.to(memory_format=torch.channels_last)
    decayed = [p for p in module.parameters() if p.dim() > 1]
    others = [p for p in module.parameters() if p.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": flags.weight_decay}, {"params": others}]
    optimizer = torch.optim.SGD(groups, lr=0.01, momentum=0.9, fused=True)
    loader = DataLoader(
        Pictures(f"{flags.dataset_dir}/cifar10_train.tfrecord", is_small, flags.train_image_size),
        flags.batch_size,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        drop_last=True,
    )

    def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        while True:
            yield from loader

    source = batches()

    def step() -> float:
        images, labels = next(source)
        loss = torch.nn.functional.cross_entropy(module(images.to(memory_format=torch.channels_last))[0], labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.item()

    def close() -> None:
        iterator = loader._iterator
        if iterator is not None:
            iterator._shutdown_workers()  # type: ignore[attr-defined]

    return step, close


CASES = {"resnet_v1_50": (16, 256, False), "cifarnet": (128, 2048, True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--only", choices=list(CASES))
    parser.add_argument("--divide", type=int, default=1, help="of batch and number of pictures")
    parser.add_argument("--size", type=int, default=224, help="the side of resnet_v1_50's pictures")
    arguments = parse(parser, {"rounds": 1, "steps": 1, "divide": 8, "size": 64})
    print(machine())
    for name, (batch, count, is_small) in CASES.items():
        if arguments.only not in (None, name):
            continue
        with tempfile.TemporaryDirectory() as folder:
            write_pictures(Path(folder), max(count // arguments.divide, 8), is_small)
            flags = flags_for(Path(folder), name, max(2, batch // arguments.divide), 32 if is_small else arguments.size)
            mine, close_mine = ours(flags)
            theirs, close_theirs = rival(flags, is_small)
            try:
                timings = alternate(
                    {"fastnn": mine, "PyTorch, DataLoader, Pillow": theirs}, arguments.steps, arguments.rounds
                )
            finally:
                close_mine()
                close_theirs()
            report(f"{name}, batch {flags.batch_size}, from files to updated weights", timings, "fastnn")


if __name__ == "__main__":
    main()
