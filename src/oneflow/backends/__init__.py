"""``flow.backends``: torch's switches of cuDNN, oneDNN (``mkldnn``) and CUDA. The modules are torch's own, so setting
one here sets it there."""

import sys

from torch.backends import cuda, cudnn, mkldnn

__all__ = ["cuda", "cudnn", "mkldnn"]

# `import oneflow.backends.cudnn as cudnn` finds torch's module under this name too.
sys.modules |= {f"{__name__}.{name}": globals()[name] for name in __all__}
