#!/bin/sh
# Record files for the programs here, from pictures in FOLDER/train/<class>/ and FOLDER/validation/<class>/, to OUT/train and OUT/validation:
#   sh make_ofrecord.sh FOLDER OUT --parts 1
# Of ILSVRC2012, where the validation pictures are in one folder:
#   sh make_ofrecord.sh FOLDER OUT --synsets synset_words.txt --labels validation_synsets.txt
# Parts are part-00000 and on, 256 unless --parts says otherwise; python3 -m oneflow.data imagenet --help tells all flags.
exec "${PYTHON:-python3}" -m oneflow.data imagenet "$@"
