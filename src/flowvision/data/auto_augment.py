"""AutoAugment, RandAugment and AugMix on PIL pictures. They draw from Python's ``random``, AugMix also from numpy's:
seed both to have them repeat."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from flowvision.data.augment_ops import (
    CHANGES,
    MAX_LEVEL,
    auto_contrast,
    brightness,
    color,
    contrast,
    equalize,
    invert,
    posterize,
    rotate,
    sharpness,
    shear_x,
    shear_y,
    solarize,
    solarize_add,
    translate_x_abs,
    translate_x_rel,
    translate_y_abs,
    translate_y_rel,
)
from oneflow.engine.core.errors import ArgumentError, nearest

__all__ = [
    "AugMixAugment",
    "AugmentOp",
    "AutoAugment",
    "RandAugment",
    "augment_and_mix_transform",
    "augmix_ops",
    "auto_augment_policy",
    "auto_augment_policy_original",
    "auto_augment_policy_originalr",
    "auto_augment_policy_v0",
    "auto_augment_policy_v0r",
    "auto_augment_transform",
    "auto_contrast",
    "brightness",
    "color",
    "contrast",
    "equalize",
    "invert",
    "posterize",
    "rand_augment_ops",
    "rand_augment_transform",
    "rotate",
    "sharpness",
    "shear_x",
    "shear_y",
    "solarize",
    "solarize_add",
    "translate_x_abs",
    "translate_x_rel",
    "translate_y_abs",
    "translate_y_rel",
]

_FILL = (128, 128, 128)
_RAND = (
    "AutoContrast Equalize Invert Rotate Posterize Solarize SolarizeAdd Color Contrast Brightness Sharpness ShearX "
    "ShearY TranslateXRel TranslateYRel"
).split()
_RISING = {
    name: f"{name}Increasing" for name in ("Posterize", "Solarize", "Color", "Contrast", "Brightness", "Sharpness")
}
_RAND_RISING = [_RISING.get(name, name) for name in _RAND]
_WEIGHTS = {
    "Rotate": 0.3, "ShearX": 0.2, "ShearY": 0.2, "TranslateXRel": 0.1, "TranslateYRel": 0.1, "Color": 0.025, "Sharpness": 0.025, "AutoContrast": 0.025,
    "Solarize": 0.005, "SolarizeAdd": 0.005, "Contrast": 0.005, "Brightness": 0.005, "Equalize": 0.005, "Posterize": 0.0, "Invert": 0.0,
}  # fmt: skip
_AUGMIX = (
    "AutoContrast ColorIncreasing ContrastIncreasing BrightnessIncreasing SharpnessIncreasing Equalize Rotate "
    "PosterizeIncreasing SolarizeIncreasing "
    "ShearX ShearY TranslateXRel TranslateYRel"
).split()
# The published policies: two changes each, with probability and magnitude.
_V0 = """
    Equalize 0.8 1 ShearY 0.8 4; Color 0.4 9 Equalize 0.6 3; Color 0.4 1 Rotate 0.6 8; Solarize 0.8 3 Equalize 0.4 7; Solarize 0.4 2 Solarize 0.6 2;
    Color 0.2 0 Equalize 0.8 8; Equalize 0.4 8 SolarizeAdd 0.8 3; ShearX 0.2 9 Rotate 0.6 8; Color 0.6 1 Equalize 1.0 2; Invert 0.4 9 Rotate 0.6 0;
    Equalize 1.0 9 ShearY 0.6 3; Color 0.4 7 Equalize 0.6 0; Posterize 0.4 6 AutoContrast 0.4 7; Solarize 0.6 8 Color 0.6 9; Solarize 0.2 4 Rotate 0.8 9;
    Rotate 1.0 7 TranslateYRel 0.8 9; ShearX 0.0 0 Solarize 0.8 4; ShearY 0.8 0 Color 0.6 4; Color 1.0 0 Rotate 0.6 2; Equalize 0.8 4 Equalize 0.0 8;
    Equalize 1.0 4 AutoContrast 0.6 2; ShearY 0.4 7 SolarizeAdd 0.6 7; Posterize 0.8 2 Solarize 0.6 10; Solarize 0.6 8 Equalize 0.6 1; Color 0.8 6 Rotate 0.4 5
