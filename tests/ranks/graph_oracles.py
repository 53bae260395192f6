"""The same training by torch's own DDP, FSDP2 and tensor parallelism in the same ranks: graphs and eager global tensors
train what these do.

No code of ours computes on the side of torch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from global_rank import RANK, SIZE, B, S, spread
from graph_laws import ALL, Train, close, nothing, whole
from graph_matrix import STEPS, eager, in_layers, lay, zero
from matrix_models import batches, made
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import oneflow as flow

State = dict[str, Tensor]


def losses_of(model: nn.Module, name: str, shares: bool) -> list[Tensor]:
    """A loop of plain torch; with ``shares`` each rank trains its share of every batch, and the loss is the mean of
    theirs."""
    optimizer, found = torch.optim.AdamW(model.parameters(), lr=0.01, eps=1e-3, weight_decay=0.1), []
    for x, y in batches(name, STEPS):
        if shares:
            x, y = x.chunk(SIZE)[RANK], y.chunk(SIZE)[RANK]
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.detach().clone())
    if shares:
        for loss in found:
            torch.distributed.all_reduce(loss)
            loss /= SIZE
    return found


def state_of(model: nn.Module) -> State:
    return {
        name: value.full_tensor() if isinstance(value, DTensor) else value.detach().clone()
        for name, value in model.state_dict().items()
    }


@lru_cache(maxsize=None)
def mesh() -> Any:
    flow.comm.barrier()  # the world is there from here on
    return init_device_mesh("cpu", (SIZE,))


def ddp(name: str) -> tuple[list[Tensor], State]:
    model = made(name, with_dropout=False)
    mesh()
    return losses_of(DistributedDataParallel(model), name, shares=True), state_of(model)


def fsdp(name: str) -> tuple[list[Tensor], State]:
    model = made(name, with_dropout=False)
    for part in model.blocks if hasattr(model, "blocks") else (model.layers[0], model.layers[3]):
        fully_shard(part, mesh=mesh())
    fully_shard(model, mesh=mesh())
    return losses_of(model, name, shares=True), state_of(model)


def tensor_parallel(name: str) -> tuple[list[Tensor], State]:
    """Each two layers of the MLP, and of the blocks of the GPT: the first by its outputs, the second by its inputs."""
    model = made(name, with_dropout=False)
    pairs = [("layers.0", "layers.3")] if name == "MLP" else [(f"blocks.{i}.up", f"blocks.{i}.down") for i in range(2)]
    parallelize_module(
        model,
        mesh(),
        {
            path: style
            for first, second in pairs
            for path, style in ((first, ColwiseParallel()), (second, RowwiseParallel()))
        },
    )
    return losses_of(model, name, shares=False), state_of(model)


def ours(
    name: str, lay_out: Callable[[nn.Module], Any], inputs: Any, settings: Any = nothing
) -> tuple[list[Tensor], State]:
    model = made(name, with_dropout=False)
    lay_out(model)
    optimizer = flow.optim.AdamW(model.parameters(), lr=0.01, eps=1e-3, weight_decay=0.1)
    graph = Train(model, optimizer, settings)
    found = [whole(graph(spread(x, ALL, inputs), spread(y, ALL, inputs))) for x, y in batches(name, STEPS)]
    return found, {key: whole(value) for key, value in model.state_dict().items()}


def alike(found: tuple[list[Tensor], State], expected: tuple[list[Tensor], State]) -> None:
    close(found[0], expected[0])
    assert found[1].keys() == expected[1].keys()
    for name, value in expected[1].items():
        torch.testing.assert_close(
            found[1][name], value, rtol=2e-5, atol=2e-5, msg=lambda text, name=name: f"{name}: {text}"
        )


def copies(model: nn.Module) -> nn.Module:
    return model.to_global(ALL, B)


def split_pairs(name: str) -> Callable[[nn.Module], nn.Module]:
    return lambda model: lay(model, in_layers(name, ALL))


def law_data_parallel_graphs_train_what_ddp_does() -> None:
    for name in ("MLP", "GPT"):
        alike(ours(name, copies, S(0)), ddp(name))


def law_zero_3_trains_what_fsdp_does() -> None:
    for name in ("MLP", "GPT"):
        alike(ours(name, copies, S(0), zero(3)), fsdp(name))


def law_tensor_parallel_graphs_train_what_torch_does() -> None:
    for name in ("MLP", "GPT"):
        alike(ours(name, split_pairs(name), B), tensor_parallel(name))


def law_eager_global_tensors_train_what_ddp_and_torchs_tensor_parallel_do() -> None:
    for lay_out, inputs, oracle in ((copies, S(0), ddp), (split_pairs("MLP"), B, tensor_parallel)):
        found, model = eager("MLP", lay_out(made("MLP", with_dropout=False)), inputs, ALL)
        alike((found, {key: whole(value) for key, value in model.state_dict().items()}), oracle("MLP"))
