"""Sharding (SPMD partitioning): how one aten op runs on parts of its tensors, what that costs, and how one layout
becomes another.

``mesh`` has the ranks of a placement and the layouts of tensors on them; ``call`` one call of an op, as everything here
sees it; ``rules`` the SBP signatures of every op and what one rank does for its part; ``cost`` their prices; ``boxing``
what one rank does to change a layout.

This room knows aten ops, shapes, dtypes, SBP and meshes. Values are opaque: whoever asks hands in a function that makes
calls, and gets back what that function gives. So the compiler asks for the nodes of a whole graph, and a tensor that
runs op by op for results at once. What may not be known here: graphs and their nodes, jobs, compiler passes, processes.
It imports ``core``, and the functions of ``ops`` and ``collective`` that a rank calls, nothing else of the house.
"""
