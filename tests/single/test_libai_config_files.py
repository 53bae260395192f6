"""The config files that come with libai: the published paths are there, and each is one that a run can start from."""

from __future__ import annotations

from pathlib import Path

import pytest

import libai
from libai.config import get_config

FOLDER = Path(libai.__file__).parent / "configs"
RUNS = """bert_classification bert_large_pretrain gpt2_pretrain llama_pretrain resmlp_imagenet roberta_pretrain swin_cifar100 swin_imagenet
    swinv2_cifar100 swinv2_imagenet t5_large_pretrain vit_imagenet""".split()
COMMON = "data/bert_dataset data/cifar100 data/gpt_dataset data/imagenet data/roberta_dataset data/t5_dataset models/graph optim train".split()


def test_the_published_paths_are_there():
    assert sorted(file.stem for file in FOLDER.glob("*.py")) == sorted(RUNS)
    assert all((FOLDER / "common" / f"{name}.py").is_file() for name in COMMON)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_has_a_model_an_optimizer_and_a_graph(name: str) -> None:
    found = get_config(f"{name}.py")
    assert {"model", "optim", "graph", "train"} <= vars(found).keys() | set(dir(found))
    assert found.train.output_dir and found.model["_target_"] is not None


def test_the_root_of_the_repository_leads_to_them():
    link = Path(__file__).parents[2] / "configs"
    assert link.is_symlink() and link.resolve() == FOLDER.resolve()
