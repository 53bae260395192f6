"""``flow.checkpoint``: the variables of all jobs, saved to and loaded from a folder."""

from oneflow.engine.checkpoint.variables import (
    from_torch,
    get,
    get_all_variables,
    load_variables,
    save,
    to_safetensors,
)

__all__ = ["from_torch", "get", "get_all_variables", "load_variables", "save", "to_safetensors"]
