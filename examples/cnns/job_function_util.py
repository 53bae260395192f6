"""Settings of the process and of its jobs."""

from __future__ import annotations

from typing import Any

from config import Arguments
from models import MODELS, Options

import oneflow as flow


def configure_machines(args: Arguments) -> None:
    """Tells the devices and, of several machines, who they are. Everything else in a program is the same for any
    number."""
    flow.config.gpu_device_num(args.gpu_num_per_node)
    if args.num_nodes > 1:
        flow.env.ctrl_port(args.ctrl_port)
        flow.env.machine([{"addr": address} for address in args.node_ips[: args.num_nodes]])
    flow.env.log_dir(args.log_dir)
    if args.nccl_fusion_threshold_mb:
        flow.config.collective_boxing.nccl_fusion_threshold_mb(args.nccl_fusion_threshold_mb)
    if args.nccl_fusion_max_ops:
        flow.config.collective_boxing.nccl_fusion_max_ops(args.nccl_fusion_max_ops)


def job_config(args: Arguments) -> Any:
    config = flow.function_config()
    config.default_data_type(getattr(flow, args.dtype))
    config.enable_auto_mixed_precision(args.use_fp16)
    config.use_xla_jit(args.use_xla)
    return config


def logits_of(images: Any, args: Arguments) -> Any:
    """The network that the flags name."""
    options = Options(args.num_classes, args.data_format, args.fuse_bn_relu, args.fuse_bn_add_relu)
    return MODELS[args.model].logits(images, options)
