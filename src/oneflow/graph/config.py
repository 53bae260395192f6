"""``graph.config``: how a graph is compiled. Settings are read at its first call."""

from __future__ import annotations

import torch

from oneflow.core.errors import ArgumentError, UnsupportedError
from oneflow.core.number import flag, whole

class GraphConfig:
    """The settings of one graph. Those of OneFlow that are about its own runtime are taken and change nothing (``docs/graphs.md`` names them)."""

    def __init__(self) -> None:
        self.amp_dtype: torch.dtype | None = None
        self.micro_batches = 1
        self.has_dynamic_shapes = False
        self.shapes_kept = 1
        self.is_fixed = False

    def _require_open(self) -> None:
        if self.is_fixed:
            raise ArgumentError("the settings of a graph are read at its first call; set them in __init__()")

    # -------------------------------------------------------------- what changes a graph

    def enable_amp(self, mode: bool = True, *, dtype: torch.dtype = torch.float16) -> None:
        """Mixed precision: ops that gain from it compute in ``dtype``, float16 or bfloat16. On a CPU that is done for bfloat16; float16 is for GPUs,
        and on a CPU such a graph computes in float32, as OneFlow does."""
        self._require_open()
        if dtype not in (torch.float16, torch.bfloat16):
            raise ArgumentError(f"enable_amp takes dtype=flow.float16 or flow.bfloat16, got {dtype}")
        self.amp_dtype = dtype if flag("mode", mode) else None

    def set_gradient_accumulation_steps(self, value: int) -> None:
        """Each call is cut along dim 0 of its inputs into so many micro-batches; parameters are updated once, with the mean of their gradients. Results of
        one number come as vectors of so many, others are put together along dim 0. A graph without an optimizer takes its batch whole."""
        self._require_open()
        self.micro_batches = whole("gradient accumulation steps", value, above=0)

    def enable_dynamic_shapes(self, mode: bool = True, size: int = 10) -> None:
        """Lets inputs of other shapes, dtypes and structures come: a program is compiled for each, and the last ``size`` are kept."""
        self._require_open()
        self.shapes_kept = whole("size", size, above=0) if flag("mode", mode) else 1
        self.has_dynamic_shapes = mode

    # -------------------------------------------------------------- what one device has no use for

    def enable_zero(self, mode: bool = True, *, stage: int = 2, shard_min_size: int = 1024, shard_restore_level: int = 1) -> None:
        """Shares optimizer state, gradients and parameters out among devices. On one device there is nobody to share with."""
        flag("mode", mode)
        if stage not in (1, 2, 3):
            raise ArgumentError(f"the stage of ZeRO is 1, 2 or 3, got {stage!r}")
        whole("shard_min_size", shard_min_size, above=0)

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
        told = [f"amp={self.amp_dtype}", f"gradient_accumulation_steps={self.micro_batches}", f"dynamic_shapes={self.has_dynamic_shapes}"]
        return f"(CONFIG:config:GraphConfig({', '.join(told)}))"


def _refuse(name: str, value: bool) -> None:
    if value:
        raise UnsupportedError(f"config.{name}: graphs are compiled by this package alone; leave it out")
