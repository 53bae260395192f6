"""Pipelines: from a config and a folder of weights, from texts and pictures to answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

pytest.importorskip("transformers")
import huggingface_models as hf
import pipeline_projects as projects

import oneflow as flow
from libai.config import LazyCall
from libai.inference.basic import BasePipeline
from libai.inference.image_classification import ImageClassificationPipeline
from libai.inference.text_classification import TextClassificationPipeline
from libai.inference.text_generation import TextGenerationPipeline
from libai.utils import distributed as dist


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with GPT-2's weights as transformers saves them, a vocabulary and a config."""
    return projects.writer(tmp_path_factory.mktemp("writer"))


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return projects.classifier(tmp_path_factory.mktemp("classifier"))


def test_a_text_goes_on(texts: Path) -> None:
    pipeline = TextGenerationPipeline(
        str(texts / "config.py"), 1, 1, 1, model_path=str(texts / "weights"), mode="huggingface", device="cpu"
    )
    found = pipeline("abc", max_new_tokens=6)
    ids = torch.tensor([pipeline.tokenizer.encode("abc")])
    expected = hf.theirs("GPT-2").generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False, pad_token_id=0
    )
    assert found == [{"generated_text": pipeline.tokenizer.decode(expected[0].tolist(), True)}] and found[0][
        "generated_text"
    ].startswith("abc")
    assert pipeline("abc", max_new_tokens=6, num_beams=3, num_return_sequences=2)[0].keys() == {"generated_text"}


def test_several_texts_of_different_lengths(texts: Path) -> None:
    pipeline = TextGenerationPipeline(
        str(texts / "config.py"), model_path=str(texts / "weights"), mode="huggingface", device="cpu", max_new_tokens=5
    )
    alone = [pipeline(text)[0] for text in ("abc", "defgh", "i")]
    assert pipeline(["abc", "defgh", "i"]) == alone == pipeline(["abc", "defgh", "i"], batch_size=2)
    assert len(pipeline("abc", max_new_tokens=1)[0]["generated_text"]) <= len(alone[0]["generated_text"])


def test_weights_of_this_package_and_none(texts: Path, tmp_path: Path) -> None:
    first = TextGenerationPipeline(
        texts / "config.py", model_path=str(texts / "weights"), mode="huggingface", device="cpu", max_new_tokens=5
    )
    flow.save(first.model.state_dict(), tmp_path / "saved" / "model", global_dst_rank=0)
    cfg = first.cfg
    cfg.model.cfg = first.model.cfg
    again = TextGenerationPipeline(cfg, model_path=str(tmp_path / "saved"), device="cpu", max_new_tokens=5)
    assert again("abc") == first("abc")
    drawn = TextGenerationPipeline(texts / "config.py", mode="random", device="cpu")
    assert drawn("abc", max_new_tokens=2)[0]["generated_text"].startswith("abc")
    cfg.model.cfg.pretrained_model_path = str(tmp_path / "saved")
    assert TextGenerationPipeline(cfg, device="cpu", max_new_tokens=5)("abc") == first("abc")


def test_a_text_is_classified(classes: Path) -> None:
    pipeline = TextClassificationPipeline(
        str(classes / "config.py"), 1, 1, 1, model_path=str(classes / "weights"), mode="huggingface", device="cpu"
    )
    ids = torch.tensor([pipeline.tokenizer.encode("a b c")])
    with torch.no_grad():
        scores = hf.theirs("BERT, classifier")(ids).logits.softmax(-1)[0]
    found = pipeline("a b c", return_all_scores=True)
    assert [one["label"] for one in found] == ["Label_0", "Label_1", "Label_2"]
    np.testing.assert_allclose([one["score"] for one in found], scores, atol=1e-5)
    best = pipeline("a b c")
    assert best == max(found, key=lambda one: one["score"])
    both = pipeline(["a b c", "d"])
    assert (
        both[0]["label"] == best["label"]
        and abs(both[0]["score"] - best["score"]) < 1e-5
        and both[1]["label"] == pipeline("d")["label"]
    )
    assert sum(
        one["score"] for one in pipeline("a", return_all_scores=True, function_to_apply="sigmoid")
    ) != pytest.approx(1.0)
    with pytest.raises(ValueError, match="function_to_apply is one of softmax, sigmoid, none, got 'max'"):
        pipeline("a", function_to_apply="max")


