"""LiBai's models against the same models of ``transformers``: training steps, and generation with a cache.

    python benchmarks/libai_models.py [--rounds 5] [--calls 2] [--only GPT-2] [--vocabulary 5000] [--small]

Training: ours is the model in ``GraphBase``, as the trainer runs it; the rival the same sizes in eager PyTorch with
fused AdamW and gradients set to None. Dropout is off in both. Generation: both have the same weights, and write the
same tokens, greedily, with their caches of keys and values. Each has a process of its own, all take turns in one run.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from apart import Apart
from measure import alternate, in_turn, machine, parse, report

MB = 2**20
Step = Callable[[], object]
NONE = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def sizes(is_small: bool, vocabulary: int) -> dict[str, Any]:
    """Layers, width, heads and words of the models of texts."""
    return (
        {"layers": 1, "width": 32, "heads": 2, "words": 100}
        if is_small
        else {"layers": 6, "width": 384, "heads": 6, "words": vocabulary}
    )


def only_the_package() -> None:
    """Beside this file stands libai.py: from here on the package of that name is found."""
    sys.path = [place for place in sys.path if Path(place or ".").resolve() != Path(__file__).resolve().parent]


def transformers() -> Any:
    with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        return import_module("transformers")


def their_model(title: str, size: dict[str, Any], length: int) -> Any:
    """The model of transformers, weights by a fixed seed."""
    t, wide = (
        transformers(),
        {
            "hidden_size": size["width"],
            "num_hidden_layers": size["layers"],
            "num_attention_heads": size["heads"],
            "intermediate_size": 4 * size["width"],
        },
    )
    torch.manual_seed(0)
    if title.startswith("GPT-2"):
        off = {
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
            "bos_token_id": 0,
            "eos_token_id": None,
            "pad_token_id": 0,
        }
        return t.GPT2LMHeadModel(
            t.GPT2Config(
                vocab_size=size["words"],
                n_positions=length,
                n_embd=size["width"],
                n_layer=size["layers"],
                n_head=size["heads"],
                **off,
            )
        )
    if title.startswith("BERT"):
        return t.BertForPreTraining(
            t.BertConfig(vocab_size=size["words"], max_position_embeddings=length, **wide, **NONE)
        )
    return t.ViTForImageClassification(t.ViTConfig(**wide, **NONE, image_size=length, patch_size=16, num_labels=1000))


def our_model(title: str, size: dict[str, Any], length: int) -> Any:
    """Ours, with the same weights."""
    from omegaconf import OmegaConf

    from libai import models
    from libai.config import get_config
    from libai.models import utils
    from libai.utils import distributed as dist

    dist.setup_dist_util({"device_type": "cpu"})
    name, kind, loader = {
        "GPT-2": ("gpt", models.GPTForPreTraining, utils.GPT2LoaderHuggerFace),
        "BERT": ("bert", models.BertForPreTraining, utils.BertLoaderHuggerFace),
        "ViT": (
            "vit/vit_tiny_patch16_224",
            getattr(models, "VisionTransformer", None),
            getattr(utils, "ViTLoaderHuggerFace", None),
        ),
    }[title.split(",")[0].split()[0]]
    cfg = OmegaConf.merge(get_config(f"common/models/{name}.py").cfg)
    with tempfile.TemporaryDirectory() as folder, redirect_stderr(io.StringIO()):
        # In a process of its own, so that a second model does not count as memory of ours.
        code = (
            f"import libai_models; libai_models.their_model({title!r}, {size!r}, {length}).save_pretrained({folder!r})"
        )
        subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, check=True)
        return loader(kind, cfg, folder).load()


def batch_of(title: str, size: dict[str, Any], rows: int, length: int) -> dict[str, torch.Tensor]:
    """What a model is called with, labels included, under our names."""
    draw = torch.Generator().manual_seed(1)
    if title.startswith("ViT"):
        return {
            "images": torch.randn(rows, 3, length, length, generator=draw),
            "labels": torch.randint(0, 1000, (rows,), generator=draw),
        }
    ids = torch.randint(0, size["words"], (rows, length + 1), generator=draw)
    if title.startswith("GPT-2"):
        return {"input_ids": ids[:, :-1].contiguous(), "labels": ids[:, 1:].contiguous()}
    masked = torch.rand(rows, length, generator=draw) < 0.15
    types = torch.zeros(rows, length, dtype=torch.long)
    return {
        "input_ids": ids[:, 1:].contiguous(), "attention_mask": torch.ones_like(types), "tokentype_ids": types, "ns_labels": torch.zeros(rows, dtype=torch.long),
        "lm_labels": ids[:, :-1].contiguous(), "loss_mask": masked.long(),
    }  # fmt: skip


def our_step(title: str, size: dict[str, Any], rows: int, length: int) -> Step:
    only_the_package()
    import oneflow as flow
    from libai.models.utils import GraphBase

    transformers()
    model = our_model(title, size, length).train()
    graph = GraphBase(model, flow.optim.AdamW(model.parameters(), lr=1e-4), device="cpu")
    place = flow.placement("cpu", [0])
    batch = {
        name: value.to_global(place, flow.sbp.broadcast) for name, value in batch_of(title, size, rows, length).items()
    }
    return lambda: graph(**batch)


def their_step(title: str, size: dict[str, Any], rows: int, length: int) -> Step:
    import_module("oneflow.engine.graph.compiled")  # what a graph's first call loads, so that memory is that of tensors
    model = their_model(title, size, length).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    batch = batch_of(title, size, rows, length)

    def loss() -> Any:
        if title.startswith("GPT-2"):
            return F.cross_entropy(
                model(batch["input_ids"], use_cache=False).logits.flatten(0, 1), batch["labels"].flatten()
            )
        if title.startswith("BERT"):
            words = batch["lm_labels"].masked_fill(batch["loss_mask"] == 0, -100)
            return model(
                batch["input_ids"],
                batch["attention_mask"],
                batch["tokentype_ids"],
                labels=words,
                next_sentence_label=batch["ns_labels"],
            ).loss
        return F.cross_entropy(model(batch["images"]).logits, batch["labels"])

    def step() -> object:
        found = loss()
        optimizer.zero_grad(set_to_none=True)
        found.backward()
        optimizer.step()
        return found.detach()

    return step


def writer(is_ours: bool, size: dict[str, Any], rows: int, new: int) -> Step:
    """Writes ``new`` tokens behind prompts of 16."""
    length = 16 + new
    ids = torch.randint(1, size["words"], (rows, 16), generator=torch.Generator().manual_seed(2))
    if is_ours:
        only_the_package()
        transformers()
        ours = our_model("GPT-2", size, length)
        return lambda: ours.generate(ids, max_new_tokens=new)
    model, mask = their_model("GPT-2", size, length).eval(), torch.ones_like(ids)
    return lambda: model.generate(ids, attention_mask=mask, max_new_tokens=new, do_sample=False)


def compare_steps(title: str, size: dict[str, Any], rows: int, length: int, args: argparse.Namespace) -> None:
    threads = torch.get_num_threads()
    contenders = {
        "libai in a graph": Apart(threads, our_step, title, size, rows, length),
        "transformers, eager": Apart(threads, their_step, title, size, rows, length),
    }
    report(title, alternate(dict(contenders), args.calls, args.rounds), "libai in a graph")
    print(f"  memory: {', '.join(f'{name} {contender.close() / MB:.0f} MB' for name, contender in contenders.items())}")


def compare_texts(size: dict[str, Any], rows: int, new: int, args: argparse.Namespace) -> None:
    threads = torch.get_num_threads()
    contenders = {
        "libai": Apart(threads, writer, True, size, rows, new),
        "transformers": Apart(threads, writer, False, size, rows, new),
    }
    timings = alternate(dict(contenders), 1, args.rounds)
    report(f"GPT-2 writes {new} tokens, batch {rows}", timings, "libai")
    print(f"  tokens a second: {', '.join(f'{one.name} {rows * new / one.median:.0f}' for one in timings)}")
    for _, contender in in_turn(contenders, 0):
        contender.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=2, help="steps of a round")
    parser.add_argument("--vocabulary", type=int, default=5000)
    parser.add_argument("--only", default="", help="titles that begin so")
    args = parse(parser, {"rounds": 1, "calls": 1})
    size = sizes(args.small, args.vocabulary)
    rows, new = (2, 4) if args.small else (8, 64)
    deep = f"{size['layers']} layers, {size['width']} wide"
    length, short, pixels = (16, 8, 32) if args.small else (256, 128, 224)
    tiny = (
        {**size, "layers": 1, "width": 24, "heads": 3}
        if args.small
        else {**size, "layers": 12, "width": 192, "heads": 3}
    )
    works = {
        f"GPT-2, {deep}, {rows} x {length} tokens": (size, rows, length),
        f"BERT, {deep}, {2 * rows} x {short} tokens": (size, 2 * rows, short),
        f"ViT tiny, {tiny['layers']} layers, {tiny['width']} wide, batch {rows}, {pixels} px": (tiny, rows, pixels),
    }
    print(machine())
    for title, work in works.items():
        if title.startswith(args.only):
            compare_steps(title, *work, args)
    for count in (1, rows):
        if f"GPT-2 writes {new} tokens, batch {count}".startswith(args.only):
            compare_texts(size, count, new, args)


if __name__ == "__main__":
    main()
