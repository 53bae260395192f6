"""``flow.plan`` and ``python -m oneflow plan``: from a program to the plans of its jobs.

Where only the way there is tested, a stand-in takes the compiler's place; what is in a plan is tested with the
compiler.
"""

from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest

import oneflow as flow
import oneflow.typing as tp
from oneflow.__main__ import main
from oneflow.engine.core.errors import ArgumentError, JobError
from oneflow.engine.core.placement import parse_placement
from oneflow.engine.ir.notes import op_note
from oneflow.engine.job.function import default_session
from oneflow.engine.plan.devices import device_axes, placement_of
from oneflow.engine.plan.report import Plan
from oneflow.engine.plan.values import Traffic

SCRIPT = """
import argparse
import sys

import numpy as np
import oneflow as flow
import oneflow.typing as tp
from beside import WIDTH

parser = argparse.ArgumentParser()
parser.add_argument("--rows", type=int, default=2)
args = parser.parse_args()
print("rows", args.rows)


@flow.global_function(type="train")
def learn(x: tp.Numpy.Placeholder((args.rows, WIDTH))) -> tp.Numpy:
    print("learn is traced")
    w = flow.get_variable("w", (WIDTH, 1), initializer=flow.zeros_initializer())
    loss = flow.matmul(x, w)
    flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(loss)
    return loss


@flow.global_function(type="predict")
def twice(x: tp.Numpy.Placeholder((args.rows, WIDTH))) -> tp.Numpy:
    return x * 2.0


if __name__ == "__main__":
    try:
        learn(np.zeros((args.rows, WIDTH), np.float32))
    except Exception:
        print("the program took the end for an error of its own")
    finally:
        print("the program cleans up")
    print("a job has run")
"""


@pytest.fixture
def made(monkeypatch):
    """Stands in for the compiler: makes an empty plan, and keeps what it was asked for."""
    asked = []

    def make_plan(graph, settings, placement):
        asked.append((graph, settings, placement))
        kind = "train" if settings.is_train else "predict"
        return Plan(
            graph.job, kind, placement.device_type, placement.size, placement.axes, settings.micro_batches, (), ()
        )

    module = ModuleType("oneflow.engine.plan.make")
    module.make_plan = make_plan
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return asked


@pytest.fixture
def script(tmp_path):
    (tmp_path / "beside.py").write_text("WIDTH = 3\n", encoding="utf-8")
    path = tmp_path / "program.py"
    path.write_text(SCRIPT, encoding="utf-8")
    yield str(path)
    sys.modules.pop("beside", None)


@pytest.fixture
def job():
    @flow.global_function(type="predict")
    def half(x: tp.Numpy.Placeholder((4, 2))) -> tp.Numpy:
        return x * flow.get_variable("half", (1,), initializer=flow.constant_initializer(0.5))

    return half


# ------------------------------------------------------------------ flow.plan


def test_a_job_is_planned_for_the_devices_it_has(made, job):
    plan = flow.plan(job)
    assert (plan.job, plan.kind, plan.devices) == ("half", "predict", 1)
    assert made[0][2] == default_session().default_placement()


def test_a_job_is_planned_for_devices_that_are_not_there(made, job):
    assert flow.plan(job, devices=1024).devices == 1024
    assert flow.plan(job, devices="8x128").axes == (8, 128)
    assert flow.plan(job, devices=(2, 2, np.int64(3))).axes == (2, 2, 3)
    assert flow.plan(job, placement=flow.scope.placement("gpu", ["0:0-3", "1:0-3"], (2, 4))).axes == (2, 4)
    assert made[-1][2].device_type == "gpu"


def test_planning_starts_nothing_and_the_job_runs_afterwards(job):
    plan = flow.plan(job, devices=16)
    session = default_session()
    assert session.backend is None and not session.store.has_values
    assert (job(np.ones((4, 2), np.float32)) == 0.5).all()
    assert flow.plan(job, devices=16) == plan
    assert flow.plan(job).devices == 1


