"""What is kept of a run and how it is written: histories, the console's line, metrics.json, TensorBoard, logs, the
clock."""

from __future__ import annotations

import json
import logging
import re

import numpy as np
import pytest
import torch

from libai.utils import logger as logs
from libai.utils.events import (
    CommonMetricPrinter,
    EventStorage,
    EventWriter,
    JSONWriter,
    TensorboardXWriter,
    get_event_storage,
)
from libai.utils.history_buffer import HistoryBuffer
from libai.utils.memory import peak_memory_mb
from libai.utils.timer import Timer


def test_a_history_knows_its_last_values_and_the_mean_of_all():
    buffer = HistoryBuffer(max_length=3)
    for value in (10.0, 1.0, 5.0, 3.0):
        buffer.update(value)
    assert buffer.values() == [(1.0, 1), (5.0, 2), (3.0, 3)]
    assert (buffer.latest(), buffer.median(3), buffer.median(2), buffer.avg(2), buffer.global_avg()) == (
        3.0,
        3.0,
        4.0,
        4.0,
        4.75,
    )


@pytest.mark.parametrize(
    "values",
    [[2.0], [4.0, 1.0], [3.0, 1e300, -2.0], [0.1, 0.7, 0.2, 0.4], [1.0, float("nan"), 2.0], [float("inf"), 1.0]],
)
def test_the_median_is_that_of_numpy(values):
    buffer = HistoryBuffer()
    for value in values:
        buffer.update(value)
    np.testing.assert_equal(buffer.median(10), np.median(values))
    np.testing.assert_equal(buffer.avg(10), np.mean(values[::-1]))


def test_a_storage_has_scalars_by_name_and_iteration():
    with EventStorage(5) as storage:
        assert get_event_storage() is storage and storage.iter == 5
        for loss in (3.0, 1.0, 2.0):
            storage.put_scalars(loss=torch.tensor(loss), lr=0.5)
            storage.step()
        with storage.name_scope("eval"):
            storage.put_scalar("Acc@1", 97, smoothing_hint=False)
        storage.samples = 12
        assert storage.latest() == {"loss": (2.0, 7), "lr": (0.5, 7), "eval/Acc@1": (97.0, 8)}
        assert storage.latest_with_smoothing_hint(3) == {"loss": (2.0, 7), "lr": (0.5, 7), "eval/Acc@1": (97.0, 8)}
        assert storage.latest_with_smoothing_hint(2)["loss"] == (1.5, 7)
        assert storage.history("loss").values() == [(3.0, 5), (1.0, 6), (2.0, 7)] and set(storage.histories()) == set(
            storage.latest()
        )
        assert storage.smoothing_hints() == {"loss": True, "lr": True, "eval/Acc@1": False} and storage.samples == 12
        with pytest.raises(KeyError, match="No history metric available for acc"):
            storage.history("acc")
        with pytest.raises(AssertionError, match="Scalar loss was put with a different smoothing_hint"):
            storage.put_scalar("loss", 1, smoothing_hint=False)
        with EventStorage() as inner:
            assert get_event_storage() is inner
        assert get_event_storage() is storage
    with pytest.raises(AssertionError, match="inside a 'with EventStorage"):
        get_event_storage()


def test_the_line_of_the_console(caplog):
    caplog.set_level(logging.INFO, "libai")
    printer = CommonMetricPrinter(batch_size=128, max_iter=1000)
    with EventStorage(9) as storage:
        storage.samples = 1280
        storage.put_scalars(total_loss=2.28912, data_time=0.0402, lr=9e-5)
        printer.write()
        storage.put_scalar("time", 0.2064)
        printer.write()
        found = storage.latest()
        assert found["eta_seconds"][0] == pytest.approx(0.2064 * 990) and found["total_throughput"][0] == pytest.approx(
            128 / 0.2064
        )
        storage.iter = 1000
        printer.write_end()
    first, second = [record.message for record in caplog.records]
    assert re.fullmatch(
        r" iteration: 9/1000  consumed_samples: 1280  total_loss: 2.289  data_time: 0.0402 s/iter lr: 9.00e-05  max_mem: \d+M",
        first,
    )
    assert second.startswith(
        " eta: 0:03:24  iteration: 9/1000  consumed_samples: 1280  total_loss: 2.289  time: 0.2064 s/iter  data_time: "
        "0.0402 s/iter "
        "total_throughput: 620.16 samples/s lr: 9.00e-05  max_mem: "
    )
    assert 10 < peak_memory_mb() < 1e6


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_metrics_are_lines_of_what_is_new(tmp_path):
    path = tmp_path / "new" / "metrics.json"
    writer = JSONWriter(str(path))
    with EventStorage(0) as storage:
        storage.put_scalars(total_loss=4.0, lr=1.0)
        storage.step()
        storage.put_scalars(total_loss=2.0, lr=0.5)
        storage.put_scalar("Acc@1", 50.0, smoothing_hint=False)
        writer.write()
        writer.write()
        storage.iter = 9
        storage.put_scalar("total_loss", 6.0)
        writer.write()
        storage.put_scalar("Acc@1", 60.0, smoothing_hint=False)  # of the evaluation after the last iteration
        writer.write()
    writer.close()
    assert read(path) == [
        {"Acc@1": 50.0, "iteration": 1, "lr": 0.75, "total_loss": 3.0},
        {"iteration": 9, "total_loss": 4.0},
        {"Acc@1": 60.0, "iteration": 9},
    ]
    assert path.read_text().splitlines()[0] == '{"Acc@1": 50.0, "iteration": 1, "lr": 0.75, "total_loss": 3.0}'


