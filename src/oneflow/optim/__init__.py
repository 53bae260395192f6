"""``flow.optim``: the optimizers of tensors, eager and in graphs, and ``flow.optim.lr_scheduler``."""

from oneflow.optim import lr_scheduler
from oneflow.optim.adadelta import Adadelta
from oneflow.optim.adagrad import Adagrad
from oneflow.optim.adam import Adam, AdamW
from oneflow.optim.lamb import LAMB
from oneflow.optim.lbfgs import LBFGS
from oneflow.optim.optimizer import Optimizer
from oneflow.optim.rmsprop import RMSprop
from oneflow.optim.sgd import SGD

__all__ = ["LAMB", "LBFGS", "SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Optimizer", "RMSprop", "lr_scheduler"]
