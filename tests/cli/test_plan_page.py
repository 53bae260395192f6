"""A plan as text, as JSON and as a page; the page is also opened in a browser."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from math import prod

import pytest

from oneflow.engine.core.errors import ArgumentError, DataError
from oneflow.engine.plan.page import plan_page
from oneflow.engine.plan.report import Plan, ranks_text, save_plans
from oneflow.engine.plan.text import WIDTH
from oneflow.engine.plan.units import bytes_text, flops_text
from oneflow.engine.plan.values import Boxing, PlanOp, PlanVariable, RankCost, Traffic

NASTY = "</script><script>alert('x')</script>\x1b[31m{{data}}<!-- &amp;\u2028"
BATCH = 256


class Maker:
    """Writes a plan down op by op: two stages of four devices, batches split over one axis, the last layers over the
    other."""

    def __init__(self) -> None:
        self.ops: list[PlanOp] = []
        self.variables: list[PlanVariable] = []

    def add(
        self, name, op, aten, shape, sbp=("S(0)", "B"), part="forward", flops=0, boxing=(), stage=0, line=None, **more
    ) -> None:
        local = list(shape)
        for layout, extent in zip(sbp, (2, 4)):
            if layout.startswith("S"):
                local[int(layout[2])] //= extent
        line = line or f"train.py:{20 + len(name)}"
        where, here = f"gpu {4 * stage}-{4 * stage + 3}", tuple(local)
        index = len(self.ops)
        self.ops.append(
            PlanOp(
                index,
                name,
                op,
                aten,
                part,
                line,
                shape,
                "float32",
                sbp,
                where,
                here,
                flops,
                boxing=tuple(boxing),
                **more,
            )
        )

    def variable(self, name, shape, sbp=("B", "B"), stage=0) -> None:
        parts = prod(extent for layout, extent in zip(sbp, (2, 4)) if layout.startswith("S"))
        self.variables.append(
            PlanVariable(name, shape, "float32", sbp, f"gpu {4 * stage}-{4 * stage + 3}", 4 * prod(shape) // parts)
        )

    def block(self, name, channels, size) -> None:
        """Convolution, normalisation, activation."""
        shape = (BATCH, channels, size, size)
        self.variable(f"{name}-weight", (channels, channels, 3, 3), ("S(0)", "B"))
        self.variable(f"{name}_bn-gamma", (channels,))
        self.variable(f"{name}_bn-beta", (channels,))
        gather = boxing(f"{name}-weight", ("S(0)", "B"), ("B", "B"), "all_gather", 4 * channels * channels * 9)
        self.add(
            name,
            "nn.conv2d",
            "aten.convolution.default",
            shape,
            flops=18 * channels * prod(shape) // 2,
            boxing=[gather],
        )
        statistics = boxing(f"{name}_bn:mean", ("P", "B"), ("B", "B"), "all_reduce", 8 * channels)
        self.add(
            f"{name}_bn", "nn.normalization", "aten.var_mean.correction", (channels,), ("P", "B"), flops=prod(shape)
        )
        self.add(
            f"{name}_bn", "nn.normalization", "aten.sub.Tensor", shape, flops=prod(shape) // 2, boxing=[statistics]
        )
        self.add(f"{name}_bn", "nn.normalization", "aten.mul.Tensor", shape, flops=prod(shape) // 2)
        self.add(f"{name}_relu", "nn.relu", "aten.relu.default", shape, flops=prod(shape) // 2)

    def block_backward(self, name, channels, size) -> None:
        shape = (BATCH, channels, size, size)
        back = {"part": "backward"}
        self.add(f"{name}_relu", "nn.relu", "aten.threshold_backward.default", shape, **back, flops=prod(shape) // 2)
        self.add(
            f"{name}_bn",
            "nn.normalization",
            "aten.native_batch_norm_backward.default",
            shape,
            **back,
            flops=3 * prod(shape),
        )
        self.add(
            name,
            "nn.conv2d",
            "aten.convolution_backward.default",
            shape,
            **back,
            flops=36 * channels * prod(shape) // 2,
        )

    def dense(self) -> None:
        """On the second stage; its features are split over the second axis."""
        self.variable("dense1-weight", (4096, 2048), ("B", "S(0)"), stage=1)
        self.variable("dense2-weight", (1000, 4096), ("B", "S(1)"), stage=1)
        sent = Boxing("pool", ("S(0)", "B"), ("S(0)", "B"), "gpu 0-3", "gpu 4-7", "send", 4 * 128 * 2048)
        self.add(
            "dense1", "matmul", "aten.mm.default", (BATCH, 4096), ("S(0)", "S(1)"), flops=10**10, boxing=[sent], stage=1
        )
        self.add("dense1_gelu", "math.gelu", "aten.gelu.default", (BATCH, 4096), ("S(0)", "S(1)"), flops=10**6, stage=1)
        self.add("dense2", "matmul", "aten.mm.default", (BATCH, 1000), ("S(0)", "P"), flops=10**9, stage=1)
        summed = boxing("dense2", ("S(0)", "P"), ("S(0)", "B"), "all_reduce", 4 * 128 * 1000, "gpu 4-7")
        self.add(
            "loss", "nn.softmax_loss", "aten._log_softmax.default", (BATCH, 1000), flops=10**6, boxing=[summed], stage=1
        )
        self.add("top5", "math.in_top_k", "aten.topk.default", (BATCH, 5), ("B", "B"), stage=1, has_rule=False)

    def dense_backward(self) -> None:
        back = {"part": "backward", "stage": 1}
        self.add(
            "loss", "nn.softmax_loss", "aten._log_softmax_backward_data.default", (BATCH, 1000), flops=10**6, **back
        )
        self.add("dense2", "matmul", "aten.mm.default", (1000, 4096), ("P", "S(1)"), flops=10**9, **back)
        self.add("dense1", "matmul", "aten.mm.default", (4096, 2048), ("P", "S(0)"), flops=10**10, **back)

    def update(self) -> None:
        gradients = [v.name for v in self.variables]
        steps = [
            replace(
                boxing(f"{name}:gradient", ("P", "B"), ("B", "B"), "all_reduce", self.variables[i].bytes),
                bucket=i * 4 // len(gradients),
            )
            for i, name in enumerate(gradients)
        ]
        line = "train.py:88"
        self.add(
            "optimizer", "update.sgd", "aten._fused_sgd_.default", (1,), ("B", "B"), "update", 10**6, steps, line=line
        )

    def plan(self, notes=("top5 (aten.topk.default) has no SBP rule: it runs whole on every rank",)) -> Plan:
        traffic = {
            "all_reduce": Traffic(12, 104_000_000),
            "all_gather": Traffic(8, 25_000_000),
            "reduce_scatter": Traffic(8, 12_500_000),
            "send": Traffic(16, 33_554_432),
        }
        second = {"all_reduce": Traffic(9, 51_000_000), "send": Traffic(16, 33_554_432)}
        ranks = (
            RankCost("0-3", 4, sum(op.flops for op in self.ops), traffic, 3_221_225_472, 104_857_600, 0),
            RankCost("4-7", 4, 33_012_345_678, second, 1_932_735_283, 50_331_648, 1),
        )
        return Plan("train_job", "train", "gpu", 8, (2, 4), 4, ranks, tuple(self.ops), notes, tuple(self.variables))


def boxing(value, from_sbp, to_sbp, collective, size, where="gpu 0-3") -> Boxing:
    return Boxing(value, from_sbp, to_sbp, where, where, collective, size)


def sample_plan(blocks: int = 6) -> Plan:
    """Eight ops per block: 6 give a plan of about 60, 370 one of about 3,000."""
    maker = Maker()
    layers = [(f"stage{i // 4}-conv{i}", 64 << min(i // 4, 3), 56 >> min(i // 4, 3)) for i in range(blocks)]
    for layer in layers:
        maker.block(*layer)
    maker.add("pool", "nn.avg_pool2d", "aten.mean.dim", (BATCH, 2048), flops=10**6)
    maker.dense()
    maker.dense_backward()
    for layer in reversed(layers):
        maker.block_backward(*layer)
    maker.update()
    return maker.plan()


PLAN = sample_plan()


# ------------------------------------------------------------------ JSON


def changed(**fields) -> str:
    return json.dumps({**json.loads(PLAN.to_json()), **fields})


def test_json_gives_the_same_plan_back():
    assert Plan.from_json(PLAN.to_json()) == PLAN
    assert Plan.from_json(PLAN.to_json().encode()) == PLAN


def test_json_is_one_line_of_plain_fields():
    text = replace(PLAN, job="two\nlines").to_json()
    assert "\n" not in text
    found = json.loads(text)
    assert found["axes"] == [2, 4]
    assert found["ranks"][0]["communicated"]["send"] == {"calls": 16, "bytes": 33_554_432}
    assert found["ops"][0]["boxing"][0]["collective"] == "all_gather"


@pytest.mark.parametrize(
    "text, reason",
    [
        ("{", "this is no JSON"),
        ("[]", "has the format 'oneflow plan 1', this has None"),
        ('{"format": "oneflow plan 9"}', "has the format 'oneflow plan 1', this has 'oneflow plan 9'; make it anew"),
        ('{"format": "oneflow plan 1"}', "has the fields that Plan.to_json gives; 'axes' of the plan is missing"),
        (PLAN.to_json().replace('"has_rule"', '"rule"'), "'rule' of 'ops' of the plan is none of them"),
        (5, "this is no JSON: the JSON object must be str, bytes or bytearray, not int"),
        ("[" * 100_000, "this is no JSON: maximum recursion depth exceeded"),
        ("9" * 5000, "this is no JSON: Exceeds the limit"),
        (changed(devices="8"), "'devices' of the plan is '8', expected int"),
        (changed(devices=True), "'devices' of the plan is True, expected int"),
        (changed(stages=1.5), "'stages' of the plan is 1.5, expected int"),
        (changed(micro_batches=-1), "'micro_batches' of the plan is -1, expected 0 or more"),
        (changed(axes=["1"]), "'axes' of the plan is '1', expected int"),
        (changed(job=5), "'job' of the plan is 5, expected str"),
        (changed(notes="abc"), "'notes' of the plan is 'abc', expected list"),
        (changed(ops={}), "'ops' of the plan is {}, expected list"),
        (changed(variables=[5]), "'variables' of the plan is 5, expected dict"),
        (
            PLAN.to_json().replace('"has_rule":true', '"has_rule":"no"', 1),
            "'has_rule' of 'ops' of the plan is 'no', expected bool",
        ),
        (
            PLAN.to_json().replace('"calls":16', '"calls":"16"', 1),
            "'calls' of 'communicated' of 'ranks' of the plan is '16', expected int",
        ),
    ],
)
def test_other_json_is_refused(text, reason):
    with pytest.raises(ArgumentError, match=re.escape(reason)):
        Plan.from_json(text)


# ------------------------------------------------------------------ text


def test_text_begins_with_what_is_planned():
    assert str(PLAN).splitlines()[0] == "train job train_job on 8 gpu devices (2 x 4), 4 micro-batches a step"
    small = replace(PLAN, kind="predict", device_type="cpu", devices=1, axes=(1,), micro_batches=1)
    assert str(small).splitlines()[0] == "predict job train_job on 1 cpu device"


def test_text_tells_the_costs_of_each_kind_of_rank():
    lines = [line.split() for line in str(PLAN).splitlines()]
    first = next(line for line in lines if line[:1] == ["0-3"])
    assert first[:2] + first[4:8] + first[8:] == ["0-3", "0", "100", "MiB", "3.00", "GiB", "167", "MiB"]
    assert ["send", "32.0", "MiB,", "16", "calls"] in lines


def test_text_tells_boxing_below_the_op_that_needs_it():
    lines = str(PLAN).splitlines()
    at = next(
        i
        for i, line in enumerate(lines)
        if re.match(r"  dense1 +mm +S\(0\) S\(1\) +float32 256x4096 -> 128x1024 +10.0 G", line)
    )
    assert lines[at].endswith("train.py:26")
    assert lines[at + 1] == "      <- pool  S(0) B -> S(0) B  gpu 0-3 -> gpu 4-7  send 1.00 MiB"
    assert lines[at - 1] == "  on gpu 4-7"


def test_text_names_a_users_op_once_and_its_ops_below():
    lines = str(PLAN).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("  stage0-conv0_bn "))
    assert [line.split()[0] for line in lines[at : at + 4]] == ["stage0-conv0_bn", "sub.Tensor", "<-", "mul.Tensor"]


def test_text_puts_the_gradients_of_a_bucket_in_one_line():
    assert [line.strip() for line in str(PLAN).splitlines() if "bucket" in line] == [
        "<- bucket 0: 5 gradients  P B -> B B  all_reduce 145 KiB",
        "<- bucket 1: 5 gradients  P B -> B B  all_reduce 145 KiB",
        "<- bucket 2: 5 gradients  P B -> B B  all_reduce 290 KiB",
        "<- bucket 3: 5 gradients  P B -> B B  all_reduce 12.2 MiB",
    ]


def test_text_marks_ops_without_a_rule_and_shows_notes():
    text = str(PLAN)
    assert text.count("! no SBP rule: runs whole on every rank") == 1
    assert "notes\n  top5 (aten.topk.default) has no SBP rule" in text


def test_text_fits_a_terminal_whatever_the_names():
    long = "a_name_that_goes_on_and_on_" * 8
    step = Boxing(long, ("P", "B"), ("B", "B"), long, long[1:], "reduce_scatter", 2**29)
    ops = tuple(
        replace(op, name=f"{long}{op.index}", aten=f"aten.{long}", line=f"{long}/train.py:1234", boxing=(step,))
        for op in PLAN.ops
    )
    variables = tuple(replace(v, name=long, placement=long) for v in PLAN.variables)
    ranks = tuple(replace(rank, ranks=ranks_text(range(0, 1000, 2))) for rank in PLAN.ranks)
    text = str(replace(PLAN, ops=ops, variables=variables, ranks=ranks))
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "a_name_that_…_on_and_on_17" in text
    assert text.count("  …_/train.py:1234") == len(ops)


def test_text_never_hands_control_characters_to_the_terminal():
    ops = (replace(PLAN.ops[0], name=NASTY, boxing=(replace(PLAN.ops[0].boxing[0], value=NASTY),)),)
    text = str(replace(PLAN, job=NASTY, ops=ops, notes=(NASTY,), variables=(replace(PLAN.variables[0], name=NASTY),)))
    assert not [c for c in text if not c.isprintable() and c != "\n"]
    assert "\\x1b[31m" in text


@pytest.mark.parametrize(
    "count, text",
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (102_236_160, "97.5 MiB"),
        (2**30 - 1, "1.00 GiB"),
        (5 * 2**60, "5120 PiB"),
    ],
)
def test_bytes_in_words(count, text):
    assert bytes_text(count) == text


@pytest.mark.parametrize(
    "count, text", [(0, "0 FLOP"), (999, "999 FLOP"), (8_170_000_000, "8.17 GFLOP"), (999_999, "1.00 MFLOP")]
)
def test_operations_in_words(count, text):
    assert flops_text(count) == text


@pytest.mark.parametrize("ranks, text", [([0], "0"), (range(1024), "0-1023"), ([5, 0, 1, 2], "0-2,5"), ([], "")])
def test_ranks_in_words(ranks, text):
    assert ranks_text(ranks) == text


# ------------------------------------------------------------------ files


def test_the_ending_of_a_file_chooses_the_form(tmp_path):
    for name in ("plan.txt", "plan.json", "plan.html"):
        PLAN.save(tmp_path / name)
    assert (tmp_path / "plan.txt").read_text(encoding="utf-8") == f"{PLAN}\n"
    assert Plan.from_json((tmp_path / "plan.json").read_text(encoding="utf-8")) == PLAN
    assert (tmp_path / "plan.html").read_text(encoding="utf-8") == plan_page(PLAN)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.html", "plan.json", "plan.txt"]


def test_another_ending_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ArgumentError, match=r"saved as \.txt, \.json or \.html, got '.*plan\.pdf'"):
        PLAN.save(tmp_path / "plan.pdf")
    with pytest.raises(DataError, match="cannot be written"):
        PLAN.save(tmp_path / "no such folder" / "plan.html")
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------ the page


class Page(HTMLParser):
    """The elements of a page as a browser would read it, and the text that begins each, by its id or tag."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self._of: str | None = None
        self.feed(page)

    def handle_starttag(self, tag, attrs) -> None:
        self.elements.append((tag, dict(attrs)))
        self._of = dict(attrs).get("id") or tag

    def handle_endtag(self, tag) -> None:
        self._of = None

    def handle_data(self, data) -> None:
        if self._of is not None:
            self.texts[self._of] = self.texts.get(self._of, "") + data


