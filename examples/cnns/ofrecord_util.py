"""Where the pictures and labels of a job come from."""

from __future__ import annotations

from typing import Any

from config import Arguments

import oneflow as flow

Batch = tuple[Any, Any]


def load_synthetic(args: Arguments, batch_size: int) -> Batch:
    """One batch in memory that comes again at every step: random pictures, all of class 0."""
    print("Loading synthetic data.")
    shape = (args.image_size, args.image_size, 3) if args.input_layout == "NHWC" else args.image_shape
    labels = flow.data.decode_random((), flow.int32, batch_size, flow.zeros_initializer(flow.int32), name="label")
    images = flow.data.decode_random(shape, flow.float, batch_size, name="image")
    return images, labels


def load_for_training(args: Arguments) -> Batch:
    """Records in a new order each epoch; of each picture a random part (8 to 100 % of it) in one size, half of them
    mirrored."""
    records = _records(
        args.train_data_dir, args.train_batch_size, args.train_data_part_num, "train_reader", shuffle=True
    )
    pictures = flow.data.OFRecordImageDecoderRandomCrop(records, "encoded", color_space="RGB", name="train_crop")
    pixels, _, _ = flow.image.Resize(pictures, target_size=(args.image_size, args.image_size), name="train_resize")
    mirrored = flow.random.CoinFlip(batch_size=args.train_batch_size, name="train_flip")
    images = flow.image.CropMirrorNormalize(
        pixels,
        mirrored,
        color_space="RGB",
        output_layout=args.input_layout,
        mean=args.rgb_mean,
        std=args.rgb_std,
        name="train_image",
    )
    return images, _labels(records)


def load_for_validation(args: Arguments) -> Batch:
    """Records in order; of each picture the middle, once its shorter side has been made ``--resize_shorter``."""
    records = _records(args.val_data_dir, args.val_batch_size, args.val_data_part_num, "val_reader", shuffle=False)
    pictures = flow.data.OFRecordImageDecoder(records, "encoded", color_space="RGB", name="val_decode")
    pictures = flow.image.Resize(pictures, resize_shorter=args.resize_shorter, interp_type="auto", name="val_resize")
    images = flow.image.CropMirrorNormalize(
        pictures, color_space="RGB", output_layout=args.input_layout, crop_h=args.image_size, crop_w=args.image_size,
        mean=args.rgb_mean, std=args.rgb_std, name="val_image",
    )  # fmt: skip
    return images, _labels(records)


def _records(folder: str, batch_size: int, parts: int, name: str, shuffle: bool) -> Any:
    print(f"Loading data from {folder}")
    return flow.data.ofrecord_reader(
        folder,
        batch_size,
        parts,
        part_name_suffix_length=5,
        random_shuffle=shuffle,
        shuffle_after_epoch=shuffle,
        name=name,
    )


def _labels(records: Any) -> Any:
    return flow.data.OFRecordRawDecoder(records, "class/label", shape=(), dtype=flow.int32, name="label")


def for_network(images: Any, args: Arguments, layout: str) -> Any:
    """Pictures that lie as ``layout`` says, as the network takes them: in its dtype and layout, with its channels."""
    images = flow.cast(images, getattr(flow, args.dtype))
    if layout != args.data_format:
        images = flow.transpose(images, perm=(0, 3, 1, 2) if layout == "NHWC" else (0, 2, 3, 1))
    if args.pad_output:
        channels = ((0, 1), (0, 0), (0, 0)) if args.data_format == "NCHW" else ((0, 0), (0, 0), (0, 1))
        images = flow.pad(images, ((0, 0), *channels))
    return images
