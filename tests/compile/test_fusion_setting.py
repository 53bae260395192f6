"""The tier of a step's fusion: from the step itself, else from the environment."""

from __future__ import annotations

import pytest

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.fusion_setting import DEFAULT, fusion_tier, uses_native_kernels


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    monkeypatch.delenv("ONEFLOW_FUSION", raising=False)


def test_on_is_the_default(monkeypatch):
    assert fusion_tier() == DEFAULT
    monkeypatch.setenv("ONEFLOW_FUSION", "on")
    assert fusion_tier() == DEFAULT


def test_what_a_step_says_goes_before_the_environment(monkeypatch):
    monkeypatch.setenv("ONEFLOW_FUSION", "off")
    assert fusion_tier() == "off" and not uses_native_kernels()
    assert fusion_tier("native") == "native" and uses_native_kernels("native")


def test_another_word_is_an_error(monkeypatch):
    monkeypatch.setenv("ONEFLOW_FUSION", "nativ")
    with pytest.raises(
        ArgumentError, match="ONEFLOW_FUSION is one of 'off', 'native'.*, got 'nativ'. Did you mean 'native'"
    ):
        fusion_tier()