def test_only_a_job_can_be_planned(job):
    with pytest.raises(
        ArgumentError,
        match=r"takes a function that @flow\.global_function decorated, or an nn.Graph, got <built-in function print>",
    ):
        flow.plan(print)
    with pytest.raises(ArgumentError, match="takes devices or a placement, got both"):
        flow.plan(job, devices=2, placement=flow.scope.placement("cpu", "0:0"))
    with pytest.raises(ArgumentError, match=r"is made by flow\.scope\.placement\(\.\.\.\), got 'gpu'"):
        flow.plan(job, placement="gpu")


def test_a_job_that_was_replaced_cannot_be_planned(job):
    old = job

    @flow.global_function(type="predict")
    def half(x: tp.Numpy.Placeholder((4, 2))) -> tp.Numpy:
        return x

    with pytest.raises(
        JobError, match=r"job 'half' of .* was replaced by another definition of that name; plan that one"
    ):
        flow.plan(old)


def test_a_job_cannot_be_planned_inside_a_job(job):
    @flow.global_function(type="predict")
    def outer(x: tp.Numpy.Placeholder((4, 2))) -> tp.Numpy:
        flow.plan(job)
        return x

    with pytest.raises(JobError, match="inside the body of job 'outer'"):
        flow.plan(outer)


@pytest.mark.parametrize(
    "devices, axes", [(8, (8,)), ("8", (8,)), ("2x4", (2, 4)), ([2, 4], (2, 4)), ((1, 2, 3), (1, 2, 3))]
)
def test_devices_in_every_form(devices, axes):
    assert device_axes(devices) == axes


@pytest.mark.parametrize("devices", [0, -1, True, 2.0, "", "8x", "x8", "8 x 128", "2x0", (), (2, 0), ("2",), {2}])
def test_devices_in_no_form(devices):
    with pytest.raises(ArgumentError, match=r"a number such as 1024, or axes such as '8x128' or \(8, 128\)"):
        device_axes(devices)


def test_the_first_of_several_axes_is_that_of_the_machines():
    assert placement_of("cpu", (4,)) == parse_placement("cpu", "0:0-3")
    assert placement_of("gpu", (2, 2)) == parse_placement("gpu", ["0:0-1", "1:0-1"], (2, 2))
    assert placement_of("gpu", (2, 2, 2)) == parse_placement("gpu", ["0:0-3", "1:0-3"], (2, 2, 2))


# ------------------------------------------------------------------ the command


def test_a_program_runs_up_to_its_first_job_and_all_its_jobs_are_planned(made, script, capsys):
    assert main(["plan", script, "--devices", "2x4", "--", "--rows", "8"]) == 0
    out, err = capsys.readouterr()
    assert [line for line in out.splitlines() if line] == [
        "train job learn on 8 cpu devices (2 x 4)",
        "predict job twice on 8 cpu devices (2 x 4)",
    ]
    assert [line for line in err.splitlines() if line] == ["rows 8", "learn is traced", "the program cleans up"]
    assert op_note(made[0][0].inputs[0]).spec.shape == (8, 3)


