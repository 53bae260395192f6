"""What a job is configured with, and ``flow.function_config()``, the object that users set it on."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from oneflow.engine.core import dtype as dtypes
from oneflow.engine.core.dtype import DType, as_dtype
from oneflow.engine.core.errors import ArgumentError, NameError_, UnsupportedError, nearest
from oneflow.engine.core.fusion_setting import checked_setting
from oneflow.engine.core.number import flag, number, whole
from oneflow.engine.core.placement import Placement
from oneflow.initializer import from_conf
from oneflow.optimizer.conf import optimizer_from_conf
from oneflow.optimizer.optimizers import Optimizer


@dataclass
class Settings:
    """The configuration of one job."""

    is_train: bool = False
    default_data_type: DType = dtypes.float32
    default_initializer: Any = None
    primary_lr: float | None = None
    secondary_lr: float | None = None
    model_update_conf: Mapping[str, Any] | None = None
    loss_scale_factor: float = 1.0
    micro_batches: int = 1
    weight_l1: float = 0.0
    weight_l2: float = 0.0
    bias_l1: float = 0.0
    bias_l2: float = 0.0
    placement: Placement | None = None
    mirrored: bool = False
    mixed_precision: bool = False
    row_wise: frozenset[str] = frozenset()
    splits_states: bool = False
    split_states_from: int = 1024
    deterministic: bool = False
    gradient_stops_at_cap: bool = False  # of the cross entropy, as in the era of flow.function
    optimizer: Optimizer | None = None
    random_seed: int = 0
    fusion: str | None = None
    shapes_kept: int = 64  # compiled programs of a job with dynamic inputs


Setter = Callable[[Settings, str, Any], None]
"""Sets what a member of this dotted name, which errors show, was given."""


def _number(attribute: str, low: float | None = None, *, above: float | None = None) -> Setter:
    return lambda settings, name, value: setattr(settings, attribute, number(name, value, low, above=above))


def _whole(attribute: str, low: int) -> Setter:
    return lambda settings, name, value: setattr(settings, attribute, whole(name, value, low))


def _flag(attribute: str) -> Setter:
    return lambda settings, name, value: setattr(settings, attribute, flag(name, value))


def _data_type(settings: Settings, name: str, value: Any) -> None:
    settings.default_data_type = as_dtype(value)


def _initializer(settings: Settings, name: str, value: Any) -> None:
    settings.default_initializer = value if hasattr(value, "draw") else from_conf(value)


def _placement(settings: Settings, name: str, value: Any) -> None:
    placement = getattr(value, "placement", value)
    if not isinstance(placement, Placement):
        raise ArgumentError(f"{name} takes flow.scope.placement(...), got {value!r}")
    settings.placement = placement


def _view(settings: Settings, name: str, value: Any) -> None:
    if getattr(value, "mirrored", None) is None:
        raise ArgumentError(f"{name} takes flow.scope.consistent_view() or mirrored_view(), got {value!r}")
    settings.mirrored = value.mirrored


def _model_update_conf(settings: Settings, name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise ArgumentError(f"{name} takes a dictionary such as {{'naive_conf': {{}}}}, got {value!r}")
    optimizer_from_conf(value, primary_lr=0.0)  # checks it
    settings.model_update_conf = copy.deepcopy(dict(value))


def _row_wise(settings: Settings, name: str, value: Any) -> None:
    """{"enable": True, "include_op_names": {"op_name": [variables]}}: rows without a gradient are left alone."""
    known = isinstance(value, Mapping) and set(value) <= {"enable", "include_op_names"}
    included = value.get("include_op_names", {}) if known else None
    names = included.get("op_name", []) if isinstance(included, Mapping) else None
    if not isinstance(names, (list, tuple)) or not all(isinstance(variable, str) for variable in names):
        raise ArgumentError(
            f"{name} takes {{'enable': True, 'include_op_names': {{'op_name': [variable names]}}}}, got {value!r}"
        )
    settings.row_wise = frozenset(names) if flag(f"{name}'s 'enable'", value.get("enable", True)) else frozenset()


def _state_mode(settings: Settings, name: str, value: Any) -> None:
    """Both modes share optimizer state out among the devices, by splitting each variable's."""
    modes = ("non_distributed", "distributed_split")
    if value not in modes:
        raise ArgumentError(
            f"{name} is one of {', '.join(map(repr, modes))}, got {value!r}.{nearest(str(value), modes)}"
        )
    settings.splits_states = True


