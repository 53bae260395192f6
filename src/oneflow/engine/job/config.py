"""``flow.config`` and ``flow.env``: settings of the process, and inside a job body settings of that job."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from oneflow.engine.core.errors import ArgumentError, JobError, UnsupportedError
from oneflow.engine.core.number import flag, whole
from oneflow.engine.ir.trace import current
from oneflow.engine.job.function import default_session
from oneflow.engine.job.settings import MEMBERS, Kind, Members, Settings, check_knob, knobs, set_member

# Knobs of the original's processes and network. They never change a result here.
_PROCESS_TUNING: dict[str, Kind] = {
    **knobs(
        bool,
        """
        grpc_use_no_signal logtostderr enable_debug_mode use_rdma enable_numa_aware_cuda_malloc_host thread_enable_local_message_queue
        nccl_use_compute_stream disable_group_boxing_by_dst_parallel enable_mem_chain_merge
        save_downloaded_file_to_local_fs collect_act_event enable_tensor_float_32_compute enable_model_io_v2
        collective_boxing.enable_fusion collective_boxing.nccl_fusion_all_reduce collective_boxing.nccl_fusion_all_reduce_use_buffer
        collective_boxing.nccl_fusion_reduce_scatter collective_boxing.nccl_fusion_all_gather collective_boxing.nccl_fusion_reduce
        collective_boxing.nccl_fusion_broadcast collective_boxing.nccl_enable_all_to_all collective_boxing.nccl_enable_mixed_fusion
        """,
    ),
    **knobs(
        int,
        """
        data_port logbuflevel v compute_thread_pool_size comm_net_worker_num max_mdsave_worker_num rdma_mem_block_mbyte
        rdma_recv_msg_buf_mbyte reserved_host_mem_mbyte reserved_device_mem_mbyte persistence_buf_byte
        collective_boxing.num_callback_threads collective_boxing.nccl_num_streams collective_boxing.nccl_fusion_threshold_mb
        collective_boxing.nccl_fusion_max_ops
        """,
    ),
    **knobs(str, "log_dir"),
}


class _Process:
    """What the whole process was told, whichever session is open."""

    def __init__(self) -> None:
        self.is_initialised = False
        self.legacy_model_io = False


_PROCESS = _Process()


def _set(name: str, value: Any) -> Any:
    """Sets one member of ``flow.config`` or ``flow.env``; True when it is in force."""
    if name in MEMBERS:
        return _set_job_member(name, value)
    if name in _OWN:
        return _OWN[name](name, value)
    check_knob(name, value, _PROCESS_TUNING[name])
    return True


def _set_job_member(name: str, value: Any) -> Any:
    """Inside a body: that job's setting, before its first op. Outside: the default of jobs that are not traced yet."""
    trace = current()
    if trace is None:
        settings = Settings()
        result = set_member(settings, name, value)  # checks the value
        default_session().defaults[name] = value
        if name == "random_seed":
            default_session().store.seed = settings.random_seed
        return result
    if trace.has_ops:
        raise JobError(
            f"flow.config.{name} comes after the first op of job {trace.graph.job!r}; settings stand at the top of the "
            f"body"
        )
    return set_member(trace.settings, name, value)


def _set_device_num(name: str, value: Any) -> bool:
    number = whole(f"flow.config.{name}", value, 0)
    session = default_session()
    attribute = "gpu_num" if name == "gpu_device_num" else "cpu_num"
    if getattr(session, attribute) != number and number > 1:
        _require_before_jobs(name, value)
    setattr(session, attribute, number)
    if number > 1:
        from oneflow.engine.runtime.launch.launch import LAUNCHER

        LAUNCHER.prepare()  # loads torch for the workers while the program goes on
    return True


