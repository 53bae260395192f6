"""``flow.function_config()``, ``flow.config`` and ``flow.env``: every member of the tables, and what those with an effect do."""

import copy
import inspect

import numpy as np
import pytest

import oneflow as flow
import oneflow.typing as tp
from oneflow.job import config as process_config
from oneflow.job.function import default_session
from oneflow.job.settings import frozen
from oneflow.runtime.launchers import Launched

X = np.zeros(2, np.float32)


def line_of(test, mark: str = "# here") -> str:
    source, start = inspect.getsourcelines(test)
    return f"{__file__}:{start + next(i for i, text in enumerate(source) if mark in text)}"


def resolve(owner, dotted: str):
    for name in dotted.split("."):
        owner = getattr(owner, name)
    return owner


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
    settings = frozen(config.touched)
    assert (settings.primary_lr, settings.micro_batches, settings.random_seed, settings.mixed_precision) == (0.5, 2, 3, False)
    assert type(settings.primary_lr) is float and type(settings.micro_batches) is int and type(settings.random_seed) is int
    assert flow.config.cpu_device_num(np.int64(1)) and type(flow.env.current_resource()["cpu_device_num"]) is int


# ----------------------------------------------------------------------------------------------- unknown members


@pytest.mark.parametrize(
    "get, owner, name, near",
    [
        (lambda: flow.function_config().enable_inplce, "function_config()", "enable_inplce", "enable_inplace"),
        (lambda: flow.function_config().train.primary_rl, "function_config().train", "primary_rl", "primary_lr"),
        (lambda: flow.function_config().trian, "function_config()", "trian", "train"),
        (lambda: flow.config.gpu_device_nums, "flow.config", "gpu_device_nums", "gpu_device_num"),
        (lambda: flow.config.collective_boxing.enable_fusoin, "flow.config.collective_boxing", "enable_fusoin", "enable_fusion"),
        (lambda: flow.env.machin, "flow.env", "machin", "machine"),
    ],
)
def test_an_unknown_member_names_the_nearest(get, owner, name, near):
    with pytest.raises(AssertionError) as caught:
        get()
    assert isinstance(caught.value, AttributeError)
    assert str(caught.value).startswith(f"{__file__}:")
    assert f"{owner} has no member '{name}'. Did you mean '{near}'?" in str(caught.value)


def test_hasattr_tells_known_members():
    config = flow.function_config()
    assert hasattr(config, "enable_inplace") and hasattr(config, "train") and not hasattr(config, "speed")


def test_assigning_to_a_member():
    config = flow.function_config()
    with pytest.raises(AssertionError, match=r"is a method; write function_config\(\).default_data_type\(oneflow.float32\)"):
        config.default_data_type = flow.float32
    with pytest.raises(AssertionError, match=r"primary_lr is a method; write function_config\(\).train.primary_lr\(0.1\)"):
        config.train.primary_lr = 0.1
    with pytest.raises(AssertionError, match="train is a method"):
        config.train = {}
    with pytest.raises(AssertionError, match="has no member 'primary_rl'. Did you mean 'primary_lr'"):
        config.train.primary_rl = 0.1


@pytest.mark.parametrize(
    "member, value, pattern",
    [
        ("train.primary_lr", "0.1", "train.primary_lr is a number >= 0, got '0.1'"),
        ("train.primary_lr", True, "train.primary_lr is a number >= 0, got True"),
        ("train.primary_lr", -0.1, "train.primary_lr is a number >= 0, got -0.1"),
        ("train.num_gradient_accumulation_steps", 2.5, "train.num_gradient_accumulation_steps is an int >= 1, got 2.5"),
        ("train.num_gradient_accumulation_steps", True, "train.num_gradient_accumulation_steps is an int >= 1, got True"),
        ("train.num_gradient_accumulation_steps", 0, "train.num_gradient_accumulation_steps is an int >= 1, got 0"),
        ("train.loss_scale_factor", 0, "train.loss_scale_factor is a number > 0, got 0"),
        ("train.weight_l2", "a", "train.weight_l2 is a number >= 0, got 'a'"),
        ("random_seed", -1, "random_seed is an int >= 0, got -1"),
        ("train.model_update_conf", [("naive_conf", {})], "takes a dictionary"),
        ("train.model_update_conf", {"momentm_conf": {}}, "has no key 'momentm_conf'. Did you mean 'momentum_conf'?"),
        ("train.model_update_conf", {}, "names exactly one optimizer"),
        ("train.model_update_conf", {"naive_conf": {}, "adam_conf": {}}, "names exactly one optimizer"),
        ("default_placement_scope", "cpu", "takes flow.scope.placement"),
        ("default_logical_view", "mirrored", "consistent_view.. or mirrored_view"),
        ("enable_auto_mixed_precision", "yes", "enable_auto_mixed_precision is True or False, got 'yes'"),
        ("enable_inplace", "yes", "enable_inplace is True or False, got 'yes'"),
        ("enable_pseudo_chain_merge", 3, "enable_pseudo_chain_merge is True or False, got 3"),
        ("tensorrt.use_fp16", None, "tensorrt.use_fp16 is True or False, got None"),
        ("cudnn_buf_limit_mbyte", "abc", "cudnn_buf_limit_mbyte is an int, got 'abc'"),
        ("concurrency_width", 1.5, "concurrency_width is an int, got 1.5"),
        ("all_reduce_lazy_ratio", "a", "all_reduce_lazy_ratio is a number, got 'a'"),
        ("qat.target_backend", 3, "qat.target_backend takes a str, got 3"),
        ("exp_run_conf", 3, "exp_run_conf takes a dict, got 3"),
        ("optimizer_placement_optimization_mode", "distributed_splt", "got 'distributed_splt'. Did you mean 'distributed_split'"),
        ("static_mem_alloc_policy_white_list.add", "typo", "is one of 'use_mem_size_first_algo', .*, got 'typo'"),
    ],
)
def test_values_that_a_member_does_not_take(member, value, pattern):
    with pytest.raises(AssertionError, match=pattern) as caught:
        resolve(flow.function_config(), member)(value)  # here
    assert str(caught.value).startswith(line_of(test_values_that_a_member_does_not_take))


