"""The defaults of ``graph``. ``libai/config/keys.py`` declares them, and docs/libai.md describes each key."""

from libai.config.keys import defaults

graph = defaults("graph")
