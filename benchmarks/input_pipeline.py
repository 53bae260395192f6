"""Pictures from an OFRecord file to batches, against ``torch.utils.data.DataLoader`` with Pillow, on the same cores.

The work: decode a JPEG of about 500 x 375 (quality 90), random resized crop to 224, flip, normalise, float32 CHW
batches of 64. The contenders take turns in one run: ``oneflow.data.Loader`` with its C extension and without it, a
DataLoader with two worker processes, and the limit: full decoding alone by libjpeg-turbo in one thread, times two. Then
records without pictures: how many a core parses in a second, and whether memory stays flat over an epoch of 100,000.

``python benchmarks/input_pipeline.py [--images N] [--epochs N] [--rounds N] [--records N] [--small]``
"""

from __future__ import annotations

import argparse
import io
import math
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import simplejpeg
import torch
from measure import machine, parse
from PIL import Image, ImageDraw
from torch.utils.data import DataLoader, Dataset

from oneflow.data import ImageDecoder, Loader, Parts, RandomCrop, RawDecoder, write_records
from oneflow.engine.core.record.messages import FeatureValue
from oneflow.engine.data.image import native

BATCH, SIZE, THREADS = 64, 224, 2
MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)


# ------------------------------------------------------------------ the data


def drawn(number: int) -> bytes:
    """A JPEG of about 60 KB: smooth colours, some shapes, and the grain of a photograph."""
    rng = np.random.default_rng(number)
    width, height = (500, 375) if number % 4 else (375, 500)
    coarse = Image.fromarray(rng.integers(0, 256, (9, 12, 3), dtype=np.uint8))
    image = coarse.resize((width, height), Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(image)
    for _ in range(12):
        x, y = rng.integers(0, width), rng.integers(0, height)
        w, h = rng.integers(20, 150, 2)
        shape = draw.ellipse if rng.random() < 0.5 else draw.rectangle
        shape((x, y, x + w, y + h), fill=tuple(int(c) for c in rng.integers(0, 256, 3)))
    grain = rng.normal(0, 5.8, (height, width, 1))
    file = io.BytesIO()
    Image.fromarray(np.clip(np.asarray(image) + grain, 0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
    return file.getvalue()


def write_data(folder: Path, count: int) -> tuple[Path, list[Path]]:
    """The same pictures as one OFRecord file and as files of their own."""
    pictures = [drawn(number) for number in range(count)]
    print(f"{count} JPEGs, {sum(map(len, pictures)) / count / 1e3:.1f} KB each")
    part = folder / "part-0"
    write_records(part, ({"encoded": _bytes(p), "class/label": _label(i)} for i, p in enumerate(pictures)))
    files = [folder / f"{number}.jpg" for number in range(count)]
    for file, picture in zip(files, pictures):
        file.write_bytes(picture)
    return part, files


def _bytes(value: bytes) -> FeatureValue:
    return FeatureValue("bytes_list", [value])


def _label(value: int) -> FeatureValue:
    return FeatureValue("int32_list", np.array([value % 1000], np.int32))


# ------------------------------------------------------------------ the rival


class PictureFiles(Dataset):
    """Files read, decoded and augmented with Pillow, in the way of an ImageNet training script."""

    def __init__(self, files: list[Path]) -> None:
        self._files = files
        self._mean = torch.tensor(MEAN)[:, None, None]
        self._std = torch.tensor(STD)[:, None, None]

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        with Image.open(self._files[number]) as file:
            image = file.convert("RGB")
        x, y, w, h = _random_box(*image.size)
        image = image.crop((x, y, x + w, y + h)).resize((SIZE, SIZE), Image.Resampling.BILINEAR)
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float()
        return pixels.sub_(self._mean).div_(self._std), number % 1000


def _random_box(width: int, height: int) -> tuple[int, int, int, int]:
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1.0)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, width - w), random.randint(0, height - h), w, h
    side = min(width, height)
    return (width - side) // 2, (height - side) // 2, side, side


class Repeated(torch.utils.data.Sampler[int]):
    """Every picture once per epoch in a random order, several epochs in one go, so that workers need not start anew."""

    def __init__(self, count: int, epochs: int) -> None:
        self._count, self._epochs = count, epochs

    def __len__(self) -> int:
        return self._count * self._epochs

    def __iter__(self):
        for _ in range(self._epochs):
            yield from torch.randperm(self._count).tolist()


# ------------------------------------------------------------------ the turns


def consume(batches: Iterable[object]) -> int:
    """Takes all batches and touches one number of each; the number of pictures."""
    count = 0
    for images, _ in batches:  # type: ignore[misc]
        assert torch.isfinite(images[-1, -1, -1, -1])
        count += len(images)
    return count


def decode_all(files: list[Path]) -> Callable[[], int]:
    pictures = [file.read_bytes() for file in files]

    def run() -> int:
        for picture in pictures:
            simplejpeg.decode_jpeg(picture)
        return len(pictures)

    return run


def loaded(loader: Loader, backend: str) -> Callable[[], int]:
    def run() -> int:
        os.environ["ONEFLOW_IMAGE_BACKEND"] = backend
        return consume(loader)

    return run


def rates(contenders: dict[str, Callable[[], int]], rounds: int) -> dict[str, list[float]]:
    """Pictures per second of every turn; the first round is not counted."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, run in contenders.items():
            start = time.perf_counter()
            count = run()
            if turn:
                found[name].append(count / (time.perf_counter() - start))
    return found


def pictures(folder: Path, images: int, epochs: int, rounds: int) -> None:
    part, files = write_data(folder, images)
    rival = DataLoader(
        PictureFiles(files), BATCH, sampler=Repeated(images, epochs), num_workers=2, persistent_workers=True, prefetch_factor=4,
        multiprocessing_context="forkserver",
    )  # fmt: skip
    decoders = (
        ImageDecoder(size=SIZE, crop=RandomCrop(), flip=0.5, mean=MEAN, std=STD),
        RawDecoder("class/label", dtype="int32"),
    )
    with Loader(part, BATCH, decoders, order="shuffle", epochs=epochs, threads=THREADS) as loader:
        contenders = {
            "DataLoader, 2 workers, Pillow": lambda: consume(rival),
            "Loader, without native code": loaded(loader, "python"),
        }
        if native.library is not None:
            contenders["Loader, native"] = loaded(loader, "native")
        contenders["decode only, one thread"] = decode_all(files)
        found = rates(contenders, rounds)
    found["limit: decode only, times two"] = [2 * rate for rate in found.pop("decode only, one thread")]
    _print_rates(found)


def _print_rates(found: dict[str, list[float]]) -> None:
    base, *_, limit = (statistics.median(rates) for rates in found.values())
    for name, all_rates in found.items():
        rate = statistics.median(all_rates)
        spread = f"({min(all_rates):.0f} to {max(all_rates):.0f})"
        print(
            f"  {name:<32} {rate:7.0f} images/s {spread:<16} {rate / base:5.2f} of the DataLoader, {rate / limit:.2f} "
            f"of the limit"
        )
    if native.library is None:
        print("  the C extension is not built: python setup.py build_ext --inplace")


# ------------------------------------------------------------------ records without pictures


def _seconds_to_parse(parts: Parts) -> float:
    """CPU seconds of this thread for one pass over all records."""
    start = time.thread_time()
    for record in parts:
        record.pick(("encoded", "class/label"))
    return time.thread_time() - start


def records(folder: Path, count: int) -> None:
    """Parsing alone, and a whole epoch through the Loader."""
    part = folder / "small-0"
    body = _bytes(bytes(1024))
    write_records(part, ({"encoded": body, "class/label": _label(i)} for i in range(count)))
    with Parts(part) as parts:
        found = [count / _seconds_to_parse(parts) for _ in range(5)]
    print(
        f"records read and parsed: {statistics.median(found):,.0f} in a second of one core ({min(found):,.0f} to "
        f"{max(found):,.0f})"
    )
    with Loader(
        part, BATCH, (RawDecoder("class/label", dtype="int32"),), order="shuffle", epochs=1, threads=THREADS
    ) as loader:
        sizes = [_resident() for number, _ in enumerate(loader) if number % 100 == 99]
    print(
        f"memory over an epoch of {count:,} records: {sizes[0]:.0f} MB after 6,400, {sizes[-1]:.0f} MB at the end, "
        f"{max(sizes):.0f} MB at most"
    )


def _resident() -> float:
    """Megabytes of this process that are its own: pages of mapped files belong to the system."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=4, help="epochs a turn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=100_000, help="at least 6,400")
    args = parse(parser, {"images": 8, "epochs": 1, "rounds": 1, "records": 6_400})
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        pictures(Path(folder), args.images, args.epochs, args.rounds)
        records(Path(folder), args.records)


if __name__ == "__main__":
    main()
