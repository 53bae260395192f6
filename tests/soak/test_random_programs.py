"""A selection of random programs, and the tools that draw, compare, reduce and run them; ``run.py`` runs more."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import graph_program
import graph_run
import job_program
import job_run
import pytest
import run
import torch
from layer import Kind, Layer
from program import Program, Unfit, reduced
from warm_ranks import said, started

GRAPHS = {2: (0, 20), 4: (100, 116)}
JOBS = range(4)
SHAPES = {
    Kind.VECTOR: [(8,), (16,)],
    Kind.SEQUENCE: [(6, 8), (4, 4)],
    Kind.IMAGE: [(4, 4, 4), (4, 6, 6), (4, 8, 8)],
    Kind.VOLUME: [(2, 2, 4, 4)],
}


@pytest.mark.slow
@pytest.mark.parametrize("ranks", GRAPHS)
def test_random_graphs_train_on_ranks_as_eager_torch_does(ranks: int) -> None:
    program = Path(__file__).with_name("graph_rank.py")
    order = json.dumps({"seeds": GRAPHS[ranks], "seconds": 1e9, "without": []})
    results = [json.loads(line) for line in said(started(ranks, str(program), order))[0].splitlines()]
    verdicts = [result for result in results if "seed" in result]
    low, high = GRAPHS[ranks]
    assert len(verdicts) == high - low
    args = run.arguments(["graphs", "--ranks", str(ranks)])
    failures = [run.describe(args, result) for result in verdicts if result["status"] in ("different", "error")]
    assert not failures, "\n".join(failures)
    assert sum(result["status"] == "same" for result in verdicts) > 0.8 * len(verdicts)


@pytest.mark.slow
def test_random_jobs_give_on_several_devices_what_they_give_on_one() -> None:
    verdicts = job_run.check_all([job_program.draw_program(seed) for seed in JOBS])
    args = run.arguments(["jobs"])
    failures = [run.describe(args, dataclasses.asdict(verdict)) for verdict in verdicts if verdict.is_failure]
    assert not failures, "\n".join(failures)
    assert {verdict.status for verdict in verdicts} <= {"same", "unstable"}


# ------------------------------------------------------------------ drawing


@pytest.mark.parametrize("layer", graph_program.LAYERS.values(), ids=lambda layer: layer.name)
def test_a_layer_takes_and_gives_what_its_row_says(layer: Layer) -> None:
    shapes = [shape for shape in SHAPES[layer.takes] if layer.fits(shape)]
    assert shapes, f"{layer.name} fits none of {SHAPES[layer.takes]}"
    for seed in range(3):
        graph_program.Builder(shapes[0]).add(layer.name, seed)


def test_a_seed_is_always_the_same_program() -> None:
    for seed in range(5):
        program = graph_program.draw_program(seed)
        assert graph_program.draw_program(seed) == program
        assert graph_program.GraphProgram.from_json(program.to_json()) == program
    job = job_program.draw_program(3)
    assert job_program.draw_program(3) == job == job_program.JobProgram.from_json(job.to_json())


def test_layers_can_be_left_out() -> None:
    names = {name for seed in range(20) for name, _ in graph_program.draw_program(seed).layers}
    without = frozenset(sorted(names)[::2])
    assert not without & {name for seed in range(20) for name, _ in graph_program.draw_program(seed, without).layers}


def test_values_that_are_equal_are_never_ordered() -> None:
    for seed in range(40):
        program = graph_program.draw_program(seed)
        rows = [graph_program.LAYERS[name] for name, _ in program.layers if name != graph_program.SKIP]
        tied = [place for place, row in enumerate(rows) if row.makes_ties]
        assert not any(row.is_sharp for row in rows[min(tied, default=len(rows)) + 1 :])


# ------------------------------------------------------------------ comparison


def test_a_small_difference_is_found() -> None:
    expected = {"loss": torch.tensor([2.0]), "update of w": torch.tensor([1e-4, 0.0])}
    assert graph_run.compare(expected, expected)[0] == 0.0
    assert graph_run.compare({**expected, "loss": torch.tensor([2.0002])}, expected)[1] == "loss"
    difference, name = graph_run.compare({**expected, "update of w": torch.tensor([1e-4, 1e-8])}, expected)
    assert difference == pytest.approx(1e-4) and name == "update of w"
    assert graph_run.compare({**expected, "loss": torch.tensor([float("nan")])}, expected)[0] == float("inf")
    assert graph_run.compare({**expected, "loss": torch.ones(2)}, expected)[0] == float("inf")


def test_a_program_that_rounding_changes_is_told_from_others() -> None:
    program = graph_program.GraphProgram(0, (("vector.linear", 1), ("vector.smooth", 2)))
    alone = graph_run.train_alone(program)
    assert 0 < graph_run.compare(graph_run.train_alone(program, graph_run.NOISE), alone)[0] < graph_run.TOLERANCE


@pytest.mark.parametrize("memory", graph_run.MEMORY)
def test_memory_changes_strides_and_not_values(memory: str) -> None:
    x = torch.randn(3, 4, 5, 6)
    stored = graph_run.MEMORY[memory](x)
    assert memory == "expanded" or torch.equal(stored, x)
    assert (stored.stride() == x.stride()) == (memory == "contiguous")


# ------------------------------------------------------------------ reduction


@dataclasses.dataclass(frozen=True)
class Numbers(Program):
    """Fails if it has layers 3 and 7 and is not quiet; it cannot be built with a 5 and without a 4."""

    is_loud: bool = True
    steps: int = 3

    def simpler(self) -> Iterator[Numbers]:
        yield dataclasses.replace(self, is_loud=False)
        if self.steps > 1:
            yield dataclasses.replace(self, steps=1)

    def fails(self) -> bool:
        seeds = [seed for _, seed in self.layers]
        return 3 in seeds and 7 in seeds and self.is_loud and not (5 in seeds and 4 not in seeds)


def test_a_failing_program_is_reduced() -> None:
    program = Numbers(1, tuple(("layer", seed) for seed in range(9)))
    assert reduced(program, Numbers.fails) == Numbers(1, (("layer", 3), ("layer", 7)), steps=1)


def test_settings_of_programs_become_simpler() -> None:
    for program in (graph_program.draw_program(7), job_program.draw_program(7)):
        simplest, count = program, 0
        while (other := next(simplest.simpler(), None)) is not None:
            assert other != simplest
            simplest, count = other, count + 1
            assert count < 40
        assert simplest.steps == 1 and simplest.micro_batches == 1


def test_a_layer_that_does_not_fit_is_refused() -> None:
    with pytest.raises(Unfit, match="does not take samples of shape"):
        graph_program.Builder((8,)).add("image.conv2d", 1)


# ------------------------------------------------------------------ the command


FAKE = """
import json, os, sys
order = json.loads(sys.argv[1])
for seed in range(*order["seeds"]):
    print(json.dumps({"begun": seed}), flush=True)
    if seed == 4:
        os._exit(1)
    status = "different" if seed == 2 else "same"
    result = {"seed": seed, "status": status, "detail": "loss", "difference": 0.5, "tolerance": 1e-7, "program": "{}"}
    print("noise"), print(json.dumps(result), flush=True)
