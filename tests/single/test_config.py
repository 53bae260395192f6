"""``flow.function_config()``, ``flow.config`` and ``flow.env``: every member of the tables is there and takes what
programs give it."""

import numpy as np
import pytest
from config_members import X, resolve

import oneflow as flow
import oneflow.typing as tp
from oneflow.engine.job import config as process_config
from oneflow.engine.job.function import default_session
from oneflow.engine.job.settings import settings_of
from oneflow.engine.runtime.launch.launchers import Launched

# What programs call, with a value that they give; no value means a switch that is called without one.
NO_VALUE = object()
FUNCTION_MEMBERS = {
    "default_data_type": flow.float32,
    "default_initializer_conf": {"random_normal_conf": {"std": 0.1}},
    "train.primary_lr": 0.1,
    "train.secondary_lr": 0.2,
    "train.model_update_conf": {"naive_conf": {}},
    "train.loss_scale_factor": 128,
    "train.num_gradient_accumulation_steps": 2,
    "train.weight_l1": 0.1,
    "train.weight_l2": 0.1,
    "train.bias_l1": 0.1,
    "train.bias_l2": 0.1,
    "default_placement_scope": flow.scope.placement("cpu", "0:0"),
    "default_logical_view": flow.scope.mirrored_view(),
    "default_distribute_strategy": flow.distribute.consistent_strategy(),
    "enable_auto_mixed_precision": NO_VALUE,
    "indexed_slices_optimizer_conf": {"enable": True, "include_op_names": {"op_name": ["w"]}},
    "allow_cpu_return_op": False,
    "enable_inplace": NO_VALUE,
    "enable_reused_mem": NO_VALUE,
    "enable_cudnn": NO_VALUE,
    "cudnn_buf_limit_mbyte": 1280,
    "cudnn_conv_force_fwd_algo": 1,
    "cudnn_conv_force_bwd_data_algo": 1,
    "cudnn_conv_force_bwd_filter_algo": 1,
    "cudnn_conv_heuristic_search_algo": False,
    "cudnn_conv_use_deterministic_algo_only": NO_VALUE,
    "cudnn_conv_enable_pseudo_half": True,
    "enable_true_half_config_when_conv": NO_VALUE,
    "cudnn_conv_enable_true_half": NO_VALUE,
    "enable_float_compute_for_half_gemm": NO_VALUE,
    "prune_parallel_cast_ops": True,
    "prune_cast_to_static_shape_ops": True,
    "prune_amp_white_identity_ops": NO_VALUE,
    "enable_fuse_add_to_output": True,
    "enable_fuse_model_update_ops": True,
    "enable_fuse_cast_scale": NO_VALUE,
    "enable_cudnn_fused_normalization_add_relu": True,
    "enable_gradients_stats_aggregation": NO_VALUE,
    "enable_non_distributed_optimizer": NO_VALUE,
    "optimizer_placement_optimization_mode": "distributed_split",
    "optimizer_placement_optimization_threshold": 1024,
    "do_parallel_cast_before_widening_type_cast": NO_VALUE,
    "concurrency_width": 128,
    "use_xla_jit": NO_VALUE,
    "use_tensorrt": NO_VALUE,
    "tensorrt.use_fp16": NO_VALUE,
    "tensorrt.use_int8": NO_VALUE,
    "tensorrt.int8_calibration": "path",
    "enable_quantization_aware_training": False,
    "enable_qat": False,
    "qat.per_channel_weight_quantization": False,
    "qat.symmetric": True,
    "qat.moving_min_max_momentum": 0.95,
    "qat.moving_min_max_stop_update_after_iters": 100,
    "qat.target_backend": "",
    "exp_run_conf": {},
    "use_memory_allocation_algorithm_v2": NO_VALUE,
    "static_mem_alloc_policy_white_list.add": "use_time_line_algo",
    "static_mem_alloc_policy_white_list.remove": "use_time_line_algo",
    "enable_keep_header_only": NO_VALUE,
    "enable_nccl": NO_VALUE,
    "use_nccl_inter_node_communication": NO_VALUE,
    "use_boxing_v2": NO_VALUE,
    "enable_all_reduce_group": NO_VALUE,
    "all_reduce_group_num": 8,
    "all_reduce_lazy_ratio": 0.5,
    "all_reduce_group_min_mbyte": 16,
    "all_reduce_group_size_warmup": 2.0,
    "all_reduce_fp16": NO_VALUE,
    "disable_all_reduce_sequence": NO_VALUE,
    "non_distributed_optimizer_group_size_mbyte": 100,
    "enable_inplace_in_reduce_struct": NO_VALUE,
    "enable_pseudo_chain_merge": NO_VALUE,
    "__is_user_function__": NO_VALUE,
}

