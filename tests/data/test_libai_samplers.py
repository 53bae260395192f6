"""Which samples a rank gets, by the formulas of the sampling laws."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from libai.data.samplers import CyclicSampler, SingleRoundSampler


def cyclic(n, micro, ranks, count, shuffle=False, **more):
    """The first batches of each rank."""
    return [
        list(
            islice(
                CyclicSampler(range(n), micro, shuffle, data_parallel_rank=rank, data_parallel_size=ranks, **more),
                count,
            )
        )
        for rank in range(ranks)
    ]


def once(n, micro, ranks, **more):
    samplers = [
        SingleRoundSampler(range(n), micro, data_parallel_rank=rank, data_parallel_size=ranks, **more)
        for rank in range(ranks)
    ]
    return samplers, [list(sampler) for sampler in samplers]


def test_buckets_are_contiguous_and_batches_never_straddle_epochs():
    # 11 samples, 2 ranks of 2: 4 samples a rank and epoch; 8, 9 and 10 are never visited.
    assert cyclic(11, 2, 2, 3) == [[[0, 1], [2, 3], [0, 1]], [[4, 5], [6, 7], [4, 5]]]


def test_shuffling_stays_inside_a_bucket_with_one_permutation_for_all_ranks():
    for epoch in range(2):
        order = torch.randperm(4, generator=torch.Generator().manual_seed(7 + epoch)).tolist()
        first, second = (
            sum(batches[2 * epoch : 2 * epoch + 2], []) for batches in cyclic(9, 2, 2, 4, shuffle=True, seed=7)
        )
        assert first == order
        assert second == [4 + index for index in order]


@pytest.mark.parametrize("rank_buckets", [True, False])
@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("stopped", [1, 3, 4, 5, 9])
def test_a_sampler_goes_on_where_another_stopped(ranks, stopped, rank_buckets):
    whole = cyclic(33, 2, ranks, 12, shuffle=True, seed=3, rank_buckets=rank_buckets)
    resumed = cyclic(
        33,
        2,
        ranks,
        12 - stopped,
        shuffle=True,
        seed=3,
        consumed_samples=stopped * 2 * ranks,
        rank_buckets=rank_buckets,
    )
    assert resumed == [batches[stopped:] for batches in whole]


def test_consumed_samples_count_those_of_all_ranks():
    # 8 samples, 2 ranks of 2: after 4 samples the second half of epoch 0 follows.
    assert cyclic(8, 2, 2, 1, consumed_samples=4) == [[[2, 3]], [[6, 7]]]
    sampler = CyclicSampler(range(8), 2, data_parallel_rank=1, data_parallel_size=2)
    next(iter(sampler))
    assert sampler.consumed_samples == 4
    sampler.set_epoch(1)
    assert sampler.consumed_samples == 8 and next(iter(sampler)) == [4, 5]
    assert len(sampler) == 8


def test_without_buckets_an_iteration_has_the_same_samples_on_any_number_of_ranks():
    alone = cyclic(50, 8, 1, 20, shuffle=True, seed=5, rank_buckets=False)[0]
    for ranks in (2, 4):
        shared = cyclic(50, 8 // ranks, ranks, 20, shuffle=True, seed=5, rank_buckets=False)
        assert [sum(parts, []) for parts in zip(*shared)] == alone
    assert cyclic(50, 8, 1, 20, shuffle=True, seed=5)[0] == alone  # one rank has one bucket


@pytest.mark.parametrize("rank_buckets", [True, False])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("n", [1, 7, 12, 13, 14, 15, 16, 25])
def test_a_single_round_visits_every_sample_once(n, ranks, rank_buckets):
    samplers, batches = once(n, 4, ranks, shuffle=True, rank_buckets=rank_buckets)
    assert {len(of_rank) for of_rank in batches} == {len(samplers[0])} == {-(-n // (4 * ranks))}
    visited = []
    for number, parts in enumerate(zip(*batches)):
        assert len({len(part) for part in parts}) == 1
        together = sum(parts, [])
        visited += [together[row] for row in samplers[0].rows_that_count(number)]
    assert sorted(visited) == list(range(n))


def test_a_short_rank_ends_with_sample_0():
    _, batches = once(8, 2, 3)
    assert batches == [[[0, 1], [2]], [[3, 4], [5]], [[6, 7], [0]]]


@pytest.mark.parametrize("rank_buckets", [True, False])
@pytest.mark.parametrize("n", [10, 11, 12, 13])
def test_drop_last_leaves_as_many_whole_batches_to_all_ranks(n, rank_buckets):
    samplers, batches = once(n, 3, 4, drop_last=True, rank_buckets=rank_buckets)
    assert {len(of_rank) for of_rank in batches} == {n // 12} == {len(samplers[0])}
    assert all(len(batch) == 3 for of_rank in batches for batch in of_rank)


def test_the_order_of_a_round_is_the_same_every_time():
    sampler = SingleRoundSampler(range(20), 4, shuffle=True, seed=1)
    assert list(sampler) == list(sampler)
    assert sum(sampler, []) == torch.randperm(20, generator=torch.Generator().manual_seed(1)).tolist()


class Prefetching(list):
    supports_prefetch = True
    asked = ()

    def prefetch(self, indices):
        self.asked += (indices,)


def test_a_data_set_that_can_prefetch_is_told_the_indices_of_an_epoch():
    dataset = Prefetching(range(5))
    list(islice(CyclicSampler(dataset, 2), 3))
    assert dataset.asked == ([0, 1, 2, 3], [0, 1, 2, 3])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: CyclicSampler(range(3), 2, data_parallel_size=2),
            "has 3 samples, less than one global batch of 4 .micro_batch_size 2 on 2 ranks",
        ),
        (lambda: CyclicSampler(range(3), 0), "micro_batch_size is an int >= 1, got 0"),
        (
            lambda: CyclicSampler(range(3), 1, data_parallel_rank=2, data_parallel_size=2),
            "data_parallel_rank is an int >= 0 and <= 1, got 2",
        ),
        (lambda: CyclicSampler(range(3), 1, consumed_samples=-1), "consumed_samples is an int >= 0, got -1"),
        (lambda: SingleRoundSampler([], 1), "the data set has no samples"),
    ],
)
def test_sizes_that_cannot_be_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
