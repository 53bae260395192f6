"""``flow.nn.parallel``: data parallel training of a module, one process per device."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.world import PeerWorld, join

__all__ = ["DistributedDataParallel"]

_MEGABYTE = 1 << 20


def DistributedDataParallel(
    module: nn.Module, *, broadcast_buffers: bool = True, broadcast_parameters: bool = True, bucket_size: int = 10
) -> nn.Module:
    """Makes a module train data parallel, and returns the module itself: after each backward pass the gradients of its
    parameters are the means over all ranks.

    Parameters of all ranks begin as those of rank 0 (``broadcast_parameters``), and so do buffers, before each forward
    pass in training (``broadcast_buffers``). Gradients are reduced in buckets of about ``bucket_size`` megabytes, while
    the backward pass goes on; a parameter that the loss of some rank does not depend on counts as zero there, and one
    that no rank's loss depends on keeps no gradient. In a world of one nothing changes.
    """
    if not isinstance(module, nn.Module):
        raise ArgumentError(f"DistributedDataParallel takes a module, got {type(module).__name__}")
    if isinstance(bucket_size, bool) or not isinstance(bucket_size, int) or bucket_size < 1:
        raise ArgumentError(f"bucket_size={bucket_size!r}; give a number of megabytes from 1 on")
    world = join()
    if world.size == 1:
        return module
    if broadcast_parameters:
        _take_first_ranks(list(module.parameters()))
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    reducer = _Reducer(_in_buckets(trained, bucket_size * _MEGABYTE), world)
    for number, bucket in enumerate(reducer.buckets):
        for parameter in bucket.parameters:
            parameter.register_post_accumulate_grad_hook(partial(reducer.note, number))
    if broadcast_buffers and any(True for _ in module.buffers()):
        module.register_forward_pre_hook(_share_buffers)
    return module


def _share_buffers(module: nn.Module, inputs: Any) -> None:
    if module.training:
        _take_first_ranks(list(module.buffers()))


def _take_first_ranks(values: Sequence[Tensor]) -> None:
    """Writes rank 0's values into those of all ranks; those of one dtype and device go together."""
    from oneflow.comm.collectives import broadcast

    kinds: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    for value in values:
        kinds.setdefault((value.dtype, value.device), []).append(value)
    with torch.no_grad():
        for group in kinds.values():
            flat = torch.cat([value.reshape(-1) for value in group])
            broadcast(flat, 0)
            for value, part in zip(group, flat.split([value.numel() for value in group])):
                value.copy_(part.view(value.shape))


def _in_buckets(parameters: Sequence[nn.Parameter], most_bytes: int) -> list[list[nn.Parameter]]:
    """In the order in which a backward pass reaches them, the last first; of one dtype and device each."""
    buckets: list[list[nn.Parameter]] = []
    filled = 0
    for parameter in reversed(parameters):
        kind = parameter.dtype, parameter.device
        if (
            not buckets
            or kind != (buckets[-1][0].dtype, buckets[-1][0].device)
            or filled + parameter.nbytes > most_bytes
        ):
            buckets.append([])
            filled = 0
        buckets[-1].append(parameter)
        filled += parameter.nbytes
    return buckets


class _Bucket:
    """Parameters whose gradients go together, and how many of them still wait for theirs in this backward pass. With
    the gradients goes, for each parameter, on how many ranks there is one."""

    def __init__(self, number: int, parameters: list[nn.Parameter], world: PeerWorld) -> None:
        from oneflow.engine.collective import Bucket, RunningBucket

        self.parameters = parameters
        self.missing = len(parameters)
        self.begun: Any = None
        channels_last = tuple(place for place, parameter in enumerate(parameters) if _is_channels_last(parameter))
        self._running = RunningBucket(Bucket(number, world.ranks, channels_last=channels_last))
        self._size = world.size

    def start(self) -> None:
        """Begins the sum. A gradient that this rank has not is zero."""
        first = self.parameters[0]
        present = torch.tensor(
            [parameter.grad is not None for parameter in self.parameters], dtype=first.dtype, device=first.device
        )
        self.begun = self._running.start([*map(_gradient, self.parameters), present])

    def finish(self) -> None:
        """Writes the means."""
        *sums, present = self._running.wait(self.begun)
        for parameter, summed, count in zip(self.parameters, sums, present.tolist()):
            if parameter.grad is not None:
                torch.div(summed, self._size, out=parameter.grad)
            elif count:
                parameter.grad = summed / self._size
        self.forget()

    def abandon(self) -> None:
        """Waits for a sum that nobody wants any more: the other ranks have begun it too."""
        if self.begun is not None:
            self._running.wait(self.begun)
        self.forget()

    def forget(self) -> None:
        self.missing, self.begun = len(self.parameters), None


def _is_channels_last(parameter: nn.Parameter) -> bool:
    return parameter.dim() == 4 and parameter.is_contiguous(memory_format=torch.channels_last)


def _gradient(parameter: nn.Parameter) -> Tensor:
    return parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)


class _Reducer:
    """Buckets are begun in their order on every rank, each when its gradients and those before it are there; what is
    left at the end of the backward pass is begun then."""

    def __init__(self, buckets: list[list[nn.Parameter]], world: PeerWorld) -> None:
        self.buckets = [_Bucket(number, parameters, world) for number, parameters in enumerate(buckets)]
        self._next = 0
        self._pass: int | None = None  # the backward pass that is running

    @torch.no_grad()
    def note(self, number: int, parameter: nn.Parameter) -> None:
        """A gradient is there."""
        running = torch._C._current_graph_task_id()
        if running != self._pass:
            self._begin(running)
        self.buckets[number].missing -= 1
        while self._next < len(self.buckets) and self.buckets[self._next].missing <= 0:
            self._start_next()

    def _begin(self, running: int) -> None:
        """A backward pass before this one may have ended by an error, with buckets begun."""
        for bucket in self.buckets:
            bucket.abandon()
        self._next, self._pass = 0, running
        torch.autograd.Variable._execution_engine.queue_callback(self._finish)

    def _start_next(self) -> None:
        self.buckets[self._next].start()
        self._next += 1

    @torch.no_grad()
    def _finish(self) -> None:
        while self._next < len(self.buckets):
            self._start_next()
        for bucket in self.buckets:
            bucket.finish()
        self._next, self._pass = 0, None
