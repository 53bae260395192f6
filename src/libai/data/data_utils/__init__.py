"""What data sets are made with."""

from libai.data.data_utils.dataset_utils import (
    compile_helper,
    create_masked_lm_predictions,
    get_samples_mapping,
    get_train_valid_test_split_,
    is_shared_folder,
)
from libai.data.data_utils.indexed_dataset import (
    IndexedCachedDataset,
    IndexedDataset,
    MMapIndexedDataset,
    get_indexed_dataset,
)

__all__ = [
    "IndexedCachedDataset",
    "IndexedDataset",
    "MMapIndexedDataset",
    "compile_helper",
    "create_masked_lm_predictions",
    "get_indexed_dataset",
    "get_samples_mapping",
    "get_train_valid_test_split_",
    "is_shared_folder",
]
