"""``flow.utils.data.decorator``: torch's decorators of data pipes."""

from torch.utils.data import functional_datapipe, guaranteed_datapipes_determinism, non_deterministic

__all__ = ["functional_datapipe", "guaranteed_datapipes_determinism", "non_deterministic"]
