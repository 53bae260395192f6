"""The server of the page: one page, the runs as JSON, and the plans that lie beside them. It writes nothing and reads
only folders that were named."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any
from urllib.parse import parse_qs, urlsplit

from libai.board.runs import PLAN, find_runs, read_run, stamp
from oneflow.engine.core.errors import ArgumentError

LOOPBACK = "127.0.0.1"
# The page needs nothing from elsewhere, and nothing in a config or log can make it ask.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'"


def serve(folders: Sequence[str], host: str = LOOPBACK, port: int = 6007) -> ThreadingHTTPServer:
    """A server of the runs in these folders, not yet running; ``serve_forever()`` runs it. Port 0 is any that is
    free."""

    class Handler(_Handler):
        watched = tuple(folders)

    try:
        return _Server((host, port), Handler)
    except OSError as error:
        raise ArgumentError(
            f"{host}:{port} cannot be listened on: {error.strerror}; give another --port, 0 is any that is free"
        ) from None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True


class _Handler(BaseHTTPRequestHandler):
    watched: tuple[str, ...] = ()
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        if not self._is_asked_for_here():
            self._send(403, "text/plain", b"this page is served to the machine it runs on")
        elif address.path == "/":
            self._send(200, "text/html; charset=utf-8", (resources.files("libai.board") / "page.html").read_bytes())
        elif address.path == "/runs.json":
            self._send_runs()
        elif address.path == "/plan":
            self._send_plan(parse_qs(address.query).get("run", [""])[0])
        else:
            self._send(404, "text/plain", b"there is / , /runs.json and /plan?run=<name>")

    def _is_asked_for_here(self) -> bool:
        """On loopback, whether the name that was asked for is loopback's: another site's name may lead here as well,
        and its page must not read this one."""
        listens_on, *_ = self.connection.getsockname()
        if listens_on != LOOPBACK:
            return True
        name = (self.headers.get("Host") or "").rsplit(":", 1)[0].strip("[]")
        return name in (LOOPBACK, "localhost", "::1")

    def _send_runs(self) -> None:
        runs = find_runs(self.watched)
        tag = '"' + sha256("|".join(f"{name}:{stamp(path)}" for name, path in runs).encode()).hexdigest()[:16] + '"'
        if self.headers.get("If-None-Match") == tag:
            self._send(304, "application/json", b"", tag)
        else:
            content = json.dumps(
                {"runs": [_finite(read_run(name, path)) for name, path in runs], "folders": self.watched}
            )
            self._send(200, "application/json", content.encode(), tag)

    def _send_plan(self, name: str) -> None:
        for run, path in find_runs(self.watched):
            if run == name and (path / PLAN).is_file():
                self._send(200, "text/html; charset=utf-8", (path / PLAN).read_bytes())
                return
        self._send(404, "text/plain", b"this run has no plan.html")

    def _send(self, status: int, kind: str, content: bytes, tag: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Content-Security-Policy", _POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        if tag is not None:
            self.send_header("ETag", tag)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the page asks every two seconds."""


def _finite(value: Any) -> Any:
    """JSON has no infinities; the page shows them as texts."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list) else value
