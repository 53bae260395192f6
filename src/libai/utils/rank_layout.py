"""How ranks are shared out to data, tensor and pipeline parallelism: arithmetic alone, no process is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from libai.config.errors import ConfigError

NO_LAYERS = 10000  # of a model that is not cut: any index is a layer of stage 0


@dataclass(frozen=True)
class RankLayout:
    """The sizes, and the stage of every layer. Ranks are counted with the pipeline's stages slowest, then data, then
    tensor parallel ranks."""

    world: int
    data: int
    tensor: int
    pipeline: int
    stages: tuple[int, ...]

    def stage_of(self, layer: int) -> int:
        """The stage that owns a layer; negative numbers count from the end."""
        if self.pipeline == 1:
            return 0
        if not -len(self.stages) <= layer < len(self.stages):
            raise ConfigError(
                f"layer {layer} is not among the {len(self.stages)} that train.dist.pipeline_num_layers says"
            )
        return self.stages[layer]

    def ranks_of(self, stage: int) -> np.ndarray:
        """The ranks of a stage: on two axes, data and tensor, where both are cut, else on one."""
        each = self.world // self.pipeline
        ranks = np.arange(stage * each, (stage + 1) * each)
        return ranks.reshape(self.data, self.tensor) if self.data > 1 and self.tensor > 1 else ranks

    def data_rank(self, rank: int) -> int:
        """Which part of the batch a rank reads."""
        return (rank // self.tensor) % self.data


def rank_layout(
    world: int,
    tensor: int,
    pipeline: int,
    layers: int | None = None,
    custom: Sequence[int] | None = None,
    data: int | None = None,
) -> RankLayout:
    """Returns the layout of ``world`` ranks.

    Args:
        world: The number of ranks.
        tensor: ``train.dist.tensor_parallel_size``.
        pipeline: ``train.dist.pipeline_parallel_size``.
        layers: ``train.dist.pipeline_num_layers``, required for a pipeline.
        custom: ``train.dist.custom_pipeline_stage_id``, the stage of each layer.
        data: ``train.dist.data_parallel_size``. It follows from the other sizes, so 1, LiBai's default, and None are
            not checked.

    Raises:
        ConfigError: If the sizes do not fit the number of ranks.
    """
    for key, size in (("tensor_parallel_size", tensor), ("pipeline_parallel_size", pipeline)):
        if type(size) is not int or size < 1:
            raise ConfigError(f"train.dist.{key} is a whole number from 1 on, got {size!r}")
    there_are = f"there {'is' if world == 1 else 'are'} {world}"
    if world % tensor:
        raise ConfigError(
            f"train.dist.tensor_parallel_size={tensor}, but {there_are} rank{'' if world == 1 else 's'}; start a "
            f"multiple of {tensor} ranks or set it to one of {_divisors(world)}"
        )
    if world % (tensor * pipeline):
        raise ConfigError(
            f"train.dist.tensor_parallel_size={tensor} and train.dist.pipeline_parallel_size={pipeline} need a multiple "
            f"of {tensor * pipeline} ranks, but {there_are}; start as many or set pipeline_parallel_size to one of "
            f"{_divisors(world // tensor)}"
        )
    rest = world // (tensor * pipeline)
    _require_data(data, rest, tensor, pipeline)
    return RankLayout(world, rest, tensor, pipeline, _stages(pipeline, layers, custom))


def _require_data(data: int | None, rest: int, tensor: int, pipeline: int) -> None:
    if data is None:
        return
    if type(data) is not int or data < 1:
        raise ConfigError(f"train.dist.data_parallel_size is a whole number from 1 on or null, got {data!r}")
    if data not in (1, rest):
        world = rest * tensor * pipeline
        raise ConfigError(
            f"train.dist.data_parallel_size={data}, but {world} rank{'' if world == 1 else 's'} with "
            f"tensor_parallel_size={tensor} and pipeline_parallel_size={pipeline} leave {rest}; set it to {rest}, to "
            f"null, or start {data * tensor * pipeline} ranks"
        )


def _divisors(number: int) -> list[int]:
    return [size for size in range(1, number + 1) if number % size == 0]


def _stages(pipeline: int, layers: int | None, custom: Sequence[int] | None) -> tuple[int, ...]:
    if pipeline == 1:
        return ()
    if layers is None:
        raise ConfigError(
            f"cfg.train.dist.pipeline_num_layers must be set when run pipeline parallel: how many layers go to the "
            f"{pipeline} stages"
        )
    if type(layers) is not int or layers < pipeline:
        raise ConfigError(
            f"train.dist.pipeline_num_layers={layers!r} is less than pipeline_parallel_size={pipeline}: each stage has "
            f"a layer at least"
        )
    return stages_by_hand(custom, layers, pipeline) if custom is not None else stages_by_count(layers, pipeline)


def stages_by_hand(custom: Sequence[int], layers: int, pipeline: int) -> tuple[int, ...]:
    """What ``custom_pipeline_stage_id`` says, checked."""
    if len(custom) != layers:
        raise ConfigError(
            f"train.dist.custom_pipeline_stage_id has {len(custom)} entries, pipeline_num_layers is {layers}; give a "
            f"stage for each layer"
        )
    wrong = [stage for stage in custom if type(stage) is not int or not 0 <= stage < pipeline]
    if wrong:
        raise ConfigError(
            f"train.dist.custom_pipeline_stage_id has {wrong[0]!r}; stages are 0 to {pipeline - 1}, as "
            f"pipeline_parallel_size={pipeline} says"
        )
    return tuple(custom)


def stages_by_count(layers: int, pipeline: int) -> tuple[int, ...]:
    """Layers in equal shares; what is left over goes to the last stages. In deep pipelines the last stage, which has
    the loss too, gets less."""
    spread = layers
    if pipeline >= 4 and layers >= 8 and layers % pipeline == 0:
        spread += min(pipeline - 1, layers // pipeline)
    each, left = divmod(spread, pipeline)
    sizes = [each + (stage >= pipeline - left) for stage in range(pipeline)]
    return tuple(stage for stage, size in enumerate(sizes) for _ in range(size))[:layers]
