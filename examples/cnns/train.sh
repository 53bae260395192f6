#!/bin/sh
# Trains on synthetic data: one batch, learned by heart, so the loss falls to the floor of label smoothing, 1.015, within 0.05.
# Flags given to this script come last and so win: sh train.sh --image_size=64 --num_epochs=3
rm -rf core.*
rm -rf ./output/snapshots/*

"${PYTHON:-python3}" of_cnn_train_val.py \
    --num_examples=50 \
    --num_nodes=1 \
    --gpu_num_per_node=1 \
    --model_update="momentum" \
    --learning_rate=0.002 \
    --mom=0.5 \
    --warmup_epochs=1 \
    --loss_print_every_n_iter=1 \
    --batch_size_per_device=16 \
    --val_batch_size_per_device=16 \
    --num_epoch=10 \
    --model="resnet50" \
    "$@"
