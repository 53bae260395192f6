"""What data sets are made with."""

from libai.data.data_utils.dataset_utils import get_train_valid_test_split_

__all__ = ["get_train_valid_test_split_"]
