"""The world of peers: every process of a launcher runs the same program, none drives the others.

| module | what it holds |
|---|---|
| `membership` | who this process is among them, and the process group: made at first use, left at exit |
| `role` | peers, or a driver and those that serve it: one of the two per program |
| `order` | ranks that meet call the same operation; what tells them when they do not |

A process that nobody launched is a world of one. It has no process group, and needs none: what one rank does together
with itself is the identity. Who comes here asks `current_world().size` first.
"""

from oneflow.engine.world.membership import PeerWorld, current_world, group_for, join, leave, planned_world

__all__ = ["PeerWorld", "current_world", "group_for", "join", "leave", "planned_world"]
