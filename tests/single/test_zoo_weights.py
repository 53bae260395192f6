"""Weights for the zoo: files of others load strictly, what does not fit is told, and names that are not there are
refused."""

from __future__ import annotations

import hashlib
import json

import pytest
import torch

import flowvision.models
import oneflow as flow
from flowvision.models import ModelCreator, register_model, resnet18
from flowvision.models.registry import UnknownModelError
from oneflow.engine.core.errors import AbsentNameError, ArgumentError, DataError

SMALL = {"num_classes": 3}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FLOWVISION_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def trained():
    torch.manual_seed(0)
    return ModelCreator.create_model("squeezenet1_1", **SMALL).state_dict()


def same(model: torch.nn.Module, state: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(value, state[key]) for key, value in model.state_dict().items())


def test_a_file_a_folder_and_the_cache(trained, cache, tmp_path):
    torch.save({"state_dict": {f"module.{key}": value for key, value in trained.items()}}, tmp_path / "weights.pth")
    assert same(ModelCreator.create_model("squeezenet1_1", pretrained=str(tmp_path / "weights.pth"), **SMALL), trained)
    assert same(ModelCreator.create_model("squeezenet1_1", checkpoint=str(tmp_path / "weights.pth"), **SMALL), trained)
    from safetensors.torch import save_file

    folder = tmp_path / "hub"
    folder.mkdir()
    save_file(trained, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"architecture": "squeezenet1_1"}))
    assert same(ModelCreator.create_model("squeezenet1_1", pretrained=str(folder), **SMALL), trained)
    assert ModelCreator.model_list("squeeze*", pretrained=True) == []
    torch.save(trained, cache / "squeezenet1_1.pth")
    assert ModelCreator.model_list("squeeze*", pretrained=True) == ["squeezenet1_1"]
    assert same(ModelCreator.create_model("squeezenet1_1", pretrained=True, **SMALL), trained)


def test_a_hash_in_the_name_is_compared(trained, cache):
    torch.save(trained, cache / "made.pth")
    right = hashlib.sha256((cache / "made.pth").read_bytes()).hexdigest()[:8]
    (cache / "made.pth").rename(cache / f"squeezenet1_1-{right}.pth")
    assert same(ModelCreator.create_model("squeezenet1_1", pretrained=True, **SMALL), trained)
    (cache / f"squeezenet1_1-{right}.pth").rename(cache / "squeezenet1_1-00000000.pth")
    with pytest.raises(
        DataError, match=f"squeezenet1_1-00000000.pth should have a SHA-256 that begins with 00000000, it has {right}"
    ):
        ModelCreator.create_model("squeezenet1_1", pretrained=True, **SMALL)


def test_what_is_missing_or_does_not_fit(trained, cache, tmp_path):
    with pytest.raises(
        DataError,
        match="there are no weights for resnet18 in .*cache, and none are fetched. Put a file resnet18.safetensors or resnet18.pth there",
    ):
        resnet18(pretrained=True)
    with pytest.raises(DataError, match="there is no weight file .*nowhere.pth for resnet18"):
        resnet18(pretrained=str(tmp_path / "nowhere.pth"))
    with pytest.raises(DataError, match="should have one weight file for resnet18 .*; it has none"):
        resnet18(pretrained=str(cache))
    file = tmp_path / "weights.pth"
    torch.save(trained, file)
    with pytest.raises(
        ArgumentError,
        match=r"weights.pth does not fit resnet18: \d+ tensors are missing, such as conv1.weight; 52 are too many, such as features.0.weight",
    ):
        resnet18(pretrained=str(file))
    with pytest.raises(
        ArgumentError,
        match=r"has classifier.1.weight of shape \[3, 512, 1, 1\], squeezenet1_1 has \[1000, 512, 1, 1\]; other num_classes",
    ):
        ModelCreator.create_model("squeezenet1_1", pretrained=str(file))
    file.write_bytes(b"no weights")
    with pytest.raises(DataError, match="weights.pth (cannot be read as weights|has more than tensors in it)"):
        resnet18(pretrained=str(file))
    torch.save([1, 2], file)
    with pytest.raises(DataError, match="weights.pth has no tensors by name, but list"):
        resnet18(pretrained=str(file))
    folder = tmp_path / "hub"
    folder.mkdir()
    torch.save(trained, folder / "pytorch_model.bin")
    (folder / "config.json").write_text(json.dumps({"architectures": ["ResNetForImageClassification"]}))
    with pytest.raises(
        DataError,
        match="has ResNetForImageClassification of the transformers library, whose names inside differ; take timm's folder of resnet18",
    ):
        resnet18(pretrained=str(folder))
    (folder / "config.json").write_text("{")
    with pytest.raises(DataError, match="config.json is not JSON"):
        resnet18(pretrained=str(folder))


