"""nasnet and pnasnet: cells found by search, each a small graph over the results of the two cells before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import oneflow as flow
import oneflow.nn.functional as F
from flowvision.models.slim.initializers import he
from flowvision.models.slim.layers import Norm, Style, flat
from flowvision.models.slim.network import Body, Description, EndPoints, Layers
from flowvision.models.slim.padding import SAME, VALID, avg_pool, max_pool
from oneflow import Tensor

Op = tuple[str, int]  # what is done, and the number of the state it reads


@dataclass(frozen=True)
class Cell:
    """Five combinations: each adds the results of two ops to the states, of which ``concat`` are the cell's result."""

    combinations: Sequence[tuple[Op, Op]]
    concat: Sequence[int]


_NORMAL = Cell(
    (
        (("sep5", 0), ("sep3", 1)),
        (("sep5", 1), ("sep3", 1)),
        (("avg3", 0), ("none", 1)),
        (("avg3", 1), ("avg3", 1)),
        (("sep3", 0), ("none", 0)),
    ),
    (1, 2, 3, 4, 5, 6),
)
_REDUCTION = Cell(
    (
        (("sep5", 0), ("sep7", 1)),
        (("max3", 0), ("sep7", 1)),
        (("avg3", 0), ("sep5", 1)),
        (("none", 3), ("avg3", 2)),
        (("sep3", 2), ("max3", 0)),
    ),
    (3, 4, 5, 6),
)
_PNASNET = Cell(
    (
        (("sep5", 1), ("max3", 1)),
        (("sep7", 0), ("max3", 0)),
        (("sep5", 0), ("sep3", 0)),
        (("sep3", 4), ("max3", 0)),
        (("sep3", 1), ("none", 0)),
    ),
    (2, 3, 4, 5, 6),
)


@dataclass(frozen=True)
class Config:
    """One member of the family. ``stem_channels`` with ``is_cifar`` False is followed by two stem cells."""

    num_cells: int
    filters: int
    stem_channels: int
    reductions: tuple[int, int]
    skips_reduction: bool
    aux_after: int
    keep: float
    drop_path_keep: float
    total_steps: int = 250000
    is_cifar: bool = False
    is_pnasnet: bool = False

    @property
    def total_cells(self) -> int:
        """What the drop-path schedule counts; pnasnet has no cells of their own for reductions."""
        return self.num_cells + (0 if self.is_pnasnet else 2) + (0 if self.is_cifar else 2)


@dataclass
class _Run:
    """One pass: what every cell needs to know, and how many there were before it."""

    layers: Layers
    config: Config
    norm: Norm
    activation: str
    step: Tensor | None
    cells: int = 0

    def active(self, x: Tensor) -> Tensor:
        return F.relu(x) if self.activation == "relu" else F.relu6(x)

    def conv(self, x: Tensor, channels: int, scope: str, stride: int = 1) -> Tensor:
        return self.layers.conv(x, channels, 1, scope, stride, has_biases=False)

    def conv_norm(self, x: Tensor, channels: int, scope: str, norm: str, stride: int = 1) -> Tensor:
        return self.layers.batch_norm(self.conv(x, channels, scope, stride), norm, self.norm)

    def drop_path(self, x: Tensor) -> Tensor:
        """Whole results of an op dropped per picture, the more often the deeper the cell and the later the step."""
        if self.step is None or not self.layers.is_training:
            return x
        ratio = (self.cells + 1) / self.config.total_cells
        progress = (self.step / self.config.total_steps).clamp(max=1.0)
        keep = 1 - progress * (ratio * (1 - self.config.drop_path_keep))
        mask = (keep + flow.rand(x.shape[0], 1, 1, 1, device=x.device)).floor()
        return x * (mask / keep).to(x.dtype)