class Brightness(flow.nn.Module):
    """Scores by the mean of each colour."""

    def __init__(self, cfg: Any = None) -> None:
        super().__init__()
        self.scale = flow.nn.Parameter(torch.full((3,), 10.0))

    def forward(self, images: Any) -> dict[str, Any]:
        return {"prediction_scores": images.mean((2, 3)) * self.scale}


def test_a_picture_is_classified(tmp_path: Path) -> None:
    from flowvision import transforms

    for name, colour in (("red", (250, 0, 0)), ("blue", (0, 0, 250))):
        Image.new("RGB", (12, 10), colour).save(tmp_path / f"{name}.png")
    (tmp_path / "labels.txt").write_text("red\ngreen\nblue\n")
    transform = LazyCall(transforms.Compose)(
        transforms=[LazyCall(transforms.Resize)(size=(8, 8)), LazyCall(transforms.ToTensor)()]
    )
    cfg = {"model": LazyCall(Brightness)(), "dataloader": {"test": [{"dataset": {"transform": transform}}]}}
    pipeline = ImageClassificationPipeline(cfg, mode="random", device="cpu", labels=str(tmp_path / "labels.txt"))
    found = pipeline(str(tmp_path / "red.png"))
    assert found["label"] == "red" and found["score"] == pytest.approx(1 / (1 + 2 * np.exp(-10 * 250 / 255)), abs=1e-5)
    assert [one["label"] for one in pipeline([tmp_path / "blue.png", Image.open(tmp_path / "red.png")])] == [
        "blue",
        "red",
    ]
    assert len(pipeline(tmp_path / "blue.png", return_all_scores=True)) == 3
    numbers = ImageClassificationPipeline(cfg, mode="random", device="cpu")
    assert numbers(tmp_path / "blue.png")["label"] == "2"
    with pytest.raises(ValueError, match="a picture is the path of one, or a PIL.Image; got int"):
        pipeline(3)
    (tmp_path / "labels.txt").write_text("red\n")
    with pytest.raises(ValueError, match="has 1 lines, and the model has 3 classes"):
        pipeline(tmp_path / "red.png")
    with pytest.raises(ValueError, match=r"the config has no dataloader.test\[0\].dataset.transform"):
        ImageClassificationPipeline({"model": LazyCall(Brightness)()}, mode="random", device="cpu")


def test_a_pipeline_of_ones_own() -> None:
    class Sums(BasePipeline):
        def preprocess(self, numbers: Any, pad: bool = False) -> dict[str, Any]:
            return {"images": self.to_global(torch.tensor(numbers).view(1, 3, 1, 1)), "pad": pad}

        def forward(self, given: Any, factor: float = 1.0) -> dict[str, Any]:
            return {"scores": self.model(given["images"])["prediction_scores"] * factor, "pad": given["pad"]}

        def postprocess(self, found: Any) -> Any:
            return found["scores"].sum().item(), found["pad"]

    pipeline = Sums({"model": LazyCall(Brightness)()}, mode="random", device="cpu", factor=2.0)
    assert pipeline([1.0, 2.0, 3.0]) == (120.0, False) and pipeline([1.0, 2.0, 3.0], factor=1.0, pad=True) == (
        60.0,
        True,
    )
    assert pipeline.tokenizer is None and not pipeline.model.training and dist.get_world_size() == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "torch"}, "mode is one of libai, huggingface, random, got 'torch'"),
        ({"mode": "libai"}, "mode='libai' needs the folder of the weights: give model_path"),
        ({"mode": "huggingface", "model_path": "x"}, "there is no loader of transformers' folders for 'Brightness'"),
    ],
)
def test_weights_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TextGenerationPipeline({"model": LazyCall(Brightness)()}, device="cpu", **changes)


def test_configs_that_lack_something(texts: Path) -> None:
    with pytest.raises(AssertionError, match="has no 'model'; a pipeline needs model = LazyCall"):
        TextGenerationPipeline({"train": {}}, mode="random")
    mute = TextGenerationPipeline({"model": LazyCall(Brightness)()}, mode="random", device="cpu")
    with pytest.raises(ValueError, match="the config has no tokenization.tokenizer"):
        mute("abc")
    mute.tokenizer = TextGenerationPipeline(texts / "config.py", mode="random", device="cpu").tokenizer
    with pytest.raises(ValueError, match=r"Brightness has no generate\(\)"):
        mute("abc")
    with pytest.raises(ValueError, match="a text has no token: ''"):
        mute(["abc", ""])
    assert json.loads((texts / "weights" / "config.json").read_text())["model_type"] == "gpt2"
