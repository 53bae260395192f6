"""``flow._C``: the functional names of OneFlow. Fused ops are the formulas they stand for; what belongs to its runtime is absent."""

# Taken from torch as they are.
from torch import (
    BFloat16Tensor, BoolTensor, ByteTensor, CharTensor, DoubleTensor, FloatTensor, HalfTensor, IntTensor, LongTensor, abs, acos,
    acosh, add, addcdiv, addcmul, allclose, amax, amin, argmax, argmin, argwhere, as_strided, asin, asinh, atan, atan2, atanh,
    atleast_1d, atleast_2d, atleast_3d, baddbmm, bernoulli, bincount, broadcast_shapes, broadcast_tensors, broadcast_to, ceil,
    chunk, clamp, clamp_, clamp_max, clamp_max_, clamp_min, clamp_min_, clip, clip_, column_stack, concat, cos, cosh, cumprod,
    cumsum, diag, diagonal, div, dot, dstack, einsum, embedding_renorm_, equal, erf, erfc, erfinv, exp, expm1, fill_, finfo,
    flatten, flip, floor, floor_, floor_divide, fmod, from_dlpack, from_numpy, greater, greater_equal, gru, gru_cell, hsplit,
    hstack, iinfo, index_add, index_select, isclose, isfinite, isinf, isnan, less, less_equal, lgamma, log, log10, log1p, log2,
    logaddexp, logical_and, logical_not, logical_or, logical_xor, logsumexp, lstm, lstm_cell, masked_fill, max, maximum, median,
    min, minimum, mm, movedim, mul, multinomial, narrow, negative, nonzero, not_equal, permute, pow, quantile, reciprocal,
    repeat_interleave, reshape, rnn_relu, rnn_relu_cell, rnn_tanh, rnn_tanh_cell, roll, round, row_stack, rsqrt, scatter,
    scatter_add, searchsorted, select, sigmoid, sign, sin, sin_, sinh, sort, split, sqrt, square, squeeze, stack, std, sub,
    swapaxes, swapdims, t, tan, tanh, tensor_split, tensordot, tile, topk, transpose, tril, triu, trunc, unbind, unsqueeze, var,
    vsplit, vstack,
)
from torch import eq as broadcast_equal
from torch import mv as matrix_vector_product
from torch import round as rint
from torch.linalg import cross as linalg_cross
from torch.linalg import inv, matrix_norm, vector_norm
from torch.nn.functional import (
    adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d, adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d,
    affine_grid, avg_pool1d, avg_pool2d, avg_pool3d, celu, cosine_similarity, dropout1d, dropout2d, dropout3d, elu, fold, gelu, glu,
    hardshrink, hardsigmoid, hardswish, hardtanh, logsigmoid, margin_ranking_loss, max_unpool1d, max_unpool2d, max_unpool3d, mish,
    pad, pairwise_distance, prelu, relu, selu, silu, softplus, softshrink, softsign, threshold, triplet_margin_loss, unfold,
)

