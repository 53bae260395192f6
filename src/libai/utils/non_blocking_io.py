"""Files that are written by a thread: ``write`` returns at once, and the order of what is written to a path stays."""

from __future__ import annotations

import concurrent.futures
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Queue
from threading import Thread
from typing import IO, Any

from oneflow.engine.core.errors import ArgumentError

_BUFFER = 1 << 20


@dataclass
class PathData:
    """What is left to do for a path, and the thread that does it."""

    queue: Queue[Callable[[], None] | None] = field(default_factory=Queue)
    thread: Thread | None = None


class NonBlockingIOManager:
    """Hands out files that are written by threads, one for each path. ``buffered`` ones collect what is small first. An
    ``executor`` runs what comes after closing."""

    def __init__(self, buffered: bool = False, executor: concurrent.futures.Executor | None = None) -> None:
        self._is_buffered, self._executor = buffered, executor
        self._paths: dict[str, PathData] = {}
        self._failed: list[BaseException] = []

    def get_non_blocking_io(
        self,
        path: str,
        io_obj: IO[Any],
        callback_after_file_close: Callable[[], Any] | None = None,
        buffering: int = -1,
    ) -> Any:
        """A file that writes into ``io_obj``, after all that was written to ``path`` before."""
        if not io_obj.writable():
            raise ArgumentError(f"{path}: only files that are written are written by a thread")
        data = self._paths.setdefault(path, PathData())
        if data.thread is None:
            data.thread = Thread(target=self._work, args=(data.queue,), name=f"writes {path}", daemon=True)
            data.thread.start()
        after = (
            callback_after_file_close
            if self._executor is None or callback_after_file_close is None
            else self._later(callback_after_file_close)
        )
        if self._is_buffered:
            return NonBlockingBufferedIO(data.queue.put, io_obj, after, buffering)
        return NonBlockingIO(data.queue.put, io_obj, after)

    def join(self, path: str | None = None) -> bool:
        """Waits until everything for a path, or for all, is written; whether nothing failed since the last time."""
        for name in [path] if path is not None else list(self._paths):
            data = self._paths.pop(name, None)
            if data is not None and data.thread is not None:
                data.queue.put(None)
                data.thread.join()
        failed, self._failed = self._failed, []
        return not failed

    def _later(self, callback: Callable[[], Any]) -> Callable[[], Any]:
        assert self._executor is not None
        executor = self._executor
        return lambda: executor.submit(callback)

    def _work(self, queue: Queue[Callable[[], None] | None]) -> None:
        while (step := queue.get()) is not None:
            try:
                step()
            except Exception as error:  # told by join
                self._failed.append(error)


class NonBlockingIO(io.IOBase):
    """A file each of whose calls is done by a thread, in its order. It can be written and moved in, not read."""

    def __init__(
        self,
        notify_manager: Callable[[Callable[[], Any]], None],
        io_obj: IO[Any],
        callback_after_file_close: Callable[[], Any] | None = None,
    ) -> None:
        super().__init__()
        self._notify, self._io, self._after = notify_manager, io_obj, callback_after_file_close

    def readable(self) -> bool:
        """False."""
        return False

    def writable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """Whether the file below is."""
        return self._io.seekable()

    def write(self, b: Any) -> int:
        """Writes a copy of what is given, later; returns its length."""
        kept = b if isinstance(b, (str, bytes)) else bytes(b)
        self._notify(lambda: self._io.write(kept))
        return len(kept)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Moves, later."""
        self._notify(lambda: self._io.seek(offset, whence))
        return offset

    def tell(self) -> int:
        """Refused: what was written is not there yet."""
        raise io.UnsupportedOperation("a file that is written by a thread cannot tell where it is; open it with open()")

    def truncate(self, size: int | None = None) -> int:
        """Cuts the file, later."""
        self._notify(lambda: self._io.truncate(size))
        return size or 0

    def close(self) -> None:
        """Closes the file once all is written."""
        if self.closed:
            return
        super().close()
        self._notify(self._close)

    def _close(self) -> None:
        self._io.close()
        if self._after is not None:
            self._after()


class NonBlockingBufferedIO(NonBlockingIO):
    """As ``NonBlockingIO``; what is small is collected first, up to ``buffering`` bytes (a megabyte)."""

    def __init__(
        self,
        notify_manager: Callable[[Callable[[], Any]], None],
        io_obj: IO[Any],
        callback_after_file_close: Callable[[], Any] | None = None,
        buffering: int = -1,
    ) -> None:
        super().__init__(notify_manager, io_obj, callback_after_file_close)
        self._most = buffering if buffering > 0 else _BUFFER
        self._collected: list[Any] = []
        self._size = 0

    def seekable(self) -> bool:
        """False."""
        return False

    def write(self, b: Any) -> int:
        """Collects a copy of what is given; returns its length."""
        kept = b if isinstance(b, (str, bytes)) else bytes(b)
        self._collected.append(kept)
        self._size += len(kept)
        if self._size >= self._most:
            self.flush()
        return len(kept)

    def flush(self) -> None:
        """Hands what was collected to the thread."""
        if self._collected:
            joined = self._collected[0][:0].join(self._collected)
            self._collected, self._size = [], 0
            self._notify(lambda: self._io.write(joined))

    def close(self) -> None:
        """Closes the file once all is written."""
        if not self.closed:
            self.flush()
        super().close()
