"""Models of libai as ONNX files: ONNX Runtime gives their scores for every batch and length."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from warm_python import WARM

pytest.importorskip("onnxruntime")
import oneflow as flow
from libai import models
from libai.config import get_config
from libai.onnx_export import export, export_to_onnx
from libai.onnx_export.gpt2_to_onnx import get_model, gpt2Graph
from libai.onnx_export.onnx_inference.gpt2_onnx_infer import OnnxModel
from libai.onnx_export.t5_to_onnx import t5Graph
from libai.utils import distributed as dist

SMALL = {"vocab_size": 30, "hidden_size": 16, "hidden_layers": 2, "num_attention_heads": 4}
GPT = {**SMALL, "ffn_hidden_size": 24, "max_seq_length": 16, "attention_dropout_prob": 0.5, "output_dropout_prob": 0.5}
BERT = {**SMALL, "intermediate_size": 24, "max_position_embeddings": 16}
MODELS = {
    "GPT": (models.GPTForPreTraining, "gpt", GPT),
    "Llama": (models.LlamaForCausalLM, "llama", {**BERT, "num_key_value_heads": 2}),
    "BERT": (models.BertForPreTraining, "bert", BERT),
    "BERT, classifier": (models.BertForClassification, "bert", {**BERT, "num_labels": 3}),
    "RoBERTa": (models.RobertaForPreTraining, "roberta", BERT),
    "T5": (models.T5ForPreTraining, "t5", BERT),
    "ViT": (
        models.VisionTransformer,
        "vit/vit_tiny_patch16_224",
        {"img_size": 8, "patch_size": 4, "embed_dim": 16, "depth": 2, "num_heads": 4, "num_classes": 5},
    ),
}


@pytest.fixture(autouse=True)
def one_rank() -> None:
    dist.setup_dist_util({})
    torch.manual_seed(1)


def made(name: str) -> Any:
    kind, config, sizes = MODELS[name]
    return kind(OmegaConf.merge(get_config(f"common/models/{config}.py").cfg, sizes, {"initializer_range": 0.3})).eval()


@pytest.mark.parametrize("name", MODELS)
def test_any_batch_and_length(name: str, tmp_path: Path) -> None:
    model = made(name)
    path = export_to_onnx(model, tmp_path / "models" / "model.onnx", check=False)
    runtime = OnnxModel(str(path))
    kind = export.kind_of(model)
    for batch, length in ((1, 1), (4, 9), (2, 6)):
        inputs = kind.inputs(export.whole_on_one(model), batch, length)
        with torch.no_grad():
            expected = model(
                **{
                    name: value.to_global(flow.placement("cpu", [0]), flow.sbp.broadcast)
                    for name, value in inputs.items()
                }
            )
        found = runtime.forward({name: value for name, value in inputs.items() if name in runtime.names})
        assert len(found) == len(kind.outputs)
        for output, value in zip(kind.outputs, found):
            np.testing.assert_allclose(value, expected[output].to_local().numpy(), rtol=0, atol=1e-4)


def test_a_model_is_checked_before_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = made("GPT")
    assert export_to_onnx(model, tmp_path / "model.onnx") == tmp_path / "model.onnx"
    before = (tmp_path / "model.onnx").read_bytes()
    with pytest.raises(
        ValueError,
        match="ONNX Runtime gives other prediction_scores than the model for a batch of 1: .* apart, above atol=-1e",
    ):
        export_to_onnx(model, tmp_path / "model.onnx", atol=-1.0)
    assert (tmp_path / "model.onnx").read_bytes() == before and [path.name for path in tmp_path.iterdir()] == [
        "model.onnx"
    ]
    with pytest.raises(ValueError, match=r"in training mode: call model.eval\(\)"):
        export_to_onnx(model.train(), tmp_path / "model.onnx")
    with pytest.raises(ValueError, match="export_to_onnx takes GPTForPreTraining, .*, got Linear"):
        export_to_onnx(torch.nn.Linear(2, 2), tmp_path / "model.onnx")


def test_graphs_of_the_published_names_are_exported_by_the_framework(tmp_path: Path) -> None:
    model = export.whole_on_one(made("GPT"))
    ids = torch.randint(0, 30, (2, 5))
    flow.onnx.convert_to_onnx_and_check(
        gpt2Graph(model), (ids,), onnx_model_path=str(tmp_path / "gpt2"), dynamic_batch_size=True
    )
    found = OnnxModel(str(tmp_path / "gpt2" / "model.onnx"), ort_optimize=False).forward([ids])[0]
    np.testing.assert_allclose(found, model(ids)["prediction_scores"].detach().numpy(), atol=1e-4)
    t5 = export.whole_on_one(made("T5"))
    inputs = export.kind_of(t5).inputs(t5, 2, 4)
    ordered = [
        inputs[f"{name}"]
        for name in (
            "encoder_input_ids",
            "encoder_attn_mask",
            "decoder_input_ids",
            "decoder_attn_mask",
            "encoder_decoder_attn_mask",
        )
    ]
    torch.testing.assert_close(t5Graph(t5)(*ordered), t5(**inputs)["prediction_scores"], rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="the model takes 1 inputs, input_ids; got 2"):
        OnnxModel(str(tmp_path / "gpt2" / "model.onnx")).forward([ids, ids])


def test_a_model_of_a_config_by_a_command(tmp_path: Path) -> None:
    flow.save(made("GPT").state_dict(), tmp_path / "weights", global_dst_rank=0)
    lines = [
        "from libai.config import LazyCall, get_config", "from libai.models import GPTForPreTraining", 'cfg = get_config("common/models/gpt.py").cfg',
        f"cfg.update({GPT!r})", f"cfg.pretrained_model_path = {str(tmp_path / 'weights')!r}", "model = LazyCall(GPTForPreTraining)(cfg=cfg)",
    ]  # fmt: skip
    (tmp_path / "config.py").write_text("\n".join(lines))
    command = [
        *WARM.command(),
        "-m",
        "libai.onnx_export.gpt2_to_onnx",
        str(tmp_path / "config.py"),
        str(tmp_path / "gpt2.onnx"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and done.stdout.strip() == str(tmp_path / "gpt2.onnx"), done.stderr
    ids = torch.randint(0, 30, (3, 4))
    model = export.whole_on_one(get_model(str(tmp_path / "config.py")))
    np.testing.assert_allclose(
        OnnxModel(str(tmp_path / "gpt2.onnx")).forward([ids])[0],
        model(ids)["prediction_scores"].detach().numpy(),
        atol=1e-4,
    )
    (tmp_path / "config.py").write_text("\n".join(line for line in lines if "pretrained" not in line))
    assert not get_model(str(tmp_path / "config.py")).training
