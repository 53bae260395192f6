"""Data sets of pictures: files that are there are read; others are downloaded where there is a network, or it is said
what to put where."""

from typing import Any

from flowvision.datasets.cifar import CIFAR10, CIFAR100
from flowvision.datasets.fakedata import FakeData
from flowvision.datasets.folder import DatasetFolder, ImageFolder
from flowvision.datasets.imagenet import ImageNet
from flowvision.datasets.mnist import EMNIST, KMNIST, MNIST, FashionMNIST
from flowvision.datasets.records import OFRecordFolder, RecordFolder, TFRecordFolder
from flowvision.datasets.stl10 import STL10
from flowvision.datasets.svhn import SVHN
from flowvision.datasets.vision import VisionDataset
from oneflow.compat.absent_modules import refuse as _refuse
from oneflow.engine.core.errors import AbsentNameError

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "DatasetFolder",
    "EMNIST",
    "FakeData",
    "FashionMNIST",
    "ImageFolder",
    "ImageNet",
    "KMNIST",
    "MNIST",
    "OFRecordFolder",
    "RecordFolder",
    "STL10",
    "SVHN",
    "TFRecordFolder",
    "VisionDataset",
]

_INSTEAD = "sets with one folder for each class are read by ImageFolder, others by a Dataset of one's own"
_ABSENT = dict.fromkeys(
    (
        "Caltech101 Caltech256 CelebA Cityscapes CLEVRClassification CocoDetection CocoCaptions Country211 DTD EuroSAT "
        "FER2013 FGVCAircraft Flickr8k "
        "Flickr30k Flowers102 Food101 GTSRB INaturalist Kitti LFWPeople LFWPairs LSUN LSUNClass Omniglot OxfordIIITPet "
        "PCAM PhotoTour Places365 RenderedSST2 "
        "SBDataset SBU SEMEION StanfordCars SUN397 USPS VOCSegmentation VOCDetection WIDERFace "
        # and their modules
        "caltech celeba cityscapes clevr coco country211 dtd eurosat fer2013 fgvc_aircraft flickr flowers102 food101 "
        "gtsrb inaturalist kitti lfw lsun "
        "omniglot oxford_iiit_pet pcam phototour places365 rendered_sst2 sbd sbu semeion stanford_cars sun397 usps voc "
        "widerface"
    ).split(),
    _INSTEAD,
)
_refuse(__name__, _ABSENT)


def __getattr__(name: str) -> Any:
    if name in _ABSENT:
        raise AbsentNameError(f"flowvision.datasets.{name} is not there: {_ABSENT[name]}")
    raise AttributeError(f"module 'flowvision.datasets' has no attribute {name!r}")
