#!/bin/sh
# Unpacks the two archives of ILSVRC2012 to OUT/train/<synset>/ and OUT/validation/:
#   sh extract_ilsvrc2012.sh ILSVRC2012_img_train.tar ILSVRC2012_img_val.tar OUT
set -eu
if [ $# -ne 3 ]; then
    echo "usage: sh extract_ilsvrc2012.sh ILSVRC2012_img_train.tar ILSVRC2012_img_val.tar OUT" >&2
    exit 2
fi
mkdir -p "$3/train" "$3/validation"
tar -xf "$2" -C "$3/validation"
tar -xf "$1" -C "$3/train"
# The training archive holds an archive for each class, named after its synset.
for archive in "$3"/train/*.tar; do
    synset=${archive%.tar}
    mkdir -p "$synset"
    tar -xf "$archive" -C "$synset"
    rm "$archive"
done
