"""Rows of tokens for GPT-2: token files as tools/preprocess_data.py --append-eod makes them. Change data_prefix, in
both places, and the files of the tokenizer."""

from omegaconf import OmegaConf

from libai.config import LazyCall
from libai.data.build import build_nlp_train_val_test_loader
from libai.data.data_utils import get_indexed_dataset
from libai.data.datasets import GPT2Dataset
from libai.tokenizer import GPT2Tokenizer

tokenization = OmegaConf.create()
tokenization.tokenizer = LazyCall(GPT2Tokenizer)(vocab_file="gpt2-vocab.json", merges_file="gpt2-merges.txt")
tokenization.append_eod = False
tokenization.make_vocab_size_divisible_by = 128

dataloader = OmegaConf.create()
dataloader.train = LazyCall(build_nlp_train_val_test_loader)(
    dataset=[
        LazyCall(GPT2Dataset)(
            name="train",
            data_prefix="data/text_document",
            indexed_dataset=LazyCall(get_indexed_dataset)(
                data_prefix="data/text_document", data_impl="mmap", skip_warmup=False
            ),
            max_seq_length=1024,
            seed=1234,
        )
    ],
    train_val_test_num_samples=None,  # from the length of the run
    splits=[[949.0, 50.0, 1.0]],
    weights=[1.0],
    num_workers=4,
)
