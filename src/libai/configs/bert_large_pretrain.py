"""Pretraining of BERT."""

from libai.config import LazyCall
from libai.evaluation import PPLEvaluator

from .common.data.bert_dataset import dataloader, tokenization
from .common.models.bert import pretrain_model as model
from .common.models.graph import graph  # noqa: F401
from .common.optim import optim  # noqa: F401
from .common.train import train

vocab_file = "./data_test/bert_data/bert-base-chinese-vocab.txt"
data_prefix = "./data_test/bert_data/loss_compara_content_sentence"

tokenization.tokenizer.vocab_file = vocab_file
dataloader.train.dataset[0].data_prefix = data_prefix
dataloader.train.dataset[0].indexed_dataset.data_prefix = data_prefix

model.cfg.num_attention_heads = 16
model.cfg.hidden_size = 1024
model.cfg.intermediate_size = 4096
model.cfg.hidden_layers = 24

train.train_micro_batch_size = 16
train.warmup_ratio = 0.01
train.dist.pipeline_num_layers = model.cfg.hidden_layers
train.amp.enabled = True
train.evaluation.evaluator = LazyCall(PPLEvaluator)()
train.evaluation.eval_metric = "lm_loss_PPL"
train.evaluation.eval_mode = "min"
train.output_dir = "./output/bert_output"
