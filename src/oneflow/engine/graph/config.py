"""``graph.config``: how a graph is compiled. Settings are read at its first call."""

from __future__ import annotations

import torch

from oneflow.engine.core.errors import ArgumentError, UnsupportedError
from oneflow.engine.core.fusion_setting import checked_setting
from oneflow.engine.core.number import flag, number, whole

USUAL_RATIO, USUAL_WAIT = 0.05, 1.65e4  # OneFlow's; with them the cost model is as it stands


class GraphConfig:
    """The settings of one graph. Those of OneFlow that are about its own runtime are taken and change nothing
    (``docs/graphs.md`` names them)."""

    def __init__(self) -> None:
        self.amp_dtype: torch.dtype | None = None
        self.micro_batches = 1
        self.zero_stage = 0
        self.shard_min_size = 1024
        self.auto_parallel = False
        self.ignores_user_sbp = False
        self.auto_parallel_memory_limit: int | None = None
        self.computation_cost_ratio = USUAL_RATIO
        self.wait_time = USUAL_WAIT
        self.has_dynamic_shapes = False
        self.shapes_kept = 1
        self.fusion: str | None = None
        self.is_fixed = False

    def _require_open(self) -> None:
        if self.is_fixed:
            raise ArgumentError("the settings of a graph are read at its first call; set them in __init__()")

    # -------------------------------------------------------------- what changes a graph

    def enable_amp(self, mode: bool = True, *, dtype: torch.dtype = torch.float16) -> None:
        """Mixed precision: ops that gain from it compute in ``dtype``, float16 or bfloat16. On a CPU that is done for
        bfloat16; float16 is for GPUs, and on a CPU such a graph computes in float32, as OneFlow does."""
        self._require_open()
        if dtype not in (torch.float16, torch.bfloat16):
            raise ArgumentError(f"enable_amp takes dtype=flow.float16 or flow.bfloat16, got {dtype}")
        self.amp_dtype = dtype if flag("mode", mode) else None

    def set_gradient_accumulation_steps(self, value: int) -> None:
        """Each call is cut along dim 0 of its inputs into so many micro-batches; parameters are updated once, with the
        mean of their gradients. Results of one number come as vectors of so many, others are put together along dim 0.
        A graph without an optimizer takes its batch whole."""
        self._require_open()
        self.micro_batches = whole("gradient accumulation steps", value, above=0)

    def enable_dynamic_shapes(self, mode: bool = True, size: int = 10) -> None:
        """Lets inputs of other shapes, dtypes and structures come: a program is compiled for each, and the last
        ``size`` are kept."""
        self._require_open()
        self.shapes_kept = whole("size", size, above=0) if flag("mode", mode) else 1
        self.has_dynamic_shapes = mode

    def set_fusion(self, setting: str) -> None:
        """Selects the kernels of this graph: "off" for torch's ops only, "native" (the default) for the package's C
        extensions too. Takes precedence over ``ONEFLOW_FUSION``."""
        self._require_open()
        self.fusion = checked_setting("fusion", setting)

    def enable_zero(
        self, mode: bool = True, *, stage: int = 2, shard_min_size: int = 1024, shard_restore_level: int = 1
    ) -> None:
        """Has the ranks of a graph of global tensors share out what each would keep whole: of parameters with at least
        ``shard_min_size`` elements the optimizer's state and the gradients that it takes (stages 1 and 2, which are the
        same here), and the parameters themselves (3): their SBP becomes split(0) at the first call. On one rank there
        is nobody to share with."""
        self._require_open()
        if stage not in (1, 2, 3):
            raise ArgumentError(f"the stage of ZeRO is 1, 2 or 3, got {stage!r}")
        self.shard_min_size = whole("shard_min_size", shard_min_size, above=0)
        self.zero_stage = stage if flag("mode", mode) else 0

    # -------------------------------------------------------------- auto parallel

    def enable_auto_parallel(self, mode: bool = True) -> None:
        """Has the layouts of parameters, inputs and all between them found by the cost of the step. Parameters may be
        plain local ones, the same on all ranks, and inputs too: they become global tensors on all ranks at the first
        call. Parameters that are global and split stay as they are, and so does what ``to_global`` says in
        ``build``."""
        self._require_open()
        self.auto_parallel = flag("mode", mode)

    def set_auto_parallel_memory_limit(self, value: int | None) -> None:
        """The bytes that a step may hold on each device, by the estimate of the search; None for no limit. Where no
        layout fits, the first call is an error."""
        self._require_open()
        self.auto_parallel_memory_limit = None if value is None else whole("the memory limit", value, above=0)

    def enable_auto_parallel_ignore_user_sbp_config(self, mode: bool = True) -> None:
        """Has the search choose anew for global parameters that are split, and for what ``to_global`` in ``build``
        gives an SBP."""
        self._require_open()
        self.ignores_user_sbp = flag("mode", mode)

    def set_auto_parallel_computation_cost_ratio(self, ratio: float) -> None:
        """What work weighs against bytes that are sent: 0.05 is the cost model as it stands, 0.1 has work weigh twice
        as much."""
        self._require_open()
        self.computation_cost_ratio = number("ratio", ratio, above=0)

    def set_auto_parallel_wait_time(self, cost: float) -> None:
        """What it costs to begin a collective: 1.65e4 is the cost model as it stands, 3.3e4 has ranks meet less often
        for larger pieces."""
        self._require_open()
        self.wait_time = number("cost", cost, 0)

    def enable_auto_parallel_trunk_algo(self, mode: bool = True) -> None:
        """Taken, changes nothing: the search weighs the whole step."""
        flag("mode", mode)

    def enable_auto_parallel_sbp_collector(self, mode: bool = True) -> None:
        """Taken, changes nothing: a value that is there in a layout is taken from it by all who want that."""
        flag("mode", mode)

    # -------------------------------------------------------------- tuning of OneFlow's own runtime

    def allow_fuse_model_update_ops(self, mode: bool = True) -> None:
        """Updates are fused always."""
        flag("mode", mode)

    def allow_fuse_add_to_output(self, mode: bool = True) -> None:
        """Taken, changes nothing."""
        flag("mode", mode)

    def allow_fuse_cast_scale(self, mode: bool = True) -> None:
        """Taken, changes nothing."""
        flag("mode", mode)

    def set_outputs_buffer_size(self, value: int = 2) -> None:
        """Taken, changes nothing: results are fresh tensors at every call."""
        whole("value", value, above=0)

    def enable_cudnn_conv_heuristic_search_algo(self, mode: bool = True) -> None:
        """Whether cuDNN chooses its algorithms without trying them; for GPUs."""
        torch.backends.cudnn.benchmark = not flag("mode", mode)

    def enable_straighten_algorithm(self, mode: str | bool = "MemoryFirst") -> None:
        """Taken, changes nothing: ops run in the order of the program."""

    def enable_compress_memory(self, mode: bool = True) -> None:
        """Taken, changes nothing: memory goes back as soon as nothing reads it."""
        flag("mode", mode)

    def enable_choose_best_memory_allocation(self, mode: bool = True) -> None:
        """Taken, changes nothing."""
        flag("mode", mode)

    def enable_multi_tensor_update(self, mode: bool = True) -> None:
        """Updates of many tensors are one call always."""
        flag("mode", mode)

    def enable_fused_model_update_cast(self, mode: bool = True) -> None:
        """Taken, changes nothing."""
        flag("mode", mode)

    def enable_xla_jit(self, value: bool = True) -> None:
        """There is no XLA here."""
        _refuse("enable_xla_jit", value)

    def enable_tensorrt(self, value: bool = True) -> None:
        """There is no TensorRT here."""
        _refuse("enable_tensorrt", value)

    def enable_openvino(self, value: bool = True) -> None:
        """There is no OpenVINO here."""
        _refuse("enable_openvino", value)

    def __repr__(self) -> str:
        told = [
            f"amp={self.amp_dtype}",
            f"gradient_accumulation_steps={self.micro_batches}",
            f"dynamic_shapes={self.has_dynamic_shapes}",
        ]
        if self.auto_parallel:
            told.append(f"auto_parallel=True, auto_parallel_memory_limit={self.auto_parallel_memory_limit}")
        return f"(CONFIG:config:GraphConfig({', '.join(told)}))"


def _refuse(name: str, value: bool) -> None:
    if value:
        raise UnsupportedError(f"config.{name}: graphs are compiled by this package alone; leave it out")