@pytest.mark.parametrize("member", ["enable_qat", "enable_quantization_aware_training"])
def test_what_is_not_supported_says_so(member):
    with pytest.raises(NotImplementedError, match="quantization-aware training is not supported"):
        getattr(flow.function_config(), member)()


@pytest.mark.parametrize(
    "setter, value, kind, pattern",
    [
        (flow.config.gpu_device_num, 1.0, AssertionError, "flow.config.gpu_device_num is an int >= 0, got 1.0"),
        (flow.config.cpu_device_num, -1, AssertionError, "flow.config.cpu_device_num is an int >= 0, got -1"),
        (flow.env.machine, [{"addr": "a"}, {"addr": "a"}], AssertionError, "a machine is named twice"),
        (flow.env.machine, [{"address": "a"}], AssertionError, "machines are addresses or dicts"),
        (flow.env.machine, [], AssertionError, "machines are addresses or dicts"),
        (flow.config.machine_num, 2, AssertionError, "1 are named; name the others with flow.env.machine first"),
        (flow.config.machine_num, 0, AssertionError, "flow.config.machine_num is an int > 0, got 0"),
        (flow.config.enable_legacy_model_io, "yes", AssertionError, "enable_legacy_model_io is True or False, got 'yes'"),
        (flow.config.ctrl_port, "2017", AssertionError, "flow.env.ctrl_port is an int >= 0 and <= 65535, got '2017'"),
        (flow.config.log_dir, 3, AssertionError, "log_dir takes a str, got 3"),
        (flow.config.collective_boxing.enable_fusion, "on", AssertionError, "collective_boxing.enable_fusion is True or False, got 'on'"),
        (flow.config.load_library, "ops.so", NotImplementedError, "plug-ins cannot be loaded"),
    ],
)
def test_process_settings_that_are_refused(setter, value, kind, pattern):
    with pytest.raises(kind, match=pattern) as caught:
        setter(value)
    assert str(caught.value).startswith(f"{__file__}:")


def test_machines_are_named_one_by_one_or_in_a_list_and_counted():
    for machines in [("10.0.0.1", " 10.0.0.2"), ([{"addr": "10.0.0.1"}, {"addr": "10.0.0.2"}],)]:
        flow.env.machine(*machines)
        assert default_session().machines.addresses == ("10.0.0.1", "10.0.0.2")
    flow.config.machine_num(1)
    assert default_session().machines.count == 1


# ------------------------------------------------------------------------------------------------------- effects


def test_default_data_type():
    config = flow.function_config()
    config.default_data_type(flow.double)

    @flow.global_function(config)
    def job():
        return flow.get_variable("w", (1,), initializer=flow.ones_initializer())

    assert job().get().dtype == np.float64


def test_default_initializer():
    config = flow.function_config()
    config.default_initializer_conf({"constant_conf": {"value": 4.0}})

    @flow.global_function(config)
    def job():
        return flow.get_variable("w", (1,)), flow.get_variable("v", (1,), initializer=flow.ones_initializer())

    w, v = job().get()
    assert (w, v) == (4, 1)


def test_touching_train_makes_a_train_job():
    seen = []

    def body():
        seen.append(flow.current_global_function_desc().IsTrainable())

    config = flow.function_config()
    config.train.loss_scale_factor(1)

    @flow.global_function(config)
    def trains():
        body()
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(
            flow.get_variable("w", (1,), initializer=flow.ones_initializer())
        )

    config = flow.function_config()
    config.default_data_type(flow.float32)

    @flow.global_function(config)
    def predicts():
        body()

    flow.train.CheckPoint().init()
    assert seen == [True, False]


