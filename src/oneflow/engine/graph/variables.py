"""The tensors that a graph computes with: those of its modules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor, nn

from oneflow.engine.global_tensor.tensor import GlobalTensor


def variables_of(modules: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """The parameters and buffers of some modules by their names, and global tensors that are plain attributes; one that
    has several has the first."""
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    for prefix, module in modules.items():
        for name, tensor in (
            *module.named_parameters(prefix),
            *module.named_buffers(prefix),
            *_attributes(module, prefix),
        ):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                found[name] = tensor
    return found


def _attributes(module: nn.Module, prefix: str) -> Iterator[tuple[str, Tensor]]:
    for path, inner in module.named_modules(prefix=prefix):
        yield from ((f"{path}.{name}", value) for name, value in vars(inner).items() if isinstance(value, GlobalTensor))
