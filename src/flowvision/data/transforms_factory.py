"""The usual transforms for training and evaluating networks on ImageNet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from flowvision import transforms
from flowvision.data.auto_augment import augment_and_mix_transform, auto_augment_transform, rand_augment_transform
from flowvision.data.constants import DEFAULT_CROP_PCT, IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from flowvision.data.random_erasing import RandomErasing
from flowvision.transforms.functional import resized_crop
from flowvision.transforms.interpolation import InterpolationMode, str_to_interp_mode, str_to_pil_interp
from oneflow.engine.core.errors import ArgumentError, UnsupportedError

_EITHER = (InterpolationMode.BILINEAR, InterpolationMode.BICUBIC)


class RandomResizedCropAndInterpolation(transforms.RandomResizedCrop):
    """``RandomResizedCrop`` whose way to interpolate is drawn for every picture, between bilinear and bicubic."""

    def forward(self, img: Any) -> Any:
        drawn = _EITHER[int(torch.randint(2, ()))]
        return resized_crop(img, *self.get_params(img, self.scale, self.ratio), self.size, drawn)


def transforms_noaug_train(
    img_size: Any = 224,
    interpolation: str = "bilinear",
    use_prefetcher: bool = False,
    mean: Sequence[float] = IMAGENET_DEFAULT_MEAN,
    std: Sequence[float] = IMAGENET_DEFAULT_STD,
) -> transforms.Compose:
    """Resized and cropped in the middle, nothing at random."""
    mode = str_to_interp_mode("bilinear" if interpolation == "random" else interpolation)
    return transforms.Compose(
        [transforms.Resize(img_size, mode), transforms.CenterCrop(img_size), *_tensors(use_prefetcher, mean, std)]
    )


def transforms_imagenet_train(
    img_size: Any = 224,
    scale: Sequence[float] | None = None,
    ratio: Sequence[float] | None = None,
    hflip: float = 0.5,
    vflip: float = 0.0,
    color_jitter: Any = 0.4,
    auto_augment: str | None = None,
    interpolation: str = "random",
    use_prefetcher: bool = False,
    mean: Sequence[float] = IMAGENET_DEFAULT_MEAN,
    std: Sequence[float] = IMAGENET_DEFAULT_STD,
    re_prob: float = 0.0,
    re_mode: str = "const",
    re_count: int = 1,
    re_num_splits: int = 0,
    separate: bool = False,
) -> Any:
    """A random part, flipped, with other colours or augmented by a text of RandAugment, AugMix or AutoAugment, as a
    tensor, with boxes erased.

    ``separate`` gives three transforms in place of one: what is done to any picture, what augments it, and what makes
    the tensor.
    """
    area, aspect = tuple(scale or (0.08, 1.0)), tuple(ratio or (3.0 / 4.0, 4.0 / 3.0))
    if interpolation == "random":
        first: list[Any] = [RandomResizedCropAndInterpolation(img_size, area, aspect)]
    else:
        first = [transforms.RandomResizedCrop(img_size, area, aspect, str_to_interp_mode(interpolation))]
    first += [transforms.RandomHorizontalFlip(hflip)] if hflip > 0 else []
    first += [transforms.RandomVerticalFlip(vflip)] if vflip > 0 else []
    second = [_augmented(auto_augment, img_size, interpolation, mean)] if auto_augment else _jittered(color_jitter)
    last: list[Any] = _tensors(use_prefetcher, mean, std)
    if re_prob > 0 and not use_prefetcher:
        last.append(RandomErasing(re_prob, mode=re_mode, max_count=re_count, num_splits=re_num_splits))
    if separate:
        return transforms.Compose(first), transforms.Compose(second), transforms.Compose(last)
    return transforms.Compose(first + second + last)


def transforms_imagenet_eval(
    img_size: Any = 224,
    crop_pct: float | None = None,
    interpolation: str = "bilinear",
    use_prefetcher: bool = False,
    mean: Sequence[float] = IMAGENET_DEFAULT_MEAN,
    std: Sequence[float] = IMAGENET_DEFAULT_STD,
) -> transforms.Compose:
    """Resized so that the middle is ``crop_pct`` (0.875) of it, and that cropped."""
    share = crop_pct or DEFAULT_CROP_PCT
    if isinstance(img_size, (tuple, list)):
        resized: Any = (
            math.floor(img_size[0] / share)
            if img_size[0] == img_size[-1]
            else tuple(math.floor(side / share) for side in img_size)
        )
    else:
        resized = math.floor(img_size / share)
    return transforms.Compose(
        [
            transforms.Resize(resized, str_to_interp_mode(interpolation)),
            transforms.CenterCrop(img_size),
            *_tensors(use_prefetcher, mean, std),
        ]
    )


def create_transform(
    input_size: Any,
    is_training: bool = False,
    use_prefetcher: bool = False,
    no_aug: bool = False,
    scale: Sequence[float] | None = None,
    ratio: Sequence[float] | None = None,
    hflip: float = 0.5,
    vflip: float = 0.0,
    color_jitter: Any = 0.4,
    auto_augment: str | None = None,
    interpolation: str = "bilinear",
    mean: Sequence[float] = IMAGENET_DEFAULT_MEAN,
    std: Sequence[float] = IMAGENET_DEFAULT_STD,
    re_prob: float = 0.0,
    re_mode: str = "const",
    re_count: int = 1,
    re_num_splits: int = 0,
    crop_pct: float | None = None,
    tf_preprocessing: bool = False,
    separate: bool = False,
) -> Any:
    """The transform for training or evaluation on pictures of ``input_size``: (channels, height, width), (height,
    width) or one number."""
    if tf_preprocessing:
        raise UnsupportedError("tf_preprocessing needs TensorFlow; leave it out, and PIL does the work")
    size = tuple(input_size[-2:]) if isinstance(input_size, (tuple, list)) else input_size
    if not is_training:
        if separate:
            raise ArgumentError("separate is for training")
        return transforms_imagenet_eval(size, crop_pct, interpolation, use_prefetcher, mean, std)
    if no_aug:
        return transforms_noaug_train(size, interpolation, use_prefetcher, mean, std)
    return transforms_imagenet_train(
        size,
        scale,
        ratio,
        hflip,
        vflip,
        color_jitter,
        auto_augment,
        interpolation,
        use_prefetcher,
        mean,
        std,
        re_prob,
        re_mode,
        re_count,
        re_num_splits,
        separate,
    )


def _tensors(use_prefetcher: bool, mean: Sequence[float], std: Sequence[float]) -> list[Any]:
    """With a prefetcher pictures stay uint8 arrays: it makes the tensors, a batch at a time."""
    return (
        [transforms.ToNumpy()]
        if use_prefetcher
        else [transforms.ToTensor(), transforms.Normalize(tuple(mean), tuple(std))]
    )


def _jittered(color_jitter: Any) -> list[Any]:
    if not color_jitter:
        return []
    factors = tuple(color_jitter) if isinstance(color_jitter, (tuple, list)) else (float(color_jitter),) * 3
    return [transforms.ColorJitter(*factors)]


def _augmented(text: str, img_size: Any, interpolation: str, mean: Sequence[float]) -> Any:
    shorter = min(img_size) if isinstance(img_size, (tuple, list)) else img_size
    hparams: dict[str, Any] = {
        "translate_const": int(shorter * 0.45),
        "img_mean": tuple(min(255, round(255 * value)) for value in mean),
    }
    if interpolation != "random":
        hparams["interpolation"] = str_to_pil_interp(interpolation)
    if text.startswith("rand"):
        return rand_augment_transform(text, hparams)
    if text.startswith("augmix"):
        return augment_and_mix_transform(text, {**hparams, "translate_pct": 0.3})
    return auto_augment_transform(text, hparams)
