"""CIFAR-10: 32 x 32 PNG pictures of ten classes."""

from fastnn.datasets.encoded import picture_parser

parse_fn = picture_parser()
