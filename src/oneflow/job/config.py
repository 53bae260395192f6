"""``flow.config`` and ``flow.env``: settings of the process, and inside a job body settings of that job."""

from __future__ import annotations

from typing import Any

from oneflow.core.errors import ArgumentError, JobError, UnsupportedError, user_line
from oneflow.ir.trace import current
from oneflow.job.function import default_session
from oneflow.job.settings import MEMBERS, Members, Settings, set_member

# Knobs of the original's processes and network. They never change a result here.
_PROCESS_TUNING = frozenset(
    """
    machine_num data_port grpc_use_no_signal logtostderr logbuflevel v enable_debug_mode compute_thread_pool_size comm_net_worker_num
    max_mdsave_worker_num rdma_mem_block_mbyte rdma_recv_msg_buf_mbyte reserved_host_mem_mbyte reserved_device_mem_mbyte use_rdma
    enable_numa_aware_cuda_malloc_host thread_enable_local_message_queue persistence_buf_byte save_downloaded_file_to_local_fs
    collect_act_event enable_tensor_float_32_compute enable_model_io_v2 enable_legacy_model_io ctrl_port log_dir
    collective_boxing.enable_fusion collective_boxing.num_callback_threads collective_boxing.nccl_num_streams
    collective_boxing.nccl_fusion_threshold_mb collective_boxing.nccl_fusion_max_ops collective_boxing.nccl_fusion_all_reduce
    collective_boxing.nccl_fusion_all_reduce_use_buffer collective_boxing.nccl_fusion_reduce_scatter
    collective_boxing.nccl_fusion_all_gather collective_boxing.nccl_fusion_reduce collective_boxing.nccl_fusion_broadcast
    collective_boxing.nccl_enable_all_to_all collective_boxing.nccl_enable_mixed_fusion
    """.split()
)
_NUMBERS = frozenset(["gpu_device_num", "cpu_device_num"])
_CONFIG = MEMBERS | _PROCESS_TUNING | _NUMBERS | {"machine", "load_library", "legacy_model_io_enabled"}
_ENV = frozenset(["machine", "ctrl_port", "data_port", "grpc_use_no_signal", "log_dir", "logtostderr", "logbuflevel", "init", "current_resource"])


def _set(name: str, value: Any) -> Any:
    """Sets one member of ``flow.config`` or ``flow.env``; True when it is in force."""
    if name in MEMBERS:
        return _set_job_member(name, value)
    if name in _NUMBERS:
        return _set_device_num(name, value)
    if name == "machine":
        return _set_machine(value)
    if name == "load_library":
        raise UnsupportedError(f"{user_line()}: load_library({value!r}): ops of the original's C++ plug-ins cannot be loaded")
    if name == "legacy_model_io_enabled":
        return False
    if name == "init":
        return True
    if name == "current_resource":
        return {"gpu_device_num": default_session().gpu_num, "cpu_device_num": default_session().cpu_num}
    return True


def _set_job_member(name: str, value: Any) -> Any:
    """Inside a body: that job's setting, before its first op. Outside: the default of jobs that are not traced yet."""
    trace = current()
    if trace is None:
        result = set_member(Settings(), name, value)  # checks the value
        default_session().defaults[name] = value
        if name == "random_seed":
            default_session().store.seed = value
        return result
    if trace.has_ops:
        raise JobError(f"{user_line()}: flow.config.{name} comes after the first op of job {trace.graph.job!r}; settings stand at the top of the body")
    return set_member(trace.settings, name, value)


def _set_device_num(name: str, value: Any) -> bool:
    if type(value) is not int or value < 0:
        raise ArgumentError(f"{user_line()}: flow.config.{name} takes a whole number, 0 or more; got {value!r}")
    session = default_session()
    attribute = "gpu_num" if name == "gpu_device_num" else "cpu_num"
    if session.is_running and getattr(session, attribute) != value and value > 1:
        raise JobError(f"{user_line()}: flow.config.{name}({value}) comes too late: jobs were traced already; call it before the first job")
    if value > 1:
        raise UnsupportedError(f"{user_line()}: flow.config.{name}({value}): this version runs on one device; use {name}(1)")
    setattr(session, attribute, value)
    return True


def _set_machine(value: Any) -> bool:
    machines = list(value) if isinstance(value, (list, tuple)) else [value]
    addresses = [m.get("addr") if isinstance(m, dict) else m for m in machines]
    if not addresses or not all(isinstance(a, str) and a for a in addresses):
        raise ArgumentError(f"{user_line()}: machines are addresses or dicts such as {{'addr': '192.168.1.15'}}, got {value!r}")
    if len(set(addresses)) != len(addresses):
        raise ArgumentError(f"{user_line()}: a machine is named twice in {addresses}")
    if len(addresses) > 1:
        raise UnsupportedError(f"{user_line()}: {len(addresses)} machines were given; this version runs on one machine")
    return True


config = Members("flow.config", "", _CONFIG, _set)
env = Members("flow.env", "", _ENV, _set)