def _fusion(settings: Settings, name: str, value: Any) -> None:
    settings.fusion = checked_setting(name, value)


def _unsupported(what: str) -> Setter:
    def refuse(settings: Settings, name: str, value: Any) -> None:
        if flag(name, value):
            raise UnsupportedError(f"{what} is not supported; remove the call")

    return refuse


# Members with an effect: name -> setter.
_EFFECTIVE: dict[str, Setter] = {
    "default_data_type": _data_type,
    "default_initializer_conf": _initializer,
    "default_placement_scope": _placement,
    "default_logical_view": _view,
    "default_distribute_strategy": _view,
    "enable_auto_mixed_precision": _flag("mixed_precision"),
    "indexed_slices_optimizer_conf": _row_wise,
    "cudnn_conv_use_deterministic_algo_only": _flag("deterministic"),
    "enable_non_distributed_optimizer": _flag("splits_states"),
    "optimizer_placement_optimization_mode": _state_mode,
    "optimizer_placement_optimization_threshold": _whole("split_states_from", 0),
    "fusion": _fusion,
    "shapes_kept": _whole("shapes_kept", 1),
    "random_seed": _whole("random_seed", 0),
    "enable_quantization_aware_training": _unsupported("quantization-aware training"),
    "enable_qat": _unsupported("quantization-aware training"),
    "train.primary_lr": _number("primary_lr", 0),
    "train.secondary_lr": _number("secondary_lr", 0),
    "train.model_update_conf": _model_update_conf,
    "train.loss_scale_factor": _number("loss_scale_factor", above=0),
    "train.num_gradient_accumulation_steps": _whole("micro_batches", 1),
    "train.weight_l1": _number("weight_l1", 0),
    "train.weight_l2": _number("weight_l2", 0),
    "train.bias_l1": _number("bias_l1", 0),
    "train.bias_l2": _number("bias_l2", 0),
}

# Names of the original memory allocator's policies; programs print them.
_POLICIES = ("use_mem_size_first_algo", "use_mutual_exclusion_first_algo", "use_time_line_algo")

Kind = type | tuple[str, ...]
"""What a tuning knob takes: a type, or one of these words."""


def knobs(kind: Kind, names: str) -> dict[str, Kind]:
    return dict.fromkeys(names.split(), kind)


# Tuning knobs of the original runtime. They never change a result, so they are checked and have no effect here.
_TUNING: dict[str, Kind] = {
    **knobs(
        bool,
        """
        allow_cpu_return_op enable_inplace enable_reused_mem enable_cudnn cudnn_conv_heuristic_search_algo
        cudnn_conv_enable_pseudo_half enable_true_half_config_when_conv cudnn_conv_enable_true_half enable_float_compute_for_half_gemm
        prune_parallel_cast_ops prune_cast_to_static_shape_ops prune_amp_white_identity_ops prune_depend_ops enable_fuse_add_to_output
        enable_fuse_model_update_ops enable_fuse_cast_scale enable_cudnn_fused_normalization_add_relu enable_gradients_stats_aggregation
        do_parallel_cast_before_widening_type_cast use_xla_jit use_tensorrt tensorrt.use_fp16
        tensorrt.use_int8 qat.per_channel_weight_quantization qat.symmetric use_memory_allocation_algorithm_v2 enable_keep_header_only
        enable_nccl use_nccl_inter_node_communication use_boxing_v2 enable_all_reduce_group all_reduce_fp16 disable_all_reduce_sequence
        enable_cudnn_conv_pseudo_half enable_inplace_in_reduce_struct enable_pseudo_chain_merge __is_user_function__
        """,
    ),
    **knobs(
        int,
        """
        cudnn_buf_limit_mbyte cudnn_conv_force_fwd_algo cudnn_conv_force_bwd_data_algo cudnn_conv_force_bwd_filter_algo
        concurrency_width qat.moving_min_max_stop_update_after_iters all_reduce_group_num
        total_batch_num max_data_id_length
        """,
    ),
    **knobs(
        float,
        """
        qat.moving_min_max_momentum all_reduce_lazy_ratio all_reduce_group_min_mbyte all_reduce_group_size_warmup
        non_distributed_optimizer_group_size_mbyte
        """,
    ),
    **knobs(str, "tensorrt.int8_calibration qat.target_backend"),
    **knobs(dict, "exp_run_conf"),
    **knobs(_POLICIES, "static_mem_alloc_policy_white_list.add static_mem_alloc_policy_white_list.remove"),
}
_CHECKS: dict[type, Callable[[str, Any], Any]] = {bool: flag, int: whole, float: number}