from oneflow._C.absent import ABSENT as _ABSENT
from oneflow._C.arrays import (
    T, addcdiv_, addcmul_, amp_black_identity, amp_white_identity, arg_sort, assign_local_tensor, bernoulli_, constant, contiguous_,
    copy, cosh_grad, dim_gather, expand_dims, exponential_, eye_, gather, identity, mul_, one_hot, pack_padded_sequence, pin_memory,
    reciprocal_no_nan, reduce_all, reduce_any, reduce_max, reduce_mean, reduce_min, reduce_nansum, reduce_prod, reduce_sum,
    reduce_sum_like, reshape_like, scatterndlike, select_top_n, sigmoid_grad, slice, slice_update, slice_view_1d_contiguous,
    split_like, sqrt_square_sum, tan_grad, tanh_grad, tensor_constant, tensor_setitem, to, triu_, trunc_divide, unfold_tensor,
    uniform_, unsorted_segment_sum,
)
from oneflow._C.batch_stats import (
    batch_norm_backward_elemt, batch_norm_backward_reduce, batch_norm_elemt, batch_norm_gather_stats_with_counts, batch_norm_stats,
)
from oneflow._C.fused import (
    fused_bias_add_dropout, fused_bias_add_gelu, fused_bias_add_scale_mask_softmax_dropout, fused_cross_feature_interaction,
    fused_dot_feature_interaction, fused_fast_gelu_mul, fused_get_boundding_boxes_coord, fused_get_center_dist,
    fused_get_ciou_diagonal_angle, fused_get_ciou_result, fused_get_convex_diagonal_squared, fused_get_intersection_area,
    fused_get_iou, fused_glu, fused_matmul_bias, fused_matmul_bias_add_relu_dropout, fused_mlp,
    fused_multi_head_attention_inference, fused_scale_mask_softmax, fused_scale_mask_softmax_dropout, fused_scale_tril,
    fused_scale_tril_softmax_mask_scale, fused_self_attention, fused_weighted_sum, grouped_matmul, grouped_matmul_bias,
)
from oneflow._C.network import (
    avg_pool2d_nhwc, bias_add, binary_cross_entropy_loss, binary_cross_entropy_with_logits_loss,
    binary_cross_entropy_with_logits_loss_grad, combined_margin_loss, conv1d, conv2d, conv3d, cross_entropy,
    ctc_loss, deconv1d, deconv2d, deconv3d, dropout, embedding, fast_gelu, gelu_with_approximate, grid_sample, group_norm,
    gumbel_softmax, kl_div_loss, l1_loss, layer_norm, layer_norm_affine, leaky_relu, matmul, max_pool1d, max_pool2d, max_pool3d,
    mse_loss, nll_loss, normalize, pixel_shuffle, rms_norm, smooth_l1_loss, softmax_cross_entropy,
    softmax_cross_entropy_grad, sparse_cross_entropy, sparse_softmax_cross_entropy, upsample, upsample_bicubic_2d,
    upsample_bilinear_2d, upsample_linear_1d, upsample_nearest_1d, upsample_nearest_2d, upsample_nearest_3d, upsample_trilinear_3d,
)
from oneflow._C.network import matmul as batch_matmul
from oneflow.core.absent import absent as _absent
from oneflow.eager.create import arange, empty, eye, hann_window, normal, rand, randint, randint_like, randn, randn_like, randperm, tensor
from oneflow.eager.index import batch_gather, gather_nd, in_top_k, index_add_, masked_fill_, tensor_scatter_nd_update, unique, where
from oneflow.eager.maths import div_, erfinv_, log_softmax, norm, quick_gelu, roc_auc_score, softmax, stft
from oneflow.eager.shape import broadcast_like, cast, contiguous, expand, meshgrid, repeat, view
from oneflow.eager.vision import deform_conv2d, nms, roi_align
from oneflow.eager.index import scatter_nd as scatternd
from oneflow.nn.functional import ctc_greedy_decoder
from oneflow.nn.modules.normalization import rms_layer_norm

__getattr__ = _absent("oneflow._C", _ABSENT, lambda: globals())

