"""Where the memory of steps comes from.

Every step makes and frees the same tensors. Left alone, glibc gives large ones back to the kernel, which clears and
maps their pages anew in the next step: for a ResNet a tenth to a third of the step. The first job gives large tensors a
heap of their own (``ops/native/_heap.c``), which keeps what is freed and has next to no holes, and tells glibc to keep
the rest, or all where there is no such heap. What ``MALLOC_...`` variables say stands instead.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from functools import cache
from pathlib import Path

from oneflow.engine.ops import native

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_LARGE = (
    16 << 20
    # larger tensors, of which there are few, are still mapped one by one where no freed memory fits: less of it lies
    # idle
)
_TO_SPARE = 1 << 20
_NEVER = -1
_USUAL_PAD = 128 << 10
_HUGE_PAGE = 2 << 20
_MADV_HUGEPAGE = 14
_ON_REQUEST = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_KEEPING = {_MMAP_THRESHOLD: _LARGE, _TRIM_THRESHOLD: _NEVER}
_SPARING: set[int] = set()  # the allocator is the process's, and so is who asks what of it


@cache
def keep_freed_memory() -> None:
    """Has freed memory kept for the next step, unless the environment tells the allocator something else, or somebody
    would rather spare it."""
    has_own_heap()
    if not _SPARING:
        _tell(_KEEPING)


@cache
def has_own_heap() -> bool:
    """Gives large tensors of this process a heap of their own from now on; whether they have one."""
    return not _is_told_otherwise() and native.heap is not None and native.heap.install()


def spare_memory(owner: object) -> None:
    """Has each tensor of a megabyte or more mapped by itself and given back at once, for steps that would rather
    compute again than keep: freed memory between what is kept would lie idle, since glibc finds no aligned block in a
    hole of its very size. Holds while ``owner`` is there. Tensors in a heap of their own leave no such holes, and stay
    there."""
    has_own_heap()
    if not _SPARING:
        _tell({_MMAP_THRESHOLD: _TO_SPARE})
    key = id(owner)
    _SPARING.add(key)
    weakref.finalize(owner, _spare_no_more, key).atexit = False


def _spare_no_more(key: int) -> None:
    _SPARING.discard(key)
    if not _SPARING:
        _tell(_KEEPING)


def grow_in_huge_pages(size: int) -> None:
    """Has the heap grow by ``size`` bytes whose pages are huge when they are first written: a tensor of megabytes lies
    in a few pages then, which cost less to get and to find. Does nothing where the kernel gives no such pages on
    request, or as many freed bytes lie at the end of the heap."""
    if _is_told_otherwise() or not _gives_huge_pages():
        return
    if native.heap is not None and has_own_heap():
        native.heap.grow_in_huge_pages(size)
        return
    library = ctypes.CDLL(None)
    library.malloc.restype = library.sbrk.restype = ctypes.c_void_p
    before = library.sbrk(0)
    library.mallopt(_TOP_PAD, size)
    block = ctypes.c_void_p(library.malloc(_LARGE - _HUGE_PAGE))  # more than a hole in the heap has
    library.mallopt(_TOP_PAD, _USUAL_PAD)
    first = -(-before // _HUGE_PAGE) * _HUGE_PAGE
    library.madvise(ctypes.c_void_p(first), ctypes.c_size_t(max(0, library.sbrk(0) - first)), _MADV_HUGEPAGE)
    library.free(block)


def _gives_huge_pages() -> bool:
    return (
        _of_the_library("mallopt") is not None
        and _ON_REQUEST.exists()
        and "[madvise]" in _ON_REQUEST.read_text(encoding="ascii")
    )


def _is_told_otherwise() -> bool:
    return any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ)


def _tell(options: dict[int, int]) -> None:
    if _is_told_otherwise():
        return
    mallopt = _of_the_library("mallopt")
    if mallopt is not None:
        for option, value in options.items():
            mallopt(option, value)


def give_back() -> None:
    """Gives freed memory to the kernel."""
    if native.heap is not None:
        native.heap.give_back()
    trim = _of_the_library("malloc_trim")
    if trim is not None:
        trim(0)


def _of_the_library(name: str) -> ctypes._NamedFuncPointer | None:
    return getattr(ctypes.CDLL(None), name, None)
