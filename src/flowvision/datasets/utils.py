"""Files of data sets: downloading, checking, unpacking."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm

from oneflow.engine.core.errors import ArgumentError, DataError, nearest
from oneflow.engine.data.formats.download import answering, fetch, fetch_all

T = TypeVar("T")
OFFLINE = "ONEFLOW_OFFLINE"


class MissingDataError(DataError, RuntimeError):
    """A data set whose files are not there; says which to put where."""


def gen_bar_updater() -> Callable[[int, int, int], None]:
    """A hook for ``urllib.request.urlretrieve`` that shows a bar."""
    bar = tqdm(total=None, unit="B", unit_scale=True)

    def update(count: int, block_size: int, total_size: int) -> None:
        if bar.total is None and total_size > 0:
            bar.total = total_size
        bar.update(count * block_size - bar.n)

    return update


def calculate_md5(fpath: str | os.PathLike[str], chunk_size: int = 1024 * 1024) -> str:
    """The MD5 of a file, by which data sets were published."""
    digest = hashlib.md5(usedforsecurity=False)
    with open(fpath, "rb") as file:
        while chunk := file.read(chunk_size):
            digest.update(chunk)
    return digest.hexdigest()


def check_md5(fpath: str | os.PathLike[str], md5: str, **kwargs: Any) -> bool:
    """Whether a file has this MD5."""
    return calculate_md5(fpath, **kwargs) == md5


def check_integrity(fpath: str | os.PathLike[str], md5: str | None = None) -> bool:
    """Whether a file is there and, where one is given, has this MD5."""
    return os.path.isfile(fpath) and (md5 is None or check_md5(fpath, md5))


def download_url(
    url: str,
    root: str | os.PathLike[str],
    filename: str | None = None,
    md5: str | None = None,
    max_redirect_hops: int = 3,
) -> None:
    """Brings ``url`` to ``root/filename`` unless it is there already; checked by its MD5, and complete or not there at
    all. Nothing is fetched where ``ONEFLOW_OFFLINE`` is set."""
    target = Path(root).expanduser() / (filename or url.rsplit("/", 1)[-1])
    if check_integrity(target, md5):
        return
    try:
        if os.environ.get(OFFLINE) and not url.startswith("file:"):
            raise OSError(f"{OFFLINE} is set")
        fetch(url, target, md5)
    except OSError as error:
        raise MissingDataError(f"{url} cannot be downloaded ({error}); put the file at {target}") from None


def download_file_from_google_drive(
    file_id: str, root: str | os.PathLike[str], filename: str | None = None, md5: str | None = None
) -> None:
    """Brings a file of Google Drive to ``root/filename``, by default under its id, as :func:`download_url` does."""
    download_url(
        f"https://drive.usercontent.google.com/download?id={file_id}&export=download&confirm=t",
        root,
        filename or file_id,
        md5,
    )


def list_dir(root: str | os.PathLike[str], prefix: bool = False) -> list[str]:
    """The folders in a folder; with ``prefix`` as paths."""
    return [
        os.path.join(root, name) if prefix else name
        for name in sorted(os.listdir(root))
        if os.path.isdir(os.path.join(root, name))
    ]


def list_files(root: str | os.PathLike[str], suffix: str | tuple[str, ...], prefix: bool = False) -> list[str]:
    """The files in a folder whose names end so; with ``prefix`` as paths."""
    found = [
        name for name in sorted(os.listdir(root)) if os.path.isfile(os.path.join(root, name)) and name.endswith(suffix)
    ]
    return [os.path.join(root, name) if prefix else name for name in found]


def extract_archive(
    from_path: str | os.PathLike[str], to_path: str | os.PathLike[str] | None = None, remove_finished: bool = False
) -> None:
    """Unpacks a .tar, .tar.gz, .tgz, .zip or .gz file. Names that lead out of the folder are refused."""
    source = Path(from_path)
    folder = Path(to_path) if to_path is not None else source.parent
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if source.name.endswith((".tar", ".tar.gz", ".tgz", ".tar.xz")):
            with tarfile.open(source) as tar:
                tar.extractall(folder, filter="data")
        elif source.name.endswith(".zip"):
            _unzip(source, folder)
        elif source.name.endswith(".gz"):
            _ungzip(source, folder / source.name.removesuffix(".gz"))
        else:
            raise ArgumentError(f"an archive is .tar, .tar.gz, .tgz, .zip or .gz, got {source.name!r}")
    except (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, EOFError) as error:
        raise DataError(f"{source} cannot be unpacked: {error}") from None
    if remove_finished:
        source.unlink()


def download_and_extract_archive(
    url: str,
    download_root: str | os.PathLike[str],
    extract_root: str | os.PathLike[str] | None = None,
    filename: str | None = None,
    md5: str | None = None,
    remove_finished: bool = False,
) -> None:
    """``download_url`` and ``extract_archive``."""
    root = Path(download_root).expanduser()
    name = filename or url.rsplit("/", 1)[-1]
    download_url(url, root, name, md5)
    extract_archive(root / name, extract_root if extract_root is not None else root, remove_finished)


def iterable_to_str(iterable: Iterable[Any]) -> str:
    """The values in quotes, with commas between them."""
    return "'" + "', '".join(str(item) for item in iterable) + "'"


def verify_str_arg(
    value: T, arg: str | None = None, valid_values: Iterable[T] | None = None, custom_msg: str | None = None
) -> T:
    """``value``, if it is one of the valid ones."""
    if not isinstance(value, str):
        raise ArgumentError(f"{arg or 'the value'} is a str, got {type(value).__name__}")
    known = None if valid_values is None else list(valid_values)
    if known is not None and value not in known:
        raise ArgumentError(
            custom_msg
            or f"{arg or 'the value'} is one of {iterable_to_str(known)}, got {value!r}.{nearest(value, map(str, known))}"
        )
    return value


def bring(name: str, folder: Path, mirrors: Sequence[str], sums: Mapping[str, str], download: bool) -> None:
    """Files of a data set that ``folder`` lacks, from the network; otherwise one error that says what to put where."""
    if not download:
        raise MissingDataError(
            f"Dataset not found. You can use download=True to download it, or put {', '.join(sums)} into {folder}"
        )
    if os.environ.get(OFFLINE):
        reason: str | None = f"{OFFLINE} is set"
    else:
        working = answering(mirrors, next(iter(sums)))
        reason = fetch_all(folder, working, sums) if working else "no mirror can be reached"
    if reason is not None:
        raise MissingDataError(
            f"{name} cannot be downloaded ({reason}); put {', '.join(sums)} into {folder}, from {mirrors[0]}"
        )


def _unzip(source: Path, folder: Path) -> None:
    with zipfile.ZipFile(source) as archive:
        archive.extractall(folder)  # which strips absolute and parent parts of names


def _ungzip(source: Path, target: Path) -> None:
    beside = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        with gzip.open(source, "rb") as packed, open(beside, "wb") as plain:
            shutil.copyfileobj(packed, plain)
        os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)
