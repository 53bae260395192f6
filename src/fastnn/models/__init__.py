"""Networks by name: ``model_factory`` (slim's name for it is ``nets_factory``)."""