def test_a_config_is_copied_when_a_job_is_decorated():
    conf = {"momentum_conf": {"beta": 0.9}}
    config = flow.function_config()
    config.train.primary_lr(0.1)
    config.train.model_update_conf(conf)

    @flow.global_function(config)
    def job():
        flow.losses.add_loss(flow.get_variable("w", (1,), initializer=flow.ones_initializer()))

    config.train.primary_lr(100.0)
    config.train.model_update_conf({"adam_conf": {}})
    conf["momentum_conf"]["beta"] = 0.0
    for _ in range(2):
        job()
    np.testing.assert_allclose(flow.get_all_variables()["w"].numpy(), [1 - 0.1 - 0.19], rtol=1e-6)


def test_one_config_serves_several_jobs():
    config = flow.function_config()
    config.default_data_type(flow.float64)

    @flow.global_function(config)
    def first():
        return flow.get_variable("a", (1,), initializer=flow.ones_initializer())

    config.default_data_type(flow.float32)

    @flow.global_function(config)
    def second():
        return flow.get_variable("b", (1,), initializer=flow.ones_initializer())

    assert (first().get().dtype, second().get().dtype) == (np.float64, np.float32)


def test_a_config_can_be_copied():
    config = flow.function_config()
    config.default_data_type(flow.float64)
    twin = copy.deepcopy(config)
    twin.train.primary_lr(0.1)

    @flow.global_function(config)
    def job():
        assert not flow.current_global_function_desc().IsTrainable()
        return flow.get_variable("w", (1,), initializer=flow.ones_initializer())

    assert job().get().dtype == np.float64


def test_settings_in_the_body_come_before_its_first_op():
    @flow.function
    def job(x=flow.input_blob_def((2,))):
        y = x * 2
        flow.config.train.primary_lr(0.1)  # here
        return y

    with pytest.raises(AssertionError, match="flow.config.train.primary_lr comes after the first op of job 'job'") as caught:
        job(X)
    assert str(caught.value).startswith(line_of(test_settings_in_the_body_come_before_its_first_op))


def test_settings_in_the_body_are_that_job_s_alone():
    @flow.function
    def job(x=flow.input_blob_def((1,))):
        flow.config.default_data_type(flow.float64)
        flow.config.default_initializer_conf({"constant_conf": {"value": 2.0}})
        return flow.get_variable("w", (1,))

    @flow.function
    def other(x=flow.input_blob_def((1,))):
        return flow.get_variable("v", (1,), initializer=flow.ones_initializer())

    assert (job(X[:1]).get().dtype, other(X[:1]).get().dtype) == (np.float64, np.float32)


def test_settings_outside_any_job_are_the_default_of_all():
    @flow.function
    def before():
        return flow.get_variable("a", (1,))

    flow.config.default_data_type(flow.float64)
    flow.config.default_initializer_conf({"constant_conf": {"value": 3.0}})
    config = flow.function_config()
    config.default_data_type(flow.float32)

    @flow.global_function(config)
    def own():
        return flow.get_variable("b", (1,))

    a, b = before().get(), own().get()
    assert (a.dtype, a.item()) == (np.float64, 3)
    assert (b.dtype, b.item()) == (np.float32, 3)


def test_device_numbers_may_be_set_after_the_jobs_are_defined():
    @flow.global_function()
    def job(x=flow.FixedTensorDef((2,))):
        return x

    flow.config.cpu_device_num(1)
    job(X).get()


def test_a_gpu_placement_without_a_gpu_runs_on_the_cpu_and_says_so_once(capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    flow.config.gpu_device_num(1)

    @flow.global_function()
    def job(x=flow.FixedTensorDef((2,))):
        with flow.scope.placement("gpu", "0:0"):
            return x * 2 + 1

    for _ in range(2):
        assert job(X).get().tolist() == [1, 1]
    flow.config.gpu_device_num(0)
    assert capsys.readouterr().err.count("no GPU on this machine") == 1


def test_views():
    seen = []
    config = flow.function_config()
    config.default_logical_view(flow.scope.mirrored_view())

    @flow.global_function(config)
    def job(x=flow.MirroredTensorDef((2,))):
        seen.append(flow.scope.mirrored_view_enabled())
        with flow.scope.consistent_view():
            seen.append(flow.scope.mirrored_view_enabled())
        seen.append(flow.distribute.mirrored_strategy_enabled())
        return x

    job([X]).get()
    assert seen == [True, False, True]


def test_random_seed_of_a_job_changes_its_dropout():
    def mask(seed):
        flow.clear_default_session()
        config = flow.function_config()
        config.train.primary_lr(0.0)
        config.train.model_update_conf({"naive_conf": {}})
        config.random_seed(seed)

        @flow.global_function(config)
        def job(x=flow.FixedTensorDef((100,))):
            out = flow.nn.dropout(x * flow.get_variable("w", (1,), initializer=flow.ones_initializer()), rate=0.5)
            flow.losses.add_loss(out)
            return out

        return job(np.ones(100, np.float32)).get()

    first, again, other = mask(1), mask(1), mask(2)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
