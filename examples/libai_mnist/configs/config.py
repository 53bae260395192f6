# configs/config.py
from omegaconf import OmegaConf
from libai.config import LazyCall, get_config
from libai.data.build import build_image_train_loader, build_image_test_loader
from dataset.dataset import MnistDataSet
from modeling.model import NeuralNetwork

model = LazyCall(NeuralNetwork)(num_classes=10)
optim = get_config("common/optim.py").optim
optim.lr = 1e-3  # the default, 1e-4, is one for large models
graph = get_config("common/models/graph.py").graph

dataloader = OmegaConf.create()
dataloader.train = LazyCall(build_image_train_loader)(
    dataset=[
        LazyCall(MnistDataSet)(
            path="/workspace/quickstart/data/",
            is_train=True,
        )
    ],
    num_workers=4,
)
dataloader.test = [LazyCall(build_image_test_loader)(
    dataset=LazyCall(MnistDataSet)(
        path="/workspace/quickstart/data/",
        is_train=False,
    ),
    num_workers=4,
)]

from configs.train import train
train.update(
    dict(
        recompute_grad=dict(enabled=True),   # 计算梯度
        amp=dict(enabled=True),              # 启动 AMP 自动混合精度进行训练（不影响推理性能）。
        output_dir="output/MNIST/",          # 指定 checkpoint 的输出路径
        train_micro_batch_size=128,          # train & test 阶段的 batch size 
        test_micro_batch_size=32,
        train_epoch=20,                      # 执行 20 轮 训练
        train_iter=0,
        eval_period=100,                     # 每经过 100 次训练迭代，就执行一次 eval 
        log_period=10,                       # 每经过 10 次训练迭代，就打印一次 log
        warmup_ratio=0.01,                   # 用于计算有多少 iteration 用于 warmup
        topk=(1,),
        dist=dict(                           # 1个数据/模型/流水并行组（即单 GPU 训练）
            data_parallel_size=1,          
            tensor_parallel_size=1,
            pipeline_parallel_size=1,
        ),
        evaluation=dict(                                 
            enabled=True,                    # 在训练期间启用 eval
        )
    )
)
