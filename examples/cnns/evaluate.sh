#!/bin/sh
# Evaluates a snapshot on validation records: MODEL_LOAD_DIR=output/snapshots/... sh evaluate.sh
MODEL_LOAD_DIR=${MODEL_LOAD_DIR:-resnet_v15_of_best_model_val_top1_77318}
DATA_ROOT=${DATA_ROOT:-data/imagenet/ofrecord}

"${PYTHON:-python3}" of_cnn_evaluate.py \
    --model_load_dir="$MODEL_LOAD_DIR" \
    --val_data_dir="$DATA_ROOT/validation" \
    --num_val_examples=50 \
    --val_data_part_num=1 \
    --num_nodes=1 \
    --gpu_num_per_node=1 \
    --val_batch_size_per_device=10 \
    --num_epochs=1 \
    --model="resnet50" \
    "$@"
