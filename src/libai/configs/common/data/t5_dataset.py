"""Texts with hidden spans for T5: token files as tools/preprocess_data.py --split-sentences makes them. Change
data_prefix, in both places, and vocab_file.

Another tokenizer does too, if it has sentinels: BertTokenizer with additional_special_tokens=[f"<extra_id_{i}>" for i
in range(100)].
"""

from omegaconf import OmegaConf

from libai.config import LazyCall
from libai.data.build import build_nlp_train_val_test_loader
from libai.data.data_utils import get_indexed_dataset
from libai.data.datasets import T5Dataset
from libai.tokenizer import T5Tokenizer

tokenization = OmegaConf.create()
tokenization.tokenizer = LazyCall(T5Tokenizer)(vocab_file="spiece.model", extra_ids=100)
tokenization.append_eod = False
tokenization.make_vocab_size_divisible_by = 128

dataloader = OmegaConf.create()
dataloader.train = LazyCall(build_nlp_train_val_test_loader)(
    dataset=[
        LazyCall(T5Dataset)(
            name="train",
            data_prefix="data/text_sentence",
            indexed_dataset=LazyCall(get_indexed_dataset)(
                data_prefix="data/text_sentence", data_impl="mmap", skip_warmup=False
            ),
            max_seq_length=512,
            max_seq_length_dec=128,
            masked_lm_prob=0.15,
            short_seq_prob=0.1,
            seed=1234,
        )
    ],
    train_val_test_num_samples=None,  # from the length of the run
    splits=[[949.0, 50.0, 1.0]],
    weights=[1.0],
    num_workers=4,
)
