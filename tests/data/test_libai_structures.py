"""Instances and the tensors in them; on one rank."""

from __future__ import annotations

import copy
import pickle
import re

import pytest
import torch

import oneflow as flow
from libai.data import DistTensorData, Instance
from libai.utils import distributed as dist


def test_an_instance_is_its_fields_in_order():
    made = Instance(images=1, labels=2)
    made.more = 3
    made.set("last", 4)
    assert list(made.get_fields().items()) == [("images", 1), ("labels", 2), ("more", 3), ("last", 4)]
    assert len(made) == 4 and made.has("more") and made.get("more") == made.more == 3
    made.remove("more")
    assert not made.has("more")
    assert str(made) == repr(made) == "Instance(fields=[images: 1, labels: 2, last: 4])"
    made.get_fields()["images"] = 9
    assert made.images == 9


def test_a_missing_field_is_named_with_the_nearest_one():
    with pytest.raises(AttributeError, match="Cannot find field 'label' in the given Instance! Did you mean 'labels'?"):
        _ = Instance(labels=1).label
    with pytest.raises(NotImplementedError, match="get_fields"):
        iter(Instance())


def test_instances_are_copied_and_sent():
    made = Instance(a=DistTensorData(torch.ones(2), placement_idx=-1))
    for other in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert torch.equal(other.a.tensor, torch.ones(2)) and other.a.placement_idx == -1


def test_stacking_makes_a_batch_of_every_kind_of_field():
    samples = [
        Instance(x=DistTensorData(torch.full((2, 3), float(i)), placement_idx=-1), t=torch.tensor(i), words=[i, "w"])
        for i in range(4)
    ]
    batch = Instance.stack(samples)
    assert batch.x.tensor.shape == (4, 2, 3) and batch.x.tensor[:, 0, 0].tolist() == [0, 1, 2, 3]
    assert batch.x.placement_idx == -1 and batch.x.sbp_list == ["split_0", "broadcast"]
    assert batch.t.tolist() == [0, 1, 2, 3] and batch.words == [[0, "w"], [1, "w"], [2, "w"], [3, "w"]]


def test_one_sample_is_a_batch_of_one():
    batch = Instance.stack([Instance(x=DistTensorData(torch.ones(3), sbp_list=["broadcast", "broadcast"]))])
    assert batch.x.tensor.shape == (1, 3) and batch.x.sbp_list == ["broadcast", "broadcast"]


T = torch.ones(2)


@pytest.mark.parametrize(
    ("samples", "error", "message"),
    [
        ([], ValueError, "takes one or more Instances, got none"),
        ([Instance(), 3], ValueError, "takes one or more Instances, got int"),
        ([Instance(x=3), Instance(x=3)], ValueError, "Unsupported type <class 'int'> for stack. Field 'x'"),
        ([Instance(x=T), Instance(y=T)], ValueError, r"the first has 'x', sample 1 has only \['y'\]"),
        (
            [Instance(x=DistTensorData(5))],
            TypeError,
            "holds a tensor, got int; make it one in the data set's __getitem__",
        ),
        (
            [Instance(x=DistTensorData(T)), Instance(x=DistTensorData(torch.ones(3)))],
            ValueError,
            r"shape is not equal: the first .* \(2,\), sample 1 \(3,\)",
        ),
        (
            [Instance(x=DistTensorData(T)), Instance(x=DistTensorData(T, ["broadcast"] * 2))],
            ValueError,
            "sbp_list is not equal",
        ),
        (
            [Instance(x=DistTensorData(T)), Instance(x=DistTensorData(T, placement_idx=-1))],
            ValueError,
            "placement_idx is not equal: .* 0, sample 1 -1",
        ),
    ],
)
def test_what_cannot_be_stacked_says_why(samples, error, message):
    with pytest.raises(error, match=message):
        Instance.stack(samples)


def test_to_global_puts_the_global_tensor_in_place():
    dist.setup_dist_util({})
    data = DistTensorData(torch.arange(6.0).reshape(3, 2), placement_idx=-1)
    assert not hasattr(data, "sbp")
    assert data.to_global(device_type="cuda") is None  # without a GPU it is the CPU's
    assert data.tensor.is_global and data.tensor.shape == (3, 2) and list(data.sbp) == [flow.sbp.broadcast]
    given = DistTensorData(torch.ones(2))
    given.to_global(sbp=flow.sbp.split(0), placement=flow.placement("cpu", [0]))
    assert given.tensor.sbp == (flow.sbp.split(0),)


def test_a_batch_gives_its_memory_away_and_no_one_elses():
    dist.setup_dist_util({})
    samples = [torch.full((3,), float(i)) for i in range(2)]
    batch = DistTensorData.stack([DistTensorData(sample) for sample in samples])
    memory = batch.tensor.data_ptr()
    batch.to_global(device_type="cpu")
    assert batch.tensor.to_local().data_ptr() == memory and batch.tensor.tolist() == [[0, 0, 0], [1, 1, 1]]
    alone = DistTensorData.stack([DistTensorData(samples[1])])
    replaced = DistTensorData.stack([DistTensorData(sample) for sample in samples])
    replaced.tensor = samples[0]
    for data in (batch, alone, replaced, DistTensorData(samples[0])):
        if not data.tensor.is_global:
            data.to_global(device_type="cpu")
        data.tensor.add_(5)
    assert [sample.tolist() for sample in samples] == [[0, 0, 0], [1, 1, 1]]


def test_a_batch_that_learns_passes_its_gradient_on():
    dist.setup_dist_util({})
    samples = [torch.ones(2, requires_grad=True) for _ in range(2)]
    batch = DistTensorData.stack([DistTensorData(sample) for sample in samples])
    batch.to_global(device_type="cpu")
    (batch.tensor * 3).sum().backward()
    assert [sample.grad.tolist() for sample in samples] == [[3, 3], [3, 3]]


@pytest.mark.parametrize("word", ["split", "split_x", "S(0)", "partial"])
def test_words_that_are_no_layout_are_refused(word):
    with pytest.raises(ValueError, match=re.escape(f"'split_<dim>', 'broadcast' and 'partial_sum', got {word!r}")):
        DistTensorData(T, [word, "broadcast"]).to_global(device_type="cpu")


def test_a_partial_sum_can_be_said():
    dist.setup_dist_util({})
    data = DistTensorData(torch.ones(2), ["partial_sum", "broadcast"])
    data.to_global(device_type="cpu")
    assert data.tensor.to_local().tolist() == [1, 1]
