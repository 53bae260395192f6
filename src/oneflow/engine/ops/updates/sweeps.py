"""Optimizer updates by the C extension (``native/_update.c``), in one or two passes over memory.

A sweep is one pass over a variable, its gradient and its states. Its first three numbers a, b and c are those of the
direction d = a * g + b * w + c * sign(w): unscaling, regularizers, clipping and weight decay need no pass of their own.
``RECIPES`` names the sweeps of an update by the qualified name of its row, with the numbers that make them compute the
same formula. Rows without a recipe, and tensors that the extension does not take, use the formula itself. Formulas and
rows do not depend on this module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from oneflow.engine.ops import native
from oneflow.engine.ops.cpu.fused_norm import FOR_A_THREAD
from oneflow.engine.ops.updates import formulas
from oneflow.engine.ops.updates.gradients import has_same_order, is_dense
from oneflow.engine.ops.updates.rows import Norms, Tensors

Columns = Sequence[Tensors]
"""Variables, gradients and each kind of state, as lists of the same length."""
SQUARES = "squares"
"""The sweep that sums the squares of w and of d."""


@dataclass(frozen=True)
class Direction:
    """The direction of an update: gradient * g + weight * w + sign * sign(w)."""

    gradient: float = 1.0
    weight: float = 0.0
    sign: float = 0.0

    def numbers(self, weight_decay: float = 0.0, maximize: bool = False) -> list[float]:
        """Returns its factors, negated if ``maximize``, and with a weight decay added after that."""
        factor = -1.0 if maximize else 1.0
        return [factor * self.gradient, factor * self.weight + weight_decay, factor * self.sign]


@dataclass(frozen=True)
class Recipe:
    """The sweeps of an update; ``run(columns, direction, lr, **numbers)`` runs them."""

    sweeps: tuple[str, ...]
    run: Callable[..., None]


def run_sweep(name: str, columns: Columns, rows: list[list[float]]) -> list[tuple[float, ...]]:
    """Runs a sweep with one row of numbers for all variables or one for each; returns the sums of each variable."""
    assert native.update is not None
    sizes = [param.numel() for param in columns[0]]
    threads = max(1, min(torch.get_num_threads(), sum(sizes) // FOR_A_THREAD))
    addresses = [[tensor.data_ptr() for tensor in column] for column in columns]
    return native.update.sweep(name, addresses, sizes, rows, threads)


def run_update(name: str, columns: Columns, direction: Direction, lr: float, numbers: dict[str, Any]) -> bool:
    """Runs the update of a row by sweeps. Returns False, and changes nothing, if there is no recipe for it or the
    extension does not take these tensors."""
    recipe = RECIPES.get(name)
    if recipe is None or not _takes(columns):
        return False
    recipe.run(columns, direction, lr, **numbers)
    torch._C._increment_version([tensor for column in (columns[0], *columns[2:]) for tensor in column])
    return True


def run_norms(columns: Columns, directions: Sequence[Direction]) -> Tensors | None:
    """Returns the 2-norm of each direction; None if the extension does not take these tensors."""
    if native.update is None or not _takes(columns):
        return None
    params, grads = columns
    if any(one.weight or one.sign for one in directions):
        squares = [sums[1] for sums in run_sweep(SQUARES, [params, grads], [one.numbers() for one in directions])]
    else:  # only gradients are read
        sums = run_sweep(SQUARES, [grads, grads], [[1.0, 0.0, 0.0]])
        squares = [one.gradient**2 * of_grad for one, (of_grad, _) in zip(directions, sums)]
    return [torch.tensor(math.sqrt(square), dtype=torch.float64) for square in squares]


def _takes(columns: Columns) -> bool:
    """Returns whether all tensors are plain dense float32 CPU tensors, with the gradient and states of each variable in
    its memory order. States of another size are not swept."""
    for param, *others in zip(*columns):
        if param.device.type != "cpu" or not _is_plain(param) or not is_dense(param):
            return False
        if not all(_is_plain(one) and has_same_order(one, param) for one in others if one.numel() == param.numel()):
            return False
    return True


def _is_plain(tensor: Tensor) -> bool:
    return tensor.dtype is torch.float32 and type(tensor) in (Tensor, Parameter)


def _one(sweep: str, numbers: Callable[..., list[float]]) -> Recipe:
    """An update that is one sweep, with the numbers that ``numbers(direction, lr, **numbers)`` returns."""

    def run(columns: Columns, direction: Direction, lr: float, **others: Any) -> None:
        run_sweep(sweep, columns, [numbers(direction, lr, **others)])

    return Recipe((sweep,), run)


# ------------------------------------------------------------------ SGD


def _sgd(
    direction: Direction, lr: float, *, weight_decay: float, maximize: bool = False, l2: float = 0.0
) -> list[float]:
    return [*direction.numbers(weight_decay + l2, maximize), lr]


def _momentum(direction: Direction, lr: float, *, beta: float, weight_decay: float, l2: float = 0.0) -> list[float]:
    return [*direction.numbers(l2), beta, -lr, 1.0 - lr * weight_decay, 1.0, 0.0]


def _sgd_momentum(
    direction: Direction,
    lr: float,
    *,
    count: float,
    momentum: float,
    dampening: float,
    nesterov: bool,
    weight_decay: float,
    maximize: bool,
) -> list[float]:
    keep, take = (0.0, 1.0) if count == 1.0 else (momentum, 1.0 - dampening)
    factors = (-lr * momentum, -lr) if nesterov else (-lr, 0.0)
    return [*direction.numbers(weight_decay, maximize), keep, take, 1.0, *factors]


# ------------------------------------------------------------------ Adam


def _means(beta1: float, beta2: float) -> list[float]:
    return [beta1, 1.0 - beta1, beta2, 1.0 - beta2]


def _job_adam(
    direction: Direction, lr: float, *, beta1: float, beta2: float, epsilon: float, weight_decay: float
) -> list[float]:
    return [*direction.numbers(), *_means(beta1, beta2), 1.0 - lr * weight_decay, lr, 1.0, epsilon]


def _adam(
    direction: Direction,
    lr: float,
    *,
    count: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
    decoupled: bool,
    do_bias_correction: bool,
) -> list[float]:
    coupled, shrink = (0.0, 1.0 - lr * weight_decay) if decoupled else (weight_decay, 1.0)
    step, root = _corrections(count, beta1, beta2, do_bias_correction)
    return [*direction.numbers(coupled), *_means(beta1, beta2), shrink, lr * step, root, epsilon]


def _corrections(count: float, beta1: float, beta2: float, do_bias_correction: bool) -> tuple[float, float]:
    """Returns the factors of the mean and of the root."""
    return (1.0 / (1.0 - beta1**count), (1.0 - beta2**count) ** -0.5) if do_bias_correction else (1.0, 1.0)


def _tf_adam(
    direction: Direction, lr: float, *, count: float, beta1: float, beta2: float, epsilon: float
) -> list[float]:
    corrected = lr * (1.0 - beta2**count) ** 0.5 / (1.0 - beta1**count)
    return [*direction.numbers(), *_means(beta1, beta2), 1.0, corrected, 1.0, epsilon]


def _tf_adam_weight_decay(
    columns: Columns,
    direction: Direction,
    lr: float,
    *,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
) -> None:
    *columns, decays = columns
    first = [*direction.numbers(), *_means(beta1, beta2)]
    run_sweep("adam", columns, [[*first, 1.0 - lr * float(decay), lr, 1.0, epsilon] for decay in decays])


# ------------------------------------------------------------------ Adagrad, Adadelta, RMSprop, Ftrl


def _adagrad(
    direction: Direction,
    lr: float,
    *,
    count: float,
    lr_decay: float,
    weight_decay: float,
    epsilon: float,
    initial_accumulator_value: float,
) -> list[float]:
    return [*direction.numbers(weight_decay), lr / (1.0 + (count - 1.0) * lr_decay), epsilon]


def _adadelta(
    direction: Direction, lr: float, *, rho: float, epsilon: float, weight_decay: float, maximize: bool
) -> list[float]:
    return [*direction.numbers(weight_decay, maximize), rho, 1.0 - rho, epsilon, lr]


def _rmsprop(direction: Direction, lr: float, *, alpha: float, epsilon: float, weight_decay: float) -> list[float]:
    return [*direction.numbers(weight_decay), alpha, 1.0 - alpha, epsilon, lr]


def _rmsprop_momentum(direction: Direction, lr: float, *, momentum: float, **numbers: float) -> list[float]:
    return [*_rmsprop(direction, lr, **numbers), momentum]


def _tf_rmsprop(
    direction: Direction, lr: float, *, decay: float, momentum: float, epsilon: float, first_mean_square: float
) -> list[float]:
    return [*direction.numbers(), decay, 1.0 - decay, epsilon, lr, momentum]


def _tf_ftrl_root(
    direction: Direction, lr: float, *, l1_strength: float, l2_strength: float, first_accumulator: float, power: float
) -> list[float]:
    return [*direction.numbers(), lr, l1_strength, l2_strength]


# ------------------------------------------------------------------ scaled by norms


def _norms_of(norms: Norms, squares: Sequence[Sequence[float]]) -> list[list[float]]:
    """Returns the norms of whole variables for each sum of squares, where a rank has summed over a part."""
    return [
        [float(norm) for norm in norms([torch.tensor(math.sqrt(one), dtype=torch.float64) for one in column])]
        for column in zip(*squares)
    ]


def _lars(
    columns: Columns,
    direction: Direction,
    lr: float,
    *,
    beta: float,
    epsilon: float,
    coefficient: float,
    weight_decay: float,
    norms: Norms,
) -> None:
    of_w, of_g = _norms_of(norms, run_sweep(SQUARES, columns[:2], [direction.numbers()]))
    ratios = [
        1.0 if w == 0.0 or g == 0.0 else coefficient * w / (epsilon + g + weight_decay * w) for w, g in zip(of_w, of_g)
    ]
    rows = [[*direction.numbers(), beta, -lr * ratio, 1.0 - lr * ratio * weight_decay, 1.0, 0.0] for ratio in ratios]
    run_sweep("momentum", columns, rows)


def _job_lamb(
    columns: Columns,
    direction: Direction,
    lr: float,
    *,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
    norms: Norms,
) -> None:
    *columns, beta1_t, beta2_t = columns
    torch._foreach_mul_(beta1_t, beta1)
    torch._foreach_mul_(beta2_t, beta2)
    corrections = [(1.0 / (1.0 - float(b1)), (1.0 - float(b2)) ** -0.5) for b1, b2 in zip(beta1_t, beta2_t)]
    first = [*direction.numbers(), *_means(beta1, beta2)]
    _scale_by_trust(columns, first, corrections, epsilon, weight_decay, lr, norms)


def _lamb(
    columns: Columns,
    direction: Direction,
    lr: float,
    *,
    count: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
    decoupled: bool,
    do_bias_correction: bool,
    norms: Norms,
) -> None:
    coupled, decay = (0.0, weight_decay) if decoupled else (weight_decay, 0.0)
    corrections = [_corrections(count, beta1, beta2, do_bias_correction)] * len(columns[0])
    first = [*direction.numbers(coupled), *_means(beta1, beta2)]
    _scale_by_trust(columns, first, corrections, epsilon, decay, lr, norms)


def _scale_by_trust(
    columns: Columns,
    first: list[float],
    corrections: list[tuple[float, float]],
    epsilon: float,
    weight_decay: float,
    lr: float,
    norms: Norms,
) -> None:
    """LAMB: Adam's direction, scaled by the ratio of the norms of the variable and of the direction."""
    of_w, of_d = _norms_of(
        norms, run_sweep("lamb_moments", columns, [[*first, *correction, epsilon] for correction in corrections])
    )
    trusts = [w / d if w > 0.0 and d > 0.0 else 1.0 for w, d in zip(of_w, of_d)]
    rows = [[lr * trust, weight_decay, *correction, epsilon] for trust, correction in zip(trusts, corrections)]
    run_sweep("lamb_step", [columns[0], columns[2], columns[3]], rows)


