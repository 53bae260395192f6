"""Names that jobs and tensors both have: the job's op inside a job or on a blob, the tensor's function anywhere
else."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from oneflow import array as job
from oneflow import linalg as job_linalg
from oneflow import math as job_math
from oneflow.compat.eras import either
from oneflow.engine.eager import create, index, shape
from oneflow.nn._sequence import ctc_loss as job_ctc_loss

argsort = either(job.argsort, torch.argsort)
argwhere = either(job.argwhere, torch.argwhere)
broadcast_like = either(job.broadcast_like, shape.broadcast_like)
cast = either(job.cast, shape.cast)
clamp = either(job_math.clamp, torch.clamp)
clip = either(job_math.clip, torch.clip)
concat = either(job.concat, torch.concat)
ctc_loss = either(job_ctc_loss, F.ctc_loss)
diag = either(job.diag, torch.diag)
expand = either(job.expand, shape.expand)
flatten = either(job.flatten, torch.flatten)
gather = either(job.gather, torch.gather)
gather_nd = either(job.gather_nd, index.gather_nd)
in_top_k = either(job_math.in_top_k, index.in_top_k)
masked_fill = either(job.masked_fill, torch.masked_fill)
matmul = either(job_linalg.matmul, torch.matmul)
nonzero = either(job.nonzero, torch.nonzero)
ones = either(job.ones, create.ones)
ones_like = either(job.ones_like, create.ones_like)
pad = either(job.pad, F.pad)
repeat = either(job.repeat, shape.repeat)
reshape = either(job.reshape, torch.reshape)
scatter_nd = either(job.scatter_nd, index.scatter_nd)
slice = either(job.slice, index.slice)
slice_update = either(job.slice_update, index.slice_update)
sort = either(job.sort, torch.sort)
squeeze = either(job.squeeze, torch.squeeze)
stack = either(job.stack, torch.stack)
tensor_scatter_nd_update = either(job.tensor_scatter_nd_update, index.tensor_scatter_nd_update)
transpose = either(job.transpose, torch.transpose)
where = either(job.where, index.where)
zeros = either(job.zeros, create.zeros)
zeros_like = either(job.zeros_like, create.zeros_like)
