"""Numbers that a state dict does not show, and that weights of others depend on: those of torchvision's networks, and
of timm's where torchvision has none."""

from __future__ import annotations

import importlib

import pytest
import torch
from torch import nn

from flowvision.datasets import folder, imagenet, utils
from flowvision.datasets.utils import MissingDataError
from flowvision.models import ModelCreator, googlenet
from flowvision.models.resnet import BasicBlock, Bottleneck, ResNet
from flowvision.models.vgg import VGG, make_layers
from oneflow.engine.core.errors import AbsentNameError, ArgumentError

# eps and momentum of batch norms; a PyTorch layer's own where nothing is said.
USUAL = (1e-5, 0.1)
NORMS = {
    **dict.fromkeys(("googlenet", "inception_v3"), (0.001, 0.1)),
    **dict.fromkeys(
        ("mobilenet_v3_large", "mobilenet_v3_small", "efficientnet_b5", "efficientnet_b6", "efficientnet_b7"),
        (0.001, 0.01),
    ),
    **dict.fromkeys(("mnasnet0_5", "mnasnet0_75", "mnasnet1_0", "mnasnet1_3"), (1e-5, 1 - 0.9997)),
}
# eps of layer norms and group norms.
LAYER_NORMS = {
    "convnext": {1e-6},
    "vit": {1e-6},
    "deit": {1e-6},
    "mlp_mixer": {1e-6},
    "gmlp": {1e-5, 1e-6},
    "swin": {1e-5},
    "poolformer": {1e-5},
}
DROPOUT = {
    "alexnet": {0.5},
    "vgg16": {0.5},
    "vgg16_bn": {0.5},
    "squeezenet1_1": {0.5},
    "googlenet": {0.2, 0.7},
    "inception_v3": {0.5},
    "mobilenet_v2": {0.2},
    "mobilenet_v3_large": {0.2},
    "mnasnet1_0": {0.2},
    "ghostnet": {0.2},
    "senet154": {0.2},
    "resnet50": set(),
    "densenet121": set(),
    "regnet_y_400mf": set(),
    "shufflenet_v2_x1_0": set(),
    **{f"efficientnet_b{number}": {rate} for number, rate in enumerate((0.2, 0.2, 0.3, 0.3, 0.4, 0.4, 0.5, 0.5))},
}
# The largest rate of stochastic depth, that of the last block.
DEPTH = {
    "efficientnet_b0": 0.2 * 15 / 16,
    "convnext_tiny": 0.1,
    "convnext_small": 0.4,
    "convnext_base": 0.5,
    "convnext_large": 0.5,
    "swin_t": 0.2,
    "swin_s": 0.3,
    "swin_b": 0.5,
}
CEIL = {
    "squeezenet1_0": 3,
    "squeezenet1_1": 3,
    "senet154": 1,
    "se_resnet50": 1,
    "googlenet": 9,
    "resnet50": 0,
    "densenet121": 0,
    "vgg16": 0,
}


def made(name: str) -> nn.Module:
    with torch.device("meta"):
        return ModelCreator.create_model(name)


@pytest.mark.parametrize(
    "name", [name for name in ModelCreator.model_list() if not name.startswith(("vit_h", "vit_g"))]
)
def test_norms(name: str) -> None:
    modules = list(made(name).modules())
    assert {(module.eps, module.momentum) for module in modules if isinstance(module, nn.BatchNorm2d)} <= {
        NORMS.get(name, USUAL)
    }
    others = {module.eps for module in modules if isinstance(module, (nn.LayerNorm, nn.GroupNorm))}
    assert others == next((eps for family, eps in LAYER_NORMS.items() if name.startswith(family)), set())


@pytest.mark.parametrize("name", DROPOUT)
def test_dropout(name: str) -> None:
    assert {module.p for module in made(name).modules() if isinstance(module, nn.Dropout)} == DROPOUT[name]


@pytest.mark.parametrize("name", DEPTH)
def test_stochastic_depth_grows_to_its_published_rate(name: str) -> None:
    rates = [module.p for module in made(name).modules() if type(module).__name__ == "StochasticDepth"]
    assert rates[0] == 0 and rates == sorted(rates) and rates[-1] == pytest.approx(DEPTH[name])


@pytest.mark.parametrize("name", CEIL)
def test_pools_that_round_up(name: str) -> None:
    assert sum(module.ceil_mode for module in made(name).modules() if isinstance(module, nn.MaxPool2d)) == CEIL[name]


def deviation(name: str, layer: str) -> float:
    torch.manual_seed(0)
    return ModelCreator.create_model(name, num_classes=1000).get_parameter(f"{layer}.weight").std().item()


@pytest.mark.parametrize(
    "name, layer, expected",
    [
        ("resnet18", "layer4.0.conv1", (2 / (512 * 9)) ** 0.5),  # He's, by what goes out
        ("densenet121", "features.denseblock4.denselayer1.conv1", (2 / 512) ** 0.5),  # ... by what comes in
        ("mobilenet_v3_small", "classifier.0", 0.01),
        ("efficientnet_b0", "classifier.1", (1 / 1000 / 3) ** 0.5),
        ("mnasnet0_5", "classifier.1", (1 / 1000) ** 0.5),  # uniform within sqrt(3 / fan out)
        ("regnet_y_400mf", "trunk_output.block4.block4-1.f.b.0", (2 / (9 * 440)) ** 0.5),  # its groups are not counted
        ("se_resnet50", "layer4.0.conv2", (2 / (512 * 9)) ** 0.5),
        ("mlp_mixer_s16_224", "blocks.0.mlp_channels.fc1", (2 / (512 + 2048)) ** 0.5),
        ("poolformer_s12", "network.6.0.mlp.fc1", 0.02),
        ("swin_t", "features.7.0.attn.qkv", 0.02),
        ("vit_tiny_patch16_224", "blocks.0.attn.qkv", 0.02),
        ("squeezenet1_1", "classifier.1", 0.01),
    ],
)
def test_first_values(name: str, layer: str, expected: float) -> None:
    assert deviation(name, layer) == pytest.approx(expected, rel=0.03)


