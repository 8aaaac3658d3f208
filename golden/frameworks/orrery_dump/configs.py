"""The configuration of a model, as a dictionary."""
import dataclasses
import types

from .errors import DumpError

GIVE = "give golden=, a file of orrery golden make for this model"


def of_model(model):
    """What model.config says: of transformers, a dataclass, a dictionary or a namespace."""
    config = getattr(model, "config", None)
    if config is None:
        raise DumpError(f"a {type(model).__name__} has no config, so its names are not known: {GIVE}")
    if hasattr(config, "to_dict"):
        return config.to_dict()
    if dataclasses.is_dataclass(config):
        return {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    if isinstance(config, dict):
        return dict(config)
    if isinstance(config, types.SimpleNamespace) or hasattr(config, "__dict__"):
        return dict(vars(config))
    raise DumpError(f"the config of a {type(model).__name__} is a {type(config).__name__}, of which no fields are known: {GIVE}")


def is_of_transformers(model):
    """Whether a model is one of transformers, or made from one."""
    return any(kind.__module__.split(".")[0] == "transformers" for kind in type(model).__mro__)
