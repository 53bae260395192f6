"""A BERT-like encoder on one sentence: an ``nn.Graph`` without an optimizer against ONNX Runtime with the same weights,
and eager PyTorch.

6 layers, 384 wide, 12 heads, 128 tokens of embeddings, layer norm behind each sum, GELU. Each has a process of its own;
all take turns. ``python benchmarks/encoder.py [--rounds N] [--threads N] [--small]``
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F
from apart import Apart
from measure import alternate, machine, parse, report
from onnx_rival import by_onnx_runtime
from torch import Tensor, nn

import oneflow as flow


class Layer(nn.Module):
    """Attention and two linear layers, each with a residual and a norm behind the sum."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.first, self.second = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm, self.last_norm = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (one(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in (self.query, self.key, self.value))
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = self.norm(x + self.out(attended))
        return self.last_norm(x + self.second(F.gelu(self.first(x))))


def encoder(is_small: bool) -> tuple[nn.Module, Tensor]:
    """The encoder and a sentence."""
    torch.manual_seed(0)
    layers, width, heads, tokens = (2, 48, 4, 8) if is_small else (6, 384, 12, 128)
    return nn.Sequential(*(Layer(width, heads) for _ in range(layers))).eval(), torch.randn(1, tokens, width)


def running(way: str, is_small: bool) -> Callable[[], object]:
    model, x = encoder(is_small)
    if way == "nn.Graph":
        graph = flow.nn.Graph.trace(model)
        return lambda: graph(x)
    if way == "ONNX Runtime":
        return by_onnx_runtime(model, x)

    def eager() -> Tensor:
        with torch.inference_mode():
            return model(x)

    return eager


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=20, help="sentences of a round")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parse(parser, {"rounds": 1, "calls": 1})
    print(machine())
    contenders = {
        way: Apart(args.threads, running, way, args.small) for way in ("nn.Graph", "ONNX Runtime", "PyTorch eager")
    }
    report(
        f"BERT-like encoder, one sentence, {args.threads} threads",
        alternate(dict(contenders), args.calls, args.rounds),
        "nn.Graph",
    )
    for contender in contenders.values():
        contender.close()


if __name__ == "__main__":
    main()
