"""The defaults of ``train``. ``libai/config/keys.py`` declares them, and docs/libai.md describes each key."""

from libai.config.keys import defaults

train = defaults("train")
