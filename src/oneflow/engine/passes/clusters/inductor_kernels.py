"""Kernels of clusters by torch's Inductor: the one place that knows its private entries. It runs in a process of its
own (``kernel_workers.py``).

On a CPU only the loops that it writes are taken: its C++ is compiled into a library, and of the Python around it a
function is made that allocates and calls, and nothing else; where it does anything else there is no kernel. On a GPU
its artifact is kept as a whole: never run where the tests run, no GPU there.
"""

from __future__ import annotations

import ast
import pickle
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor, fx

from oneflow.engine.capture.cleanup import writes
from oneflow.engine.passes.clusters.cluster import Spec
from oneflow.engine.passes.clusters.kernel_store import KernelStore
from oneflow.engine.passes.clusters.kernels import Request, loaded, packed

_EMPTY, _VIEW = "empty_strided_cpu", "reinterpret_tensor"
_CHECKS = ("assert_size_stride", "assert_alignment")
_CLOSE = {torch.float32: 1e-4, torch.float64: 1e-9, torch.float16: 1e-2, torch.bfloat16: 6e-2}


class Unusual(Exception):
    """Inductor has written something that no kernel is made of."""


class _Written(BaseException):
    """What Inductor has written; raised so that it stops there."""


def serve(store: KernelStore, requests: BinaryIO, answers: BinaryIO) -> None:
    """Compiles what is asked for, one after the other, until nothing more comes. An answer is a line: empty if the
    store has it now, else why not."""
    while True:
        try:
            request: Request = pickle.load(requests)
        except EOFError:
            return
        answers.write(_served(store, request).encode() + b"\n")
        answers.flush()


def _served(store: KernelStore, request: Request) -> str:
    digest = request.digest
    try:
        with store.locked(digest):
            if store.get(digest) is None:
                store.put(digest, _built(request, store))
    except Exception as error:  # whatever a compiler raises: the step goes on without
        return f"{type(error).__name__}: {error}".strip().replace("\n", " ")[-400:]
    return ""


def _built(request: Request, store: KernelStore) -> bytes:
    """The kernel of a request as it is kept: empty where Inductor's code, or what it computes, is not what it must
    be."""
    torch.set_num_threads(request.threads)
    module = fx.GraphModule({}, request.cluster.graph())
    inputs = [_drawn(spec) for spec in request.specs]
    if any(map(writes, module.graph.nodes)):
        _draw_states(inputs[2:])
    try:
        payload = _library(_source(module, inputs)) if inputs[0].device.type == "cpu" else _artifact(module, inputs)
    except Unusual:
        return b""
    kernel = loaded(payload, store)
    if kernel is None:
        return b""
    by_kernel, by_ops = (
        [tensor.clone() for tensor in inputs] for _ in range(2)
    )  # what they write into counts as what they give
    made, wanted = (*kernel(*by_kernel), *by_kernel), (*module(*by_ops), *by_ops)
    return payload if _agree(made, wanted, _close(request.specs, module.graph)) else b""


def _close(specs: tuple[Spec, ...], graph: fx.Graph) -> float:
    """How far from the aten ops a kernel may be, by the coarsest dtype between its inputs and its results: Inductor
    does not round between ops."""
    dtypes = [getattr(torch, spec.dtype) for spec in specs] + [node.kwargs.get("dtype") for node in graph.nodes]
    return max(_CLOSE.get(dtype, 0.0) for dtype in dtypes)


def _drawn(spec: Spec) -> Tensor:
    dtype: torch.dtype = getattr(torch, spec.dtype)
    made = torch.empty_strided(spec.shape, spec.stride, dtype=dtype, device=spec.device)
    drawn = torch.randn(spec.shape) if dtype.is_floating_point else torch.randint(2, spec.shape)
    return made.copy_(drawn) if 0 not in made.stride() else drawn.to(dtype).as_strided(spec.shape, spec.stride)


def _draw_states(inputs: list[Tensor]) -> None:
    """Fills what an update takes besides a variable and its gradient: a state that is no less than the square of the
    others, so that a variance is one, and at the end numbers."""
    *states, numbers = inputs
    for place, state in enumerate(states):
        state.uniform_(*((0.0, 0.5) if place else (1.0, 2.0)))
    numbers.uniform_(0.5, 0.52)


def _agree(made: tuple[Tensor, ...], wanted: tuple[Tensor, ...], close: float) -> bool:
    """Whether a kernel gives what the aten ops give, and as they lie."""
    for one, other in zip(made, wanted, strict=True):
        if (one.shape, one.stride(), one.dtype) != (other.shape, other.stride(), other.dtype):
            return False
        size = other.double().nan_to_num(0.0, 0.0, 0.0).abs().max().item() if other.numel() else 0.0
        if not torch.allclose(one.double(), other.double(), rtol=0.0, atol=close * max(1.0, size), equal_nan=True):
            return False
    return True


# ------------------------------------------------------------------ Inductor


def _source(module: fx.GraphModule, inputs: list[Any]) -> str:
    """The Python that Inductor writes around its loops, with them inside."""
    from torch._inductor import config, standalone_compile
    from torch._inductor.graph import GraphLowering

    def stop(code: str) -> None:
        raise _Written(code)

    before = GraphLowering.save_output_code
    GraphLowering.save_output_code = staticmethod(stop)
    try:
        with torch.no_grad(), config.patch(compile_threads=1, fx_graph_cache=False, keep_output_stride=True):
            standalone_compile(module, inputs, dynamic_shapes="from_example_inputs")
    except _Written as written:
        return written.args[0]
    finally:
        GraphLowering.save_output_code = before
    raise Unusual("it has written nothing")