def _cell(run: _Run, cell: Cell, x: Tensor, previous: Tensor | None, scope: str, scaling: float, stride: int) -> Tensor:
    filters = int(run.config.filters * scaling)
    with run.layers.scope(scope):
        second = _matched(run, previous, x, filters)
        states = [run.conv_norm(run.active(x), filters, "1x1", "beginning_bn"), second]
        for number, sides in enumerate(cell.combinations):
            with run.layers.scope(f"comb_iter_{number}"):
                results = []
                for side, (op, source) in zip(("left", "right"), sides):
                    with run.layers.scope(side):
                        results.append(_applied(run, op, states[source], filters, stride if source < 2 else 1))
                total = results[0] + results[1]
                states.append(total if run.activation == "relu" else total.clamp(-6.0, 6.0))
        with run.layers.scope("cell_output"):
            parts = [_fitted(run, states[at], states[-1], f"reduction_{at}") for at in cell.concat]
    run.cells += 1
    return flow.cat(parts, 1)


def _matched(run: _Run, previous: Tensor | None, x: Tensor, filters: int) -> Tensor:
    """The cell before the last one, in the size and with the channels of this cell; the first cell has none and takes
    its input as it is."""
    if previous is None:
        return x
    if previous.shape[2:] != x.shape[2:]:
        return _factorized_reduction(run, run.active(previous), filters, 2)
    if previous.shape[1] != filters:
        return run.conv_norm(run.active(previous), filters, "prev_1x1", "prev_bn")
    return previous


def _applied(run: _Run, op: str, x: Tensor, filters: int, stride: int) -> Tensor:
    if op == "none":
        if stride == 1 and x.shape[1] == filters:
            return x
        return run.conv_norm(run.active(x), filters, "1x1", "bn_1", stride)
    if op.startswith("sep"):
        return run.drop_path(_separable_twice(run, x, filters, int(op[3:]), stride))
    x = (max_pool if op == "max3" else avg_pool)(x, 3, stride, SAME)
    return run.drop_path(x if x.shape[1] == filters else run.conv_norm(x, filters, "1x1", "bn_1"))


def _separable_twice(run: _Run, x: Tensor, filters: int, kernel: int, stride: int) -> Tensor:
    for number in (1, 2):
        x = run.layers.separable_conv(
            run.active(x),
            filters,
            kernel,
            f"separable_{kernel}x{kernel}_{number}",
            stride if number == 1 else 1,
            has_biases=False,
        )
        x = run.layers.batch_norm(x, f"bn_sep_{kernel}x{kernel}_{number}", run.norm)
    return x


def _fitted(run: _Run, state: Tensor, last: Tensor, scope: str) -> Tensor:
    if state.shape[1:] == last.shape[1:]:
        return state
    with run.layers.scope(scope):
        return _factorized_reduction(run, state, last.shape[1], 1 if state.shape[2:] == last.shape[2:] else 2)


