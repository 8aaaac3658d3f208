"""The names of a model of transformers, from a golden file that `orrery golden make` has written for it.

The file's metadata "names" has what Orrery knows of the family: each parameter's tensors in files of transformers, and for each activation
the operation that writes it, what this reads, and its weight.  So this file knows no family.  It finds an activation

    written by a norm or a matrix       as the output of the modules that have the weight
    that a norm or a matrix reads       as the input of the module that has this weight
    at the end of a layer               as the output of the layer
    of a mixture                        by where all experts are one module (experts.py)

and leaves out the others: they are inside a module.  Names.left_out has them.

A fused module, such as TransformerEngine's LayerNormMLP, has the weights of several operations.  What the first of them reads is its input, what the
last of them writes is its result, and all between is left out.  `names` and `returns` say what no file can: a program's own names, and what a module
returns that has no weight of its own or gives back more than one tensor.
"""
import json
import pathlib
import re

import numpy as np

from . import lora
from .configs import is_of_transformers
from .errors import DumpError
from .experts import Mixture
from .matching import Target, chosen, cut, fits, propose
from .names import Names, Place, Watch
from .start import Start, same, says_nothing, values_of


def metadata(path):
    """The metadata of a safetensors file."""
    with open(path, "rb") as f:
        size = int.from_bytes(f.read(8), "little")
        if size > pathlib.Path(path).stat().st_size:
            raise DumpError(f"{path}: no file of safetensors")
        return json.loads(f.read(size)).get("__metadata__", {})


def of_golden(path, model, names=None, returns=None, tp=None, tidy=None):
    """The Names of a model, whole on this rank or wrapped, whose golden file is `path`.

    names    {the model's: another}: parameters that are called otherwise.  The other name is a golden file's, for a matrix [out, in] that is whole, or one
             of transformers' files; or a pair of it and an array, ours of each row.  A * stands for the same text in both.  Without it a model whose
             parameters have names of its own is matched by numbers and by shape (matching.py)
    returns  {module: names}: activations that a module returns, in order; None for a result that has no name
    tp       (ranks along tp, this one's place): plain parameters may have their share of rows or columns
    tidy     makes names clean; default: recorder.clean
    """
    text = metadata(path).get("names")
    if text is None:
        raise DumpError(f"{path}: its metadata has no names: make it with orrery golden make of this version")
    return _Reader(json.loads(text), model, names or {}, returns or {}, Start(path), tp, tidy).names()


def outermost(model, tidy):
    """{name: module}; of a wrapper and what it wraps, which have one name, the wrapper."""
    found = {}
    for name, module in model.named_modules():
        found.setdefault(tidy(name), module)
    return found


def _expanded(patterns, known, what):
    """{name: value} of {pattern: value}, for the names that are known.  A * of a pattern is filled in, in texts of the value, too."""
    found = {}
    for pattern, value in patterns.items():
        shape = re.compile("(.+)".join(re.escape(part) for part in pattern.split("*")))
        matches = [(name, m) for name in known for m in [shape.fullmatch(name)] if m]
        if not matches:
            raise DumpError(f"{what}: the model has no {pattern}")
        for name, match in matches:
            def filled(text, match=match, pattern=pattern):
                if text.count("*") > pattern.count("*"):
                    raise DumpError(f"{what}: {text} has more stars than {pattern}")
                parts = iter(match.groups())
                return "".join(next(parts) if c == "*" else c for c in text)
            found[name] = filled(value) if isinstance(value, str) else tuple(filled(v) if isinstance(v, str) else v for v in value)
    return found


