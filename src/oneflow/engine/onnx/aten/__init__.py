"""Emitters of aten ops, a file for each family."""
