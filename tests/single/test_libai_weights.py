"""Weights from folders of ``transformers`` and back: our models give the scores of theirs, and theirs those of ours;
folders that do not fit are refused."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")
import huggingface_models as hf
import safetensors.torch
import transformers

import oneflow as flow
from libai import models
from libai.models import utils
from libai.models.utils.model_loader.base_loader import ModelLoader
from libai.utils import distributed as dist


@pytest.fixture(autouse=True)
def one_rank() -> None:
    dist.setup_dist_util({})


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of each kind, as transformers saves it."""
    root = tmp_path_factory.mktemp("folders")
    for name in hf.KINDS:
        hf.save(hf.theirs(name), root / name)
    return root


def spread(inputs: dict[str, Any]) -> dict[str, Any]:
    return {name: value.to_global(dist.get_layer_placement(0), [flow.sbp.broadcast]) for name, value in inputs.items()}


def tensors(scores: Any) -> list[torch.Tensor]:
    return [one.to_local() if one.is_global else one for one in (scores if isinstance(scores, tuple) else (scores,))]


def near(found: Any, expected: Any) -> None:
    for mine, other in zip(tensors(found), tensors(expected), strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", hf.KINDS)
def test_scores_are_theirs_and_theirs_are_ours(name: str, folders: Path, tmp_path: Path) -> None:
    kind, inputs = hf.KINDS[name], hf.KINDS[name].inputs()
    model, info = hf.ours(name, folders / name, output_loading_info=True)
    assert info == {"missing_keys": [], "unexpected_keys": [], "mismatched_keys": []} and not model.training
    with torch.no_grad():
        expected = kind.their_scores(hf.theirs(name), inputs)
        near(kind.our_scores(model, spread(inputs)), expected)
        utils.export_to_huggingface(model, tmp_path / "out")
        back, report = getattr(
            transformers, json.loads((tmp_path / "out" / "config.json").read_text())["architectures"][0]
        ).from_pretrained(tmp_path / "out", output_loading_info=True)
        assert not any(report.values()), report
        near(kind.their_scores(back.eval(), inputs), expected)


def test_one_file_or_many_torch_or_safetensors(folders: Path, tmp_path: Path) -> None:
    theirs, name = hf.theirs("BERT"), "BERT"
    whole = hf.ours(name, folders / name).state_dict()
    parts = hf.save(theirs, tmp_path / "parts", max_shard_size="8KB")
    assert len(list(parts.glob("model-*.safetensors"))) > 2
    torches = tmp_path / "torch"
    torches.mkdir()
    shutil.copy(parts / "config.json", torches)
    state = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
        for name, value in theirs.state_dict().items()
    }
    torch.save(state, torches / "pytorch_model.bin")
    torch.save({"lr": 1}, torches / "training_args.bin")
    for folder in (parts, torches):
        found = hf.ours(name, folder).state_dict()
        assert all(torch.equal(found[key].to_local(), value.to_local()) for key, value in whole.items())
    utils.export_to_huggingface(hf.ours(name, torches), tmp_path / "again", max_shard_size=8000)
    assert len(list((tmp_path / "again").glob("model-*.safetensors"))) > 2
    found = hf.ours(name, tmp_path / "again").state_dict()
    assert all(torch.equal(found[key].to_local(), value.to_local()) for key, value in whole.items())


def test_the_config_is_theirs_and_arguments_override_it(folders: Path) -> None:
    given = hf.KINDS["GPT-2"].cfg()
    model = utils.GPT2LoaderHuggerFace(
        models.GPTForPreTraining, given, str(folders / "GPT-2"), attention_dropout_prob=0.25, output_dropout_prob=0.5
    ).load()
    assert (
        model.cfg.hidden_size,
        model.cfg.hidden_layers,
        model.cfg.ffn_hidden_size,
        model.cfg.activation,
        model.cfg.bos_token_id,
    ) == (16, 2, 24, "gelu_tanh", 0)
    layer = model.GPT_model.transformer.layers[0]
    assert (layer.attention_dropout_prob, layer.output_dropout_prob) == (0.25, 0.5)
    assert given == hf.KINDS["GPT-2"].cfg()


