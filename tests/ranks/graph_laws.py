"""Laws of graphs on ranks: what a graph of global tensors gives and trains is what one process gives and trains.

The reference is the same graph of local tensors in one process, the first rank's;
``tests/single/test_graph_against_eager.py`` compares that with plain torch.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import torch
from global_rank import RANK, SIZE, B, P, S, spread
from torch import Tensor, nn

import oneflow as flow
from oneflow.engine.global_tensor.placement import placement
from oneflow.engine.graph.compiled import capture
from oneflow.engine.graph.sources import Sources
from oneflow.engine.graph.structure import call_of
from oneflow.engine.program.notes import joint_note, val
from oneflow.engine.world import join

STEPS = 5
ALL = placement("cpu", range(SIZE))


class MLP(nn.Module):
    def __init__(self, p: float = 0.25) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(p), nn.Linear(16, 6))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = (
            nn.Conv2d(2, 6, 3, padding=1, bias=False),
            nn.BatchNorm2d(6),
            nn.Linear(6 * 9, 6),
        )
        self.pool, self.drop = nn.MaxPool2d(2), nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(self.pool(torch.relu(self.norm(self.conv(x)))).flatten(1)))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.value, self.out = (nn.Linear(width, width) for _ in range(3))
        self.key = nn.Linear(width, width, bias=False)  # the gradient of a bias would be rounding alone

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = (layer(x).view(b, t, self.heads, -1).transpose(1, 2) for layer in (self.query, self.key, self.value))
        return self.out(
            nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
        )


class Block(nn.Module):
    def __init__(self, width: int, heads: int, p: float) -> None:
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(width), Attention(width, heads), nn.LayerNorm(width)
        self.up, self.down, self.drop = nn.Linear(width, 2 * width), nn.Linear(2 * width, width), nn.Dropout(p)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.drop(self.down(nn.functional.gelu(self.up(self.norm2(x)))))


class GPT(nn.Module):
    """Tied embeddings, causal attention."""

    def __init__(self, p: float = 0.1, depth: int = 2) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(12, 16), nn.Embedding(6, 16)
        self.blocks = nn.ModuleList([Block(16, 4, p) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 12, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).flatten(0, 1)


def _text(draw: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randint(12, (8, 6), generator=draw), torch.randint(12, (48,), generator=draw)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[torch.Generator], tuple[Tensor, Tensor]]]] = {
    "MLP": (MLP, lambda draw: (torch.randn(8, 8, generator=draw), torch.randint(6, (8,), generator=draw))),
    "conv net": (
        ConvNet,
        lambda draw: (torch.randn(8, 2, 6, 6, generator=draw), torch.randint(6, (8,), generator=draw)),
    ),
    "GPT": (partial(GPT, depth=1), _text),
    "GPT of two blocks": (GPT, _text),
}


class Train(flow.nn.Graph):
    def __init__(self, model: nn.Module, optimizer: Any, settings: Callable[[Any], None] = lambda graph: None) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer)
        settings(self)

    def build(self, x: Tensor, y: Tensor) -> Tensor:
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        return loss


class Evaluate(flow.nn.Graph):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def build(self, x: Tensor) -> Tensor:
        return self.model(x)


def model_of(name: str) -> nn.Module:
    torch.manual_seed(3)
    return MODELS[name][0]()


def batches(name: str, count: int = STEPS) -> list[tuple[Tensor, Tensor]]:
    draw = torch.Generator().manual_seed(7)
    return [MODELS[name][1](draw) for _ in range(count)]


def adam(model: nn.Module) -> Any:
    return flow.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)


def momentum(model: nn.Module) -> Any:
    return flow.optim.SGD(
        [{"params": list(model.parameters()), "clip_grad_max_norm": 0.5, "clip_grad_norm_type": 2.0}],
        lr=0.05,
        momentum=0.9,
    )


def nothing(graph: Any) -> None:
    """No setting."""


@lru_cache(maxsize=None)
def trained_alone(name: str, optimizer: Any = adam, settings: Any = nothing) -> tuple[nn.Module, list[Tensor]]:
    """What one process trains: the first rank does, and tells the others, which come here too."""
    model = model_of(name)
    graph = Train(model, optimizer(model), settings)
    found = [[graph(x, y).clone() for x, y in batches(name)], model.state_dict()] if RANK == 0 else [None, None]
    join()
    torch.distributed.broadcast_object_list(found)
    losses, state = found
    model.load_state_dict(state)
    return model, losses


def trained(
    name: str,
    lay: Callable[[nn.Module], None],
    inputs: Any = S(0),
    optimizer: Any = adam,
    settings: Any = nothing,
    place: Any = ALL,
) -> tuple[Any, nn.Module, list[Tensor]]:
    model = model_of(name)
    lay(model)
    graph = Train(model, optimizer(model), settings)
    return graph, model, [whole(graph(spread(x, place, inputs), spread(y, place, inputs))) for x, y in batches(name)]


def whole(tensor: Any) -> Tensor:
    assert tensor.is_global
    return torch.from_numpy(tensor.detach().numpy())


def assigned_of(graph: Any, *inputs: Any) -> Any:
    """What all ranks share of a step."""
    return capture(graph._graph, call_of(inputs, {}), Sources()).assigned()


def copies(model: nn.Module) -> None:
    model.to_global(ALL, B)


def close(found: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float = 1e-5) -> None:
    for step, (one, other) in enumerate(zip(found, expected, strict=True)):
        torch.testing.assert_close(
            one, other.detach(), rtol=tolerance, atol=tolerance, msg=lambda text, step=step: f"step {step}: {text}"
        )


def same(model: nn.Module, alone: nn.Module, tolerance: float = 2e-5) -> None:
    """Parameters and buffers are those of the module that was trained in one process."""
    expected = alone.state_dict()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(
            whole(tensor), expected[name], rtol=tolerance, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}"
        )


# ------------------------------------------------------------------ data parallel


def data_parallel(name: str, optimizer: Any = adam) -> None:
    alone, losses = trained_alone(name, optimizer)
    _, model, found = trained(name, copies, optimizer=optimizer)
    close(found, losses)
    same(model, alone)


def law_a_data_parallel_mlp_trains_as_one_process_does() -> None:
    data_parallel("MLP")
    data_parallel("MLP", momentum)


def law_a_data_parallel_conv_net_with_batch_norm_trains_as_one_process_does() -> None:
    data_parallel("conv net", momentum)


def law_pictures_and_filters_stay_in_channels_last_memory() -> None:
    alone, losses = trained_alone("conv net", momentum)
    model = model_of("conv net").to(memory_format=torch.channels_last)
    copies(model)
    graph = Train(model, momentum(model))
    given = [(x.contiguous(memory_format=torch.channels_last), y) for x, y in batches("conv net")]
    close([whole(graph(spread(x, ALL, S(0)), spread(y, ALL, S(0)))) for x, y in given], losses)
    same(model, alone)
    filters = [p.to_local() for p in model.parameters() if p.dim() == 4]
    assert filters and all(part.is_contiguous(memory_format=torch.channels_last) for part in filters)


def law_winograd_convolutions_and_fused_norms_train_as_in_one_process() -> None:
    """Large enough for the kernels of the C extensions, by data parallelism, and with filters split over ranks."""
    torch.manual_seed(1)
    layers = (
        nn.Conv2d(3, 32, 3, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU6(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
    )
    plain = nn.Sequential(*layers, nn.Flatten(), nn.Linear(64, 6)).to(memory_format=torch.channels_last)
    data = [
        (torch.randn(8, 3, 20, 20).contiguous(memory_format=torch.channels_last), torch.arange(8) % 6) for _ in range(3)
    ]
    alone = copy.deepcopy(plain)
    graph = Train(alone, momentum(alone))
    losses = [graph(x, y) for x, y in data]
    for split_filters in (False, True):
        model = copy.deepcopy(plain)
        copies(model)
        if split_filters:
            model[3].to_global(ALL, S(0))
        graph = Train(model, momentum(model))
        close([whole(graph(spread(x, ALL, S(0)), spread(y, ALL, S(0)))) for x, y in data], losses)
        same(model, alone)


def law_fused_updates_of_channels_last_filters_are_those_of_one_process() -> None:
    torch.manual_seed(0)
    expected = nn.Conv2d(4, 8, 3).to(memory_format=torch.channels_last)
    conv = copy.deepcopy(expected)
    conv.to_global(ALL, B)
    x = torch.arange(4 * 4 * 5 * 5.0).view(4, 4, 5, 5).cos().contiguous(memory_format=torch.channels_last)
    for module, given in ((expected, x), (conv, spread(x, ALL, S(0)))):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, fused=True)
        for _ in range(3):
            optimizer.zero_grad()
            module(given).square().mean().backward()
            optimizer.step()
    same(conv, expected)


def law_a_data_parallel_gpt_trains_as_one_process_does() -> None:
    data_parallel("GPT")


def plain_losses(model: nn.Module, data: Sequence[tuple[Tensor, Tensor]]) -> list[Tensor]:
    """A loop of plain torch."""
    optimizer, found = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), []
    for x, y in data:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return found


def law_a_graph_on_ranks_trains_as_a_loop_of_plain_torch_does() -> None:
    torch.manual_seed(3)
    alone, model = MLP(0.0), MLP(0.0)
    model.load_state_dict(alone.state_dict())
    expected = plain_losses(alone, batches("MLP"))
    copies(model)
    graph = Train(model, flow.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    close([whole(graph(spread(x, ALL, S(0)), spread(y, ALL, S(0)))) for x, y in batches("MLP")], expected)
    same(model, alone)


class Writes(nn.Module):
    """Writes into views of what it has made, and of its buffers, and reads what these are views of."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.head = nn.Linear(8, 8), nn.Linear(12, 6)
        self.register_buffer("seen", torch.zeros(2, 8))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.seen.mul_(0.5).add_(0.25)
            self.seen[1].add_(x.sum(0))
            self.seen.view(-1)[:3].copy_(x[0, :3])
        made = torch.cat([x, x[:, :4]], 1) * self.scale.bias.sum()
        rows, right = made.t(), made[:, 8:]
        made[:, :8] = self.scale(x)
        right.copy_(x[:, :4])
        right[:, 1:3].add_(made[:, :2] * self.seen[1, :2])
        return self.head(rows.t() + made.relu())


