"""Samples of ``onnx/aten/matmul.py``."""

import torch

from aten_samples.sample import AtenSample, bools, call, ints, randn

F = randn

SAMPLES = [
    AtenSample("mm.default", lambda n: call(F(n, 3), F(3, 4))),
    AtenSample("bmm.default", lambda n: call(F(n, 2, 3), F(n, 3, 4))),
    AtenSample("mv.default", lambda n: call(F(n, 3), F(3))),
    AtenSample("dot.default", lambda n: call(F(n), F(n))),
    AtenSample("vdot.default", lambda n: call(F(n), F(n))),
    AtenSample("matmul.default", lambda n: call(F(n, 5, 3), F(3, 4))),
    AtenSample("matmul.default", lambda n: call(F(n, 5, 3), F(3))),
    AtenSample("addmm.default", lambda n: call(F(4), F(n, 3), F(3, 4))),
    AtenSample("addmm.default", lambda n: call(F(n, 4), F(n, 3), F(3, 4), beta=0.5, alpha=2)),
    AtenSample("addmm.default", lambda n: call(torch.full((4,), float("nan")), F(n, 3), F(3, 4), beta=0)),
    AtenSample("addmm.default", lambda n: call(ints(4), ints(n, 3), ints(3, 4))),
    AtenSample("addmv.default", lambda n: call(F(n), F(n, 3), F(3), beta=2, alpha=3)),
    AtenSample("addbmm.default", lambda n: call(F(2, 4), F(n, 2, 3), F(n, 3, 4), beta=2)),
    AtenSample("baddbmm.default", lambda n: call(F(n, 2, 4), F(n, 2, 3), F(n, 3, 4), beta=2, alpha=0.5)),
    AtenSample("baddbmm.default", lambda n: call(F(1, 2, 4), F(n, 2, 3), F(n, 3, 4), beta=0)),
    AtenSample("addr.default", lambda n: call(F(n, 3), F(n), F(3), alpha=2)),
    AtenSample("linear.default", lambda n: call(F(n, 2, 3), F(4, 3), F(4))),
    AtenSample("linear.default", lambda n: call(F(n, 3), F(4, 3))),
    *(
        AtenSample("_cdist_forward.default", lambda n, p=p: call(F(n, 4, 3), F(n, 5, 3), p, None))
        for p in (0.0, 1.0, 2.0, 3.0, float("inf"))
    ),
    AtenSample("_trilinear.default", lambda n: call(F(n, 3), F(4, 3, 2), F(n, 2), [1, 3], [0], [1, 2], [2, 3])),
    AtenSample("linalg_cross.default", lambda n: call(F(n, 4, 3), F(n, 4, 3))),
    AtenSample("linalg_cross.default", lambda n: call(F(n, 3, 2), F(1, 3, 2), dim=1)),
    AtenSample("tril.default", lambda n: call(F(n, 3, 4))),
    AtenSample("tril.default", lambda n: call(bools(n, 3, 4), -1)),
    AtenSample("triu.default", lambda n: call(ints(n, 3, 4), 1)),
]
