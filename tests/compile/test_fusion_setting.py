"""The fusion setting of a step: from the step itself, else from the environment."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import oneflow as flow
import oneflow.typing as tp
from oneflow import nn
from oneflow.engine.core import fusion_setting as module
from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.fusion_setting import DEFAULT, fusion_setting, uses_native_kernels


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    monkeypatch.delenv("ONEFLOW_FUSION", raising=False)
    module._warn_removed.cache_clear()


class Train(nn.Graph):
    def __init__(self, setting=None):
        super().__init__()
        self.net = nn.Linear(3, 2)
        self.add_optimizer(flow.optim.SGD(self.net.parameters(), lr=0.5, momentum=0.9))
        if setting is not None:
            self.config.set_fusion(setting)

    def build(self, x):
        loss = self.net(x).square().mean()
        loss.backward()
        return loss


def test_on_is_the_default(monkeypatch):
    assert fusion_setting() == DEFAULT
    monkeypatch.setenv("ONEFLOW_FUSION", "on")
    assert fusion_setting() == DEFAULT


def test_the_setting_of_a_step_takes_precedence_over_the_environment(monkeypatch):
    monkeypatch.setenv("ONEFLOW_FUSION", "off")
    assert fusion_setting() == "off" and not uses_native_kernels()
    assert fusion_setting("native") == "native" and uses_native_kernels("native")


def test_another_word_is_an_error(monkeypatch):
    monkeypatch.setenv("ONEFLOW_FUSION", "nativ")
    with pytest.raises(
        ArgumentError, match="ONEFLOW_FUSION is one of 'off', 'native', got 'nativ'. Did you mean 'native'"
    ):
        fusion_setting()
    with pytest.raises(ArgumentError, match="fusion is one of 'off', 'native', got 'nativ'"):
        Train("nativ")
    with pytest.raises(ArgumentError, match="fusion is one of 'off', 'native', got True"):
        flow.function_config().fusion()


@pytest.mark.parametrize("value", ["wait", "later"])
def test_removed_settings_warn_once_and_are_native(value, monkeypatch):
    with pytest.warns(UserWarning, match=f"fusion '{value}' no longer exists; 'native' is used instead") as caught:
        graph = Train(value)
        assert torch.isfinite(graph(torch.ones(2, 3)))
        Train(value)
    assert len(caught) == 1 and graph.config.fusion == "native" and caught[0].filename == __file__
    monkeypatch.setenv("ONEFLOW_FUSION", value)
    with pytest.warns(UserWarning, match=f"ONEFLOW_FUSION '{value}' no longer exists") as caught:
        assert [fusion_setting(), fusion_setting()] == ["native", "native"]
    assert len(caught) == 1
    module._warn_removed.cache_clear()
    with pytest.warns(UserWarning, match=f"fusion '{value}' no longer exists") as caught:
        flow.function_config().fusion(value)
    assert len(caught) == 1


# ------------------------------------------------------------------ checkpoints with the setting in them


@pytest.fixture
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_a_state_of_a_graph_with_an_old_note_is_loaded(no_warnings):
    first = Train()
    first(torch.ones(2, 3))
    state = first.state_dict()
    assert not [name for name in state if name.startswith("System-Fusion")]
    second = Train()
    second.load_state_dict({**state, "System-Fusion-Train": torch.tensor(list(b"later"), dtype=torch.uint8)})
    assert second(torch.ones(2, 3)) == first(torch.ones(2, 3))


def test_a_checkpoint_of_jobs_with_an_old_note_is_loaded(tmp_path):
    flow.clear_default_session()

    @flow.global_function(type="train")
    def job(x: tp.Numpy.Placeholder((4,))) -> tp.Numpy:
        w = flow.get_variable("w", (4,), initializer=flow.ones_initializer())
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1]), momentum=0).minimize(x * w)
        return x * w

    job(np.ones(4, np.float32))
    values = {name: value.numpy() for name, value in flow.get_all_variables().items()}
    note = {"System-Fusion-job": np.frombuffer(b"wait", np.uint8)}
    flow.checkpoint.save(str(tmp_path / "old"), {**values, **note})
    job(np.ones(4, np.float32))
    flow.load_variables(flow.checkpoint.get(str(tmp_path / "old")), ignore_mismatch=False)
    assert np.array_equal(flow.get_all_variables()["w"].numpy(), values["w"])