def law_what_is_written_into_a_view_is_seen_by_all_that_lie_in_its_memory() -> None:
    torch.manual_seed(3)
    alone = Writes()
    model = copy.deepcopy(alone)
    expected = plain_losses(alone, batches("MLP"))
    copies(model)
    graph = Train(model, flow.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    close([whole(graph(spread(x, ALL, S(0)), spread(y, ALL, S(0)))) for x, y in batches("MLP")], expected)
    same(model, alone)


def law_inputs_may_lie_in_any_layout() -> None:
    alone, losses = trained_alone("MLP")
    for inputs in (B, S(0)):
        _, model, found = trained("MLP", copies, inputs)
        close(found, losses)
        same(model, alone)
    x = batches("MLP", 1)[0][0]
    model = model_of("MLP").eval()
    expected = model(x)
    copies(model)
    for inputs in (B, P, S(0), S(1)):
        close([whole(Evaluate(model)(spread(x, ALL, inputs)))], [expected])


# ------------------------------------------------------------------ tensor parallel

GRID = placement("cpu", [[0, 1]] if SIZE == 2 else [[0, 1], [2, 3]])
COLUMN, ROW = ("query", "key", "value", "up", "layers.0"), ("out", "down", "layers.3")


def megatron(name: str) -> Any:
    """How a parameter lies: the first of two layers is split by its outputs, the second by its inputs; the rest is
    whole."""
    path, _, kind = name.rpartition(".")
    if path.endswith(COLUMN):
        return S(0)
    return S(1) if path.endswith(ROW) and kind == "weight" else B


def split_layers(model: nn.Module, place: Any = ALL) -> None:
    made: dict[int, nn.Parameter] = {}
    for path, module in model.named_modules():
        for name, tensor in list(module._parameters.items()):
            if tensor is not None:
                sbp = (B,) * (len(place.hierarchy) - 1) + (megatron(f"{path}.{name}"),)
                module._parameters[name] = made.setdefault(id(tensor), nn.Parameter(spread(tensor, place, sbp)))


def tensor_parallel(name: str, place: Any, inputs: Any) -> None:
    alone, losses = trained_alone(name)
    _, model, found = trained(name, lambda model: split_layers(model, place), inputs, place=place)
    close(found, losses)
    same(model, alone)
    assert {str(p.sbp[-1]) for p in model.parameters()} == set(map(str, (B, S(0), S(1))))  # parameters stay as they lay


def law_tensor_parallel_models_train_as_one_process_does() -> None:
    tensor_parallel("MLP", ALL, B)
    tensor_parallel("GPT", ALL, B)


def law_data_and_tensor_parallel_go_together() -> None:
    tensor_parallel("MLP", GRID, (S(0), B))
    tensor_parallel("GPT", GRID, (S(0), B))


# ------------------------------------------------------------------ what build sees


class Hinted(flow.nn.Graph):
    def __init__(self, model: nn.Module, seen: dict[str, Any]) -> None:
        super().__init__()
        self.model, self.seen = model, seen
        self.add_optimizer(adam(model))

    def build(self, x: Any, y: Any) -> Any:
        first, second = self.model.layers[0], self.model.layers[3]
        self.seen.update(x=(x.is_global, x.is_local, x.placement, x.sbp), w=first.weight.sbp, shape=tuple(x.shape))
        x = x.to_global(grad_sbp=x.sbp)
        h = torch.relu(first(x)).to_global(sbp=B, grad_sbp=B)
        self.seen.update(h=h.sbp, open=(h * 2).sbp)
        h = h.to_global(placement=ALL, sbp=S(1)) * flow.ones(16, placement=ALL, sbp=B)
        out = second(h).to_global(sbp=S(0))
        loss = nn.functional.cross_entropy(out, y)
        loss.backward()
        return loss.to_global(sbp=B), out


def law_to_global_in_build_says_how_values_lie() -> None:
    x, y = batches("MLP", 1)[0]
    alone = model_of("MLP")
    hidden = torch.relu(alone.layers[0](x))
    expected = alone.layers[3](hidden)
    model, seen = model_of("MLP"), {}
    copies(model)
    loss, out = Hinted(model, seen)(spread(x, ALL, S(0)), spread(y, ALL, S(0)))
    close([whole(loss), whole(out)], [nn.functional.cross_entropy(expected, y), expected])
    assert loss.sbp == (B,) and out.sbp == (S(0),) and out.placement == ALL
    assert (
        seen["x"] == (True, False, ALL, (S(0),)) and seen["w"] == (B,) and seen["h"] == (B,) and seen["shape"] == (8, 8)
    )
    assert str(seen["open"]) == "(oneflow.sbp.auto,)"


def law_masks_do_not_depend_on_the_seeds_of_other_ranks() -> None:
    _, losses = trained_alone("MLP")
    model = model_of("MLP")
    copies(model)
    graph = Train(model, adam(model))
    torch.manual_seed(3 if flow.env.get_rank() == 0 else 11)
    close([whole(graph(spread(x, ALL, S(0)), spread(y, ALL, S(0)))) for x, y in batches("MLP")], losses)


class Attribute(nn.Module):
    """A global tensor that is neither parameter nor buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 6)
        self.mask = spread(torch.arange(6.0), ALL, B)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.mask


def law_global_tensors_that_are_attributes_of_modules_take_part() -> None:
    torch.manual_seed(3)
    model = Attribute()
    x = batches("MLP", 1)[0][0]
    expected = nn.functional.linear(x, model.linear.weight, model.linear.bias) * torch.arange(6.0)
    copies(model)
    close([whole(Evaluate(model)(spread(x, ALL, S(0))))], [expected])
    assert model.mask.is_global


# ------------------------------------------------------------------ what is shared


def law_local_modules_stay_local_and_each_rank_has_its_own() -> None:
    rank = flow.env.get_rank()
    torch.manual_seed(rank)
    alone, model = MLP(0.0), MLP(0.0)
    model.load_state_dict(alone.state_dict())
    data = [(x + rank, y) for x, y in batches("MLP")]
    graph = Train(model, flow.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    found = [graph(x, y) for x, y in data]
    assert not found[0].is_global
    close(found, plain_losses(alone, data))
    close(list(model.parameters()), list(alone.parameters()))


def law_graphs_and_eager_code_share_global_parameters() -> None:
    model = model_of("MLP")
    copies(model)
    graph, evaluate = Train(model, adam(model)), Evaluate(model)
    data = batches("MLP")
    x = spread(data[0][0], ALL, S(0))
    for step, (images, labels) in enumerate(data):
        graph(spread(images, ALL, S(0)), spread(labels, ALL, S(0)))
        model.eval()
        close([whole(evaluate(x))], [whole(model(x))])
        model.train()
        with torch.no_grad():
            model.layers[0].bias.add_(0.1 * step)  # is seen by the next step


def law_the_work_of_a_data_parallel_gpt_is_shared() -> None:
    """Every product, attention and look-up of a step, forward and backward, is computed on parts."""
    model = model_of("GPT")
    copies(model)
    x, y = batches("GPT", 1)[0]
    assigned = assigned_of(Train(model, adam(model)), spread(x, ALL, S(0)), spread(y, ALL, S(0)))
    heavy = [
        node
        for node in assigned.graph.nodes
        if any(name in str(node.target) for name in ("mm", "attention", "embedding"))
    ]
    assert len(heavy) > 20
    places = [
        node for node in heavy if "embedding" in str(node.target) and val(node.args[1]).dim() == 1
    ]  # the same for all samples
    whole_ones = [str(node) for node in heavy if joint_note(node).share == 1.0 and node not in places]
    assert not whole_ones, whole_ones


def law_ranks_without_a_part_of_a_parameter_evaluate_too() -> None:
    """Rank 0 alone has the first weight, so what ranks may compute once and keep differs; what they send does not."""
    torch.manual_seed(3)
    model, x = nn.Sequential(nn.Linear(1, 4, bias=False), nn.Linear(4, 5, bias=False)), torch.randn(64, 1)
    expected = model(x).detach()
    for layer, sbp in zip(model, (S(1), S(0))):
        layer.weight = nn.Parameter(spread(layer.weight.detach(), ALL, sbp))
    close([whole(Evaluate(model)(spread(x, ALL, S(0))))], [expected])
