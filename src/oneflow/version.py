"""The version. Nothing is imported here, so that a build can read it without torch."""

__version__ = "0.2.0"
