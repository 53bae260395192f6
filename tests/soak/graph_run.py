"""Trains a random program alone in eager torch and on all ranks in a graph, and compares."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from random import Random
from typing import Any

import torch
from graph_program import CLASSES, LOSSES, OPTIMIZERS, GraphProgram, Network
from program import Unfit, Verdict
from torch import Tensor, nn

import oneflow as flow
from oneflow.nn.graph import GraphModule

Results = dict[str, Tensor]
NOISE = 1e-12
"""Relative changes of parameters and inputs by which the conditioning of a program is measured: rounding makes smaller
ones."""
TOLERANCE, UNSTABLE = 1e-7, 1e-4
B, S = flow.sbp.broadcast, flow.sbp.split

MEMORY: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: (
        x.transpose(0 if x.dim() == 2 else 1, -1).contiguous().transpose(0 if x.dim() == 2 else 1, -1)
    ),
    "sliced": lambda x: torch.stack([x, torch.zeros_like(x)], -1)[..., 0],
    "batch_last": lambda x: x.movedim(0, -1).contiguous().movedim(-1, 0),
    "channels_last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "expanded": lambda x: x[:, :1].clone().expand_as(x),
}
"""Ways to store one value; of "expanded" ones all entries along dim 1 are equal."""


def batches(program: GraphProgram) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Returns the inputs, labels and target values of each step."""
    draw = torch.Generator().manual_seed(program.seed + 1)
    made = []
    for _ in range(program.steps):
        x = torch.randn(program.batch, *program.start, generator=draw, dtype=torch.float64)
        labels = torch.randint(CLASSES, (program.batch,), generator=draw)
        values = torch.randn(program.batch, CLASSES, generator=draw, dtype=torch.float64)
        made.append((MEMORY["expanded"](x) if program.memory == "expanded" else x, labels, values))
    return made


def optimizer_of(program: GraphProgram, network: nn.Module) -> Any:
    """Returns the optimizer of a program over the parameters of a network."""
    name, options = OPTIMIZERS[program.optimizer]
    group: dict[str, Any] = {"params": list(network.parameters())}
    if program.clips:
        group |= {"clip_grad_max_norm": 0.5, "clip_grad_norm_type": 2.0}
    return getattr(flow.optim, name)([group], **options)


# ------------------------------------------------------------------ in one process


def train_alone(program: GraphProgram, noise: float = 0.0) -> Results:
    """Trains in eager torch. ``noise`` changes parameters and inputs by relative amounts of that size."""
    network, draw = Network(program), torch.Generator().manual_seed(program.seed + 2)

    def noisy(x: Tensor) -> Tensor:
        return x * (1.0 + noise * torch.randn(x.shape, generator=draw, dtype=x.dtype)) if noise else x

    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(noisy(parameter))
    before = copy.deepcopy(network.state_dict())
    optimizer, results = optimizer_of(program, network), {}
    for step, (x, labels, values) in enumerate(batches(program)):
        losses, scores = [], []
        optimizer.zero_grad()
        for parts in zip(*(tensor.chunk(program.micro_batches) for tensor in (noisy(x), labels, values))):
            scores.append(network(parts[0]))
            losses.append(LOSSES[program.loss](scores[-1], *parts[1:]))
            (losses[-1] / program.micro_batches).backward()
        if program.clips:
            optimizer.clip_grad()
        optimizer.step()
        results[f"loss of step {step}"] = torch.stack(losses).detach().flatten()
        results[f"scores of step {step}"] = torch.cat(scores).detach()
    if program.evaluates:
        with torch.no_grad():
            results["scores in evaluation"] = network.eval()(batches(program)[0][0])
    return results | updates(before, network.state_dict())


def updates(before: Results, after: Results) -> Results:
    """Returns by how much training has changed each parameter and buffer."""
    return {f"update of {name}": after[name].double() - before[name].double() for name in before}


# ------------------------------------------------------------------ on all ranks


