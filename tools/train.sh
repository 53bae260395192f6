#!/usr/bin/env bash
# tools/train.sh FILE CONFIG NPROC [arguments of FILE ...]: starts a training program on NPROC processes of this machine.
# On several machines: NODE is their number, NODE_RANK that of this one, ADDR and PORT are the first one's.
set -eu
if [ $# -lt 3 ]; then
    echo "usage: $0 FILE CONFIG NPROC [arguments of FILE ...], such as $0 tools/train_net.py configs/config.py 2" >&2
    exit 2
fi
FILE=$1 CONFIG=$2 NPROC=$3
shift 3
export ONEFLOW_FUSE_OPTIMIZER_UPDATE_CAST=true
exec "${PYTHON:-python3}" -m oneflow.distributed.launch \
    --nproc_per_node "$NPROC" --nnodes "${NODE:-1}" --node_rank "${NODE_RANK:-0}" --master_addr "${ADDR:-127.0.0.1}" --master_port "${PORT:-12345}" \
    "$FILE" --config-file "$CONFIG" "$@"
