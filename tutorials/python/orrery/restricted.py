"""Reads pickles of other programs without running anything that they name.

A pickle may call any function of any module.  Here it may build containers, numbers and strings, and objects of the classes that
the caller lists; these become records without behaviour.  A pickle that names anything else is refused before that is looked up.
"""

import io
import pickle

LIMIT = 1 << 30  # bytes of a file


class Record:
    """Stands for an object of a listed class: `of` is its name, `args` what it was made with, and its fields are attributes."""

    of = ""

    def __init__(self, *args):
        self.args = args

    def __setstate__(self, state):
        """Fields become attributes; a state that has no names is the attribute `state`."""
        fields = state[1] if isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict) else state
        if not isinstance(fields, dict):
            fields = {"state": fields}
        for name, value in fields.items():
            if not isinstance(name, str) or name.startswith("__"):
                raise pickle.UnpicklingError(f"an object of {self.of} has a field {name!r:.80}")
            self.__dict__[name] = value

    def __repr__(self):
        return f"{self.of}{self.args}"

    def __hash__(self):
        return hash((self.of, repr(sorted(self.__dict__.items(), key=lambda one: one[0]))))

    def __eq__(self, other):
        return isinstance(other, Record) and (self.of, self.__dict__) == (other.of, other.__dict__)


class _Reader(pickle.Unpickler):
    def __init__(self, file, where, listed):
        super().__init__(file)
        self.where, self.listed = where, listed

    def find_class(self, module, name):
        known = self.listed.get(f"{module}.{name}")
        if known is None:
            raise pickle.UnpicklingError(f"names {module}.{name}, which is not listed")
        return known

    def persistent_load(self, pid):
        raise pickle.UnpicklingError("refers to something outside of it")


def records(names):
    """A class for each full name, whose objects are records."""
    return {name: type(name.rsplit(".", 1)[1], (Record,), {"of": name}) for name in names}


def load(data, where, listed=()):
    """The object of a pickle.

    data: its bytes.  where: names it in errors.  listed: a dict from full names to what is called in their place; of a
    sequence of names, records.  Raises ValueError, one line, if it names anything else or is no pickle.
    """
    listed = listed if isinstance(listed, dict) else records(listed)
    try:
        return _Reader(io.BytesIO(data), where, listed).load()
    except RecursionError:
        raise ValueError(f"{where}: is nested too deeply") from None
    except Exception as why:  # any byte may be wrong
        line = " ".join(str(why).split()) or type(why).__name__
        raise ValueError(f"{where}: is no pickle that can be read safely: {line[:200]}") from None


def load_file(path, listed=()):
    """load() of a file."""
    with open(path, "rb") as file:
        data = file.read(LIMIT + 1)
    if len(data) > LIMIT:
        raise ValueError(f"{path}: has more than {LIMIT} bytes")
    return load(data, path, listed)
