"""What the job API had and this package has not, by name, with why it is so and what to do instead."""

from __future__ import annotations

import sys
from types import ModuleType

from oneflow.compat.absent import absent
from oneflow.compat.absent_modules import refuse

_QUANTIZATION = "there is no quantization-aware training"
_DETECTION = (
    "ops of object detection work on values without a fixed shape; prepare boxes and masks in numpy and feed them"
)
_BUFFERS = "buffers hold values without a fixed shape, which blobs do not have; pad them to one shape"
_ONEREC = "OneRec files are not read; write OFRecord files and use flow.data.ofrecord_reader"
_SERVING = "models are not served from here; export them with flow.onnx.export, ONNX Runtime serves those"
_CPP = "ops in C++ were made for the original's runtime; write them with the ops there are, or as torch functions of tensors"
_BY_HAND = "the compiler lays blobs over devices by itself; use flow.parallel_cast to ask for a layout"
_MODEL = "the classes of a training loop were never finished; write the loop, it is ten lines (docs/training.md)"

REFUSED_NAMESPACES: dict[str, str] = {
    "advanced": _BY_HAND,
    "dali": "NVIDIA's DALI is not used; flow.data.ofrecord_reader and its decoders read pictures ahead of the step, in threads",
    "detection": _DETECTION,
    "model": _MODEL,
    "quantization": _QUANTIZATION,
    "saved_model": _SERVING,
    "serving": _SERVING,
    "sysconfig": "nothing is compiled against this package, it has no headers and libraries",
    "tensorrt": "TensorRT is not used; export the model with flow.onnx.export and build an engine from it",
}
"""Modules of which nothing is there: they can be imported, and every name in them is refused."""

REFUSED: dict[str, str] = {
    "Model": _MODEL,
    "builtin_op": _CPP,
    "consistent_user_op_module_builder": _CPP,
    "eager_nccl_all_reduce": "all-reduces are written by the compiler; between processes use flow.comm.all_reduce",
    "find_or_create_module": _CPP,
    "image_batch_align": _DETECTION,
    "image_target_resize": _DETECTION,
    "object_bbox_flip": _DETECTION,
    "object_bbox_scale": _DETECTION,
    "object_segmentation_polygon_flip": _DETECTION,
    "object_segmentation_polygon_scale": _DETECTION,
    "object_segmentation_polygon_to_mask": _DETECTION,
    "sync_dynamic_resize": _BUFFERS,
    "tensor_buffer_to_tensor_list": _BUFFERS,
    "tensor_list_split": _BUFFERS,
    "tensor_list_to_tensor_buffer": _BUFFERS,
    "user_op_module_builder": _CPP,
}
"""Names of ``flow`` itself."""

REFUSED_DATA: dict[str, str] = {
    "OneRecDecoder": _ONEREC,
    "coco_reader": "COCO files are not read; write OFRecord files and use flow.data.ofrecord_reader",
    "onerec_decoder": _ONEREC,
    "onerec_reader": _ONEREC,
}
REFUSED_IMAGE: dict[str, str] = {"batch_align": _DETECTION, "target_resize": _DETECTION}
REFUSED_EXPERIMENTAL: dict[str, str] = {
    "custom_op_module": _CPP,
    "dynamic_binary_concat": _BUFFERS,
    "dynamic_binary_split": _BUFFERS,
    "eager_assign_121": "use flow.assign inside a job, or flow.load_variables outside",
    "ssp_variable_proxy": "all devices see one value of a variable; there are no stale ones",
}


def refused_module(name: str) -> ModuleType:
    """The module of a refused namespace, under its import path: whatever is asked of it says why it is not there."""
    path = f"oneflow.{name}"
    if path not in sys.modules:
        module = ModuleType(path, f"Nothing of ``flow.{name}`` is there: {REFUSED_NAMESPACES[name]}.")
        reason = REFUSED_NAMESPACES[name]

        class Every(dict[str, str]):
            def __contains__(self, key: object) -> bool:
                return not str(key).startswith("__")

            def __missing__(self, key: str) -> str:
                return reason

        reasons = Every()
        vars(module).update(
            __getattr__=absent(path, reasons, dict), __path__=[]
        )  # a package: from flow.serving import x asks for a module x
        refuse(path, reasons)
        sys.modules[path] = module
    return sys.modules[path]
