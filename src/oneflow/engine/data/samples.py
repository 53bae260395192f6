"""Batches outside jobs: records at hand, and what decoders make of them when they are asked.

Outside a job nobody knows before the first batch what its records are decoded to. So a reader hands out records,
decoders work when they are called, and the reader remembers what they made: from then on its threads make it ahead
(prefetching), and the decoders find it there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, overload

import numpy as np
import torch

from oneflow.engine.core.errors import DataError
from oneflow.engine.core.record.messages import FeatureValue
from oneflow.engine.data.collate import Listed
from oneflow.engine.data.decode import Features, MissingFeature, RandomCrop, RawDecoder, Size, feature, only_bytes
from oneflow.engine.data.formats.records import Record
from oneflow.engine.data.image import center_crop, decode, resize
from oneflow.engine.data.loader import Loader
from oneflow.engine.data.order import Draws
from oneflow.engine.data.pipeline import Reading


class Step(Protocol):
    """What is made of one record, as a value: equal steps make the same. ``of`` is a pure function that any thread may
    call."""

    def of(self, sample: Sample) -> np.ndarray: ...


class Sample:
    """One record of a batch, its random numbers, and what was made of it so far."""

    __slots__ = ("_made", "draws", "record")

    def __init__(self, record: Record, draws: Draws) -> None:
        self.record, self.draws = record, draws
        self._made: dict[Step, np.ndarray] = {}

    def features(self, key: str) -> Features:
        return self.record.pick(frozenset([key]))

    def value(self, step: Step) -> np.ndarray:
        """What ``step`` makes of the record; errors name file and record."""
        if step not in self._made:
            self._made[step] = self._made_by(step)
        return self._made[step]

    def _made_by(self, step: Step) -> np.ndarray:
        try:
            return step.of(self)
        except MissingFeature as error:
            raise DataError(f"{self.record.where}: {error}; the record has {sorted(self.record.features)}") from None
        except DataError as error:
            known = str(error).startswith(self.record.where)
            raise DataError(str(error) if known else f"{self.record.where}: {error}") from None


class _Ahead:
    """The steps that a reader's threads take for every sample."""

    def __init__(self) -> None:
        self._steps: tuple[Step, ...] = ()

    def learn(self, step: Step) -> None:
        if step not in self._steps:
            self._steps = (*self._steps, step)

    def __call__(self, record: Record, draws: Draws) -> Sample:
        sample = Sample(record, draws)
        for step in self._steps:
            sample.value(step)
        return sample


class RecordReader:
    """The batches of part files, without end, in the order of a job's reader. ``close`` ends its threads."""

    def __init__(self, parts: Any, reading: Reading) -> None:
        self.batch_size = reading.batch_size
        self._parts, self._reading, self._share = parts, reading, (0, 1)
        self._ahead = _Ahead()
        self._loader = self._opened()

    def _opened(self) -> Loader:
        number, shares = self._share
        how = self._reading
        return Loader(
            self._parts, how.batch_size // shares, Listed(self._ahead), order="oneflow", seed=how.seed, rank=number, world=shares,
            shuffle_buffer_size=how.buffer_size, shuffle_after_epoch=how.shuffle_parts,
        )  # fmt: skip

    def share(self, number: int, shares: int) -> None:
        """From the next batch on reads the rows of one of so many equal shares of each."""
        if self._share != (number, shares):
            before, self._share = self._loader, (number, shares)
            self._loader = self._opened()
            self._loader.load_state(before.state())
            before.close()

    def next(self) -> Records:
        return Records(next(iter(self._loader)), self._ahead.learn)

    def state(self) -> dict[str, Any]:
        return self._loader.state()

    def load_state(self, state: dict[str, Any]) -> None:
        self._loader.load_state(state)

    def close(self) -> None:
        self._loader.close()


class Records:
    """A batch of undecoded records: what ``flow.nn.OFRecordReader`` gives and its decoders take."""

    def __init__(self, samples: Sequence[Sample], learn: Callable[[Step], None]) -> None:
        self._samples, self._learn = samples, learn

    def values(self, step: Step) -> list[np.ndarray]:
        """What ``step`` makes of each record; the reader's threads make it of the batches to come."""
        self._learn(step)
        return [sample.value(step) for sample in self._samples]

    def __len__(self) -> int:
        return len(self._samples)

    def __repr__(self) -> str:
        return f"<{len(self)} records, the first {self._samples[0].record.where}>"


