"""What data modules read in a graph: their calls are made and remembered while ``build`` is traced, and made again for
every other batch.

A tensor that such a call gives becomes a feed of the step. Records and pictures of their own sizes stay among data
modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, NoReturn

from torch import Tensor
from torch.utils import _pytree as pytree

from oneflow.engine.capture.module_joint import AddFeed
from oneflow.engine.capture.tracer import untraced
from oneflow.engine.core.errors import GraphError
from oneflow.engine.data.samples import Listing, Records
from oneflow.engine.data.source import Source, listening
from oneflow.engine.graph.structure import Meta, meta_of
from oneflow.engine.ops.kernels.counter_random import stable_seed


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
            f"{self._title} in build() are another batch's at every step, and no tensors: they go to data modules "
            f"alone, such as flow.nn.OFRecordRawDecoder "
            "or flow.nn.image.Resize, which make tensors of them"
        )


def refuse_held(results: Sequence[Any]) -> None:
    """Refuses results of ``build`` that only data modules can take."""
    for result in results:
        if isinstance(result, Held):
            result._refuse()


class Recording:
    """Listens to data modules while a graph is built: their calls read the batch of the first step."""

    def __init__(self, add_feed: AddFeed, seed: int | None = None) -> None:
        self._seed = seed
        self.calls: list[SourceCall] = []
        self.feeds: list[Tensor] = []
        self.before: dict[Source, dict[str, Any]] = {}
        self.is_by_sources = True
        """Whether all that is read is read by modules that can read a share of the rows."""
        self._add_feed = add_feed
        self._made: list[list[Any]] = []
        self._tensors: dict[
            int, tuple[Tensor, int, Place]
        ] = {}  # by the id of what stands for one in build, with its version then

    def knows(self, value: Any) -> bool:
        if not isinstance(value, Tensor):
            return isinstance(value, Held)
        known = self._tensors.get(id(value))
        return known is not None and known[1] == value._version

    def call(self, module: object, function: Callable[..., Any], inputs: tuple[Any, ...]) -> Any:
        call = SourceCall(function, tuple(self._input(module, value) for value in inputs))
        self.is_by_sources &= isinstance(module, Source) or any(isinstance(value, Place) for value in call.inputs)
        with untraced():
            if isinstance(module, Source) and module not in self.before:
                self._begin(module)
            leaves, nesting = call.results(self._made)
        number = len(self.calls)
        self.calls.append(call)
        self._made.append(leaves)
        return pytree.tree_unflatten([self._shown(leaf, Place(number, i)) for i, leaf in enumerate(leaves)], nesting)

    def _begin(self, source: Source) -> None:
        """The first batch is read whole, wherever it is used."""
        source.share(0, 1)
        if self._seed is not None:
            source.draw_from(stable_seed(self._seed, f"source {len(self.before)}"))
        self.before[source] = source.state()

    def _input(self, module: object, value: Any) -> Any:
        kind = type(module).__name__
        if isinstance(value, (Records, Listing)):
            raise GraphError(
                f"{kind} was given {value!r} in build(), which were read outside it and would be the batch of every "
                f"step; call their reader in build()"
            )
        if isinstance(value, Held) and value._recording is not self:
            raise GraphError(
                f"{kind} was given {value!r} that was kept from another build(); call its reader in this one"
            )
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
    """The reading of a graph: ``next`` gives the feeds of the next batch, at first those that were read while the graph
    was built."""

    def __init__(self) -> None:
        self._calls: list[SourceCall] = []
        self._metas: list[Meta] = []
        self._first: list[Tensor] | None = None
        self._before: dict[Source, dict[str, Any]] = {}
        self._reading = Lock()
        self._read_by: list[Source] = []
        self._is_by_sources = True
        self._share = (0, 1)
        self.seed: int | None = None
        """What data modules without a seed of their own draw from, where several ranks read one batch."""

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
        recording = Recording(add_feed, self.seed)
        self._before = recording.before  # also for a build that fails on the way
        with listening(recording):
            yield
        self._calls, self._first, self._read_by = recording.calls, recording.feeds, list(recording.before)
        self._is_by_sources = recording.is_by_sources
        self._metas = [meta_of(tensor) for tensor in recording.feeds]

    def first(self) -> dict[str, Tensor]:
        """The batch that was read while the graph was built, by the names of its feeds."""
        return {f"source_{number}": tensor for number, tensor in enumerate(self._first or ())}

    def share_out(self, number: int, shares: int) -> None:
        """From the second batch on this process reads one of so many equal shares of the rows of every feed."""
        self._share = (number, shares) if self._is_by_sources else (0, 1)

    def next(self) -> list[Tensor]:
        """The feeds of the next batch; from the second on, of the share of its rows that this process reads."""
        with self._reading:
            feeds, self._first = self._first, None
            self._before = {}
            return self._read() if feeds is None else feeds

    def close(self) -> None:
        """Gives a batch back that no step has used: its readers will read it again."""
        for source in self._read_by:
            source.share(0, 1)
        for source, state in self._before.items():
            source.load_state(state)
        self._first, self._before = None, {}

    def _read(self) -> list[Tensor]:
        for source in self._read_by:
            source.share(*self._share)
        made: list[list[Any]] = []
        for call in self._calls:
            made.append(call.results(made)[0])
        feeds = [leaf for leaves in made for leaf in leaves if isinstance(leaf, Tensor)]
        metas = [meta_of(tensor) for tensor in feeds]
        shares = self._share[1]
        if metas != [
            meta if shares == 1 else replace(meta, shape=(meta.shape[0] // shares, *meta.shape[1:]))
            for meta in self._metas
        ]:
            raise GraphError(
                f"data modules gave the graph {_told(self._metas)} at its first step and now give {_told(metas)}; a "
                f"graph has the same shapes at every step: "
                "make another graph of the changed modules"
            )
        return feeds


def _told(metas: Sequence[Meta]) -> str:
    return ", ".join(map(str, metas))
