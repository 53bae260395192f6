"""Random jobs: how one is drawn, and its job function."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import prod, sqrt
from random import Random
from typing import Any

from job_layers import LAYERS, Blob
from layer import Shape
from program import Choice, Program, Unfit

import oneflow as flow
import oneflow.typing as tp

CLASSES = 12
LIMIT = 600
"""Samples with more elements than this are made smaller by the next layer."""
STARTS: tuple[Shape, ...] = ((4, 8, 8), (6, 8), (12,))
PARALLEL = (
    "data",
    "data",
    "split",
    "axes",
    "pipeline",
    "zero",
    "split+zero",
    "pipeline+split",
    "anywhere",
    "anywhere+split",
)
PLACES: dict[int, tuple[Any, ...]] = {
    2: ("0:0", "0:1", "0:0-1", ["0:1", "0:0"]),
    4: ("0:0", "0:1", "0:0-3", ["0:2", "0:1"]),
}
"""The placements of layers in jobs that run anywhere, by the number of devices."""


@dataclass(frozen=True)
class JobProgram(Program):
    """A job and the way it is trained.

    Attributes:
        start: The shape of one sample.
        batch: Samples in a batch.
        is_double: Whether it computes in float64 rather than float32.
        micro_batches: The number of gradient accumulation steps.
        parallel: How the job is distributed over devices; several of the words in ``PARALLEL``.
        optimizer: A key of ``OPTIMIZERS``.
        clips: Whether gradients are clipped by their norm.
        scales: Whether the loss is scaled dynamically.
        steps: Training steps.
    """

    start: Shape = (12,)
    batch: int = 8
    is_double: bool = True
    micro_batches: int = 1
    parallel: str = "data"
    optimizer: str = "sgd"
    clips: bool = False
    scales: bool = False
    steps: int = 4

    @property
    def prefix(self) -> str:
        """What the names of the job and of its variables begin with; several jobs share a session."""
        return f"p{self.seed}"

    def simpler(self) -> Iterator[JobProgram]:
        """Yields programs with one setting simpler than here."""
        plain = JobProgram(self.seed, self.layers)
        for name in ("micro_batches", "optimizer", "clips", "scales", "batch"):
            if getattr(self, name) != getattr(plain, name):
                yield dataclasses.replace(self, **{name: getattr(plain, name)})
        for word in self.parallel.split("+"):
            if self.parallel != "data":
                left = "+".join(other for other in self.parallel.split("+") if other != word)
                yield dataclasses.replace(self, parallel=left or "data")
        if self.steps > 1:
            yield dataclasses.replace(self, steps=1)
        if not self.is_double:
            yield dataclasses.replace(self, is_double=True)


# ------------------------------------------------------------------ optimizers


def _settings(program: JobProgram) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if program.clips:
        settings["grad_clipping"] = flow.optimizer.grad_clipping.by_global_norm(0.5)
    if program.scales:
        settings["loss_scale_policy"] = flow.optimizer.loss_scale.dynamic_loss_scale(1024.0, 2, 2.0)
    return settings


def _schedule(program: JobProgram) -> Any:
    if program.seed % 2:
        warmup = flow.optimizer.warmup.linear(2, 0.5)
        return flow.optimizer.PolynomialScheduler(0.02, 10, end_learning_rate=0.001, warmup=warmup)
    return flow.optimizer.CosineScheduler(0.02, 20)


_DECAY = {"weight_decay": 0.01, "weight_decay_excludes": "b$"}
OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {"momentum": 0}),
    "momentum": ("SGD", {"momentum": 0.9}),
    "sgdw": ("SGDW", {"momentum": 0.9, **_DECAY}),
    "adam": ("Adam", {"epsilon": 1e-3, "do_bias_correction": True}),
    "adam uncorrected": ("Adam", {"epsilon": 1e-3, "do_bias_correction": False}),
    "adamw": ("AdamW", {"epsilon": 1e-3, **_DECAY}),
    "lamb": ("LAMB", {"epsilon": 1e-3, **_DECAY}),
    "lars": ("LARS", {"lars_coefficient": 0.1, **_DECAY}),
    "rmsprop": ("RMSProp", {"epsilon": 1e-3}),
    "rmsprop centered": ("RMSProp", {"epsilon": 1e-3, "centered": True}),
    "lazy adam": ("LazyAdam", {"epsilon": 1e-3}),
    "combined": ("", {}),
}
"""The class in ``flow.optimizer`` and its options."""


def optimizer_of(program: JobProgram, names: list[str]) -> Any:
    """Returns the optimizer of a program.

    Args:
        program: The program.
        names: All trainable variables, which "combined" shares out among two optimizers.
    """
    settings, schedule = _settings(program), _schedule(program)
    if program.optimizer != "combined":
        name, options = OPTIMIZERS[program.optimizer]
        return getattr(flow.optimizer, name)(schedule, **options, **settings)
    policy = settings.pop("loss_scale_policy", None)
    first = flow.optimizer.SGD(schedule, momentum=0.9, variables=lambda: names[::2], **settings)
    second = flow.optimizer.Adam(schedule, epsilon=1e-3, variables=lambda: names[1::2])
    return flow.optimizer.CombinedOptimizer([first, second], loss_scale_policy=policy)


# ------------------------------------------------------------------ the body of a job


class JobBody:
    """Emits the ops of a program; what a layer sees of the job around it."""

    def __init__(self, program: JobProgram, devices: int) -> None:
        self.program, self.devices = program, devices
        self.dtype = flow.double if program.is_double else flow.float
        self.splits = "split" in program.parallel
        self.name, self.values = "", []
        draw = Random(program.seed)
        self.cuts = sorted(draw.random() for _ in range(3))
        self.places = [draw.randrange(4) for _ in range(64)]
        self.hierarchy = (2, 2) if devices == 4 else draw.choice(((1, 2), (2, 1)))

    def variable(self, suffix: str, shape: Shape, scale: float | None = None) -> Blob:
        """Returns a variable of the current layer, distributed as the job says."""
        scale = scale if scale is not None else 0.8 / sqrt(max(1, prod(shape[1:])))
        options = self._distribution(f"{self.name}{suffix}", shape) if self.devices > 1 else {}
        initializer = flow.random_normal_initializer(0.0, scale)
        return flow.get_variable(f"{self.name}_{suffix}", shape, self.dtype, initializer, **options)

    def _distribution(self, key: str, shape: Shape) -> dict[str, Any]:
        draw = Random(key)
        if self.program.parallel == "axes":
            kinds = [draw.choice(("B", "S(0)", "S(1)" if len(shape) > 1 else "S(0)")) for _ in range(2)]
            is_enough = kinds == ["B", "B"] or min(shape[:2]) >= 4
            return {"parallel_distribution": kinds} if is_enough else {}
        if not self.splits:
            return {}
        kinds = [{}, {"distribute": flow.distribute.auto()}]
        kinds += [{"distribute": flow.distribute.split(dim)} for dim in range(min(2, len(shape))) if shape[dim] >= 4]
        return draw.choice(kinds)

    def earlier(self, x: Blob) -> Blob:
        """Returns a value of an earlier layer with the same shape, or the value itself."""
        same = [value for value in self.values[:-1] if tuple(value.shape) == tuple(x.shape)]
        return Random(self.name).choice(same) if same else x

    def scope(self, position: float) -> AbstractContextManager[Any]:
        """Returns the placement of a part of the job; positions go from 0 to 1."""
        if self.devices == 1:
            return nullcontext()
        if self.program.parallel == "axes":
            return flow.scope.placement("cpu", f"0:0-{self.devices - 1}", self.hierarchy)
        if "pipeline" in self.program.parallel:
            stage = sum(position > cut for cut in self.cuts)
            return flow.scope.placement("cpu", f"0:{stage * self.devices // 4}")
        if "anywhere" in self.program.parallel:
            place = PLACES[self.devices][self.places[int(position * 60)]]
            return flow.scope.placement("cpu", place)
        return nullcontext()

    def add(self, layer: Choice, number: int) -> None:
        """Emits a layer.

        Raises:
            Unfit: The layer takes another kind or size of input.
        """
        name, seed = layer
        x, row = self.values[-1], LAYERS[name]
        if len(x.shape) - 1 != row.takes or not row.fits(tuple(x.shape)):
            raise Unfit(f"{name} does not take blobs of shape {tuple(x.shape)}")
        self.name = f"{self.program.prefix}_{number}_{seed}"
        value = row.make(self, x, Random(seed))
        if value.shape[0] != self.program.batch:
            raise Unfit(f"{name} changes the batch")
        self.values.append(value)

    def forward(self, x: Blob, choose: Callable[[JobBody], Iterator[Choice]] | None = None) -> tuple[Blob, Blob]:
        """Emits all layers and a head that reads the input and a shared weight twice.

        Returns:
            The scores, and the value of a layer in the middle.
        """
        self.values, layers = [x], self.program.layers
        for number, layer in enumerate(layers if choose is None else choose(self)):
            with self.scope((number + 1) / (len(layers) + 2)):
                self.add(layer, number)
        with self.scope(0.0):
            self.name = f"{self.program.prefix}_head"
            shared = self.variable("shared", (CLASSES, CLASSES), 0.3)
        with self.scope(1.0):
            scores = flow.matmul(
                flow.math.tanh(self._projected(x, "skip") + self._projected(self.values[-1], "w")), shared
            )
        with self.scope(0.0):
            again = flow.matmul(flow.math.sigmoid(scores), shared, transpose_b=True)
        with self.scope(1.0):
            return scores + again, self.values[len(self.values) // 2]

    def _projected(self, x: Blob, suffix: str) -> Blob:
        x = flow.reshape(x, (self.program.batch, -1))
        return flow.matmul(x, self.variable(suffix, (x.shape[1], CLASSES), 0.5 / sqrt(x.shape[1])))


def _input(program: JobProgram) -> Any:
    dtype = flow.double if program.is_double else flow.float
    return tp.Numpy.Placeholder((program.batch, *program.start), dtype=dtype)


def _config(program: JobProgram) -> Any:
    config = flow.function_config()
    config.default_data_type(flow.double if program.is_double else flow.float)
    if program.micro_batches > 1:
        config.train.num_gradient_accumulation_steps(program.micro_batches)
    if "zero" in program.parallel:
        config.optimizer_placement_optimization_mode("distributed_split")
        config.optimizer_placement_optimization_threshold(16)
    return config


def train_job(program: JobProgram, devices: int, names: list[str]) -> Any:
    """Defines the job of a program in the current session.

    Args:
        program: The program.
        devices: The devices of the session.
        names: All trainable variables, if the optimizer needs to know them.

    Returns:
        A job that gives a loss per sample, scores, and a value between.
    """
    placeholder, labels = _input(program), tp.Numpy.Placeholder((program.batch,), dtype=flow.int32)

    def job(x, y):
        body = JobBody(program, devices)
        scores, middle = body.forward(x)
        with body.scope(1.0):
            loss = flow.nn.sparse_softmax_cross_entropy_with_logits(y, scores)
        optimizer_of(program, names).minimize(loss)
        return loss, scores, middle

    job.__name__, job.__annotations__ = f"{program.prefix}_train", {"x": placeholder, "y": labels}
    return flow.global_function(type="train", function_config=_config(program))(job)


def _traced(program: JobProgram, choose: Callable[[JobBody], Iterator[Choice]] | None = None) -> set[str]:
    """Traces the forward pass of a program in a session of its own; returns the names of its variables."""

    def job(x):
        return JobBody(program, 1).forward(x, choose)[0]

    flow.clear_default_session()
    flow.config.cpu_device_num(1)
    job.__name__, job.__annotations__ = f"{program.prefix}_trace", {"x": _input(program)}
    config = flow.function_config()
    config.default_data_type(flow.double if program.is_double else flow.float)
    flow.global_function(function_config=config)(job)
    return set(flow.get_all_variables())


def names_for_optimizer(program: JobProgram) -> list[str]:
    """Returns the trainable variables of a program if its optimizer needs to know them; ends the current session."""
    if program.optimizer != "combined":
        return []
    return sorted(name for name in _traced(program) if "moving" not in name)


# ------------------------------------------------------------------ drawing


def draw_program(seed: int, without: frozenset[str] = frozenset()) -> JobProgram:
    """Returns the program of a number.

    Args:
        seed: The number.
        without: Names of layers that are left out.
    """
    draw = Random(seed)
    program = JobProgram(
        seed,
        (),
        start=draw.choice(STARTS),
        batch=draw.choice((3, 5, 7, 7, 8, 8, 12)),
        is_double=draw.random() < 0.8,
        micro_batches=draw.choice((1, 1, 1, 2, 3)),
        parallel=draw.choice(PARALLEL),
        optimizer=draw.choice(list(OPTIMIZERS)),
        clips=draw.random() < 0.5,
        scales=draw.random() < 0.15,
    )
    chosen: list[Choice] = []
    _traced(program, lambda body: _choose(draw, body, chosen, without))
    return dataclasses.replace(program, layers=tuple(chosen))


def _choose(draw: Random, body: JobBody, chosen: list[Choice], without: frozenset[str]) -> Iterator[Choice]:
    """Yields layers that fit the value so far. Layers that depend on the order of equal values come before those that
    make values equal; in float32, where rounding decides too, there are none."""
    is_tied, avoids_ties = not body.program.is_double, draw.random() < 0.5
    for _ in range(draw.randint(3, 9)):
        shape = tuple(body.values[-1].shape)
        names = [
            row.name
            for row in LAYERS.values()
            if row.takes == len(shape) - 1
            and row.fits(shape)
            and row.name not in without
            and not (row.is_sharp and is_tied)
            and not (row.makes_ties and avoids_ties and not row.is_sharp)
            and (row.shrinks or prod(shape[1:]) <= LIMIT)
        ]
        chosen.append((draw.choice(names), draw.randrange(1 << 30)))
        is_tied = is_tied or LAYERS[chosen[-1][0]].makes_ties
        yield chosen[-1]
