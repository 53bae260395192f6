"""Weights from folders of this package, of LiBai and of ``transformers``, and back."""
