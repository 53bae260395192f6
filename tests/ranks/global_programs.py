"""Laws of programs on global tensors: chains of ops drawn at random, views and writes, and training."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from global_rank import SIZE, B, P, S, layouts, meshes, near, placement, spread
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import oneflow as flow

ROWS, COLUMNS, OPS = 7, 6, 20

STEPS: list[Callable[[Any, Any, Any], Any]] = [
    lambda a, b, w: torch.relu(a),
    lambda a, b, w: a + b,
    lambda a, b, w: torch.tanh(a) * b,
    lambda a, b, w: torch.sigmoid(a) - b,
    lambda a, b, w: a / (b * b + 1.0),
    lambda a, b, w: torch.relu(a.reshape(ROWS * COLUMNS)).reshape(ROWS, COLUMNS),
    lambda a, b, w: (torch.tanh(a.t()) + b.t()).t(),
    lambda a, b, w: torch.tanh(a @ w),
    lambda a, b, w: F.linear(a, w, w[0]) * 0.3,
    lambda a, b, w: a - b.mean(0, keepdim=True),
    lambda a, b, w: torch.cat([a[:, :3], torch.relu(b[:, 3:])], 1),
    lambda a, b, w: torch.cat([a[2:], b[:2]], 0),
    lambda a, b, w: torch.softmax(a, 1) + b * 0.5,
    lambda a, b, w: F.layer_norm(a, (COLUMNS,), w[1], w[2]),
    lambda a, b, w: torch.where(a > b, a, b * 0.5),
    lambda a, b, w: a.unsqueeze(1).expand(ROWS, 3, COLUMNS).mean(1) + a.sum() * 0.01,
    lambda a, b, w: torch.stack([a, b]).amax(0),
    lambda a, b, w: a.roll(2, 0) * b.flip(1),
    lambda a, b, w: a[torch.argsort(a.detach()[:, 0])] if isinstance(a, Tensor) else a,
    lambda a, b, w: torch.einsum("ij,kj->ik", a, b).tanh() @ b * 0.2,
    lambda a, b, w: a.clone().add_(b).mul_(0.5),
    lambda a, b, w: a.index_select(0, torch.argmax(b.detach(), 0)).mean() + a,
]


def law_chains_of_twenty_ops_are_what_they_are_on_one_process() -> None:
    for seed in range(8):
        dice = random.Random(seed)
        place = (
            dice.choice(meshes()) if seed % 4 else placement("cpu", np.arange(SIZE).reshape(2, SIZE // 2, 1))
        )  # three axes
        values = torch.Generator().manual_seed(seed)
        x, w = torch.randn(ROWS, COLUMNS, generator=values), torch.randn(COLUMNS, COLUMNS, generator=values) * 0.4
        picks = [(dice.randrange(len(STEPS)), dice.randrange(i + 1), dice.randrange(i + 1)) for i in range(OPS)]
        moves = {i: dice.choice(layouts(2, len(place.hierarchy))) for i in dice.sample(range(OPS), 5)}
        start = [dice.choice(layouts(2, len(place.hierarchy))) for _ in range(2)]
        plain = [x.clone().requires_grad_(), w.clone().requires_grad_()]
        ours = [spread(value, place, sbp).requires_grad_() for value, sbp in zip((x, w), start)]
        expected, found = _chain(plain, picks, {}), _chain(ours, picks, moves)
        near(found, expected, 1e-3)
        expected.backward()
        found.backward()
        for leaf, other in zip(plain, ours):
            assert (other.grad is None) == (leaf.grad is None)
            if leaf.grad is not None:
                assert other.grad.sbp == other.sbp
                near(other.grad, leaf.grad, 1e-3)


def _chain(leaves: list[Any], picks: list[tuple[int, int, int]], moves: dict[int, Any]) -> Any:
    values = [leaves[0]]
    for number, (kind, first, second) in enumerate(picks):
        made = STEPS[kind](values[first], values[second], leaves[1])
        values.append(made.to_global(sbp=moves[number]) if number in moves else made)
    return sum((value * value).mean() for value in values[-3:])


# ------------------------------------------------------------------ views and writes

WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "a number into a row": lambda x, y: x.__setitem__(1, 2.0),
    "a row into a row": lambda x, y: x.__setitem__(4, y[0]),
    "into some rows": lambda x, y: x.__setitem__(slice(2, 6), y[1:5]),
    "into a column": lambda x, y: x.__setitem__((slice(None), 3), y[:, 0]),
    "one element": lambda x, y: x.__setitem__((6, 5), 9.0),
    "every second row": lambda x, y: x[::2].mul_(3.0),
    "by numbers": lambda x, y: x.index_put_((torch_like(x, [0, 5, 2]),), y[:3]),
    "by a list": lambda x, y: x.__setitem__([0, 5, 2], y[[1, 1, 4]]),
    "by an array": lambda x, y: x.__setitem__((slice(1, 4), np.array([2, 0])), y[:3, np.array([0, 1])]),
    "into a view of a view": lambda x, y: x[1:6].t()[2:4].add_(1.0),
    "across a split": lambda x, y: x.view(-1)[5:20].zero_(),
    "where": lambda x, y: x.masked_fill_(y > 0, -1.0),
    "where, by a mask": lambda x, y: x.__setitem__(y > 0, 0.5),
    "add": lambda x, y: x.add_(y, alpha=2.0),
    "nonlinear": lambda x, y: x.relu_().pow_(2),
    "copy": lambda x, y: x.copy_(y[0]),
    "fill": lambda x, y: x.fill_(3.0),
    "diagonal": lambda x, y: x.fill_diagonal_(7.0),
    "a view that is read before and after": lambda x, y: x.add_(_read(x[3]).sum()).add_(x[3] * 0 + _read(x[3]).sum()),
    "a view read again after a write": lambda x, y: _again(x),
    "addcmul": lambda x, y: x.addcmul_(y, y, value=0.5),
    "lerp": lambda x, y: x.lerp_(y, 0.25),
    "out": lambda x, y: torch.mul(y, 2.0, out=x),
}


def torch_like(x: Any, numbers: list[int]) -> Any:
    index = torch.tensor(numbers)
    return index.to_global(x.placement, [B] * len(x.sbp)) if hasattr(x, "_spec") else index


def _read(view: Any) -> Any:
    return view * 1.0


def _again(x: Any) -> None:
    view = x[2:4]
    x.mul_(2.0)
    view.add_(1.0)
    x.add_(view.sum())


def law_writes_into_a_tensor_and_its_views_reach_its_memory() -> None:
    dice = random.Random(1)
    for name, write in WRITES.items():
        for _ in range(2):
            place = dice.choice(meshes())
            x, y = (
                torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(3)),
                torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(4)),
            )
            spots = [dice.choice(layouts(2, len(place.hierarchy))) for _ in range(2)]
            ours, other = (spread(v, place, sbp) for v, sbp in zip((x, y), spots))
            try:
                write(x, y)
                write(ours, other)
                near(ours, x)
                assert ours.sbp == spots[0]
            except Exception as error:
                raise AssertionError(f"{name}: {spots} on {place}: {str(error)[:500]}") from error


def law_gradients_pass_through_writes() -> None:
    for place in meshes():
        for sbp in layouts(2, len(place.hierarchy))[::3]:
            found = []
            whole = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(5))
            for leaf in (whole.clone().requires_grad_(), spread(whole, place, sbp).requires_grad_()):
                x = leaf * 2.0
                x[1:3] = x[4:6].clone() * x[0].clone()
                x[:, 2].mul_(3.0)
                (x * x).sum().backward()
                found.append(leaf.grad)
            near(found[1], found[0])


# ------------------------------------------------------------------ training


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.first, self.norm, self.second = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 5)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x: Any) -> Any:
        h = self.embedding(x).mean(1)
        return self.second(self.dropout(F.gelu(self.norm(self.first(h)))))


def law_training_is_the_same_in_every_layout() -> None:
    """Data parallel, tensor parallel, both, parameters split: the losses and weights of one process; dropout
    included."""
    everything = list(range(SIZE))
    whole = placement("cpu", [0])
    flat = placement("cpu", everything)
    both = placement("cpu", [[0, 1], [2, 3]] if SIZE == 4 else [[0, 1]])
    tensor = {"first.weight": S(0), "first.bias": S(0), "second.weight": S(1), "embedding.weight": S(1)}
    plans = (
        (flat, S(0), {}, B),
        (flat, B, tensor, B),
        (flat, S(0), {}, S(0)),
        (both, (S(0), B), {name: (B, sbp) for name, sbp in tensor.items()}, (B, B)),
    )
    for make in (_sgd, _adam):
        expected = _trained(make, whole, B, {}, B)
        for place, batch, layout, default in plans:
            found = _trained(make, place, batch, layout, default)
            for one, other in zip(found, expected):
                assert torch.allclose(one, other, 1e-4, 1e-5), (place, batch, layout, (one - other).abs().max())


def _sgd(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, 0.1, momentum=0.9, weight_decay=0.01)


def _adam(parameters: Any) -> Any:
    return torch.optim.AdamW(parameters, 0.01)


def _trained(make: Any, place: Any, batch: Any, layout: dict[str, Any], default: Any) -> list[Tensor]:
    torch.manual_seed(0)
    net = Net()
    for name, value in net.named_parameters():
        parent, _, leaf = name.rpartition(".")
        sbp = layout.get(name, default)
        sbp = sbp if sbp is not None else default
        whole = [B] * len(place.hierarchy)
        module = net.get_submodule(parent)
        module._parameters[leaf] = nn.Parameter(value.data.to_global(place, whole).to_global(sbp=sbp))
    optimizer = make(net.parameters())
    data = torch.Generator().manual_seed(2)
    losses = []
    for _ in range(10):
        x = torch.randint(11, (12, 4), generator=data).to_global(place, [B] * len(place.hierarchy)).to_global(sbp=batch)
        y = torch.randint(5, (12,), generator=data).to_global(place, [B] * len(place.hierarchy)).to_global(sbp=batch)
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        losses.append(torch.tensor(loss.item()))
    return [*losses, *(torch.from_numpy(value.detach().numpy()) for value in net.parameters())]


def law_partial_sums_are_terms() -> None:
    near(spread(torch.arange(6.0), meshes()[0], P), torch.arange(6.0))


def law_optimizers_of_the_house_update_parts() -> None:
    values = [torch.randn(6, 4, generator=torch.Generator().manual_seed(i)) for i in range(4)]
    clipping = {"clip_grad_max_norm": 0.5, "clip_grad_norm_type": 2.0}
    makers: list[Callable[[Any], Any]] = [
        lambda p: flow.optim.SGD([{"params": p, **clipping}], 0.1, momentum=0.9, weight_decay=0.1),
        lambda p: flow.optim.Adam([{"params": p, **clipping}], 0.1),
        lambda p: flow.optim.AdamW([{"params": p, **clipping}], 0.1),
        lambda p: flow.optim.LAMB([{"params": p, **clipping}], 0.1),
        lambda p: flow.optim.Adagrad([{"params": p, **clipping}], 0.1),
        lambda p: flow.optim.RMSprop([{"params": p, **clipping}], 0.1, centered=True),
        lambda p: flow.optim.Adadelta([{"params": p, **clipping}], 0.1),
    ]
    for make, sbps in itertools.product(makers, ([S(0)] * 4, [B, S(1), S(0), B])):
        plain = [nn.Parameter(v.clone()) for v in values]
        ours = [nn.Parameter(spread(v, meshes()[0], sbp)) for v, sbp in zip(values, sbps)]
        for parameters in (plain, ours):
            optimizer = make(parameters)
            for _ in range(3):
                optimizer.zero_grad()
                sum((p**2).sum() for p in parameters).backward()
                optimizer.clip_grad()
                optimizer.step()
        for one, other in zip(ours, plain):
            near(one, other)
        state = optimizer.state_dict()
        make(ours).load_state_dict(state)


class Block(nn.Module):
    """A layer of a transformer with attention in one kernel."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm2, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        n, length, width = x.shape
        q, k, v = (t.reshape(n, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, length, width)
        x = x + self.out(h)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def law_a_transformer_layer_is_the_same_in_every_layout() -> None:
    torch.manual_seed(0)
    reference = Block(16, 4)
    x = torch.randn(8, 6, 16)
    (reference(x) ** 2).mean().backward()
    place = placement("cpu", [[0, 1], [2, 3]] if SIZE == 4 else [[0, 1]])
    parallel = {
        "up.weight": S(0),
        "up.bias": S(0),
        "down.weight": S(1),
        "qkv.weight": S(0),
        "qkv.bias": S(0),
        "out.weight": S(1),
    }
    for batch, along in ((S(0), B), (B, B), (S(0), S(0))):
        net = Block(16, 4)
        for name, value in reference.named_parameters():
            module, _, leaf = name.rpartition(".")
            net.get_submodule(module)._parameters[leaf] = nn.Parameter(spread(value, place, (B, parallel.get(name, B))))
        (net(spread(x, place, (batch, along))) ** 2).mean().backward()
        for (name, one), other in zip(net.named_parameters(), reference.parameters()):
            assert one.grad.sbp == one.sbp, name
            near(one.grad, other.grad)


def law_autocast_works_on_parts() -> None:
    values = torch.Generator().manual_seed(0)
    x, w = torch.randn(8, 6, generator=values), torch.randn(6, 4, generator=values)
    ours = spread(x, meshes()[0], S(0)), spread(w, meshes()[0], B)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        made = ours[0] @ ours[1]
        assert made.dtype == torch.bfloat16
        near(made.float(), (x @ w).float(), 2e-2)


def law_checkpointed_layers_have_the_same_gradients() -> None:
    values = torch.Generator().manual_seed(0)
    x, w = torch.randn(8, 6, generator=values), torch.randn(6, 6, generator=values)
    found = []
    for again in (False, True):
        leaf = spread(w, meshes()[0], S(1)).requires_grad_()
        data = spread(x, meshes()[0], S(0))
        torch.manual_seed(1)

        def layer(value: Any, leaf: Any = leaf) -> Any:
            return F.dropout(torch.tanh(value @ leaf), 0.5)

        made = checkpoint(layer, data, use_reentrant=False) if again else layer(data)
        made.sum().backward()
        found.append(leaf.grad.numpy())
    assert abs(found[0] - found[1]).max() < 1e-6


def law_gradients_are_clipped_by_the_norm_of_the_logical_ones() -> None:
    values = [torch.randn(6, 4, generator=torch.Generator().manual_seed(i)) for i in range(4)]
    places = [placement("cpu", [0]), placement("cpu", [1]), meshes()[0], meshes()[1]]
    for order, several in itertools.product((1.0, 2.0, 3.0, float("inf")), (False, True)):
        plain = [nn.Parameter(v.clone()) for v in values]
        ours = []
        for number, value in enumerate(values):
            place = places[number] if several else meshes()[0]
            ours.append(nn.Parameter(spread(value, place, [(B, S(0), S(1), P)[number]] * len(place.hierarchy))))
        for one, other, value in zip(plain, ours, values):
            one.grad, other.grad = value * 2, (other * 2).detach()
        expected, found = nn.utils.clip_grad_norm_(plain, 1.5, order), flow.nn.utils.clip_grad_norm_(ours, 1.5, order)
        assert abs(expected.item() - found.item()) < 1e-4 * expected.item()
        for one, other in zip(plain, ours):
            near(other.grad, one.grad)
    ours[0].grad.fill_(float("nan"))
    try:
        flow.nn.utils.clip_grad_norm_(ours, 1.0, error_if_nonfinite=True)
    except RuntimeError as error:
        assert "cannot be clipped" in str(error)
    else:
        raise AssertionError("a norm that is no number was taken")


def law_models_of_transformers_run_as_they_are() -> None:
    """GPT-2 and BERT, batches and parameters split; masks and positions that they make themselves are global in
    ``global_mode``."""
    if SIZE != 2 or find_spec("transformers") is None:
        return
    from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

    small = {"vocab_size": 50, "bos_token_id": 0, "eos_token_id": 0}
    gpt = GPT2Config(**small, n_positions=16, n_embd=16, n_layer=2, n_head=4, loss_type="ForCausalLMLoss")
    bert = BertConfig(
        **small,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=32,
        max_position_embeddings=16,
    )
    place = placement("cpu", [0, 1])
    ids = torch.randint(0, 50, (4, 12), generator=torch.Generator().manual_seed(1))
    for make, layout in itertools.product((lambda: GPT2LMHeadModel(gpt), lambda: BertForMaskedLM(bert)), (B, S(0))):
        torch.manual_seed(0)
        reference = make().eval()
        expected = reference(input_ids=ids, labels=ids).loss
        expected.backward()
        torch.manual_seed(0)
        net = make().eval().to_global(place, B)
        for module in net.modules():
            for name, value in list(module._parameters.items()):
                if value is not None and not isinstance(module, nn.Embedding):
                    module._parameters[name] = nn.Parameter(value.detach().to_global(sbp=layout))
        net.tie_weights()
        batch = spread(ids, place, S(0))
        with flow.utils.global_view.global_mode(True, placement=place, sbp=B):
            loss = net(input_ids=batch, labels=batch).loss
        loss.backward()
        near(loss.detach(), expected.detach(), 1e-5)
        for (name, one), other in zip(net.named_parameters(), reference.parameters()):
            assert (one.grad is None) == (other.grad is None), name
            if other.grad is not None:
                near(one.grad, other.grad, 1e-4)


def law_recurrent_networks_begin_with_zeros() -> None:
    place = placement("cpu", list(range(SIZE)))
    x = torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(2))
    for make in (lambda: nn.LSTM(4, 5), lambda: nn.GRU(4, 5, bidirectional=True)):
        torch.manual_seed(0)
        reference = make()
        expected = reference(x)[0]
        (expected * expected).sum().backward()
        for sbp in (S(0), S(1)):
            torch.manual_seed(0)
            net = make().to_global(place, B)
            found = net(spread(x, place, sbp))[0]
            near(found, expected, 1e-5)
            (found * found).sum().backward()
            for one, other in zip(net.parameters(), reference.parameters()):
                near(one.grad, other.grad, 1e-4)


def law_one_hot_of_global_tensors() -> None:
    place = placement("cpu", list(range(SIZE)))
    ids = torch.arange(6) % 4
    for sbp in (B, S(0)):
        near(flow.nn.functional.one_hot(spread(ids, place, sbp), 4), F.one_hot(ids, 4))
