"""The keys of ``train`` and ``graph``: default, check and description of each, declared once.

``configs/common/train.py`` and ``configs/common/models/graph.py`` are made from this table, ``complete.py`` fills in
and checks configs by it, and a test compares the tables of docs/libai.md with it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from omegaconf import ListConfig

Check = Callable[[Any], str | None]
"""Returns what is expected instead of a value that does not fit, or None."""

NO_DEFAULT = object()  # of keys that a run derives, or that other versions of LiBai write


def integer(minimum: int = 0, *, or_none: bool = False) -> Check:
    """Accepts integers from ``minimum`` on."""

    def check(value: Any) -> str | None:
        fits = (value is None and or_none) or (type(value) is int and value >= minimum)
        return None if fits else f"a whole number from {minimum} on{' or null' if or_none else ''}"

    return check


def number(minimum: float, below: float | None = None) -> Check:
    """Accepts numbers from ``minimum`` on and below ``below``."""

    def check(value: Any) -> str | None:
        if _is_number(value) and value >= minimum and (below is None or value < below):
            return None
        return f"a number from {minimum:g} on{'' if below is None else f' and below {below:g}'}"

    return check


def positive(*, or_none: bool = False) -> Check:
    """Accepts numbers above 0."""

    def check(value: Any) -> str | None:
        fits = (value is None and or_none) or (_is_number(value) and value > 0)
        return None if fits else f"a number above 0{' or null' if or_none else ''}"

    return check


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def flag(value: Any) -> str | None:
    """Accepts true and false."""
    return None if isinstance(value, bool) else "true or false"


def text(value: Any) -> str | None:
    """Accepts strings."""
    return None if isinstance(value, str) else "a string"


def one_of(*names: str) -> Check:
    """Accepts these names."""
    return lambda value: None if value in names else f"one of {', '.join(names)}"


def lazy(value: Any) -> str | None:
    """Accepts what ``LazyCall`` returns, and objects that are built already."""
    return None if not isinstance(value, Mapping) or "_target_" in value else "LazyCall(...)(...)"


def lazy_or_list(value: Any) -> str | None:
    """Accepts one lazy call or a list of them."""
    return next(filter(None, map(lazy, value)), None) if isinstance(value, (list, tuple, ListConfig)) else lazy(value)


def stages(value: Any) -> str | None:
    """Accepts a list of pipeline stages, and null."""
    if value is None or isinstance(value, (list, tuple, ListConfig)):
        return None
    return "a list with the stage of each layer, or null"


@dataclass(frozen=True)
class Key:
    """A key of a config: its default, the check of its value, and its description in docs/libai.md."""

    default: Any
    check: Check
    description: str


_DEVICE = one_of("cuda", "cpu", "npu", "xpu")
_NOT_READ = "accepted for compatibility; not read"

KEYS: Mapping[str, Any] = {
    "train": {
        "output_dir": Key("./output", text, "folder of the log, config, metrics and checkpoints"),
        "train_micro_batch_size": Key(
            32,
            integer(1, or_none=True),
            "global_batch_size = train_micro_batch_size * num_accumulation_steps * data parallel ranks; set this or "
            "`global_batch_size`",
        ),
        "global_batch_size": Key(None, integer(1, or_none=True), "samples per update on all ranks together"),
        "num_accumulation_steps": Key(None, integer(1, or_none=True), "micro-batches per update"),
        "train_iter": Key(
            10000, integer(), "the run has max(train_iter, train_epoch * iterations per epoch) iterations"
        ),
        "train_epoch": Key(0, number(0), "epochs, see `train_iter`"),
        "iter_per_epoch": Key(
            None, integer(1, or_none=True), "iterations per epoch; null: as many as the data set has batches"
        ),
        "consumed_train_samples": Key(0, integer(), _NOT_READ),
        "consumed_valid_samples": Key(0, integer(), _NOT_READ),
        "train_samples": Key(None, integer(or_none=True), _NOT_READ),
        "samples": Key(NO_DEFAULT, integer(or_none=True), "derived: samples of the whole run"),
        "warmup_ratio": Key(0, number(0, 1), "fraction of the iterations in which the learning rate rises"),
        "warmup_iter": Key(NO_DEFAULT, integer(or_none=True), "derived: iterations of the warm-up"),
        "start_iter": Key(0, integer(), "derived: the first iteration, above 0 when resuming"),
        "resume": Key(NO_DEFAULT, flag, "set by `--resume`"),
        "amp": {
            "enabled": Key(False, flag, "float16 with a loss scale on GPUs; on a CPU everything stays float32"),
        },
        "activation_checkpoint": {
            "enabled": Key(
                False,
                flag,
                "recomputes the activations of transformer layers, or of several sequences of modules, in the backward "
                "pass",
            ),
        },
        "nccl_fusion_threshold_mb": Key(
            16, integer(), "size of the buckets in which gradients are summed; 0: unchanged"
        ),
        "nccl_fusion_max_ops": Key(24, integer(), "gradients per bucket; 0: unchanged"),
        "zero_optimization": {
            "enabled": Key(False, flag, "ZeRO; requires `graph.enabled=true`"),
            "stage": Key(1, integer(), "1 and 2 shard the optimizer state, 3 the weights too"),
        },
        "checkpointer": {
            "period": Key(5000, integer(), "iterations between checkpoints; 0: none"),
            "max_to_keep": Key(
                100, integer(1, or_none=True), "number of periodic checkpoints that are kept; null: all"
            ),
            "save_model_after_n_epoch": Key(
                None, positive(or_none=True), "epochs between checkpoints; replaces `period`"
            ),
        },
        "test_micro_batch_size": Key(32, integer(1), "samples per rank and batch in evaluations"),
        "evaluation": {
            "enabled": Key(True, flag, "evaluates periodically and at the end"),
            "evaluator": Key(
                {"_target_": "libai.evaluation.ClsEvaluator", "topk": (1, 5)}, lazy_or_list, "computes the metrics"
            ),
            "eval_period": Key(5000, integer(), "iterations between evaluations; 0: only at the end"),
            "eval_after_n_epoch": Key(
                None, positive(or_none=True), "epochs between evaluations; replaces `eval_period`"
            ),
            "eval_iter": Key(1e5, positive(), "maximum number of batches of an evaluation"),
            "eval_metric": Key("Acc@1", text, "the metric by which `model_best` is chosen"),
            "eval_mode": Key("max", one_of("max", "min"), "whether a larger or a smaller metric is better"),
        },
        "load_weight": Key("", text, "folder of a checkpoint whose weights are loaded"),
        "log_period": Key(20, integer(1), "iterations between log lines"),
        "scheduler": Key(
            {
                "_target_": "libai.scheduler.WarmupCosineLR",
                "warmup_factor": 0.001,
                "alpha": 0.01,
                "warmup_method": "linear",
            },
            lazy,
            "`max_iter`, `warmup_iter` and `milestones` (fractions of the run) are derived from the length of the run",
        ),
        "dist": {
            "data_parallel_size": Key(
                1,
                integer(1, or_none=True),
                "ranks / (tensor_parallel_size * pipeline_parallel_size); a value above 1 must equal it, 1 and null are "
                "not checked",
            ),
            "tensor_parallel_size": Key(1, integer(1), "ranks that share the weights of each layer"),
            "pipeline_parallel_size": Key(1, integer(1), "pipeline stages"),
            "pipeline_num_layers": Key(
                None, integer(1, or_none=True), "layers of the model; required for more than one stage"
            ),
            "custom_pipeline_stage_id": Key(None, stages, "the stage of each layer; null: equal shares"),
            "auto_pipeline_stage_id": Key(NO_DEFAULT, stages, _NOT_READ),
            "actual_pipeline_stage_id": Key(NO_DEFAULT, stages, _NOT_READ),
            "device_type": Key("cuda", _DEVICE, "device of the model; cpu where there is no GPU"),
            "num_nodes": Key(NO_DEFAULT, integer(1, or_none=True), _NOT_READ),
            "num_gpus_per_node": Key(NO_DEFAULT, integer(1, or_none=True), _NOT_READ),
        },
        "input_placement_device": Key("cuda", _DEVICE, "device that batches are copied to; cpu where there is no GPU"),
        "rdma_enabled": Key(False, flag, "has no effect: NCCL uses RDMA by itself where the network has it"),
        "seed": Key(1234, integer(), "seed of all random numbers"),
    },
    "graph": {
        "enabled": Key(
            True, flag, "compiles a step as an `nn.Graph`; false: op by op, an iteration is one micro-batch"
        ),
        "debug": Key(-1, integer(-1), "log: -1 nothing, 0 stages, 1 modules, 2 ops, 3 the code of a step"),
        "auto_parallel": {
            "enabled": Key(False, flag, "chooses the layouts of weights by a cost model, see [graphs](graphs.md)"),
            "enable_auto_parallel_ignore_user_sbp_config": Key(False, flag, "passed on to `graph.config`"),
            "trunk_algo": Key(True, flag, "passed on to `graph.config`"),
            "sbp_collector": Key(False, flag, "passed on to `graph.config`"),
        },
        "train_graph": Key(
            {"_target_": "libai.models.utils.GraphBase", "is_train": True}, lazy, "the graph that trains"
        ),
        "eval_graph": Key(
            {"_target_": "libai.models.utils.GraphBase", "is_train": False}, lazy, "the graph that evaluates"
        ),
        "global_mode": {
            "enabled": Key(False, flag, "makes tensors that the model creates global"),
        },
    },
}


def defaults(namespace: str) -> dict[str, Any]:
    """Returns a new tree of the defaults of ``train`` or ``graph``."""
    return _defaults(KEYS[namespace])


def _defaults(keys: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _defaults(key) if isinstance(key, Mapping) else copy.deepcopy(key.default)
        for name, key in keys.items()
        if isinstance(key, Mapping) or key.default is not NO_DEFAULT
    }