def test_weights_of_auxiliary_classifiers_may_be_left_out(tmp_path) -> None:
    torch.save(googlenet(num_classes=4).state_dict(), tmp_path / "weights.pth")
    model = googlenet(pretrained=str(tmp_path / "weights.pth"), num_classes=4, aux_logits=False)
    assert model.aux1 is None and model.transform_input  # as the published weights want it
    assert not googlenet(pretrained=str(tmp_path / "weights.pth"), num_classes=4, transform_input=False).transform_input
    assert not googlenet(num_classes=4).transform_input


def test_blocks_and_networks_are_put_together_by_hand() -> None:
    x = torch.randn(2, 64, 8, 8)
    assert BasicBlock(64, 64)(x).shape == x.shape and Bottleneck(64, 16)(x).shape == x.shape
    assert ResNet(
        Bottleneck, [1, 1, 1, 1], num_classes=3, replace_stride_with_dilation=[False, True, True], norm_layer=None
    ).layer4[0].conv2.dilation == (2, 2)
    with pytest.raises(
        ArgumentError,
        match=r"BasicBlock has groups=1, base_width=64 and dilation=1, got 1, 64 and 2; Bottleneck takes others",
    ):
        ResNet(BasicBlock, [2, 2, 2, 2], replace_stride_with_dilation=[False, False, True])
    with torch.device("meta"):
        assert len(VGG(make_layers([64, "M", 512, "M"], batch_norm=True), num_classes=3).features) == 8


BY_NAME = {
    "convnext": "Block ConvNeXt ConvNeXtIsotropic LayerNorm",
    "efficientnet": "SqueezeExcitation MBConvConfig MBConv EfficientNet",
    "mobilenet_v3": "ConvBNActivation SqueezeExcitation InvertedResidualConfig InvertedResidual MobileNetV3",
    "poolformer": "basic_blocks PatchEmbed LayerNormChannel GroupNorm Pooling Mlp PoolFormerBlock PoolFormer",
    "regnet": "SimpleStemIN BottleneckTransform ResBottleneckBlock AnyStage BlockParams RegNet",
    "res_mlp": "Affine layers_scale_mlp_blocks ResMLP",
    "swin_transformer": "to_2tuple drop_path DropPath Mlp WindowAttention SwinTransformerBlock PatchMerging PatchEmbed BasicLayer SwinTransformer",
    "mlp_mixer": "pair Mlp GatedMlp SpatialGatingUnit SpatialGatingBlock MixerBlock MlpMixer",
}


@pytest.mark.parametrize("module", BY_NAME)
def test_what_a_family_is_made_of_has_its_published_name(module: str) -> None:
    found = importlib.import_module(f"flowvision.models.{module}")
    assert all(callable(getattr(found, name)) for name in BY_NAME[module].split())


def test_configs_of_blocks() -> None:
    from flowvision.models.efficientnet import EfficientNet, MBConvConfig
    from flowvision.models.mobilenet_v3 import InvertedResidualConfig, MobileNetV3

    block = InvertedResidualConfig(16, 3, 64, 24, True, "HS", 2, 1, 0.5)
    assert (block.input_channels, block.expanded_channels, block.out_channels, block.use_hs) == (8, 32, 16, True)
    x = torch.randn(2, 3, 32, 32)
    assert MobileNetV3([block], 32, num_classes=3)(x).shape == (2, 3)
    assert MobileNetV3([InvertedResidualConfig(16, 3, 64, 24, True, "RE", 2, 2, 1.0)], 32, num_classes=3).features[1:2](
        torch.zeros(1, 16, 8, 8)
    ).shape == (1, 24, 8, 8)
    assert EfficientNet([MBConvConfig(6, 3, 2, 32, 16, 2, 0.5, 1.5)], 0.1, num_classes=3)(x).shape == (2, 3)


def test_layer_norm_of_both_layouts() -> None:
    from flowvision.models.convnext import LayerNorm

    x = torch.randn(2, 4, 3, 3)
    expected = LayerNorm(4)(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    assert torch.allclose(LayerNorm(4, data_format="channels_first")(x), expected)
    with pytest.raises(ArgumentError, match="data_format is channels_last or channels_first, got 'nchw'"):
        LayerNorm(4, data_format="nchw")


def test_files_of_data_sets_that_are_not_read(tmp_path, monkeypatch) -> None:
    with pytest.raises(AbsentNameError, match="its tables are MATLAB structures. Put meta.bin into"):
        imagenet.parse_devkit_archive(tmp_path)
    (tmp_path / "abc").write_bytes(b"there already")
    utils.download_file_from_google_drive("abc", tmp_path)

    def unreachable(url: str, *_: object) -> None:
        raise OSError(url)

    monkeypatch.setattr(utils, "fetch", unreachable)
    with pytest.raises(MissingDataError, match=r"id=xyz.* cannot be downloaded .*put the file at .*weights"):
        utils.download_file_from_google_drive("xyz", tmp_path, "weights")
    picture = folder.Image.new("RGB", (4, 3), (1, 2, 3))
    picture.save(tmp_path / "a.png")
    assert folder.accimage_loader(str(tmp_path / "a.png")).getpixel((0, 0)) == (1, 2, 3)
