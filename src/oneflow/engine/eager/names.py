"""Why functions are written here instead of taken from torch, and what to use for names that are absent.

Names of ``oneflow`` itself; other namespaces have their tables beside them. ``docs/tensors.md`` tells both.
"""

from __future__ import annotations

_GLOBAL = "takes placement= and sbp=, which ask for a global tensor"
_METHOD = "a function; torch has the method alone"
_FUNCTIONAL = "at the root; torch has it in torch.nn.functional"

# Every function of oneflow that is not torch's own under the same name, with what differs.
WRITTEN = {
    **dict.fromkeys(
        ("arange", "empty", "empty_like", "eye", "full", "full_like", "hann_window", "linspace", "logspace"), _GLOBAL
    ),
    **dict.fromkeys(
        ("normal", "ones", "ones_like", "rand", "randint", "randint_like", "randn", "randn_like", "randperm"), _GLOBAL
    ),
    **dict.fromkeys(("tensor", "zeros", "zeros_like"), _GLOBAL),
    **dict.fromkeys(
        ("new_empty", "new_full", "new_ones", "new_zeros"),
        "a function of the tensor; size may be left out for ones and zeros",
    ),
    **dict.fromkeys(
        ("contiguous", "div_", "erfinv_", "expand", "index_add_", "masked_fill_", "repeat", "view"), _METHOD
    ),
    **dict.fromkeys(
        (
            "adaptive_avg_pool2d",
            "adaptive_avg_pool3d",
            "ctc_loss",
            "gelu",
            "mish",
            "pad",
            "silu",
            "softplus",
            "softshrink",
            "softsign",
        ),
        _FUNCTIONAL,
    ),
    **dict.fromkeys(("get_autocast_cpu_dtype", "get_autocast_gpu_dtype"), "does not warn; torch's does"),
    **dict.fromkeys(("set_autocast_cpu_dtype", "set_autocast_gpu_dtype"), "does not warn; torch's does"),
    **dict.fromkeys(("softmax", "log_softmax"), "dim may be left out and is the last"),
    "autocast_decorator": "at the root; torch has it in torch.amp.autocast_mode",
    "batch_gather": "slices by indices of their own for each leading position",
    "broadcast_like": "the shape comes from a tensor; new axes may be named",
    "cast": "x.to(dtype) as a function",
    "convert_oneflow_dtype_to_numpy_dtype": "numpy's type of a dtype",
    "cross": "without dim the first dim of size 3, without a warning",
    "deform_conv2d": "torch has none",
    "dtypes": "the list of dtypes",
    "gather_nd": "positions along the last dim of the index",
    "ignore": "leaves a function as it is, as nothing is scripted",
    "in_top_k": "whether targets are among the k greatest predictions",
    "is_deprecated": "whether oneflow_deprecate has marked a function",
    "meshgrid": 'indexing is "ij" unless given, without a warning',
    "nms": "torch has none",
    "norm": "the fifth argument is dtype; there is no out",
    "oneflow_deprecate": "a decorator that makes a function warn",
    "oneflow_python_base_dir": "the folder that the package lies in",
    "quick_gelu": "x * sigmoid(1.702 x)",
    "roc_auc_score": "torch has none",
    "roi_align": "torch has none",
    "scatter_nd": "adds updates to zeros at positions along the last dim of the index",
    "script": "gives the object as it is; nn.Graph is what compiles",
    "set_default_tensor_type": "does not warn; also takes names that begin with oneflow.",
    "set_grad_enabled": "the argument is called is_train and may be left out",
    "set_rng_state": "the argument is called state",
    "slice": "a list of (start, stop, step); torch has none",
    "slice_update": "writes into the slices of its first argument, in place",
    **dict.fromkeys(
        ("global_to_global", "local_to_global", "placement", "to_global", "to_local"),
        "global tensors; torch has none of this kind",
    ),
    "stft": "the last dim holds real and imaginary part, unless return_complex; no window is one of ones",
    "tensor_scatter_nd_update": "a copy with updates at positions along the last dim of the index",
    "unique": "places and counts are int32 unless dtype says otherwise",
    "where": "the condition may also be of integers: what is not 0 is true",
}

_BUFFERS = "buffers of rows of different lengths are not there; use a list of tensors, or torch.nested"

ABSENT = {
    "decode_onerec": "OneRec files are not read; write OFRecord files and use flow.data",
    "gen_tensor_buffer": _BUFFERS,
    "one_embedding": "tables that are larger than memory are not there; use nn.Embedding, whose weight a job can split over devices",
    "oneflow_internal_path": "there is no compiled core; the package lies in oneflow_python_base_dir",
    "record": f"a dtype; {_BUFFERS}",
    "stateful_op": "ops are torch's; call the function of flow that does what the op does",
    "tensor_buffer": f"a dtype; {_BUFFERS}",
    "tensor_buffer_to_list_of_tensors": _BUFFERS,
    "tensor_buffer_to_tensor": _BUFFERS,
    "tensor_to_tensor_buffer": _BUFFERS,
}
