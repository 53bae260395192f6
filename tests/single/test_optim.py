"""The optimizers of ``flow.optim``, eager: ten steps of each against its formula, state saved and loaded, and what
OneFlow has besides torch."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from optim_formulas import CASES, OptimCase, clipped, trained

from oneflow import optim
from oneflow.engine.ops.updates import formulas
from oneflow.optimizer.grad_clipping import ClipGradNorm
from oneflow.optimizer.table import OPTIMIZERS

STEPS = 10
SHAPES = ((3, 2), (4,), (2, 3, 2), (5,))
SECOND = {"lr_factor": 0.3, "weight_decay": 0.2, "clip_grad_max_norm": 0.7, "clip_grad_norm_type": 2.0}
DRAW = np.random.default_rng(5)
WEIGHTS = [DRAW.normal(size=shape) for shape in SHAPES]
GRADIENTS = [[DRAW.normal(size=shape) for shape in SHAPES] for _ in range(STEPS)]


def parameters(weights: Sequence[np.ndarray] = WEIGHTS) -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.tensor(w, dtype=torch.float32)) for w in weights]


def made(case: OptimCase, params: Sequence[torch.nn.Parameter]) -> optim.Optimizer:
    """Two groups: the second has a rate, a decay and a clipping of its own."""
    second = {name: value for name, value in SECOND.items() if name != "lr_factor"}
    groups = [{"params": params[:2]}, {"params": params[2:], "lr": case.lr * SECOND["lr_factor"], **second}]
    return getattr(optim, case.name)(groups, lr=case.lr, **case.options)


def give(params: Sequence[torch.nn.Parameter], gradients: Sequence[np.ndarray]) -> None:
    """The gradients by way of a loss whose they are."""
    sum((p * torch.tensor(g, dtype=torch.float32)).sum() for p, g in zip(params, gradients)).backward()


def run(optimizer: optim.Optimizer, params: Sequence[torch.nn.Parameter], steps: range) -> None:
    """Steps at rates that fall."""
    first = [group.setdefault("initial_lr", group["lr"]) for group in optimizer.param_groups]
    for t in steps:
        for group, rate in zip(optimizer.param_groups, first):
            group["lr"] = rate * 0.9**t
        give(params, GRADIENTS[t])
        optimizer.clip_grad()
        optimizer.step()
        optimizer.zero_grad()


def expected(case: OptimCase) -> list[np.ndarray]:
    rates = [case.lr * 0.9**t for t in range(STEPS)]
    cut = [clipped(step[2:], SECOND["clip_grad_max_norm"], SECOND["clip_grad_norm_type"]) for step in GRADIENTS]
    return [
        *trained(case, WEIGHTS[:2], [step[:2] for step in GRADIENTS], rates),
        *trained(
            case, WEIGHTS[2:], cut, [rate * SECOND["lr_factor"] for rate in rates], weight_decay=SECOND["weight_decay"]
        ),
    ]


# ----------------------------------------------------------------------------------------------------------------
# formulas


def test_every_update_belongs_to_an_optimizer_and_has_cases():
    classes = [
        value for value in vars(optim).values() if isinstance(value, type) and issubclass(value, optim.Optimizer)
    ]
    rows = {row for kind in classes for row in kind.rows}
    assert rows | {row for optimizer in OPTIMIZERS for row in optimizer.updates} == set(formulas.ROWS)
    chosen = {
        made(case, parameters()).update_of(group)[0]
        for case in CASES.values()
        for group in made(case, parameters()).param_groups
    }
    assert chosen == rows


@pytest.mark.filterwarnings("ignore:clip_grad")
@pytest.mark.parametrize("name", CASES)
def test_ten_steps_are_those_of_the_formula(name):
    params = parameters()
    run(made(CASES[name], params), params, range(STEPS))
    for got, want in zip(params, expected(CASES[name])):
        np.testing.assert_allclose(got.detach().numpy(), want, rtol=CASES[name].tolerance, atol=2e-6)


@pytest.mark.filterwarnings("ignore:clip_grad")
@pytest.mark.parametrize("name", CASES)
def test_saved_and_loaded_goes_on_bit_equal(name):
    straight = parameters()
    run(made(CASES[name], straight), straight, range(STEPS))

    first = parameters()
    before = made(CASES[name], first)
    run(before, first, range(5))
    file = io.BytesIO()
    torch.save(before.state_dict(), file)
    file.seek(0)
    second = [torch.nn.Parameter(p.detach().clone()) for p in first]
    after = made(CASES[name], second)
    after.load_state_dict(torch.load(file, weights_only=True))
    assert after.step_count == 5
    run(after, second, range(5, STEPS))
    assert all(torch.equal(a, b) for a, b in zip(straight, second))


TORCH_S = {
    "SGD": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "weight_decay": 0.1}),
    "Adam": (torch.optim.Adam, {"lr": 0.1, "weight_decay": 0.1, "amsgrad": True}),
    "AdamW": (torch.optim.AdamW, {"lr": 0.1, "weight_decay": 0.1}),
    "Adagrad": (
        torch.optim.Adagrad,
        {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.2},
    ),
    "Adadelta": (torch.optim.Adadelta, {"lr": 0.5, "weight_decay": 0.1}),
}


@pytest.mark.parametrize("name", TORCH_S)
def test_where_the_formula_is_torch_s_the_numbers_are_too(name):
    kind, options = TORCH_S[name]
    ours, theirs = parameters(), parameters()
    for params, optimizer in (
        (ours, getattr(optim, name)(ours, **options)),
        (theirs, kind(theirs, **options, foreach=False)),
    ):
        for gradients in GRADIENTS:
            optimizer.zero_grad()
            give(params, gradients)
            optimizer.step()
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_lbfgs_finds_the_bottom_of_a_bowl():
    w = torch.nn.Parameter(torch.tensor([3.0, -2.0]))
    optimizer = optim.LBFGS([w], lr=0.5)

    def closure():
        optimizer.zero_grad()
        loss = ((w - torch.tensor([1.0, 2.0])) ** 2).sum()
        loss.backward()
        return loss

    for _ in range(5):
        optimizer.step(closure)
    torch.testing.assert_close(w.detach(), torch.tensor([1.0, 2.0]), rtol=1e-4, atol=1e-4)
    with pytest.raises(NotImplementedError, match="LBFGS does not say what its update is"):
        optimizer.update_of(optimizer.param_groups[0])


# ---------------------------------------------------------------------------------------------------- OneFlow's
# meanings


def test_defaults_are_oneflow_s():
    params = parameters()
    rates = {
        name: getattr(optim, name)(params).defaults["lr"]
        for name in ("SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "RMSprop", "LAMB")
    }
    assert rates == {
        "SGD": 0.001,
        "Adam": 0.001,
        "AdamW": 0.001,
        "Adagrad": 0.001,
        "Adadelta": 1.0,
        "RMSprop": 0.001,
        "LAMB": 0.001,
    }
    assert optim.AdamW(params).defaults["weight_decay"] == 0


def test_zero_grad_leaves_zeros_and_momentum_goes_on():
    (w,) = parameters([np.ones(3)])
    optimizer = optim.SGD([w], lr=0.1, momentum=0.5)
    give([w], [np.ones(3)])
    optimizer.step()
    optimizer.zero_grad()
    assert torch.equal(w.grad, torch.zeros(3))
    optimizer.step()
    torch.testing.assert_close(w.detach(), torch.full((3,), 1 - 0.1 - 0.05))
    optimizer.zero_grad(set_to_none=True)
    assert w.grad is None
    optimizer.step()
    torch.testing.assert_close(w.detach(), torch.full((3,), 0.85))


def test_a_gradient_with_a_graph_is_cut_from_it_when_it_becomes_zero():
    (w,) = parameters([np.ones(3)])
    with torch.enable_grad(), pytest.warns(UserWarning, match="create_graph"):
        (w**2).sum().backward(create_graph=True)
    optim.SGD([w]).zero_grad()
    assert torch.equal(w.grad, torch.zeros(3)) and not w.grad.requires_grad


def test_updates_are_counted_once_for_all_parameters():
    """The second parameter has its first gradient at the third step, and is corrected as at the third."""
    a, b = parameters([np.ones(2), np.ones(2)])
    optimizer = optim.Adam([a, b], lr=0.1, eps=0.0)
    for t in range(3):
        give([a, b] if t == 2 else [a], [np.ones(2)] * 2)
        optimizer.step()
        optimizer.zero_grad()
    m, v = 0.1 / (1 - 0.9**3), 0.001 / (1 - 0.999**3)
    torch.testing.assert_close(b.detach(), torch.full((2,), 1 - 0.1 * m / v**0.5), rtol=1e-4, atol=1e-6)
    assert optimizer.step_count == 3 and [group["step"] for group in optimizer.param_groups] == [3]
    optimizer.add_param_group({"params": parameters([np.ones(1)]), "step": 70})
    assert [group["step"] for group in optimizer.param_groups] == [3, 3]


@pytest.mark.parametrize("norm_type", [1.0, 2.0, float("inf"), "inf"])
def test_each_group_is_clipped_by_its_own_norm(norm_type):
    a, b, c = parameters([np.zeros(4), np.zeros(4), np.zeros(2)])
    clip = {"clip_grad_max_norm": 1.0, "clip_grad_norm_type": norm_type}
    optimizer = optim.SGD(
        [{"params": [a], **clip}, {"params": [b, c], "clip_grad_max_norm": 100.0, "clip_grad_norm_type": 2.0}]
    )
    assert optimizer.clipping_of(optimizer.param_groups[0]) == ClipGradNorm(1.0, float(norm_type))
    give([a, b, c], [np.full(4, 3.0), np.full(4, 5.0), np.ones(2)])
    optimizer.clip_grad()
    np.testing.assert_allclose(a.grad, clipped([np.full(4, 3.0)], 1.0, float(norm_type))[0], rtol=1e-6)
    assert torch.equal(b.grad, torch.full((4,), 5.0)) and torch.equal(c.grad, torch.ones(2))


def test_groups_without_clipping_are_left_alone_with_a_warning():
    a, b = parameters([np.zeros(4), np.zeros(4)])
    optimizer = optim.SGD([{"params": [a]}, {"params": [b], "clip_grad_max_norm": 1.0, "clip_grad_norm_type": 2.0}])
    assert optimizer.clipping_of(optimizer.param_groups[0]) is None
    give([a, b], [np.full(4, 3.0)] * 2)
    with pytest.warns(UserWarning, match=r"clip_grad\(\) left the parameter groups \[0\] alone"):
        optimizer.clip_grad()
    assert torch.equal(a.grad, torch.full((4,), 3.0)) and b.grad[0].item() == pytest.approx(0.5, rel=1e-5)


def test_clipping_refuses_an_infinite_norm_if_asked_to():
    (a,) = parameters([np.zeros(2)])
    optimizer = optim.SGD([{"params": [a], "clip_grad_max_norm": 1.0, "clip_grad_norm_type": 2.0}])
    optimizer.clip_grad(error_if_nonfinite=True)  # no gradient at all
    give([a], [np.array([np.inf, 1.0])])
    with pytest.raises(ValueError, match="the gradients of parameter group 0 have the norm inf and cannot be clipped"):
        optimizer.clip_grad(error_if_nonfinite=True)


def test_lr_scale_is_kept_for_graphs_and_changes_nothing_else():
    a, b = parameters([np.ones(2), np.ones(2)])
    optimizer = optim.SGD([{"params": [a], "lr_scale": 0.1}, {"params": [b]}], lr=0.5)
    give([a, b], [np.ones(2)] * 2)
    optimizer.step()
    assert torch.equal(a, b) and optimizer.param_groups[0]["lr_scale"] == 0.1


@pytest.mark.parametrize("flags", [{"fused": True}, {"contiguous_params": True}])
def test_flags_for_speed_change_no_number(flags):
    ours, theirs = parameters(), parameters()
    for params, more in ((ours, flags), (theirs, {})):
        optimizer = optim.AdamW(params, lr=0.1, **more)
        for gradients in GRADIENTS[:3]:
            optimizer.zero_grad()
            give(params, gradients)
            optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs))


# ------------------------------------------------------------------------------------------------------- as torch's own


def test_the_closure_computes_the_loss_and_its_value_comes_back():
    (w,) = parameters([np.ones(3)])
    optimizer = optim.SGD([w], lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = (w**2).sum()
        loss.backward()
        return loss

    with torch.no_grad():
        assert optimizer.step(closure).item() == 3.0
    torch.testing.assert_close(w.detach(), torch.full((3,), 0.8))


def test_hooks_and_schedulers_of_torch_work():
    (w,) = parameters([np.ones(3)])
    optimizer = optim.SGD([w], lr=1.0)
    seen = []
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    for _ in range(2):
        give([w], [np.ones(3)])
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
    assert seen == ["before", "after"] * 2 and optimizer.param_groups[0]["lr"] == 0.25
    torch.testing.assert_close(w.detach(), torch.full((3,), -0.5))


def test_an_optimizer_can_be_copied_and_pickled():
    params = parameters()
    optimizer = optim.AdamW(params, lr=0.1)
    give(params, GRADIENTS[0])
    optimizer.step()
    for other in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        copied = other.param_groups[0]["params"]
        assert other.step_count == 1
        for p, q in zip(params, copied):
            q.grad = p.grad.clone()
            assert torch.equal(p, q) and torch.equal(optimizer.state[p]["m"], other.state[q]["m"])
        other.step()
    optimizer.step()
    assert all(torch.equal(p, q) for p, q in zip(params, copied))


def test_states_are_tensors_by_name():
    params = parameters()
    optimizer = optim.Adagrad(params, initial_accumulator_value=0.5)
    give(params, GRADIENTS[0])
    optimizer.step()
    np.testing.assert_allclose(optimizer.state[params[0]]["sum"], 0.5 + GRADIENTS[0][0] ** 2, rtol=1e-6)
    assert set(optimizer.state_dict()["state"][0]) == {"sum"}
    assert [set(kept) for kept in optimizer.state.values()] == [{"sum"}] * 4


def test_parameters_may_come_with_names():
    model = torch.nn.Linear(2, 2)
    optimizer = optim.SGD(model.named_parameters(), lr=0.1)
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]


def test_parameters_of_a_group_may_be_a_generator_or_one_tensor():
    model, other = torch.nn.Linear(2, 2), torch.nn.Parameter(torch.ones(1))
    groups = optim.SGD([{"params": model.parameters()}, {"params": other}], lr=0.1).param_groups
    assert [len(group["params"]) for group in groups] == [2, 1] and groups[0]["params"][1] is model.bias
    with pytest.raises(ValueError, match="empty list of parameters"):
        optim.SGD(iter([]))


def test_a_group_may_hold_several_dtypes():
    a, b = parameters([np.ones(3), np.ones(3)])
    b = torch.nn.Parameter(b.detach().double())
    optimizer = optim.RMSprop([a, b], lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        (a.sum() + b.sum()).backward()
        optimizer.step()
    assert b.dtype == torch.float64 and optimizer.state[b]["mean_square"].dtype == torch.float64
    torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-6)


def test_parameters_may_change_their_layout_between_steps():
    """States follow: the kernels go through memory."""
    draw = torch.Generator().manual_seed(1)
    first, gradients = (
        torch.randn(2, 3, 4, 4, generator=draw),
        [torch.randn(2, 3, 4, 4, generator=draw) for _ in range(4)],
    )

    def result(changes: bool) -> torch.Tensor:
        module = torch.nn.Module()
        module.w = torch.nn.Parameter(first.clone())
        optimizer = optim.Adam(module.parameters(), lr=0.1)
        for t, gradient in enumerate(gradients):
            if changes and t == 2:
                module.to(memory_format=torch.channels_last)
                module.w.grad = None
            module.w.grad = gradient.clone(memory_format=torch.preserve_format).to(
                memory_format=torch.contiguous_format
            )
            optimizer.step()
        assert (not module.w.is_contiguous()) == changes
        return module.w.detach()

    torch.testing.assert_close(result(True), result(False))


def test_a_state_may_be_loaded_for_another_layout():
    w = torch.nn.Parameter(torch.randn(2, 3, 4, 4))
    other = torch.nn.Parameter(w.detach().clone(memory_format=torch.channels_last))
    gradient = torch.randn(2, 3, 4, 4)
    saved, loaded = optim.AdamW([w], lr=0.1), optim.AdamW([other], lr=0.1)
    w.grad = gradient.clone()
    saved.step()
    with torch.no_grad():
        other.copy_(w)
    loaded.load_state_dict(saved.state_dict())
    w.grad, other.grad = 2 * gradient, 2 * gradient
    saved.step()
    loaded.step()
    torch.testing.assert_close(w, other)


def test_a_class_of_one_s_own_overrides_step():
    class Sign(optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    p.sub_(group["lr"] * p.grad.sign())

    (w,) = parameters([np.ones(2)])
    give([w], [np.array([3.0, -3.0])])
    Sign([w], 0.5).step()
    assert w.tolist() == [0.5, 1.5]


def test_training_loads_no_compiler_of_torch():
    program = """
import sys, torch, oneflow.optim as optim
w = torch.nn.Parameter(torch.ones(3))
optimizer = optim.AdamW([w]); w.sum().backward(); optimizer.step(); optimizer.zero_grad(); optimizer.load_state_dict(optimizer.state_dict())
optim.lr_scheduler.StepLR(optimizer, 3).step()
assert not [name for name in sys.modules if name.startswith(("torch._dynamo", "torch._inductor"))]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
