"""Global tensors: logical tensors that lie on many ranks, op by op.

| module | what it holds |
|---|---|
| `placement`, `sbp` | where and how a tensor lies, as users write it |
| `spec`, `tensor` | what is known of a global tensor; the tensor itself |
| `choose`, `decide`, `dispatch` | what an op does, decided once and looked up |
| `runs`, `move` | how it is done on this rank: changes of layout, calls on parts |
| `handlers`, `many`, `random` | ops that are not run by rules |
| `agree`, `convert` | local tensors to global ones, from layout to layout, and back |
| `members`, `methods` | what global tensors have, and what tensors and modules have for them |
| `building` | what tensors answer while a graph is built |
| `create`, `factories`, `mode` | functions that make global tensors |

Rules, costs and boxing are those of `sharding/`, by which jobs are compiled; ranks meet in `collective/`, in the world
of `world/`. `placement`, `sbp`, `mode`, `building` and `methods` load with `import oneflow`, the rest with the first
global tensor.
"""
