"""The names that a graph's own counters have in its state, as OneFlow gives them."""

TRAIN_STEP = "System-Train-TrainStep"
LOSS_SCALE = "System-Train-DynamicLossScale-"
"""Before the graph's name, and whether it is the scale or the good steps since it changed."""
