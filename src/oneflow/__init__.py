"""oneflow on PyTorch: write a training program for one device, run it on many.

``import oneflow as flow`` gives job functions, ops, layers, optimizers, data and checkpoints.
"""

from oneflow.core import torch_first as _torch_first  # noqa: F401  isort: skip

# Taken from torch as they are.
from torch import (
    BoolTensor, ByteTensor, CharTensor, DoubleTensor, FloatTensor, Generator, HalfTensor, IntTensor, LongTensor, Size, Tensor, abs,
    acos, acosh, adaptive_avg_pool1d, add, addcdiv, addcmul, addmm, all, allclose, amax, amin, any, arccos, arccosh, arcsin,
    arcsinh, arctan, arctanh, argmax, argmin, as_strided, as_tensor, asin, asinh, atan, atan2, atanh, atleast_1d,
    atleast_2d, atleast_3d, autocast, baddbmm, bernoulli, bfloat16, bincount, bmm, bool, broadcast_shapes, broadcast_tensors,
    broadcast_to, cat, ceil, chunk, clamp_, clamp_max, clamp_max_, clamp_min, clamp_min_, clear_autocast_cache, clip_, column_stack,
    cos, cosh, cumprod, cumsum, default_generator, device, diagonal, div, dot, double, dstack, dtype, einsum, enable_grad, eq,
    equal, erf, erfc, erfinv, exp, expm1, finfo, flip, float, float16, float32, float64, floor, floor_, floor_divide, fmod,
    from_dlpack, from_numpy, ge, get_default_dtype, get_rng_state, greater, greater_equal, gt, half, hsplit, hstack, iinfo,
    index_add, index_select, inference_mode, initial_seed, int, int32, int64, int8, inverse, is_autocast_cache_enabled,
    is_autocast_enabled, is_floating_point, is_grad_enabled, is_nonzero, is_tensor, isclose, isfinite, isinf, isnan, le, lgamma,
    log, log10, log1p, log2, logaddexp, logical_and, logical_not, logical_or, logical_xor, logsumexp, long, lt, manual_seed,
    masked_select, max, maximum, mean, median, min, minimum, mm, movedim, mul, multinomial, mv, nansum, narrow, ne, neg, negative,
    no_grad, not_equal, numel, permute, pow, prod, quantile, reciprocal, relu, repeat_interleave, roll, round, row_stack,
    rsqrt, scatter, scatter_add, searchsorted, seed, select, selu, set_autocast_cache_enabled, set_autocast_enabled,
    set_default_dtype, set_num_threads, set_printoptions, sigmoid, sign, sin, sin_, sinh, split, sqrt, square, std, sub, sum,
    swapaxes, swapdims, t, tan, tanh, tensor_split, tensordot, threshold, tile, to_dlpack, topk, tril, triu, trunc, uint8, unbind,
    unsqueeze, var, vsplit, vstack, zero_,
)
from torch import int8 as char
from torch.amp.autocast_mode import autocast_decorator
from torch.nn.functional import adaptive_avg_pool2d, adaptive_avg_pool3d, gelu, mish, silu, softplus, softshrink, softsign

