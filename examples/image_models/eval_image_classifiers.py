"""Prints Accuracy and Recall_5 of a trained classifier: python eval_image_classifiers.py --checkpointDir=..., with the
flags it was trained with."""

import flags  # noqa: F401
from datasets import dataset_factory  # noqa: F401
from models import model_factory  # noqa: F401
from preprocessing import preprocessing_factory  # noqa: F401

from fastnn.evaluate import main

if __name__ == "__main__":
    main()
