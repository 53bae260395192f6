"""Executing a program: generated code, clock, updates."""
