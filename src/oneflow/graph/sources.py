"""What data modules read in a graph: their calls are made and remembered while ``build`` is traced, and made again for every other batch.

A tensor that such a call gives becomes a feed of the step. Records and pictures of their own sizes stay among data modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, NoReturn

from torch import Tensor
from torch.utils import _pytree as pytree

from oneflow.compiler.module_joint import AddFeed, untraced
from oneflow.core.errors import GraphError
from oneflow.data.samples import Listing, Records
from oneflow.data.source import Source, listening
from oneflow.graph.structure import Meta, meta_of


@dataclass(frozen=True)
class Place:
    """A value that a call gave: the number of the call, and the value's among its results."""

    call: int
    result: int


@dataclass(frozen=True)
class SourceCall:
    """A call of a data module. Inputs are places, or constants."""

    function: Callable[..., Any]
    inputs: tuple[Any, ...]

    def results(self, made: Sequence[Sequence[Any]]) -> tuple[list[Any], Any]:
        """The call's results after those of earlier calls: flat, and how they are nested."""
        given = [made[value.call][value.result] if isinstance(value, Place) else value for value in self.inputs]
        return pytree.tree_flatten(self.function(*given))


class Held:
    """What stands in ``build`` for something that data modules hand to each other and that is no tensor."""

    def __init__(self, recording: Recording, place: Place, title: str) -> None:
        self._recording, self._place, self._title = recording, place, title

    def __repr__(self) -> str:
        return f"<{self._title} of a graph>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python and torch look for
            raise AttributeError(name)
        self._refuse()

    def __getitem__(self, index: Any) -> Any:
        self._refuse()

    def __len__(self) -> int:
        self._refuse()

    def __iter__(self) -> Iterator[Any]:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise GraphError(
            f"{self._title} in build() are another batch's at every step, and no tensors: they go to data modules alone, such as flow.nn.OFRecordRawDecoder "
            "or flow.nn.image.Resize, which make tensors of them"
        )


def refuse_held(results: Sequence[Any]) -> None:
    """Refuses results of ``build`` that only data modules can take."""
    for result in results:
        if isinstance(result, Held):
            result._refuse()


class Recording:
    """Listens to data modules while a graph is built: their calls read the batch of the first step."""

    def __init__(self, add_feed: AddFeed) -> None:
        self.calls: list[SourceCall] = []
        self.feeds: list[Tensor] = []
        self.before: dict[Source, dict[str, Any]] = {}
        self._add_feed = add_feed
        self._made: list[list[Any]] = []
        self._tensors: dict[int, tuple[Tensor, int, Place]] = {}  # by the id of what stands for one in build, with its version then

    def knows(self, value: Any) -> bool:
        if not isinstance(value, Tensor):
            return isinstance(value, Held)
        known = self._tensors.get(id(value))
        return known is not None and known[1] == value._version

    def call(self, module: object, function: Callable[..., Any], inputs: tuple[Any, ...]) -> Any:
        call = SourceCall(function, tuple(self._input(module, value) for value in inputs))
        with untraced():
            if isinstance(module, Source) and module not in self.before:
                self.before[module] = module.state()
            leaves, nesting = call.results(self._made)
        number = len(self.calls)
        self.calls.append(call)
        self._made.append(leaves)
        return pytree.tree_unflatten([self._shown(leaf, Place(number, i)) for i, leaf in enumerate(leaves)], nesting)

    def _input(self, module: object, value: Any) -> Any:
        kind = type(module).__name__
        if isinstance(value, (Records, Listing)):
            raise GraphError(f"{kind} was given {value!r} in build(), which were read outside it and would be the batch of every step; call their reader in build()")
        if isinstance(value, Held) and value._recording is not self:
            raise GraphError(f"{kind} was given {value!r} that was kept from another build(); call its reader in this one")
        if isinstance(value, Held):
            return value._place
        return self._tensors[id(value)][2] if self.knows(value) else value

    def _shown(self, leaf: Any, place: Place) -> Any:
        """What ``build`` sees of a result."""
        if isinstance(leaf, Tensor):
            self.feeds.append(leaf)
            value = self._add_feed(leaf)
            self._tensors[id(value)] = value, value._version, place
            return value
        return Held(self, place, type(leaf).__name__) if isinstance(leaf, (Records, Listing)) else leaf


class Sources:
    """The reading of a graph: ``next`` gives the feeds of the next batch, at first those that were read while the graph was built."""

    def __init__(self) -> None:
        self._calls: list[SourceCall] = []
        self._metas: list[Meta] = []
        self._first: list[Tensor] | None = None
        self._before: dict[Source, dict[str, Any]] = {}
        self._reading = Lock()

    def __bool__(self) -> bool:
        return bool(self._calls)

    @property
    def metas(self) -> Sequence[Meta]:
        """Shape, dtype and device of each feed."""
        return self._metas

    @property
    def before(self) -> dict[Source, dict[str, Any]]:
        """Where the readers of a batch that no step has used stood before it; empty once one has."""
        return self._before

    @contextmanager
    def recorded(self, add_feed: AddFeed) -> Iterator[None]:
        """Takes note of the calls of data modules."""
        recording = Recording(add_feed)
        self._before = recording.before  # also for a build that fails on the way
        with listening(recording):
            yield
        self._calls, self._first = recording.calls, recording.feeds
        self._metas = [meta_of(tensor) for tensor in recording.feeds]

    def next(self) -> list[Tensor]:
        """The feeds of the next batch."""
        with self._reading:
            feeds, self._first = self._first, None
            self._before = {}
            return self._read() if feeds is None else feeds

    def close(self) -> None:
        """Gives a batch back that no step has used: its readers will read it again."""
        for source, state in self._before.items():
            source.load_state(state)
        self._first, self._before = None, {}

    def _read(self) -> list[Tensor]:
        made: list[list[Any]] = []
        for call in self._calls:
            made.append(call.results(made)[0])
        feeds = [leaf for leaves in made for leaf in leaves if isinstance(leaf, Tensor)]
        metas = [meta_of(tensor) for tensor in feeds]
        if metas != self._metas:
            raise GraphError(
                f"data modules gave the graph {_told(self._metas)} at its first step and now give {_told(metas)}; a graph has the same shapes at every step: "
                "make another graph of the changed modules"
            )
        return feeds


def _told(metas: Sequence[Meta]) -> str:
    return ", ".join(map(str, metas))
