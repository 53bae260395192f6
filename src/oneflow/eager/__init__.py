"""Tensors of the later years, which are torch's own: what their names share with those of jobs, what is added to them, and what is absent."""
