"""Laws of data modules in graphs of global tensors: the batch is one, each rank reads its part, and the numbers are
those of one process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from global_rank import RANK, SIZE, B
from graph_laws import ALL, GRID, close, same, whole
from torch import Tensor, nn

import oneflow as flow
from oneflow.data import write_records
from oneflow.engine.core.errors import GraphError
from oneflow.engine.core.record.messages import FeatureValue, encode_record
from oneflow.engine.data.source import read
from oneflow.engine.global_tensor.placement import placement
from oneflow.nn.graph import GraphModule

COUNT, WIDTH, CLASSES, BATCH = 22, 6, 3, 8
PIXELS = np.random.default_rng(5).random((COUNT, WIDTH)).astype(np.float32)
LABELS = np.arange(COUNT, dtype=np.int32) * 7 % CLASSES


@contextmanager
def records() -> Iterator[str]:
    """A folder of records of this rank's own, with the same data on every rank."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            encode_record(
                {
                    "images": FeatureValue("float_list", pixels.tolist()),
                    "labels": FeatureValue("int32_list", [int(label)]),
                }
            )
            for pixels, label in zip(PIXELS, LABELS)
        ]
        write_records(Path(folder) / "part-0", rows[:13])
        write_records(Path(folder) / "part-1", rows[13:])
        yield folder


class Digits(nn.Module):
    def __init__(self, folder: str, seed: int = 4, batch: int = BATCH) -> None:
        super().__init__()
        self.reader = flow.nn.OFRecordReader(
            folder, batch, 2, random_shuffle=True, shuffle_after_epoch=True, random_seed=seed
        )
        self.images = flow.nn.OFRecordRawDecoder("images", (WIDTH,), flow.float32)
        self.labels = flow.nn.OFRecordRawDecoder("labels", (), flow.int32)
        self.coins = flow.nn.CoinFlip(batch, random_seed=9)

    def forward(self) -> Any:
        read = self.reader()
        return self.images(read) + self.coins().reshape(-1, 1), self.labels(read)


class Train(flow.nn.Graph):
    def __init__(self, data: nn.Module, net: nn.Module, steps: int = 1) -> None:
        super().__init__()
        self.data, self.net = data, net
        self.add_optimizer(flow.optim.SGD(net.parameters(), lr=0.3, momentum=0.9))
        self.config.set_gradient_accumulation_steps(steps)

    def build(self) -> Any:
        images, labels = self.data()
        loss = nn.functional.cross_entropy(self.net(images), labels.to(torch.int64))
        loss.backward()
        return loss, labels


def net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, CLASSES))


def plain(folder: str, steps: int, batch: int = BATCH, count: int = 1) -> tuple[nn.Module, list[Tensor], list[Tensor]]:
    """A loop of plain torch over what the modules read outside of graphs."""
    model, data = net(), Digits(folder, batch=batch)
    optimizer, losses, labels = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9), [], []
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(count):
            x, y = data()
            loss = nn.functional.cross_entropy(model(x), y.long())
            (loss / count).backward()
            losses.append(loss.detach())
            labels.append(y)
        optimizer.step()
    data.reader.close()
    return model, losses, labels


def law_graphs_train_on_what_each_rank_reads_of_a_batch() -> None:
    with records() as folder:
        alone, losses, labels = plain(folder, 6)
        for place, sbp in ((ALL, B), (GRID, (B, B))):
            data, model = Digits(folder), net().to_global(place, sbp)
            graph = Train(data, model)
            found = [graph() for _ in range(6)]
            close([whole(loss) for loss, _ in found], losses)
            close([whole(read) for _, read in found], labels)
            same(model, alone)
            assert len(data.reader.forward()) == BATCH // SIZE  # no more than its rows
            data.reader.close()


def law_batches_that_are_not_shared_out_evenly_are_read_whole() -> None:
    with records() as folder:
        alone, losses, _ = plain(folder, 3, batch=7)
        data, model = Digits(folder, batch=7), net().to_global(ALL, B)
        graph = Train(data, model)
        close([whole(graph()[0]) for _ in range(3)], losses)
        same(model, alone)
        assert len(data.reader.forward()) in (1, 7)  # one row is an equal share of any number: that rank reads it alone
        data.reader.close()


