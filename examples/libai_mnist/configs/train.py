# configs/train.py
from libai.config import LazyCall
from libai.evaluation import ClsEvaluator
from libai.scheduler import WarmupCosineLR
train = dict(
    
    # 保存输出文件的目录
    output_dir="./output",
    #  train_micro_batch_size: 每个 mini-batch 拆分到每个 GPU 上的 micro-batch 的大小
    #  train_mini_batch_size: 每个 GPU 在 1 个 step（iteration）中的训练样本数
    #  train_mini_batch_size = train_micro_batch_size * num_accumulation_steps。
    # global_batch_size = micro_batch_size  * num_accumulation_steps * data_parallel_groups
    train_micro_batch_size=32,
    global_batch_size=None,
    num_accumulation_steps=None,
    # training 的总 itreation 数
    train_iter=10000,
    # 实际总的 training iteration 次数将取 `train_iter` 和 `train_epoch * iter_per_epoch`两者的最大值
    train_epoch=0,  
    consumed_train_samples=0,
    consumed_valid_samples=0,
    train_samples=None,
    # warmup_ratio，指定 warmup 的 iteration 数
    warmup_ratio=0,  
    # 起始 iteration，一般不用手动设置。恢复训练时可被自动计算
    start_iter=0,
    # 是否在训练过程中开启 AMP (自动混合精度)
    amp=dict(enabled=False),
    # 是否启用 activation checkpointing
    activation_checkpoint=dict(enabled=False),  
    # NCCL 融合阈值（单位为 MB）。一般设为 0 来用与之前的 OneFlow 版本兼容
    nccl_fusion_threshold_mb=16,
    # NCCL 融合的最大操作数，一般设为 0 来与之前的 OneFlow 版本兼容
    nccl_fusion_max_ops=24,
    # 如果训练较大的模型，可以启用 ZeRO 优化。ZeRO 可以减少 optimize 阶段的内存消耗
    zero_optimization=dict(
        enabled=False,
        stage=1,
    ),
    
    # 保存模型的 checkpoints，period 用于指定保存模型的频率(单位为 iteration)，max_to_keep 指定最多保存多少个 checkpoints
    checkpointer=dict(period=5000, max_to_keep=100),  
    # 指定每个 batch 在单个 GPU 上用于 test 的样本数
    # 如果对数据并行组使用 8 个 GPU，并且 `test_micro_batch_size = 2`，则所有 GPU 每次迭代将总共使用 16 个样本。test 不进行梯度累积
    test_micro_batch_size=32,
    # 是否在训练期间进行评估，如果开启将在每经过`eval_period`次训练迭代后，执行一次评估
    # 可以设置最大 evaluation iteration，用于 validation/test
    # 可以使用自定义的 evaluator
    evaluation=dict(
        enabled=True,
        # evaluator for calculating top-k acc
        evaluator=LazyCall(ClsEvaluator)(topk=(1, 5)),  
        eval_period=5000,
        eval_iter=1e9,  # running steps for validation/test
        # Metrics to be used for best model checkpoint.
        eval_metric="Acc@1",
        eval_mode="max",
    ),
    # 指定要导入的模型 checkpoint 的路径
    load_weight="",
    # 日志输出的频率(单位为 iteration)
    log_period=20,
    # libai.scheduler 的相关参数，详见 libai/scheduler/lr_scheduler.py
    scheduler=LazyCall(WarmupCosineLR)(
        # In DefaultTrainer we will automatically set `max_iter`
        # and `warmup_iter` by the given train cfg.
        # 将根据给定的训练配置，设置 DefaultTrainer 的 max_iter 和 warmup_iter 值
        warmup_factor=0.001,
        alpha=0.01,
        warmup_method="linear",
    ),
    # 分布式相关的参数，详见 [Distributed_Configuration](https://libai.readthedocs.io/en/latest/tutorials/basics/Distributed_Configuration.html)
    dist=dict(
        data_parallel_size=1,
        tensor_parallel_size=1,
        pipeline_parallel_size=1,
    ),
    
    # 设置随机种子值（必须是正数）
    seed=1234,
)