def _rows(part, start):
    """{row of the file's tensor: row of ours} of a part whose first row of ours is `start`."""
    i = np.arange(part["rows"])
    group = part["together"]
    return dict(zip(((i // group * part["apart"] + part["first"]) * group + i % group).tolist(), (start + i).tolist()))


class _Reader:
    def __init__(self, told, model, own_names, returns, start, tp, tidy):
        from .recorder import clean
        tidy = tidy or clean
        self.told, self.model, self.start, self.tp = told, model, start, tp
        self.tensors = {tidy(n): p for n, p in model.named_parameters() if lora.is_own(n)}
        self.shapes = {n: tuple(p.shape) for n, p in self.tensors.items()}
        self.modules = outermost(model, tidy)
        self.turned = {}                                            # theirs -> why it is taken to be transposed
        self.ours = {p["name"]: p for p in told["parameters"]}
        self.writer = {n["out"]: n for n in told["nodes"]}
        self.mixtures = {}                                          # layer -> Mixture
        self.renamed = {}                                           # prefix in files -> in the model, of mixtures
        self.taken = {}                                             # their parameter -> {row: (ours, row)}, or a list of Places
        last = self.writer.get("logits", {}).get("parameter")
        self.head_weights = [part["name"] for part in self.ours[last]["parts"]] if last else []
        self.watches, self.products, self.left_out = [], {}, {}
        self.own_names = _expanded(own_names, self.shapes, "names")
        self.returns = _expanded(returns, self.modules, "returns")
        self.returned = {name for names in self.returns.values() for name in names if name}
        unknown = next((n for n in self.returned if n not in self.writer), None)
        if unknown:
            raise DumpError(f"returns: the golden file has no activation {unknown}")

    # ---- parameters -------------------------------------------------------------------------------------------------------------------------

    def theirs(self, name):
        """A tensor of files, as the model calls it."""
        for own, other in self.own_names.items():
            if other == name and name not in self.ours:
                return own
        for there, here in self.renamed.items():
            if name.startswith(there):
                return here + name[len(there):]
        if name in self.head_weights and name not in self.shapes and self.head():
            return self.head() + ".weight"                          # files of some families call it otherwise
        return name

    def _find_experts(self):
        """Layers whose experts are one module, with one tensor for each of their matrices."""
        prefixes = {p["layer"]: p["parts"][0]["name"].partition(".experts.")[0] for p in self.ours.values() if p["expert"] >= 0}
        for layer, there in prefixes.items():
            at = self.told["layers"][layer] + "."
            found = [n[:-len(".down_proj")] for n, s in self.shapes.items() if n.startswith(at) and n.endswith(".down_proj") and len(s) == 3]
            if len(found) != 1:
                raise DumpError(f"{at[:-1]}: {len(found)} modules have all experts' matrices, not one: transformers 5 or later is needed")
            here = found[0].rpartition(".")[0]
            if here != there:
                self.renamed[there + "."] = here + "."
            down = next(p for p in self.ours.values() if p["expert"] == 0 and p["layer"] == layer and p["role"] == "down")
            route = next(n["out"] for n in self.told["nodes"] if n["by"] == "route" and n["layer"] == layer)
            self.mixtures[layer] = Mixture(layer, found[0], route, self.shapes[found[0] + ".down_proj"][0], None, down["columns"], down["rows"])

    def _expert(self, ours):
        """A matrix of an expert in the tensor of all, for which files have one for each."""
        m, matrix = self.mixtures[ours["layer"]], {"up": "gate_up_proj", "down": "down_proj"}[ours["role"]]
        name = f"{m.module}.{matrix}"
        if self.shapes.get(name) != (m.experts, ours["rows"], ours["columns"]):
            raise DumpError(f"{name}: {list(self.shapes.get(name, ()))}, but an expert's matrix has {ours['rows']} rows of {ours['columns']}")
        self.taken.setdefault(name, {})[ours["expert"]] = Place(ours["name"], (ours["rows"], ours["columns"]), np.arange(ours["rows"]))

    def _renamed(self):
        """{theirs: Place} of the model's own parameters that have the golden file's names."""
        places = {}
        for own, other in self.own_names.items():
            name, rows = (other, None) if isinstance(other, str) else other
            if name in self.ours:
                ours = self.ours[name]
                rows = np.arange(ours["rows"]) if rows is None else np.asarray(rows)
                places[own] = Place(name, (ours["rows"], ours["columns"]), rows, piece="" if len(rows) == ours["rows"] else own)
                if not fits(self.shapes[own], Target(name, name, rows, ours["columns"]), self.tp) and not self.is_flat(own):
                    raise DumpError(f"names: {own} has shape {list(self.shapes[own])}, but {name} has {len(rows)} rows of {ours['columns']}")
            elif rows is not None or not any(part["name"] == name for o in self.ours.values() for part in o["parts"]):
                raise DumpError(f"names: {own} is said to be {name}, which the golden file does not have")
        return places

    def _places(self):
        """{theirs: Place, or a list of them}"""
        pieces, transposed, renamed = {}, {}, self._renamed()
        done = {place.name for place in renamed.values()}
        for ours in (o for o in self.ours.values() if o["name"] not in done):
            if ours["expert"] >= 0 and ours["parts"][0]["items"] == 0 and self.theirs(ours["parts"][0]["name"]) not in self.shapes:
                self._expert(ours)
                continue
            start = 0
            for part in ours["parts"]:
                key = (self.theirs(part["name"]), part["item"] if part["items"] else None, ours["name"])
                pieces.setdefault(key, {}).update(_rows(part, start))
                transposed[key] = ours["transposed"]
                start += part["rows"]
        places = dict(renamed)
        for (theirs, item, name), rows in pieces.items():
            ours, whole = self.ours[name], np.array([rows[i] for i in range(len(rows))])
            piece = "" if len(ours["parts"]) == 1 or len(whole) == ours["rows"] else theirs.split(".")[-2]
            place = Place(name, (ours["rows"], ours["columns"]), whole, piece=piece, transposed=transposed[theirs, item, name])
            if item is None:
                places[theirs] = place
            else:
                self.taken.setdefault(theirs, {})[item] = place
        places.update({n: [of[i] for i in range(len(of))] for n, of in self.taken.items()})
        return places

    # ---- names of the model's own ---------------------------------------------------------------------------------------------------------------

    def is_flat(self, name):
        """Whether a parameter is a flat shard, whose shape says nothing."""
        return getattr(self.tensors[name], "_is_flattened", False) or hasattr(self.tensors[name], "ds_id")

    def _match(self):
        """Find parameters that have names of the model's own, by numbers and by shape."""
        left = {n: p for n, p in self.tensors.items() if n not in self.places}
        if not left or self.mixtures:
            return
        targets, done = [], {p.name for p in self._renamed().values()}
        for ours in (o for o in self.told["parameters"] if o["name"] not in done):
            parts = [(part, rows) for part, rows in zip(ours["parts"], self._parts_of(ours)) if self.theirs(part["name"]) not in self.shapes]
            if len(parts) == len(ours["parts"]):
                targets.append(Target(ours["name"], ours["name"], np.arange(ours["rows"]), ours["columns"]))
            for part, rows in parts if len(ours["parts"]) > 1 else ():
                targets.append(Target(part["name"], ours["name"], rows, ours["columns"]))
        if not targets:
            return                                                  # the recorder names the first that has no name
        found = chosen(propose(left, targets, self.start, self.tp))
        self.own_names.update(found)
        self.matched = found
        self.places = self._places()

    def _parts_of(self, ours):
        """Ours of the rows of each part that files have."""
        start = 0
        for part in ours["parts"]:
            rows = _rows(part, start)
            yield np.array([rows[i] for i in sorted(rows)])
            start += part["rows"]

    def _find_transposed(self):
        """Matrices that the model keeps as [in, out]: the shape says so, or, of a square one, its numbers."""
        for name, place in self.places.items():
            if isinstance(place, list) or name not in self.shapes or len(self.shapes[name]) != 2 or place.of[1] == 1:
                continue
            p, target = self.tensors[name], Target(place.name, place.name, place.rows, place.of[1])
            whole = np.empty((len(place.rows), place.of[1]), np.bool_)
            plain, turned = (any(True for _ in cut(t, self.shapes[name], self.tp)) for t in (whole, whole.T))
            values, near = values_of(p)
            if place.transposed or hasattr(p, "placements") or not turned:
                continue
            if plain and (values is None or not self._is_transpose(values, near, target)):
                continue
            place.transposed = True
            self.turned[name] = "its numbers" if plain else "its shape"

    def _is_transpose(self, values, near, target):
        whole = self.start.weight(target.ours)
        if whole is None or says_nothing(values):
            return False
        whole = whole[target.rows]
        has = [any(same(values, part, near) for part in cut(t, tuple(values.shape), self.tp)) for t in (whole, whole.T)]
        return has == [False, True]

    def _note_parts(self):
        """A fused matrix of several is cut part by part along tp."""
        for name, place in self.places.items():
            ours = self.ours.get(place.name) if not isinstance(place, list) else None
            if ours and len(ours["parts"]) > 1 and len(place.rows) == ours["rows"] and name in self.shapes and not place.parts:
                place.parts = tuple(part["rows"] for part in ours["parts"])

    # ---- activations ------------------------------------------------------------------------------------------------------------------------

    def of_weight(self, name):
        """[(module, Place)] of the modules that have a weight of ours, all of them or none."""
        found = [(theirs.rpartition(".")[0], p) for theirs, p in self.places.items()
                 if theirs in self.shapes and not isinstance(p, list) and p.name == name]
        whole = sum(len(p.rows) for _, p in found) == self.ours[name]["rows"]
        return found if whole and all(m in self.modules for m, _ in found) else []

    def head(self):
        """The module of the output matrix, which may be the embedding's own."""
        last = self.model.get_output_embeddings() if hasattr(self.model, "get_output_embeddings") else None
        found = next((n for n, m in self.modules.items() if m is last), None)
        own = [theirs for theirs, place in getattr(self, "places", {}).items()
               if theirs in self.shapes and not isinstance(place, list) and place.name == self.writer["logits"]["parameter"]]
        if found is not None or len(own) != 1:
            return found
        # A matrix that is also the embedding's is a parameter of two modules, of which the one that multiplies is meant.
        of = [n for n, m in self.modules.items() if getattr(m, own[0].rpartition(".")[2], None) is self.tensors[own[0]]]
        return next((n for n in reversed(of) if type(self.modules[n]).__name__ != "Embedding"), own[0].rpartition(".")[0])

    def layer(self, i):
        """The module of a layer: as files call it, or the one that has all of its parameters."""
        told = self.told["layers"][i]
        if told in self.modules:
            return told
        own = [theirs.split(".") for theirs, place in self.places.items()
               if not isinstance(place, list) and theirs in self.shapes and self.ours[place.name]["layer"] == i]
        shared = next((k for k in range(min(map(len, own), default=0)) if len({n[k] for n in own}) > 1), 0)
        name = ".".join(own[0][:shared]) if own else ""
        return name if name and name in self.modules else told

    def _fused(self, module):
        """Nodes of norms and matrices whose weight a module has, in order."""
        return [n for n in self.told["nodes"] if n["by"] in ("norm", "matrix", "head norm") and "parameter" in n
                and any(m == module for m, _ in self.of_weight(n["parameter"]))]

    def watch(self, name, module, side, of, cols=None, piece="", **more):
        self.watches.append(Watch(name, module, side, of, np.arange(of) if cols is None else cols, piece, **more))
        return True

    def _written(self, node):
        """By the modules of a norm's or a matrix's weight."""
        by, out = node["by"], node["out"]
        if by not in ("norm", "matrix") or "parameter" not in node:
            return False
        rows = self.ours[node["parameter"]]["rows"]
        if out == "logits":
            head = self.head()
            return head is not None and self.watch(out, head, "output", rows)
        for module, place in self.of_weight(node["parameter"]):
            if self._fused(module)[-1]["out"] != out:
                self.left_out[out] = f"inside {module}"
            elif module not in self.returns:
                self.watch(out, module, "output", rows, place.rows, place.piece)
        return any(w.name == out for w in self.watches)

    def _normed_heads(self, node):
        """Queries and keys that pass norms, each of a head or of all heads; values do not."""
        H, K, A = self.heads
        norms, values = self.of_weight(node["parameter"]), [(m, p) for m, p in self.of_weight(self.writer[node["in"][0]].get("parameter", "")) if p.piece]
        if len(norms) != 2 or len(values) != 3:
            return False
        Q = (H + 2 * K) * A
        for (module, _), start, count in zip(norms, (0, H * A), (H * A, K * A)):
            self.watch(node["out"], module, "output", Q, np.arange(start, start + count), module.rpartition(".")[2], heads=count // A)
        return self.watch(node["out"], values[2][0], "output", Q, np.arange((H + K) * A, Q), "v")

    def _read(self, name):
        """By a norm or a matrix: its first module's input."""
        for node in self.told["nodes"]:
            if node["by"] in ("norm", "matrix") and node["in"][:1] == [name] and "parameter" in node and node["out"] != "logits":
                found = self.of_weight(node["parameter"])
                ours = self.ours[node["parameter"]]
                if found and self._fused(found[0][0])[0] is node:
                    return self.watch(name, found[0][0], "input", ours["rows"] if node["by"] == "norm" else ours["columns"])
        return False

    def _of_mixture(self, node):
        """What a mixture gives, and its weights; what experts compute is in Names.mixtures."""
        m = self.mixtures.get(node["layer"])
        if m is None:
            return False
        return node["by"] == "route" or self.watch(node["out"], m.module, "output", self.width)

    def _ends(self, node):
        """A layer, or the feed-forward of a layer with shared experts beside a mixture."""
        name, layer = node["out"], node["layer"]
        if name == f"h.{layer}.out":
            return self.layer(layer) not in self.returns and self.watch(name, self.layer(layer), "output", self.width)
        if name == f"h.{layer}.mlp.out" and layer in self.mixtures:
            return self.watch(name, self.mixtures[layer].module.rpartition(".")[0], "output", self.width)
        return name == "embedding" and self.watch(name, self.layer(0), "input", self.width)

    def _activation(self, node):
        if node["by"] == "rotary":
            return is_of_transformers(self.model)                   # the recorder's hook of its attention
        if node["by"] == "head norm":
            return self._normed_heads(node)
        if node["by"] in ("mixture", "route"):
            return self._of_mixture(node)
        if node["by"] == "gate":
            return self._gated(node)
        if node is self.told["nodes"][-1] and node["out"] != "logits" and "logits" in self.writer:
            return self.watch(node["out"], "", "output", self.ours[self.writer["logits"]["parameter"]]["rows"])
        return self._written(node) or self._ends(node) or self._read(node["out"])

    def _gated(self, node):
        """Shared experts' result times their gate: a product inside the module of the mixture."""
        found = self.of_weight(self.writer[node["in"][0]]["parameter"])
        if not found or node["layer"] not in self.mixtures:
            return False
        self.products[node["out"]] = (self.mixtures[node["layer"]].module.rpartition(".")[0], found[0][0].rpartition(".")[0], self.width)
        return True

    def _watch_returns(self):
        """What modules return by the program's own word."""
        for module, names in self.returns.items():
            for item, name in enumerate(names):
                if name is not None:
                    node = self.writer[name]
                    wide = self.ours[node["parameter"]]["rows"] if node["by"] in ("norm", "matrix") else self.width
                    self.watch(name, module, "output", wide, item=item)

    def _turned(self):
        """Ours of each column of a head with latents: the turned ones first, neighbours pair by pair."""
        if not self.told["latent"]:
            return None
        A, rope = self.told["head_width"], self.model.config.qk_rope_head_dim
        i = np.arange(rope)
        theirs = i // 2 + i % 2 * (rope // 2) if getattr(self.model.config, "rope_interleave", False) else i
        return np.argsort(np.concatenate([A - rope + theirs, np.arange(A - rope)]))

    def names(self):
        told = self.told
        self.heads = tuple(told[k] for k in ("query_heads", "key_heads", "head_width"))
        self._find_experts()
        self.matched = {}
        self.places = self._places()
        self._match()
        self._find_transposed()
        self._note_parts()
        for m in self.mixtures.values():
            m.up = self.places[m.module + ".gate_up_proj"][0].rows
        self.width = next(p["columns"] for p in told["parameters"] if p["layer"] == -1)
        for node in (n for n in told["nodes"] if n["kept"]):
            if node["out"] not in self.returned and not self._activation(node):
                self.left_out.setdefault(node["out"], "inside a module; see() keeps it")
        self._watch_returns()
        self.left_out = {name: why for name, why in self.left_out.items() if not any(w.name == name for w in self.watches)}
        rotated = {n["layer"] for n in told["nodes"] if n["by"] == "rotary"}
        attention = {w.module.rpartition(".")[0]: int(w.name.split(".")[1]) for w in self.watches if w.name.endswith(".attn.out")}
        return Names(self.places, self.watches, {m: i for m, i in attention.items() if i in rotated}, self.heads,
                     mixtures=list(self.mixtures.values()), products=self.products, turned=self._turned(), left_out=self.left_out,
                     matched=self.matched, transposed=self.turned, start=self.start)
