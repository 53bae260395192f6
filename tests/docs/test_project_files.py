"""The files around the code: changelog, citation, workflows and templates."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import oneflow

ROOT = Path(__file__).resolve().parents[2]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
YAML_FILES = sorted([*ROOT.glob(".github/**/*.yml"), ROOT / ".pre-commit-config.yaml", ROOT / "CITATION.cff"])


def parsed(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def test_the_changelog_begins_with_what_is_unreleased_and_has_this_version() -> None:
    headings = re.findall(r"^## (.*)$", CHANGELOG, re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", heading) for heading in headings[1:])
    assert headings[1].startswith(f"[{oneflow.__version__}] ")


def test_the_changelog_has_one_line_per_entry_under_its_kind() -> None:
    for version in CHANGELOG.split("\n## ")[1:]:
        kinds = re.findall(r"^### (.*)$", version, re.MULTILINE)
        assert set(kinds) <= KINDS and len(kinds) == len(set(kinds)), version.splitlines()[0]
        for part in version.split("\n### ")[1:]:
            wrong = [line for line in part.splitlines()[1:] if line and not line.startswith("- ")]
            assert not wrong, f"an entry is one line that begins with '- ': {wrong}"


def test_the_citation_has_this_version() -> None:
    assert parsed("CITATION.cff")["version"] == oneflow.__version__


@pytest.mark.parametrize("path", YAML_FILES, ids=lambda path: path.name)
def test_every_yaml_file_is_valid(path: Path) -> None:
    assert yaml.safe_load(path.read_text(encoding="utf-8"))


def test_workflows_run_what_developers_run() -> None:
    steps = parsed(".github/workflows/ci.yml")["jobs"]["check"]["steps"]
    assert ".ci/run" in [step.get("run") for step in steps]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_hooks_take_their_tools_from_the_environment() -> None:
    (repository,) = parsed(".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    assert {hook["language"] for hook in repository["hooks"]} == {"system"}
