"""How ranks meet: process groups, the calls by which their programs exchange tensors, and what happens when one of them
does not come.

| module | what it holds |
|---|---|
| `groups` | process groups: made by all ranks together, found by their members |
| `calls` | what a rank's program calls: reductions, gathers, changes of layout, norms over ranks |
| `blocks` | blocks of tensors that go from one placement to another |
| `buckets`, `gathers` | sums and gathers that are begun early and waited for late |
| `host_group`, `shared_sum` | the same among ranks of one host, through memory that they share |
| `one_copy` | variables that lie once for the ranks of a host, each of which updates its own rows |
| `rooms` | calls of one host's ranks through memory, for ranks that are peers; they see at once when they call different things |
| `bound` | what the plain values of a program become in the executor that runs it, and the groups that its calls need |
| `peers` | who the other ranks are, and the error when one has ended or is silent |

A program holds plain values only, such as `Bucket`; the buffers and connections behind them belong to the executor that
runs it.
"""

from oneflow.engine.collective.blocks import Piece, Sends, exchange
from oneflow.engine.collective.bound import Bound, groups_in
from oneflow.engine.collective.buckets import Bucket, RunningBucket, bucket_start, bucket_wait, product_in
from oneflow.engine.collective.calls import (
    NormOverParts,
    all_gather,
    all_reduce,
    as_partial,
    broadcast,
    exchange_parts,
    finite_over,
    gather_into,
    gather_parts,
    norm_over,
    part_as_partial,
    part_of,
    reduce_parts,
)
from oneflow.engine.collective.gathers import Gather, RunningGather, gather_start, gather_wait
from oneflow.engine.collective.groups import Ranks, Sizes, group_of, make_groups
from oneflow.engine.collective.host_group import MOST_RANKS
from oneflow.engine.collective.one_copy import (
    OneCopy,
    RunningOneCopy,
    hold_each,
    hold_once,
    read_last,
    rows_wait,
    update_rows,
)
from oneflow.engine.collective.peers import meeting
from oneflow.engine.collective.rooms import Room, forget_groups, room_of, share_memory

__all__ = [
    "MOST_RANKS",
    "Bound",
    "Bucket",
    "Gather",
    "NormOverParts",
    "OneCopy",
    "Piece",
    "Ranks",
    "Room",
    "RunningBucket",
    "RunningGather",
    "RunningOneCopy",
    "Sends",
    "Sizes",
    "all_gather",
    "all_reduce",
    "as_partial",
    "broadcast",
    "bucket_start",
    "bucket_wait",
    "exchange",
    "exchange_parts",
    "finite_over",
    "forget_groups",
    "gather_into",
    "gather_parts",
    "gather_start",
    "gather_wait",
    "group_of",
    "groups_in",
    "hold_each",
    "hold_once",
    "make_groups",
    "meeting",
    "norm_over",
    "part_as_partial",
    "part_of",
    "product_in",
    "read_last",
    "reduce_parts",
    "room_of",
    "rows_wait",
    "share_memory",
    "update_rows",
]
