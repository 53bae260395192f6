"""OFRecord, Feature and the five lists, used like the protobuf classes of these names.

    sample = OFRecord(feature={"label": Feature(int32_list=Int32List(value=[7]))})
    file.write(struct.pack("q", sample.ByteSize()) + sample.SerializeToString())

Written by hand, without protobuf: the bytes come from ``messages.py``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, MutableSequence
from typing import Any, Self

import numpy as np

from oneflow.engine.core.record import messages
from oneflow.engine.core.record.messages import FeatureValue

__all__ = ["BytesList", "DoubleList", "Feature", "FloatList", "Int32List", "Int64List", "OFRecord"]


def _nothing() -> None:
    pass


class _Message:
    """What every message can do. A subclass says how it becomes bytes and takes them in."""

    def SerializeToString(self) -> bytes:
        raise NotImplementedError

    def MergeFromString(self, data: bytes) -> int:
        raise NotImplementedError

    def Clear(self) -> None:
        raise NotImplementedError

    def ParseFromString(self, data: bytes) -> int:
        """Replaces the content by that of ``data``; the number of bytes read. Broken bytes are a ``DataError``."""
        self.Clear()
        return self.MergeFromString(data)

    @classmethod
    def FromString(cls, data: bytes) -> Self:
        message = cls()
        message.MergeFromString(data)
        return message

    def CopyFrom(self, other: Self) -> None:
        if type(other) is not type(self):
            raise TypeError(f"CopyFrom takes a {type(self).__name__}, got {type(other).__name__}")
        self.ParseFromString(other.SerializeToString())

    def ByteSize(self) -> int:
        return len(self.SerializeToString())


class _Values(MutableSequence[Any]):
    """A repeated field: a list that checks what is put in and tells its owner of every change."""

    def __init__(self, check: Callable[[Any], Any], changed: Callable[[], None]) -> None:
        self._items: list[Any] = []
        self._check = check
        self._changed = changed

    def __getitem__(self, index: Any) -> Any:
        return self._items[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._items[index] = list(map(self._check, value)) if isinstance(index, slice) else self._check(value)
        self._changed()

    def __delitem__(self, index: Any) -> None:
        del self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    def insert(self, index: int, value: Any) -> None:
        self._items.insert(index, self._check(value))
        self._changed()

    def extend(self, values: Iterable[Any]) -> None:
        self._items.extend(list(map(self._check, values)))
        self._changed()

    def __eq__(self, other: object) -> bool:
        return self._items == (other._items if isinstance(other, _Values) else other)

    def __repr__(self) -> str:
        return repr(self._items)


class _List(_Message):
    """A message with one repeated field ``value``."""

    kind = ""

    def __init__(self, value: Iterable[Any] | None = None, _changed: Callable[[], None] = _nothing) -> None:
        self.value = _Values(self._check, _changed)
        if value is not None:
            self.value.extend(value)

    @staticmethod
    def _check(value: Any) -> Any:
        raise NotImplementedError

    def SerializeToString(self) -> bytes:
        return messages.encode_list(self.kind, self.value)

    def MergeFromString(self, data: bytes) -> int:
        values = messages.decode_list(self.kind, data)
        self.value.extend(values if isinstance(values, list) else values.tolist())
        return len(data)

    def Clear(self) -> None:
        del self.value[:]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _List) and type(other) is type(self) and self.value == other.value

    def __repr__(self) -> str:
        return f"{type(self).__name__}(value={self.value!r})"


class BytesList(_List):
    kind = "bytes_list"

    @staticmethod
    def _check(value: Any) -> bytes:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise TypeError(f"BytesList holds bytes, got {type(value).__name__} {value!r:.80}; encode text first")
        return bytes(value)


def _number(value: Any) -> float:
    if isinstance(value, (str, bytes)):
        raise TypeError(f"expected a number, got {type(value).__name__} {value!r:.80}")
    return float(value)


class FloatList(_List):
    kind = "float_list"

    @staticmethod
    def _check(value: Any) -> float:
        with np.errstate(over="ignore"):  # too large a number is inf in 32 bits, as it is on the wire
            return float(np.float32(_number(value)))


class DoubleList(_List):
    kind = "double_list"
    _check = staticmethod(_number)


def _integer(value: Any, bits: int) -> int:
    number = operator.index(value)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError(f"Value out of range: {number} does not fit {bits} bits")
    return number


class Int32List(_List):
    kind = "int32_list"

    @staticmethod
    def _check(value: Any) -> int:
        return _integer(value, 32)


class Int64List(_List):
    kind = "int64_list"

    @staticmethod
    def _check(value: Any) -> int:
        return _integer(value, 64)


_LISTS: dict[str, type[_List]] = {cls.kind: cls for cls in (BytesList, FloatList, DoubleList, Int32List, Int64List)}


class Feature(_Message):
    """One of the five lists. Writing into another one makes that the feature's list and drops the first."""

    def __init__(
        self,
        bytes_list: BytesList | None = None,
        float_list: FloatList | None = None,
        double_list: DoubleList | None = None,
        int32_list: Int32List | None = None,
        int64_list: Int64List | None = None,
    ) -> None:
        self._kind: str | None = None
        self._list: _List | None = None
        given: dict[str, _List | None] = {
            "bytes_list": bytes_list,
            "float_list": float_list,
            "double_list": double_list,
        }
        given |= {"int32_list": int32_list, "int64_list": int64_list}
        for kind, values in given.items():
            if values is not None:
                self._set(kind, values)

    def _set(self, kind: str, values: Any) -> None:
        if not isinstance(values, _LISTS[kind]):
            raise TypeError(f"Feature.{kind} is a {_LISTS[kind].__name__}, got {type(values).__name__}")
        self._empty(kind).value.extend(values.value)

    def _empty(self, kind: str) -> _List:
        """A list that becomes this feature's one as soon as something is put in."""
        fresh = _LISTS[kind](_changed=lambda: self._choose(kind, fresh))
        return fresh

    def _choose(self, kind: str, values: _List) -> None:
        self._kind, self._list = kind, values

    def _get(self, kind: str) -> Any:
        return self._list if self._kind == kind else self._empty(kind)

    @property
    def bytes_list(self) -> BytesList:
        return self._get("bytes_list")

    @property
    def float_list(self) -> FloatList:
        return self._get("float_list")

    @property
    def double_list(self) -> DoubleList:
        return self._get("double_list")

    @property
    def int32_list(self) -> Int32List:
        return self._get("int32_list")

    @property
    def int64_list(self) -> Int64List:
        return self._get("int64_list")

    def WhichOneof(self, group: str) -> str | None:
        """The name of the list that is set, or None; the group is called ``kind``."""
        if group != "kind":
            raise ValueError(f"Feature has one oneof, 'kind'; got {group!r}")
        return self._kind

    def HasField(self, name: str) -> bool:
        if name not in _LISTS:
            raise ValueError(f"Feature has the fields {list(_LISTS)}; got {name!r}")
        return self._kind == name

    def _to_value(self) -> FeatureValue:
        return FeatureValue(self._kind, self._list.value if self._list is not None else [])

    def _merge(self, value: FeatureValue) -> None:
        if value.kind is not None:
            values = value.values if isinstance(value.values, list) else value.values.tolist()
            self._get(value.kind).value.extend(values)

    def SerializeToString(self) -> bytes:
        return messages.encode_feature(self._to_value())

    def MergeFromString(self, data: bytes) -> int:
        self._merge(messages.decode_feature(data))
        return len(data)

    def Clear(self) -> None:
        self._kind = self._list = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Feature) and self._kind == other._kind and self._list == other._list

    def __repr__(self) -> str:
        return f"Feature({self._kind}={self._list!r})" if self._kind else "Feature()"


