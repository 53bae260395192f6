#!/bin/sh
# Says what is on a picture: MODEL_LOAD_DIR=output/snapshots/... sh inference.sh --image_path=my.jpg
MODEL_LOAD_DIR=${MODEL_LOAD_DIR:-resnet_v15_of_best_model_val_top1_77318}

"${PYTHON:-python3}" of_cnn_inference.py \
    --image_path="data/fish.jpg" \
    --model_load_dir="$MODEL_LOAD_DIR" \
    --model="resnet50" \
    "$@"