__all__ = [
    "BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "HalfTensor", "IntTensor",
    "LongTensor", "T", "abs", "acos", "acosh", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
    "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "add", "addcdiv", "addcdiv_", "addcmul", "addcmul_",
    "affine_grid", "allclose", "amax", "amin", "amp_black_identity", "amp_white_identity", "arange", "arg_sort", "argmax", "argmin",
    "argwhere", "as_strided", "asin", "asinh", "assign_local_tensor", "atan", "atan2", "atanh", "atleast_1d", "atleast_2d",
    "atleast_3d", "avg_pool1d", "avg_pool2d", "avg_pool2d_nhwc", "avg_pool3d", "baddbmm", "batch_gather", "batch_matmul",
    "batch_norm_backward_elemt", "batch_norm_backward_reduce", "batch_norm_elemt", "batch_norm_gather_stats_with_counts",
    "batch_norm_stats", "bernoulli", "bernoulli_", "bias_add", "binary_cross_entropy_loss", "binary_cross_entropy_with_logits_loss",
    "binary_cross_entropy_with_logits_loss_grad", "bincount", "broadcast_equal", "broadcast_like", "broadcast_shapes",
    "broadcast_tensors", "broadcast_to", "cast", "ceil", "celu", "chunk", "clamp", "clamp_", "clamp_max", "clamp_max_", "clamp_min",
    "clamp_min_", "clip", "clip_", "column_stack", "combined_margin_loss", "concat", "constant", "contiguous", "contiguous_",
    "conv1d", "conv2d", "conv3d", "copy", "cos", "cosh", "cosh_grad", "cosine_similarity", "cross_entropy", "ctc_greedy_decoder",
    "ctc_loss", "cumprod", "cumsum", "deconv1d", "deconv2d", "deconv3d", "deform_conv2d", "diag", "diagonal", "dim_gather", "div",
    "div_", "dot", "dropout", "dropout1d", "dropout2d", "dropout3d", "dstack", "einsum", "elu", "embedding", "embedding_renorm_",
    "empty", "equal", "erf", "erfc", "erfinv", "erfinv_", "exp", "expand", "expand_dims", "expm1", "exponential_", "eye", "eye_",
    "fast_gelu", "fill_", "finfo", "flatten", "flip", "floor", "floor_", "floor_divide", "fmod", "fold", "from_dlpack",
    "from_numpy", "fused_bias_add_dropout", "fused_bias_add_gelu", "fused_bias_add_scale_mask_softmax_dropout",
    "fused_cross_feature_interaction", "fused_dot_feature_interaction", "fused_fast_gelu_mul", "fused_get_boundding_boxes_coord",
    "fused_get_center_dist", "fused_get_ciou_diagonal_angle", "fused_get_ciou_result", "fused_get_convex_diagonal_squared",
    "fused_get_intersection_area", "fused_get_iou", "fused_glu", "fused_matmul_bias", "fused_matmul_bias_add_relu_dropout",
    "fused_mlp", "fused_multi_head_attention_inference", "fused_scale_mask_softmax", "fused_scale_mask_softmax_dropout",
    "fused_scale_tril", "fused_scale_tril_softmax_mask_scale", "fused_self_attention", "fused_weighted_sum", "gather", "gather_nd",
    "gelu", "gelu_with_approximate", "glu", "greater", "greater_equal", "grid_sample", "group_norm", "grouped_matmul",
    "grouped_matmul_bias", "gru", "gru_cell", "gumbel_softmax", "hann_window", "hardshrink", "hardsigmoid", "hardswish", "hardtanh",
    "hsplit", "hstack", "identity", "iinfo", "in_top_k", "index_add", "index_add_", "index_select", "inv", "isclose", "isfinite",
    "isinf", "isnan", "kl_div_loss", "l1_loss", "layer_norm", "layer_norm_affine", "leaky_relu", "less", "less_equal", "lgamma",
    "linalg_cross", "log", "log10", "log1p", "log2", "log_softmax", "logaddexp", "logical_and", "logical_not", "logical_or",
    "logical_xor", "logsigmoid", "logsumexp", "lstm", "lstm_cell", "margin_ranking_loss", "masked_fill", "masked_fill_", "matmul",
    "matrix_norm", "matrix_vector_product", "max", "max_pool1d", "max_pool2d", "max_pool3d", "max_unpool1d", "max_unpool2d",
    "max_unpool3d", "maximum", "median", "meshgrid", "min", "minimum", "mish", "mm", "movedim", "mse_loss", "mul", "mul_",
    "multinomial", "narrow", "negative", "nll_loss", "nms", "nonzero", "norm", "normal", "normalize", "not_equal", "one_hot",
    "pack_padded_sequence", "pad", "pairwise_distance", "permute", "pin_memory", "pixel_shuffle", "pow", "prelu", "quantile",
    "quick_gelu", "rand", "randint", "randint_like", "randn", "randn_like", "randperm", "reciprocal", "reciprocal_no_nan",
    "reduce_all", "reduce_any", "reduce_max", "reduce_mean", "reduce_min", "reduce_nansum", "reduce_prod", "reduce_sum",
    "reduce_sum_like", "relu", "repeat", "repeat_interleave", "reshape", "reshape_like", "rint", "rms_layer_norm", "rms_norm",
    "rnn_relu", "rnn_relu_cell", "rnn_tanh", "rnn_tanh_cell", "roc_auc_score", "roi_align", "roll", "round", "row_stack", "rsqrt",
    "scatter", "scatter_add", "scatternd", "scatterndlike", "searchsorted", "select", "select_top_n", "selu", "sigmoid",
    "sigmoid_grad", "sign", "silu", "sin", "sin_", "sinh", "slice", "slice_update", "slice_view_1d_contiguous", "smooth_l1_loss",
    "softmax", "softmax_cross_entropy", "softmax_cross_entropy_grad", "softplus", "softshrink", "softsign", "sort",
    "sparse_cross_entropy", "sparse_softmax_cross_entropy", "split", "split_like", "sqrt", "sqrt_square_sum", "square", "squeeze",
    "stack", "std", "stft", "sub", "swapaxes", "swapdims", "t", "tan", "tan_grad", "tanh", "tanh_grad", "tensor", "tensor_constant",
    "tensor_scatter_nd_update", "tensor_setitem", "tensor_split", "tensordot", "threshold", "tile", "to", "topk", "transpose",
    "tril", "triplet_margin_loss", "triu", "triu_", "trunc", "trunc_divide", "unbind", "unfold", "unfold_tensor", "uniform_",
    "unique", "unsorted_segment_sum", "unsqueeze", "upsample", "upsample_bicubic_2d", "upsample_bilinear_2d", "upsample_linear_1d",
    "upsample_nearest_1d", "upsample_nearest_2d", "upsample_nearest_3d", "upsample_trilinear_3d", "var", "vector_norm", "view",
    "vsplit", "vstack", "where",
]