def test_the_page_asks_for_nothing_else():
    page = plan_page(PLAN)
    assert not re.search(r"https?://|\burl\(|@import|\bfetch\(|XMLHttpRequest|\bimport\(", page)
    found = Page(page).elements
    assert [attributes["href"] for _, attributes in found if "href" in attributes] == ["data:,"]
    assert not [attributes for _, attributes in found if "src" in attributes]
    policy = next(
        attributes["content"] for tag, attributes in found if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'")


def test_the_page_carries_the_whole_plan():
    assert Plan.from_json(Page(plan_page(PLAN)).texts["plan"]) == PLAN


def test_a_page_of_several_plans_carries_all_of_them():
    other = replace(PLAN, job="other")
    page = Page(plan_page(PLAN, other))
    assert [Plan.from_json(json.dumps(one)) for one in json.loads(page.texts["plan"])] == [PLAN, other]
    assert page.texts["title"] == "train_job, other: plan"


def test_names_cannot_break_out_of_the_page():
    ops = tuple(replace(op, name=NASTY, line=NASTY, placement=NASTY) for op in PLAN.ops)
    nasty = replace(PLAN, job=NASTY, ops=ops, notes=(NASTY,))
    plain, attacked = Page(plan_page(PLAN)), Page(plan_page(nasty))
    assert [tag for tag, _ in attacked.elements] == [tag for tag, _ in plain.elements]
    assert attacked.texts["title"] == f"{NASTY}: plan"
    assert Plan.from_json(attacked.texts["plan"]) == nasty


def test_the_script_never_writes_html():
    script = Page(plan_page(PLAN)).texts["script"]
    assert "textContent" in script
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", script)


def test_a_notebook_gets_the_page_in_a_frame():
    frame = Page(PLAN._repr_html_())
    assert [tag for tag, _ in frame.elements] == ["iframe"]
    assert frame.elements[0][1]["srcdoc"] == plan_page(PLAN)


# ------------------------------------------------------------------ in a browser

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPTIONS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --disable-dev-shm-usage""".split()


def shown_in_browser(page, folder, view="") -> str:
    """The page's elements as they stand after its script has run."""
    address = f"{page.as_uri()}{view}"
    run = subprocess.run(
        [BROWSER, *OPTIONS, f"--user-data-dir={folder}", "--dump-dom", address],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def visible_ops(dom: str) -> list[str]:
    cards = re.findall(r'<article class="op[^>]*>', dom)
    assert cards
    return [html.unescape(re.search(r'data-name="([^"]*)"', card)[1]) for card in cards if " hidden" not in card]


@pytest.mark.skipif(BROWSER is None, reason="no browser is installed: chromium, chromium-browser or google-chrome")
def test_a_browser_shows_the_plan_and_finds_ops_in_it(tmp_path):
    plan = replace(
        PLAN, ops=(*PLAN.ops, replace(PLAN.ops[-1], index=len(PLAN.ops), name=f"<img src=x>{NASTY[:40]}", boxing=()))
    )
    page = tmp_path / "plan.html"
    plan.save(page)
    dom = shown_in_browser(page, tmp_path / "profile")
    assert len(visible_ops(dom)) == len({(op.part, op.name) for op in plan.ops})
    assert visible_ops(dom)[-1] == plan.ops[-1].name
    assert "<img" not in dom
    for text in (
        "556<small> GFLOP",
        "167<small> MiB",
        "3.00<small> GiB",
        "99.2 MiB · 12×",
        "59 ops",
        '<b class="P">P</b>',
        "runs whole: no rule",
    ):
        assert text in dom, text
    part = shown_in_browser(page, tmp_path / "profile", "#q=CONV+s(0)+convolution&part=backward")
    assert visible_ops(part) == [f"stage{i // 4}-conv{i}" for i in reversed(range(6))]
    assert "6 of 59 ops" in part
    boxed = shown_in_browser(page, tmp_path / "profile", "#only=boxing&q=bucket:3")
    assert visible_ops(boxed) == ["optimizer"]
    assert '<span class="bytes">12.2 MiB</span>' in boxed
    assert visible_ops(shown_in_browser(page, tmp_path / "profile", "#only=no-rule")) == ["top5"]
    save_plans([plan, replace(plan, job="other", ops=plan.ops[:1])], page)
    for view, count in (("", len(visible_ops(dom))), ("#job=other", 1)):
        assert len(visible_ops(shown_in_browser(page, tmp_path / "profile", view))) == count
