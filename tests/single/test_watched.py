"""Changes of tensors between two calls of a graph that predicts."""

from __future__ import annotations

import torch

from oneflow.engine.graph.watched import Watched


def test_changes_are_seen_once() -> None:
    tensors = [torch.zeros(3, 5), torch.ones(2, dtype=torch.bfloat16), torch.zeros(0), torch.tensor(float("nan"))]
    watched = Watched(tensors)
    assert watched.have_changed()  # the first look
    assert not watched.have_changed()
    tensors[0][1, 1] = 1.0  # counted by autograd
    assert watched.have_changed() and not watched.have_changed()
    tensors[1].data.mul_(2.0)  # not counted
    assert watched.have_changed() and not watched.have_changed()
    tensors[0].data = torch.zeros(3, 5)
    assert watched.have_changed() and not watched.have_changed()


def test_tensors_in_channels_last_memory_are_sampled_over_their_whole_memory() -> None:
    filters = torch.zeros(4, 3, 2, 2).to(memory_format=torch.channels_last)
    watched = Watched([filters])
    watched.have_changed()
    filters.data[-1, -1, -1, -1] = 1.0  # last in memory
    assert watched.have_changed()