def test_one_job_can_be_chosen_and_written_to_a_file(made, script, tmp_path, capsys):
    target = tmp_path / "plan.json"
    assert main(["plan", script, "--job", "twice", "--output", str(target)]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith(f"the plan is in {target}\n")
    assert Plan.from_json(target.read_text(encoding="utf-8")).job == "twice"


def test_several_jobs_are_written_to_one_file_which_is_said_before_they_are_traced(made, script, tmp_path, capsys):
    target = tmp_path / "plan.json"
    assert main(["plan", script, "--output", str(target)]) == 0
    lines = capsys.readouterr().err.splitlines()
    announced = lines.index(f"{target} will have the plans of 2 jobs, --job chooses one: learn, twice")
    assert announced < lines.index("learn is traced")
    assert lines[-1] == f"2 plans are in {target}"
    assert [Plan.from_json(line).job for line in target.read_text(encoding="utf-8").splitlines()] == ["learn", "twice"]
    flow.clear_default_session()
    assert main(["plan", script, "--output", str(tmp_path / "plan.txt")]) == 0
    assert (tmp_path / "plan.txt").read_text(encoding="utf-8").split("\n\n\n") == [
        "train job learn on 1 cpu device", "predict job twice on 1 cpu device\n",
    ]  # fmt: skip


def test_json_is_a_line_a_job(made, script, capsys):
    assert main(["plan", script, "--json"]) == 0
    assert [Plan.from_json(line).job for line in capsys.readouterr().out.splitlines()] == ["learn", "twice"]


def test_the_program_finds_the_interpreter_as_it_was(made, script, capsys):
    argv, path = sys.argv, list(sys.path)
    assert main(["plan", script, "--json"]) == 0
    assert (sys.argv, sys.path) == (argv, path)
    assert default_session().before_start is None


def test_jobs_of_a_program_that_calls_none_are_planned(made, tmp_path, capsys):
    path = tmp_path / "program.py"
    path.write_text(
        """
import oneflow as flow
import oneflow.typing as tp

flow.clear_default_session()

@flow.global_function()
def same(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
    print("traced")
    return flow.identity(x)

raise SystemExit
""",
        encoding="utf-8",
    )
    assert main(["plan", str(path)]) == 0
    assert capsys.readouterr() == ("predict job same on 1 cpu device\n", "traced\n")


def test_a_session_that_was_cleared_stops_at_its_first_job_too(made, script, capsys):
    with open(script, "r+", encoding="utf-8") as file:
        text = file.read().replace("parser = ", "flow.clear_default_session()\nparser = ")
        file.seek(0)
        file.write(text)
    assert main(["plan", script, "--job", "twice"]) == 0
    assert "a job has run" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, reason",
    [
        (["--job", "twise"], "has no job 'twise', it has learn, twice. Did you mean 'twice'?"),
        (
            ["--output", "plan.pdf"],
            "a plan is saved as .txt, .json or .html, got 'plan.pdf'; give it one of these endings",
        ),
    ],
)
def test_what_cannot_be_planned_is_said(made, script, capsys, arguments, reason):
    assert main(["plan", script, *arguments]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].endswith(reason)


def test_a_program_without_a_job_is_told(tmp_path, capsys):
    (tmp_path / "program.py").write_text("print('nothing here')\n", encoding="utf-8")
    assert main(["plan", str(tmp_path / "program.py")]) == 1
    assert "program.py ended without defining a job; decorate a function" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, reason",
    [
        (["--devices", "8y128"], "devices are a number such as 1024, or axes such as '8x128' or (8, 128); got '8y128'"),
        (["--json", "--output", "x.html"], "not allowed with argument"),
        (["--rows", "8"], "unrecognized arguments: --rows 8"),
    ],
)
def test_a_wrong_command_line_is_refused(script, capsys, arguments, reason):
    with pytest.raises(SystemExit) as end:
        main(["plan", script, *arguments])
    assert end.value.code == 2
    assert reason in capsys.readouterr().err


def test_a_script_that_is_not_there_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        main(["plan", str(tmp_path / "program.py")])
    assert end.value.code == 2
    assert "program.py is no file; name the program" in capsys.readouterr().err


def test_a_program_that_refuses_its_arguments_ends_with_its_own_code(script, capsys):
    with pytest.raises(SystemExit) as end:
        main(["plan", script, "--", "--rows", "many"])
    assert end.value.code == 2
    assert "argument --rows: invalid int value: 'many'" in capsys.readouterr().err


def test_an_error_of_the_program_is_the_programs(tmp_path):
    (tmp_path / "program.py").write_text("raise OSError('its own')\n", encoding="utf-8")
    with pytest.raises(OSError, match="its own"):
        main(["plan", str(tmp_path / "program.py")])
    assert default_session().before_start is None


def test_a_job_that_cannot_be_traced_is_an_error_with_the_users_line(tmp_path, capsys):
    path = tmp_path / "program.py"
    path.write_text(
        """import numpy as np
import oneflow as flow
import oneflow.typing as tp

@flow.global_function()
def wrong(x: tp.Numpy.Placeholder((2, 3))) -> tp.Numpy:
    return flow.matmul(x, x)

wrong(np.zeros((2, 3), np.float32))
""",
        encoding="utf-8",
    )
    assert main(["plan", str(path)]) == 1
    assert f"error: {path}:7: " in capsys.readouterr().err


