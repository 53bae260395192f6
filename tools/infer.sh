#!/usr/bin/env bash
# tools/infer.sh FILE NPROC [arguments of FILE ...]: starts a program on NPROC processes of this machine; see train.sh for several machines.
set -eu
if [ $# -lt 2 ]; then
    echo "usage: $0 FILE NPROC [arguments of FILE ...]" >&2
    exit 2
fi
FILE=$1 NPROC=$2
shift 2
export ONEFLOW_LINEAR_EMBEDDING_SKIP_INIT=1
exec "${PYTHON:-python3}" -m oneflow.distributed.launch \
    --nproc_per_node "$NPROC" --nnodes "${NODE:-1}" --node_rank "${NODE_RANK:-0}" --master_addr "${ADDR:-127.0.0.1}" --master_port "${PORT:-12345}" \
    "$FILE" "$@"
