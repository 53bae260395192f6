"""``nn.Graph``: steps written with tensors and modules, traced once and compiled by the passes that compile jobs."""
