"""Flowers: JPEG pictures of any size, of five classes."""

from fastnn.datasets.encoded import picture_parser

parse_fn = picture_parser()
