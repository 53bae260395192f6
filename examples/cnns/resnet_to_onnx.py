"""Writes a snapshot of ResNet50 as an ONNX model, and compares both on a picture.

sh resnet2onnx.sh
"""

from __future__ import annotations

import os
import sys

import config
from job_function_util import configure_machines
from of_cnn_inference import class_names, load_image, make_job
from snapshot import load

import oneflow as flow


def main() -> None:
    args = config.parse("onnx")
    config.print_args(args)
    configure_machines(args)
    inference_net = make_job(args)
    load(flow.train.CheckPoint(), args.model_load_dir)
    path = os.path.join("onnx", "model", f"{os.path.basename(os.path.abspath(args.model_load_dir))}.onnx")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    flow.onnx.export(inference_net, args.model_load_dir, path)
    print(f"Convert to onnx success! >>  {path}", flush=True)

    image = load_image(args.image_path, args)
    try:
        flow.onnx.check_equality(inference_net, path, [image], rtol=1e-4, atol=1e-5)
    except RuntimeError as error:
        print("Are the results equal? No")
        sys.exit(str(error))
    print("Are the results equal? Yes")
    probabilities = inference_net(image).get().numpy()[0]
    label = int(probabilities.argmax())
    print(f"Class: {class_names(args).get(label, f'class {label}')}; score: {probabilities[label]}")


if __name__ == "__main__":
    main()