class _FeatureMap(MutableMapping[str, Feature]):
    """A map of messages: asking for a key makes it; a message is copied in with ``CopyFrom``, not assigned."""

    def __init__(self) -> None:
        self._features: dict[str, Feature] = {}

    def __getitem__(self, key: str) -> Feature:
        if not isinstance(key, str):
            raise TypeError(f"a feature's name is a str, got {key!r}")
        return self._features.setdefault(key, Feature())

    def __setitem__(self, key: str, value: Feature) -> None:
        raise ValueError(f"features are not assigned; write feature[{key!r}].CopyFrom(value)")

    def __delitem__(self, key: str) -> None:
        del self._features[key]

    def __contains__(self, key: object) -> bool:
        return key in self._features

    def get(self, key: str, default: Any = None) -> Any:
        return self._features.get(key, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._features)

    def __len__(self) -> int:
        return len(self._features)

    def __repr__(self) -> str:
        return repr(self._features)


class OFRecord(_Message):
    """A record: features by name."""

    def __init__(self, feature: Mapping[str, Feature] | None = None) -> None:
        self.feature = _FeatureMap()
        for key, value in (feature or {}).items():
            self.feature[key].CopyFrom(value)

    def SerializeToString(self) -> bytes:
        return messages.encode_record({key: value._to_value() for key, value in self.feature.items()})

    def MergeFromString(self, data: bytes) -> int:
        for key, value in messages.decode_record(data).items():
            self.feature[key].Clear()
            self.feature[key]._merge(value)
        return len(data)

    def Clear(self) -> None:
        self.feature = _FeatureMap()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OFRecord) and dict(self.feature) == dict(other.feature)

    def __repr__(self) -> str:
        return f"OFRecord(feature={self.feature!r})"
