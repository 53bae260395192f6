"""Random training programs for ``nn.Graph``: how one is drawn, and its network."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from random import Random
from typing import Any

import image_layers
import sequence_layers
import torch
import torch.nn.functional as F
import vector_layers
from layer import Kind, Layer, Shape, Skip
from program import Choice, Program, Unfit
from torch import Tensor, nn

CLASSES = 5
LIMIT = 500
"""Samples with more elements than this are made smaller by the next layer."""
SKIP = "skip"
LAYERS: dict[str, Layer] = {**vector_layers.LAYERS, **sequence_layers.LAYERS, **image_layers.LAYERS}
STARTS: tuple[Shape, ...] = ((8,), (12,), (6, 8), (5, 6), (4, 8, 8), (6, 5, 7), (2, 2, 4, 4))
BATCHES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12)
PARALLEL = ("data", "data", "data", "replicated", "tensor", "tensor", "mesh", "mesh", "auto", "pipeline")
MEMORY = ("contiguous", "contiguous", "transposed", "sliced", "batch_last", "channels_last", "expanded")

OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "SGD": ("SGD", {"lr": 0.05}),
    "momentum": ("SGD", {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}),
    "nesterov": ("SGD", {"lr": 0.05, "momentum": 0.8, "nesterov": True}),
    "Adam": ("Adam", {"lr": 0.01, "eps": 1e-3}),
    "AMSGrad": ("Adam", {"lr": 0.01, "eps": 1e-3, "amsgrad": True, "weight_decay": 0.02}),
    "AdamW": ("AdamW", {"lr": 0.01, "eps": 1e-3, "weight_decay": 0.1}),
    "RMSprop": ("RMSprop", {"lr": 0.01, "eps": 1e-3}),
    "RMSprop centered": ("RMSprop", {"lr": 0.01, "eps": 1e-3, "centered": True, "momentum": 0.5}),
    "Adagrad": ("Adagrad", {"lr": 0.02, "eps": 1e-3}),
    "Adadelta": ("Adadelta", {"lr": 0.5, "eps": 1e-3}),
    "LAMB": ("LAMB", {"lr": 0.01, "eps": 1e-3, "weight_decay": 0.1}),
}
"""The class in ``flow.optim`` and its options. A large ``eps`` keeps gradients that are rounding alone from counting."""

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
WEIGHTS = (0.5, 1.0, 2.0, 0.7, 1.3)
LOSSES: dict[str, Loss] = {
    "cross_entropy": lambda scores, labels, values: F.cross_entropy(scores, labels),
    "cross_entropy_sum": lambda scores, labels, values: F.cross_entropy(scores, labels, reduction="sum") * 0.1,
    "cross_entropy_each": lambda scores, labels, values: F.cross_entropy(scores, labels, reduction="none").mean(),
    "cross_entropy_smoothed": lambda scores, labels, values: F.cross_entropy(scores, labels, label_smoothing=0.1),
    "cross_entropy_weighted": lambda scores, labels, values: F.cross_entropy(
        scores, labels, scores.new_tensor(WEIGHTS), reduction="sum"
    ),
    "cross_entropy_dense": lambda scores, labels, values: F.cross_entropy(scores, values.softmax(1)),
    "nll": lambda scores, labels, values: F.nll_loss(scores.log_softmax(1), labels),
    "mse": lambda scores, labels, values: F.mse_loss(scores, values),
    "l1": lambda scores, labels, values: F.l1_loss(scores, values),
    "smooth_l1": lambda scores, labels, values: F.smooth_l1_loss(scores, values, beta=0.5),
    "huber": lambda scores, labels, values: F.huber_loss(scores, values, delta=0.7),
    "bce": lambda scores, labels, values: F.binary_cross_entropy(scores.sigmoid(), values.sigmoid()),
    "bce_logits": lambda scores, labels, values: F.binary_cross_entropy_with_logits(scores, values.sigmoid()),
    "kl_div": lambda scores, labels, values: F.kl_div(scores.log_softmax(1), values.softmax(1), reduction="batchmean"),
    "soft_margin": lambda scores, labels, values: F.soft_margin_loss(scores, values.sign()),
    "multi_margin": lambda scores, labels, values: F.multi_margin_loss(scores, labels),
    "poisson_nll": lambda scores, labels, values: F.poisson_nll_loss(scores.tanh(), values.abs()),
    "cosine": lambda scores, labels, values: F.cosine_embedding_loss(scores, values, values[:, 0].sign()),
    "triplet": lambda scores, labels, values: F.triplet_margin_loss(scores, values, values.flip(1), margin=5.0),
    "logsumexp": lambda scores, labels, values: (scores.logsumexp(1) - (scores * values).sum(1)).mean(),
}


@dataclass(frozen=True)
class GraphProgram(Program):
    """A network with the way it is trained.

    Attributes:
        start: The shape of one sample.
        batch: Samples in a batch, which need not be as many as ranks.
        memory: How inputs are stored; a key of ``graph_run.MEMORY``.
        loss: A key of ``LOSSES``.
        optimizer: A key of ``OPTIMIZERS``.
        clips: Whether gradients are clipped by their norm.
        parallel: How parameters and inputs are distributed.
        zero: The stage of ZeRO, or 0.
        micro_batches: The number of gradient accumulation steps; it divides the batch.
        checkpoints: Whether activations of some layers are recomputed.
        weights_last: Whether weights of convolutions are stored in channels_last order.
        evaluates: Whether a graph without optimizer runs on the trained network.
        steps: Training steps.
    """

    start: Shape = (8,)
    batch: int = 4
    memory: str = "contiguous"
    loss: str = "mse"
    optimizer: str = "SGD"
    clips: bool = False
    parallel: str = "data"
    zero: int = 0
    micro_batches: int = 1
    checkpoints: bool = False
    weights_last: bool = False
    evaluates: bool = False
    steps: int = 3

    def simpler(self) -> Iterator[GraphProgram]:
        """Yields programs with one setting simpler than here."""
        plain = GraphProgram(self.seed, self.layers)
        for name in ("memory", "loss", "optimizer", "clips", "zero", "micro_batches", "checkpoints", "weights_last"):
            if getattr(self, name) != getattr(plain, name):
                yield dataclasses.replace(self, **{name: getattr(plain, name)})
        for change in ({"evaluates": False}, {"steps": 1}, {"parallel": "data"}, {"parallel": "replicated"}):
            if any(getattr(self, name) != value for name, value in change.items()):
                if self.parallel not in ("data", "replicated") or "parallel" not in change:
                    yield dataclasses.replace(self, **change)


class Builder:
    """Builds layers one after the other and knows what shape the next one gets."""

    def __init__(self, start: Shape) -> None:
        self.modules: list[nn.Module] = []
        self.values = [torch.randn(2, *start, generator=torch.Generator().manual_seed(1), dtype=torch.float64)]

    @property
    def shape(self) -> Shape:
        """The shape of one sample after the layers so far."""
        return tuple(self.values[-1].shape[1:])

    def earlier(self) -> list[int]:
        """Returns the positions of earlier values that have the same shape."""
        return [place for place, value in enumerate(self.values[:-1]) if value.shape == self.values[-1].shape]

    def add(self, name: str, seed: int) -> None:
        """Appends a layer.

        Raises:
            Unfit: The layer takes another kind or size of input.
        """
        draw, shape = Random(seed), self.shape
        torch.manual_seed(seed)
        if name == SKIP:
            if not self.earlier():
                raise Unfit("no earlier value has this shape")
            module: nn.Module = Skip(draw.choice(self.earlier()))
        else:
            layer = LAYERS[name]
            if len(shape) != layer.takes or not layer.fits(shape):
                raise Unfit(f"{name} does not take samples of shape {shape}")
            module = layer.make(shape, draw).double()
        try:
            with torch.no_grad():
                value = module.eval()(*((self.values[-1], self.values) if name == SKIP else (self.values[-1],)))
        except RuntimeError as error:
            raise Unfit(f"{name} does not take samples of shape {shape}: {error}") from error
        if name != SKIP and len(value.shape) - 1 != LAYERS[name].gives:
            raise ValueError(f"{name} is said to give {LAYERS[name].gives!r} and gives {tuple(value.shape)}")
        if value.shape[0] != 2 or not value.numel():
            raise Unfit(f"{name} leaves nothing of samples of shape {shape}")
        self.modules.append(module.train())
        self.values.append(value)


class Network(nn.Module):
    """The layers of a program and a linear layer that gives scores of classes."""

    def __init__(self, program: GraphProgram) -> None:
        super().__init__()
        builder = Builder(program.start)
        for name, seed in program.layers:
            builder.add(name, seed)
        self.layers = nn.ModuleList(builder.modules)
        torch.manual_seed(program.seed)
        self.head = nn.Linear(prod(builder.shape), CLASSES).double()

    def forward(self, x: Tensor) -> Tensor:
        """Returns the scores of a batch."""
        values = [x]
        for layer in self.layers:
            kind = getattr(layer, "origin", layer)  # in a graph, modules are behind proxies
            values.append(layer(values[-1], values) if isinstance(kind, Skip) else layer(values[-1]))
        return self.head(values[-1].flatten(1))


def draw_program(seed: int, without: frozenset[str] = frozenset()) -> GraphProgram:
    """Returns the program of a number.

    Args:
        seed: The number.
        without: Names of layers that are left out.
    """
    draw = Random(seed)
    start, memory = draw.choice(STARTS), draw.choice(MEMORY)
    if (memory == "channels_last" and Kind(len(start)) is not Kind.IMAGE) or (memory == "expanded" and len(start) < 2):
        memory = "transposed"
    micro_batches = draw.choice((1, 1, 1, 1, 2, 3))
    parallel = draw.choice(PARALLEL)
    return GraphProgram(
        seed,
        _draw_layers(draw, start, memory == "expanded", without),
        start=start,
        batch=draw.choice(BATCHES) if micro_batches == 1 else micro_batches * draw.choice((1, 2, 3, 4)),
        memory=memory,
        loss=draw.choice(list(LOSSES)),
        optimizer=draw.choice(list(OPTIMIZERS)),
        clips=draw.random() < 0.3,
        parallel=parallel,
        zero=draw.choice((0, 1, 2, 3)) if parallel != "replicated" else 0,
        micro_batches=micro_batches,
        checkpoints=draw.random() < 0.2,
        weights_last=draw.random() < 0.2,
        evaluates=draw.random() < 0.2,
    )


def _draw_layers(draw: Random, start: Shape, is_tied: bool, without: frozenset[str]) -> tuple[Choice, ...]:
    """Draws layers that fit onto each other. Layers that depend on the order of equal values come before those that
    make values equal."""
    builder, chosen, avoids_ties = Builder(start), [], draw.random() < 0.5
    count = draw.randint(2, 9)
    while len(chosen) < count:
        name, seed = _draw_name(draw, builder, is_tied, avoids_ties), draw.randrange(1 << 30)
        if name in without:
            continue
        try:
            builder.add(name, seed)
        except Unfit:
            continue
        chosen.append((name, seed))
        is_tied = is_tied or (name != SKIP and LAYERS[name].makes_ties)
    return tuple(chosen)


def _draw_name(draw: Random, builder: Builder, is_tied: bool, avoids_ties: bool) -> str:
    shape = builder.shape
    if builder.earlier() and draw.random() < 0.1:
        return SKIP
    return draw.choice(
        [
            layer.name
            for layer in LAYERS.values()
            if layer.takes == len(shape)
            and layer.fits(shape)
            and not (layer.is_sharp and is_tied)
            and not (layer.makes_ties and avoids_ties and not layer.is_sharp)
            and (layer.shrinks or prod(shape) <= LIMIT)
        ]
    )
