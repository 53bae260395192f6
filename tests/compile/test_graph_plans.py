"""Plans of graphs: on ranks that do not exist as processes, with stages, micro-batches and ZeRO; and of graphs of local
tensors on devices."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import oneflow as flow
from oneflow.engine.assignment import auto
from oneflow.engine.assignment.infer import Estimate
from oneflow.engine.core.errors import ArgumentError, GlobalTensorError, GraphError
from oneflow.engine.plan.report import Plan
from oneflow.nn.graph import GraphModule

B, S = flow.sbp.broadcast, flow.sbp.split


class Train(flow.nn.Graph):
    def __init__(
        self, model: nn.Module, micro: int = 1, zero: int = 0, places: tuple[Any, ...] = (), auto: int | None = None
    ) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.AdamW(model.parameters(), lr=0.01))
        self.config.set_gradient_accumulation_steps(micro)
        if zero:
            self.config.enable_zero(True, stage=zero, shard_min_size=1)
        if auto is not None:
            self.config.enable_auto_parallel(True)
            self.config.set_auto_parallel_memory_limit(auto)
        for number, place in enumerate(places):
            self.model[number].to(GraphModule).set_stage(number, place)

    def build(self, x: Tensor, y: Tensor) -> Tensor:
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        return loss


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 6))


FIRST, SECOND = 4 * (8 * 16 + 16), 4 * (16 * 6 + 6)  # bytes of each layer


def pipeline(micro: int, zero: int = 0) -> Plan:
    """Two stages of two ranks each, which share the batch."""
    with flow.planned_world(4):
        places = flow.placement("cuda", [0, 1]), flow.placement("cuda", [2, 3])
        model = mlp()
        for stage, place in zip(model, places):
            stage.to_global(place, B)
        graph = Train(model, micro, zero, places)
        x, y = (
            torch.empty(8, 8).to_global(places[0], S(0)),
            torch.empty(8, dtype=torch.int64).to_global(places[1], S(0)),
        )
        return flow.plan(graph, x, y)


def test_stages_and_micro_batches_of_a_pipeline_that_nobody_runs() -> None:
    plan = pipeline(4)
    assert (plan.devices, plan.device_type, plan.axes, plan.stages, plan.micro_batches) == (4, "gpu", (2, 2), 2, 4)
    assert plan.busy == 4 / (4 + 2 - 1)
    assert [(rank.ranks, rank.stage, rank.variables, rank.states) for rank in plan.ranks] == [
        ("0-1", 0, 3 * FIRST, 2 * FIRST),
        ("2-3", 1, 3 * SECOND, 2 * SECOND),
    ]
    sent = plan.ranks[0].communicated["send"]
    assert (
        sent.calls in (4, 8) and sent.bytes == sent.calls * 4 * 2 * 16
    )  # of each of 4 micro-batches 2 rows of 16 numbers, to one rank of the other stage or both
    assert "through 2 stages, each of them busy 80.0 % of the time" in str(plan)
    assert "each works m/(m+p-1) = 80.0 %" in plan.notes[0]
    assert Plan.from_json(plan.to_json()) == plan and Plan.from_json(plan.to_json()).stages == 2
    assert "set_gradient_accumulation_steps(8) or more" in pipeline(1).notes[0]


def test_zero_shares_out_states_and_parameters() -> None:
    for stage, own in ((0, 3 * FIRST), (1, 2 * FIRST), (3, 3 * FIRST // 2)):
        plan = pipeline(4, stage)
        assert plan.ranks[0].variables == own, stage
    assert {variable.sbp for variable in pipeline(4, 1).variables} == {("B",), ("S(0)",)}


def test_tensor_parallel_by_the_sbp_given() -> None:
    with flow.planned_world(1024):
        place = flow.placement.all("cuda")
        grid = flow.placement("cuda", torch.arange(1024, device="cpu").view(64, 16).tolist())
        assert place.ranks.size == 1024 and flow.env.get_world_size() == 1024
        model = nn.Sequential(nn.Linear(32, 64, bias=False), nn.ReLU(), nn.Linear(64, 32, bias=False)).to_global(
            grid, (B, B)
        )
        for layer, sbp in ((model[0], S(0)), (model[2], S(1))):
            layer.weight.data = layer.weight.detach().to_global(sbp=(B, sbp))
        x, y = (
            torch.empty(2, 32).to_global(grid, (S(0), B)),
            torch.empty(2, dtype=torch.int64).to_global(grid, (S(0), B)),
        )
        assert x.shape == (128, 32) and x.to_local().shape == (2, 32)
        plan = flow.plan(Train(model), x, y)
    assert [(rank.ranks, rank.variables) for rank in plan.ranks] == [("0-1023", 3 * 2 * 4 * 64 * 32 // 16)]
    assert plan.axes == (64, 16) and flow.env.get_world_size() == 1


def test_a_graph_of_local_tensors_on_devices() -> None:
    x, y = torch.randn(8, 8), torch.randint(6, (8,))
    assert flow.plan(Train(mlp()), x, y).devices == 1
    plain, shared = flow.plan(Train(mlp()), x, y, devices="2x2"), flow.plan(Train(mlp(), zero=3), x, y, devices=2)
    assert (plain.axes, plain.ranks[0].variables) == ((2, 2), 3 * (FIRST + SECOND))
    assert shared.ranks[0].variables == 3 * (FIRST + SECOND) // 2
    meta = flow.plan(Train(mlp().to("meta")), x.to("meta"), y.to("meta"), devices="2x2")
    assert meta.ranks == plain.ranks


def test_a_plan_by_auto_parallel_says_what_was_chosen_and_splits_what_does_not_fit() -> None:
    x, y = torch.randn(8, 8), torch.randint(6, (8,))
    wide = nn.Sequential(nn.Linear(8, 512), nn.ReLU(), nn.Linear(512, 6))
    whole = sum(p.numel() for p in wide.parameters()) * 4 * 4
    plan = flow.plan(Train(wide, auto=whole // 2), x, y, devices=4)
    assert plan.notes[0].startswith("auto parallel chose ") and "the limit is" in plan.notes[0]
    assert plan.ranks[0].peak_memory < whole and plan.ranks[0].variables < whole * 3 // 4 // 2
    with pytest.raises(ArgumentError, match=r"no layout that was found fits into 1e\+03 B a device .* raise the limit"):
        flow.plan(Train(wide, auto=1000), x, y, devices=4)


class Returned(flow.nn.Graph):
    """Of two stages; the first computes the loss."""

    def __init__(self, model: nn.Module, places: tuple[Any, Any], is_back: bool) -> None:
        super().__init__()
        self.model, self.is_back, self.first = model, is_back, places[0]
        for number, place in enumerate(places):
            self.model[number].to(GraphModule).set_stage(number, place)
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.01))
        self.config.set_gradient_accumulation_steps(4)

    def build(self, x: Tensor) -> Tensor:
        made = self.model(x)
        loss = (made.to_global(placement=self.first, sbp=B) if self.is_back else made).square().mean()
        loss.backward()
        return loss


@pytest.mark.parametrize(
    ("given_on", "is_back", "why"),
    [
        (0, False, None),
        (
            1,
            False,
            "input 'input_0' goes from ranks 2 to 3 back to ranks 0 to 1, for 'model.0' at .*py:.*; give it on the "
            "placement of the stage that reads it",
        ),
        (0, True, "what .* makes goes from ranks 2 to 3 back to ranks 0 to 1, for .*py:.*; have values go ahead only"),
    ],
)
def test_stages_that_do_not_work_at_the_same_time_are_told(given_on: int, is_back: bool, why: str | None) -> None:
    with flow.planned_world(4):
        places = flow.placement("cuda", [0, 1]), flow.placement("cuda", [2, 3])
        model = mlp()
        for stage, place in zip(model, places):
            stage.to_global(place, B)
        plan = flow.plan(Returned(model, places, is_back), torch.empty(8, 8).to_global(places[given_on], S(0)))
    told = [
        note
        for note in plan.notes
        if note.startswith("the 4 micro-batches go through the stages one after the other, not as a pipeline: ")
    ]
    assert (plan.stages > 1) == (why is None) and len(told) == (why is not None)
    assert why is None or re.search(why, told[0]), told


@pytest.mark.parametrize("limit", [1 << 30, 5 << 17], ids=["all that fits", "less than data parallel takes"])
def test_tries_of_auto_parallel_that_end_early_change_no_plan(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = nn.Sequential(nn.Linear(8, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 6))
    x, y = torch.randn(8, 8), torch.randint(6, (8,))
    by = auto.search
    ended: list[auto.Candidate] = []

    def told(job: str, what: auto.AutoParallel, attempt: auto.Attempt) -> auto.Chosen:
        def tell(candidate: auto.Candidate, total: float) -> auto.Tried | None:
            found = attempt(candidate, total)
            ended.extend([candidate] if found is None else [])
            return found

        return by(job, what, tell)

    monkeypatch.setattr(auto, "search", told)
    graph = Train(wide, auto=limit)
    bounded = flow.plan(graph, x, y, devices=8)
    monkeypatch.setattr(
        auto, "search", lambda job, what, attempt: by(job, what, lambda candidate, _: attempt(candidate, math.inf))
    )
    assert ended and flow.plan(graph, x, y, devices=8) == bounded


def test_auto_parallel_takes_the_first_of_the_cheapest_that_fit() -> None:
    def chosen(totals: dict[str, float], too_large: str = "") -> str:
        def attempt(candidate: auto.Candidate, limit: float) -> auto.Tried | None:
            total = totals.get(str(candidate), 9.0)
            tried = auto.Tried(candidate, Estimate(total, 0.0), 2 if str(candidate) == too_large else 1)
            return None if total > limit else tried

        return str(
            auto.search("job", auto.AutoParallel(frozenset(), auto.meshes_of((0, 1, 2, 3)), 1), attempt).best.candidate
        )

    storage, free, both = "storage 4 parallel", "free 4 parallel", "data 2 x tensor 2 parallel"
    assert chosen({}) == "data parallel"
    assert chosen({storage: 5, free: 5, both: 5}) == storage
    assert chosen({storage: 5, free: 5, both: 4}) == both
    assert chosen({storage: 5, free: 5, both: 4}, both) == storage


def test_what_a_planned_world_refuses() -> None:
    with flow.planned_world(4):
        place = flow.placement.all("cpu")
        model = mlp().to_global(place, B)
        x, y = torch.empty(2, 8).to_global(place, S(0)), torch.empty(2, dtype=torch.int64).to_global(place, S(0))
        with pytest.raises(GraphError, match="is called in a planned world, where nothing runs; flow.plan"):
            Train(model)(x, y)
        with pytest.raises(GlobalTensorError, match="numpy of a tensor of a planned world, where tensors have no data"):
            x.numpy()
        with pytest.raises(
            GlobalTensorError, match=r"needs ranks \[0, 1, 2, 3\], and in a planned world there is this process alone"
        ):
            model(x).sum().to_global(sbp=B) + flow.comm.all_reduce(torch.zeros(1, device="cpu"))
        with pytest.raises(
            ArgumentError,
            match="a graph of global tensors and is planned on their placements; plan it without devices= and placement=",
        ):
            flow.plan(Train(model), x, y, devices=2)
        with pytest.raises(GlobalTensorError, match=r"names ranks \[4\], the world has 4"):
            x.to_global(flow.placement("cpu", [4]), B)
    with pytest.raises(ArgumentError, match="the size of a world is an int > 0, got 0"), flow.planned_world(0):
        pass
    assert flow.env.get_world_size() == 1
