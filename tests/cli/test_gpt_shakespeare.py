"""The example of a GPT that learns a text: it learns, is evaluated, writes, and goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from peers import free_port
from warm_python import WARM

from libai.data.data_utils import get_indexed_dataset
from libai.tokenizer import GPT2Tokenizer

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "gpt_shakespeare"
SMALL = (
    "text.vocab_size=300", "text.folder=tokens", "model.cfg.hidden_layers=2", "model.cfg.hidden_size=32", "model.cfg.ffn_hidden_size=64", "train.log_period=1",
    "train.evaluation.eval_period=20", "train.evaluation.eval_iter=2", "dataloader.train.dataset.0.max_seq_length=64", "train.output_dir=out",
)  # fmt: skip


def run(
    folder: Path, *arguments: str, status: int = 0, launcher: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [*(launcher or WARM.command()), str(EXAMPLE / "main.py"), *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == status, done.stdout[-2000:] + done.stderr[-3000:]
    return done


@pytest.mark.slow
def test_a_gpt_learns_a_text_writes_and_goes_on(tmp_path):
    done = run(tmp_path, *SMALL, "train.train_iter=40")
    lines = [json.loads(line) for line in (tmp_path / "out" / "metrics.json").read_text().splitlines()]
    losses = [line["total_loss"] for line in lines if "total_loss" in line]
    assert len(losses) == 40 and losses[0] > 5.5 > 5.1 > losses[-1]
    heldout = [line["lm_loss_PPL"] for line in lines if "lm_loss_PPL" in line]
    assert len(heldout) == 2 and heldout[1] < heldout[0]
    samples = done.stdout.split("----\n")[1:]
    assert len(samples) == 2 and samples[0] != samples[1] and all(len(sample) > 100 for sample in samples)
    tokenizer, tokens = (
        GPT2Tokenizer.from_pretrained(tmp_path / "tokens"),
        get_indexed_dataset(str(tmp_path / "tokens" / "text_document"), "mmap", True),
    )
    assert len(tokenizer) == 300 and len(tokens) == 6
    assert "".join(tokenizer.decode(one) for one in tokens[:]).strip() == (EXAMPLE / "sonnets.txt").read_text().strip()
    two = tmp_path / "two"
    two.mkdir()
    launcher = (
        sys.executable,
        "-m",
        "oneflow.distributed.launch",
        "--nproc_per_node",
        "2",
        "--master_port",
        str(free_port()),
    )
    shared = run(
        two,
        *SMALL,
        "train.train_iter=40",
        "train.train_micro_batch_size=8",
        "train.test_micro_batch_size=8",
        launcher=launcher,
    )
    assert shared.stdout.split("----\n")[1:] == samples  # two ranks learn and write the same
    told = [json.loads(line) for line in (two / "out" / "metrics.json").read_text().splitlines()]
    assert [line["total_loss"] for line in told if "total_loss" in line] == pytest.approx(losses, rel=1e-5)
    written = (tmp_path / "tokens" / "text_document.bin").stat().st_mtime_ns
    done = run(tmp_path, "--resume", *SMALL, "train.train_iter=42")
    assert "iteration: 41/42" in done.stdout and "iteration: 39/42" not in done.stdout
    assert (
        tmp_path / "tokens" / "text_document.bin"
    ).stat().st_mtime_ns == written  # the vocabulary that it has learned with stays


def test_a_text_that_is_not_there_is_said(tmp_path):
    done = run(tmp_path, *SMALL, "text.file=nothing.txt", status=1)
    assert done.stderr == "text.file: there is no file 'nothing.txt'; leave it out, and the sonnets are read\n"