"""
_ORIGINAL = """
    PosterizeOriginal 0.4 8 Rotate 0.6 9; Solarize 0.6 5 AutoContrast 0.6 5; Equalize 0.8 8 Equalize 0.6 3; PosterizeOriginal 0.6 7 PosterizeOriginal 0.6 6;
    Equalize 0.4 7 Solarize 0.2 4; Equalize 0.4 4 Rotate 0.8 8; Solarize 0.6 3 Equalize 0.6 7; PosterizeOriginal 0.8 5 Equalize 1.0 2;
    Rotate 0.2 3 Solarize 0.6 8; Equalize 0.6 8 PosterizeOriginal 0.4 6; Rotate 0.8 8 Color 0.4 0; Rotate 0.4 9 Equalize 0.6 2; Equalize 0.0 7 Equalize 0.8 8;
    Invert 0.6 4 Equalize 1.0 8; Color 0.6 4 Contrast 1.0 8; Rotate 0.8 8 Color 1.0 2; Color 0.8 8 Solarize 0.8 7; Sharpness 0.4 7 Invert 0.6 8;
    ShearX 0.6 5 Equalize 1.0 9; Color 0.4 0 Equalize 0.6 3; Equalize 0.4 7 Solarize 0.2 4; Solarize 0.6 5 AutoContrast 0.6 5; Invert 0.6 4 Equalize 1.0 8;
    Color 0.6 4 Contrast 1.0 8; Equalize 0.8 8 Equalize 0.6 3