def _artifact(module: fx.GraphModule, inputs: list[Any]) -> bytes:
    """Kernels of Triton with all that runs them; never run where the tests run: no GPU there."""
    from torch._inductor import standalone_compile

    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "artifact"
        standalone_compile(module, inputs, dynamic_shapes="from_example_inputs").save(path=str(path), format="binary")
        return packed(path.read_bytes(), kind="triton")


def _library(source: str) -> bytes:
    from torch._inductor.cpp_builder import CppBuilder, CppTorchOptions
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    made = _Translation(ast.parse(source))
    with tempfile.TemporaryDirectory() as folder:
        code = Path(folder) / "kernel.cpp"
        code.write_text(made.loops, encoding="utf-8")
        builder = CppBuilder(
            name="kernel", sources=[str(code)], output_dir=folder, BuildOption=CppTorchOptions(vec_isa=pick_vec_isa())
        )
        builder.build()
        library = Path(builder.get_target_file_path()).read_bytes()
    return packed(library, kind="loops", source=made.source, kernels=made.kernels)


# ------------------------------------------------------------------ its Python


class _Translation:
    """What Inductor has written as a function of its own: ``source`` of it, the C++ of all its ``loops``, and how many
    arrays each of its ``kernels`` takes."""

    def __init__(self, tree: ast.Module) -> None:
        self.kernels: dict[str, int] = {}
        self._roots: dict[str, str] = {}
        written = [
            self._loop(node)
            for node in tree.body
            if isinstance(node, ast.Assign) and "async_compile.cpp" in ast.unparse(node.value)
        ]
        self.loops = "\n".join(written)
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "call"]
        if len(calls) != 1:
            raise Unusual(f"it has {len(calls)} functions of the name call")
        self._inputs: list[str] = []
        lines = [line for node in calls[0].body for line in self._statement(node)]
        self.source = "\n".join([f"def call({', '.join(self._inputs)}):", *(f"    {line}" for line in lines)])

    def _loop(self, node: ast.Assign) -> str:
        """One kernel's C++, under a name of its own."""
        call, name = node.value, ast.unparse(node.targets[0])
        if (
            not isinstance(call, ast.Call)
            or ast.unparse(call.func) != "async_compile.cpp_pybinding"
            or len(call.args) != 2
        ):
            raise Unusual(ast.unparse(node)[:80])
        kinds, code = ast.literal_eval(call.args[0]), ast.literal_eval(call.args[1])
        renamed, count = re.subn(r"(extern \"C\"\s+void\s+)kernel\(", rf"\g<1>{name}(", code)
        if count != 1 or not all(kind.endswith("*") for kind in kinds):
            raise Unusual(f"a kernel takes {kinds}")
        self.kernels[name] = len(kinds)
        return renamed

    def _statement(self, node: ast.stmt) -> list[str]:
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Name(id="args")):
                self._inputs = [ast.unparse(name) for name in names]
                self._roots.update({name: name for name in self._inputs})
                return []
            case ast.Expr(value=ast.Call(func=func)) if ast.unparse(func) in ("args.clear", *_CHECKS):
                return []
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                made = self._value(value)
                self._roots[name] = self._root(value) or name
                return [f"{name} = {made}"]
            case ast.Expr(value=ast.Call(func=ast.Name(id=name), args=args, keywords=[])) if name in self.kernels:
                return [f"{name}({', '.join(f'{self._value(one)}.data_ptr()' for one in args)})"]
            case ast.Delete():
                return [ast.unparse(node)]
            case ast.Return(value=ast.Tuple(elts=values)):
                roots = [self._root(value) for value in values]
                if len(set(roots)) != len(roots) or not set(roots).isdisjoint(self._inputs):
                    raise Unusual("it gives some memory twice, or its inputs")
                return [f"return ({''.join(f'{self._value(value)}, ' for value in values)})"]
        raise Unusual(ast.unparse(node)[:80])

    def _value(self, node: ast.expr) -> str:
        """A buffer, a new one, or a view of one."""
        match node:
            case ast.Name(id=name) if name in self._roots:
                return name
            case ast.Call(func=ast.Name(id=name), args=[size, stride, dtype], keywords=[]) if name == _EMPTY:
                return f"empty({_numbers(size)}, {_numbers(stride)}, dtype={_dtype(dtype)})"
            case ast.Call(func=ast.Name(id=name), args=[buffer, size, stride, offset], keywords=[]) if name == _VIEW:
                return f"view({self._value(buffer)}, {_numbers(size)}, {_numbers(stride)}, {_numbers(offset)})"
        raise Unusual(ast.unparse(node)[:80])

    def _root(self, node: ast.expr) -> str | None:
        """The buffer or input in whose memory a value lies; None for a new one."""
        if isinstance(node, ast.Name):
            return self._roots[node.id]
        return self._root(node.args[0]) if isinstance(node, ast.Call) and ast.unparse(node.func) == _VIEW else None


def _numbers(node: ast.expr) -> str:
    try:
        return repr(ast.literal_eval(node))
    except ValueError as error:
        raise Unusual(ast.unparse(node)[:80]) from error


def _dtype(node: ast.expr) -> str:
    name: Any = node.attr if isinstance(node, ast.Attribute) else None
    if ast.unparse(node) != f"torch.{name}" or not isinstance(getattr(torch, str(name), None), torch.dtype):
        raise Unusual(ast.unparse(node)[:80])
    return f"torch.{name}"


def main() -> None:
    """What a worker runs: requests on stdin, answers on stdout, which nothing else may write to."""
    answers, sys.stdout = sys.stdout.buffer, sys.stderr
    serve(KernelStore(Path(sys.argv[1])), sys.stdin.buffer, answers)
