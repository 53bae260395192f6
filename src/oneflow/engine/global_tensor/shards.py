"""Global tensors in torch's distributed checkpoints (``torch.distributed.checkpoint``): each rank writes and reads the
block that it holds.

torch asks tensors for their blocks by methods of these names; a checkpoint that was written in one layout is read in
any other.
"""

from __future__ import annotations

from typing import Any

import torch

from oneflow.engine.core.errors import GlobalTensorError
from oneflow.engine.global_tensor.spec import Spec
from oneflow.engine.world import current_world


def _block(spec: Spec) -> tuple[torch.Size, torch.Size] | None:
    """Where this rank's part begins in the logical tensor, and its shape; None where it has nothing."""
    if any(sbp.kind == "P" for sbp in spec.sbp):
        raise GlobalTensorError(
            f"a partial sum ({spec.layout}) has no blocks that a checkpoint could hold; "
            f"to_global(sbp=flow.sbp.broadcast) first"
        )
    block = spec.layout.block(spec.shape, current_world().rank)
    if block is None or (0 in spec.part(current_world().rank) and 0 not in spec.shape):
        return None
    return torch.Size([one.start for one in block]), torch.Size([one.stop - one.start for one in block])


def chunks(spec: Spec) -> list[Any]:
    """This rank's block as torch describes one."""
    from torch.distributed.checkpoint.metadata import ChunkStorageMetadata

    found = _block(spec)
    return [] if found is None else [ChunkStorageMetadata(offsets=found[0], sizes=found[1])]


def write_items(name: str, spec: Spec, part: torch.Tensor | None) -> list[Any]:
    """What this rank writes of a tensor. Of blocks that several ranks hold, torch keeps one."""
    from torch.distributed.checkpoint.metadata import MetadataIndex, TensorProperties
    from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

    return [
        WriteItem(
            index=MetadataIndex(name, chunk.offsets),
            type=WriteItemType.SHARD,
            tensor_data=TensorWriteData(
                chunk=chunk, properties=TensorProperties.create_from_tensor(part), size=torch.Size(spec.shape)
            ),
        )
        for chunk in chunks(spec)
        if part is not None
    ]
