"""Laws of weights and of generation on several ranks: loaded, exported and written as by one process, which is
``transformers``."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import huggingface_models as hf
import pipeline_projects as projects
import safetensors.torch
import torch
from global_rank import RANK, SIZE
from libai_runs import shared_folder
from libai_small_models import SMALL

import oneflow as flow
from libai.config import LazyCall
from libai.inference.text_classification import TextClassificationPipeline
from libai.inference.text_generation import TextGenerationPipeline
from libai.models import build_model
from libai.models.utils import export_to_huggingface
from libai.onnx_export import export, export_to_onnx
from libai.utils import distributed as dist

PROMPTS = torch.randint(8, hf.WORDS, (2, 5), generator=torch.Generator().manual_seed(2))


@contextmanager
def saved(*names: str) -> Iterator[Path]:
    """A folder with folders of these kinds, as transformers saves them."""
    root = Path(shared_folder())
    try:
        if RANK == 0:
            for name in names:
                hf.save(hf.theirs(name), root / name)
        dist.synchronize()
        yield root
    finally:
        dist.synchronize()
        if RANK == 0:
            shutil.rmtree(root)


def _spread(value: torch.Tensor) -> Any:
    return value.to_global(dist.get_layer_placement(0), dist.get_nd_sbp([flow.sbp.broadcast, flow.sbp.broadcast]))


def _same_both_ways(*names: str) -> None:
    with saved(*names) as root:
        for name in names:
            kind, inputs = hf.KINDS[name], hf.KINDS[name].inputs()
            model = hf.ours(name, root / name)
            whole = {key: _spread(value) for key, value in inputs.items()}
            with torch.no_grad():
                found, expected = kind.our_scores(model, whole), kind.their_scores(hf.theirs(name), inputs)
            for mine, other in zip(
                found if isinstance(found, tuple) else (found,),
                expected if isinstance(expected, tuple) else (expected,),
                strict=True,
            ):
                torch.testing.assert_close(dist.ttol(mine, device="cpu"), other, rtol=0, atol=1e-5)
            export_to_huggingface(model, root / f"{name}, back")
            back = safetensors.torch.load_file(root / f"{name}, back" / "model.safetensors")
            first = safetensors.torch.load_file(root / name / "model.safetensors")
            assert set(first) == set(back) and all(torch.equal(first[key], back[key]) for key in first), name


def law_weights_are_cut_as_layers_are() -> None:
    dist.setup_dist_util({"tensor_parallel_size": SIZE, "device_type": "cpu"})
    _same_both_ways(*hf.KINDS)


def law_weights_are_whole_where_batches_are_cut() -> None:
    dist.setup_dist_util({"device_type": "cpu"})
    _same_both_ways("GPT-2", "BERT")


def _texts(model: Any) -> list[Any]:
    flow.manual_seed(RANK)  # ranks differ; the first counts
    settings: list[dict[str, Any]] = [
        {},
        {"num_beams": 3, "eos_token_id": 7},
        {"do_sample": True, "top_k": 5},
        {"max_time": 60.0},
    ]
    return [model.generate(PROMPTS, max_new_tokens=8, pad_token_id=3, **one).tolist() for one in settings]


def _same_texts(*names: str) -> None:
    with saved(*names) as root:
        for name in names:
            theirs = hf.theirs(name)
            flow.manual_seed(0)
            expected = [
                theirs.generate(
                    PROMPTS,
                    attention_mask=torch.ones_like(PROMPTS),
                    max_new_tokens=8,
                    pad_token_id=3,
                    **{"do_sample": False, **one},
                ).tolist()
                for one in ({}, {"num_beams": 3, "eos_token_id": 7}, {"do_sample": True, "top_k": 5}, {})
            ]
            model = hf.ours(name, root / name)
            assert _texts(model) == expected, name
            given = model.generate(_spread(PROMPTS), max_new_tokens=8)
            assert given.is_global and dist.ttol(given, device="cpu", ranks=list(range(SIZE))).tolist() == expected[0]


def law_ranks_that_share_layers_write_the_same_texts() -> None:
    dist.setup_dist_util({"tensor_parallel_size": SIZE, "device_type": "cpu"})
    _same_texts("GPT-2", "Llama")


def law_ranks_that_share_batches_write_the_same_texts() -> None:
    dist.setup_dist_util({"device_type": "cpu"})
    _same_texts("GPT-2")


def law_stages_write_the_same_texts() -> None:
    dist.setup_dist_util({"pipeline_parallel_size": SIZE, "pipeline_num_layers": 2, "device_type": "cpu"})
    _same_texts("GPT-2")


def law_pipelines_answer_on_the_first_rank() -> None:
    root = Path(shared_folder())
    try:
        if RANK == 0:
            for name, make in (("writer", projects.writer), ("classifier", projects.classifier)):
                (root / name).mkdir()
                make(root / name)
        dist.synchronize()
        for sizes in ({"tensor_parallel": SIZE}, {"data_parallel": SIZE}):
            told: dict[str, Any] = {"mode": "huggingface", "device": "cpu", **sizes}
            writer = TextGenerationPipeline(
                str(root / "writer" / "config.py"), model_path=str(root / "writer" / "weights"), **told
            )
            classifier = TextClassificationPipeline(
                str(root / "classifier" / "config.py"), model_path=str(root / "classifier" / "weights"), **told
            )
            texts, label = writer(["abc", "d"], max_new_tokens=4), classifier("a b c")
            if RANK:
                assert texts == {} and label == {}
                continue
            ids = torch.tensor([writer.tokenizer.encode("abc")])
            expected = hf.theirs("GPT-2").generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=4, do_sample=False, pad_token_id=0
            )
            assert (
                texts[0] == {"generated_text": writer.tokenizer.decode(expected[0].tolist(), True)} and len(texts) == 2
            )
            with torch.no_grad():
                scores = hf.theirs("BERT, classifier")(
                    torch.tensor([classifier.tokenizer.encode("a b c")])
                ).logits.softmax(-1)[0]
            assert (
                label["label"] == f"Label_{int(scores.argmax())}" and abs(label["score"] - float(scores.max())) < 1e-5
            )
    finally:
        dist.synchronize()
        if RANK == 0:
            shutil.rmtree(root)


def _same_in_onnx(sizes: dict[str, int], *names: str) -> None:
    """One file for all ranks, and ONNX Runtime gives the scores of the model as it lies."""
    import onnxruntime

    dist.setup_dist_util({**sizes, "pipeline_num_layers": 2, "device_type": "cpu"})
    root = Path(shared_folder())
    try:
        for name in names:
            small = SMALL[name]
            model = build_model(LazyCall(small.kind)(cfg=small.config())).eval()
            path = export_to_onnx(model, root / f"{name}.onnx")
            inputs = export.kind_of(model).inputs(model, 2, 4)
            with torch.no_grad():
                scores = dist.ttol(
                    model(**{key: _spread(value) for key, value in inputs.items()})["prediction_scores"],
                    device="cpu",
                    ranks=list(range(SIZE)),
                )
            session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
            found = session.run(
                ["prediction_scores"], {one.name: inputs[one.name].numpy() for one in session.get_inputs()}
            )[0]
            torch.testing.assert_close(torch.from_numpy(found), scores, rtol=1e-4, atol=1e-5)
            try:
                export_to_onnx(model, path / "below_a_file.onnx")
            except OSError as error:  # rank 0's, told to all
                assert path.name in str(error)
            else:
                raise AssertionError("no error")
        assert sorted(file.name for file in root.iterdir()) == sorted(f"{name}.onnx" for name in names)
    finally:
        dist.synchronize()
        if RANK == 0:
            shutil.rmtree(root)


def law_ranks_that_share_layers_write_one_onnx_file() -> None:
    _same_in_onnx({"tensor_parallel_size": SIZE}, "GPT", "BERT")


def law_stages_write_one_onnx_file() -> None:
    _same_in_onnx({"pipeline_parallel_size": SIZE}, "T5")


def law_a_folder_that_is_missing_is_an_error_of_all_ranks() -> None:
    dist.setup_dist_util({"device_type": "cpu"})
    try:
        hf.ours("BERT", Path("/nonexistent/folder"))
    except EnvironmentError as error:
        assert "there is no folder '/nonexistent/folder'" in str(error)
    else:
        raise AssertionError("no error")
