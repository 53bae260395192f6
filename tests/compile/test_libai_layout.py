"""How ranks are shared out to data, tensor and pipeline parallelism: numbers that LiBai gives, and what is refused."""

from __future__ import annotations

from collections import Counter

import pytest

import oneflow as flow
from libai.utils import distributed as dist
from libai.utils.rank_layout import rank_layout


@pytest.mark.parametrize(
    ("world", "tensor", "pipeline", "layers", "data", "each"),
    [
        (8, 1, 4, 24, 2, [6, 7, 7, 4]), (8, 1, 8, 24, 1, [3, 3, 3, 3, 3, 4, 4, 1]), (8, 1, 4, 10, 2, [2, 2, 3, 3]), (8, 1, 2, 5, 4, [2, 3]),
        (8, 2, 2, 24, 2, [12, 12]), (8, 2, 1, None, 4, []), (8, 4, 2, 24, 1, [12, 12]), (2, 2, 1, None, 1, []),
    ],
)  # fmt: skip
def test_layers_and_sizes(world, tensor, pipeline, layers, data, each):
    layout = rank_layout(world, tensor, pipeline, layers)
    assert layout.data == data and list(Counter(layout.stages).values()) == each
    assert layout.data * layout.tensor * layout.pipeline == world


def test_pipelines_are_the_slowest_axis_and_tensor_parallel_ranks_the_fastest():
    layout = rank_layout(8, 2, 2, 24)
    assert [layout.ranks_of(stage).tolist() for stage in (0, 1)] == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    assert [layout.data_rank(rank) for rank in range(8)] == [0, 0, 1, 1, 0, 0, 1, 1]
    assert (layout.stage_of(0), layout.stage_of(11), layout.stage_of(12), layout.stage_of(-1)) == (0, 0, 1, 1)
    assert rank_layout(8, 2, 1).ranks_of(0).tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert rank_layout(4, 1, 1).ranks_of(0).tolist() == rank_layout(4, 4, 1).ranks_of(0).tolist() == [0, 1, 2, 3]
    assert rank_layout(4, 1, 2, 4, [0, 1, 1, 1]).stages == (0, 1, 1, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((8, 3, 1), r"train.dist.tensor_parallel_size=3, but there are 8 ranks; .* set it to one of \[1, 2, 4, 8\]"),
        (
            (8, 2, 3, 9),
            r"tensor_parallel_size=2 and .*pipeline_parallel_size=3 need a multiple of 6 ranks, but there are 8; .*to one of \[1, 2, 4\]",
        ),
        (
            (4, 1, 2),
            "cfg.train.dist.pipeline_num_layers must be set when run pipeline parallel: how many layers go to the 2 "
            "stages",
        ),
        ((4, 1, 4, 3), "pipeline_num_layers=3 is less than pipeline_parallel_size=4"),
        ((4, 1, 2, 3, [0, 1]), "custom_pipeline_stage_id has 2 entries, pipeline_num_layers is 3"),
        ((4, 1, 2, 3, [0, 1, 2]), "custom_pipeline_stage_id has 2; stages are 0 to 1"),
        ((4, 0, 1), "tensor_parallel_size is a whole number from 1 on, got 0"),
    ],
)
def test_sizes_that_do_not_fit(arguments, message):
    with pytest.raises(AssertionError, match=message):
        rank_layout(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (4, 8, 1),
            r"train.dist.tensor_parallel_size=8, but there are 4 ranks; start a multiple of 8 ranks or set it to one of \[1, 2, 4\]",
        ),
        (
            (8, 4, 4, 24),
            r"train.dist.tensor_parallel_size=4 and train.dist.pipeline_parallel_size=4 need a multiple of 16 ranks, but there are 8; .*pipeline_parallel_size to one of \[1, 2\]",
        ),
        ((1, 1, 2, 4), r"pipeline_parallel_size=2 need a multiple of 2 ranks, but there is 1; .*to one of \[1\]"),
    ],
)
def test_sizes_above_the_number_of_ranks_are_not_changed(arguments, message):
    with pytest.raises(ValueError, match=message):
        rank_layout(*arguments)


def test_the_data_parallel_size_is_the_rest_of_the_ranks():
    assert rank_layout(8, 2, 2, 24, data=2).data == rank_layout(8, 2, 2, 24, data=1).data == 2
    assert rank_layout(8, 2, 2, 24, data=None).data == 2
    with pytest.raises(
        ValueError,
        match="train.dist.data_parallel_size=4, but 8 ranks with tensor_parallel_size=2 and pipeline_parallel_size=2 "
        "leave 2; set it to 2, to null, or start 16 ranks",
    ):
        rank_layout(8, 2, 2, 24, data=4)
    with pytest.raises(ValueError, match="train.dist.data_parallel_size is a whole number from 1 on or null, got 0"):
        rank_layout(8, 1, 1, data=0)
    with pytest.raises(ValueError, match="train.dist.data_parallel_size=2, but 1 rank .*start 2 ranks"):
        dist.setup_dist_util({"data_parallel_size": 2})
    with pytest.raises(
        ValueError, match="train.dist.tensor_parallel_size=4, but there is 1 rank; start a multiple of 4"
    ):
        dist.setup_dist_util({"tensor_parallel_size": 4})


def test_a_layer_that_there_is_not():
    with pytest.raises(ValueError, match="layer 5 is not among the 3 that train.dist.pipeline_num_layers says"):
        rank_layout(2, 1, 2, 3).stage_of(5)


def test_one_process():
    util = dist.setup_dist_util({})
    assert (util.data_parallel_size, util.tensor_parallel_size, util.pipeline_parallel_size) == (1, 1, 1)
    assert dist.get_layer_placement(-1, "cpu") == dist.get_layer_placement(17, "cpu") == flow.placement("cpu", [0])
    split, whole = flow.sbp.split(0), flow.sbp.broadcast
    assert dist.get_nd_sbp([split, whole]) == [whole] == dist.get_hidden_sbp()
    assert dist.same_sbp([split], [split]) and not dist.same_sbp([split], [whole])
    local = flow.ones(2)
    assert dist.ttol(local) is local and dist.tensor_to_rank0(local) is local and dist.tton(local).tolist() == [1, 1]
    assert (
        dist.broadcast_py_object({"a": 1}) == {"a": 1}
        and dist.is_main_process()
        and dist.is_last_process()
        and dist.get_num_nodes() == 1
    )
    dist.synchronize()
    dist.set_device_type("cpu")
    assert dist.get_layer_placement(0).type == "cpu"
    with pytest.raises(NotImplementedError, match="train.dist.device_type is one of cuda, cpu, npu, xpu, got 'tpu'"):
        dist.set_device_type("tpu")
    with pytest.raises(AssertionError, match="get_nd_sbp takes two SBPs"):
        dist.get_nd_sbp([split])
    with pytest.raises(AssertionError, match="equally many axes, got 1 and 2"):
        dist.same_sbp([split], [split, whole])