from oneflow import (
    amp,
    autograd,
    backends,
    boxing,
    checkpoint,
    comm,
    cuda,
    data,
    deprecated,
    distribute,
    env,
    image,
    keras,
    layers,
    linalg,
    losses,
    math,
    mock_torch,
    nn,
    onnx,
    optim,
    optimizer,
    profiler,
    random,
    regularizers,
    sbp,
    scope,
    summary,
    system,
    train,
    typing,
    utils,
)
from oneflow.array import (
    acc,
    amp_white_identity,
    assign,
    broadcast_to_compatible_with,
    cast_to_current_logical_view,
    cast_to_static_shape,
    categorical_ordinal_encode,
    combined_margin_loss,
    consistent_user_op_builder,
    constant,
    constant_like,
    constant_pad2d,
    constant_scalar,
    count_not_finite,
    dim_gather,
    distributed_partial_fc_sample,
    dynamic_reshape,
    elem_cnt,
    expand_dims,
    hierarchical_parallel_cast,
    identity,
    identity_n,
    multi_count_not_finite,
    one_hot,
    pack,
    pad_grad,
    parallel_cast,
    range,
    reflection_pad2d,
    replication_pad2d,
    reshape_like,
    reverse,
    same_padding,
    slice_v2,
    tensor_scatter_nd_add,
    unpack,
    unsorted_batch_segment_sum,
    unsorted_segment_sum,
    unsorted_segment_sum_like,
    user_op_builder,
    zero_pad2d,
)
from oneflow.checkpoint import get_all_variables, load_variables
from oneflow.checkpoint.objects import load, save
from oneflow.compat import compat
from oneflow.core.absent import absent as _absent
from oneflow.core.late import late as _late
from oneflow.core.refused import REFUSED as _REFUSED
from oneflow.core.refused import refused_module as _refused_module
from oneflow.eager.both import (
    argsort,
    argwhere,
    broadcast_like,
    cast,
    clamp,
    clip,
    concat,
    ctc_loss,
    diag,
    expand,
    flatten,
    gather,
    gather_nd,
    in_top_k,
    masked_fill,
    matmul,
    nonzero,
    ones,
    ones_like,
    pad,
    repeat,
    reshape,
    scatter_nd,
    slice,
    slice_update,
    sort,
    squeeze,
    stack,
    tensor_scatter_nd_update,
    transpose,
    where,
    zeros,
    zeros_like,
)
from oneflow.eager.create import (
    arange,
    empty,
    empty_like,
    eye,
    full,
    full_like,
    hann_window,
    linspace,
    logspace,
    new_empty,
    new_full,
    new_ones,
    new_zeros,
    normal,
    rand,
    randint,
    randint_like,
    randn,
    randn_like,
    randperm,
    tensor,
)
from oneflow.eager.index import batch_gather, index_add_, masked_fill_, unique
from oneflow.eager.maths import cross, div_, erfinv_, log_softmax, norm, quick_gelu, roc_auc_score, softmax, stft
from oneflow.eager.names import ABSENT as _ABSENT
from oneflow.eager.settings import (
    convert_oneflow_dtype_to_numpy_dtype,
    dtypes,
    get_autocast_cpu_dtype,
    get_autocast_gpu_dtype,
    ignore,
    is_deprecated,
    oneflow_deprecate,
    oneflow_python_base_dir,
    script,
    set_autocast_cpu_dtype,
    set_autocast_gpu_dtype,
    set_default_tensor_type,
    set_grad_enabled,
    set_rng_state,
)
from oneflow.eager.shape import contiguous, meshgrid, view
from oneflow.eager.tensor_methods import add_methods as _add_methods
from oneflow.eager.vision import deform_conv2d, nms, roi_align
from oneflow.global_tensor.methods import as_function as _as_function
from oneflow.global_tensor.placement import placement
from oneflow.image import decode as image_decode
from oneflow.image import flip as image_flip
from oneflow.image import normalize as image_normalize
from oneflow.image import random_crop as image_random_crop
from oneflow.image import resize as image_resize
from oneflow.initializer import (
    constant_initializer,
    empty_initializer,
    glorot_normal_initializer,
    glorot_uniform_initializer,
    kaiming_initializer,
    ones_initializer,
    random_normal_initializer,
    random_uniform_initializer,
    truncated_normal,
    truncated_normal_initializer,
    variance_scaling_initializer,
    xavier_normal_initializer,
    xavier_uniform_initializer,
    zeros_initializer,
)
from oneflow.ir.variable import get_variable
from oneflow.job.config import config, current_resource
from oneflow.job.function import (
    InitEagerGlobalSession,
    TryCloseAllSession,
    clear_default_session,
    current_global_function_desc,
    current_machine_id,
    eager_execution_enabled,
    enable_eager_execution,
    function,
    global_function,
    inter_job_reuse_mem_strategy,
    sync_default_session,
)
from oneflow.job.settings import FunctionConfig
from oneflow.job.watch import watch, watch_diff
from oneflow.math import clip_by_scalar, clip_by_value
from oneflow.nn import smooth_l1_loss
from oneflow.plan import plan
from oneflow.scope import current_scope
from oneflow.scope import namespace as name_scope
from oneflow.scope import placement as device_prior_placement
from oneflow.scope import placement as eager_fixed_placement
from oneflow.scope import placement as fixed_placement
from oneflow.typing.definitions import FixedTensorDef, MirroredTensorDef, MirroredTensorListDef, input_blob_def
from oneflow.version import __version__
from oneflow.world import planned_world