class Listing(Sequence[torch.Tensor]):
    """One uint8 tensor per record, each of its own size: those that ``step`` makes."""

    def __init__(self, records: Records, step: Step) -> None:
        self.records, self.step = records, step
        self._arrays = records.values(step)

    @overload
    def __getitem__(self, index: int) -> torch.Tensor: ...

    @overload
    def __getitem__(self, index: slice) -> list[torch.Tensor]: ...

    def __getitem__(self, index: int | slice) -> torch.Tensor | list[torch.Tensor]:
        if isinstance(index, slice):
            return [_tensor(array) for array in self._arrays[index]]
        return _tensor(self._arrays[index])

    def __len__(self) -> int:
        return len(self._arrays)

    @property
    def shape(self) -> tuple[int, ...]:
        """The batch alone: what follows differs from row to row."""
        return (len(self),)

    def __repr__(self) -> str:
        shapes = ", ".join(str(array.shape) for array in self._arrays[:4]) + (", ..." if len(self) > 4 else "")
        return f"<{len(self)} {type(self).__name__.lower()} of shapes {shapes}>"


class Buffers(Listing):
    """The bytes of one feature of each record."""


class Pictures(Listing):
    """Decoded pictures (height, width, channels), each of its own size."""

    def __init__(self, records: Records, step: Step, color: str) -> None:
        super().__init__(records, step)
        self.color = color

    @property
    def sizes(self) -> list[Size]:
        """Width and height of each."""
        return [(array.shape[1], array.shape[0]) for array in self._arrays]


def _tensor(array: np.ndarray) -> torch.Tensor:
    """A tensor of its own: what a sample has made is made once, and must not be written over."""
    return torch.from_numpy(array.copy())


def stacked(arrays: Sequence[np.ndarray]) -> torch.Tensor:
    """Rows of one shape as a tensor."""
    return torch.from_numpy(np.stack(arrays))


# ------------------------------------------------------------------ steps


@dataclass(frozen=True)
class Numbers:
    """Feature ``key`` as numbers, see ``RawDecoder``; with ``truncate`` those that are too many are left out."""

    key: str
    shape: tuple[int, ...]
    dtype: str
    zero_padding: bool
    truncate: bool
    _decoder: RawDecoder = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_decoder", RawDecoder(self.key, self.shape, self.dtype, self.zero_padding))

    def of(self, sample: Sample) -> np.ndarray:
        row = self._decoder.row
        out = np.empty(row.shape, row.dtype.require_numpy())
        features = sample.features(self.key)
        self._decoder.write(_cut(features, self.key, row.elements) if self.truncate else features, out, sample.draws)
        return out


def _cut(features: Features, key: str, count: int) -> Features:
    found = feature(features, key)
    if found.kind == "bytes_list":
        return {key: FeatureValue(found.kind, [entry[:count] for entry in found.values])}
    return {key: FeatureValue(found.kind, found.values[:count])} if found.kind else features


@dataclass(frozen=True)
class Bytes:
    """The first entry of the bytes feature ``key``, as uint8."""

    key: str

    def of(self, sample: Sample) -> np.ndarray:
        return np.frombuffer(only_bytes(sample.features(self.key), self.key), np.uint8)


@dataclass(frozen=True)
class Decoded:
    """The picture whose bytes ``data`` gives, or a random part of it: uint8 of (height, width, channels)."""

    data: Step
    color: str
    crop: RandomCrop | None = None

    def of(self, sample: Sample) -> np.ndarray:
        image = decode(sample.value(self.data).data, self.color)
        if self.crop is None:
            return image
        window = self.crop.window(image.shape[1], image.shape[0], sample.draws)
        return image[window.y : window.y + window.h, window.x : window.x + window.w]


@dataclass(frozen=True)
class Resized:
    """A picture in another size: fixed, or what a function makes of its width and height."""

    picture: Step
    size: Size | Callable[[int, int], Size]
    method: str

    def of(self, sample: Sample) -> np.ndarray:
        image = sample.value(self.picture)
        size = self.size(image.shape[1], image.shape[0]) if callable(self.size) else self.size
        return resize(image, *size, self.method)


@dataclass(frozen=True)
class Cropped:
    """The part of a picture of ``size`` (width, height) whose free space ``anchor`` (x, y) divides."""

    picture: Step
    size: Size
    anchor: tuple[float, float]

    def of(self, sample: Sample) -> np.ndarray:
        image = sample.value(self.picture)
        x, y, width, height = center_crop(image.shape[1], image.shape[0], *self.size, self.anchor)
        return image[y : y + height, x : x + width]
