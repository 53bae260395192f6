"""MNIST: 28 x 28 PNG pictures of ten digits, given three channels as FastNN does."""

from fastnn.datasets.encoded import picture_parser

parse_fn = picture_parser(label_shape=(1,), default_format="raw")
