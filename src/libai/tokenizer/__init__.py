"""Tokenizers: text to numbers and back."""

from libai.tokenizer.build import build_tokenizer
from libai.tokenizer.tokenization_base import PreTrainedTokenizer
from libai.tokenizer.tokenization_bert import BertTokenizer
from libai.tokenizer.tokenization_gpt2 import GPT2Tokenizer
from libai.tokenizer.tokenization_roberta import RobertaTokenizer
from libai.tokenizer.tokenization_t5 import T5Tokenizer

__all__ = [
    "BertTokenizer",
    "GPT2Tokenizer",
    "PreTrainedTokenizer",
    "RobertaTokenizer",
    "T5Tokenizer",
    "build_tokenizer",
]
