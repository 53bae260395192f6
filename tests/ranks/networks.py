"""Machines on a network of their own: network namespaces of this machine, joined by a bridge in another one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from warm_python import WARM


def needs_namespaces() -> Any:
    """A mark that skips a test where network namespaces cannot be made."""
    if os.getuid() != 0:
        reason = "network namespaces need root"
    elif shutil.which("ip") is None:
        reason = "network namespaces need the command ip (iproute2)"
    else:
        reason = _refusal()
    return pytest.mark.skipif(bool(reason), reason=reason)


def _refusal() -> str:
    name = f"oneflow-{os.getpid()}-probe"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode:
        return f"network namespaces cannot be made here: {made.stderr.strip()}"
    _ip("netns", "del", name)
    return ""


class Network:
    """``count`` machines with the addresses 10.213.0.1, 10.213.0.2, ... Gone, with the processes in them, at the
    end."""

    def __init__(self, count: int) -> None:
        self.addresses = [f"10.213.0.{number + 1}" for number in range(count)]
        self._prefix = f"oneflow-{os.getpid()}"
        self._programs: list[subprocess.Popen] = []

    def __enter__(self) -> Network:
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self) -> None:
        hub = self._name("hub")
        _ip("netns", "add", hub)
        _ip("-n", hub, "link", "add", "bridge", "type", "bridge")
        _ip("-n", hub, "link", "set", "bridge", "up")
        for number, address in enumerate(self.addresses):
            machine = self._name(number)
            _ip("netns", "add", machine)
            _ip("-n", machine, "link", "set", "lo", "up")
            _ip("-n", machine, "link", "add", "wire", "type", "veth", "peer", "name", f"port{number}", "netns", hub)
            _ip("-n", machine, "address", "add", f"{address}/24", "dev", "wire")
            _ip("-n", machine, "link", "set", "wire", "up")
            _ip("-n", hub, "link", "set", f"port{number}", "master", "bridge", "up")

    def _name(self, machine: int | str) -> str:
        return f"{self._prefix}-{machine}"

    def run(self, machine: int, script: str, *arguments: str, **environment: str) -> subprocess.Popen:
        """Starts a Python program on a machine."""
        command = ["ip", "netns", "exec", self._name(machine), *WARM.command(), "-c", script, *arguments]
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
        program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=variables, text=True)
        self._programs.append(program)
        return program

    def cut(self, machine: int) -> None:
        """Takes the machine's plug out, at the bridge: neither side is told."""
        _ip("-n", self._name("hub"), "link", "set", f"port{machine}", "nomaster")

    def processes(self, machine: int) -> list[int]:
        """All that runs on the machine."""
        found = subprocess.run(["ip", "netns", "pids", self._name(machine)], capture_output=True, text=True).stdout
        return [int(pid) for pid in found.split()]

    def __exit__(self, *error: object) -> None:
        for program in self._programs:
            program.kill()
            program.communicate()
        for name in [*range(len(self.addresses)), "hub"]:
            if Path("/run/netns", self._name(name)).exists():
                _ip("netns", "del", self._name(name))


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
