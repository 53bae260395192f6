"""``flow.nn.modules.distance``: distances, torch's."""

from torch.nn import CosineSimilarity, PairwiseDistance

__all__ = ["CosineSimilarity", "PairwiseDistance"]
