"""Batches of Instances by one call of ``__getitem__``: bit for bit those of single samples, whatever the data set
does."""

import random

import numpy as np
import pytest
import torch

import oneflow as flow
from libai.config import LazyCall
from libai.data.build import build_image_test_loader
from libai.data.samplers import SingleRoundSampler
from libai.data.structures import DistTensorData, Instance
from libai.data.together import Together
from libai.utils import distributed as dist
from oneflow.engine.data.at_once import BatchIndex, BatchNumber, NotAtOnce, at_once
from oneflow.utils.data import Dataset

PIXELS = torch.arange(40 * 6, dtype=torch.uint8).reshape(40, 2, 3)
LABELS = [index * 7 % 10 for index in range(40)]


@pytest.fixture(autouse=True)
def one_rank():
    dist.setup_dist_util({})


class Asked:
    """How often a data set was asked, beside its own state."""

    def __init__(self):
        self.count = 0


class Given(Dataset):
    """Samples by a function of the index; counts how often it is asked."""

    def __init__(self, sample):
        self.sample, self.asked = sample, Asked()

    @property
    def calls(self):
        return self.asked.count

    def __len__(self):
        return 40

    def __getitem__(self, index):
        self.asked.count += 1
        return self.sample(index)


def loader_of(dataset, batch, **settings):
    return build_image_test_loader(dataset, batch, sampler=LazyCall(SingleRoundSampler)(shuffle=False), **settings)


def made(image, label=0):
    return Instance(inputs=DistTensorData(image), labels=DistTensorData(torch.as_tensor(label), placement_idx=-1))


def pixels(index):
    return made(flow.tensor(PIXELS[index].clone().detach(), dtype=flow.float32) / 255)


def normalised(index):
    return made((PIXELS[index, :, 1:].float() - torch.tensor([1.0, 2.0])) / torch.tensor([3.0, 7.0]))


def constant(index):
    return made(PIXELS[index].unsqueeze(0).expand(2, 2, 3), torch.tensor(3, dtype=torch.int32))


def bare(index):
    return Instance(inputs=torch.stack([PIXELS[index].flip(0), PIXELS[index]]), mask=PIXELS[index] > 17)


MEMO = {}


def remembered(index):
    if index not in MEMO:
        MEMO[index] = pixels(index)
    return MEMO[index]


SINGLE = {
    "looks at the index": lambda index: pixels(index if index % 2 else 0),
    "is asked for text": lambda index: made(PIXELS[index] + len(f"{index}")),
    "reads a list": lambda index: made(PIXELS[index], LABELS[index]),
    "reads an array": lambda index: made(torch.from_numpy(PIXELS.numpy()[index].copy())),
    "remembers": remembered,
    "draws by Python": lambda index: made(PIXELS[index].flip(0) if random.random() < 0.01 else PIXELS[index]),
    "draws by numpy": lambda index: made(PIXELS[index] if np.random.rand() < 2 else PIXELS[0]),
    "draws by torch": lambda index: made(PIXELS[index] * torch.rand(2, 3)),
    "looks at a value": lambda index: made(PIXELS[index] if PIXELS[index].sum() > 300 else -PIXELS[index]),
    "rounds by place": lambda index: made((PIXELS[index] / 50).exp()),
    "adds up": lambda index: made((PIXELS[index] / 50).sum()),
    "has an integer's type": lambda index: made(PIXELS[index] if type(index) is int else PIXELS[0]),
    "hides errors": lambda index: _hiding(index),
    "gives lists": lambda index: Instance(inputs=DistTensorData(PIXELS[index]), name=["a"]),
}


def _hiding(index):
    try:
        return made(PIXELS[index], LABELS[index])
    except Exception:
        return made(torch.zeros(2, 3, dtype=torch.uint8), 0)


def same(one, other):
    if isinstance(one, DistTensorData):
        return (one.sbp_list, one.placement_idx) == (other.sbp_list, other.placement_idx) and same(
            one.tensor, other.tensor
        )
    if isinstance(one, torch.Tensor):
        return (one.dtype, one.shape, one.stride()) == (
            other.dtype,
            other.shape,
            other.stride(),
        ) and one.numpy().tobytes() == other.numpy().tobytes()
    return one == other


