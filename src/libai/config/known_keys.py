"""What the keys of ``train`` and ``graph`` may hold. A check gives what is expected in place of a value that does not
fit, or None."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from omegaconf import ListConfig

Check = Callable[[Any], str | None]


def whole(least: int = 0, *, or_none: bool = False) -> Check:
    """A whole number from ``least`` on."""

    def check(value: Any) -> str | None:
        fits = (value is None and or_none) or (type(value) is int and value >= least)
        return None if fits else f"a whole number from {least} on{' or null' if or_none else ''}"

    return check


def number(least: float, below: float | None = None, *, is_open: bool = False) -> Check:
    """A number from ``least`` on, or above it where ``is_open``, and below ``below``."""

    def check(value: Any) -> str | None:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if is_number and (value > least if is_open else value >= least) and (below is None or value < below):
            return None
        return f"a number {'above' if is_open else 'from'} {least:g}{'' if is_open else ' on'}{'' if below is None else f' and below {below:g}'}"

    return check


def flag(value: Any) -> str | None:
    """True or false."""
    return None if isinstance(value, bool) else "true or false"


def text(value: Any) -> str | None:
    """A string."""
    return None if isinstance(value, str) else "a string"


def one_of(*names: str) -> Check:
    """One of these."""
    return lambda value: None if value in names else f"one of {', '.join(names)}"


def lazy(value: Any) -> str | None:
    """What ``LazyCall`` gives, or an object that is built already."""
    return None if not isinstance(value, Mapping) or "_target_" in value else "LazyCall(...)(...)"


def lazies(value: Any) -> str | None:
    """One of those, or a list."""
    return next(filter(None, map(lazy, value)), None) if isinstance(value, (list, tuple, ListConfig)) else lazy(value)


def stages(value: Any) -> str | None:
    """A list of stages, or null."""
    return (
        None
        if value is None or isinstance(value, (list, tuple, ListConfig))
        else "a list with the stage of each layer, or null"
    )


def anything(value: Any) -> str | None:
    """Not looked at."""
    return None


_SWITCH: Mapping[str, Any] = {"enabled": flag}

KNOWN: Mapping[str, Any] = {
    "train": {
        "output_dir": text,
        "train_micro_batch_size": whole(1, or_none=True),
        "global_batch_size": whole(1, or_none=True),
        "num_accumulation_steps": whole(1, or_none=True),
        "train_iter": whole(),
        "train_epoch": number(0),
        "iter_per_epoch": whole(1, or_none=True),
        "consumed_train_samples": whole(),
        "consumed_valid_samples": whole(),
        "train_samples": whole(or_none=True),
        "samples": whole(or_none=True),
        "warmup_ratio": number(0, 1),
        "warmup_iter": whole(or_none=True),
        "start_iter": whole(),
        "resume": flag,
        "amp": _SWITCH,
        "activation_checkpoint": _SWITCH,
        "nccl_fusion_threshold_mb": whole(),
        "nccl_fusion_max_ops": whole(),
        "zero_optimization": {**_SWITCH, "stage": whole()},
        "checkpointer": {
            "period": whole(),
            "max_to_keep": whole(1, or_none=True),
            "save_model_after_n_epoch": number(0, is_open=True),
        },
        "test_micro_batch_size": whole(1),
        "evaluation": {
            **_SWITCH,
            "evaluator": lazies,
            "eval_period": whole(),
            "eval_after_n_epoch": number(0, is_open=True),
            "eval_iter": number(0, is_open=True),
            "eval_metric": text,
            "eval_mode": one_of("max", "min"),
        },
        "load_weight": text,
        "log_period": whole(1),
        "scheduler": lazy,
        "dist": {
            "data_parallel_size": whole(1, or_none=True),
            "tensor_parallel_size": whole(1),
            "pipeline_parallel_size": whole(1),
            "pipeline_num_layers": whole(1, or_none=True),
            "custom_pipeline_stage_id": stages,
            "auto_pipeline_stage_id": stages,
            "actual_pipeline_stage_id": stages,
            "device_type": one_of("cuda", "cpu", "npu", "xpu"),
            "num_nodes": whole(1, or_none=True),
            "num_gpus_per_node": whole(1, or_none=True),
        },
        "input_placement_device": one_of("cuda", "cpu", "npu", "xpu"),
        "rdma_enabled": flag,
        "seed": whole(),
    },
    "graph": {
        "enabled": flag,
        "debug": whole(-1),
        "auto_parallel": {
            **_SWITCH,
            "enable_auto_parallel_ignore_user_sbp_config": flag,
            "trunk_algo": flag,
            "sbp_collector": flag,
        },
        "train_graph": lazy,
        "eval_graph": lazy,
        "global_mode": _SWITCH,
    },
}
# Keys that may also be null: the feature is off.
OPTIONAL = ("train.checkpointer.save_model_after_n_epoch", "train.evaluation.eval_after_n_epoch")
