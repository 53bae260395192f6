"""Random numbers of global tensors: functions of a drawn number and an element's place in the logical tensor.

So every layout gives the same numbers, and no two shards the same ones. The drawn number comes from the default
generator (or the one that is given) of the placement's first rank, whatever seeds the others have; all ranks draw one,
so equal seeds stay in step.
"""

from __future__ import annotations

from math import pi, prod

import torch

import oneflow.engine.collective as collective
from oneflow.engine.core.errors import GlobalTensorError
from oneflow.engine.core.region import region
from oneflow.engine.global_tensor.spec import Spec
from oneflow.engine.ops.kernels import counter_random
from oneflow.engine.sharding.mesh import Mesh
from oneflow.engine.world import join
from oneflow.engine.world.order import meet

_STREAMS = counter_random.stable_seed("global tensors")


def drawn(mesh: Mesh, generator: torch.Generator | None = None) -> torch.Tensor:
    """A number of shape (1,) that the first rank of a mesh has drawn; all ranks of the world come here."""
    number = torch.randint(1 << 62, (1,), generator=generator)
    if mesh.size == 1 or mesh.position(join().rank) is None:
        return number
    with meet("random numbers", tuple(sorted(mesh.ranks))):
        return collective.all_gather(number, mesh.ranks)[0]


def require_no_sums(spec: Spec) -> None:
    """Refuses to draw the terms of a sum."""
    if any(sbp.kind == "P" for sbp in spec.sbp):
        raise GlobalTensorError(
            f"random source op only support broadcast or split, got {spec.layout}; make it so, and change the layout "
            f"with to_global"
        )


class Stream:
    """The random numbers of one tensor, of which this rank makes its part; drawing them is a call of all ranks."""

    def __init__(self, spec: Spec, generator: torch.Generator | None = None) -> None:
        require_no_sums(spec)
        self.spec = spec
        self.step = drawn(spec.layout.mesh, generator).to(spec.device)
        mesh = spec.layout.mesh
        position = mesh.position(join().rank)
        spans = (
            region(spec.shape, spec.sbp, mesh.axes, position) if position is not None else [(0, 0)] * len(spec.shape)
        )
        self.start = [first for first, _ in spans]
        self.shape = [last - first for first, last in spans]

    def bits(self, number: int = 0) -> torch.Tensor:
        """32 fair bits for each element of this rank's part; another tensor of them for each number."""
        if prod(self.shape) == 0:
            return torch.empty(self.shape, dtype=torch.int32, device=self.spec.device)
        return torch.ops.oneflow.random_bits_part(
            list(self.spec.shape), self.start, self.shape, _STREAMS + number, self.step
        )

    def uniform(self, number: int = 0) -> torch.Tensor:
        """Between 0, which may come, and 1; multiples of 2**-24."""
        return (self.bits(number) & 0xFFFFFF).to(torch.float32) * 2.0**-24

    def normal(self) -> torch.Tensor:
        """Of mean 0 and standard deviation 1, by Box and Muller."""
        return (-2.0 * torch.log1p(-self.uniform())).sqrt_() * torch.cos(2.0 * pi * self.uniform(1))

    def whole(self, low: int, high: int) -> torch.Tensor:
        """Whole numbers from ``low`` to below ``high``; 62 bits are enough that none is favoured."""
        wide = (self.bits(0).to(torch.int64) << 30) ^ (self.bits(1).to(torch.int64) & 0x3FFFFFFF)
        return (wide & ((1 << 62) - 1)) % (high - low) + low

    def bernoulli(self, probability: float | torch.Tensor) -> torch.Tensor:
        """True with a probability, one for all or one for each element."""
        return self.uniform() < probability
