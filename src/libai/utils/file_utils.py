"""Files of the network, kept in a folder: ``$LIBAI_CACHE``, else ``~/.oneflow/libai_cache``. Nothing is fetched where
``ONEFLOW_OFFLINE`` is set."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlparse

from libai.utils.whole_file import whole_file, write_whole
from oneflow.engine.core.errors import ArgumentError, DataError, UnsupportedError

_CHUNK = 1 << 16
_SECONDS = 10.0
_SCHEMES = ("http", "https", "file", "s3")


def default_cache_path() -> str:
    """Where files of the network are kept."""
    return os.environ.get("LIBAI_CACHE") or str(Path.home() / ".oneflow" / "libai_cache")


def url_to_filename(url: str, etag: str | None = None) -> str:
    """A name for the file of an address, other for each version that a server tells apart by its ``etag``."""
    parts = [url] if etag is None else [url, etag]
    return ".".join(hashlib.sha256(part.encode()).hexdigest() for part in parts) + (
        ".h5" if url.endswith(".h5") else ""
    )


def filename_to_url(filename: str, cache_dir: str | None = None) -> tuple[str, str | None]:
    """The address and the ``etag`` of a file that was fetched."""
    path = os.path.join(cache_dir or default_cache_path(), filename)
    for needed in (path, f"{path}.json"):
        if not os.path.exists(needed):
            raise MissingFileError(f"there is no {needed}: it was not fetched into this folder")
    told = json.loads(Path(f"{path}.json").read_text(encoding="utf-8"))
    return told["url"], told["etag"]


def cached_path(
    url_or_filename: str | os.PathLike[str],
    cache_dir: str | None = None,
    force_download: bool = False,
    proxies: dict[str, str] | None = None,
) -> str:
    """The path of a file: itself if it is there, or that of an address once it was fetched."""
    name = os.fspath(url_or_filename)
    if urlparse(name).scheme in _SCHEMES:
        return get_from_cache(name, cache_dir, force_download, proxies)
    if os.path.exists(name):
        return name
    if urlparse(name).scheme == "":
        raise MissingFileError(f"there is no file {name!r}")
    raise ArgumentError(f"{name!r} is neither a file nor an address of {', '.join(_SCHEMES)}")


def get_from_cache(
    url: str,
    cache_dir: str | None = None,
    force_download: bool = False,
    proxies: dict[str, str] | None = None,
    etag_timeout: float = 10,
) -> str:
    """The path of the file of an address, fetched unless this version is there. Without a network the newest version
    that is there."""
    folder = cache_dir or default_cache_path()
    os.makedirs(folder, exist_ok=True)
    try:
        etag = s3_etag(url, proxies) if url.startswith("s3://") else _etag(url, proxies, etag_timeout)
    except OSError as error:
        return _kept(url, folder, error)
    path = os.path.join(folder, url_to_filename(url, etag))
    if force_download or not os.path.exists(path):
        with whole_file(path) as file:
            http_get(url, file, proxies)
        write_whole(f"{path}.json", json.dumps({"url": url, "etag": etag}))
    return path


def get_data_from_cache(
    url: str, cache_dir: str | None = None, force_download: bool = False, md5: str | None = None
) -> str:
    """The path of the file of an address, by its own name in the folder, fetched unless it is there and has this
    MD5."""
    path = os.path.join(cache_dir or default_cache_path(), url.split("?")[0].rstrip("/").split("/")[-1])
    if force_download or not os.path.exists(path) or (md5 is not None and get_md5(path) != md5):
        download_file(path, url)
    if md5 is not None and (found := get_md5(path)) != md5:
        raise DataError(f"{url} has the MD5 {found}, expected {md5}; the file is {path}")
    return path


def get_md5(fname: str | os.PathLike[str]) -> str:
    """The MD5 of a file, by which data is published."""
    digest = hashlib.md5(usedforsecurity=False)
    with open(fname, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def download_file(out_path: str, url: str, progress: bool = True) -> None:
    """Brings the file of an address to a path: whole, or not there at all."""
    os.makedirs(os.path.dirname(os.path.abspath(out_path)), exist_ok=True)
    try:
        with whole_file(out_path) as file:
            http_get(url, file, progress=progress)
    except OSError as error:
        raise MissingFileError(f"{url} cannot be fetched ({error}); put the file at {out_path}") from None


def http_get(url: str, temp_file: IO[bytes], proxies: dict[str, str] | None = None, progress: bool = True) -> None:
    """Writes what an address answers into an open file, with a bar on a terminal."""
    with _opened(url, proxies, _SECONDS) as reply:
        size = int(reply.headers.get("Content-Length") or 0) or None
        bar = None
        if progress and sys.stderr.isatty():
            from tqdm import tqdm

            bar = tqdm(total=size, unit="B", unit_scale=True, desc=url.rsplit("/", 1)[-1], leave=False)
        try:
            while chunk := reply.read(_CHUNK):
                temp_file.write(chunk)
                if bar is not None:
                    bar.update(len(chunk))
        finally:
            if bar is not None:
                bar.close()


def split_s3_path(url: str) -> tuple[str, str]:
    """The bucket and the name of ``s3://bucket/name``."""
    parsed = urlparse(url)
    if parsed.scheme != "s3" or not parsed.netloc or not parsed.path.strip("/"):
        raise ArgumentError(f"an address of S3 is s3://bucket/name, got {url!r}")
    return parsed.netloc, parsed.path.lstrip("/")


def s3_request(func: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator for functions of one's own that ask S3 for an address, their first argument: an answer of 404 is a
    ``MissingFileError``."""

    @functools.wraps(func)
    def asked(url: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return func(url, *args, **kwargs)
        except Exception as error:
            told = getattr(error, "response", None)
            if isinstance(told, Mapping) and str(told.get("Error", {}).get("Code")) == "404":
                raise MissingFileError(f"there is no {url}") from error
            raise

    return asked


def s3_etag(url: str, proxies: dict[str, str] | None = None) -> str | None:
    """Refused: S3 needs credentials and a library of its own."""
    bucket, name = split_s3_path(url)
    raise UnsupportedError(
        f"S3 is not read here; fetch {name} of {bucket} with its own tools, and give the path of the file"
    )


def s3_get(url: str, temp_file: IO[bytes], proxies: dict[str, str] | None = None) -> None:
    """Refused, as :func:`s3_etag`."""
    s3_etag(url, proxies)


class MissingFileError(DataError, FileNotFoundError, OSError):
    """A file that is not there and cannot be fetched; says where to put it."""


def _etag(url: str, proxies: dict[str, str] | None, seconds: float) -> str | None:
    with _opened(url, proxies, seconds, method="GET" if url.startswith("file:") else "HEAD") as reply:
        return reply.headers.get("ETag")


def _opened(url: str, proxies: dict[str, str] | None, seconds: float, method: str = "GET") -> Any:
    if os.environ.get("ONEFLOW_OFFLINE") and not url.startswith("file:"):
        raise urllib.error.URLError("ONEFLOW_OFFLINE is set")
    handlers = [urllib.request.ProxyHandler(proxies)] if proxies else []
    return urllib.request.build_opener(*handlers).open(urllib.request.Request(url, method=method), timeout=seconds)


def _kept(url: str, folder: str, error: OSError) -> str:
    begin = url_to_filename(url)
    found = [path for path in Path(folder).glob(f"{begin}*") if path.suffix != ".json"]
    if not found:
        raise MissingFileError(f"{url} cannot be fetched ({error}), and {folder} has no earlier version of it")
    return str(max(found, key=lambda path: path.stat().st_mtime))
