"""Models, and their graphs, from configs."""

from libai.models.bert_model import BertForClassification, BertForPreTraining, BertModel
from libai.models.build import build_graph, build_model
from libai.models.gpt_model import GPTForPreTraining, GPTModel
from libai.models.llama import LlamaForCausalLM, LlamaModel
from libai.models.resmlp import ResMLP
from libai.models.roberta_model import RobertaForCausalLM, RobertaForPreTraining, RobertaModel
from libai.models.swin_transformer import SwinTransformer
from libai.models.swin_transformer_v2 import SwinTransformerV2
from libai.models.t5_model import T5ForPreTraining, T5Model
from libai.models.vision_transformer import VisionTransformer

__all__ = [
    "BertForClassification",
    "BertForPreTraining",
    "BertModel",
    "GPTForPreTraining",
    "GPTModel",
    "LlamaForCausalLM",
    "LlamaModel",
    "ResMLP",
    "RobertaForCausalLM",
    "RobertaForPreTraining",
    "RobertaModel",
    "SwinTransformer",
    "SwinTransformerV2",
    "T5ForPreTraining",
    "T5Model",
    "VisionTransformer",
    "build_graph",
    "build_model",
]
