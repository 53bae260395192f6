"""GPT that writes: the model of LiBai with ``generate``."""

from libai.inference.generator.generation_utils import Generator
from libai.models import GPTForPreTraining


class Writer(GPTForPreTraining, Generator):
    """``GPTForPreTraining`` with ``generate``."""
