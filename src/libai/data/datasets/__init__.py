"""Data sets whose samples are Instances: pictures with ``images`` and ``labels``, and texts for BERT, RoBERTa, GPT-2
and T5."""

from libai.data.datasets.bert_dataset import BertDataset
from libai.data.datasets.cifar import CIFAR10Dataset, CIFAR100Dataset
from libai.data.datasets.gpt_dataset import GPT2Dataset
from libai.data.datasets.imagenet import ImageNetDataset
from libai.data.datasets.mnist import MNISTDataset
from libai.data.datasets.roberta_dataset import RobertaDataset
from libai.data.datasets.t5_dataset import T5Dataset

__all__ = [
    "BertDataset",
    "CIFAR100Dataset",
    "CIFAR10Dataset",
    "GPT2Dataset",
    "ImageNetDataset",
    "MNISTDataset",
    "RobertaDataset",
    "T5Dataset",
]
