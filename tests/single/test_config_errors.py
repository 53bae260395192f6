"""Members of ``flow.function_config()``, ``flow.config`` and ``flow.env`` that do not exist, and values that they do
not take."""

import pytest
from config_members import line_of, resolve

import oneflow as flow
from oneflow.engine.job.function import default_session


@pytest.mark.parametrize(
    "get, owner, name, near",
    [
        (lambda: flow.function_config().enable_inplce, "function_config()", "enable_inplce", "enable_inplace"),
        (lambda: flow.function_config().train.primary_rl, "function_config().train", "primary_rl", "primary_lr"),
        (lambda: flow.function_config().trian, "function_config()", "trian", "train"),
        (lambda: flow.config.gpu_device_nums, "flow.config", "gpu_device_nums", "gpu_device_num"),
        (
            lambda: flow.config.collective_boxing.enable_fusoin,
            "flow.config.collective_boxing",
            "enable_fusoin",
            "enable_fusion",
        ),
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
    with pytest.raises(
        AssertionError, match=r"is a method; write function_config\(\).default_data_type\(oneflow.float32\)"
    ):
        config.default_data_type = flow.float32
    with pytest.raises(
        AssertionError, match=r"primary_lr is a method; write function_config\(\).train.primary_lr\(0.1\)"
    ):
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
        (
            "train.num_gradient_accumulation_steps",
            True,
            "train.num_gradient_accumulation_steps is an int >= 1, got True",
        ),
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
        (
            "optimizer_placement_optimization_mode",
            "distributed_splt",
            "got 'distributed_splt'. Did you mean 'distributed_split'",
        ),
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
        (
            flow.config.enable_legacy_model_io,
            "yes",
            AssertionError,
            "enable_legacy_model_io is True or False, got 'yes'",
        ),
        (flow.config.ctrl_port, "2017", AssertionError, "flow.env.ctrl_port is an int >= 0 and <= 65535, got '2017'"),
        (flow.config.log_dir, 3, AssertionError, "log_dir takes a str, got 3"),
        (
            flow.config.collective_boxing.enable_fusion,
            "on",
            AssertionError,
            "collective_boxing.enable_fusion is True or False, got 'on'",
        ),
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
