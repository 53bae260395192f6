"""The declared keys of configs: default files, checks and documentation agree with the declaration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

from libai.config import get_config
from libai.config.complete import completed
from libai.config.keys import KEYS, NO_DEFAULT

DOCUMENT = Path(__file__).parents[2] / "docs" / "libai.md"


def keys(tree: Any, path: str = "") -> set[str]:
    return {
        key
        for name, value in tree.items()
        for key in (
            [f"{path}{name}"]
            if not isinstance(value, (dict, DictConfig)) or "_target_" in value
            else keys(value, f"{path}{name}.")
        )
    }


def test_the_default_files_have_every_key_that_has_a_default():
    for namespace, file in (("train", "common/train.py"), ("graph", "common/models/graph.py")):
        declared = {path: key.default for path, key in leaves(KEYS[namespace])}
        assert keys(get_config(file)[namespace]) == {
            path for path, value in declared.items() if value is not NO_DEFAULT
        }


def test_every_default_passes_its_check():
    for namespace in KEYS:
        for path, key in leaves(KEYS[namespace]):
            assert key.default is NO_DEFAULT or key.check(key.default) is None, path


def test_defaults_are_not_shared():
    get_config("common/train.py").train.evaluation.eval_period = 3
    completed({"train": {}}).train.evaluation.evaluator.topk = (9,)
    again = completed({"train": {}}).train.evaluation
    assert again.eval_period == 5000 and again.evaluator.topk == [1, 5]


def leaves(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def cell(default: Any) -> str:
    """A default as the tables of docs/libai.md show it."""
    if default is NO_DEFAULT:
        return ""
    if isinstance(default, dict):
        arguments = ", ".join(f"{name}={value!r}" for name, value in default.items() if name != "_target_")
        return f"`{default['_target_'].rpartition('.')[2]}({arguments})`"
    if default is None or isinstance(default, bool):
        return {None: "null", True: "true", False: "false"}[default]
    return f"{default:g}" if isinstance(default, float) else f'"{default}"' if default == "" else str(default)


@pytest.mark.parametrize("namespace", list(KEYS))
def test_the_documentation_has_a_table_of_the_declared_keys(namespace):
    rows = [f"| `{path}` | {cell(key.default)} | {key.description} |" for path, key in leaves(KEYS[namespace])]
    table = "\n".join([f"## Keys of {namespace}", "", "| key | default | description |", "|---|---|---|", *rows, ""])
    assert f"{table}\n" in DOCUMENT.read_text(encoding="utf-8"), f"docs/libai.md must have this section:\n{table}"