def test_a_file_with_a_program_in_it_is_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return (print, ("run",))

    torch.save({"a": Evil()}, tmp_path / "evil.pth")
    with pytest.raises(DataError, match="evil.pth has more than tensors in it, and is not run"):
        resnet18(pretrained=str(tmp_path / "evil.pth"))


def test_counters_that_older_files_have_not(tmp_path):
    model = ModelCreator.create_model("shufflenet_v2_x0_5", **SMALL)
    state = {key: value for key, value in model.state_dict().items() if not key.endswith("num_batches_tracked")}
    torch.save(state, tmp_path / "old.pth")
    again = ModelCreator.create_model("shufflenet_v2_x0_5", pretrained=str(tmp_path / "old.pth"), **SMALL)
    assert all(torch.equal(again.state_dict()[key], value) for key, value in state.items())


# Names in files of others, with what they are here.
FOREIGN = {
    "vit_tiny_patch16_224": (
        {"img_size": 32, "depth": 1},
        {
            "class_token": "cls_token",
            "conv_proj.weight": "patch_embed.proj.weight",
            "encoder.pos_embedding": "pos_embed",
            "encoder.layers.encoder_layer_0.ln_1.weight": "blocks.0.norm1.weight",
            "encoder.layers.encoder_layer_0.self_attention.in_proj_weight": "blocks.0.attn.qkv.weight",
            "encoder.layers.encoder_layer_0.self_attention.out_proj.bias": "blocks.0.attn.proj.bias",
            "encoder.layers.encoder_layer_0.mlp.0.weight": "blocks.0.mlp.fc1.weight",
            "encoder.layers.encoder_layer_0.mlp.linear_2.bias": "blocks.0.mlp.fc2.bias",
            "encoder.ln.bias": "norm.bias",
            "heads.head.weight": "head.weight",
        },
    ),
    "convnext_tiny_224": (
        {"depths": (1, 1, 1, 1)},
        {
            "downsample_layers.0.0.weight": "features.0.0.weight",
            "downsample_layers.1.1.bias": "features.2.1.bias",
            "stages.2.0.dwconv.weight": "features.5.0.block.0.weight",
            "stages.3.0.norm.weight": "features.7.0.block.2.weight",
            "stages.0.0.pwconv2.bias": "features.1.0.block.5.bias",
            "norm.weight": "classifier.0.weight",
            "head.bias": "classifier.2.bias",
        },
    ),
    "swin_t": (
        {"depths": (1, 1, 1, 1)},
        {
            "patch_embed.proj.weight": "features.0.0.weight",
            "patch_embed.norm.bias": "features.0.2.bias",
            "layers.0.blocks.0.attn.qkv.weight": "features.1.0.attn.qkv.weight",
            "layers.1.blocks.0.mlp.fc1.weight": "features.3.0.mlp.0.weight",
            "layers.2.blocks.0.mlp.fc2.bias": "features.5.0.mlp.3.bias",
            "layers.0.downsample.reduction.weight": "features.2.reduction.weight",
        },
    ),
    "poolformer_s12": (
        {"layers": (1, 1, 1, 1)},
        {
            "stem.conv.weight": "patch_embed.proj.weight",
            "stages.1.downsample.conv.bias": "network.1.proj.bias",
            "stages.2.blocks.0.mlp.fc1.weight": "network.4.0.mlp.fc1.weight",
            "stages.3.blocks.0.layer_scale2.scale": "network.6.0.layer_scale_2",
            "head.norm.weight": "norm.weight",
            "head.fc.bias": "head.bias",
        },
    ),
    "resmlp_12_224": (
        {"img_size": 32, "depth": 1},
        {
            "patch_embed.proj.weight": "stem.proj.weight",
            "blocks.0.attn.weight": "blocks.0.linear_tokens.weight",
            "blocks.0.gamma_2": "blocks.0.ls2",
        },
    ),
    "densenet121": (
        {"block_config": (1, 1, 1, 1)},
        {"features.denseblock1.denselayer1.norm.1.weight": "features.denseblock1.denselayer1.norm1.weight"},
    ),
}