class Train(flow.nn.Graph):
    """A training step with the settings of a program."""

    def __init__(self, program: GraphProgram, network: nn.Module) -> None:
        super().__init__()
        self.network, self.loss = network, LOSSES[program.loss]
        self.add_optimizer(optimizer_of(program, network))
        self.config.set_gradient_accumulation_steps(program.micro_batches)
        self.config.enable_auto_parallel(program.parallel == "auto")
        if program.zero:
            self.config.enable_zero(True, stage=program.zero, shard_min_size=2)
        if program.checkpoints:
            for layer in list(self.network.layers)[::2]:
                layer.to(GraphModule).activation_checkpointing = True
        if program.parallel == "pipeline":
            set_stages(self.network)

    def build(self, x: Tensor, labels: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the loss and the scores."""
        scores = self.network(x)
        loss = self.loss(scores, labels, values)
        loss.backward()
        return loss, scores


class Evaluate(flow.nn.Graph):
    """Computes scores only."""

    def __init__(self, program: GraphProgram, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        if program.parallel == "pipeline":
            set_stages(self.network)

    def build(self, x: Tensor) -> Tensor:
        """Returns the scores."""
        return self.network(x)


def stages() -> tuple[Any, Any]:
    """Returns the placements of the two stages of a pipeline."""
    size = flow.env.get_world_size()
    return flow.placement("cpu", list(range(size // 2))), flow.placement("cpu", list(range(size // 2, size)))


def last_modules(network: Any) -> list[Any]:
    """Returns the modules of the second stage."""
    layers = list(network.layers)
    return [*layers[len(layers) // 2 :], network.head]


def set_stages(network: Any) -> None:
    """Makes two stages of the network of a graph."""
    first, last = stages()
    network.to(GraphModule).set_stage(0, first)
    for module in last_modules(network):
        module.to(GraphModule).set_stage(1, last)


class Layout:
    """Where the parameters and inputs of a program are placed, and how they are split."""

    def __init__(self, program: GraphProgram) -> None:
        self.program, self.draw = program, Random(program.seed)
        size = flow.env.get_world_size()
        ranks: Any = list(range(size))
        if program.parallel == "mesh":
            ranks = [ranks[: size // 2], ranks[size // 2 :]] if size > 2 else [ranks]
        self.place = flow.placement("cpu", ranks)
        self.axes = len(self.place.hierarchy)
        kinds = {"data": (S(0),), "auto": (S(0), B), "pipeline": (S(0),), "replicated": (B,)}
        self.inputs = [self.draw.choice(kinds.get(program.parallel, (S(0), B))) for _ in range(self.axes)]

    def distribute(self, network: nn.Module) -> None:
        """Makes the parameters and buffers of a network global tensors."""
        last = {id(module) for top in last_modules(network) for module in top.modules()}
        for module in network.modules():
            place = self.place
            if self.program.parallel == "pipeline":
                place = stages()[id(module) in last]
            for name, tensor in list(module.named_parameters(recurse=False)):
                setattr(module, name, nn.Parameter(_spread(tensor.detach(), place, self._parameter_sbp(tensor))))
            for name, tensor in list(module.named_buffers(recurse=False)):
                setattr(module, name, _spread(tensor, place, [B] * self.axes))

    def _parameter_sbp(self, tensor: Tensor) -> list[Any]:
        if self.program.parallel not in ("tensor", "mesh"):
            return [B] * self.axes
        kinds = [B, *(S(dim) for dim in range(min(2, tensor.dim())))]
        return [self.draw.choice(kinds) for _ in range(self.axes)]

    def feed(self, inputs: tuple[Tensor, ...]) -> list[Any]:
        """Returns global tensors of a batch; the local parts are stored as the program says."""
        places = [self.place] * len(inputs)
        if self.program.parallel == "pipeline":
            places = [stages()[0], *[stages()[1]] * (len(inputs) - 1)]
        x, *targets = (_spread(tensor, place, self.inputs) for tensor, place in zip(inputs, places))
        return [_stored(x, self.program.memory), *targets]


def _spread(tensor: Tensor, place: Any, sbp: list[Any]) -> Any:
    return tensor.to_global(place, [B] * len(sbp)).to_global(place, sbp)


def _stored(x: Any, memory: str) -> Any:
    """Stores the local part of a global tensor in another order."""
    part = x.to_local()
    return MEMORY[memory](part).to_global(x.placement, x.sbp)


def train_on_ranks(program: GraphProgram) -> Results:
    """Trains in a graph on all ranks; returns logical values."""
    network, layout = Network(program), Layout(program)
    before = copy.deepcopy(network.state_dict())
    for module in network.modules():
        if program.weights_last and isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
            module.to(memory_format=torch.channels_last)
    if program.parallel != "auto":
        layout.distribute(network)
    graph, results = Train(program, network), {}
    for step, inputs in enumerate(batches(program)):
        loss, scores = graph(*layout.feed(inputs))
        results[f"loss of step {step}"] = whole(loss).flatten()
        results[f"scores of step {step}"] = whole(scores)
    if program.evaluates:
        network.eval()
        results["scores in evaluation"] = whole(Evaluate(program, network)(layout.feed(batches(program)[0])[0]))
    return results | updates(before, {name: whole(tensor) for name, tensor in network.state_dict().items()})


def whole(tensor: Any) -> Tensor:
    """Returns the logical value of a global tensor."""
    return torch.from_numpy(tensor.detach().numpy())


# ------------------------------------------------------------------ comparison


def compare(found: Results, expected: Results) -> tuple[float, str]:
    """Returns the largest difference, relative to the scale of the value it occurs in, and its name."""
    worst = (0.0, "")
    for name, value in expected.items():
        if found[name].shape != value.shape:
            return float("inf"), f"{name} has shape {tuple(found[name].shape)} instead of {tuple(value.shape)}"
        if not value.numel():
            continue
        floor = 1e-6 if name.startswith("update") else 1e-3
        difference = float((found[name] - value).abs().max()) / max(float(value.abs().max()), floor)
        worst = max(worst, (difference if difference == difference else float("inf"), name))
    return worst


def check(program: GraphProgram) -> Verdict:
    """Runs a program in both ways. Every rank calls this."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = train_alone(program)
            sensitivity, _ = compare(train_alone(program, NOISE), expected)
    except Unfit:
        raise
    except Exception as error:
        return Verdict(program.seed, "invalid", f"{type(error).__name__}: {error}"[:300])
    if not all(bool(torch.isfinite(value).all()) for value in expected.values()):
        return Verdict(program.seed, "invalid", "not finite")
    if sensitivity > UNSTABLE:
        return Verdict(program.seed, "unstable", "", sensitivity)
    try:
        difference, name = compare(train_on_ranks(program), expected)
    except Exception as error:
        return Verdict(program.seed, "error", f"{type(error).__name__}: {error}"[:600])
    tolerance = max(TOLERANCE, 10 * sensitivity)
    status = "same" if difference <= tolerance else "different"
    return Verdict(program.seed, status, name, difference, tolerance)
