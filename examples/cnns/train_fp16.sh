#!/bin/sh
# train.sh in mixed precision.
exec sh train.sh --use_fp16=True "$@"
