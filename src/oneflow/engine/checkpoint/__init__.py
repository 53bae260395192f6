"""Checkpoint folders, tensor files and weights from other frameworks."""
