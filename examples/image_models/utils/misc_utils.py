"""Which variables of a checkpoint finetuning starts from: change this function to choose others."""

from fastnn.utils import misc_utils


def get_assigment_map_from_checkpoint(tvars, init_checkpoint, scope_map=None):
    """{name in the checkpoint: name here}, and the names here with 1 each."""
    return misc_utils.get_assigment_map_from_checkpoint(tvars, init_checkpoint, scope_map)
