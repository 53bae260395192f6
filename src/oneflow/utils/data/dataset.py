"""``flow.utils.data.dataset``: torch's data sets."""

from torch.utils.data import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    IterDataPipe,
    Subset,
    TensorDataset,
    random_split,
)

__all__ = [
    "ChainDataset",
    "ConcatDataset",
    "Dataset",
    "IterDataPipe",
    "IterableDataset",
    "Subset",
    "TensorDataset",
    "random_split",
]
