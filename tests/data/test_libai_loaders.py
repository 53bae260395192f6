"""The loaders that configs describe: batches, workers, random numbers, errors."""

from __future__ import annotations

import random
from itertools import islice

import numpy as np
import pytest
import torch

from libai.config import LazyCall
from libai.data import (
    DistTensorData,
    Instance,
    build_image_test_loader,
    build_image_train_loader,
    build_nlp_test_loader,
    build_nlp_train_val_test_loader,
)
from libai.data.build import build_nlp_train_loader, trivial_batch_collator
from libai.data.data_utils import get_train_valid_test_split_
from libai.data.samplers import CyclicSampler, SingleRoundSampler
from libai.utils import distributed as dist
from oneflow.utils.data import ConcatDataset, Dataset

pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python 3.12 and later, of fork()


class Noisy(Dataset):
    """Each sample has random numbers of all three kinds."""

    def __init__(self, count=20, bad=()):
        self.count, self.bad = count, bad

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if index in self.bad:
            raise KeyError(f"no sample {index}")
        drawn = torch.tensor([torch.rand(1).item(), np.random.rand(), random.random()])
        return Instance(images=DistTensorData(drawn), labels=DistTensorData(torch.tensor(index), placement_idx=-1))


class AtOnce(Noisy):
    def __getitem__(self, index):
        raise AssertionError("samples are not asked for one by one")

    def __getitems__(self, indices):
        return Instance(
            labels=DistTensorData(torch.tensor(indices)), images=DistTensorData(torch.rand(len(indices), 3))
        )


@pytest.fixture(autouse=True)
def one_rank():
    dist.setup_dist_util({})


def batches(loader, count=6):
    return [(batch.images.tensor.tolist(), batch.labels.tensor.tolist()) for batch in islice(loader, count)]


def test_batches_are_the_same_for_any_number_of_workers_and_a_program_s_random_numbers_are_left_alone():
    torch.manual_seed(1)
    expected = torch.rand(2).tolist()
    torch.manual_seed(1)
    alone, _, _ = build_image_train_loader(Noisy(), 4, num_workers=0, seed=5)
    first = batches(alone)
    assert torch.rand(2).tolist() == expected
    assert batches(build_image_train_loader(Noisy(), 4, num_workers=2, seed=5)[0]) == first
    drawn = np.array([images for images, _ in first])
    assert len(np.unique(drawn)) == drawn.size  # nothing twice, not in a later epoch either


def test_a_resumed_loader_gives_what_the_first_would_have_given():
    whole = batches(build_image_train_loader(Noisy(), 4, num_workers=0, seed=5)[0], 9)
    assert batches(build_image_train_loader(Noisy(), 4, num_workers=0, seed=5, consumed_samples=12)[0]) == whole[3:]


def test_two_ranks_share_out_the_batches_of_one(monkeypatch):
    alone = batches(build_image_train_loader(Noisy(), 4, num_workers=0, seed=5)[0])
    parts = []
    for rank in range(2):
        monkeypatch.setattr(dist, "get_data_parallel_size", lambda: 2)
        monkeypatch.setattr(dist, "get_data_parallel_rank", lambda rank=rank: rank)
        parts.append(batches(build_image_train_loader(Noisy(), 2, num_workers=0, seed=5)[0]))
    assert [(a[0] + b[0], a[1] + b[1]) for a, b in zip(*parts)] == alone


def test_a_config_may_ask_for_buckets(monkeypatch):
    monkeypatch.setattr(dist, "get_data_parallel_size", lambda: 2)
    monkeypatch.setattr(dist, "get_data_parallel_rank", lambda: 1)
    sampler = LazyCall(CyclicSampler)(shuffle=False, rank_buckets=True)
    loader, _, _ = build_image_train_loader(Noisy(), 2, sampler=sampler, num_workers=0)
    assert loader.batch_sampler.rank_buckets and batches(loader, 1)[0][1] == [10, 11]
    assert "dataset" not in sampler  # a config is not written to


def test_a_data_set_may_make_its_batches_at_once():
    for workers in (0, 1):
        loader, _, _ = build_image_train_loader(AtOnce(), 4, num_workers=workers)
        images, labels = batches(loader, 1)[0]
        assert np.array(images).shape == (4, 3)
        assert labels == torch.randperm(20, generator=torch.Generator().manual_seed(0))[:4].tolist()


def test_lists_and_lazy_data_sets_are_joined_for_training_and_test():
    described = [LazyCall(Noisy)(count=3), Noisy(5)]
    train, valid, test = build_image_train_loader(described, 8, num_workers=0, mixup_func=LazyCall(Noisy)(count=1))
    assert isinstance(train.dataset, ConcatDataset) and len(train.dataset) == 8 and (valid, test) == (None, None)
    assert train.mixup_func.count == 1
    held_out = build_image_test_loader(described, 3, num_workers=0)
    assert len(held_out) == 3 and sorted(sum((labels for _, labels in batches(held_out)), [])) == [
        0,
        0,
        1,
        1,
        2,
        2,
        3,
        4,
    ]
    assert held_out.batch_sampler.shuffle and not build_nlp_test_loader(Noisy(), 3, num_workers=0).batch_sampler.shuffle
    assert isinstance(build_nlp_train_loader(Noisy(), 3, num_workers=0)[0].batch_sampler, CyclicSampler)


