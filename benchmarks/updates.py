"""Updates with clipping by the global norm, fused and by torch's ops on lists; first without clipping where torch has
no fused kernel.

The variables are those of two layers of a transformer of 768, updated as a graph does it: large ones each by itself,
small ones together. ``python benchmarks/updates.py [--rounds N] [--small]``
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from measure import alternate, machine, parse

from oneflow.engine.ops.updates import formulas, gradients
from oneflow.engine.ops.updates.rows import UpdateRow
from oneflow.engine.passes.fuse_updates import fused_update, gradient_norms

Columns = list[list[torch.Tensor]]
_LR, _NORM = 1e-5, 0.5
_ADAM = {
    "beta1": 0.9,
    "beta2": 0.999,
    "epsilon": 1e-8,
    "weight_decay": 0.01,
    "count": 3.0,
    "decoupled": True,
    "do_bias_correction": True,
}
_RMSPROP = {"alpha": 0.99, "epsilon": 1e-8, "weight_decay": 0.0}

UPDATES: dict[str, tuple[UpdateRow, dict[str, Any]]] = {
    "SGD with momentum": (
        formulas.SGD_MOMENTUM,
        {"count": 2.0, "momentum": 0.9, "dampening": 0.0, "nesterov": False, "weight_decay": 0.0, "maximize": False},
    ),
    "AdamW": (formulas.ADAM, _ADAM),
    "Adagrad": (
        formulas.ADAGRAD,
        {"count": 3.0, "lr_decay": 0.0, "weight_decay": 0.0, "epsilon": 1e-10, "initial_accumulator_value": 0.0},
    ),
    "SGDW of jobs": (formulas.MOMENTUM, {"beta": 0.9, "weight_decay": 0.01}),
    "RMSprop": (formulas.RMSPROP, _RMSPROP),
    "RMSprop, centered, momentum": (formulas.RMSPROP_CENTERED_MOMENTUM, {**_RMSPROP, "momentum": 0.9}),
    "Adadelta": (formulas.ADADELTA, {"rho": 0.9, "epsilon": 1e-6, "weight_decay": 0.0, "maximize": False}),
    "LAMB": (formulas.LAMB, {**_ADAM, "norms": gradients.local_norms}),
    "LARS of jobs": (
        formulas.LARS,
        {"beta": 0.9, "epsilon": 1e-9, "coefficient": 1e-3, "weight_decay": 1e-4, "norms": gradients.local_norms},
    ),
}


def columns_of(row: UpdateRow, width: int) -> Columns:
    """Variables with gradients and states, the last of which is no less than the square of the others."""
    torch.manual_seed(0)
    sizes = [4 * width * width] * 2 + [width * width] * 4 + [3 * width] * 40
    states = [
        [torch.rand(size) + 0.5 if state.shape is None else torch.rand(state.shape) for size in sizes]
        for state in row.states
    ]
    return [[torch.rand(size) for size in sizes], [0.1 * torch.rand(size) for size in sizes], *states]


def in_pieces(call: Callable[..., None], columns: Columns) -> None:
    for i in range(6):
        call(*([column[i]] for column in columns), _LR)
    call(*(column[6:] for column in columns), _LR)


def by_ops(row: UpdateRow, numbers: dict[str, Any], columns: Columns, clips: bool) -> None:
    params, grads, *states = columns
    grads = gradients.clipped_by_norm(grads, max_norm=_NORM, norm_type=2.0) if clips else grads
    in_pieces(lambda *args: row.compute(*args, **numbers), [params, grads, *states])


def fused(row: UpdateRow, numbers: dict[str, Any], columns: Columns, clips: bool) -> None:
    grads, factor = columns[1], None
    if clips:
        zeros = [0.0] * len(grads)
        norms = gradient_norms(grads, grads, norm_type=2.0, unscale=None, l1=zeros, l2=zeros)
        factor = gradients.norm_factor(gradients.norm_of(norms, 2.0), max_norm=_NORM)
    in_pieces(lambda *args: fused_update(*args, formula=row.compute, factor=factor, **numbers), columns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--width", type=int, default=768)
    args = parse(parser, {"rounds": 1, "width": 8})
    print(machine())
    for clips in (False, True):
        print("\nclipped, then updated" if clips else "\nupdated")
        for name, (row, numbers) in UPDATES.items():
            if not clips and row.is_fused_at(numbers.get("weight_decay", 0.0)):
                continue
            columns = columns_of(row, args.width)
            ops, together = alternate(
                {do.__name__: partial(do, row, numbers, columns, clips) for do in (by_ops, fused)}, 1, args.rounds
            )
            print(
                f"  {name:<28} {1e3 * ops.low:8.2f} ms by ops {1e3 * together.low:8.2f} ms fused   ratio: "
                f"{ops.low / together.low:.2f}"
            )


if __name__ == "__main__":
    main()
