"""Attributes that ``import oneflow`` adds to torch's classes behave like attributes that a tensor may lack."""

from __future__ import annotations

import pytest
import torch

import oneflow  # noqa: F401

TENSOR = [
    "cast", "check_meta_consistency", "contiguous_", "gelu", "global_id", "global_to_global", "in_top_k",
    "is_consistent", "is_eager", "is_global", "is_lazy", "is_local", "kaiming_normal_", "kaiming_uniform_",
    "local_to_global", "mish", "nms", "orthogonal_", "placement", "sbp", "selu", "silu", "softplus", "softsign",
    "to_consistent", "to_global", "to_local", "to_numpy", "trunc_normal_", "xavier_normal_", "xavier_uniform_",
]  # fmt: skip
MODULE = ["to_global", "to_local"]


def added(cls: type) -> list[str]:
    """The names in a class whose values were defined by this package."""
    values = {name: value.fget if isinstance(value, property) else value for name, value in vars(cls).items()}
    return sorted(n for n, value in values.items() if str(getattr(value, "__module__", "")).startswith("oneflow"))


def test_the_attributes_are_these() -> None:
    assert added(torch.Tensor) == TENSOR
    assert added(torch.nn.Module) == MODULE


@pytest.mark.parametrize("name", TENSOR)
def test_asking_a_local_tensor_for_an_attribute_never_fails(name: str) -> None:
    x = torch.ones(2, 3)
    assert hasattr(x, name) == (name not in ("placement", "sbp"))
    assert getattr(x, name, None) is not None or name in ("placement", "sbp")


@pytest.mark.parametrize("name", ["placement", "sbp"])
def test_an_absent_attribute_is_also_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"local tensor .* has no {name}"):
        getattr(torch.ones(2), name)
