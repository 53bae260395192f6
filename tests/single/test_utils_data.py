"""``flow.utils``: torch's data sets and loaders with OneFlow's arguments, and activation checkpointing."""

from __future__ import annotations

import json
import subprocess
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from name_calls import utils_data
from warm_python import WARM

from oneflow.utils import checkpoint, data

NAMES = json.loads((Path(__file__).parents[1] / "names_0_9.json").read_text())["oneflow.utils.data"]
NUMBERS = data.TensorDataset(torch.arange(6))


def test_every_name_of_0_9_is_there_and_called():
    assert {f"oneflow.utils.data.{name}" for name in NAMES} == utils_data.CALLS.keys()
    assert set(NAMES) <= set(data.__all__)


@pytest.mark.parametrize("name", utils_data.CALLS)
def test_a_name_does_what_it_should(name):
    utils_data.CALLS[name]()


@pytest.mark.parametrize(
    "path, names",
    [
        ("dataloader", ["DataLoader", "default_collate", "get_worker_info"]),
        ("dataset", ["Dataset", "IterableDataset", "TensorDataset", "ConcatDataset", "Subset", "random_split"]),
        ("sampler", ["Sampler", "SequentialSampler", "RandomSampler", "SubsetRandomSampler", "BatchSampler"]),
        ("distributed", ["DistributedSampler"]),
        ("decorator", ["functional_datapipe", "guaranteed_datapipes_determinism", "non_deterministic"]),
    ],
)
def test_the_same_names_under_their_other_paths(path, names):
    module = import_module(f"oneflow.utils.data.{path}")
    assert all(getattr(module, name) is getattr(data, name) for name in names)


def test_what_is_written_here_is_also_torchs():
    assert issubclass(data.DataLoader, torch.utils.data.DataLoader)
    assert issubclass(data.DistributedSampler, torch.utils.data.DistributedSampler)
    assert data.Dataset is torch.utils.data.Dataset and data.get_worker_info is torch.utils.data.get_worker_info


# ----------------------------------------------------------------------------------------------------------------
# loaders


def test_batches_of_numbers_are_as_wide_as_python_has_them():
    floats, whole, arrays = next(
        iter(data.DataLoader([(0.5, 3, np.float32(1)), (1.5, 4, np.float32(2))], batch_size=2))
    )
    assert floats.dtype == torch.float64 and floats.tolist() == [0.5, 1.5]
    assert whole.dtype == torch.int64 and whole.tolist() == [3, 4]
    assert arrays.dtype == torch.float32


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"prefetch_factor": 3}, "prefetch_factor option could only be specified in multiprocessing"),
        ({"persistent_workers": True}, "persistent_workers option needs num_workers > 0"),
        ({"num_workers": -1}, "num_workers option should be non-negative"),
        ({"batch_size": 2, "batch_sampler": [[0]]}, "batch_sampler option is mutually exclusive"),
    ],
)
def test_arguments_that_do_not_go_together(arguments, message):
    with pytest.raises(ValueError, match=message):
        data.DataLoader(NUMBERS, **arguments)


def test_the_default_of_prefetch_factor_may_be_written_out_without_workers():
    assert len(data.DataLoader(NUMBERS, 2, False, None, None, 0, prefetch_factor=2)) == 3


def test_more_workers_than_cores_are_warned_of():
    with pytest.warns(UserWarning, match="will create 1000 worker processes"):
        data.DataLoader(NUMBERS, num_workers=1000)


PROGRAM = """
import torch
from oneflow.utils import data

class Which(data.Dataset):
    def __getitem__(self, index):
        info = data.get_worker_info()
        return index, info.id, info.num_workers
    def __len__(self):
        return 4

loader = data.DataLoader(Which(), batch_size=2, num_workers=2, persistent_workers=True)
assert loader.prefetch_factor == 2
for epoch in range(2):
    print([[column.tolist() for column in batch] for batch in loader])
"""


def test_workers_give_the_batches_in_order():
    run = subprocess.run([*WARM.command(), "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert [json.loads(line) for line in run.stdout.splitlines()] == [
        [[[0, 1], [0, 0], [2, 2]], [[2, 3], [1, 1], [2, 2]]]
    ] * 2


# ----------------------------------------------------------------------------------------------------- distributed
# samplers


def test_the_launchers_rank_chooses_the_part(as_rank):
    parts = []
    for rank in range(3):
        as_rank(rank, 3)
        sampler = data.DistributedSampler(NUMBERS, shuffle=False)
        parts.append(list(sampler))
        assert (sampler.rank, sampler.num_replicas, len(sampler)) == (rank, 3, 2)
    assert parts == [[0, 3], [1, 4], [2, 5]]


def test_the_order_is_torchs(as_rank):
    as_rank(1, 2)
    ours, theirs = data.DistributedSampler(NUMBERS, seed=3), torch.utils.data.DistributedSampler(NUMBERS, 2, 1, seed=3)
    for epoch in range(3):
        ours.set_epoch(epoch), theirs.set_epoch(epoch)
        assert list(ours) == list(theirs)


def test_a_process_group_counts_before_the_launchers_variables(as_rank, monkeypatch):
    as_rank(7, 8)
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_rank", lambda: 1)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 2)
    assert list(data.DistributedSampler(NUMBERS, shuffle=False)) == [1, 3, 5]


def test_what_is_given_counts_first(as_rank):
    as_rank(1, 3)
    assert list(data.DistributedSampler(NUMBERS, num_replicas=2, shuffle=False)) == [1, 3, 5]
    with pytest.raises(ValueError, match="Invalid rank 2, rank should be in the interval \\[0, 1\\]"):
        data.DistributedSampler(NUMBERS, num_replicas=2, rank=2)


# ------------------------------------------------------------------------------------------------ activation
# checkpointing


def run(model, x, how):
    x = x.clone().requires_grad_()
    model.zero_grad()
    out = how(x)
    out.square().sum().backward()
    return [out.detach(), x.grad, *(p.grad.clone() for p in model.parameters())]


def test_recomputed_activations_give_the_same_gradients():
    torch.manual_seed(0)
    model, x = (
        torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()) for _ in range(4)]),
        torch.rand(3, 4),
    )
    plain = run(model, x, model)
    for how in (
        lambda x: checkpoint.checkpoint(model, x),
        lambda x: checkpoint.checkpoint(model, x, use_reentrant=True),
        lambda x: checkpoint.checkpoint_sequential(model, 2, x),
    ):
        assert all(torch.equal(a, b) for a, b in zip(plain, run(model, x, how)))


def test_the_function_runs_again_for_the_gradient():
    seen = []
    x = torch.ones(2, requires_grad=True)
    out = checkpoint.checkpoint(lambda x: (seen.append(1), x.sin())[1], x)
    assert len(seen) == 1
    out.sum().backward()
    assert len(seen) == 2 and torch.equal(x.grad, torch.ones(2).cos())
