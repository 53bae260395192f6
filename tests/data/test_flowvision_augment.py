"""AutoAugment, RandAugment, AugMix, Mixup, CutMix, RandomErasing, the usual transforms; losses; meters. By formulas,
and by seed."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from flowvision import data, transforms
from flowvision.data import augment_ops, auto_augment
from flowvision.data.mixup import cutmix_bbox_and_lam, mixup_target, one_hot, rand_bbox_minmax
from flowvision.loss import LabelSmoothingCrossEntropy, SoftTargetCrossEntropy
from flowvision.utils import (
    AverageMeter,
    ModelEma,
    ModelEmaV2,
    accuracy,
    adaptive_clip_grad,
    dispatch_clip_grad,
    make_grid,
    save_image,
)
from oneflow import nn


@pytest.fixture(scope="module")
def picture():
    y, x = np.mgrid[0:32, 0:48]
    return Image.fromarray(np.stack([x * 5, y * 7, (x + y) * 3], -1).astype(np.uint8))


def seeded(call, seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    return [np.asarray(call()).tolist() for _ in range(6)]


MADE = {
    "auto v0": lambda: data.auto_augment_transform("v0-mstd0.5", {}),
    "auto v0r": lambda: data.auto_augment_transform("v0r", {}),
    "auto original": lambda: data.auto_augment_transform("original", {}),
    "auto originalr": lambda: data.auto_augment_transform("originalr", {}),
    "rand": lambda: data.rand_augment_transform("rand-m9-n3-mstd0.5-inc1", {"translate_const": 10}),
    "rand weights": lambda: data.rand_augment_transform("rand-m7-n2-w0", {"interpolation": Image.Resampling.BICUBIC}),
    "augmix": lambda: data.augment_and_mix_transform("augmix-m5-w4-d2", {}),
    "augmix blended": lambda: data.augment_and_mix_transform("augmix-m3-b1-a2.0", {}),
    "train": lambda: data.create_transform(
        (3, 16, 16),
        is_training=True,
        auto_augment="rand-m9-mstd0.5-inc1",
        re_prob=0.9,
        re_mode="pixel",
        interpolation="random",
    ),
    "jitter": lambda: data.create_transform(16, is_training=True, color_jitter=0.4, vflip=0.5),
}


@pytest.mark.parametrize("name", MADE)
def test_a_seed_makes_an_augmentation_repeat(picture, name):
    transform = MADE[name]()
    assert seeded(lambda: transform(picture), 1) == seeded(lambda: transform(picture), 1)
    assert seeded(lambda: transform(picture), 1) != seeded(lambda: transform(picture), 2)


@pytest.mark.parametrize("name", augment_ops.CHANGES)
def test_every_change_keeps_the_size_of_colour_and_grey_pictures(picture, name):
    for img in (picture, picture.convert("L")):
        for magnitude in (0, 5, 10):
            made = auto_augment.AugmentOp(name, prob=1.0, magnitude=magnitude)(img)
            assert made.size == img.size and made.mode == img.mode


def test_magnitudes_become_the_numbers_of_the_papers():
    numbers = {name: augment_ops.CHANGES[name].number(5.0, {}) for name in augment_ops.CHANGES}
    assert {
        name: tuple(map(abs, found))
        for name, found in numbers.items()
        if name in ("Rotate", "ShearX", "TranslateX", "TranslateXRel")
    } == {"Rotate": (15.0,), "ShearX": (0.15,), "TranslateX": (125.0,), "TranslateXRel": (0.225,)}
    assert (numbers["Color"], numbers["Posterize"], numbers["PosterizeIncreasing"], numbers["PosterizeOriginal"]) == (
        (1.0,),
        (2,),
        (2,),
        (6,),
    )
    assert (numbers["Solarize"], numbers["SolarizeIncreasing"], numbers["SolarizeAdd"]) == ((128,), (128,), (55,))
    assert numbers["Sharpness"] == (1.0,) and abs(numbers["SharpnessIncreasing"][0] - 1) == pytest.approx(0.45)
    assert numbers["Invert"] == ()


def test_changes_are_pil_s(picture):
    assert augment_ops.solarize(picture, 100).tobytes() == ImageOps.solarize(picture, 100).tobytes()
    assert (
        augment_ops.posterize(picture, 3).tobytes() == ImageOps.posterize(picture, 3).tobytes()
        and augment_ops.posterize(picture, 8) is picture
    )
    array = np.asarray(picture).astype(int)
    expected = np.where(array < 128, np.minimum(array + 40, 255), array)
    assert np.array_equal(np.asarray(augment_ops.solarize_add(picture, 40)), expected)
    moved = np.asarray(augment_ops.translate_x_abs(picture, 4, resample=Image.Resampling.NEAREST, fillcolor=(1, 2, 3)))
    assert np.array_equal(moved[:, :-4], np.asarray(picture)[:, 4:]) and moved[0, -1].tolist() == [1, 2, 3]


def test_policies_have_25_pairs_and_probabilities_are_kept(picture):
    for name in ("v0", "v0r", "original", "originalr"):
        assert [len(pair) for pair in auto_augment.auto_augment_policy(name)] == [2] * 25
    random.seed(0)
    op = auto_augment.AugmentOp("Invert", prob=0.25)
    assert 200 < sum(op(picture) is not picture for _ in range(1000)) < 300
    assert {
        auto_augment.AugmentOp("Rotate", magnitude=5, hparams={"magnitude_std": math.inf})._drawn_magnitude() > 5
        for _ in range(50)
    } == {False}


def test_a_blend_of_chains_has_their_weights(picture):
    class One:
        def __init__(self, value):
            self.value = value

        def __call__(self, img):
            return Image.new("RGB", img.size, (self.value,) * 3)

    base = Image.new("RGB", (2, 2))
    np.random.seed(3)
    weights, share = np.random.dirichlet([1.0] * 2), None
    for blended in (False, True):
        np.random.seed(3)
        weights, share = np.random.dirichlet([1.0] * 2), np.random.beta(1.0, 1.0)
        drawn = np.random.choice(2, 1, replace=True)[0], np.random.choice(2, 1, replace=True)[0]
        values = [(100, 200)[number] for number in drawn]
        np.random.seed(3)
        made = auto_augment.AugMixAugment([One(100), One(200)], width=2, depth=1, blended=blended)(base)
        assert abs(made.getpixel((0, 0))[0] - share * (weights @ values)) <= 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: data.rand_augment_transform("rand-x9", {}),
            "'rand-x9': 'x9' is no setting; there are mstd, inc, m, n, w",
        ),
        (lambda: data.rand_augment_transform("random-m9", {}), "begins with 'rand', got 'random-m9'"),
        (lambda: data.rand_augment_transform("rand-w3", {}), "one set of weights, w0"),
        (lambda: data.augment_and_mix_transform("mix", {}), "begins with 'augmix'"),
        (lambda: data.auto_augment_transform("v1", {}), "policy is one of .* got 'v1'. Did you mean 'v0"),
        (lambda: auto_augment.AugmentOp("Rotat"), "'Rotat' is no change of a picture; .* Did you mean 'Rotate'"),
        (lambda: data.Mixup(mode="all"), "mode is 'batch', 'pair' or 'elem'"),
        (lambda: data.Mixup(mixup_alpha=0.0), "one of mixup_alpha and cutmix_alpha is above 0"),
        (lambda: data.Mixup()(torch.ones(3, 1, 2, 2), torch.zeros(3)), "a batch of an even size, got 3"),
        (lambda: data.RandomErasing(mode="black"), "mode is 'const', 'rand' or 'pixel', got 'black'"),
        (lambda: data.create_transform(16, separate=True), "separate is for training"),
        (lambda: LabelSmoothingCrossEntropy(1.5), "smoothing is from 0 to below 1"),
        (lambda: SoftTargetCrossEntropy()(torch.ones(2, 3), torch.ones(2)), r"scores are \(2, 3\), labels \(2,\)"),
        (lambda: dispatch_clip_grad([], 1.0, "all"), "mode is 'norm', 'value' or 'agc'"),
    ],
)
def test_mistakes_are_told(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# ----------------------------------------------------------------------------------------------------------------
# Mixup, CutMix


def batch(n=6):
    return torch.arange(n, dtype=torch.float32).reshape(n, 1, 1, 1).repeat(1, 2, 8, 8), torch.arange(n) % 4


def test_labels_are_smoothed_and_mixed():
    assert one_hot(torch.tensor([2, 0]), 3, 0.9, 0.1).tolist() == [
        [pytest.approx(0.1), pytest.approx(0.1), pytest.approx(0.9)],
        [pytest.approx(0.9), pytest.approx(0.1), pytest.approx(0.1)],
    ]
    found = mixup_target(torch.tensor([0, 1]), 4, lam=0.75, smoothing=0.2)
    off, on = 0.05, 0.85
    assert torch.allclose(
        found,
        torch.tensor(
            [
                [0.75 * on + 0.25 * off, 0.75 * off + 0.25 * on, off, off],
                [0.75 * off + 0.25 * on, 0.75 * on + 0.25 * off, off, off],
            ]
        ),
    )


@pytest.mark.parametrize("mode", ["batch", "pair", "elem"])
def test_mixup_blends_with_the_batch_in_reverse(mode):
    np.random.seed(5)
    x, y = batch()
    mixed, target = data.Mixup(mode=mode, label_smoothing=0.0, num_classes=4)(x.clone(), y)
    lam = (mixed - x.flip(0)) / (x - x.flip(0))
    assert torch.allclose(lam, lam[:, :1, :1, :1].expand_as(lam), atol=1e-5)  # all pixels of a picture alike
    own = lam[:, 0, 0, 0]
    assert torch.allclose(
        target, torch.eye(4)[y] * own[:, None] + torch.eye(4)[y.flip(0)] * (1 - own[:, None]), atol=1e-5
    )
    assert len(own.round(decimals=4).unique()) == {"batch": 1, "pair": 3, "elem": 6}[mode]
    if mode == "pair":
        assert torch.allclose(own, own.flip(0), atol=1e-5)


@pytest.mark.parametrize("mode", ["batch", "pair", "elem"])
def test_cutmix_puts_a_box_in_and_counts_its_area(mode):
    np.random.seed(2)
    x, y = batch()
    mixed, target = data.Mixup(mixup_alpha=0.0, cutmix_alpha=1.0, mode=mode, label_smoothing=0.0, num_classes=4)(
        x.clone(), y
    )
    kept = (mixed == x).float().mean((1, 2, 3))
    assert torch.equal(torch.where(mixed == x, x, x.flip(0)), mixed)
    assert torch.allclose(
        target, torch.eye(4)[y] * kept[:, None] + torch.eye(4)[y.flip(0)] * (1 - kept[:, None]), atol=1e-6
    )


def test_probabilities_of_mixing():
    np.random.seed(0)
    x, y = batch()
    assert torch.equal(data.Mixup(prob=0.0, num_classes=4)(x.clone(), y)[0], x)
    off = data.Mixup(num_classes=4)
    off.mixup_enabled = False
    assert torch.equal(off(x.clone(), y)[0], x)
    both = data.Mixup(cutmix_alpha=1.0, switch_prob=0.3, num_classes=4)
    assert 0.2 < np.mean([both._drawn()[1] for _ in range(500)]) < 0.4
    for _ in range(50):
        (top, bottom, left, right), lam = cutmix_bbox_and_lam((1, 20, 30), 0.5, (0.2, 0.6))
        assert (
            4 <= bottom - top < 12
            and 6 <= right - left < 18
            and lam == pytest.approx(1 - (bottom - top) * (right - left) / 600)
        )
        assert 0 <= top and bottom <= 20 and 0 <= left and right <= 30
    assert rand_bbox_minmax((1, 20, 30), (0.2, 0.6), count=3)[0].shape == (3,)


# ---------------------------------------------------------------------------------------------------------------
# RandomErasing


@pytest.mark.parametrize("mode", ["const", "rand", "pixel"])
def test_a_box_is_erased(mode):
    random.seed(1)
    torch.manual_seed(1)
    whole = torch.full((3, 40, 50), 7.0)
    made = data.RandomErasing(1.0, mode=mode)(whole.clone())
    changed = (made != 7).all(0)
    rows, columns = changed.any(1).nonzero().flatten(), changed.any(0).nonzero().flatten()
    box = made[:, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    assert changed.sum() == box[0].numel() and 0.015 < changed.float().mean() < 0.35
    assert len(box.unique()) == {"const": 1, "rand": 3}.get(mode, box.numel())


def test_erasing_by_chance_and_in_parts_of_a_batch():
    random.seed(0)
    erase = data.RandomErasing(0.3)
    assert 220 < sum(bool((erase(torch.ones(1, 8, 8)) == 0).any()) for _ in range(1000)) < 380
    split = data.RandomErasing(1.0, num_splits=2)(torch.ones(4, 1, 20, 20))
    assert (split[:2] == 1).all() and (split[2:] == 0).flatten(1).any(1).all()


# ---------------------------------------------------------------------------------------------------------- the usual
# transforms


def test_the_transform_of_evaluation_by_hand(picture):
    made = data.create_transform((3, 16, 16), crop_pct=0.8, interpolation="bicubic")(picture)
    resized = picture.resize((30, 20), Image.Resampling.BICUBIC).crop((7, 2, 23, 18))
    expected = (
        np.asarray(resized, np.float32).transpose(2, 0, 1) / 255
        - np.float32(data.IMAGENET_DEFAULT_MEAN).reshape(3, 1, 1)
    ) / np.float32(data.IMAGENET_DEFAULT_STD).reshape(3, 1, 1)
    assert np.allclose(made.numpy(), expected, atol=1e-5)
    assert data.create_transform(16, use_prefetcher=True)(picture).dtype == np.uint8


def test_the_parts_of_the_transform_of_training():
    first, second, last = data.create_transform(16, is_training=True, separate=True, re_prob=0.2)
    assert [type(step).__name__ for step in first.transforms] == ["RandomResizedCrop", "RandomHorizontalFlip"]
    assert [type(step).__name__ for step in second.transforms] == ["ColorJitter"]
    assert [type(step).__name__ for step in last.transforms] == ["ToTensor", "Normalize", "RandomErasing"]
    assert [type(step).__name__ for step in data.create_transform(16, is_training=True, no_aug=True).transforms] == [
        "Resize",
        "CenterCrop",
        "ToTensor",
        "Normalize",
    ]
    assert isinstance(
        data.create_transform(16, is_training=True, auto_augment="augmix-m3").transforms[2], data.AugMixAugment
    )
    with pytest.raises(NotImplementedError, match="tf_preprocessing needs TensorFlow"):
        data.create_transform(16, tf_preprocessing=True)


# ----------------------------------------------------------------------------------------------------------- losses and
# utilities


def test_losses_by_their_formulas():
    scores, labels = torch.tensor([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0]]), torch.tensor([1, 0], dtype=torch.int32)
    logs = np.log(np.exp(scores.numpy()) / np.exp(scores.numpy()).sum(1, keepdims=True))
    own = -logs[[0, 1], [1, 0]]
    assert LabelSmoothingCrossEntropy(0.2)(scores, labels).item() == pytest.approx(
        (0.8 * own - 0.2 * logs.mean(1)).mean(), rel=1e-5
    )
    soft = np.array([[0.2, 0.5, 0.3], [0.9, 0.1, 0.0]], np.float32)
    assert SoftTargetCrossEntropy()(scores, torch.from_numpy(soft)).item() == pytest.approx(
        -(soft * logs).sum(1).mean(), rel=1e-5
    )


def test_meters():
    meter = AverageMeter()
    meter.update(2.0, 3)
    meter.update(6.0)
    assert (meter.val, meter.sum, meter.count, meter.avg) == (6.0, 12.0, 4, 3.0)
    scores = torch.tensor([[0.1, 0.9, 0.0], [0.5, 0.2, 0.3], [0.3, 0.3, 0.4]])
    assert [round(float(value), 4) for value in accuracy(scores, torch.tensor([1, 2, 0]), (1, 2, 5))] == [
        33.3333,
        pytest.approx(100.0, abs=34),
        100.0,
    ]


def test_a_model_that_follows():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    ema = ModelEmaV2(model, decay=0.75)
    first = {name: value.clone() for name, value in model.state_dict().items()}
    model(torch.rand(4, 2))
    with torch.no_grad():
        model[0].weight.add_(1.0)
    ema.update(model)
    now = model.state_dict()
    for name, value in ema.module.state_dict().items():
        expected = 0.75 * first[name] + 0.25 * now[name] if value.is_floating_point() else now[name]
        assert torch.allclose(value, expected)
    ema.set(model)
    assert torch.equal(ema(torch.ones(1, 2)), ema.module(torch.ones(1, 2))) and torch.equal(
        ema.module[0].weight, model[0].weight
    )
    assert not ema.module.training and ModelEma is ModelEmaV2


def test_clipping_in_proportion_to_weights():
    weight = torch.tensor([[3.0, 4.0], [0.0, 0.0]], requires_grad=True)
    weight.grad = torch.tensor([[6.0, 8.0], [3.0, 4.0]])
    adaptive_clip_grad(weight, clip_factor=0.1)
    assert torch.allclose(weight.grad, torch.tensor([[0.3, 0.4], [0.00006, 0.00008]]))
    vector = torch.ones(2, requires_grad=True)
    vector.grad = torch.tensor([3.0, 4.0])
    dispatch_clip_grad([vector], 1.0)
    assert vector.grad.norm().item() == pytest.approx(1.0, rel=1e-4)
    dispatch_clip_grad([vector], 0.5, "value")
    assert vector.grad.max() <= 0.5
    dispatch_clip_grad([vector], 0.1, "agc")
    assert vector.grad.norm().item() == pytest.approx(0.1 * math.sqrt(2), rel=1e-4)


def test_pictures_side_by_side(tmp_path):
    grid = make_grid([torch.full((1, 2, 3), float(i)) for i in range(3)], nrow=2, padding=1, pad_value=9)
    assert (
        grid.shape == (3, 7, 9)
        and grid[0, 1, 1] == 0
        and grid[0, 1, 5] == 1
        and grid[0, 4, 1] == 2
        and grid[0, 0, 0] == 9
        and grid[0, 4, 5] == 9
    )
    assert (
        make_grid(torch.tensor([[[[2.0, 4.0]]], [[[0.0, 8.0]]]]), padding=0, normalize=True, scale_each=True).max() == 1
    )
    save_image(torch.ones(3, 4, 5) * 0.5, tmp_path / "x.png")
    assert Image.open(tmp_path / "x.png").getpixel((0, 0)) == (128, 128, 128)
    assert transforms.ToTensor()(Image.open(tmp_path / "x.png")).shape == (3, 4, 5)
