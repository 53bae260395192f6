"""The state of a Python process that a library could change, as text by name."""

from __future__ import annotations

import atexit
import ctypes
import gc
import logging
import multiprocessing
import os
import random
import signal
import sys
import threading
import warnings
from typing import Any

import numpy as np
import torch


def state() -> dict[str, str]:
    """Returns one entry per fact; facts are named as docs/process.md names them where they are listed there."""
    facts: dict[str, Any] = {
        **{f"os.environ[{name!r}]": value for name, value in os.environ.items()},
        **{f"signal {number.name}": repr(signal.getsignal(number)) for number in signal.Signals},
        **{f"thread {thread.name}": True for thread in threading.enumerate()},
        **{f"child {child.name}": True for child in multiprocessing.active_children()},
        **{type(finder).__name__: True for finder in sys.meta_path if not isinstance(finder, type)},
        "built-in finders": [finder for finder in sys.meta_path if isinstance(finder, type)],
        "sys.path_hooks": sys.path_hooks,
        "sys.path": sys.path,
        "sys hooks": [sys.excepthook, sys.displayhook, sys.unraisablehook, threading.excepthook, sys.gettrace()],
        "builtins": id(__builtins__),
        "gc": (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), gc.get_debug(), gc.callbacks),
        "atexit": atexit._ncallbacks(),
        "warnings": (warnings.filters, warnings.showwarning),
        "working directory": os.getcwd(),
        "recursion limit": sys.getrecursionlimit(),
        "random states": (hash(random.getstate()), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()),
        **_logging(),
        **_torch(),
    }
    return {name: str(value) for name, value in facts.items()}


def _logging() -> dict[str, Any]:
    loggers = {name: one for name, one in logging.root.manager.loggerDict.items() if isinstance(one, logging.Logger)}
    shown = {name: (one.level, one.handlers, one.disabled, one.propagate) for name, one in loggers.items()}
    return {
        **{f"logger {name}": value for name, value in shown.items() if value != (0, [], False, True)},
        "root logger": (logging.root.level, logging.root.handlers, logging.root.manager.disable),
    }


def _torch() -> dict[str, Any]:
    backends = torch.backends
    return {
        "torch allocator": _allocator(),
        "torch default dtype": torch.get_default_dtype(),
        "torch default device": torch.get_default_device(),
        "torch threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "torch modes": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "torch deterministic": (torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision()),
        "torch backends": (backends.cudnn.flags, backends.cudnn.deterministic, backends.cudnn.benchmark),
        "torch mkldnn": (backends.mkldnn.enabled, backends.mkldnn.deterministic),
        "torch tracing": (torch.overrides._get_current_function_mode(), torch._C._len_torch_dispatch_stack()),
        "torch.distributed": torch.distributed.is_available() and torch.distributed.is_initialized(),
    }


def _allocator() -> int:
    get = ctypes.CDLL("libc10.so")["_ZN3c1015GetCPUAllocatorEv"]
    get.restype = ctypes.c_void_p
    return int(get())


def modules() -> dict[str, int]:
    """Returns the identity of every module that is loaded."""
    return {name: id(module) for name, module in sys.modules.items()}


def torch_attributes() -> dict[str, Any]:
    """Returns the attributes of the classes of torch that are loaded, but for caches that torch fills."""
    classes = {
        value
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] == "torch"
        for value in list(vars(module).values())
        if isinstance(value, type) and value.__module__.partition(".")[0] == "torch"
    }
    return {
        f"{cls.__module__}.{cls.__qualname__}.{name}": value
        for cls in classes
        for name, value in vars(cls).items()
        if callable(value) or isinstance(value, (property, classmethod, staticmethod))
    }
