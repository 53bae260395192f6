"""Preprocessing by name. A new one: ``preprocess_image(image, height, width, is_training, **kw)`` in a file of this
folder, named in preprocessing_fn_map. See docs/fastnn.md.
"""

from fastnn.preprocessing.preprocessing_factory import get_preprocessing, preprocessing_fn_map

__all__ = ["get_preprocessing", "preprocessing_fn_map"]