CONFIG_MEMBERS = {
    "gpu_device_num": 1,
    "cpu_device_num": 1,
    "machine_num": 1,
    "machine": [{"addr": "192.168.1.15"}],
    "ctrl_port": 2017,
    "data_port": 9527,
    "grpc_use_no_signal": NO_VALUE,
    "log_dir": "./log",
    "logtostderr": 0,
    "logbuflevel": -1,
    "v": 1,
    "enable_debug_mode": True,
    "compute_thread_pool_size": 4,
    "comm_net_worker_num": 4,
    "max_mdsave_worker_num": 64,
    "rdma_mem_block_mbyte": 8,
    "rdma_recv_msg_buf_mbyte": 6,
    "reserved_host_mem_mbyte": 500,
    "reserved_device_mem_mbyte": 500,
    "use_rdma": NO_VALUE,
    "enable_numa_aware_cuda_malloc_host": NO_VALUE,
    "thread_enable_local_message_queue": True,
    "persistence_buf_byte": 1024,
    "save_downloaded_file_to_local_fs": NO_VALUE,
    "collect_act_event": NO_VALUE,
    "enable_tensor_float_32_compute": NO_VALUE,
    "enable_model_io_v2": True,
    "enable_legacy_model_io": NO_VALUE,
    "total_batch_num": 100,
    "max_data_id_length": 0,
    "default_data_type": flow.float32,
    "default_initializer_conf": {"constant_conf": {"value": 0.0}},
    "enable_auto_mixed_precision": False,
    **{
        f"collective_boxing.{name}": value
        for name, value in {
            "enable_fusion": NO_VALUE,
            "num_callback_threads": 4,
            "nccl_num_streams": 2,
            "nccl_fusion_threshold_mb": 16,
            "nccl_fusion_max_ops": 64,
            "nccl_fusion_all_reduce": True,
            "nccl_fusion_all_reduce_use_buffer": True,
            "nccl_fusion_reduce_scatter": False,
            "nccl_fusion_all_gather": False,
            "nccl_fusion_reduce": True,
            "nccl_fusion_broadcast": True,
            "nccl_enable_all_to_all": NO_VALUE,
            "nccl_enable_mixed_fusion": NO_VALUE,
        }.items()
    },
}

ENV_MEMBERS = {
    "machine": ["192.168.1.15"],
    "ctrl_port": 2017,
    "data_port": 9527,
    "grpc_use_no_signal": NO_VALUE,
    "log_dir": "./log",
    "logtostderr": 0,
    "logbuflevel": -1,
    "init": NO_VALUE,
}


def call(method, value) -> object:
    return method() if value is NO_VALUE else method(value)


@pytest.mark.parametrize("member", FUNCTION_MEMBERS)
def test_every_function_config_member(member, capsys):
    config = flow.function_config()
    assert call(resolve(config, member), FUNCTION_MEMBERS[member]) is None
    assert capsys.readouterr() == ("", "")
    assert member.split(".")[0] in dir(config)


def test_a_job_with_every_function_config_member_trains():
    config = flow.function_config()
    for member, value in FUNCTION_MEMBERS.items():
        call(resolve(config, member), value)
    config.enable_auto_mixed_precision(False)

    @flow.global_function(config)
    def job(x: tp.Numpy.Placeholder((2,))):
        loss = flow.get_variable("w", (2,)) * x
        flow.losses.add_loss(loss)
        return loss

    before = flow.get_all_variables()["w"].numpy()
    assert job(np.ones(4, np.float32)).get().shape == (4,)
    assert not np.array_equal(flow.get_all_variables()["w"].numpy(), before)