"""


class AugmentOp:
    """One change with a probability and a magnitude from 0 to 10. ``hparams``: "magnitude_std" draws the magnitude
    about it (inf: anywhere below it); "img_mean" is the colour of what comes in from outside; "interpolation" how it is
    turned; "translate_const", "translate_pct" how far it is moved."""

    def __init__(
        self, name: str, prob: float = 0.5, magnitude: float = 10, hparams: dict[str, Any] | None = None
    ) -> None:
        if name not in CHANGES:
            raise ArgumentError(
                f"{name!r} is no change of a picture; there are {', '.join(CHANGES)}.{nearest(name, CHANGES)}"
            )
        self.name, self.prob, self.magnitude = name, prob, magnitude
        self.hparams = dict(hparams or {})
        self.magnitude_std = self.hparams.get("magnitude_std", 0)
        self._settings: dict[str, Any] = {"fillcolor": self.hparams.get("img_mean", _FILL)}
        if "interpolation" in self.hparams:
            self._settings["resample"] = self.hparams["interpolation"]

    def __call__(self, img: Image.Image) -> Image.Image:
        if self.prob < 1.0 and random.random() > self.prob:
            return img
        change = CHANGES[self.name]
        numbers = change.number(self._drawn_magnitude(), self.hparams)
        return change.apply(img, *numbers, **self._of(img))

    def _of(self, img: Image.Image) -> dict[str, Any]:
        """The settings as they are for this picture: a grey one is filled with the first value."""
        fill = self._settings["fillcolor"]
        return (
            self._settings
            if img.mode == "RGB" or not isinstance(fill, tuple)
            else {**self._settings, "fillcolor": fill[0]}
        )

    def _drawn_magnitude(self) -> float:
        magnitude = self.magnitude
        if self.magnitude_std == float("inf"):
            magnitude = random.uniform(0, magnitude)
        elif self.magnitude_std > 0:
            magnitude = random.gauss(magnitude, self.magnitude_std)
        return min(MAX_LEVEL, max(0.0, magnitude))


def auto_augment_policy_v0(hparams: dict[str, Any]) -> list[list[AugmentOp]]:
    """The policy that was published with EfficientNet."""
    return _policy(_V0, hparams)


def auto_augment_policy_v0r(hparams: dict[str, Any]) -> list[list[AugmentOp]]:
    """``v0``, with a posterize that is stronger for higher magnitudes."""
    return _policy(_V0.replace("Posterize ", "PosterizeIncreasing "), hparams)


def auto_augment_policy_original(hparams: dict[str, Any]) -> list[list[AugmentOp]]:
    """The policy for ImageNet of the paper."""
    return _policy(_ORIGINAL, hparams)


def auto_augment_policy_originalr(hparams: dict[str, Any]) -> list[list[AugmentOp]]:
    """``original``, with a posterize that is stronger for higher magnitudes."""
    return _policy(_ORIGINAL.replace("PosterizeOriginal", "PosterizeIncreasing"), hparams)


_POLICIES = {
    "v0": auto_augment_policy_v0,
    "v0r": auto_augment_policy_v0r,
    "original": auto_augment_policy_original,
    "originalr": auto_augment_policy_originalr,
}


def auto_augment_policy(name: str = "v0", hparams: dict[str, Any] | None = None) -> list[list[AugmentOp]]:
    """A policy by name: "v0", "v0r", "original" or "originalr"."""
    _require_policy(name)
    return _POLICIES[name](hparams or {})


def _require_policy(name: str) -> None:
    if name not in _POLICIES:
        raise ArgumentError(
            f"an AutoAugment policy is one of {list(_POLICIES)}, got {name!r}.{nearest(name, _POLICIES)}"
        )


class AutoAugment:
    """One of the pairs of a policy, drawn for every picture."""

    def __init__(self, policy: Sequence[Sequence[AugmentOp]]) -> None:
        self.policy = policy

    def __call__(self, img: Image.Image) -> Image.Image:
        for op in random.choice(self.policy):
            img = op(img)
        return img


def auto_augment_transform(config_str: str, hparams: dict[str, Any]) -> AutoAugment:
    """``AutoAugment`` by a text such as "original-mstd0.5"."""
    _require_policy(config_str.split("-")[0])
    name, settings = _parsed(config_str, {"mstd": float})
    return AutoAugment(auto_augment_policy(name, _with_std(hparams, settings)))


def rand_augment_ops(
    magnitude: float = 10, hparams: dict[str, Any] | None = None, transforms: Sequence[str] | None = None
) -> list[AugmentOp]:
    """The changes of RandAugment with one magnitude, each done with probability 0.5."""
    return [AugmentOp(name, prob=0.5, magnitude=magnitude, hparams=hparams) for name in transforms or _RAND]


class RandAugment:
    """``num_layers`` of the changes, drawn for every picture: with ``choice_weights`` by these, no change twice."""

    def __init__(
        self, ops: Sequence[AugmentOp], num_layers: int = 2, choice_weights: Sequence[float] | None = None
    ) -> None:
        self.ops, self.num_layers, self.choice_weights = list(ops), num_layers, choice_weights

    def __call__(self, img: Image.Image) -> Image.Image:
        for number in self._drawn():
            img = self.ops[number](img)
        return img

    def _drawn(self) -> list[int]:
        if self.choice_weights is None:
            return [random.randrange(len(self.ops)) for _ in range(self.num_layers)]
        return np.random.choice(len(self.ops), self.num_layers, replace=False, p=self.choice_weights).tolist()


def rand_augment_transform(config_str: str, hparams: dict[str, Any]) -> RandAugment:
    """``RandAugment`` by a text such as "rand-m9-n3-mstd0.5-inc1": m magnitude, n changes, mstd deviation, inc1 changes
    that are stronger for higher magnitudes, w0 draws by weights."""
    name, settings = _parsed(config_str, {"mstd": float, "inc": int, "m": float, "n": int, "w": int})
    if name != "rand":
        raise ArgumentError(f"the text of RandAugment begins with 'rand', got {config_str!r}")
    names = _RAND_RISING if settings.get("inc") else _RAND
    weights = None
    if "w" in settings:
        if settings["w"] != 0:
            raise ArgumentError(f"there is one set of weights, w0, got {config_str!r}")
        plain = [_WEIGHTS[name.removesuffix("Increasing")] for name in names]
        weights = [weight / sum(plain) for weight in plain]
    ops = rand_augment_ops(settings.get("m", MAX_LEVEL), _with_std(hparams, settings), names)
    return RandAugment(ops, settings.get("n", 2), weights)


def augmix_ops(
    magnitude: float = 10, hparams: dict[str, Any] | None = None, transforms: Sequence[str] | None = None
) -> list[AugmentOp]:
    """The changes of AugMix with one magnitude, each always done."""
    return [AugmentOp(name, prob=1.0, magnitude=magnitude, hparams=hparams) for name in transforms or _AUGMIX]


class AugMixAugment:
    """The picture mixed with ``width`` chains of ``depth`` changes (below 1: one to three), by weights drawn with
    ``alpha``. ``blended`` mixes one chain after the other into the picture, in place of adding them up in floats."""

    def __init__(
        self, ops: Sequence[AugmentOp], alpha: float = 1.0, width: int = 3, depth: int = -1, blended: bool = False
    ) -> None:
        self.ops, self.alpha, self.width, self.depth, self.blended = list(ops), alpha, width, depth, blended

    def __call__(self, img: Image.Image) -> Image.Image:
        weights = np.float32(np.random.dirichlet([self.alpha] * self.width))
        share = np.float32(np.random.beta(self.alpha, self.alpha))
        chains = [self._chain(img) for _ in range(self.width)]
        return self._blended(img, chains, weights, share) if self.blended else self._summed(img, chains, weights, share)

    def _chain(self, img: Image.Image) -> Image.Image:
        depth = self.depth if self.depth > 0 else random.randint(1, 3)
        for number in np.random.choice(len(self.ops), depth, replace=True):
            img = self.ops[number](img)
        return img

    def _summed(self, img: Image.Image, chains: list[Image.Image], weights: Any, share: Any) -> Image.Image:
        mixed = sum(weight * np.asarray(chain, np.float32) for weight, chain in zip(weights, chains))
        whole = (1 - share) * np.asarray(img, np.float32) + share * mixed
        return Image.fromarray(whole.clip(0, 255).astype(np.uint8))

    def _blended(self, img: Image.Image, chains: list[Image.Image], weights: Any, share: Any) -> Image.Image:
        """Each chain gets the share of what is already there at which all end with their own weights."""
        made, there = img, 1 - share
        for weight, chain in zip(weights * share, chains):
            there += weight
            made = Image.blend(made, chain, float(weight / there)) if there > 0 else chain
        return made


def augment_and_mix_transform(config_str: str, hparams: dict[str, Any]) -> AugMixAugment:
    """``AugMixAugment`` by a text such as "augmix-m5-w4-d2": m magnitude, w width, d depth, a alpha, b1 blended, mstd
    deviation."""
    name, settings = _parsed(config_str, {"mstd": float, "m": float, "w": int, "d": int, "a": float, "b": int})
    if name != "augmix":
        raise ArgumentError(f"the text of AugMix begins with 'augmix', got {config_str!r}")
    with_std = {"magnitude_std": float("inf"), **_with_std(hparams, settings)}
    ops = augmix_ops(settings.get("m", 3), with_std)
    return AugMixAugment(
        ops, settings.get("a", 1.0), settings.get("w", 3), settings.get("d", -1), bool(settings.get("b", 0))
    )


def _policy(text: str, hparams: dict[str, Any]) -> list[list[AugmentOp]]:
    def ops(words: list[str]) -> list[AugmentOp]:
        return [AugmentOp(words[i], float(words[i + 1]), int(words[i + 2]), hparams) for i in (0, 3)]

    return [ops(pair.split()) for pair in text.split(";")]


def _parsed(config: str, kinds: dict[str, type]) -> tuple[str, dict[str, Any]]:
    """The first word of a text and its settings: letters with a number each."""
    name, *words = config.split("-")
    settings = {}
    for word in words:
        found = re.fullmatch(r"([a-z]+)(inf|[\d.]+)", word)
        if found is None or found[1] not in kinds:
            raise ArgumentError(
                f"{config!r}: {word!r} is no setting; there are {', '.join(kinds)}, each with a number behind it"
            )
        settings[found[1]] = kinds[found[1]](found[2])
    return name, settings


def _with_std(hparams: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    return {**hparams, "magnitude_std": settings["mstd"]} if "mstd" in settings else dict(hparams)
