"""``flow.nn.modules.sparse``: embeddings, torch's."""

from torch.nn import Embedding

__all__ = ["Embedding"]