def law_each_micro_batch_is_read_for_itself() -> None:
    with records() as folder:
        alone, losses, labels = plain(folder, 3, count=2)
        data, model = Digits(folder), net().to_global(ALL, B)
        graph = Train(data, model, steps=2)
        found = [graph() for _ in range(3)]
        close([whole(loss) for loss, _ in found], [torch.stack(losses[i : i + 2]) for i in (0, 2, 4)])
        close([whole(read) for _, read in found], [torch.cat(labels[i : i + 2]) for i in (0, 2, 4)])
        same(model, alone)
        data.reader.close()


def law_stages_read_what_they_need() -> None:
    half = max(1, SIZE // 2)
    places = placement("cpu", range(half)), placement("cpu", range(half, 2 * half))
    with records() as folder:
        alone, losses, _ = plain(folder, 4)
        data, model = Digits(folder), net()
        model[0].to_global(places[0], B), model[2].to_global(places[1], B)
        graph = Train(data, model)
        for layer, place in ((0, places[0]), (2, places[1])):
            graph.net[layer].to(GraphModule).set_stage(layer // 2, place)
        close([whole(graph()[0]) for _ in range(4)], losses)
        same(model, alone)
        data.reader.close()


def law_a_saved_state_goes_on_reading_where_it_was() -> None:
    with records() as folder:
        alone, losses, _ = plain(folder, 6)
        data, model = Digits(folder), net().to_global(ALL, B)
        graph = Train(data, model)
        found = [whole(graph()[0]) for _ in range(3)]
        state = graph.state_dict()
        other, again = Digits(folder), net().to_global(ALL, B)
        resumed = Train(other, again)
        resumed.load_state_dict(state)
        found += [whole(resumed()[0]) for _ in range(3)]
        close(found, losses)
        same(again, alone)
        data.reader.close(), other.reader.close()


class Numbers(nn.Module):
    """A data module that reads nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def forward(self) -> Any:
        return read(self, self._next)

    def _next(self) -> Tensor:
        self.count += 1
        return torch.arange(8.0).reshape(4, 2) + self.count


def law_modules_that_cannot_read_a_share_give_all_and_ranks_take_their_parts() -> None:
    graph = Adds(nn.Linear(2, 2).to_global(ALL, B), Numbers())
    for step in range(3):
        close([whole(graph())], [torch.arange(8.0).reshape(4, 2) + step + 1])


class Adds(flow.nn.Graph):
    def __init__(self, net: nn.Module, numbers: nn.Module) -> None:
        super().__init__()
        self.net, self.numbers = net, numbers

    def build(self) -> Any:
        return self.numbers() + self.net.weight.sum() * 0


class Flips(flow.nn.Graph):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.coins = net, flow.nn.CoinFlip(64)

    def build(self) -> Any:
        return self.coins() + self.net.weight.sum() * 0


def law_coins_without_a_seed_fall_alike_on_all_ranks() -> None:
    torch.manual_seed(RANK)
    graph = Flips(nn.Linear(2, 2).to_global(ALL, B))
    first, second = (whole(graph()) for _ in range(2))
    everyone: list[Any] = [None] * SIZE
    flow.comm.barrier()
    torch.distributed.all_gather_object(everyone, (first, second))
    assert all(torch.equal(one[0], first) and torch.equal(one[1], second) for one in everyone)
    assert not torch.equal(first, second) and 0 < first.sum() < 64


def law_ranks_that_read_different_batches_are_told_so() -> None:
    with records() as folder:
        data, model = Digits(folder, seed=RANK), net().to_global(ALL, B)
        try:
            Train(data, model)()
        except GraphError as error:
            assert (
                "is not the same graph on every rank" in str(error)
                and "source_0" in str(error)
                and "of digest" in str(error)
            )
        else:
            raise AssertionError("nothing was refused")
        data.reader.close()
