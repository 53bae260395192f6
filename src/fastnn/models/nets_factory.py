"""slim's name for :mod:`fastnn.models.model_factory`."""

from fastnn.models.model_factory import NetworkFn, arg_scopes_map, get_model_fn, models_map

networks_map = models_map
get_network_fn = get_model_fn

__all__ = ["NetworkFn", "arg_scopes_map", "get_network_fn", "networks_map"]
