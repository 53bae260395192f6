"""Optimizer updates: formulas, and how they sweep over memory."""
