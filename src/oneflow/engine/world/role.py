"""What the processes of a launcher are to each other. Its variables say who they are and not what for: the first thing
that a program does with them decides, and holds for the whole program.
"""

from __future__ import annotations

from oneflow.engine.core.errors import JobError, user_line

DRIVEN = "driven"
PEERS = "peers"
_FACTS = {
    DRIVEN: "rank 0 drives the others, because of the job",
    PEERS: "all ranks are peers, because of the global tensor, graph, flow.comm or flow.env",
}
_REFUSED = {
    DRIVEN: "A job function cannot run here: rank 0 would drive the others, and they would leave this program",
    PEERS: "Global tensors, graphs, flow.comm and flow.env need all ranks to run this program, and the others only serve rank 0",
}


class _Process:
    """What this process has become, and by which line of the user's."""

    def __init__(self) -> None:
        self.role: str | None = None
        self.line = ""


_PROCESS = _Process()


def take(role: str) -> None:
    """Makes this process, one of several of a launcher, a driver (or one that serves) or a peer. It cannot become the
    other one later."""
    if _PROCESS.role == role:
        return
    if _PROCESS.role is not None:
        raise JobError(
            f"{_FACTS[_PROCESS.role]} at {_PROCESS.line}. {_REFUSED[role]}. A program that a launcher starts uses one "
            f"of the two: "
            "move the other into a program of its own, or start that one without a launcher"
        )
    _PROCESS.role, _PROCESS.line = role, user_line()


def forget() -> None:
    """This process may become either again."""
    _PROCESS.role = None
