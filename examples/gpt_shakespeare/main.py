"""A small GPT learns a text and writes some of its own:

    python main.py                                      the sonnets that lie here
    python main.py text.file=input.txt                  any plain text
    python main.py --resume train.train_iter=2000       further

It is a project of LiBai: configs/config.py says everything, and flags and overrides are those of tools/train_net.py.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from tokens import prepare  # noqa: E402

from libai.config import LazyConfig, default_argument_parser  # noqa: E402
from libai.engine import DefaultTrainer, default_setup  # noqa: E402
from libai.engine.seeding import seed_run  # noqa: E402
from libai.train import shorten  # noqa: E402
from libai.utils import distributed as dist  # noqa: E402


def main() -> None:
    args = default_argument_parser().parse_args()
    args.config_file = args.config_file or str(HERE / "configs" / "config.py")
    cfg = LazyConfig.apply_overrides(LazyConfig.load(args.config_file), args.opts)
    default_setup(cfg, args)
    if dist.is_main_process() and not (args.resume and os.path.exists(cfg.text.folder)):
        prepare(cfg.text.file, cfg.text.folder, cfg.text.vocab_size)
    dist.synchronize()
    seed_run(cfg.train.seed, dist.get_rank())
    if args.fast_dev_run:
        shorten(cfg)
    trainer = DefaultTrainer(cfg)
    trainer.train()
    for sample in write(trainer, cfg.text):
        if dist.is_main_process():
            print(f"----\n{sample}")


def write(trainer: DefaultTrainer, text) -> list[str]:
    """Texts that the model makes from the prompt, each as long as it has positions."""
    tokenizer, model = trainer.tokenizer, trainer.model
    prompt = tokenizer.encode([text.prompt], return_tensors="of", is_global=True)
    found = model.generate(
        prompt, do_sample=True, temperature=text.temperature, top_k=text.top_k, num_return_sequences=text.samples,
        max_length=trainer.cfg.model.cfg.max_seq_length, pad_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    return tokenizer.decode(dist.tton(found))


if __name__ == "__main__":
    main()