def test_a_plan_of_split_classes_and_rows_needs_no_labels():
    @flow.global_function("train")
    def split(
        x: tp.Numpy.Placeholder((8, 3), dtype=flow.int64), labels: tp.Numpy.Placeholder((8,), dtype=flow.int32)
    ) -> tp.Numpy:
        table = flow.get_variable(
            "table", (64, 4), initializer=flow.ones_initializer(), distribute=flow.distribute.split(0)
        )
        weight = flow.get_variable(
            "weight", (12, 64), initializer=flow.ones_initializer(), distribute=flow.distribute.split(1)
        )
        logits = flow.matmul(flow.reshape(flow.gather(table, x), (8, 12)), weight)
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1]), momentum=0.0).minimize(loss)
        return loss

    variables = {variable.name: variable for variable in flow.plan(split, devices=4).variables}
    assert {"S(0)"} == set(variables["table"].sbp) and {"S(1)"} == set(variables["weight"].sbp)


def test_a_plan_is_refused_where_the_run_would_be():
    @flow.global_function()
    def reads():
        with flow.scope.placement("cpu", "0:0-7", (2, 4)):
            return flow.identity(flow.data.decode_random((3,), flow.float32, 12, name="pictures"))

    with pytest.raises(
        ArgumentError,
        match="reader 'pictures' gives batches of 12, which 8 devices in a hierarchy cannot share; choose a batch size that 8 divides",
    ):
        flow.plan(reads)


def test_an_input_that_nothing_reads_is_no_batch_that_is_too_small():
    @flow.global_function()
    def uses_one(x: tp.Numpy.Placeholder((8, 3)), labels: tp.Numpy.Placeholder((1,), dtype=flow.int32)) -> tp.Numpy:
        return x * 2.0

    assert not [note for note in flow.plan(uses_one, devices=4).notes if "smaller than" in note]


def command(folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    asked = [sys.executable, "-m", "oneflow", "plan", "program.py", *arguments]
    return subprocess.run(asked, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def test_as_a_command(tmp_path):
    (tmp_path / "program.py").write_text("import oneflow\nprint('for the log')\n", encoding="utf-8")
    run = command(tmp_path)
    assert (run.returncode, run.stdout) == (1, "")
    assert (
        run.stderr
        == "for the log\nerror: program.py ended without defining a job; decorate a function with @flow.global_function\n"
    )


def test_the_command_plans_for_a_thousand_devices(script, tmp_path):
    """2048 rows for 1024 devices: two rows each, and the three elements of w are summed once."""
    run = command(tmp_path, "--devices", "8x128", "--json", "--", "--rows", "2048")
    assert run.stderr.splitlines() == ["rows 2048", "learn is traced", "the program cleans up"]
    learn, twice = map(Plan.from_json, run.stdout.splitlines())
    (rank,) = learn.ranks
    assert (rank.ranks, rank.count, rank.flops, rank.variables) == ("0-1023", 1024, 2 * 2 * 2 * 3, 2 * 3 * 4)
    assert rank.communicated == {"all_reduce": Traffic(1, 3 * 4)}
    (product,) = [op for op in learn.ops if op.part == "forward" and op.flops]
    assert (product.name, product.op, product.shape, product.local_shape) == ("Matmul_0", "matmul", (2048, 1), (2, 1))
    assert (product.sbp, product.placement) == (("S(0)", "S(0)"), "cpu[0-7:0-127]")
    assert product.line.endswith("program.py:20")
    assert [(twice.kind, rank.flops, rank.communicated) for rank in twice.ranks] == [("predict", 0, {})]


def test_the_command_prints_a_plan_that_people_read(script, tmp_path):
    run = command(tmp_path, "--devices", "4", "--job", "learn", "--", "--rows", "2")
    assert run.returncode == 0
    assert run.stdout.startswith("train job learn on 4 cpu devices\n\na step, each rank\n  ranks  operations")
    assert "the batch of 2 (Input_0) is smaller than its 4 devices: it is not split" in run.stdout
