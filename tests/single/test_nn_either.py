"""Names of ``flow.nn`` that jobs and tensors both have: the op inside a job, a module class anywhere else."""

from __future__ import annotations

import copy
import inspect
import pickle

import numpy as np
import pytest
import torch

import oneflow as flow
import oneflow.typing as tp
from oneflow import nn
from oneflow.engine.core.errors import OutsideJobError
from oneflow.engine.ir.blob import Blob

PAIR = {"L1Loss": (), "MSELoss": (), "BCELoss": (), "BCEWithLogitsLoss": (), "KLDivLoss": ()}
LAYERS = {
    "GroupNorm": (2, 4),
    "InstanceNorm1d": (4,),
    "InstanceNorm2d": (4,),
    "InstanceNorm3d": (4,),
    "PixelShuffle": (2,),
}
EITHER = {**PAIR, "MarginRankingLoss": (), "TripletMarginLoss": (), **LAYERS}
RANKS = {"InstanceNorm1d": 3, "InstanceNorm3d": 5}
X, Y = (np.random.default_rng(seed).uniform(0.1, 0.9, (3, 4)).astype(np.float32) for seed in (0, 1))


def in_job(build, *arrays):
    """What a job gives whose body is ``build`` on blobs."""

    def body(*blobs):
        return build(*blobs)

    inputs = {f"x{number}": tp.Numpy.Placeholder(array.shape) for number, array in enumerate(arrays)}
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    body.__signature__ = inspect.Signature(
        [inspect.Parameter(name, kind, annotation=given) for name, given in inputs.items()]
    )
    body.__annotations__ = inputs
    return flow.global_function()(body)(*arrays).get().numpy()


@pytest.mark.parametrize("name", PAIR)
def test_a_loss_is_the_op_inside_a_job_and_a_module_outside_with_the_same_value(name):
    given = in_job(getattr(nn, name), X, Y)
    module = getattr(nn, name)()
    assert given == pytest.approx(float(module(torch.from_numpy(X), torch.from_numpy(Y))), rel=1e-5)


def test_losses_of_three_inputs_are_ops_inside_a_job():
    third = np.sign(X - 0.5)
    arrays = [torch.from_numpy(a) for a in (X, Y, third)]
    assert in_job(nn.MarginRankingLoss, X, Y, third) == pytest.approx(float(nn.MarginRankingLoss()(*arrays)), rel=1e-5)
    assert in_job(nn.TripletMarginLoss, X, Y, third) == pytest.approx(float(nn.TripletMarginLoss()(*arrays)), rel=1e-5)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_the_op_inside_a_job_and_a_module_outside_with_the_same_values(name):
    x = np.random.default_rng(2).normal(size=(2, 4, 4, 6, 8)[: RANKS.get(name, 4)]).astype(np.float32)
    arguments = {"GroupNorm": (2,), "PixelShuffle": (2,)}.get(name, ())
    given = in_job(lambda blob: getattr(nn, name)(blob, *arguments), x)
    np.testing.assert_allclose(
        given, getattr(nn, name)(*LAYERS[name])(torch.from_numpy(x)).detach(), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("name", EITHER)
def test_a_class_of_both_is_a_real_class(name):
    kind, base = getattr(nn, name), getattr(torch.nn, name)
    module = kind(*EITHER[name])
    assert isinstance(kind, type) and issubclass(kind, base) and type(module) is kind and isinstance(module, nn.Module)
    assert repr(module).startswith(f"{name}(")
    for again in (pickle.loads(pickle.dumps(module)), copy.deepcopy(module)):
        assert type(again) is kind and repr(again) == repr(module)


@pytest.mark.parametrize("name", EITHER)
def test_a_class_of_both_refuses_data_outside_a_job(name):
    blobs = {"MarginRankingLoss": 3, "TripletMarginLoss": 3, **dict.fromkeys(LAYERS, 1)}.get(name, 2)
    with pytest.raises(
        OutsideJobError,
        match=rf"flow.nn.{name} was called on data outside a job function.*flow.nn.{name}\(...\)\(input, ...\)",
    ):
        getattr(nn, name)(*[X] * blobs)


def test_weights_of_a_loss_are_no_data():
    weight = torch.ones(4)
    assert nn.BCELoss(weight).weight is weight and nn.BCEWithLogitsLoss(weight, "sum", weight).pos_weight is weight


class Doubled(nn.MSELoss):
    """A loss that a user derives."""

    def forward(self, input, target):
        return 2 * super().forward(input, target)


def test_a_derived_class_is_a_module_everywhere():
    x, y = torch.from_numpy(X), torch.from_numpy(Y)
    assert float(Doubled("sum")(x, y)) == pytest.approx(2 * float(((x - y) ** 2).sum()))
    seen = []

    def body(blob):
        seen.append(Doubled())
        return nn.MSELoss(blob, blob)

    assert in_job(body, X) == 0 and type(seen[0]) is Doubled and type(pickle.loads(pickle.dumps(seen[0]))) is Doubled


def test_inside_a_job_the_ops_errors_are_those_of_ops():
    with pytest.raises(flow.errors.ArgumentError, match="MSELoss|mse_loss"):
        in_job(lambda x: nn.MSELoss(x, x, reduction="average"), X)


def test_the_ops_that_only_jobs_have_stay_ops():
    seen = []

    def body(x):
        seen.append(nn.relu(x))
        return seen[0]

    assert np.array_equal(in_job(body, X), X) and isinstance(seen[0], Blob)
    with pytest.raises(OutsideJobError):
        nn.dropout(X, 0.5)
