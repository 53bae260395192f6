"""The page of runs: what it reads, what it serves and to whom, and what a browser shows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

from libai.board.__main__ import main
from libai.board.runs import find_runs, read_run, thinned
from libai.board.server import serve

NASTY = "</script><script>document.title='hacked'</script><img src=x onerror=document.title='hacked'>"


def write_run(folder, losses=(2.0, 1.0, 0.5), config="train: {seed: 1}", finished=False, plan=None):
    folder.mkdir(parents=True)
    lines = [
        {"iteration": 10 * i + 9, "total_loss": loss, "lr": 0.1, "total_throughput": 900.0, "max_mem_mb": 100.0}
        for i, loss in enumerate(losses)
    ]
    lines.append({"iteration": 10 * len(losses) - 1, "Acc@1": 97.25})
    (folder / "metrics.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "config.yaml").write_text(config)
    (folder / "log.txt").write_text("a line of the log\n")
    if finished:
        (folder / "model_final").mkdir()
    if plan is not None:
        (folder / "plan.html").write_text(plan)


@contextmanager
def served(*folders):
    with serve([str(folder) for folder in folders], port=0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def get(address, **headers):
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=20) as reply:
        return reply, reply.read().decode()


def test_runs_are_found_below_a_folder_by_name(tmp_path):
    for name in ("a/first", "b", "a/first/model_0000009/inner"):
        write_run(tmp_path / name)
    assert [name for name, _ in find_runs([tmp_path])] == ["a/first", "b"]
    assert [name for name, _ in find_runs([tmp_path / "b"])] == ["b"]
    assert [name for name, _ in find_runs([tmp_path / "a", tmp_path / "b"])] == ["a/first", "b"]


def test_a_run_is_read_while_it_is_written(tmp_path):
    write_run(tmp_path / "run")
    with open(tmp_path / "run" / "metrics.json", "a") as file:
        file.write('{"iteration": 19, "total_loss": 0.75}\n[1]\nnot json\n{"iteration": 39, "total_lo')
    found = read_run("run", tmp_path / "run")
    assert found["series"]["total_loss"] == [[9, 2.0], [19, 0.75], [29, 0.5]]  # of a resumed run the later line counts
    assert (
        found["series"]["Acc@1"] == [[29, 97.25]] and found["latest"]["total_loss"] == 0.5 and found["iteration"] == 29
    )
    assert (
        not found["finished"]
        and not found["plan"]
        and found["config"] == "train: {seed: 1}"
        and found["log"] == "a line of the log\n"
    )
    assert read_run("none", tmp_path / "none")["series"] == {}


def test_long_series_are_thinned_and_keep_their_spikes():
    points = [[i, 1.0] for i in range(10_000)]
    points[5_001][1], points[7_003][1] = 99.0, -99.0
    kept = thinned(points, 100)
    assert (
        len(kept) <= 210
        and kept[0] == points[0]
        and kept[-1] == points[-1]
        and points[5_001] in kept
        and points[7_003] in kept
    )
    assert thinned(points[:50], 100) == points[:50]


def test_what_is_served_and_to_whom(tmp_path):
    write_run(tmp_path / "run", losses=(float("inf"), 1.0), plan="<p>the plan</p>")
    with served(tmp_path) as address:
        reply, page = get(f"{address}/")
        assert "default-src 'none'" in reply.headers["Content-Security-Policy"]
        assert not re.findall(r"(?:src|href)=[\"']?(?:https?:)?//", page)  # the page is all there is
        reply, text = get(f"{address}/runs.json")
        assert json.loads(text)["runs"][0]["series"]["total_loss"] == [[9, "inf"], [19, 1.0]]
        with pytest.raises(urllib.error.HTTPError, match="304"):
            get(f"{address}/runs.json", **{"If-None-Match": reply.headers["ETag"]})
        with open(tmp_path / "run" / "metrics.json", "a") as file:
            file.write('{"iteration": 29, "total_loss": 0.75}\n')
        assert "0.75" in get(f"{address}/runs.json", **{"If-None-Match": reply.headers["ETag"]})[1]
        assert get(f"{address}/plan?run=run")[1] == "<p>the plan</p>"
        for path, status in (("/plan?run=../run", 404), ("/metrics.json", 404), ("/../../etc/passwd", 404)):
            with pytest.raises(urllib.error.HTTPError, match=str(status)):
                get(f"{address}{path}")
        with pytest.raises(urllib.error.HTTPError, match="403"):  # another site's name that leads to this machine
            get(f"{address}/runs.json", Host="evil.example")


def test_the_command_says_what_it_cannot_do(tmp_path, capsys):
    assert main([str(tmp_path / "none")]) == 2
    assert "none is no folder; give the output_dir of a run" in capsys.readouterr().err
    with served(tmp_path) as address:
        assert main([str(tmp_path), "--port", address.rsplit(":", 1)[1]]) == 2
    assert "cannot be listened on: Address already in use; give another --port" in capsys.readouterr().err


def test_the_command_serves_until_it_is_interrupted(tmp_path):
    write_run(tmp_path / "run")
    with subprocess.Popen(
        [sys.executable, "-m", "libai.board", str(tmp_path), "--port", "0"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            address = process.stdout.readline().strip()
            assert (
                address.startswith("http://127.0.0.1:")
                and json.loads(get(f"{address}runs.json")[1])["runs"][0]["name"] == "run"
            )
        finally:
            process.send_signal(2)
        assert process.wait(20) == 0


# ------------------------------------------------------------------ in a browser

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPTIONS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync
--disable-dev-shm-usage --virtual-time-budget=3000""".split()


@pytest.mark.skipif(BROWSER is None, reason="no browser is installed: chromium, chromium-browser or google-chrome")
def test_a_browser_shows_the_runs_side_by_side(tmp_path):
    write_run(tmp_path / "out" / "one", config=f"lr: 1\nsame: 2\nname: {NASTY}", finished=True, plan="<p>x</p>")
    write_run(tmp_path / "out" / "two", losses=(3.0, 2.5, 2.25), config=f"lr: 3\nsame: 2\nname: {NASTY}")
    with served(tmp_path / "out") as address:
        run = subprocess.run(
            [BROWSER, *OPTIONS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", f"{address}/"],
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert run.returncode == 0, run.stderr
    dom = run.stdout
    assert "2 runs" in dom and "hacked'</title>" not in dom and "<title>runs</title>" in dom and "<img" not in dom
    curves = re.findall(r'<path class="curve" d="(M[^"]*)" stroke="([^"]*)" data-run="(\w+)" data-key="([^"]*)"', dom)
    assert {(run_name, key) for _, _, run_name, key in curves} == {
        (name, key)
        for name in ("one", "two")
        for key in ("total_loss", "lr", "total_throughput", "max_mem_mb", "Acc@1")
    }
    assert len({stroke for _, stroke, _, _ in curves}) == 2 and all(
        path.count("L") == 2 for path, _, _, key in curves if key == "total_loss"
    )
    for text in (
        "finished",
        "97.25",
        "throughput, samples/s",
        "memory, MiB",
        "learning rate",
        "<mark>lr: 1</mark>",
        "<mark>lr: 3</mark>",
        ">plan</button>",
    ):
        assert text in dom, text
    assert "<mark>same: 2</mark>" not in dom
