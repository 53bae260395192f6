"""Tracing: a job's body runs once with blobs, and every op it calls becomes a node of the logical graph.

``get_variable`` inside a function, names, namespaces and job settings have no place in torch's own tracers. An op row
runs on meta tensors (without data) when it is called, so a wrong shape is found at the user's line, and shapes are real
ints while the body runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from oneflow.engine.core import dtype as dtypes
from oneflow.engine.core.body import Symbol, require_body, running, running_body
from oneflow.engine.core.errors import ArgumentError, JobError, NameError_, OneFlowError, user_line
from oneflow.engine.core.placement import Placement
from oneflow.engine.core.spec import TensorSpec, spec_of
from oneflow.engine.core.tree import tree_map
from oneflow.engine.core.variable import VariableDecl
from oneflow.engine.ir.graph import Graph, Source, Watch
from oneflow.engine.ir.notes import OpNote, op_note, set_op_note
from oneflow.engine.ops.row import Op


class Trace:
    """The state of one job body while it runs. ``settings`` is the job's own copy of its configuration."""

    def __init__(self, job: str, settings: Any, known: Mapping[str, VariableDecl], placement: Placement) -> None:
        self.graph = Graph(job)
        self.settings = settings
        self.known = known
        self.namespaces: list[str] = []
        self.placements: list[Placement] = [placement]
        self.regions: list[int | None] = [None]
        self.value_of: Callable[[fx.Node], Any] | None = (
            None  # eager execution: what a node comes to in the call under way
        )
        self.micro_copies: dict[
            int, dict[fx.Node, fx.Node]
        ] = {}  # of the ops of micro-batches (micro.py), by their number
        self._names: set[str] = set()
        self._counts: Counter[str] = Counter()

    @property
    def is_train(self) -> bool:
        return bool(self.settings.is_train)

    @property
    def has_ops(self) -> bool:
        """True once an op was recorded; from then on the job's settings are fixed."""
        return any(node.op == "call_function" for node in self.graph.body.nodes)

    def full_name(self, name: str) -> str:
        return "-".join([*self.namespaces, name])

    def auto_name(self, prefix: str, first_plain: bool = False) -> str:
        """``Relu_0``, ``Relu_1`` ...; for layers (``first_plain``) ``Dense``, ``Dense_1`` ...: the same in every
        job."""
        count = self._counts[self.full_name(prefix)]
        self._counts[self.full_name(prefix)] += 1
        return prefix if first_plain and count == 0 else f"{prefix}_{count}"

    def claim(self, name: str | None, prefix: str) -> str:
        """The op's full name; a name that the job used before is an error."""
        return self.claim_full(self.full_name(name if name is not None else self.auto_name(prefix)))

    def claim_full(self, full: str) -> str:
        """Takes a full name; one that the job used before is an error."""
        if full in self._names:
            raise NameError_(f"op_name: {full} already exist in job: {self.graph.job}; give each op its own name")
        self._names.add(full)
        return full

    def placeholder(self, name: str, spec: TensorSpec) -> fx.Node:
        """A new graph input, placed before the first op."""
        body = self.graph.body
        first_op = next((n for n in body.nodes if n.op != "placeholder"), None)
        with body.inserting_before(first_op) if first_op is not None else nullcontext():
            node = body.placeholder(f"in_{len(body.nodes)}")
        self._describe(node, name, spec)
        return node

    def _describe(self, node: fx.Node, name: str, spec: Any) -> None:
        is_dynamic = any(op_note(n).is_dynamic for n in node.all_input_nodes)
        batch_axis = 0 if isinstance(spec, TensorSpec) and spec.shape else None
        note = OpNote(
            name,
            spec,
            user_line(),
            self.placements[-1],
            is_dynamic,
            batch_axis,
            region=self.regions[-1],
            micro=_micro_of(node),
        )
        set_op_note(node, note)

    def add_input(self, name: str, spec: TensorSpec) -> fx.Node:
        node = self.placeholder(name, spec)
        self.graph.inputs.append(node)
        return node

    def add_source(self, source: Source, name: str) -> tuple[fx.Node, ...]:
        """Registers a host-side source; its nodes get fresh tensors each step."""
        nodes = tuple(self.placeholder(f"{name}_{i}" if i else name, spec) for i, spec in enumerate(source.specs))
        self.graph.sources.append((source, nodes))
        return nodes

    def step(self) -> fx.Node:
        """The step counter as an int64 input of shape (1,)."""
        if self.graph.step is None:
            self.graph.step = self.placeholder("step", TensorSpec((1,), dtypes.int64))
        return self.graph.step

    def variable(self, decl: VariableDecl) -> fx.Node:
        """The node of a declared variable; a second declaration in the same job gives the same node."""
        decl.require_same_spec(self.graph.decls.get(decl.name) or self.known.get(decl.name))
        if decl.name not in self.graph.variables:
            self.graph.variables[decl.name] = self.placeholder(decl.name, decl.spec)
            self.graph.decls[decl.name] = decl
        return self.graph.variables[decl.name]

    def mark_channels_last(self, node: fx.Node) -> None:
        """Notes that a variable is a convolution's filter, so that it is kept in the layout convolutions run fastest
        in."""
        name = op_note(node).name
        if self.graph.variables.get(name) is node:
            self.graph.decls[name] = replace(self.graph.decls[name], channels_last=True)

    def minimize(self, losses: Sequence[object], optimizer: object) -> None:
        """Makes ``optimizer`` the job's and ``losses`` what it lowers."""
        if self.is_train and self.settings.optimizer is not None:
            raise JobError(
                f"job {self.graph.job!r} has an optimizer already; flow.optimizer.CombinedOptimizer joins several"
            )
        for loss in losses:
            if not isinstance(loss, Symbol):
                raise ArgumentError(f"minimize takes a blob or a list of blobs, got {loss!r}")
            if loss.node not in self.graph.losses:  # flow.losses.add_loss may have been called before
                self.add_loss(loss.node)
        self.settings.optimizer = optimizer

    def add_loss(self, node: fx.Node) -> None:
        if not self.is_train:
            raise JobError(
                f"job {self.graph.job!r} has no TrainConf when adding loss logical blob name {op_note(node).name!r}: "
                "it is a predict job. Make it a train job with type='train' or a config that sets train.*"
            )
        if node in self.graph.losses:
            raise JobError(f"the loss {op_note(node).name!r} was added to job {self.graph.job!r} before")
        self._check_own(node)
        if op_note(node).count is not None:
            raise JobError(
                f"the loss {op_note(node).name!r} has as many rows as the data says; take their sum or mean first, "
                f"with flow.math.reduce_mean"
            )
        self._check_loss(node)
        self.graph.losses.append(node)

    def _check_loss(self, node: fx.Node) -> None:
        spec: TensorSpec = op_note(node).spec
        for other in self.graph.losses:
            if op_note(other).spec != spec:
                raise JobError(
                    f"losses of one job have one shape and dtype: "
                    f"{op_note(other).name!r} is {op_note(other).spec}, {op_note(node).name!r} is {spec}"
                )
            if other in self.graph.reached_by([node]) or node in self.graph.reached_by([other]):
                raise JobError(
                    f"of the losses {op_note(other).name!r} and {op_note(node).name!r} one is computed "
                    "from the other; add only one of them"
                )

    def _check_own(self, node: fx.Node) -> None:
        if node.graph is not self.graph.body:
            raise JobError(f"blob {op_note(node).name!r} belongs to another job or another trace of {self.graph.job!r}")

    def watch(self, node: fx.Node, handler: Any, diff: bool) -> None:
        self._check_own(node)
        if op_note(node).spec.dtype.numpy is None:
            name, spec = op_note(node).name, op_note(node).spec
            raise ArgumentError(f"blob {name!r} is {spec}, which numpy does not have; cast it to watch it")
        self.graph.watches.append(Watch(node, handler, diff, user_line()))


