"""Without the packages of the extras, jobs work, and everything else names the extra to install."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OPTIONAL = (
    *("PIL", "simplejpeg", "safetensors", "omegaconf", "hydra", "yaml", "tensorboard"),
    *("tokenizers", "sentencepiece", "jieba", "onnx", "onnxruntime", "matplotlib", "ray", "transformers"),
)

# Nothing is found, as where a package is not installed: an error of the finder itself would also stop those who only ask.
BLOCKER = """
import sys
from importlib.machinery import PathFinder

class WithoutPackages(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {blocked!r} else PathFinder.find_spec(name, path, target)

sys.meta_path[:] = [WithoutPackages if finder is PathFinder else finder for finder in sys.meta_path]
"""


def run(program: str, *blocked: str) -> subprocess.CompletedProcess[str]:
    """Runs a program as if some packages were not installed."""
    code = BLOCKER.format(blocked=set(blocked)) + textwrap.dedent(program)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=200, env=environment, check=False
    )


def test_jobs_and_graphs_need_no_extra() -> None:
    done = run(
        """
        import numpy as np
        import oneflow as flow
        import oneflow.typing as tp

        @flow.global_function(type="train")
        def train(x: tp.Numpy.Placeholder((8, 4))) -> tp.Numpy:
            loss = flow.math.square(flow.layers.dense(x, 3, name="dense"))
            flow.optimizer.SGD(flow.optimizer.ConstantScheduler(0.1)).minimize(loss)
            return loss

        first, *_, last = [train(np.ones((8, 4), np.float32)).mean() for _ in range(5)]
        assert last <= first
        from oneflow.engine.data.cli import VERBS
        from oneflow.doctor import report
        text = report()
        assert "verdict: all good" in text, text
        print("done")
        """,
        *OPTIONAL,
    )
    assert done.stdout == "done\n", done.stderr


@pytest.mark.parametrize(
    ("program", "blocked", "message"),
    [
        ("import flowvision", "PIL", "flowvision needs the package 'PIL', which is not installed: {vision}"),
        (
            "from oneflow.engine.data.image import decode; decode(b'\\xff\\xd8\\xff\\xe0' + bytes(100))",
            "simplejpeg",
            "decoding images needs the package 'simplejpeg', which is not installed: {vision}",
        ),
        (
            "from oneflow.engine.data.image import decode; decode(b'GIF89a' + bytes(100))",
            "PIL",
            "decoding images needs the package 'PIL', which is not installed: {vision}",
        ),
        (
            "from libai.config import LazyConfig",
            "omegaconf hydra yaml",
            "libai needs the packages 'omegaconf', 'hydra', 'yaml', which are not installed: {libai}",
        ),
        ("import fastnn.train", "yaml", "fastnn needs the package 'yaml', which is not installed: {libai}"),
        (
            "from libai.tokenizer.tokenization_bert import BasicTokenizer; BasicTokenizer()",
            "tokenizers sentencepiece",
            "BertTokenizer needs the package 'tokenizers', which is not installed: {text}",
        ),
        (
            "from libai.tokenizer import tokenization_t5; tokenization_t5.sentencepiece.SentencePieceProcessor()",
            "tokenizers sentencepiece",
            "T5Tokenizer needs the package 'sentencepiece', which is not installed: {text}",
        ),
        (
            "import oneflow as flow; flow.summary.create_summary_writer('no_folder')",
            "tensorboard",
            "flow.summary needs the package 'tensorboard', which is not installed: {tensorboard}",
        ),
        (
            "from libai.utils.events import TensorboardXWriter; TensorboardXWriter('no_folder')",
            "tensorboard",
            "TensorboardXWriter needs the package 'tensorboard', which is not installed: {libai}",
        ),
    ],
)
def test_the_error_names_the_extra(program: str, blocked: str, message: str) -> None:
    done = run(program, *blocked.split())
    extras = {name: f"pip install 'oneflow-torch[{name}]'" for name in ("vision", "libai", "text", "tensorboard")}
    assert done.returncode == 1
    assert message.format(**extras) in done.stderr.strip().splitlines()[-1]
    assert "MissingPackageError" in done.stderr


def test_a_trainer_needs_no_tokenizers() -> None:
    done = run("import libai.engine, libai.models, libai.data; print('done')", "tokenizers", "sentencepiece", "jieba")
    assert done.stdout == "done\n", done.stderr
