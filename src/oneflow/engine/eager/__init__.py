"""Tensors of the later years: functions whose meaning differs from torch's, by subject, and the tables of names.

What has the same meaning is torch's own and stands in the public namespaces as ``from torch import ...``. ``names.py``
says why each function here is written anew, and what to use for each name that is absent; docs/tensors.md is checked
against it.
"""
