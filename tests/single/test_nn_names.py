"""Every public name of 0.9 in ``flow.nn`` is called, or refused with what to use instead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from name_calls import nn as nn_calls
from name_calls import nn_functional, nn_init, nn_utils

import oneflow as flow
from oneflow.engine.core.errors import AbsentNameError
from oneflow.nn.choices import ABSENT, CHOICES

NAMES = json.loads((Path(__file__).parents[1] / "names_0_9.json").read_text(encoding="utf-8"))
CALLS = {**nn_calls.CALLS, **nn_functional.CALLS, **nn_init.CALLS, **nn_utils.CALLS}
NAMESPACES = ("oneflow.nn", "oneflow.nn.functional", "oneflow.nn.init", "oneflow.nn.utils")
ELSEWHERE = {
    "oneflow.nn.Graph",
    "oneflow.nn.AllReduce",
    "oneflow.nn.DistributedPariticalFCSample",
}  # not of one device, or not of modules
KINDS = {f"{namespace}.{name}": kind for namespace in NAMESPACES for name, kind in NAMES[namespace].items()}


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_name_does_what_it_says(name):
    CALLS[name]()


def test_every_name_is_called_or_refused():
    refused = {f"oneflow.nn.{name}" for name in ABSENT}
    assert CALLS.keys() | refused | ELSEWHERE == KINDS.keys() and not CALLS.keys() & refused


@pytest.mark.parametrize("name", sorted(ABSENT))
def test_an_absent_name_says_what_to_use(name):
    with pytest.raises(AbsentNameError, match=f"oneflow.nn.{name} is not there: .+"):
        getattr(flow.nn, name)


@pytest.mark.parametrize("module", [flow.nn, flow.nn.functional, flow.nn.utils])
def test_a_mistyped_name_is_told_the_nearest(module):
    name = {"oneflow.nn": "Linaer", "oneflow.nn.functional": "sofmax", "oneflow.nn.utils": "clip_grad_norm"}[
        module.__name__
    ]
    with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute '{name}'. Did you mean '"):
        getattr(module, name)


def test_every_name_that_is_not_torchs_has_its_choice_in_the_table():
    told = {f"{choice.namespace}.{name}" for choice in CHOICES for name in choice.names}
    assert told <= CALLS.keys()
    assert {name for name in CALLS if KINDS[name] != "same"} <= told


def test_the_paths_that_programs_import_from_are_there():
    from oneflow.nn import Parameter
    from oneflow.nn.modules.batchnorm import BatchNorm2d
    from oneflow.nn.modules.module import Module
    from oneflow.nn.modules.utils import _pair
    from oneflow.nn.parameter import Parameter as same_parameter
    from oneflow.nn.utils.clip_grad import clip_grad_norm_
    from oneflow.nn.utils.rnn import pad_sequence

    assert (
        Parameter is same_parameter
        and issubclass(BatchNorm2d, Module)
        and _pair(3) == (3, 3)
        and callable(clip_grad_norm_)
    )
    assert pad_sequence([torch.ones(1), torch.ones(2)]).tolist() == [[1, 1], [0, 1]]