@pytest.mark.parametrize("member", CONFIG_MEMBERS)
def test_every_process_config_member(member, capsys):
    call(resolve(flow.config, member), CONFIG_MEMBERS[member])
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("member", ENV_MEMBERS)
def test_every_env_member(member, capsys):
    call(resolve(flow.env, member), ENV_MEMBERS[member])
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("member", [m for m in FUNCTION_MEMBERS if m != "default_placement_scope"])
def test_every_function_member_can_be_set_in_the_body(member):
    seen = []

    @flow.function
    def job(x=flow.input_blob_def((2,))):
        call(resolve(flow.config, member), FUNCTION_MEMBERS[member])
        seen.append(flow.current_global_function_desc().IsTrainable())
        if seen[-1]:
            flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(
                flow.get_variable("w", (2,), initializer=flow.ones_initializer()) * x
            )

    flow.train.CheckPoint().init()
    assert seen == [member.startswith("train.")]


def test_queries_of_the_memory_allocator():
    policies = flow.function_config().static_mem_alloc_policy_white_list
    assert policies.policy_mem_size_first() == "use_mem_size_first_algo"
    assert policies.policy_mutual_exclusion_first() == "use_mutual_exclusion_first_algo"
    assert policies.policy_time_line() == "use_time_line_algo"
    assert policies.has("use_time_line_algo") and not policies.has("none")
    assert flow.function_config().static_mem_alloc_algo_white_list.show() == [
        "use_mem_size_first_algo",
        "use_mutual_exclusion_first_algo",
        "use_time_line_algo",
    ]


@pytest.fixture
def fresh_process(monkeypatch):
    """As in a process in which nothing was called yet."""
    monkeypatch.setattr(process_config, "_PROCESS", process_config._Process())


def test_resources():
    flow.config.cpu_device_num(1)
    assert flow.env.current_resource()["cpu_device_num"] == 1


def test_a_program_can_ask_which_machine_it_is_on(monkeypatch):
    assert flow.current_machine_id() == 0
    try:
        flow.env.machine(["10.213.99.1", "127.0.0.1"])
        assert flow.current_machine_id() == 1
    finally:
        flow.env.machine(["127.0.0.1"])
    monkeypatch.setattr(default_session().machines, "launched", Launched(5, 8, 1, 4, "127.0.0.1", 29500))
    assert flow.current_machine_id() == 1


def test_the_environment_starts_once(fresh_process):
    assert flow.env.init() is True
    assert flow.env.init() is False


def test_the_first_job_starts_the_environment(fresh_process):
    @flow.global_function()
    def job(x=flow.FixedTensorDef((2,))):
        return x

    job(X)
    assert flow.env.init() is False


def test_legacy_model_io_is_what_was_chosen(fresh_process):
    assert flow.config.legacy_model_io_enabled() is False
    assert flow.config.enable_legacy_model_io() is True
    assert flow.config.legacy_model_io_enabled() is True
    flow.config.enable_legacy_model_io(False)
    assert flow.config.legacy_model_io_enabled() is False


def test_setters_take_one_keyword_of_any_name():
    config = flow.function_config()
    config.enable_inplace(value=True)
    config.train.primary_lr(val=0.1)
    assert config.touched == {"enable_inplace": True, "train.primary_lr": 0.1}
    assert flow.config.cpu_device_num(val=1) is True
    with pytest.raises(AssertionError, match="enable_inplace is True or False, got 'no'"):
        config.enable_inplace(value="no")
    with pytest.raises(AssertionError, match=r"enable_inplace takes one value, got \[True, False\]"):
        config.enable_inplace(True, value=False)


def test_numpy_numbers_are_numbers():
    config = flow.function_config()
    config.train.primary_lr(np.float32(0.5))
    config.train.num_gradient_accumulation_steps(np.int64(2))
    config.cudnn_buf_limit_mbyte(np.int32(100))
    config.enable_auto_mixed_precision(np.bool_(False))
    config.random_seed(np.int64(3))
    settings = settings_of(config.touched)
    assert (settings.primary_lr, settings.micro_batches, settings.random_seed, settings.mixed_precision) == (
        0.5,
        2,
        3,
        False,
    )
    assert (
        type(settings.primary_lr) is float and type(settings.micro_batches) is int and type(settings.random_seed) is int
    )
    assert flow.config.cpu_device_num(np.int64(1)) and type(flow.env.current_resource()["cpu_device_num"]) is int