def _table() -> dict[str, Recipe]:
    """Returns the recipes by the qualified names of their rows; those whose sweeps the extension has."""
    recipes = {
        formulas.SGD.qualified_name: _one("descent", _sgd),
        formulas.SGD_MOMENTUM.qualified_name: _one("momentum", _sgd_momentum),
        formulas.MOMENTUM.qualified_name: _one("momentum", _momentum),
        formulas.ADAM.qualified_name: _one("adam", _adam),
        formulas.JOB_ADAM.qualified_name: _one("adam", _job_adam),
        formulas.AMSGRAD.qualified_name: _one("amsgrad", _adam),
        formulas.ADAGRAD.qualified_name: _one("adagrad", _adagrad),
        formulas.ADADELTA.qualified_name: _one("adadelta", _adadelta),
        formulas.RMSPROP.qualified_name: _one("rmsprop", _rmsprop),
        formulas.RMSPROP_MOMENTUM.qualified_name: _one("rmsprop_momentum", _rmsprop_momentum),
        formulas.RMSPROP_CENTERED.qualified_name: _one("rmsprop_centered", _rmsprop),
        formulas.RMSPROP_CENTERED_MOMENTUM.qualified_name: _one("rmsprop_centered_momentum", _rmsprop_momentum),
        formulas.LARS.qualified_name: Recipe((SQUARES, "momentum"), _lars),
        formulas.LAMB.qualified_name: Recipe(("lamb_moments", "lamb_step"), _lamb),
        formulas.JOB_LAMB.qualified_name: Recipe(("lamb_moments", "lamb_step"), _job_lamb),
        "fastnn.updates.tf_adam": _one("adam", _tf_adam),
        "fastnn.updates.tf_adam_weight_decay": Recipe(("adam",), _tf_adam_weight_decay),
        "fastnn.updates.tf_rmsprop": _one("rmsprop_momentum", _tf_rmsprop),
        "fastnn.updates.tf_ftrl_root": _one("ftrl_root", _tf_ftrl_root),
    }
    built = frozenset(native.update.names() if native.update is not None else ())
    return {name: recipe for name, recipe in recipes.items() if built.issuperset(recipe.sweeps)}


RECIPES = _table()
