"""A torch program's ResNet-50 in the programs of examples/cnns."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from example_programs import load

import oneflow as flow

TORCH_MODELS = Path(__file__).parents[2] / "benchmarks" / "torch_models.py"
[program] = load("resnet_from_torch")


def published(key: str) -> str:
    """The name that torch's ResNets have for a weight of the plain ResNet-50 of the benchmarks, which counts its blocks
    through."""
    key = key.replace("stem.0.", "conv1.").replace("stem.1.", "bn1.").replace("shortcut.", "downsample.")
    block = re.match(r"blocks\.(\d+)\.(.*)", key)
    if block is None:
        return key
    firsts = (0, 3, 7, 13)
    stage = sum(int(block[1]) >= first for first in firsts)
    return f"layer{stage}.{int(block[1]) - firsts[stage - 1]}.{block[2]}"


@pytest.fixture
def model() -> torch.nn.Module:
    """With statistics and scales that no layer has at its beginning."""
    torch.manual_seed(0)
    model = runpy.run_path(str(TORCH_MODELS))["ResNet50"]().eval()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            for tensor, low in (
                (module.weight, 0.5),
                (module.running_var, 0.5),
                (module.bias, -0.2),
                (module.running_mean, -0.2),
            ):
                torch.nn.init.uniform_(tensor, low, low + 0.6)
    return model


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_torch_resnet50_and_its_snapshot_give_the_same_logits(model, tmp_path):
    state = {published(key): value for key, value in model.state_dict().items()}
    torch.save(state, tmp_path / "resnet50.pt")
    safetensors.torch.save_file(state, tmp_path / "resnet50.safetensors")
    for form in ("pt", "safetensors"):
        flow.clear_default_session()
        program.convert(str(tmp_path / f"resnet50.{form}"), str(tmp_path / form))
    assert contents(tmp_path / "pt") == contents(tmp_path / "safetensors")

    flow.clear_default_session()
    job = program.make_job(1000)
    flow.train.CheckPoint().load(str(tmp_path / "pt"))
    images = torch.randn(1, 3, 224, 224)
    with torch.inference_mode():
        expected = model(images).numpy()
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(job(images.numpy()).get(), expected, rtol=1e-4, atol=1e-4)


def test_weights_of_another_network_are_one_message(tmp_path, monkeypatch):
    torch.save({"fc.weight": torch.zeros(10, 2048), "fc.bias": torch.zeros(10)}, tmp_path / "other.pt")
    monkeypatch.setattr("sys.argv", ["resnet_from_torch.py", str(tmp_path / "other.pt"), str(tmp_path / "snapshot")])
    with pytest.raises(
        SystemExit, match="does not fit the variables, nothing was loaded: variable 'Resnet-fc1001-weight'"
    ):
        program.main()
    assert not (tmp_path / "snapshot").exists()
