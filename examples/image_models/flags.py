"""All flags are in fastnn.flags; those of your own go here, and are FLAGS.<name> everywhere:

DEFINE_integer("patience", 3, "epochs without progress before training ends")
"""

from fastnn.flags import FLAGS, DEFINE_boolean, DEFINE_float, DEFINE_integer, DEFINE_string

__all__ = ["DEFINE_boolean", "DEFINE_float", "DEFINE_integer", "DEFINE_string", "FLAGS"]
