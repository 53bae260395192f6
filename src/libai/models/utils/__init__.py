"""What models share: the graph that trains or evaluates one, first values of weights, and weights from folders."""

from libai.models.utils.graph_base import GraphBase
from libai.models.utils.model_loader.base_loader import ModelLoaderHuggerFace, ModelLoaderLiBai
from libai.models.utils.model_loader.bert_loader import BertLoaderHuggerFace, BertLoaderLiBai
from libai.models.utils.model_loader.export import export_to_huggingface
from libai.models.utils.model_loader.gpt_loader import GPT2LoaderHuggerFace, GPT2LoaderLiBai
from libai.models.utils.model_loader.llama_loader import LlamaLoaderHuggerFace, LlamaLoaderLiBai
from libai.models.utils.model_loader.roberta_loader import RobertaLoaderHuggerFace, RobertaLoaderLiBai
from libai.models.utils.model_loader.swin_loader import SwinLoaderHuggerFace, SwinLoaderLiBai
from libai.models.utils.model_loader.swinv2_loader import SwinV2LoaderHuggerFace, SwinV2LoaderLiBai
from libai.models.utils.model_loader.vit_loader import ViTLoaderHuggerFace, ViTLoaderLiBai
from libai.models.utils.weight_init import init_method_normal, scaled_init_method_normal

__all__ = [
    "BertLoaderHuggerFace",
    "BertLoaderLiBai",
    "GPT2LoaderHuggerFace",
    "GPT2LoaderLiBai",
    "GraphBase",
    "LlamaLoaderHuggerFace",
    "LlamaLoaderLiBai",
    "ModelLoaderHuggerFace",
    "ModelLoaderLiBai",
    "RobertaLoaderHuggerFace",
    "RobertaLoaderLiBai",
    "SwinLoaderHuggerFace",
    "SwinLoaderLiBai",
    "SwinV2LoaderHuggerFace",
    "SwinV2LoaderLiBai",
    "ViTLoaderHuggerFace",
    "ViTLoaderLiBai",
    "export_to_huggingface",
    "init_method_normal",
    "scaled_init_method_normal",
]
