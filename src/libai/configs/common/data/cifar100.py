"""CIFAR-100: crops and mirrored pictures for training; downloaded to ./ where it is not there."""

from omegaconf import OmegaConf

from flowvision import transforms
from libai.config import LazyCall
from libai.data import build_image_test_loader, build_image_train_loader
from libai.data.datasets import CIFAR100Dataset

MEAN, STD = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)

train_aug = LazyCall(transforms.Compose)(
    transforms=[
        LazyCall(transforms.RandomCrop)(size=(32, 32), padding=4),
        LazyCall(transforms.RandomHorizontalFlip)(p=0.5),
        LazyCall(transforms.ToTensor)(),
        LazyCall(transforms.Normalize)(mean=MEAN, std=STD),
    ]
)
test_aug = LazyCall(transforms.Compose)(
    transforms=[LazyCall(transforms.ToTensor)(), LazyCall(transforms.Normalize)(mean=MEAN, std=STD)]
)

dataloader = OmegaConf.create()
dataloader.train = LazyCall(build_image_train_loader)(
    dataset=[LazyCall(CIFAR100Dataset)(root="./", train=True, download=True, transform=train_aug)],
    num_workers=4,
    mixup_func=None,
)
dataloader.test = [
    LazyCall(build_image_test_loader)(
        dataset=LazyCall(CIFAR100Dataset)(root="./", train=False, download=True, transform=test_aug),
        num_workers=4,
    )
]
