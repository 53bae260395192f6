#!/bin/sh
# Writes a snapshot of ResNet50 as onnx/model/<snapshot>.onnx and compares both: MODEL_LOAD_DIR=output/snapshots/... sh resnet2onnx.sh
MODEL_LOAD_DIR=${MODEL_LOAD_DIR:-resnet_v15_of_best_model_val_top1_77318}

"${PYTHON:-python3}" resnet_to_onnx.py \
    --image_path="data/fish.jpg" \
    --model_load_dir="$MODEL_LOAD_DIR" \
    --model="resnet50" \
    "$@"
