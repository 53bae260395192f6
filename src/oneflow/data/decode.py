"""From a record's feature to the numbers of one row of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oneflow.core.errors import DataError
from oneflow.core.spec import TensorSpec
from oneflow.data.messages import FeatureValue
from oneflow.data.records import Record


@dataclass(frozen=True)
class RawDecoder:
    """Feature ``key`` of each record as numbers of ``row`` (shape and dtype of one record's values).

    A number list must have as many values as the row; with ``zero_padding`` it may have fewer and zeros follow. A bytes
    feature is one entry, each byte a signed number (200 is -56) unless the row is uint8.
    """

    key: str
    row: TensorSpec
    zero_padding: bool = False

    def spec(self, batch_size: int) -> TensorSpec:
        return TensorSpec((batch_size, *self.row.shape), self.row.dtype)

    def decode(self, records: Sequence[Record]) -> np.ndarray:
        """One row a record."""
        rows = np.zeros((len(records), self.row.elements), self.row.dtype.numpy)
        for row, record in zip(rows, records):
            values = self._values(record)
            row[: len(values)] = values
        return rows.reshape(len(records), *self.row.shape)

    def _values(self, record: Record) -> np.ndarray:
        try:
            values = _numbers(self._feature(record), rows_are_unsigned=self.row.dtype.name == "uint8")
            self._check_count(len(values))
            self._check_range(values)
        except DataError as error:
            raise DataError(f"{record.where}: {error}") from None
        return values

    def _feature(self, record: Record) -> FeatureValue:
        if self.key not in record.features:
            raise DataError(f"Field {self.key} not found; the record has {sorted(record.features)}")
        return record.features[self.key]

    def _check_count(self, count: int) -> None:
        wanted = self.row.elements
        if count != wanted and not (self.zero_padding and count < wanted):
            hint = "; auto_zero_padding=True fills up with zeros" if count < wanted else ""
            raise DataError(f"feature {self.key!r} has {count} values, shape {self.row.shape} takes {wanted}{hint}")

    def _check_range(self, values: np.ndarray) -> None:
        """A number that the dtype cannot hold is an error; a fraction is cut as a cast does."""
        dtype = self.row.dtype.numpy
        assert dtype is not None
        if dtype.kind == "f" or values.size == 0 or np.can_cast(values.dtype, dtype):
            return
        limits = np.iinfo(dtype)
        low, high = values.min(), values.max()
        if not (low >= limits.min and high <= limits.max):
            raise DataError(f"feature {self.key!r} has values from {low} to {high}, which {self.row.dtype.name} cannot hold")


def _numbers(feature: FeatureValue, rows_are_unsigned: bool) -> np.ndarray:
    if feature.kind is None:
        return np.empty(0, np.float32)
    if feature.kind != "bytes_list":
        return feature.values
    if len(feature.values) != 1:
        raise DataError(f"a bytes feature is decoded from exactly one entry, this one has {len(feature.values)}")
    return np.frombuffer(feature.values[0], np.uint8 if rows_are_unsigned else np.int8)