def test_a_lazy_call_or_a_model_will_do(folders: Path) -> None:
    from libai.config import LazyCall

    cfg = hf.KINDS["BERT"].cfg()
    lazy = utils.BertLoaderHuggerFace(LazyCall(models.BertForPreTraining)(cfg=cfg), cfg, str(folders / "BERT")).load()
    again = utils.BertLoaderHuggerFace(lazy, lazy.cfg, str(folders / "BERT")).load()
    assert again is lazy
    with pytest.raises(
        ValueError, match="model is a class such as libai.models.BertModel, a LazyCall of one, or a model; got int"
    ):
        utils.BertLoaderHuggerFace(3, cfg, str(folders / "BERT")).load()
    with pytest.raises(NotImplementedError, match="take ModelLoaderLiBai, or the loader of a model"):
        ModelLoader(3, cfg, "").load()


def test_what_is_missing_and_what_is_left_over_is_told(folders: Path, caplog: pytest.LogCaptureFixture) -> None:
    cfg = hf.KINDS["BERT, classifier"].cfg()
    with caplog.at_level(logging.WARNING, logger="libai"):
        _, info = utils.BertLoaderHuggerFace(
            models.BertForClassification, cfg, str(folders / "BERT"), output_loading_info=True
        ).load()
    assert info["missing_keys"] == ["classifier.weight", "classifier.bias"]
    assert set(info["unexpected_keys"]) >= {"cls_head.lm_logits.bias", "cls_head.seq_relationship.weight"}
    assert "classifier.{weight, bias}" in caplog.text and "not used by the model" in caplog.text


def test_weights_of_this_package(folders: Path, tmp_path: Path) -> None:
    """A checkpoint, its folder of weights, or a base model's; of LiBai's own the names are the same."""
    model = hf.ours("BERT", folders / "BERT")
    flow.save(model.state_dict(), tmp_path / "model_final" / "model", global_dst_rank=0)
    flow.save(model.bert.state_dict(), tmp_path / "base", global_dst_rank=0)
    cfg = model.cfg
    for path in ("model_final", "model_final/model"):
        found, info = utils.BertLoaderLiBai(
            models.BertForPreTraining, cfg, str(tmp_path / path), output_loading_info=True
        ).load()
        assert not any(info.values())
        assert all(
            torch.equal(found.state_dict()[key].to_local(), value.to_local())
            for key, value in model.state_dict().items()
        )
    bare = utils.BertLoaderLiBai(models.BertModel, cfg, str(tmp_path / "model_final")).load()
    whole, info = utils.BertLoaderLiBai(
        models.BertForPreTraining, cfg, str(tmp_path / "base"), output_loading_info=True
    ).load()
    assert all(key.startswith("cls_head.") for key in info["missing_keys"]) and not info["unexpected_keys"]
    for found in (bare, whole.bert):
        assert all(
            torch.equal(found.state_dict()[key].to_local(), value.to_local())
            for key, value in model.bert.state_dict().items()
        )
    local = utils.ModelLoaderLiBai(models.BertForPreTraining, cfg, str(tmp_path / "model_final")).load()
    assert torch.equal(
        local.state_dict()["bert.final_layernorm.weight"].to_local(),
        model.state_dict()["bert.final_layernorm.weight"].to_local(),
    )
    (tmp_path / "odd").mkdir()
    flow.save([1, 2], tmp_path / "list")
    with pytest.raises(EnvironmentError, match="holds no weights by name, but a list"):
        utils.BertLoaderLiBai(models.BertModel, cfg, str(tmp_path / "list")).load()


# ----------------------------------------------------------------------------------------------------------- errors


