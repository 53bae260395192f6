"""What the folders of runs hold, as plain values: read anew each time, so that a run may be going on."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

METRICS, CONFIG, LOG, PLAN, FINISHED = "metrics.json", "config.yaml", "log.txt", "plan.html", "model_final"
_DEPTH = 4
_POINTS = 800
_LOG_BYTES = 6000


def find_runs(folders: Iterable[str | os.PathLike[str]]) -> list[tuple[str, Path]]:
    """Every folder with a metrics.json at most four levels below the given ones, by name; the name is its path below
    the folder that was given."""
    found = []
    given = [Path(folder) for folder in folders]
    for root in given:
        for path in _below(root, _DEPTH):
            if (path / METRICS).is_file():
                inner = "" if path == root else str(path.relative_to(root))
                found.append(
                    (
                        inner
                        if inner and len(given) == 1
                        else os.path.join(root.name or str(root.resolve().name), inner).rstrip("/"),
                        path,
                    )
                )
    return sorted(found)


def _below(folder: Path, depth: int) -> Iterator[Path]:
    yield folder
    if depth:
        try:
            entries = sorted(
                entry.path
                for entry in os.scandir(folder)
                if entry.is_dir() and not entry.name.startswith(("model_", "."))
            )
        except OSError:
            return
        for entry in entries:
            yield from _below(Path(entry), depth - 1)


def stamp(path: Path) -> str:
    """Changes whenever something that is shown does."""
    parts = []
    for name in (METRICS, CONFIG, LOG, PLAN, FINISHED):
        try:
            status = os.stat(path / name)
            parts.append(f"{status.st_mtime_ns}-{status.st_size}")
        except OSError:
            parts.append("-")
    return ".".join(parts)


def read_run(name: str, path: Path) -> dict[str, Any]:
    """The scalars of a run as lists of [iteration, value], its last ones, its config and the end of its log."""
    series = _series(path / METRICS)
    newest = max((points[-1][0] for points in series.values()), default=None)
    return {
        "name": name,
        "iteration": newest,
        "finished": (path / FINISHED).exists(),
        "updated": _modified(path / METRICS),
        "latest": {key: points[-1][1] for key, points in series.items()},
        "series": {key: thinned(points) for key, points in series.items()},
        "config": _text(path / CONFIG),
        "log": _tail(path / LOG),
        "plan": (path / PLAN).exists(),
    }


def _series(path: Path) -> dict[str, list[list[float]]]:
    """Of an iteration that stands there twice, as after a resumed run, the later line counts. A last line that is still
    being written does not."""
    values: dict[str, dict[int, float]] = {}
    for line in _text(path).splitlines():
        try:
            scalars = json.loads(line)
            at = int(scalars.pop("iteration"))
        except (ValueError, KeyError, AttributeError, TypeError):
            continue
        for key, value in scalars.items():
            if isinstance(value, (int, float)):
                values.setdefault(key, {})[at] = value
    return {key: [[at, value] for at, value in sorted(points.items())] for key, points in sorted(values.items())}


def thinned(points: list[list[float]], count: int = _POINTS) -> list[list[float]]:
    """At most about ``count`` points: of each stretch the lowest and the highest, so that no spike is lost; first and
    last stay."""
    if len(points) <= count:
        return points
    size = -(-len(points) // (count // 2))
    kept = [points[0]]
    for begin in range(0, len(points), size):
        stretch = points[begin : begin + size]
        kept += sorted((min(stretch, key=_value), max(stretch, key=_value)))
    return [*kept, points[-1]]


def _value(point: list[float]) -> float:
    return point[1]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _tail(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _LOG_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    return text.split("\n", 1)[-1] if size > _LOG_BYTES else text


def _modified(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None
