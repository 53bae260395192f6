"""The published import path of the cache folder and of what is fetched into it."""

from __future__ import annotations

import os
from urllib.parse import urlparse

from flowvision.datasets.utils import download_url
from flowvision.models.pretrained import get_cache_dir, read_weights
from oneflow import Tensor

__all__ = ["download_url_to_file", "get_cache_dir", "load_state_dict_from_url"]


def download_url_to_file(url: str, dst: str | os.PathLike[str]) -> None:
    """Brings ``url`` to the file ``dst``, complete or not at all."""
    folder, name = os.path.split(os.path.abspath(os.fspath(dst)))
    os.makedirs(folder, exist_ok=True)
    download_url(url, folder, name)


def load_state_dict_from_url(
    url: str, model_dir: str | os.PathLike[str] | None = None, progress: bool = True
) -> dict[str, Tensor]:
    """The tensors of a weight file, which is fetched into the cache folder unless it is there; a hash in its name is
    compared."""
    path = get_cache_dir(model_dir) / os.path.basename(urlparse(url).path)
    if not path.exists():
        download_url_to_file(url, path)
    return read_weights(path, progress)
