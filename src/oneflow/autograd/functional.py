"""``flow.autograd.functional``: Jacobians, Hessians and their products with vectors, as in torch."""

from torch.autograd.functional import hessian, hvp, jacobian, jvp, vhp, vjp

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]
