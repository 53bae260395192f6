"""Names of ``oneflow._C`` that are absent, with what to use instead."""

from __future__ import annotations

from oneflow.engine.eager.names import ABSENT as _ROOT

_UPDATES = "an update of variables; use the optimizer of flow.optim"
_READERS = "a stage of a reader; use the data modules of flow.nn, or flow.data"
_GRAPHS = "a port of a compiled graph; use nn.Graph"
_QUANTIZATION = "quantization is not there; use torch.ao.quantization on the module"
_RANKS = "ranks meet in jobs and graphs; use torch.distributed between processes of your own"
_STAGES = "one stage of a reduction over devices; use reduce_max or reduce_min"
_NORM = "use flow.nn.functional.batch_norm"

ABSENT = {
    **dict.fromkeys(
        [
            *(
                "dispatch_adadelta_update",
                "dispatch_adagrad_update",
                "dispatch_adam_update",
                "dispatch_ftrl_update",
                "dispatch_lamb_update",
            ),
            *("dispatch_momentum_update", "dispatch_rmsprop_update", "dispatch_sgd_update", "multi_tensor_adam_update"),
            *("multi_tensor_momentum_update", "multi_tensor_sgd_update", "multi_tensor_yolov5_weight_update"),
        ],
        _UPDATES,
    ),
    **dict.fromkeys(
        [
            *("dispatch_coco_reader", "dispatch_coin_flip", "dispatch_crop_mirror_normalize_from_tensorbuffer"),
            *("dispatch_crop_mirror_normalize_from_uint8", "dispatch_image_batch_align", "dispatch_image_decode"),
            *(
                "dispatch_image_decoder_random_crop_resize",
                "dispatch_image_normalize",
                "dispatch_image_resize_keep_aspect_ratio",
            ),
            *(
                "dispatch_image_resize_to_fixed",
                "dispatch_megatron_gpt_mmap_data_loader",
                "dispatch_ofrecord_bytes_decoder",
            ),
            *(
                "dispatch_ofrecord_image_decoder",
                "dispatch_ofrecord_image_decoder_random_crop",
                "dispatch_ofrecord_raw_decoder",
            ),
            *("dispatch_ofrecord_reader", "dispatch_onerec_reader", "dispatch_raw_reader", "image_flip"),
        ],
        _READERS,
    ),
    **dict.fromkeys(["dispatch_feed_input", "dispatch_feed_variable", "dispatch_fetch_output"], _GRAPHS),
    **dict.fromkeys(
        [
            *("one_embedding_adagrad_update", "one_embedding_adam_update", "one_embedding_embedding_gradient_shuffle"),
            *(
                "one_embedding_embedding_put",
                "one_embedding_embedding_shuffle",
                "one_embedding_ftrl_update",
                "one_embedding_fused_lookup",
            ),
            *(
                "one_embedding_fused_lookup_grad",
                "one_embedding_id_shuffle",
                "one_embedding_lookup",
                "one_embedding_sgd_update",
            ),
            "one_embedding_unique_key_value_pair",
        ],
        _ROOT["one_embedding"],
    ),
    **dict.fromkeys(
        ["fake_quantization", "min_max_observer", "moving_average_min_max_observer", "quantization"], _QUANTIZATION
    ),
    **dict.fromkeys(
        [
            *(
                "comm_broadcast",
                "dispatch_eager_ccl_all_reduce",
                "local_all_gather",
                "local_all_reduce",
                "local_reduce",
            ),
            *("local_reduce_scatter", "recv", "send"),
        ],
        _RANKS,
    ),
    **dict.fromkeys(
        ["reduce_max_device_stage", "reduce_max_global_stage", "reduce_min_device_stage", "reduce_min_global_stage"],
        _STAGES,
    ),
    **dict.fromkeys(["normalization", "normalization_add_relu"], _NORM),
    **dict.fromkeys(
        ["global_arange", "global_constant", "global_empty", "global_tensor_constant"],
        "flow.arange, full and empty take placement= and sbp=",
    ),
    "decode_onerec": _ROOT["decode_onerec"],
    "dispatch_distributed_partial_fc_sample": "classes are sampled in jobs alone, by flow.distributed_partial_fc_sample",
    "dispatch_tensor_buffer_to_list_of_tensors_v2": _ROOT["tensor_buffer_to_list_of_tensors"],
    "distributed_sparse_cross_entropy": "use sparse_cross_entropy; in a job the classes may be split over devices",
    "gen_tensor_buffer": _ROOT["gen_tensor_buffer"],
    "stream_touch": "streams of a device are torch's; use torch.cuda.Stream",
    "tensor_buffer_to_tensor": _ROOT["tensor_buffer_to_tensor"],
    "tensor_to_tensor_buffer": _ROOT["tensor_to_tensor_buffer"],
    "throw_error": "raise an exception",
    "to_global": "use flow.to_global",
    "to_local": "use flow.to_local",
}
