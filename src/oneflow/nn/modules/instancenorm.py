"""``flow.nn.modules.instancenorm``: normalisation of each channel of each sample. Inside a job the names are the job's
ops."""

from __future__ import annotations

import torch

from oneflow.compat.eras import EitherClass
from oneflow.nn import _norm as jobs

__all__ = ["InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"]


class InstanceNorm1d(torch.nn.InstanceNorm1d, metaclass=EitherClass):
    """Of (N, C, W). The parameters are torch's."""

    _of_job = staticmethod(jobs.InstanceNorm1d)


class InstanceNorm2d(torch.nn.InstanceNorm2d, metaclass=EitherClass):
    """Of (N, C, H, W). The parameters are torch's."""

    _of_job = staticmethod(jobs.InstanceNorm2d)


class InstanceNorm3d(torch.nn.InstanceNorm3d, metaclass=EitherClass):
    """Of (N, C, D, H, W). The parameters are torch's."""

    _of_job = staticmethod(jobs.InstanceNorm3d)
