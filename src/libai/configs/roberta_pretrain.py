"""Pretraining of RoBERTa."""

from libai.config import LazyCall
from libai.evaluation import PPLEvaluator

from .common.data.roberta_dataset import dataloader, tokenization
from .common.models.graph import graph  # noqa: F401
from .common.models.roberta import pretrain_model as model
from .common.optim import optim  # noqa: F401
from .common.train import train

vocab_file = "./data_test/roberta_data/roberta-vocab.json"
merge_files = "./data_test/roberta_data/roberta-merges.txt"
data_prefix = "./data_test/roberta_data/loss_compara_content_sentence"

tokenization.tokenizer.vocab_file = vocab_file
tokenization.tokenizer.merges_file = merge_files
dataloader.train.dataset[0].data_prefix = data_prefix
dataloader.train.dataset[0].indexed_dataset.data_prefix = data_prefix

train.train_micro_batch_size = 2
train.warmup_ratio = 0.01
train.dist.pipeline_num_layers = model.cfg.hidden_layers
train.amp.enabled = True
train.evaluation.evaluator = LazyCall(PPLEvaluator)()
train.evaluation.eval_metric = "lm_loss_PPL"
train.evaluation.eval_mode = "min"
train.output_dir = "./output/roberta_output"
