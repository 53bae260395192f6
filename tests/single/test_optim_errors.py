"""What ``flow.optim`` refuses, and how it says so."""

from __future__ import annotations

import pytest
import torch

from oneflow import optim

W = torch.nn.Parameter(torch.ones(2))
V = torch.nn.Parameter(torch.ones(3))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ([], "got an empty list of parameters"),
        (W, r"parameters is a list of tensors, or of dictionaries with 'params', got a tensor of shape \(2,\)"),
        (3, "parameters is a list of tensors, or of dictionaries with 'params', got int 3"),
        ({"params": [W]}, "parameters is a list of tensors, or of dictionaries"),
        ([1.0], "an optimizer changes tensors, got float 1.0 among its parameters"),
        ([{"lr": 1.0}], "a parameter group is a dictionary with 'params'"),
        ([{"params": {W}}], "the order of a set changes from run to run"),
        ([{"params": 3}], "params is a list of tensors, got int 3"),
        ([W, V, W], r"a parameter of shape \(2,\) is given twice"),
        ([{"params": [W]}, {"params": [V, W]}], r"a parameter of shape \(2,\) is given twice"),
        ([torch.ones(2, dtype=torch.int64)], "changes tensors of floating-point numbers, got one of torch.int64"),
        ([W * 2], "cannot change a tensor that was computed from others"),
    ],
)
def test_parameters_that_cannot_be_trained(parameters, message):
    with pytest.raises(ValueError, match=message):
        optim.SGD(parameters, lr=0.1)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("SGD", {"lr": -1}, r"lr is a number >= 0, got -1"),
        ("SGD", {"lr": "fast"}, "lr is a number >= 0, got 'fast'"),
        ("SGD", {"momentum": -0.5}, "momentum is a number >= 0, got -0.5"),
        ("SGD", {"weight_decay": -0.5}, "weight_decay is a number >= 0, got -0.5"),
        ("SGD", {"nesterov": True}, "nesterov needs a momentum above 0 and no dampening, got 0.0 and 0.0"),
        ("SGD", {"maximize": "yes"}, "maximize is True or False, got 'yes'"),
        ("Adam", {"betas": (0.9, 1.0)}, "the second of betas is a number >= 0 and < 1, got 1.0"),
        ("Adam", {"betas": 0.9}, r"betas is two numbers such as \(0.9, 0.999\), got 0.9"),
        ("AdamW", {"eps": float("nan")}, "eps is a number >= 0, got nan"),
        ("Adagrad", {"lr_decay": -1}, "lr_decay is a number >= 0"),
        ("Adadelta", {"rho": 1.5}, "rho is a number >= 0 and < 1, got 1.5"),
        ("RMSprop", {"alpha": -1}, "alpha is a number >= 0 and < 1, got -1"),
        ("LAMB", {"betas": (2, 0.9)}, "the first of betas is a number"),
    ],
)
def test_options_that_cannot_be(name, options, message):
    with pytest.raises(ValueError, match=message):
        getattr(optim, name)([W], **options)
    with pytest.raises(ValueError, match=message):
        getattr(optim, name)([{"params": [W], **options}])


def test_lamb_has_no_amsgrad():
    with pytest.raises(NotImplementedError, match="LAMB has no amsgrad"):
        optim.LAMB([W], amsgrad=True)


@pytest.mark.parametrize("key", ["clip_grad_max_norm", "clip_grad_norm_type"])
def test_clipping_needs_both_of_its_keys(key):
    with pytest.raises(ValueError, match=f"has both of .* or neither, got '{key}' alone"):
        optim.SGD([{"params": [W], key: 2.0}])
    assert optim.SGD([{"params": [W], "clip_grad_max_norm": None, "clip_grad_norm_type": None}]).param_groups


@pytest.mark.parametrize(
    "options", [{"clip_grad_max_norm": 0.0}, {"clip_grad_norm_type": -1.0}, {"clip_grad_norm_type": "two"}]
)
def test_clipping_that_cannot_be(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} is a number > 0"):
        optim.SGD([{"params": [W], "clip_grad_max_norm": 1.0, "clip_grad_norm_type": 2.0, **options}])


def test_a_refused_group_is_not_added():
    optimizer = optim.SGD([W])
    with pytest.raises(ValueError, match="lr is a number"):
        optimizer.add_param_group({"params": [V], "lr": -1})
    assert len(optimizer.param_groups) == 1


def test_the_options_of_the_base_are_a_dictionary():
    with pytest.raises(ValueError, match="options is a dictionary such as"):
        optim.Optimizer([W], 0.1)
    optimizer = optim.Optimizer([W], {"lr": 0.1})
    W.grad = torch.ones(2)
    with pytest.raises(NotImplementedError, match="Optimizer does not say what its update is; override step"):
        optimizer.step()
    W.grad = None


def test_sparse_gradients_are_refused():
    table = torch.nn.Embedding(4, 2, sparse=True)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(
        NotImplementedError,
        match=r"a parameter of shape \(4, 2\) has a sparse gradient; build its embedding with sparse=False",
    ):
        optim.SGD(table.parameters()).step()


def test_a_state_that_is_not_one():
    optimizer = optim.AdamW([W])
    with pytest.raises(ValueError, match="is a dictionary with 'state' and 'param_groups'"):
        optimizer.load_state_dict({"model": 1})
    other = torch.optim.AdamW([V], lr=0.1)
    V.grad = torch.ones(3)
    other.step()
    V.grad = None
    with pytest.raises(
        ValueError, match=r"this state has \['exp_avg', 'exp_avg_sq', 'step'\], and AdamW keeps \['m', 'max_v', 'v'\]"
    ):
        optimizer.load_state_dict(other.state_dict())
    with pytest.raises(ValueError, match="different number of parameter groups"):
        optimizer.load_state_dict(optim.AdamW([{"params": [W]}, {"params": [V]}]).state_dict())
