"""Clusters of memory-bound ops."""