def require_batches(loader, sample):
    for number, batch in enumerate(loader):
        expected = Instance.stack([sample(index) for index in range(number * 8, number * 8 + 8)])
        assert list(batch.get_fields()) == list(expected.get_fields())
        assert all(same(batch.get(name), expected.get(name)) for name in expected.get_fields())


@pytest.mark.parametrize("sample", [pixels, normalised, constant, bare])
def test_samples_of_tensors_are_asked_for_once_a_batch(sample):
    dataset = Given(sample)
    require_batches(loader_of(dataset, 8, num_workers=0), sample)
    assert dataset.calls == 1 + 8 + 4  # the first batch both ways, then four


def test_workers_make_the_same_batches():
    require_batches(loader_of(Given(pixels), 8, num_workers=2), pixels)


@pytest.mark.parametrize("what", [what for what in SINGLE if "draws" not in what])
def test_samples_that_cannot_be_made_together_are_made_one_by_one(what):
    MEMO.clear()
    dataset = Given(SINGLE[what])
    require_batches(loader_of(dataset, 8, num_workers=0), SINGLE[what])
    assert dataset.calls == 1 + 40


@pytest.mark.parametrize("what", [what for what in SINGLE if "draws" in what])
def test_samples_that_draw_random_numbers_are_made_one_by_one(what):
    dataset = Given(SINGLE[what])
    found = list(loader_of(dataset, 8, num_workers=0, seed=3))
    assert dataset.calls == 1 + 40 and len(found) == 5


def test_a_loader_with_a_collate_function_of_its_own_is_given_single_samples():
    dataset = Given(pixels)
    found = next(iter(loader_of(dataset, 8, num_workers=0, collate_fn=len)))
    assert found == 8 and dataset.calls == 8


def test_a_data_set_that_keeps_what_it_is_asked_for_sees_every_index():
    class Keeping(Given):
        def __init__(self):
            super().__init__(pixels)
            self.seen, self.number = [], 0

        def __getitem__(self, index):
            self.seen.append(index) if self.keeps else None
            self.number += not self.keeps
            return super().__getitem__(index)

    for keeps in (True, False):
        Keeping.keeps = keeps
        dataset = Keeping()
        require_batches(loader_of(dataset, 8, num_workers=0), pixels)
        assert dataset.calls == 1 + 40
        assert dataset.seen[1:] == list(range(40)) if keeps else dataset.number == 41


def test_an_error_of_a_sample_names_its_index():
    def failing(index):
        if index == 9:
            raise KeyError("not there")
        return pixels(index)

    loader = loader_of(Given(failing), 8, num_workers=0)
    with pytest.raises(ValueError, match="sample 9 of Given cannot be read: KeyError"):
        list(loader)


def test_a_first_batch_that_differs_decides():
    together = Together(Given(lambda index: made(PIXELS[index] if isinstance(index, BatchIndex) else PIXELS[0])))
    single = Instance.stack([made(PIXELS[0])] * 2)
    for _ in range(2):
        assert together.batch([1, 2], lambda: single) is single


def test_an_index_that_stands_for_many_has_no_value():
    def ask(question):
        def sample(index):
            question(index)
            return [PIXELS[index]]

        with pytest.raises(NotAtOnce):
            at_once(sample, [1, 2])

    for question in (
        int,
        float,
        bool,
        str,
        hash,
        len,
        list,
        "{}".format,
        lambda index: index == 1,
        lambda index: index + 1,
        lambda index: PIXELS.clone().__setitem__(index, 0),
    ):
        ask(question)
    ask(lambda index: torch.tensor([BatchNumber(index.of(LABELS))]))
    assert [
        found.tolist()
        for found in at_once(lambda index: [torch.tensor(BatchNumber(index.of(LABELS)), dtype=torch.int16)], [3, 1])
    ] == [[1, 7]]


@pytest.mark.parametrize(("batch", "workers"), [(1, 0), (4, 0), (4, 1)])
def test_what_is_done_to_a_batch_does_not_reach_the_data_set(batch, workers):
    pixels = PIXELS.float()
    dataset = Given(lambda index: made(pixels[index]))
    for _ in range(2):
        for data in loader_of(dataset, batch, num_workers=workers):
            data.inputs.to_global(device_type="cpu")
            data.inputs.tensor.zero_()
    assert torch.equal(pixels, PIXELS.float())