def test_each_round_of_a_test_loader_is_the_same():
    loader = build_image_test_loader(Noisy(), 6, num_workers=1)
    assert batches(loader) == batches(loader)
    assert isinstance(loader.batch_sampler, SingleRoundSampler)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_a_data_set_comes_once_with_index_class_and_line(workers):
    loader = build_nlp_test_loader([Noisy(4), Noisy(9, bad=[3])], 5, num_workers=workers)
    with pytest.raises(ValueError) as caught:
        batches(loader)
    message = str(caught.value)
    assert (
        message.startswith("sample 7 of ConcatDataset of Noisy, Noisy cannot be read: KeyError: 'no sample 3' (")
        and __file__ in message
    )
    assert message.count("KeyError") == 1 and "\n" not in message
    assert "Traceback" in caught.value.__notes__[0]


class Plain(Noisy):
    def __getitem__(self, index):
        return index


def test_what_is_no_data_set_or_no_instance_is_refused():
    with pytest.raises(
        ValueError,
        match=r"the samples \[0, 1\] of Plain do not make a batch: DTypeError: .*returns an Instance from __getitem__.* got int",
    ):
        batches(build_nlp_test_loader(Plain(), 2, num_workers=0))
    with pytest.raises(
        TypeError, match="has __getitem__ and __len__, got <class .*Noisy.>; a lazy one is written LazyCall"
    ):
        build_image_train_loader([Noisy], 2)
    with pytest.raises(ValueError, match="a list of one or more, got an empty list"):
        build_image_train_loader([], 2)


def test_a_batch_stays_a_batch():
    batch = Instance(a=torch.ones(2))
    assert trivial_batch_collator(batch) is batch


class Documents:
    def __init__(self, count=10):
        self.index = list(range(count + 1))

    def get_doc_idx(self):
        return self.index

    def set_doc_idx(self, index):
        self.index = index


class OfDocuments(Noisy):
    def __init__(self, name, indexed_dataset, max_num_samples):
        super().__init__(max_num_samples)
        self.name, self.documents = name, list(indexed_dataset.get_doc_idx())


def test_texts_are_cut_into_parts():
    assert get_train_valid_test_split_(10, [949, 50, 1]) == [0, 10, 10, 10]
    assert get_train_valid_test_split_(10, [0.5, 0.3, 0.2]) == [0, 5, 8, 10]
    assert get_train_valid_test_split_(10, [1, 1, 1]) == [
        0,
        4,
        7,
        10,
    ]  # 3 + 3 + 3, the missing one comes off every bound
    assert get_train_valid_test_split_(7) == [0, 7, 7, 7]
    with pytest.raises(ValueError, match="three ratios"):
        get_train_valid_test_split_(7, [0, 0])
    described = LazyCall(OfDocuments)(indexed_dataset=LazyCall(Documents)())
    train, valid, test = build_nlp_train_val_test_loader(
        [described], [[0.8, 0.2, 0.0]], [1.0], [16, 4, 4], 4, 2, num_workers=0
    )
    assert train.dataset.documents == list(range(9)) and valid.dataset.documents == [8, 9, 10] and test is None
    assert (len(train.dataset), len(valid.dataset), train.dataset.name, valid.dataset.name) == (16, 4, "train", "valid")
    with pytest.raises(ValueError, match="one entry each for every data set, got 1, 1 and 2"):
        build_nlp_train_val_test_loader([described], [[1, 0, 0]], [1, 1], [1, 1, 1], 1, 1)


@pytest.mark.parametrize(
    "image",
    [
        torch.zeros(0),
        torch.arange(5, dtype=torch.int16),
        torch.tensor(True),
        torch.rand(3, 4).t(),
        torch.zeros(2**20 + 1),
    ],
)
def test_batches_of_any_kind_come_whole_from_workers(image):
    class Kind(Noisy):
        def __getitem__(self, index):
            return Instance(
                images=DistTensorData(image, sbp_list=["broadcast"], placement_idx=2),
                index=torch.tensor(index),
                note=[index],
            )

    class Tensors(Kind):
        def __getitem__(self, index):
            sample = super().__getitem__(index)
            sample.remove("note")
            return sample

    for kind in (Kind(), Tensors()):
        read = [
            list(islice(build_image_train_loader(kind, 4, num_workers=workers, seed=5)[0], 11)) for workers in (0, 2)
        ]
        for one, other in zip(*read):
            assert (
                list(one.get_fields()) == list(other.get_fields())
                and torch.equal(one.index, other.index)
                and torch.equal(one.images.tensor, other.images.tensor)
            )
            assert (one.images.sbp_list, one.images.placement_idx, one.images.tensor.dtype) == (
                other.images.sbp_list,
                other.images.placement_idx,
                other.images.tensor.dtype,
            )
            is_large = other.has("note") or image.numel() > 2**20  # or not a batch of tensors
            assert other.index.is_shared() == is_large and one.get_fields().get("note") == other.get_fields().get(
                "note"
            )


def test_batches_that_are_kept_are_not_written_over():
    loader, _, _ = build_image_train_loader(Noisy(), 4, num_workers=1, seed=5)
    kept = list(islice(loader, 20))
    assert [batch.labels.tensor.tolist() for batch in kept] == [
        labels for _, labels in batches(build_image_train_loader(Noisy(), 4, num_workers=0, seed=5)[0], 20)
    ]
