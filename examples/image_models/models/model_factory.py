"""Networks by name. A new one: a function or class ``f(num_classes, is_training)`` that gives a torch module, in a file
of this folder, named in models_map; the module takes pictures (batch, height, width, channels), gives logits, and has
default_image_size. See docs/fastnn.md.
"""

from fastnn.models.model_factory import arg_scopes_map, get_model_fn, models_map

__all__ = ["arg_scopes_map", "get_model_fn", "models_map"]