def _set_machine(name: str, value: Any) -> bool:
    machines = list(value) if isinstance(value, (list, tuple)) else [value]
    addresses: list[Any] = [m.get("addr") if isinstance(m, dict) else m for m in machines]
    if not addresses or not all(isinstance(a, str) and a.strip() for a in addresses):
        raise ArgumentError(f"machines are addresses or dicts such as {{'addr': '192.168.1.15'}}, got {value!r}")
    found = tuple(address.strip() for address in addresses)
    if len(set(found)) != len(found):
        raise ArgumentError(f"a machine is named twice in {list(found)}")
    if len(found) > 1:
        _require_before_jobs(name, value)
    default_session().machines.addresses = found if len(found) > 1 else ()
    return True


def _set_machine_num(name: str, value: Any) -> bool:
    """Uses the first machines of those that were named."""
    count = whole(f"flow.config.{name}", value, above=0)
    machines = default_session().machines
    if count > machines.count:
        raise ArgumentError(
            f"flow.config.{name}({count}): {machines.count} are named; name the others with flow.env.machine first"
        )
    machines.addresses = machines.addresses[:count] if count > 1 else ()
    return True


def _set_ctrl_port(name: str, value: Any) -> bool:
    default_session().machines.ctrl_port = whole(f"flow.env.{name}", value, 0, 65535)
    return True


def _require_before_jobs(name: str, value: Any) -> None:
    if default_session().is_running:
        raise JobError(
            f"flow.config.{name}({value}) comes too late: jobs were traced already; call it before the first job"
        )


def _load_library(name: str, value: Any) -> bool:
    raise UnsupportedError(f"load_library({value!r}): ops of the original's C++ plug-ins cannot be loaded")


def _load_library_now(name: str, value: Any) -> bool:
    """Programs call this for libraries that they may never use an op of; an op of one is refused where it is called."""
    print(f"oneflow: flow.config.{name}({value!r}) loads nothing: there are no ops in C++", file=sys.stderr)
    return True


def _init_bootstrap_confs(name: str, value: Any) -> bool:
    raise UnsupportedError(
        f"flow.env.{name}: name the machines with flow.env.machine, or start the program with a launcher"
    )


def _set_legacy_model_io(name: str, value: Any) -> bool:
    """Checkpoints are the same either way; programs ask which one they chose."""
    _PROCESS.legacy_model_io = flag(f"flow.config.{name}", value)
    return True


def _init(name: str, value: Any) -> bool:
    """True for the call that starts the environment: the first one, before any job has run."""
    starts = not (_PROCESS.is_initialised or default_session().is_running)
    _PROCESS.is_initialised = True
    return starts


def _current_resource(name: str, value: Any) -> dict[str, int | None]:
    return {"gpu_device_num": default_session().gpu_num, "cpu_device_num": default_session().cpu_num}


# Members of the process with an effect.
_OWN: dict[str, Callable[[str, Any], Any]] = {
    "gpu_device_num": _set_device_num,
    "cpu_device_num": _set_device_num,
    "machine": _set_machine,
    "machine_num": _set_machine_num,
    "ctrl_port": _set_ctrl_port,
    "load_library": _load_library,
    "load_library_now": _load_library_now,
    "init_bootstrap_confs": _init_bootstrap_confs,
    "enable_legacy_model_io": _set_legacy_model_io,
    "legacy_model_io_enabled": lambda name, value: _PROCESS.legacy_model_io,
    "init": _init,
    "current_resource": _current_resource,
}
_ENV = frozenset(
    [
        "machine",
        "ctrl_port",
        "data_port",
        "grpc_use_no_signal",
        "log_dir",
        "logtostderr",
        "logbuflevel",
        "init",
        "init_bootstrap_confs",
        "current_resource",
    ]
)
_CONFIG = frozenset([*MEMBERS, *_PROCESS_TUNING, *_OWN]) - {"init", "init_bootstrap_confs", "current_resource"}


def current_resource() -> dict[str, int | None]:
    """The numbers of devices that were set."""
    return _current_resource("current_resource", True)


config = Members("flow.config", "", _CONFIG, _set)
env = Members("flow.env", "", _ENV, _set)
