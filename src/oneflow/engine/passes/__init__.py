"""Optimization passes over lowered programs; ``pipeline.py`` lists them in order."""
