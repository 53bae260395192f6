"""Trains a small GPT on made-up text in a graph with everything that large models need: gradient accumulation,
bfloat16, a dynamic loss scale and activation checkpointing.

    python accumulate_amp.py --out run               all defaults; the state goes to run/model
    python accumulate_amp.py --out run --resume      goes on from run/model, as if it had never stopped
"""

import argparse
from pathlib import Path

import oneflow as flow
import oneflow.nn as nn
from oneflow.nn.graph import GraphModule

TEXT = "the quick brown fox jumps over the lazy dog and the lazy dog sleeps under the old tree while the fox runs on "
LETTERS = sorted(set(TEXT))
LENGTH = 32


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query_key_value, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part.reshape(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.query_key_value(x).chunk(3, dim=-1)
        )
        scores = flow.matmul(q, k.transpose(-2, -1)) * (width // self.heads) ** -0.5
        hidden = flow.tril(flow.ones(length, length, device=x.device)) == 0
        weights = flow.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1)
        return self.out(flow.matmul(weights, v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(width), Attention(width, heads), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, width=64, layers=3, heads=4):
        super().__init__()
        self.tokens, self.places = nn.Embedding(len(LETTERS), width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, len(LETTERS))

    def forward(self, ids):
        x = self.tokens(ids) + self.places(flow.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class TrainGraph(nn.Graph):
    def __init__(self, model, optimizer, lr_scheduler, micro_batches):
        super().__init__()
        self.model = model
        self.loss_fn = nn.CrossEntropyLoss()
        self.add_optimizer(optimizer, lr_sch=lr_scheduler)
        self.config.set_gradient_accumulation_steps(micro_batches)
        self.config.enable_amp(True, dtype=flow.bfloat16)
        self.set_grad_scaler(
            flow.amp.GradScaler(init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=20)
        )
        for block in self.model.blocks:
            block.to(GraphModule).activation_checkpointing = True

    def build(self, ids, targets):
        logits = self.model(ids)
        loss = self.loss_fn(logits.reshape(-1, len(LETTERS)), targets.reshape(-1))
        loss.backward()
        return loss


def batch(step, size):
    """Pieces of the text that begin where a generator of this step says, and the letters that follow each of theirs."""
    ids = flow.tensor([LETTERS.index(letter) for letter in TEXT * 2])
    starts = flow.randint(0, len(TEXT), (size, 1), generator=flow.Generator().manual_seed(step))
    chosen = ids[starts + flow.arange(LENGTH + 1)]
    return chosen[:, :-1], chosen[:, 1:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("run"))
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()

    flow.manual_seed(0)
    device = flow.device("cuda" if flow.cuda.is_available() else "cpu")
    model = GPT().to(device)
    groups = [{"params": list(model.parameters()), "clip_grad_max_norm": 1.0, "clip_grad_norm_type": 2.0}]
    optimizer = flow.optim.AdamW(groups, lr=3e-3, weight_decay=0.01)
    schedule = flow.optim.lr_scheduler.WarmUpLR(
        flow.optim.lr_scheduler.CosineDecayLR(optimizer, decay_steps=200, alpha=0.1), warmup_iters=10
    )
    graph = TrainGraph(model, optimizer, schedule, args.micro_batches)
    first = 0
    if args.resume:
        saved = flow.load(args.out / "model")
        graph.load_state_dict(saved["graph"])
        first = saved["step"]

    for step in range(first, first + args.steps):
        ids, targets = batch(step, args.batch_size)
        losses = graph(ids.to(device), targets.to(device))  # one of each micro-batch
        if (step + 1) % 10 == 0 or step + 1 == first + args.steps:
            print(f"step {step + 1}  loss {losses.mean().item():.6f}")
    flow.save({"graph": graph.state_dict(), "step": first + args.steps}, args.out / "model")


if __name__ == "__main__":
    main()