# Names in timm's files, where a family has the names of others already.
TIMM = {
    "convnext_tiny_224": {
        "stem.0.weight": "features.0.0.weight",
        "stages.1.downsample.0.bias": "features.2.0.bias",
        "stages.2.blocks.0.conv_dw.weight": "features.5.0.block.0.weight",
        "stages.3.blocks.0.norm.weight": "features.7.0.block.2.weight",
        "stages.0.blocks.0.mlp.fc2.bias": "features.1.0.block.5.bias",
        "head.norm.weight": "classifier.0.weight",
        "head.fc.bias": "classifier.2.bias",
    },
    "swin_t": {
        "layers.1.downsample.reduction.weight": "features.2.reduction.weight",
        "layers.3.downsample.norm.bias": "features.6.norm.bias",
        "head.fc.weight": "head.weight",
    },
}


@pytest.mark.parametrize("name", TIMM)
def test_names_of_timm_load_strictly(name):
    model, other = (ModelCreator.create_model(name, depths=(1, 1, 1, 1), **SMALL) for _ in range(2))
    theirs = {ours: their for their, ours in TIMM[name].items()}
    state = {
        theirs.get(key, key): value
        for key, value in model.state_dict().items()
        if not key.endswith("relative_position_index")
    }
    assert set(TIMM[name]) <= set(state)
    other.load_state_dict(state, strict=True)
    assert same(other, model.state_dict())


def test_full_connections_that_are_convolutions():
    from flowvision.models.vgg import _from_timm

    state = {
        "features.0.weight": torch.zeros(4, 3, 3, 3),
        "pre_logits.fc1.weight": torch.zeros(5, 2, 7, 7),
        "pre_logits.fc2.bias": torch.zeros(5),
        "head.fc.weight": torch.zeros(3, 5),
    }
    found = {key: tuple(value.shape) for key, value in _from_timm(state).items()}
    assert found == {
        "features.0.weight": (4, 3, 3, 3),
        "classifier.0.weight": (5, 98),
        "classifier.3.bias": (5,),
        "classifier.6.weight": (3, 5),
    }


@pytest.mark.parametrize("name", FOREIGN)
def test_names_of_other_libraries_load_strictly(name):
    options, names = FOREIGN[name]
    model, other = (ModelCreator.create_model(name, **options, **SMALL) for _ in range(2))
    theirs = {ours: their for their, ours in names.items()}
    state = {theirs.get(key, key): value for key, value in model.state_dict().items()}
    assert set(names) <= set(state)
    other.load_state_dict(state, strict=True)
    assert same(other, model.state_dict())


def test_masks_gammas_and_indices_of_other_libraries():
    swin = ModelCreator.create_model("swin_t", depths=(1, 1, 1, 1), **SMALL)
    state = {**swin.state_dict(), "layers.0.blocks.0.attn_mask": torch.zeros(2)}
    state["features.1.0.attn.relative_position_index"] = state["features.1.0.attn.relative_position_index"].view(49, 49)
    swin.load_state_dict(state)
    convnext = ModelCreator.create_model("convnext_tiny_224", depths=(1, 1, 1, 1), **SMALL)
    state = {key: value for key, value in convnext.state_dict().items() if key != "features.1.0.layer_scale"}
    convnext.load_state_dict({**state, "stages.0.0.gamma": torch.full((96,), 2.0)})
    assert convnext.features[1][0].layer_scale.shape == (96, 1, 1) and convnext.features[1][0].layer_scale.mean() == 2


