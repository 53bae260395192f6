"""Names that nothing else has, under their earlier path."""

from oneflow.util import unique_str

UniqueStr = unique_str
__all__ = ["UniqueStr"]
