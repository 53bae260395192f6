"""``flow.utils.data``: data sets, samplers and loaders of tensors. They are torch's; where OneFlow differs, a class of
that name stands here."""

from oneflow.utils.data import dataloader, dataset, decorator, distributed, sampler
from oneflow.utils.data.dataloader import DataLoader, default_collate, default_convert, get_worker_info
from oneflow.utils.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    IterDataPipe,
    Subset,
    TensorDataset,
    random_split,
)
from oneflow.utils.data.decorator import functional_datapipe, guaranteed_datapipes_determinism, non_deterministic
from oneflow.utils.data.distributed import DistributedSampler
from oneflow.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "IterDataPipe",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "dataloader",
    "dataset",
    "decorator",
    "default_collate",
    "default_convert",
    "distributed",
    "functional_datapipe",
    "get_worker_info",
    "guaranteed_datapipes_determinism",
    "non_deterministic",
    "random_split",
    "sampler",
]
