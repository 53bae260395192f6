"""Plans of libai's configs: for any number of devices, without one, and without data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from libai_runs import Points
from libai_small_models import SMALL
from omegaconf import DictConfig, OmegaConf

import oneflow as flow
from libai.config import LazyCall, LazyConfig, get_config
from libai.config.errors import ConfigError
from libai.data import build_image_train_loader
from libai.models.build import build_graph
from libai.plan import __main__ as program
from libai.plan import plan_config
from libai.plan.inputs import fields_of
from libai.utils import distributed as dist
from oneflow.engine.core.errors import ArgumentError

NAMES = ("BERT", "RoBERTa", "GPT", "T5", "Llama")


@pytest.fixture(autouse=True)
def one_rank() -> None:
    dist.setup_dist_util({})


def config(name: str, *overrides: str) -> DictConfig:
    cfg = DictConfig({}, flags={"allow_objects": True})
    cfg.model = LazyCall(SMALL[name].kind)(cfg=SMALL[name].config())
    cfg.optim = get_config("common/optim.py").optim
    cfg.graph = get_config("common/models/graph.py").graph
    cfg.train = dict(train_micro_batch_size=4, num_accumulation_steps=4, dist=dict(pipeline_num_layers=2))
    return LazyConfig.apply_overrides(cfg, overrides)


@pytest.mark.parametrize("name", NAMES)
def test_the_layers_of_a_model_are_a_pipeline(name: str) -> None:
    """Values flow ahead alone, so that micro-batches go through the stages one behind the other; nothing is made whole
    for want of a rule."""
    plan = plan_config(config(name, "train.dist={data_parallel_size:2,pipeline_parallel_size:2}"))
    assert (plan.devices, plan.stages, plan.micro_batches) == (4, 2, 4)
    assert abs(plan.busy - 4 / 5) < 1e-9
    assert [rank.stage for rank in plan.ranks] == sorted(rank.stage for rank in plan.ranks) and {
        rank.stage for rank in plan.ranks
    } == {0, 1}
    assert all(rank.peak_memory > rank.variables > 0 for rank in plan.ranks)
    assert not any("no SBP rule" in note for note in plan.notes)
    assert dist.get_dist_util().layout.world == 1  # as it was


@pytest.mark.parametrize("name", ["GPT", "T5"])
def test_tensor_parallelism_moves_activations_alone(name: str) -> None:
    """With dropout of attention too: no rank is given the parts of a weight, and no scores of attention are
    gathered."""
    plan = plan_config(config(name, "train.dist={tensor_parallel_size:2}", "train.num_accumulation_steps=1"))
    assert not any("no SBP rule" in note for note in plan.notes)
    scores = 4 * 4 * 6 * 6 * 4
    moved = [
        step
        for op in plan.ops
        for step in op.boxing
        if step.collective in ("all_gather", "all_to_all", "reduce_scatter")
    ]
    assert max((step.bytes for step in moved), default=0) < 2 * scores


def test_zero_takes_less_memory() -> None:
    sizes = ("train.dist={data_parallel_size:4}", "train.num_accumulation_steps=1")
    whole = plan_config(config("GPT", *sizes))
    shared = plan_config(
        config("GPT", *sizes, "model.cfg.hidden_size=64", "train.zero_optimization={enabled:true,stage:1}")
    )
    kept = plan_config(config("GPT", *sizes, "model.cfg.hidden_size=64"))
    assert shared.ranks[0].states < 0.5 * kept.ranks[0].states and whole.devices == 4


def test_auto_parallel_is_searched_for() -> None:
    plan = plan_config(
        config(
            "GPT",
            "train.dist={data_parallel_size:2}",
            "graph.auto_parallel.enabled=true",
            "train.num_accumulation_steps=1",
        )
    )
    assert any("auto parallel" in note.lower() for note in plan.notes), plan.notes


def test_a_model_of_ones_own_is_planned_by_its_data_set() -> None:
    from libai_runs import Net

    cfg = config("GPT", "train.dist={data_parallel_size:2,pipeline_num_layers:null}")
    cfg.model = LazyCall(Net)(hidden=32)
    with pytest.raises(ConfigError, match="told by the first sample of dataloader.train.dataset; there is none"):
        plan_config(cfg)
    cfg.dataloader = OmegaConf.create()
    cfg.dataloader.train = LazyCall(build_image_train_loader)(
        dataset=[LazyCall(Points)(count=4, which=1)], num_workers=0
    )
    assert plan_config(cfg).devices == 2
    assert {name: (field.shape, field.layer) for name, field in fields_of(cfg).items()} == {
        "inputs": ((8,), 0),
        "labels": ((), -1),
    }


def test_texts_are_as_long_as_the_data_set_says() -> None:
    cfg: Any = get_config("t5_large_pretrain.py")
    found = {name: field.shape for name, field in fields_of(cfg).items()}
    assert (found["encoder_input_ids"], found["encoder_decoder_attn_mask"], found["lm_labels"]) == (
        (512,),
        (128, 512),
        (128,),
    )
    cfg.model.cfg.pop("max_position_embeddings")
    cfg.dataloader.train.dataset[0].pop("max_seq_length")
    with pytest.raises(ConfigError, match="the length of texts in .* is not known; give the model max_seq_length"):
        fields_of(cfg)


def test_a_pipeline_of_one_micro_batch_is_refused() -> None:
    with pytest.raises(
        ConfigError,
        match="pipeline_parallel_size=2 with train.num_accumulation_steps=1.*works 1/2 of the time.*steps to 4 or more",
    ):
        plan_config(config("GPT", "train.dist={pipeline_parallel_size:2}", "train.num_accumulation_steps=1"))
    with pytest.raises(ConfigError, match="pipeline_num_layers=4, but GPTForPreTraining has 2 layers"):
        plan_config(config("GPT", "train.dist={pipeline_parallel_size:2,pipeline_num_layers:4}"))
    with pytest.raises(
        ConfigError,
        match="num_attention_heads=4 heads are not shared out evenly among train.dist.tensor_parallel_size=8",
    ):
        plan_config(config("GPT", "train.dist={tensor_parallel_size:8}"))
    assert build_graph(config("GPT"), SMALL["GPT"].make()) is not None  # one that evaluates may


def test_jobs_take_no_inputs_by_name() -> None:
    @flow.global_function()
    def job() -> Any:
        return flow.ones((2,))

    with pytest.raises(ArgumentError, match="of a job takes devices= or placement=, got x"):
        flow.plan(job, x=1)


def test_the_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "gpt.py"
    file.write_text(
        "from libai.config import get_config\n"
        'base = get_config("gpt2_pretrain.py")\n'
        "model, graph, train, optim, dataloader = base.model, base.graph, base.train, base.optim, base.dataloader\n"
        "model.cfg.update(dict(hidden_layers=2, hidden_size=32, ffn_hidden_size=64, vocab_size=64, "
        "max_seq_length=16))\n"
        "dataloader.train.dataset[0].max_seq_length = 16\n"
        "train.dist.pipeline_num_layers = 2\n"
        f"train.output_dir = {str(tmp_path / 'run')!r}\n"
    )
    program.main(
        [
            "--config-file",
            str(file),
            "train.dist={data_parallel_size:2,tensor_parallel_size:2,pipeline_parallel_size:2}",
            "train.num_accumulation_steps=4",
        ]
    )
    out = capsys.readouterr().out
    assert "on 8 gpu devices" in out and "through 2 stages" in out and "peak memory" in out
    assert (tmp_path / "run" / "plan.html").read_text().startswith("<!doctype html>")
    program.main(["--config-file", str(file), "--output", str(tmp_path / "plan.txt")])
    assert "on 1 gpu device" in (tmp_path / "plan.txt").read_text()
