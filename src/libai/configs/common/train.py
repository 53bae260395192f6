"""Everything about a run. What a config leaves out is filled in from here; docs/libai.md says what each key does."""

from libai.config import LazyCall
from libai.evaluation import ClsEvaluator
from libai.scheduler import WarmupCosineLR

train = dict(
    output_dir="./output",  # log, config, metrics, checkpoints
    # global_batch_size = train_micro_batch_size * num_accumulation_steps * data parallel ranks; two of the first three
    # are enough
    train_micro_batch_size=32,
    global_batch_size=None,
    num_accumulation_steps=None,
    # The longer of the two: so many iterations, or so many epochs.
    train_iter=10000,
    train_epoch=0,
    iter_per_epoch=None,  # None: as many as the data set has batches
    consumed_train_samples=0,
    consumed_valid_samples=0,
    train_samples=None,
    warmup_ratio=0,  # the part of all iterations in which the rate rises
    start_iter=0,
    amp=dict(enabled=False),
    activation_checkpoint=dict(enabled=False),
    nccl_fusion_threshold_mb=16,
    nccl_fusion_max_ops=24,
    zero_optimization=dict(enabled=False, stage=1),
    checkpointer=dict(period=5000, max_to_keep=100, save_model_after_n_epoch=None),
    test_micro_batch_size=32,
    evaluation=dict(
        enabled=True,
        evaluator=LazyCall(ClsEvaluator)(topk=(1, 5)),
        eval_period=5000,
        eval_after_n_epoch=None,
        eval_iter=1e5,  # at most so many batches
        eval_metric="Acc@1",  # what model_best is the best in
        eval_mode="max",
    ),
    load_weight="",  # the folder of a checkpoint: weights only
    log_period=20,
    # max_iter and warmup_iter come from the keys above.
    scheduler=LazyCall(WarmupCosineLR)(warmup_factor=0.001, alpha=0.01, warmup_method="linear"),
    dist=dict(
        data_parallel_size=1,  # what the other two leave of the ranks
        tensor_parallel_size=1,
        pipeline_parallel_size=1,
        pipeline_num_layers=None,
        custom_pipeline_stage_id=None,
        device_type="cuda",  # cpu where there is no GPU
    ),
    input_placement_device="cuda",
    rdma_enabled=False,
    seed=1234,
)