def changed(folder: Path, target: Path, **settings: Any) -> Path:
    """A copy of a folder with other settings in its config.json."""
    shutil.copytree(folder, target)
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config | settings))
    return target


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        (
            "BERT",
            {"model_type": "gpt2"},
            "has a model of type 'gpt2', this loader takes 'bert': take the loader of that type",
        ),
        ("BERT", {"hidden_act": "relu"}, "config.json has hidden_act='relu'; supported: 'gelu'"),
        (
            "GPT-2",
            {"activation_function": "silu"},
            "config.json has activation_function='silu'; supported: 'gelu_new', 'gelu_pytorch_tanh', 'gelu'",
        ),
        (
            "GPT-2",
            {"n_positions": 9},
            r"embeddings.position_embeddings.weight is \(24, 16\) in .* and \(9, 16\) in the model: give the config of these weights",
        ),
        ("Llama", {"hidden_act": "gelu"}, "hidden_act='gelu'; supported: 'silu'"),
    ],
)
def test_a_config_of_something_else(
    name: str, settings: dict[str, Any], message: str, folders: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        hf.ours(name, changed(folders / name, tmp_path / "changed", **settings))


def test_other_shapes_may_be_left_as_they_were_made(folders: Path, tmp_path: Path) -> None:
    folder = changed(folders / "GPT-2", tmp_path / "changed", n_positions=9)
    _, info = hf.ours("GPT-2", folder, output_loading_info=True, ignore_mismatched_sizes=True)
    assert info["mismatched_keys"] == [("GPT_model.embeddings.position_embeddings.weight", (24, 16), (9, 16))]


def test_a_folder_without_weights(folders: Path, tmp_path: Path) -> None:
    with pytest.raises(
        EnvironmentError,
        match="there is no folder .*nothing-here'; give one that save_pretrained of transformers has written",
    ):
        hf.ours("BERT", tmp_path / "nothing-here")
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(EnvironmentError, match=r"has no \*.bin and no \*.safetensors, but notes.txt"):
        hf.ours("BERT", tmp_path)
    parts = hf.save(hf.theirs("BERT"), tmp_path / "parts", max_shard_size="8KB")
    lost = sorted(parts.glob("model-*.safetensors"))[1]
    lost.unlink()
    with pytest.raises(EnvironmentError, match=f"and {lost.name} is missing; fetch all of them"):
        hf.ours("BERT", parts)
    other = changed(folders / "Llama", tmp_path / "other", model_type="bert", hidden_act="gelu")
    with pytest.raises(EnvironmentError, match="has no weight of BertForPreTraining; it has "):
        hf.ours("BERT", other)
    (other / "config.json").write_text("{")
    with pytest.raises(EnvironmentError, match="config.json' is no JSON"):
        hf.ours("BERT", other)
    (other / "config.json").write_text("[]")
    with pytest.raises(EnvironmentError, match="holds a list, and not the settings of a model"):
        hf.ours("BERT", other)


def test_a_folder_without_a_config_has_the_weights_of_the_given_one(
    folders: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(folders / "GPT-2", tmp_path / "bare")
    (tmp_path / "bare" / "config.json").unlink()
    cfg = hf.ours("GPT-2", folders / "GPT-2").cfg
    with caplog.at_level(logging.WARNING, logger="libai"):
        model = utils.GPT2LoaderHuggerFace(models.GPTForPreTraining, cfg, str(tmp_path / "bare")).load()
    assert "has no config.json: the weights are taken to be those of the config that was given" in caplog.text
    near(
        model(**spread(hf.KINDS["GPT-2"].inputs()))["prediction_scores"],
        hf.theirs("GPT-2")(**hf.KINDS["GPT-2"].inputs()).logits.detach(),
    )


def test_a_file_that_holds_no_tensors(folders: Path, tmp_path: Path) -> None:
    shutil.copytree(folders / "GPT-2", tmp_path / "odd")
    torch.save([1, 2], tmp_path / "odd" / "pytorch_model.bin")
    with pytest.raises(EnvironmentError, match="pytorch_model.bin' holds no tensors by name, but a list"):
        hf.ours("GPT-2", tmp_path / "odd")


def test_what_cannot_be_exported(folders: Path, tmp_path: Path) -> None:
    model = hf.ours("BERT", folders / "BERT")
    utils.export_to_huggingface(model, tmp_path / "out")
    with pytest.raises(ValueError, match="out' exists; remove it or choose another folder"):
        utils.export_to_huggingface(model, tmp_path / "out")
    with pytest.raises(ValueError, match="export_to_huggingface takes .*; got Linear"):
        utils.export_to_huggingface(torch.nn.Linear(2, 2), tmp_path / "linear")
    model.bert.encoders[0].apply_residual_post_layernorm = False
    with pytest.raises(ValueError, match="Build and train it with apply_residual_post_layernorm=True"):
        utils.export_to_huggingface(model, tmp_path / "other")
    gpt = hf.ours("GPT-2", folders / "GPT-2")
    gpt.GPT_model.transformer.layers[0].mlp.activation = torch.nn.ReLU()
    with pytest.raises(ValueError, match="the activation ReLU has no counterpart; supported: gelu_tanh, gelu"):
        utils.export_to_huggingface(gpt, tmp_path / "other")
    gpt = hf.ours("GPT-2", folders / "GPT-2")
    gpt.extra = torch.nn.Linear(2, 2)
    with pytest.raises(ValueError, match="has weights that transformers' models have not: extra.bias, extra.weight"):
        utils.export_to_huggingface(gpt, tmp_path / "other")
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot write .*file/out': "):
        utils.export_to_huggingface(hf.ours("BERT", folders / "BERT"), tmp_path / "file" / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "out"]
    assert safetensors.torch.load_file(tmp_path / "out" / "model.safetensors")
