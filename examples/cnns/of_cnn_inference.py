"""Says what is on a picture, or on every picture of a folder: its path, then a line for each of the likeliest classes.

sh inference.sh
python3 of_cnn_inference.py --model_load_dir=snapshot --image_path=data/fish.jpg --top_k=5
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from typing import Any

import config
import numpy as np
from config import Arguments
from job_function_util import configure_machines, job_config, logits_of
from ofrecord_util import for_network
from PIL import Image, UnidentifiedImageError
from snapshot import LABELS, load

import oneflow as flow

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".webp")


def make_job(args: Arguments) -> Callable[[np.ndarray], Any]:
    @flow.global_function(type="predict", function_config=job_config(args))
    def InferenceNet(images=flow.FixedTensorDef((1, *args.image_shape), dtype=flow.float)):
        return flow.nn.softmax(logits_of(for_network(images, args, "NCHW"), args))

    return InferenceNet


def load_image(path: str, args: Arguments) -> np.ndarray:
    """The whole picture in the network's size: (1, 3, height, width), normalised."""
    try:
        with Image.open(path) as picture:
            pixels = np.asarray(picture.convert("RGB").resize((args.image_size, args.image_size)), np.float32)
    except (UnidentifiedImageError, OSError) as error:
        sys.exit(f"{path} is not a picture that can be read: {error}")
    scaled = (pixels - np.float32(args.rgb_mean)) / np.float32(args.rgb_std)
    return np.ascontiguousarray(scaled.transpose(2, 0, 1)[None], np.float32)


def pictures(path: str) -> list[str]:
    if not os.path.isdir(path):
        return [path]
    found = [os.path.join(path, name) for name in sorted(os.listdir(path)) if name.lower().endswith(ENDINGS)]
    if not found:
        sys.exit(f"{path} has no pictures ({', '.join(ENDINGS)})")
    return found


def class_names(args: Arguments) -> dict[int, str]:
    """Names by label: of ``--label_file``, or of the file that training has put beside its snapshots, or none."""
    beside = os.path.join(os.path.dirname(os.path.abspath(args.model_load_dir)), LABELS)
    path = args.label_file or (beside if os.path.isfile(beside) else None)
    if path is None:
        return {}
    with open(path, encoding="utf-8") as file:
        lines = [line.strip().split(":", 1) for line in file if line.strip()]
    if not all(len(line) == 2 and line[0].isdigit() for line in lines):
        sys.exit(f"{path} does not have lines '<label>:<name>'")
    return {
        int(label): re.sub(r"^n\d{8} (?=.)", "", name.strip()) for label, name in lines
    }  # a synset goes before its words


def tell(path: str, probabilities: np.ndarray, names: dict[int, str], count: int) -> None:
    print(path)
    for label in np.argsort(-probabilities, kind="stable")[:count]:
        print(probabilities[label], names.get(int(label), f"class {label}"), flush=True)


def main() -> None:
    args = config.parse("inference")
    config.print_args(args)
    configure_machines(args)
    names, paths = class_names(args), pictures(args.image_path)
    inference_net = make_job(args)
    load(flow.train.CheckPoint(), args.model_load_dir)
    for path in paths:
        probabilities = inference_net(load_image(path, args)).get().numpy()[0]
        tell(path, probabilities, names, args.top_k)


if __name__ == "__main__":
    main()
