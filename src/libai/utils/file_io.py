"""Paths and addresses under one interface: ``PathManagerBase`` opens, copies and lists, by the handler that an address
begins with."""

from __future__ import annotations

import base64
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import IO, Any
from urllib.parse import urlparse

from libai.utils import file_utils
from libai.utils.non_blocking_io import NonBlockingIOManager
from oneflow.engine.core.errors import ArgumentError, KeywordError, UnsupportedError

GLOBAL_PATH_MANAGER = "global_path_manager"


def get_cache_dir(cache_dir: str | None = None) -> str:
    """Where files of the network are kept: ``cache_dir``, else ``$LIBAI_CACHE``, else ``~/.oneflow/libai_cache``."""
    return os.path.expanduser(cache_dir) if cache_dir is not None else file_utils.default_cache_path()


@contextmanager
def file_lock(path: str) -> Iterator[None]:
    """Keeps other processes out that lock the same path; the lock ends with the process."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(f"{path}.lock", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class LazyPath(os.PathLike):
    """A path that a function gives when it is first needed."""

    def __init__(self, func: Callable[[], str]) -> None:
        self._func, self._value = func, None

    def __fspath__(self) -> str:
        if self._value is None:
            found = self._func()
            if not isinstance(found, (str, bytes, os.PathLike)):
                raise ArgumentError(f"the function of a LazyPath gives a path, got {found!r}")
            self._value = os.fspath(found)  # type: ignore[assignment]
        return self._value  # type: ignore[return-value]

    def __str__(self) -> str:
        return os.fspath(self)


class PathHandler:
    """What is done with addresses of one kind; a handler of one's own names its prefixes and overrides what it can
    do."""

    def __init__(self, async_executor: Executor | None = None) -> None:
        self._async_executor = async_executor
        self._writers = NonBlockingIOManager(buffered=True, executor=async_executor)

    def _get_supported_prefixes(self) -> list[str]:
        raise NotImplementedError

    def _get_local_path(self, path: str, force: bool = False, **kwargs: Any) -> str:
        raise self._cannot("give a local path of", path)

    def _open(self, path: str, mode: str = "r", buffering: int = -1, **kwargs: Any) -> IO[Any]:
        raise self._cannot("open", path)

    def _copy(self, src_path: str, dst_path: str, overwrite: bool = False, **kwargs: Any) -> bool:
        raise self._cannot("copy", src_path)

    def _copy_from_local(self, local_path: str, dst_path: str, overwrite: bool = False, **kwargs: Any) -> bool:
        raise self._cannot("write", dst_path)

    def _mv(self, src_path: str, dst_path: str, **kwargs: Any) -> bool:
        raise self._cannot("move", src_path)

    def _exists(self, path: str, **kwargs: Any) -> bool:
        raise self._cannot("look for", path)

    def _isfile(self, path: str, **kwargs: Any) -> bool:
        raise self._cannot("look at", path)

    def _isdir(self, path: str, **kwargs: Any) -> bool:
        raise self._cannot("look at", path)

    def _ls(self, path: str, **kwargs: Any) -> list[str]:
        raise self._cannot("list", path)

    def _mkdirs(self, path: str, **kwargs: Any) -> None:
        raise self._cannot("make", path)

    def _rm(self, path: str, **kwargs: Any) -> None:
        raise self._cannot("remove", path)

    def _symlink(self, src_path: str, dst_path: str, **kwargs: Any) -> bool:
        raise self._cannot("link", src_path)

    def _set_cwd(self, path: str | None, **kwargs: Any) -> bool:
        raise self._cannot("work in", str(path))

    def _opena(
        self,
        path: str,
        mode: str = "r",
        buffering: int = -1,
        callback_after_file_close: Callable[[], Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        return self._writers.get_non_blocking_io(
            path, self._open(path, mode, **kwargs), callback_after_file_close, buffering
        )

    def _async_join(self, path: str | None = None) -> bool:
        return self._writers.join(path)

    def _check_kwargs(self, kwargs: dict[str, Any], is_strict: bool) -> None:
        if kwargs and is_strict:
            raise KeywordError(
                f"{type(self).__name__} takes no argument {sorted(kwargs)[0]!r}; set_strict_kwargs_checking(False) "
                f"lets it pass"
            )

    def _cannot(self, what: str, path: str) -> UnsupportedError:
        return UnsupportedError(f"{type(self).__name__} cannot {what} {path}")


class NativePathHandler(PathHandler):
    """Files of this machine."""

    _cwd: str | None = None

    def _get_supported_prefixes(self) -> list[str]:
        return [""]

    def _at(self, path: str) -> str:
        path = os.fspath(path).removeprefix("file://")
        return os.path.normpath(os.path.join(self._cwd or "", path))

    def _get_local_path(self, path: str, force: bool = False, **kwargs: Any) -> str:
        return self._at(path)

    def _open(
        self,
        path: str,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        **kwargs: Any,
    ) -> IO[Any]:
        return open(self._at(path), mode, buffering=buffering, encoding=encoding, errors=errors, newline=newline)

    def _copy(self, src_path: str, dst_path: str, overwrite: bool = False, **kwargs: Any) -> bool:
        source, target = self._at(src_path), self._at(dst_path)
        if os.path.exists(target) and not overwrite:
            raise ArgumentError(f"{target} is there already; give overwrite=True")
        shutil.copyfile(source, target)
        return True

    def _copy_from_local(self, local_path: str, dst_path: str, overwrite: bool = False, **kwargs: Any) -> bool:
        return self._copy(local_path, dst_path, overwrite)

    def _mv(self, src_path: str, dst_path: str, **kwargs: Any) -> bool:
        if os.path.exists(self._at(dst_path)):
            raise ArgumentError(f"{self._at(dst_path)} is there already; remove it first")
        shutil.move(self._at(src_path), self._at(dst_path))
        return True

    def _exists(self, path: str, **kwargs: Any) -> bool:
        return os.path.exists(self._at(path))

    def _isfile(self, path: str, **kwargs: Any) -> bool:
        return os.path.isfile(self._at(path))

    def _isdir(self, path: str, **kwargs: Any) -> bool:
        return os.path.isdir(self._at(path))

    def _ls(self, path: str, **kwargs: Any) -> list[str]:
        return os.listdir(self._at(path))

    def _mkdirs(self, path: str, **kwargs: Any) -> None:
        os.makedirs(self._at(path), exist_ok=True)

    def _rm(self, path: str, **kwargs: Any) -> None:
        os.remove(self._at(path))

    def _symlink(self, src_path: str, dst_path: str, **kwargs: Any) -> bool:
        os.symlink(self._at(src_path), self._at(dst_path))
        return True

    def _set_cwd(self, path: str | None, **kwargs: Any) -> bool:
        if path is not None and not os.path.isdir(path):
            raise ArgumentError(f"there is no folder {path!r} to work in")
        self._cwd = None if path is None else os.path.abspath(path)
        return True


class HTTPURLHandler(PathHandler):
    """Files of the network, for reading: they are fetched once, into the cache."""

    def _get_supported_prefixes(self) -> list[str]:
        return ["http://", "https://", "ftp://"]

    def _get_local_path(self, path: str, force: bool = False, cache_dir: str | None = None, **kwargs: Any) -> str:
        parsed = urlparse(path)
        folder = os.path.join(get_cache_dir(cache_dir), parsed.netloc, os.path.dirname(parsed.path.lstrip("/")))
        with file_lock(os.path.join(folder, parsed.path.split("/")[-1])):
            return file_utils.get_data_from_cache(path, folder, force_download=force)

    def _open(self, path: str, mode: str = "r", buffering: int = -1, **kwargs: Any) -> IO[Any]:
        if mode not in ("r", "rb"):
            raise ArgumentError(f"{path} can be read, not opened with mode {mode!r}")
        return open(self._get_local_path(path), mode, buffering=buffering)


class OneDrivePathHandler(HTTPURLHandler):
    """Links of OneDrive that are shared with everyone."""

    def _get_supported_prefixes(self) -> list[str]:
        return ["https://1drv.ms/u/s!"]

    def create_one_drive_direct_download(self, one_drive_url: str) -> str:
        """The address of the file behind a link."""
        coded = base64.b64encode(one_drive_url.encode()).decode().replace("/", "_").replace("+", "-").rstrip("=")
        return f"https://api.onedrive.com/v1.0/shares/u!{coded}/root/content"

    def _get_local_path(self, path: str, force: bool = False, cache_dir: str | None = None, **kwargs: Any) -> str:
        return super()._get_local_path(self.create_one_drive_direct_download(path), force, cache_dir)


class PathManagerBase:
    """Functions on paths and addresses. ``register_handler`` adds a kind of address; all else is a file of this
    machine."""

    def __init__(self) -> None:
        self._handlers: dict[str, PathHandler] = {}
        self._native, self._is_strict = NativePathHandler(), True

    def _handler(self, path: str | os.PathLike[str]) -> PathHandler:
        name = os.fspath(path)
        fits = [prefix for prefix in self._handlers if name.startswith(prefix)]
        return self._handlers[max(fits, key=len)] if fits else self._native

    def _call(self, what: str, path: str | os.PathLike[str], *args: Any, **kwargs: Any) -> Any:
        handler = self._handler(path)
        method = getattr(handler, what)
        known = method.__code__.co_varnames[: method.__code__.co_argcount]
        handler._check_kwargs({name: value for name, value in kwargs.items() if name not in known}, self._is_strict)
        return method(os.fspath(path), *args, **kwargs)

    def open(self, path: str, mode: str = "r", buffering: int = -1, **kwargs: Any) -> IO[Any]:
        """An open file."""
        return self._call("_open", path, mode, buffering=buffering, **kwargs)

    def opent(self, path: str, mode: str = "r", buffering: int = 32, **kwargs: Any) -> IO[Any]:
        """An open file of a handler that keeps ``buffering`` parts ahead; those here are opened as by ``open``."""
        return self._call("_open", path, mode, **kwargs)

    def opena(
        self,
        path: str,
        mode: str = "r",
        buffering: int = -1,
        callback_after_file_close: Callable[[], Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """A file that a thread writes; ``async_join`` waits for it, and ``async_close`` comes at the end of a
        program."""
        if not set(mode) & set("wax"):
            raise ArgumentError(f"opena writes; {path} was to be opened with mode {mode!r}")
        return self._call("_opena", path, mode, buffering, callback_after_file_close, **kwargs)

    def async_join(self, *paths: str, **kwargs: Any) -> bool:
        """Waits until all files of ``opena``, or those of these paths, are written; whether nothing failed."""
        if paths:
            return all([self._handler(path)._async_join(os.fspath(path)) for path in paths])
        return all([handler._async_join() for handler in {self._native, *self._handlers.values()}])

    def async_close(self, **kwargs: Any) -> bool:
        """``async_join``, and the end of the threads."""
        return self.async_join()

    def copy(self, src_path: str, dst_path: str, overwrite: bool = False, **kwargs: Any) -> bool:
        """Copies a file."""
        return self._call("_copy", src_path, dst_path, overwrite, **kwargs)

    def mv(self, src_path: str, dst_path: str, **kwargs: Any) -> bool:
        """Moves a file or folder; nothing may be there."""
        return self._call("_mv", src_path, dst_path, **kwargs)

    def get_local_path(self, path: str, force: bool = False, **kwargs: Any) -> str:
        """The path of a file on this machine; what is elsewhere is fetched, with ``force`` again."""
        return self._call("_get_local_path", path, force, **kwargs)

    def copy_from_local(self, local_path: str, dst_path: str, overwrite: bool = False, **kwargs: Any) -> bool:
        """Copies a file of this machine to where ``dst_path`` leads."""
        handler = self._handler(dst_path)
        return handler._copy_from_local(os.fspath(local_path), os.fspath(dst_path), overwrite, **kwargs)

    def exists(self, path: str, **kwargs: Any) -> bool:
        """Whether something is there."""
        return self._call("_exists", path, **kwargs)

    def isfile(self, path: str, **kwargs: Any) -> bool:
        """Whether there is a file."""
        return self._call("_isfile", path, **kwargs)

    def isdir(self, path: str, **kwargs: Any) -> bool:
        """Whether there is a folder."""
        return self._call("_isdir", path, **kwargs)

    def ls(self, path: str, **kwargs: Any) -> list[str]:
        """The names in a folder."""
        return self._call("_ls", path, **kwargs)

    def mkdirs(self, path: str, **kwargs: Any) -> None:
        """Makes a folder and those above it."""
        self._call("_mkdirs", path, **kwargs)

    def rm(self, path: str, **kwargs: Any) -> None:
        """Removes a file."""
        self._call("_rm", path, **kwargs)

    def symlink(self, src_path: str, dst_path: str, **kwargs: Any) -> bool:
        """Makes a link at ``dst_path``."""
        return self._call("_symlink", src_path, dst_path, **kwargs)

    def set_cwd(self, path: str | None, **kwargs: Any) -> bool:
        """The folder that relative paths begin at; None is that of the process."""
        return self._native._set_cwd(path, **kwargs)

    def register_handler(self, handler: PathHandler, allow_override: bool = False) -> None:
        """Adds a kind of address."""
        for prefix in handler._get_supported_prefixes():
            if prefix in self._handlers and not allow_override and type(self._handlers[prefix]) is not type(handler):
                raise ArgumentError(
                    f"{prefix!r} belongs to {type(self._handlers[prefix]).__name__} already; give allow_override=True"
                )
            self._handlers[prefix] = handler

    def set_strict_kwargs_checking(self, enable: bool) -> None:
        """Whether arguments that a handler does not know are refused; they are, until this says otherwise."""
        self._is_strict = enable


class PathManagerFactory:
    """Path managers by name, each made when it is first asked for."""

    _made: dict[str, PathManagerBase] = {}

    @staticmethod
    def get(key: str = GLOBAL_PATH_MANAGER) -> PathManagerBase:
        """The manager of a name."""
        return PathManagerFactory._made.setdefault(key, PathManagerBase())

    @staticmethod
    def remove(key: str) -> None:
        """Forgets the manager of a name."""
        if PathManagerFactory._made.pop(key, None) is None:
            raise ArgumentError(f"there is no path manager {key!r}")
