"""The documents say what the code does: programs run, names exist, links lead somewhere."""

from __future__ import annotations

import argparse
import ast
import importlib.util
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

import oneflow as flow
from oneflow.engine.data.cli import VERBS

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
FENCE = re.compile(r"^```python([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MACHINE_PATH = re.compile(r"(?<![\w.:/-])/(?:home|root|work|tmp|usr|opt|mnt|var|etc|Users)/|\b[A-Za-z]:\\\\?\w")
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAME = re.compile(r"\bflow((?:\.[A-Za-z]\w*)+)")


@dataclass(frozen=True)
class Block:
    """A python block of a document; ``line`` is that of its first line."""

    document: Path
    line: int
    text: str
    runnable: bool

    def __str__(self) -> str:
        return f"{self.document.name}:{self.line}"

    def code(self):
        """Compiled so that errors name the document's own line."""
        return compile("\n" * (self.line - 1) + self.text, str(self.document), "exec")


def blocks() -> list[Block]:
    found = []
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for match in FENCE.finditer(text):
            line = text.count("\n", 0, match.start(2)) + 1
            found.append(Block(document, line, match[2], "runnable" in match[1]))
    return found


BLOCKS = blocks()


def make_reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_reference", ROOT / "docs" / "make_reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def in_folder(tmp_path, monkeypatch):
    """Programs that save something do it in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONEFLOW_OFFLINE", "1")


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.runnable and b.document.parent.name == "docs"], ids=str)
def test_runnable_blocks_run(block, in_folder):
    pool_default = flow.compat.pool_default
    try:
        exec(block.code(), {"__name__": "__main__"})
    finally:
        flow.compat.pool_default = pool_default
        flow.summary.close_summary_writer()


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_every_block_is_python(block):
    ast.parse(block.text)


def test_the_program_of_the_readme_learns(tmp_path):
    english, chinese = ([b for b in BLOCKS if b.document.name == name] for name in ("README.md", "README.zh-CN.md"))
    assert [b.text for b in english] == [b.text for b in chinese]
    (tmp_path / "program.py").write_text(english[0].text, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    run = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240
    )
    assert run.returncode == 0, run.stderr
    losses = [float(line.split()[1]) for line in run.stdout.splitlines()]
    assert len(losses) == 5
    assert losses[-1] < 0.3 * losses[0]


def test_the_reference_is_up_to_date():
    maker = make_reference()
    written = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    assert written == maker.reference(), "docs/reference.md is not what the code says: run make reference"


def test_every_public_name_has_a_docstring():
    maker = make_reference()
    names = [
        (f"{space}.{name}", value) for space, module in maker.namespaces() for name, value in maker.entries(module)
    ]
    assert len(names) > 300
    silent = [name for name, value in names if not maker.summary(value, name).strip()]
    assert not silent, f"public names without a docstring, write one where each is defined: {silent}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.name)
def test_no_document_names_a_path_of_a_machine(document):
    found = MACHINE_PATH.findall(document.read_text(encoding="utf-8"))
    assert not found, f"{document.name} names paths of a machine, write them relative: {found}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.name)
def test_links_lead_to_files(document):
    targets = [t.split("#")[0] for t in LINK.findall(document.read_text(encoding="utf-8")) if "://" not in t]
    missing = [target for target in targets if target and not (document.parent / target).exists()]
    assert not missing, f"{document.name} links to files that do not exist: {missing}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.name)
def test_links_within_a_document_lead_to_headings(document):
    text = document.read_text(encoding="utf-8")
    headings = {
        re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }
    missing = [target for target in LINK.findall(text) if target.startswith("#") and target[1:] not in headings]
    assert not missing, f"{document.name} links to headings that it does not have: {missing}"


@pytest.mark.parametrize("verb", VERBS)
def test_every_flag_of_the_data_commands_is_told(verb):
    """A row of the table of verbs names the verb, a row of the table of flags names the flag and, unless it is for all,
    the verb."""
    rows = [
        line.split(" | ")
        for line in (ROOT / "docs" / "data.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| `")
    ]
    assert any(row[0].startswith(f"| `{verb} ") for row in rows), (
        f"{verb} is not in the table of verbs of docs/data.md: add a row"
    )
    parser = argparse.ArgumentParser()
    VERBS[verb].arguments(parser)
    for flag in [
        flag
        for action in parser._actions
        for flag in action.option_strings
        if flag.startswith("--") and flag != "--help"
    ]:
        of = [row[1] for row in rows if re.search(rf"`{flag}\b(?!-)", row[0])]
        told = any(
            verb in names.split(", ") or names == "all" or (names.startswith("all but") and verb not in names)
            for names in of
        )
        assert told or f"{verb} SOURCE OUT {flag}" in "".join(row[0] for row in rows), (
            f"{verb} {flag} is not in docs/data.md: add it to the table of flags"
        )


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.name)
def test_names_in_documents_exist(document):
    missing = []
    for match in NAME.finditer(document.read_text(encoding="utf-8")):
        value = flow
        for part in match[1].strip(".").split("."):
            value = getattr(value, part, None)
            if value is None:
                missing.append(match[0])
                break
    assert not missing, f"{document.name} names what oneflow does not have: {missing}"