def test_metrics_are_forced_to_the_disk_once_a_second_and_at_the_end(tmp_path, monkeypatch):
    forced, now = [], [100.0]
    monkeypatch.setattr("os.fsync", forced.append)
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    writer = JSONWriter(str(tmp_path / "metrics.json"))
    with EventStorage() as storage:
        for count in (1, 1, 2):
            storage.put_scalar("loss", 1.0)
            writer.write()
            assert len(forced) == count and len(read(tmp_path / "metrics.json")) == storage.iter + 1
            storage.step()
            now[0] += 0.6
    writer.close()
    writer.close()
    assert len(forced) == 3


def test_a_line_that_was_cut_off_is_removed(tmp_path):
    path = tmp_path / "metrics.json"
    path.write_text('{"iteration": 1}\n{"iteration": 2, "total')
    with EventStorage(3) as storage:
        writer = JSONWriter(str(path))
        storage.put_scalar("lr", 1.0)
        writer.write()
        writer.close()
    assert read(path) == [{"iteration": 1}, {"iteration": 3, "lr": 1.0}]
    path.write_text('{"iter')
    JSONWriter(str(path)).close()
    assert path.read_text() == ""


def test_tensorboard_reads_what_is_written(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    writer = TensorboardXWriter(str(tmp_path))
    with EventStorage(0) as storage:
        for loss in (4.0, 2.0):
            storage.put_scalar("total_loss", loss)
            writer.write()
            storage.step()
        storage.put_image("digit", torch.zeros(3, 4, 4))
        storage.put_histogram("weights", torch.arange(10.0))
        writer.write()
        assert storage.vis_data == [] and storage.histograms == []
    writer.close()
    found = EventAccumulator(str(tmp_path)).Reload()
    assert [(event.step, event.value) for event in found.Scalars("total_loss")] == [(0, 4.0), (1, 3.0)]
    assert found.Tags()["images"] == ["digit"] and found.Tags()["histograms"] == ["weights"]


def test_a_writer_has_to_write():
    with pytest.raises(NotImplementedError, match="EventWriter has to define write"):
        EventWriter().write()


@pytest.fixture
def fresh_loggers():
    yield
    for name in ("libai_test", "other_test"):
        log = logging.getLogger(name)
        for handler in log.handlers[:]:
            log.removeHandler(handler)
            handler.close()
    logs.setup_logger.cache_clear()


def test_logs_of_rank_0_and_of_others(tmp_path, capsys, fresh_loggers):
    log = logs.setup_logger(str(tmp_path / "out"), 0, name="libai_test", abbrev_name="lb")
    assert logs.setup_logger(str(tmp_path / "out"), 0, name="libai_test", abbrev_name="lb") is log
    logging.getLogger("libai_test.utils.events").info("hello")
    log.warning("look out")
    console = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"\[\d\d/\d\d \d\d:\d\d:\d\d lb.utils.events\]: hello", console[0])
    assert re.fullmatch(r"WARNING \[\d\d/\d\d \d\d:\d\d:\d\d lb\]: look out", console[1])
    lines = (tmp_path / "out" / "log.txt").read_text().splitlines()
    assert re.fullmatch(r"\[\d\d/\d\d \d\d:\d\d:\d\d\] libai_test.utils.events INFO: hello", lines[0])
    other = logs.setup_logger(str(tmp_path / "out"), 2, name="other_test")
    other.info("quiet")
    assert capsys.readouterr().out == "" and "quiet" in (tmp_path / "out" / "log.txt.rank2").read_text()


def test_setting_up_again_replaces_what_was_set_up(tmp_path, fresh_loggers):
    first = logs.setup_logger(str(tmp_path / "a.log"), 0, name="libai_test")
    logs.setup_logger(str(tmp_path / "b.log"), 0, name="libai_test")
    first.info("x")
    assert (tmp_path / "a.log").read_text() == "" and "x" in (tmp_path / "b.log").read_text()


def test_logging_now_and_then(caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    now = [100.0]
    monkeypatch.setattr(logs.time, "monotonic", lambda: now[0])
    for number in range(5):
        logs.log_first_n(logging.INFO, "first", n=2)
        logs.log_first_n(logging.INFO, f"by message {number % 2}", key="message")
        logs.log_every_n(logging.INFO, f"every {number}", n=3)
        now[0] += 1.0
        logs.log_every_n_seconds(logging.INFO, f"seconds {number}", n=2, name="libai.x")
    found = [record.message for record in caplog.records]
    assert found.count("first") == 2
    assert [text for text in found if text.startswith("by")] == ["by message 0", "by message 1"]
    assert [text for text in found if text.startswith("every")] == ["every 0", "every 3"]
    assert [text for text in found if text.startswith("seconds")] == ["seconds 0", "seconds 2", "seconds 4"]


def test_a_clock_that_is_paused_stands_still(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("libai.utils.timer.perf_counter", lambda: now[0])
    timer = Timer()
    now[0] = 2.0
    timer.pause()
    now[0] = 10.0
    assert timer.is_paused() and timer.seconds() == 2.0
    with pytest.raises(ValueError, match="already paused"):
        timer.pause()
    timer.resume()
    now[0] = 14.0
    assert timer.seconds() == 6.0 and timer.avg_seconds() == 3.0
    with pytest.raises(ValueError, match="not paused"):
        timer.resume()
