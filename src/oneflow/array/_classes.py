"""Very many classes: margins for cosines, and a sample of the classes for each step."""

from __future__ import annotations

from oneflow.array._arguments import apply, blob_of
from oneflow.array._choose import gather, tensor_scatter_nd_update
from oneflow.array._create import constant_like, range, zeros
from oneflow.array._shape import argsort as order_of
from oneflow.array._shape import cast, expand_dims, reshape, sort
from oneflow.engine.core import dtype as dtypes
from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.number import number, whole
from oneflow.engine.ir.blob import Blob
from oneflow.engine.ops import index as index_rows
from oneflow.engine.ops import loss as rows
from oneflow.math import greater, unsorted_segment_sum
from oneflow.random import generate_random_batch_permutation_indices


def combined_margin_loss(
    x: Blob, label: Blob, m1: float = 1, m2: float = 0, m3: float = 0, name: str | None = None
) -> Blob:
    """Cosines (N, classes) in which that of each sample's label, c, has become cos(m1 · acos(c) + m2) - m3.

    Before a scaled softmax cross entropy m2 = 0.5 is the arc loss, m3 = 0.35 the cosine loss. Classes may be split over
    devices.
    """
    margins = {
        key: number(f"combined_margin_loss's {key}", value) for key, value in (("m1", m1), ("m2", m2), ("m3", m3))
    }
    return apply(rows.combined_margin_loss, x, label, name=name, **margins)


def distributed_partial_fc_sample(
    weight: Blob, label: Blob, num_sample: int, name: str | None = None
) -> tuple[Blob, Blob, Blob]:
    """A sample of ``num_sample`` classes: all that occur among the labels, and others by chance, anew at each step.

    Gives the labels as places in the sample, the classes in it in ascending order, and their rows of ``weight``
    (classes, features), to which gradients go back. The sample is the same on any number of devices.
    """
    classes, size = blob_of("distributed_partial_fc_sample", weight).shape[0], whole("num_sample", num_sample, above=0)
    if size > classes or size < min(label.shape[0], classes):
        raise ArgumentError(
            f"num_sample is at most the {classes} classes, and at least the {label.shape[0]} labels of a batch, which "
            f"may all differ; got {size}"
        )
    labels = cast(reshape(label, (-1,)), dtypes.int32)
    times = unsorted_segment_sum(constant_like(labels, 1, dtypes.int32), labels, classes)
    chance = generate_random_batch_permutation_indices(weight)
    rank = (
        chance + cast(greater(times, 0), dtypes.int32) * classes
    )  # every class that occurs comes before those that do not
    first = apply(index_rows.slice_v2, order_of(rank, direction="DESCENDING"), bounds=((0, size, None),), name=None)
    sampled = sort(first)
    places = tensor_scatter_nd_update(
        zeros((classes,), dtypes.int32), expand_dims(sampled, 1), range(0, size, dtype=dtypes.int32)
    )
    return gather(places, labels), sampled, gather(weight, sampled, name=name)
