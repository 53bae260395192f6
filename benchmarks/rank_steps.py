"""The steps of ``ranks.py``: ours and their rivals', each as one of two processes takes it. Both must make theirs at
the same time, so each is made when it is first called."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from graph_models import GPT, Work, works
from graph_step import TrainGraph, load_tracing
from torch import Tensor, nn

import oneflow as flow

Step = Callable[[], object]
LEARNING_RATE = 1e-4


def made_at_first_call(make: Callable[[], Step]) -> Step:
    made = functools.cache(make)
    return lambda: made()()


# ------------------------------------------------------------------ who they are


def join_as_peer(rank: int, port: int) -> None:
    """What a launcher would have set."""
    own = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": 2,
        "LOCAL_WORLD_SIZE": 2,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
    os.environ |= {name: str(value) for name, value in own.items()}


def join_with_torch(rank: int, port: int) -> None:
    load_tracing()  # so that memory is that of tensors
    dist.init_process_group("gloo", store=dist.TCPStore("127.0.0.1", port, 2, rank == 0), rank=rank, world_size=2)


def optimizer_of(params: Any, by_adamw: bool = True) -> torch.optim.Optimizer:
    return (
        torch.optim.AdamW(params, lr=LEARNING_RATE, fused=True)
        if by_adamw
        else torch.optim.SGD(params, lr=1e-3, momentum=0.9, fused=True)
    )


def our_optimizer(model: nn.Module, by_adamw: bool = True) -> flow.optim.Optimizer:
    params = model.parameters()
    return flow.optim.AdamW(params, lr=LEARNING_RATE) if by_adamw else flow.optim.SGD(params, lr=1e-3, momentum=0.9)


def eager(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> Step:
    def step() -> Tensor:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


# ------------------------------------------------------------------ data parallel, and ZeRO


def _net(work: Work, channels_last: bool) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    model, (x, y) = work.make(), work.inputs()
    if channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    return model, x, y


def data_parallel(rank: int, port: int, title: str, is_small: bool, zero: int = 0) -> Step:
    """A graph of global tensors: each rank has a batch of its own and the whole network, or with ZeRO a part of it."""

    def make() -> Step:
        join_as_peer(rank, port)
        work = works(is_small)[title]
        model, x, y = _net(work, work.has_images)
        everyone = flow.placement.all("cpu")
        model.to_global(everyone, flow.sbp.broadcast)
        graph = TrainGraph(model, our_optimizer(model, work.by_adamw))
        graph.config.enable_zero(zero > 0, stage=zero or 1)
        return lambda: graph(x.to_global(everyone, flow.sbp.split(0)), y.to_global(everyone, flow.sbp.split(0)))

    return made_at_first_call(make)


def ddp(rank: int, port: int, title: str, is_small: bool) -> Step:
    def make() -> Step:
        join_with_torch(rank, port)
        work = works(is_small)[title]
        model, x, y = _net(work, work.has_images)
        spread = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
        return eager(spread, optimizer_of(spread.parameters(), work.by_adamw), x, y)

    return made_at_first_call(make)


def fsdp(rank: int, port: int, title: str, is_small: bool, reshards: bool) -> Step:
    """FSDP2 as its guide has it: every block is a unit, then the rest."""

    def make() -> Step:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view")  # nobody writes into the scores
        join_with_torch(rank, port)
        model, x, y = _net(works(is_small)[title], False)
        mesh = init_device_mesh("cpu", (2,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh, reshard_after_forward=reshards)
        fully_shard(model, mesh=mesh, reshard_after_forward=reshards)
        return eager(model, optimizer_of(model.parameters()), x, y)

    return made_at_first_call(make)


def alone(title: str, is_small: bool) -> Step:
    """One process with a graph of local tensors and the batch of one rank."""
    work = works(is_small)[title]
    model, x, y = _net(work, work.has_images)
    graph = TrainGraph(model, our_optimizer(model, work.by_adamw))
    return lambda: graph(x, y)


# ------------------------------------------------------------------ tensor parallel


class HeadsBlock(nn.Module):
    """A transformer layer that does not ask how many heads a rank has."""

    def __init__(self, width: int, head: int) -> None:
        super().__init__()
        self.head = head
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        h = self.norm1(x)
        q, k, v = (linear(h).view(batch, length, -1, self.head).transpose(1, 2) for linear in (self.q, self.k, self.v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, -1))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


WIDE, NARROW = ("q", "k", "v", "up"), ("out", "down")  # layers whose outputs are shared out, and those whose inputs are


def _block(is_small: bool) -> tuple[nn.Module, Tensor]:
    width, batch, length = (32, 2, 8) if is_small else (512, 8, 128)
    torch.manual_seed(0)
    return HeadsBlock(width, width // 8), torch.randn(batch, length, width)


class BlockGraph(flow.nn.Graph):
    def __init__(self, block: nn.Module, optimizer: flow.optim.Optimizer) -> None:
        super().__init__()
        self.block = block
        self.add_optimizer(optimizer)

    def build(self, x: Tensor) -> Tensor:
        loss = self.block(x).square().mean()
        loss.backward()
        return loss


def tensor_parallel(rank: int, port: int, is_small: bool) -> Step:
    def make() -> Step:
        join_as_peer(rank, port)
        block, x = _block(is_small)
        everyone, split = flow.placement.all("cpu"), flow.sbp.split
        block.to_global(everyone, flow.sbp.broadcast)
        for name in (*WIDE, *NARROW):
            layer = getattr(block, name)
            layer.weight = nn.Parameter(layer.weight.data.to_global(sbp=split(0 if name in WIDE else 1)))
            if name in WIDE:
                layer.bias = nn.Parameter(layer.bias.data.to_global(sbp=split(0)))
        graph = BlockGraph(block, our_optimizer(block))
        given = x.to_global(everyone, flow.sbp.broadcast)
        return lambda: graph(given)

    return made_at_first_call(make)


def torch_tensor_parallel(rank: int, port: int, is_small: bool) -> Step:
    def make() -> Step:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        join_with_torch(rank, port)
        block, x = _block(is_small)
        ways = {**{name: ColwiseParallel() for name in WIDE}, **{name: RowwiseParallel() for name in NARROW}}
        parallelize_module(block, init_device_mesh("cpu", (2,)), ways)
        # the norms' parameters are plain tensors, whole on both ranks: fused kernels take one kind at a time
        optimizers = [
            optimizer_of([p for p in block.parameters() if (type(p.data) is torch.Tensor) is plain])
            for plain in (True, False)
        ]

        def step() -> Tensor:
            loss = block(x).square().mean()
            for optimizer in optimizers:
                optimizer.zero_grad(set_to_none=True)
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            return loss.detach()

        return step

    return made_at_first_call(make)


def block_alone(is_small: bool) -> Step:
    block, x = _block(is_small)
    graph = BlockGraph(block, our_optimizer(block))
    return lambda: graph(x)


# ------------------------------------------------------------------ pipeline

MICRO_BATCHES = 8


class Embedded(nn.Module):
    """The first stage of the GPT: ids to hidden states."""

    def __init__(self, gpt: Any, blocks: nn.Module) -> None:
        super().__init__()
        self.tokens, self.positions, self.blocks = gpt.tokens, gpt.positions, blocks

    def forward(self, ids: Tensor) -> Tensor:
        return self.blocks(self.tokens(ids) + self.positions(torch.arange(ids.shape[1])))


class Scores(nn.Module):
    """The last stage: hidden states to a score for every word."""

    def __init__(self, gpt: Any, blocks: nn.Module) -> None:
        super().__init__()
        self.blocks, self.norm, self.head = blocks, gpt.norm, gpt.head

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(x)))


def _stages(is_small: bool) -> tuple[nn.Module, nn.Module, Tensor, Tensor]:
    """Two stages of about the same work: as many blocks in each, few words."""
    torch.manual_seed(0)
    words, width, blocks, length = (50, 32, 2, 16) if is_small else (500, 256, 8, 128)
    gpt = GPT(words, width, blocks, length)
    ids, labels = (torch.randint(0, words, (MICRO_BATCHES, length)) for _ in range(2))
    return Embedded(gpt, gpt.blocks[: blocks // 2]), Scores(gpt, gpt.blocks[blocks // 2 :]), ids, labels


def _loss(scores: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(scores.flatten(0, 1), labels.flatten())


class PipelineGraph(flow.nn.Graph):
    def __init__(
        self, first: nn.Module, last: nn.Module, optimizer: flow.optim.Optimizer, places: tuple[Any, ...] = ()
    ) -> None:
        super().__init__()
        self.first, self.last = first, last
        for number, (stage, place) in enumerate(zip((self.first, self.last), places)):
            stage.to(flow.nn.graph.GraphModule).set_stage(number, place)
        self.config.set_gradient_accumulation_steps(MICRO_BATCHES)
        self.add_optimizer(optimizer)

    def build(self, ids: Tensor, labels: Tensor) -> Tensor:
        loss = _loss(self.last(self.first(ids)), labels)
        loss.backward()
        return loss


def pipeline(rank: int, port: int, is_small: bool) -> Step:
    def make() -> Step:
        join_as_peer(rank, port)
        first, last, ids, labels = _stages(is_small)
        places = flow.placement("cpu", [0]), flow.placement("cpu", [1])
        for stage, place in zip((first, last), places):
            stage.to_global(place, flow.sbp.broadcast)
        optimizer = our_optimizer(nn.ModuleList([first, last]))
        graph = PipelineGraph(first, last, optimizer, places)
        given = ids.to_global(places[0], flow.sbp.broadcast), labels.to_global(places[1], flow.sbp.broadcast)
        return lambda: graph(*given)

    return made_at_first_call(make)


def torch_pipeline(rank: int, port: int, is_small: bool) -> Step:
    def make() -> Step:
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B

        join_with_torch(rank, port)
        first, last, ids, labels = _stages(is_small)
        own = (first, last)[rank]
        schedule = Schedule1F1B(PipelineStage(own, rank, 2, torch.device("cpu")), MICRO_BATCHES, loss_fn=_loss)
        optimizer = optimizer_of(own.parameters())

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            if rank == 0:
                schedule.step(ids)
            else:
                schedule.step(target=labels, losses=[])
            optimizer.step()

        return step

    return made_at_first_call(make)


def pipeline_alone(is_small: bool) -> Step:
    first, last, ids, labels = _stages(is_small)
    graph = PipelineGraph(first, last, our_optimizer(nn.ModuleList([first, last])))
    return lambda: graph(ids, labels)