def check_knob(name: str, value: Any, kind: Kind) -> None:
    """Refuses a value that a tuning knob does not take."""
    if isinstance(kind, tuple):
        if value not in kind:
            raise ArgumentError(
                f"{name} is one of {', '.join(map(repr, kind))}, got {value!r}.{nearest(str(value), kind)}"
            )
    elif kind in _CHECKS:
        _CHECKS[kind](name, value)
    elif not isinstance(value, kind):
        raise ArgumentError(f"{name} takes a {kind.__name__}, got {value!r}")


_QUERIES: dict[str, Callable[[Settings, Any], Any]] = {
    "static_mem_alloc_policy_white_list.has": lambda s, v: v in _POLICIES,
    "static_mem_alloc_policy_white_list.policy_mem_size_first": lambda s, v: _POLICIES[0],
    "static_mem_alloc_policy_white_list.policy_mutual_exclusion_first": lambda s, v: _POLICIES[1],
    "static_mem_alloc_policy_white_list.policy_time_line": lambda s, v: _POLICIES[2],
    "static_mem_alloc_algo_white_list.show": lambda s, v: list(_POLICIES),
}

MEMBERS: frozenset[str] = frozenset([*_EFFECTIVE, *_TUNING, *_QUERIES])


def set_member(settings: Settings, name: str, value: Any) -> Any:
    """Sets one member by its dotted name; touching ``train.*`` makes the job a train job."""
    if name in _QUERIES:
        return _QUERIES[name](settings, value)
    if name.startswith("train."):
        settings.is_train = True
    if name in _EFFECTIVE:
        _EFFECTIVE[name](settings, name, value)
    else:
        check_knob(name, value, _TUNING[name])
    return None


class Members:
    """Attribute access to a table of dotted member names: ``config.train.primary_lr`` is a method that sets one."""

    def __init__(self, owner: str, prefix: str, names: frozenset[str], call: Callable[[str, Any], Any]) -> None:
        self._owner, self._prefix, self._names, self._call = owner, prefix, names, call

    def __getattr__(self, name: str) -> Any:
        if "_names" not in self.__dict__:  # while a copy is being made
            raise AttributeError(name)
        full = self._prefix + name
        if full in self._names:
            return lambda *values, **named: self._call(full, _one(full, [*values, *named.values()], len(named)))
        if any(known.startswith(full + ".") for known in self._names):
            return Members(f"{self._owner}.{name}", full + ".", self._names, self._call)
        here = [n[len(self._prefix) :] for n in self._names if n.startswith(self._prefix)]
        raise NameError_(f"{self._owner} has no member {name!r}.{nearest(name, [*here, *dir(self)])}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            return super().__setattr__(name, value)
        getattr(self, name)  # a name that is unknown besides is the error to report
        written = as_dtype(value) if isinstance(value, torch.dtype) else value
        raise ArgumentError(f"{name} is a method; write {self._owner}.{name}({written!r})")

    def __dir__(self) -> list[str]:
        return sorted({n[len(self._prefix) :].split(".")[0] for n in self._names if n.startswith(self._prefix)})


def _one(name: str, values: list[Any], named: int) -> Any:
    """A setter's value: True when called without one, a list when called with several.

    The parameter had another name in every era, so one value may be given by any keyword.
    """
    if named and len(values) > 1:
        raise ArgumentError(f"{name} takes one value, got {values}")
    return True if not values else values[0] if len(values) == 1 else values


class FunctionConfig(Members):
    """``flow.function_config()``: settings of a job, each a method. Touching ``train.*`` makes the job a train job."""

    def __init__(self) -> None:
        super().__init__("function_config()", "", MEMBERS, self._set)
        self._settings = Settings()
        self._touched: dict[str, Any] = {}

    @property
    def touched(self) -> dict[str, Any]:
        """What was set, by dotted member name."""
        return self._touched

    def _set(self, name: str, value: Any) -> Any:
        result = set_member(self._settings, name, value)
        self._touched[name] = copy.deepcopy(value) if isinstance(value, (dict, list)) else value
        return result


def settings_of(members: Mapping[str, Any]) -> Settings:
    """Returns new settings with these members, by dotted name."""
    settings = Settings()
    for name, value in members.items():
        set_member(settings, name, value)
    return settings
