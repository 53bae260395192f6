"""Trains an image classifier from flags: python train_image_classifiers.py --model_name=resnet_v1_50 ..., --help lists
them.

The folders beside this file are where data sets, networks, preprocessing and flags of your own go; each says how in its
first lines.
"""

import flags  # noqa: F401  the flags of your own
from datasets import dataset_factory  # noqa: F401  ... data sets
from models import model_factory  # noqa: F401  ... networks
from preprocessing import preprocessing_factory  # noqa: F401  ... preprocessing
from utils import misc_utils

from fastnn.train import main

if __name__ == "__main__":
    main(assignment=misc_utils.get_assigment_map_from_checkpoint)