def _factorized_reduction(run: _Run, x: Tensor, channels: int, stride: int) -> Tensor:
    """Half of the channels from every second pixel, the other half from the pixels one further down and right."""
    if stride == 1:
        return run.conv_norm(x, channels, "path_conv", "path_bn")
    first = run.conv(x[:, :, ::stride, ::stride], channels // 2, "path1_conv")
    shifted = F.pad(x, (0, 1, 0, 1))[:, :, 1:, 1:]
    second = run.conv(shifted[:, :, ::stride, ::stride], channels - channels // 2, "path2_conv")
    return run.layers.batch_norm(flow.cat([first, second], 1), "final_path_bn", run.norm)


def _auxiliary(run: _Run, x: Tensor, num_classes: int, scope: str) -> Tensor:
    layers = run.layers
    with layers.scope(scope, "aux_logits"):
        x = layers.conv(avg_pool(run.active(x), 5, 3), 128, 1, "proj", has_biases=False)
        x = run.active(layers.batch_norm(x, "aux_bn0", run.norm))
        height, width = x.shape[2:]
        x = layers.conv(x, 768, (height, width), "Conv", style=layers.style.but(padding=VALID), has_biases=False)
        x = run.active(layers.batch_norm(x, "aux_bn1", run.norm))
        return layers.dense(flat(x), num_classes, "FC")


def _stem(run: _Run, x: Tensor) -> list[Tensor | None]:
    """The results that the first cell finds: the last is its input."""
    config, layers = run.config, run.layers
    if config.is_cifar:
        x = layers.conv(x, config.stem_channels, 3, "l1_stem_3x3", has_biases=False)
        return [None, layers.batch_norm(x, "l1_stem_bn", run.norm)]
    x = layers.conv(x, config.stem_channels, 3, "conv0", 2, layers.style.but(padding=VALID), has_biases=False)
    results: list[Tensor | None] = [None, layers.batch_norm(x, "conv0_bn", run.norm)]
    cell = _PNASNET if config.is_pnasnet else _REDUCTION
    for number, scaling in enumerate((0.25, 0.5)):
        last = results[-1]
        assert last is not None
        results.append(_cell(run, cell, last, results[-2], f"cell_stem_{number}", scaling, 2))
    return results


def _cells(run: _Run, results: list[Tensor | None], num_classes: int | None, has_aux: bool) -> Tensor:
    config, note = run.config, run.layers.note
    x = results[-1]
    assert x is not None
    scaling = 1.0
    for number in range(config.num_cells):
        previous, stride = results[-2], 1
        if number in config.reductions:
            scaling *= 2
            if config.is_pnasnet:
                stride = 2
            else:
                index = config.reductions.index(number)
                x = note(
                    f"Reduction_Cell_{index}",
                    _cell(run, _REDUCTION, x, previous, f"reduction_cell_{index}", scaling, 2),
                )
                results.append(x)
                previous = previous if config.skips_reduction else results[-2]
        x = note(
            f"Cell_{number}",
            _cell(run, _PNASNET if config.is_pnasnet else _NORMAL, x, previous, f"cell_{number}", scaling, stride),
        )
        if has_aux and num_classes and number == config.aux_after:
            note("AuxLogits", _auxiliary(run, x, num_classes, f"aux_{number}"))
        results.append(x)
    return x


def _nasnet(config: Config, norm: Norm) -> Body:
    def body(
        layers: Layers,
        x: Tensor,
        num_classes: int | None,
        dropout_keep_prob: float = config.keep,
        drop_path_keep_prob: float = config.drop_path_keep,
        total_training_steps: int = config.total_steps,
        use_aux_head: bool = True,
        use_bounded_activation: bool = False,
    ) -> tuple[Tensor, EndPoints]:
        used = replace(config, drop_path_keep=drop_path_keep_prob, total_steps=total_training_steps)
        step = layers.global_step() if drop_path_keep_prob < 1 else None
        run = _Run(layers, used, norm, "relu6" if use_bounded_activation else "relu", step)
        results = _stem(run, x)
        last = results[-1]
        assert last is not None
        layers.note("Stem", last)
        x = _cells(run, results, num_classes, use_aux_head and layers.is_training)
        with layers.scope("final_layer"):
            x = layers.note("global_pool", run.active(x).mean((2, 3)))
            if not num_classes:
                return x, layers.end_points
            logits = layers.note("Logits", layers.dense(layers.dropout(x, dropout_keep_prob), num_classes, "FC"))
        layers.note("Predictions", F.softmax(logits, 1))
        return logits, layers.end_points

    return body


_STYLE = Style(weights=he(by_fan_out=True), activation=None)
_IMAGENET = Norm(decay=0.9997, epsilon=0.001, scale=True)
_CIFAR = Norm(decay=0.9, epsilon=1e-5, scale=True)
_CONFIGS = {
    "nasnet_cifar": (32, 5e-4, Config(18, 32, 96, (6, 12), False, 11, 1.0, 0.6, 937500, is_cifar=True)),
    "nasnet_mobile": (224, 4e-5, Config(12, 44, 32, (4, 8), False, 7, 0.5, 1.0)),
    "nasnet_large": (331, 5e-5, Config(18, 168, 96, (6, 12), True, 11, 0.5, 0.7)),
    "pnasnet_mobile": (224, 4e-5, Config(9, 54, 32, (3, 6), True, 5, 0.5, 1.0, is_pnasnet=True)),
    "pnasnet_large": (331, 4e-5, Config(12, 216, 96, (4, 8), True, 7, 0.5, 0.6, is_pnasnet=True)),
}
NETWORKS = {
    name: Description(_nasnet(config, _CIFAR if config.is_cifar else _IMAGENET), size, decay, _STYLE)
    for name, (size, decay, config) in _CONFIGS.items()
}
