"""Pretraining of Llama, on rows of tokens as GPT-2's."""

from libai.config import LazyCall
from libai.evaluation import PPLEvaluator

from .common.data.gpt_dataset import dataloader, tokenization
from .common.models.graph import graph  # noqa: F401
from .common.models.llama import pretrain_model as model
from .common.optim import optim
from .common.train import train

vocab_file = "./data_test/gpt_data/gpt2-vocab.json"
merge_files = "./data_test/gpt_data/gpt2-merges.txt"
data_prefix = "./data_test/gpt_data/loss_compara_content_sentence"

tokenization.tokenizer.vocab_file = vocab_file
tokenization.tokenizer.merges_file = merge_files
dataloader.train.dataset[0].data_prefix = data_prefix
dataloader.train.dataset[0].indexed_dataset.data_prefix = data_prefix

dataloader.train.dataset[0].max_seq_length = 1024

optim.lr = 3e-4

train.train_micro_batch_size = 4
train.warmup_ratio = 0.01
train.dist.pipeline_num_layers = model.cfg.hidden_layers
train.amp.enabled = True
train.evaluation.evaluator = LazyCall(PPLEvaluator)()
train.evaluation.eval_metric = "lm_loss_PPL"
train.evaluation.eval_mode = "min"
train.output_dir = "./output/llama_output"