"""


def test_a_launch_that_ends_is_started_again(monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setattr(run, "command", lambda kind, ranks, order: [sys.executable, "-c", FAKE, json.dumps(order)])
    log = tmp_path / "log.jsonl"
    assert run.main(["graphs", "--seeds", "0", "7", "--ranks", "4", "--log", str(log)]) == 1
    text = capsys.readouterr().out
    assert "seed 2: different by 5.0e-01 (allowed 1.0e-07): loss" in text
    assert "seed 4: error: the launch ended with code 1" in text
    assert "python tests/soak/run.py graphs --seeds 2 3 --ranks 4" in text
    assert "7 graphs on 4 ranks" in text and "1 different, 1 error, 5 same" in text
    assert [json.loads(line)["seed"] for line in log.read_text().splitlines()] == list(range(7))


GROUPS = """
import json, os, sys
low, high = json.loads(sys.argv[1])["seeds"]
for seed in range(low, high):
    print(json.dumps({"begun": seed}), flush=True)
    if seed == 2:
        os._exit(3)
for seed in range(low, high):
    print(json.dumps({"seed": seed, "status": "same", "detail": "", "program": "{}"}), flush=True)
"""


def test_programs_of_a_group_run_again_when_another_one_ends_the_launch(monkeypatch, capsys) -> None:
    monkeypatch.setattr(run, "command", lambda kind, ranks, order: [sys.executable, "-c", GROUPS, json.dumps(order)])
    assert run.main(["jobs", "--seeds", "0", "5"]) == 1
    text = capsys.readouterr().out
    assert "seed 2: error: the launch ended with code 3" in text and "1 error, 4 same" in text


def test_no_failure_is_success(monkeypatch, capsys) -> None:
    monkeypatch.setattr(run, "command", lambda kind, ranks, order: [sys.executable, "-c", FAKE, json.dumps(order)])
    assert run.main(["jobs", "--seeds", "0", "2"]) == 0
    assert "2 jobs in" in capsys.readouterr().out


CRASH = """
import json, os, sys
order = json.loads(sys.argv[1])
layers = json.loads(order["program"])["layers"] if order["program"] else [1, 2, 3]
if not order["crashes"]:
    print(json.dumps({"begun": 5, "program": json.dumps({"layers": layers})}), flush=True)
    os._exit(1)
if len(layers) > 1:
    print(json.dumps({"begun": 5, "program": json.dumps({"layers": layers[1:]})}), flush=True)
    os._exit(1)
result = {"seed": 5, "status": "error", "detail": "ends", "program": json.dumps({"layers": layers})}
print(json.dumps(result), flush=True)
"""


def test_a_program_that_ends_its_launch_is_reduced(monkeypatch, capsys) -> None:
    monkeypatch.setattr(run, "command", lambda kind, ranks, order: [sys.executable, "-c", CRASH, json.dumps(order)])
    assert run.main(["graphs", "--reduce", "5"]) == 1
    assert "layers: [3]" in capsys.readouterr().out