function_config = ExecutionConfig = FunctionConfig
_add_methods()
global_to_global, local_to_global, to_global, to_local = map(_as_function, ("global_to_global", "local_to_global", "to_global", "to_local"))
dali, detection, quantization, serving, saved_model, model, advanced, tensorrt, sysconfig = map(
    _refused_module, ("dali", "detection", "quantization", "serving", "saved_model", "model", "advanced", "tensorrt", "sysconfig")
)
__getattr__ = _late("oneflow", ("_C", "experimental", "unittest", "util"), _absent("oneflow", {**_ABSENT, **_REFUSED}, lambda: globals()))

__all__ = [
    "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "ExecutionConfig", "FixedTensorDef", "FloatTensor",
    "FunctionConfig", "Generator", "HalfTensor", "InitEagerGlobalSession", "IntTensor", "LongTensor", "MirroredTensorDef",
    "MirroredTensorListDef", "Size", "Tensor", "TryCloseAllSession", "__version__", "abs", "acc", "acos", "acosh",
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "add", "addcdiv", "addcmul", "addmm", "all", "allclose",
    "amax", "amin", "amp", "amp_white_identity", "any", "arange", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh",
    "argmax", "argmin", "argsort", "argwhere", "as_strided", "as_tensor", "asin", "asinh", "assign", "atan", "atan2", "atanh",
    "atleast_1d", "atleast_2d", "atleast_3d", "autocast", "autocast_decorator", "autograd", "backends", "baddbmm", "batch_gather",
    "bernoulli", "bfloat16", "bincount", "bmm", "bool", "boxing", "broadcast_like", "broadcast_shapes", "broadcast_tensors",
    "broadcast_to", "broadcast_to_compatible_with", "cast", "cast_to_current_logical_view", "cast_to_static_shape", "cat",
    "categorical_ordinal_encode", "ceil", "char", "checkpoint", "chunk", "clamp", "clamp_", "clamp_max", "clamp_max_",
    "clamp_min", "clamp_min_", "clear_autocast_cache", "clear_default_session", "clip", "clip_", "clip_by_scalar",
    "clip_by_value", "column_stack", "combined_margin_loss", "comm", "compat", "concat", "config", "consistent_user_op_builder",
    "constant", "constant_initializer", "constant_like", "constant_pad2d", "constant_scalar", "contiguous",
    "convert_oneflow_dtype_to_numpy_dtype", "cos", "cosh", "count_not_finite", "cross", "ctc_loss", "cuda", "cumprod", "cumsum",
    "current_global_function_desc", "current_machine_id", "current_resource", "current_scope", "data", "default_generator",
    "deform_conv2d", "deprecated", "device", "device_prior_placement", "diag", "diagonal", "dim_gather", "distribute",
    "distributed_partial_fc_sample", "div", "div_", "dot", "double", "dstack", "dtype", "dtypes", "dynamic_reshape",
    "eager_execution_enabled", "eager_fixed_placement", "einsum", "elem_cnt", "empty", "empty_initializer", "empty_like",
    "enable_eager_execution", "enable_grad", "env", "eq", "equal", "erf", "erfc", "erfinv", "erfinv_", "exp", "expand",
    "expand_dims", "expm1", "eye", "finfo", "fixed_placement", "flatten", "flip", "float", "float16", "float32", "float64",
    "floor", "floor_", "floor_divide", "fmod", "from_dlpack", "from_numpy", "full", "full_like", "function", "function_config",
    "gather", "gather_nd", "ge", "gelu", "get_all_variables", "get_autocast_cpu_dtype", "get_autocast_gpu_dtype",
    "get_default_dtype", "get_rng_state", "get_variable", "global_function", "global_to_global", "glorot_normal_initializer",
    "glorot_uniform_initializer", "greater", "greater_equal", "gt", "half", "hann_window", "hierarchical_parallel_cast", "hsplit",
    "hstack", "identity", "identity_n", "ignore", "iinfo", "image", "image_decode", "image_flip", "image_normalize",
    "image_random_crop", "image_resize", "in_top_k", "index_add", "index_add_", "index_select", "inference_mode", "initial_seed",
    "input_blob_def", "int", "int32", "int64", "int8", "inter_job_reuse_mem_strategy", "inverse", "is_autocast_cache_enabled",
    "is_autocast_enabled", "is_deprecated", "is_floating_point", "is_grad_enabled", "is_nonzero", "is_tensor", "isclose",
    "isfinite", "isinf", "isnan", "kaiming_initializer", "keras", "layers", "le", "lgamma", "linalg", "linspace", "load",
    "load_variables", "local_to_global", "log", "log10", "log1p", "log2", "log_softmax", "logaddexp", "logical_and",
    "logical_not", "logical_or", "logical_xor", "logspace", "logsumexp", "long", "losses", "lt", "manual_seed", "masked_fill",
    "masked_fill_", "masked_select", "math", "matmul", "max", "maximum", "mean", "median", "meshgrid", "min", "minimum", "mish",
    "mm", "mock_torch", "movedim", "mul", "multi_count_not_finite", "multinomial", "mv", "name_scope", "nansum", "narrow", "ne",
    "neg", "negative", "new_empty", "new_full", "new_ones", "new_zeros", "nms", "nn", "no_grad", "nonzero", "norm", "normal",
    "not_equal", "numel", "one_hot", "oneflow_deprecate", "oneflow_python_base_dir", "ones", "ones_initializer", "ones_like",
    "onnx", "optim", "optimizer", "pack", "pad", "pad_grad", "parallel_cast", "permute", "placement", "plan", "planned_world", "pow", "prod",
    "profiler", "quantile", "quick_gelu", "rand", "randint", "randint_like", "randn", "randn_like", "random",
    "random_normal_initializer", "random_uniform_initializer", "randperm", "range", "reciprocal", "reflection_pad2d",
    "regularizers", "relu", "repeat", "repeat_interleave", "replication_pad2d", "reshape", "reshape_like", "reverse",
    "roc_auc_score", "roi_align", "roll", "round", "row_stack", "rsqrt", "same_padding", "save", "sbp", "scatter", "scatter_add",
    "scatter_nd", "scope", "script", "searchsorted", "seed", "select", "selu", "set_autocast_cache_enabled",
    "set_autocast_cpu_dtype", "set_autocast_enabled", "set_autocast_gpu_dtype", "set_default_dtype", "set_default_tensor_type",
    "set_grad_enabled", "set_num_threads", "set_printoptions", "set_rng_state", "sigmoid", "sign", "silu", "sin", "sin_", "sinh",
    "slice", "slice_update", "slice_v2", "smooth_l1_loss", "softmax", "softplus", "softshrink", "softsign", "sort", "split",
    "sqrt", "square", "squeeze", "stack", "std", "stft", "sub", "sum", "summary", "swapaxes", "swapdims", "sync_default_session",
    "system", "t", "tan", "tanh", "tensor", "tensor_scatter_nd_add", "tensor_scatter_nd_update", "tensor_split", "tensordot",
    "threshold", "tile", "to_dlpack", "to_global", "to_local", "topk", "train", "transpose", "tril", "triu", "trunc",
    "truncated_normal", "truncated_normal_initializer", "typing", "uint8", "unbind", "unique", "unpack",
    "unsorted_batch_segment_sum", "unsorted_segment_sum", "unsorted_segment_sum_like", "unsqueeze", "user_op_builder", "utils",
    "var", "variance_scaling_initializer", "view", "vsplit", "vstack", "watch", "watch_diff", "where",
    "xavier_normal_initializer", "xavier_uniform_initializer", "zero_", "zero_pad2d", "zeros", "zeros_initializer", "zeros_like",
]
