"""Pretraining of T5."""

from libai.config import LazyCall
from libai.evaluation import PPLEvaluator

from .common.data.t5_dataset import dataloader, tokenization
from .common.models.graph import graph  # noqa: F401
from .common.models.t5 import pretrain_model as model
from .common.optim import optim  # noqa: F401
from .common.train import train

vocab_file = "./data_test/t5_data/spiece.model"
data_prefix = "./data_test/t5_data/loss_compara_content_sentence"

tokenization.tokenizer.vocab_file = vocab_file
dataloader.train.dataset[0].data_prefix = data_prefix
dataloader.train.dataset[0].indexed_dataset.data_prefix = data_prefix

model.cfg.hidden_size = 1024
model.cfg.intermediate_size = 4096
model.cfg.num_attention_heads = 16
model.cfg.hidden_layers = 12

train.train_micro_batch_size = 16
train.warmup_ratio = 0.01
train.dist.pipeline_num_layers = 2 * model.cfg.hidden_layers  # those of the encoder and those of the decoder
train.amp.enabled = True
train.evaluation.evaluator = LazyCall(PPLEvaluator)()
train.evaluation.eval_metric = "masked_lm_loss_PPL"
train.evaluation.eval_mode = "min"
train.output_dir = "./output/t5_output"
