"""Models, and their graphs, from configs."""

from libai.models.bert_model import BertForClassification, BertForPreTraining, BertModel
from libai.models.build import build_graph, build_model
from libai.models.gpt_model import GPTForPreTraining, GPTModel
from libai.models.llama import LlamaForCausalLM, LlamaModel
from libai.models.roberta_model import RobertaForCausalLM, RobertaForPreTraining, RobertaModel
from libai.models.t5_model import T5ForPreTraining, T5Model

__all__ = [
    "BertForClassification",
    "BertForPreTraining",
    "BertModel",
    "GPTForPreTraining",
    "GPTModel",
    "LlamaForCausalLM",
    "LlamaModel",
    "RobertaForCausalLM",
    "RobertaForPreTraining",
    "RobertaModel",
    "T5ForPreTraining",
    "T5Model",
    "build_graph",
    "build_model",
]
