"""The published import path of the cache folder."""

from flowvision.models.pretrained import get_cache_dir

__all__ = ["get_cache_dir"]
