"""LiBai's models of pictures: names and numbers of parameters, scores of transformers with the same weights, losses,
configs, and what they refuse."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from libai_formulas import below, norm, spread, transformer_layer, values
from libai_small_vision import SMALL_VISION
from PIL import Image

import oneflow as flow
from flowvision.loss import SoftTargetCrossEntropy
from libai import models
from libai.config import LazyCall, LazyConfig, get_config, instantiate
from libai.config.config import CONFIGS
from libai.engine import DefaultTrainer
from libai.models import swin_transformer, swin_transformer_v2
from libai.utils import distributed as dist
from oneflow.engine.core.errors import ArgumentError


@pytest.fixture(autouse=True)
def one_rank() -> None:
    dist.setup_dist_util({})
    torch.manual_seed(5)


def near(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def scores(model: Any, images: torch.Tensor) -> torch.Tensor:
    return model.eval()(spread(images))["prediction_scores"].to_local().detach()


# ------------------------------------------------------------------ names and numbers


def both(prefix: str, *names: str) -> set[str]:
    return {f"{prefix}.{name}.{kind}" for name in names for kind in ("weight", "bias")}


def vit_keys() -> set[str]:
    parts = (
        "input_layernorm",
        "post_attention_layernorm",
        "self_attention.query_key_value",
        "self_attention.dense",
        "mlp.dense_h_to_4h",
        "mlp.dense_4h_to_h",
    )
    return (
        {"cls_token", "pos_embed"} | both("patch_embed", "proj") | both("blocks.0", *parts) | both("blocks.1", *parts)
    )


def swin_keys(*attention: str, biased: tuple[str, ...]) -> set[str]:
    found = (
        both("patch_embed", "proj", "norm")
        | {"layers.0.downsample.reduction.weight"}
        | both("layers.0.downsample", "norm")
    )
    for block in ("layers.0.blocks.0", "layers.1.blocks.0", "layers.1.blocks.1"):
        found |= both(
            block, "norm1", "norm2", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h", *(f"attn.{name}" for name in biased)
        ) | {f"{block}.attn.{name}" for name in attention}
    return found


def resmlp_keys() -> set[str]:
    found = both("patch_embed", "proj") | {"norm.alpha", "norm.beta"}
    for block in ("blocks.0", "blocks.1"):
        found |= both(block, "attn", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h")
        found |= {
            f"{block}.{name}"
            for name in ("norm1.alpha", "norm1.beta", "norm2.alpha", "norm2.beta", "gamma_1", "gamma_2")
        }
    return found


_V2 = (
    "logit_scale",
    "q_bias",
    "v_bias",
    "relative_coords_table",
    "relative_position_index",
    "cpb_mlp.0.weight",
    "cpb_mlp.0.bias",
    "cpb_mlp.2.weight",
    "qkv.weight",
)
_END = {"norm.weight", "norm.bias", "head.weight", "head.bias"}
KEYS = {
    "ViT": vit_keys() | _END,
    "Swin": swin_keys("relative_position_bias_table", "relative_position_index", biased=("qkv", "proj")) | _END,
    "SwinV2": swin_keys(*_V2, biased=("proj",)) | _END,
    "ResMLP": resmlp_keys() | {"head.weight", "head.bias"},
}


@pytest.mark.parametrize("name", SMALL_VISION)
def test_names_of_parameters(name: str) -> None:
    state = SMALL_VISION[name].make().state_dict()
    assert set(state) == KEYS[name] and all(tensor.is_global for tensor in state.values())


_TABLES = 2 * 6 + 2 * 12 + 18 * 24 + 2 * 48  # heads of the layers of a large Swin
COUNTS = {
    "vit/vit_tiny_patch16_224": 5_717_416,
    "vit/vit_small_patch16_224": 22_050_664,
    "vit/vit_small_patch32_224": 22_878_952,
    "vit/vit_base_patch16_224": 86_567_656,
    "vit/vit_base_patch32_224": 88_224_232,
    "vit/vit_large_patch16_224": 304_326_632,
    "vit/vit_large_patch32_224": 306_535_400,
    "vit/vit_huge_patch14_224": 632_045_800,
    "vit/vit_giant_patch14_224": 1_012_611_432,
    "vit/vit_gigantic_patch14_224": 1_844_440_680,
    "swin/swin_tiny_patch4_window7_224": 28_288_354,
    "swin/swin_tiny_c24_patch4_window8_256": 28_288_354
    + 15**2 * (2 * 4 + 2 * 8 + 6 * 16 + 2 * 32)
    - 13**2 * (2 * 3 + 2 * 6 + 6 * 12 + 2 * 24),
    "swin/swin_small_patch4_window7_224": 49_606_258,
    "swin/swin_base_patch4_window7_224": 87_768_224,
    "swin/swin_base_patch4_window12_384": 87_903_584,
    "swin/swin_large_patch4_window7_224": 196_532_476,
    "swin/swin_large_patch4_window12_384": 196_532_476 + (23**2 - 13**2) * _TABLES,
    "swinv2/swinv2_tiny_patch4_window8_256": 28_347_154,
    "swinv2/swinv2_tiny_patch4_window16_256": 28_347_154,
    "swinv2/swinv2_small_patch4_window8_256": 49_728_418,
    "swinv2/swinv2_small_patch4_window16_256": 49_728_418,
    "swinv2/swinv2_base_patch4_window8_256": 87_918_816,
    "swinv2/swinv2_base_patch4_window16_256": 87_918_816,
    "resmlp/resmlp_12": 15_350_872,
    "resmlp/resmlp_24": 30_020_680,
    "resmlp/resmlp_36": 44_690_488,
    "resmlp/resmlpB_24": 129_138_280,
}


def test_every_config_of_a_model_has_its_number() -> None:
    folder = Path(CONFIGS) / "common" / "models"
    assert {
        f"{path.parent.name}/{path.stem}"
        for kind in ("vit", "swin", "swinv2", "resmlp")
        for path in (folder / kind).glob("*.py")
    } == set(COUNTS)


@pytest.mark.parametrize("name", COUNTS)
def test_configs_have_the_parameters_that_were_published(name: str) -> None:
    with flow.planned_world(1):  # no memory
        dist.setup_dist_util({})
        model = instantiate(get_config(f"common/models/{name}.py").model)
    assert sum(parameter.numel() for parameter in model.parameters()) == COUNTS[name]


# ------------------------------------------------------------------ transformers, with the same weights


def qkv_by_head(parts: list[torch.Tensor], heads: int) -> torch.Tensor:
    """Rows of query, key and value as LiBai has them: head by head."""
    return torch.stack([part.view(heads, -1, *part.shape[1:]) for part in parts], 1).flatten(0, 2)


def test_vit_is_that_of_transformers() -> None:
    from transformers import ViTConfig, ViTForImageClassification

    theirs = ViTForImageClassification(
        ViTConfig(
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            image_size=16,
            patch_size=8,
            num_labels=5,
            layer_norm_eps=1e-5,
        )
    ).eval()
    varied(theirs)
    w = theirs.state_dict()
    state = {"cls_token": w["vit.embeddings.cls_token"], "pos_embed": w["vit.embeddings.position_embeddings"]}
    for kind in ("weight", "bias"):
        state |= {f"patch_embed.proj.{kind}": w[f"vit.embeddings.patch_embeddings.projection.{kind}"]}
        state |= {f"norm.{kind}": w[f"vit.layernorm.{kind}"], f"head.{kind}": w[f"classifier.{kind}"]}
        for layer in (0, 1):
            old, new = f"vit.layers.{layer}", f"blocks.{layer}"
            state[f"{new}.self_attention.query_key_value.{kind}"] = qkv_by_head(
                [w[f"{old}.attention.{part}_proj.{kind}"] for part in "qkv"], 4
            )
            names = {
                "attention.o_proj": "self_attention.dense",
                "layernorm_before": "input_layernorm",
                "layernorm_after": "post_attention_layernorm",
            }
            names |= {"mlp.fc1": "mlp.dense_h_to_4h", "mlp.fc2": "mlp.dense_4h_to_h"}
            state |= {f"{new}.{ours}.{kind}": w[f"{old}.{their}.{kind}"] for their, ours in names.items()}
    compare("ViT", theirs, state)


def varied(model: torch.nn.Module) -> None:
    """Biases and norms, which are 0 and 1 at first, are given other values so that they count."""
    for parameter in model.parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, parameter.mean().item(), 0.3)


def compare(name: str, theirs: Any, state: dict[str, torch.Tensor], **options: Any) -> None:
    model = SMALL_VISION[name].make(**options)
    own = model.state_dict()
    assert set(own) - set(state) <= {
        key for key in own if key.endswith(("relative_position_index", "relative_coords_table"))
    }
    model.load_state_dict({**own, **{key: spread(value) for key, value in state.items()}})
    images = torch.randn(3, 3, 16, 16)
    with torch.no_grad():
        near(scores(model, images), theirs(images).logits)


@pytest.mark.parametrize("version, window, pretrained", [(1, 2, 0), (1, 4, 0), (2, 4, 0), (2, 4, 2)])
def test_swin_is_that_of_transformers(version: int, window: int, pretrained: int) -> None:
    """On maps of 8 x 8 and 4 x 4: windows of two are shifted on both, those of four on the first alone."""
    import transformers

    kinds = {
        1: (transformers.SwinConfig, transformers.SwinForImageClassification),
        2: (transformers.Swinv2Config, transformers.Swinv2ForImageClassification),
    }
    config, kind = kinds[version]
    more = {"pretrained_window_sizes": [pretrained, pretrained]} if version == 2 else {}
    theirs = kind(
        config(
            image_size=16,
            patch_size=2,
            embed_dim=8,
            depths=[1, 2],
            num_heads=[2, 4],
            window_size=window,
            num_labels=5,
            **more,
        )
    ).eval()
    varied(theirs)
    w = theirs.state_dict()
    root = "swin" if version == 1 else "swinv2"
    names = {
        f"{root}.embeddings.patch_embeddings.projection": "patch_embed.proj",
        f"{root}.embeddings.norm": "patch_embed.norm",
        f"{root}.layernorm": "norm",
        "classifier": "head",
    }
    names |= {
        f"{root}.encoder.layers.0.downsample.{part}": f"layers.0.downsample.{part}" for part in ("reduction", "norm")
    }
    state = {}
    for stage, number in ((0, 0), (1, 0), (1, 1)):
        old, new = f"{root}.encoder.layers.{stage}.blocks.{number}", f"layers.{stage}.blocks.{number}"
        names |= {f"{old}.layernorm_before": f"{new}.norm1", f"{old}.layernorm_after": f"{new}.norm2"}
        if version == 1:
            names |= {
                f"{old}.attention.o_proj": f"{new}.attn.proj",
                f"{old}.mlp.fc1": f"{new}.mlp.dense_h_to_4h",
                f"{old}.mlp.fc2": f"{new}.mlp.dense_4h_to_h",
            }
            state[f"{new}.attn.relative_position_bias_table"] = w[
                f"{old}.attention.relative_position_bias.relative_position_bias_table"
            ]
            state |= {
                f"{new}.attn.qkv.{kind}": torch.cat([w[f"{old}.attention.{part}_proj.{kind}"] for part in "qkv"])
                for kind in ("weight", "bias")
            }
        else:
            names |= {
                f"{old}.attention.output.dense": f"{new}.attn.proj",
                f"{old}.intermediate.dense": f"{new}.mlp.dense_h_to_4h",
                f"{old}.output.dense": f"{new}.mlp.dense_4h_to_h",
            }
            inner = f"{old}.attention.self"
            names |= {f"{inner}.continuous_position_bias_mlp.{at}": f"{new}.attn.cpb_mlp.{at}" for at in (0, 2)}
            state[f"{new}.attn.qkv.weight"] = torch.cat(
                [w[f"{inner}.{part}.weight"] for part in ("query", "key", "value")]
            )
            state |= {
                f"{new}.attn.q_bias": w[f"{inner}.query.bias"],
                f"{new}.attn.v_bias": w[f"{inner}.value.bias"],
                f"{new}.attn.logit_scale": w[f"{inner}.logit_scale"],
            }
    for old, new in names.items():
        state |= {f"{new}.{kind}": w[f"{old}.{kind}"] for kind in ("weight", "bias") if f"{old}.{kind}" in w}
    compare("Swin" if version == 1 else "SwinV2", theirs, state, window_size=window, **more)


# ------------------------------------------------------------------ by their formulas


def test_resmlp_and_the_losses_by_their_formulas() -> None:
    model = SMALL_VISION["ResMLP"].make(drop_rate=0.0, drop_path_rate=0.0)
    w = values(model)
    batch = SMALL_VISION["ResMLP"].batch(3, torch.Generator().manual_seed(1))
    x = (
        F.conv2d(batch["images"], w["patch_embed.proj.weight"], w["patch_embed.proj.bias"], 4)
        .flatten(2)
        .transpose(1, 2)
    )
    for number in (0, 1):
        b = below(w, f"blocks.{number}")
        mixed = (x * b["norm1.alpha"] + b["norm1.beta"]).transpose(1, 2) @ b["attn.weight"].T + b["attn.bias"]
        x = x + b["gamma_1"] * mixed.transpose(1, 2)
        hidden = F.gelu(
            (x * b["norm2.alpha"] + b["norm2.beta"]) @ b["mlp.dense_h_to_4h.weight"].T + b["mlp.dense_h_to_4h.bias"]
        )
        x = x + b["gamma_2"] * (hidden @ b["mlp.dense_4h_to_h.weight"].T + b["mlp.dense_4h_to_h.bias"])
    expected = (x * w["norm.alpha"] + w["norm.beta"]).mean(1) @ w["head.weight"].T + w["head.bias"]
    near(scores(model, batch["images"]), expected)
    model.train()
    near(
        model(spread(batch["images"]), spread(batch["labels"].int()))["losses"].to_local(),
        F.cross_entropy(expected, batch["labels"]),
    )
    assert set(model(spread(batch["images"]))) == {"prediction_scores"}
    assert set(model.eval()(spread(batch["images"]), spread(batch["labels"]))) == {"prediction_scores"}


def test_vit_by_its_formula_and_with_soft_labels() -> None:
    for loss in (SoftTargetCrossEntropy(), LazyCall(SoftTargetCrossEntropy)()):
        model = models.VisionTransformer(
            img_size=(16, 8), patch_size=8, embed_dim=16, depth=1, num_heads=4, num_classes=3, loss_func=loss
        )
    w, images = values(model), torch.randn(2, 3, 16, 8)
    x = F.conv2d(images, w["patch_embed.proj.weight"], w["patch_embed.proj.bias"], 8).flatten(2).transpose(1, 2)
    x = torch.cat([w["cls_token"].expand(2, 1, 16), x], 1) + w["pos_embed"]
    x = norm(transformer_layer(below(w, "blocks.0"), x, 4, None), w, "norm")
    expected = x[:, 0] @ w["head.weight"].T + w["head.bias"]
    near(scores(model, images), expected)
    soft = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.1, 0.9]])
    near(
        model.train()(spread(images), spread(soft))["losses"].to_local(),
        -(soft * expected.log_softmax(-1)).sum(-1).mean(),
    )
    assert model.no_weight_decay() == {"pos_embed", "cls_token"}
    assert models.VisionTransformer(img_size=16, depth=1, num_classes=0)(spread(torch.zeros(2, 3, 16, 16)))[
        "prediction_scores"
    ].shape == (2, 192)


def test_first_values_are_small_and_branches_of_swin_v2_give_nothing() -> None:
    model = models.VisionTransformer(depth=1)
    for name in ("pos_embed", "blocks.0.mlp.dense_h_to_4h.weight", "head.weight"):
        assert abs(model.state_dict()[name].to_local().std().item() - 0.02) < 1e-3, name
    block = SMALL_VISION["SwinV2"].make().eval().layers[0].blocks[0]
    x = torch.randn(2, 64, 8)
    assert torch.equal(block(spread(x)).to_local(), x)
    assert math.isclose(block.attn.logit_scale.to_local().exp().mean().item(), 10.0, rel_tol=1e-5)


def test_windows_and_absolute_positions() -> None:
    x = torch.arange(2 * 4 * 6 * 3.0).view(2, 4, 6, 3)
    windows = swin_transformer.window_partition(x, 2)
    assert windows.shape == (12, 2, 2, 3) and torch.equal(windows[1], x[0, :2, 2:4])
    assert torch.equal(swin_transformer_v2.window_reverse(windows, 2, 4, 6), x)
    model = SMALL_VISION["Swin"].make(ape=True, patch_norm=False)
    assert (
        model.state_dict()["absolute_pos_embed"].shape == (1, 64, 8)
        and "patch_embed.norm.weight" not in model.state_dict()
    )
    images = torch.randn(2, 3, 16, 16)
    before = scores(model, images)
    model.absolute_pos_embed.data.copy_(spread(torch.randn(1, 64, 8)))
    assert not torch.allclose(scores(model, images), before)


def test_sizes_that_do_not_fit_are_told() -> None:
    with pytest.raises(
        ArgumentError,
        match="windows of 3 do not cover a map of 8x8; take img_size and window_size that do at every stage",
    ):
        SMALL_VISION["Swin"].make(window_size=3)
    with pytest.raises(ArgumentError, match="PatchEmbedding takes pictures of 16x16, got 8x8"):
        SMALL_VISION["SwinV2"].make()(spread(torch.zeros(1, 3, 8, 8)))
    with pytest.raises(ArgumentError, match="PatchMerging takes a map of 3x3 with even sides, got 9 tokens"):
        swin_transformer.PatchMerging((3, 3), 4)(spread(torch.zeros(1, 9, 4)))
    with pytest.raises(ArgumentError, match="the layer takes maps of 4x4, got 9 tokens"):
        swin_transformer_v2.SwinTransformerBlock(4, (4, 4), 2, 2)(spread(torch.zeros(1, 9, 4)))


# ------------------------------------------------------------------ training by configs


def made_folders(root: Path) -> None:
    random = np.random.default_rng(0)
    for split in ("train", "val"):
        for label in ("cat", "dog"):
            (root / split / label).mkdir(parents=True)
            for number in range(2):
                Image.fromarray(random.integers(0, 256, (20, 24, 3), np.uint8)).save(
                    root / split / label / f"{number}.png"
                )


SMALLER = {
    "vit_imagenet": {"patch_size": 16, "embed_dim": 16, "depth": 1, "num_heads": 2},
    "swin_imagenet": {"patch_size": 16, "embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2]},
    "swinv2_imagenet": {
        "patch_size": 16,
        "embed_dim": 8,
        "depths": [1, 1],
        "num_heads": [2, 2],
        "pretrained_window_sizes": [0, 0],
    },
    "resmlp_imagenet": {"patch_size": 32, "embed_dim": 8, "depth": 1},
    "swin_cifar100": {"embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2]},
    "swinv2_cifar100": {"embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "pretrained_window_sizes": [0, 0]},
}


@pytest.mark.parametrize("name", SMALLER)
def test_a_training_config_runs_on_made_pictures(name: str, tmp_path: Path) -> None:
    """Whole configs, with fewer and narrower layers: pictures, mixup, soft labels, the schedule, evaluation."""
    cfg = LazyConfig.load(str(Path(CONFIGS) / f"{name}.py"))
    cfg.model.cfg.update(SMALLER[name])
    for loader, dataset in (
        (cfg.dataloader.train, cfg.dataloader.train.dataset[0]),
        (cfg.dataloader.test[0], cfg.dataloader.test[0].dataset),
    ):
        loader.num_workers = 0
        if name.endswith("imagenet"):
            dataset.root = str(tmp_path / "pictures")
        else:
            dataset._target_ = MadeCifar
    if name.endswith("imagenet"):
        made_folders(tmp_path / "pictures")
    changes = [
        "train.train_epoch=0",
        "train.train_iter=2",
        "train.train_micro_batch_size=2",
        "train.test_micro_batch_size=2",
        "train.evaluation.eval_period=2",
    ]
    cfg = LazyConfig.apply_overrides(
        cfg, [*changes, f"train.output_dir={tmp_path / 'out'}", "train.dist.device_type=cpu"]
    )
    trainer = DefaultTrainer(cfg)
    results = trainer.train()
    losses = [value for value, _ in trainer.storage.history("total_loss").values()]
    assert len(losses) == 2 and all(math.isfinite(loss) for loss in losses) and 0 <= results["Acc@1"] <= 100
    assert (tmp_path / "out" / "model_final").exists() and not (tmp_path / "out" / "config.yaml.pkl").exists()


class MadeCifar(flow.utils.data.Dataset):
    """Four pictures as CIFAR-100 has them."""

    def __init__(self, root: str, train: bool, download: bool, transform: Any) -> None:
        self.transform = transform

    def __getitem__(self, index: int) -> Any:
        from libai.data import DistTensorData, Instance

        picture = Image.fromarray(np.random.default_rng(index).integers(0, 256, (32, 32, 3), np.uint8))
        return Instance(
            images=DistTensorData(self.transform(picture)),
            labels=DistTensorData(flow.tensor(index % 100, dtype=flow.int64), placement_idx=-1),
        )

    def __len__(self) -> int:
        return 4
