"""ImageNet: pictures in folders ./dataset/train/<class> and ./dataset/val/<class>; change the root of both data
sets."""

from omegaconf import OmegaConf

from flowvision import transforms
from flowvision.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from libai.config import LazyCall
from libai.data import build_image_test_loader, build_image_train_loader
from libai.data.datasets import ImageNetDataset

train_aug = LazyCall(transforms.Compose)(
    transforms=[
        LazyCall(transforms.RandomResizedCrop)(size=224),
        LazyCall(transforms.RandomHorizontalFlip)(p=0.5),
        LazyCall(transforms.ToTensor)(),
        LazyCall(transforms.Normalize)(mean=IMAGENET_DEFAULT_MEAN, std=IMAGENET_DEFAULT_STD),
    ]
)
test_aug = LazyCall(transforms.Compose)(
    transforms=[
        LazyCall(transforms.Resize)(size=256),
        LazyCall(transforms.CenterCrop)(size=224),
        LazyCall(transforms.ToTensor)(),
        LazyCall(transforms.Normalize)(mean=IMAGENET_DEFAULT_MEAN, std=IMAGENET_DEFAULT_STD),
    ]
)

dataloader = OmegaConf.create()
dataloader.train = LazyCall(build_image_train_loader)(
    dataset=[LazyCall(ImageNetDataset)(root="./dataset", train=True, transform=train_aug)],
    num_workers=4,
    mixup_func=None,
)
dataloader.test = [
    LazyCall(build_image_test_loader)(
        dataset=LazyCall(ImageNetDataset)(root="./dataset", train=False, transform=test_aug),
        num_workers=4,
    )
]