def test_a_folder_of_flow_save(trained, tmp_path):
    flow.save({"state_dict": trained}, tmp_path / "saved")
    assert same(ModelCreator.create_model("squeezenet1_1", pretrained=str(tmp_path / "saved"), **SMALL), trained)
    (tmp_path / "saved" / "tensor_0" / "out").unlink()
    with pytest.raises(DataError, match="saved cannot be read as weights"):
        ModelCreator.create_model("squeezenet1_1", pretrained=str(tmp_path / "saved"), **SMALL)


def test_names_in_the_registry():
    assert ModelCreator.model_list("resnet*") == ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152"]
    assert ModelCreator.model_list(["vgg1?", "alexnet"]) == ["alexnet", "vgg11", "vgg13", "vgg16", "vgg19"]
    assert ModelCreator.model_list("nothing*") == []
    table = ModelCreator.model_table("vgg11*").splitlines()
    assert len(table) == 4 and table[2].split(" | ")[1].strip() == "vgg11"
    with pytest.raises(UnknownModelError, match="the zoo has no network 'resnet5'. Did you mean 'resnet50'"):
        ModelCreator.create_model("resnet5")
    with pytest.raises(
        RuntimeError,
        match="fasterrcnn_resnet50_fpn is not part of this package: detection and instance segmentation are torchvision's",
    ):
        ModelCreator.create_model("fasterrcnn_resnet50_fpn")
    with pytest.raises(
        AbsentNameError,
        match="flowvision.models.deeplabv3_resnet50_coco is not there: segmentation networks are torchvision's",
    ):
        flowvision.models.deeplabv3_resnet50_coco  # noqa: B018
    with pytest.raises(
        AbsentNameError,
        match="flowvision.models.detection is not there: detection and instance segmentation are torchvision's",
    ):
        flowvision.models.detection  # noqa: B018
    with pytest.raises(UnknownModelError, match="a network 'resnet18' is registered already"):
        register_model(resnet18)


def test_pictures_of_another_size_are_told():
    vit = ModelCreator.create_model("vit_tiny_patch16_224", img_size=32, depth=1, **SMALL)
    with pytest.raises(
        ArgumentError, match="the network takes pictures of 32 x 32, got 48 x 48; img_size= makes it for others"
    ):
        vit(torch.zeros(1, 3, 48, 48))


def test_position_embeddings_follow_the_picture_size():
    from flowvision.models.vision_transformer import resize_pos_embed

    old = torch.randn(1, 1 + 16, 5)
    assert torch.allclose(resize_pos_embed(old, torch.empty(1, 17, 5)), old, atol=1e-6)
    grown = resize_pos_embed(old, torch.empty(1, 1 + 64, 5))
    assert grown.shape == (1, 65, 5) and torch.equal(grown[:, 0], old[:, 0])


def test_windows_are_shifted_and_pixels_that_were_apart_do_not_see_each_other():
    """One block on a picture of two by two windows against attention written out pixel by pixel."""
    from flowvision.models.swin_transformer import WindowAttention

    torch.manual_seed(0)
    layer = WindowAttention(4, 2, 1, 2)
    x = torch.randn(1, 4, 4, 4)
    q, k, v = layer.qkv(x).view(4, 4, 3, 2, 2).unbind(2)  # rows, columns, heads, width of a head
    side = [
        0,
        1,
        1,
        2,
        # the shifted windows of a row: its first pixel, two in the middle, its last; the first and the last share one
        # and are apart
    ]
    expected = torch.zeros(4, 4, 4)
    for r in range(4):
        for c in range(4):
            seen = [(i, j) for i in range(4) for j in range(4) if side[i] == side[r] and side[j] == side[c]]
            heads = []
            for head in range(2):
                bias = [layer.relative_position_bias_table[(r - i + 1) * 3 + (c - j + 1), head] for i, j in seen]
                logits = torch.stack(
                    [(q[r, c, head] * k[i, j, head]).sum() / 2**0.5 + b for (i, j), b in zip(seen, bias)]
                )
                heads.append((logits.softmax(0)[:, None] * torch.stack([v[i, j, head] for i, j in seen])).sum(0))
            expected[r, c] = layer.proj(torch.cat(heads))
    assert torch.allclose(layer(x)[0], expected, atol=1e-5)