def _micro_of(node: fx.Node) -> int:
    """Of how many micro-batches an op gives the first, by what it takes."""
    counts = {op_note(n).micro for n in node.all_input_nodes} - {1}
    if len(counts) > 1:
        raise JobError(
            f"an op takes blobs of {' and of '.join(map(str, sorted(counts)))} micro-batches; put one of them together "
            f"with flow.pack or flow.acc first"
        )
    return counts.pop() if counts else 1


def current() -> Trace | None:
    """The trace of the job body that is running, if one is."""
    body = running_body()
    return body if isinstance(body, Trace) else None


def require_trace(what: str) -> Trace:
    """The running trace, or an error that says ``what`` belongs inside a job function."""
    body = require_body(what)
    assert isinstance(body, Trace), f"a body that is no trace runs: {body!r}"
    return body


@contextmanager
def tracing(trace: Trace) -> Iterator[Trace]:
    """Makes ``trace`` the running one."""
    with running(trace):
        yield trace


def record(op: Op, args: tuple[Any, ...], attributes: dict[str, Any], name: str | None) -> fx.Node:
    """Adds one op to the running trace: checks it on meta tensors and notes its spec and the user's line."""
    trace = require_trace(op.name)
    full = trace.claim(name, op.label)
    spec = _infer(op, args, attributes, full)
    node = trace.graph.body.call_function(op, args, attributes)
    trace._describe(node, full, spec)
    return node


def _infer(op: Op, args: tuple[Any, ...], attributes: dict[str, Any], name: str) -> Any:
    extra = {"device": "meta"} if op.creates else {}
    try:
        with torch.no_grad():
            meta_args, meta_attributes = tree_map(_meta, (args, attributes))
            out = op.compute(*meta_args, **meta_attributes, **extra)
    except OneFlowError as error:
        raise type(error)(f"{op.name} ({name!r}): {error.reason}{_inputs(args)}") from None
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        reason = str(error).split("\n", 1)[0]
        raise ArgumentError(f"{op.name} ({name!r}): {reason}{_inputs(args)}") from None
    return tuple(map(spec_of, out)) if isinstance(out, tuple) else spec_of(out)


def _meta(value: Any) -> Any:
    if not isinstance(value, fx.Node):
        return value
    spec = op_note(value).spec
    return tuple(s.meta() for s in spec) if isinstance(spec, tuple) else spec.meta()


def _inputs(args: Any) -> str:
    found: list[str] = []
    tree_map(lambda a: found.append(f"{op_note(a).name} {op_note(a).spec}") if isinstance(a, fx.Node) else None, args)
    return f" [inputs: {', '.join(found)}]" if found else ""
