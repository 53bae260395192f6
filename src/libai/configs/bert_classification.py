"""BERT with a classifier. A project adds its own ``dataloader``, whose samples have input_ids, attention_mask,
tokentype_ids and labels."""

from libai.config import LazyCall
from libai.models import BertForClassification

from .common.models.bert import cfg
from .common.models.graph import graph  # noqa: F401
from .common.optim import optim  # noqa: F401
from .common.train import train

cfg.hidden_layers = 12
cfg.intermediate_size = 3072
cfg.num_labels = 2
cfg.classifier_dropout = 0.1
model = LazyCall(BertForClassification)(cfg=cfg)

train.train_micro_batch_size = 16
train.dist.pipeline_num_layers = cfg.hidden_layers
train.output_dir = "./output/bert_classification_output"
