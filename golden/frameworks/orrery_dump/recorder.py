"""Recorder: hooks that keep what a PyTorch model computes on this rank, under our names and with its layout.

    recorder = Recorder(model, mesh, "dump", batch=(4, 16), golden="own.safetensors").start()
    recorder.microbatch()                               # before the forward pass
    recorder.finish(loss)                               # after the backward pass

or, where there is more to say,

    recorder = Recorder(model, mesh, "dump", batch=(4, 16), mode=("fsdp2", "tp"))
    recorder.start()                                    # weights before the first step
    for m in range(M):
        recorder.microbatch(sequences=[m], number=m)    # which part of the batch this rank computes next
        loss_of(model).backward()
    recorder.gradients()
    recorder.number("loss", loss)
    recorder.stop()                                     # later passes are not recorded
    ...
    recorder.weights("adamw", optimizer)                # after the last step
    recorder.save()

Layouts are read from the tensors: DTensor placements, Megatron's partition attributes, flat shards of FSDP1 and DeepSpeed.  A plain tensor is cut
as its shape says: fewer columns than the whole are this rank's of tp, fewer tokens than the microbatch are this rank's
under sequence parallelism.  What fits neither is refused.  `explicit` of see() and parameter() takes any other layout.
"""
import json
import re
import sys
import types

import numpy as np

from . import again, compiled as compiling, configs, deepspeed, experts, fsdp1, lora, modes, names as known
from .errors import DumpError
from .layouts import chunk, of_dtensor, of_parts, token_rows
from .matching import Proposal, rows_of_text, starred
from .of_golden import of_golden, outermost
from .rank_file import AXES, RankFile, key_of, STORED, to_numpy

WRAPPERS = ("module", "_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module")


def clean(name):
    """A name without what DDP, FSDP, torch.compile and checkpointing put into it."""
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def _unwrapped(model):
    while type(model).__name__ in ("DistributedDataParallel", "DeepSpeedEngine", "FullyShardedDataParallel", "OptimizedModule"):
        model = getattr(model, "module", None) or model._orig_mod
    return model


def _is_dtensor(t):
    return hasattr(t, "placements") and hasattr(t, "to_local")


def _here(t):
    """This rank's numbers, arrived."""
    t = t.to_local() if _is_dtensor(t) else t
    return t.wait() if type(t).__name__ == "AsyncCollectiveTensor" else t


def _mesh_of(mesh):
    """({axis: size}, {axis: coordinate}) of a DeviceMesh, or of a pair of such dictionaries."""
    if isinstance(mesh, tuple):
        return dict(mesh[0]), dict(mesh[1])
    if mesh is None:
        return {}, {}
    if not mesh.mesh_dim_names:
        raise DumpError(f"the mesh has no names for its dimensions: give mesh_dim_names, of {', '.join(AXES)}")
    sizes = dict(zip(mesh.mesh_dim_names, mesh.shape))
    return sizes, dict(zip(mesh.mesh_dim_names, mesh.get_coordinate()))


class Recorder:
    """
    model   the model as it is trained: wrapped, sharded, parallel.  A stage of a pipeline has its own Recorder
    mesh    a DeviceMesh whose dimensions are called pp, dp, cp, ep, tp; or ({axis: size}, {axis: coordinate}); None: one process
    folder  where rankR.safetensors goes
    batch   (sequences, tokens) of the whole batch
    mode    what must be in force, of modes.MODES
    golden  the file of orrery golden make that the folder is for: it names the parameters and activations of every family
    names   with golden: {"layers.*.norm": "model.layers.*.input_layernorm.weight"}, parameters that files call otherwise (of_golden.of_golden); default:
            such names are found by numbers and by shape.  Or a Names; without golden it is made from the model's config
    not_recorded  patterns of tensors that the dump is not to have, "h.*.attn.rotated", "adamw/*": orrery check then judges the others
    returns {"layers.*.add_norm": ("h.*.ln_2", "h.*.mid")}: with golden, modules whose results are several, or no result of their weights
    compiled  "inside" or "borders": what is recorded of modules that torch.compile has compiled (compiled.py)
    into    a Recorder of this rank to share a file with (stages of one rank)
    parts   of a sum that are stored in the format and then added, if they are more than the mesh has: microbatches
    arithmetic  "exact" or "exact2" if sums do not round before they are finished: orrery check --exact then compares bits
    before  also keep the gradients before they are reduced over these axes, in FOLDER-before
    """

    def __init__(self, model, mesh, folder, *, batch, mode=(), golden=None, names=None, returns=None, not_recorded=(), compiled="inside",
                 rank=None, dtype=None, program=None, parts=None, into=None, before=(), arithmetic=None):
        self.mesh, self.at = _mesh_of(mesh)
        inner = lora.inner(_unwrapped(model))
        self.is_lora = lora.is_lora(model)
        tidy = (lambda n: lora.clean(clean(n))) if self.is_lora else clean
        self.names = self._names_of(inner, golden, names, returns, tidy)
        self.batch, self.mode, self.seen = batch, (mode,) if isinstance(mode, str) else tuple(mode), set()
        self.parameters = {tidy(n): p for n, p in model.named_parameters() if not self.is_lora or lora.is_own(n)}
        self.modules = outermost(model, tidy)
        self.shards = fsdp1.shards(model, tidy)
        modes.check(self.mode, model, self.parameters, self.mesh)
        for name in self.parameters:
            if name not in self.names.parameters:
                raise DumpError(f"parameter {name} has no name of ours: give names=" + ("" if golden else ", and golden="))
        if rank is None:
            torch = __import__("torch")
            rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
        about = dict(dtype=dtype, program=program, parts=parts, arithmetic=arithmetic)
        self.file = into.file if into else RankFile(folder, rank, self.mesh, self.at, **about)
        self.model, self.handles, self.now, self.before, self.passes = model, [], None, None, 0
        self.choices = experts.Choices(self.names.mixtures, batch[0] * batch[1])
        self.given, self.of_mixture, self.recomputed, self.finished, self.stepped = [], {}, {}, False, None
        self.file.declare(not_recorded)
        self.adapters = lora.adapters_of(model, tidy) if self.is_lora else []
        if self.adapters:
            self._tell_adapters()
        self.way, self.regions = compiled, compiling.regions(model, tidy)
        self.left_out = dict(self.names.left_out)
        compiling.check(compiled, self.regions)
        if before:
            self._keep_before(RankFile(f"{folder}-before", rank, self.mesh, self.at, **about), tuple(before))
        self._hook()
        if len(self.names.layers) < getattr(getattr(inner, "config", None), "num_hidden_layers", 0) or into:
            self.seen.add("pp")

    def _names_of(self, inner, golden, names, returns, tidy):
        """The Names that the arguments of a Recorder mean."""
        if names is not None and not isinstance(names, dict):
            return names
        if golden:
            return of_golden(golden, inner, names, returns, (self.mesh.get("tp", 1), self.at.get("tp", 0)), tidy)
        if names or returns:
            raise DumpError("names= and returns= need golden=, the file of orrery golden make for this model: it has the shapes of ours")
        return known.of_config(configs.of_model(inner))

    def _tell_adapters(self):
        """What the file says of adapters."""
        whole = {a.name + ".weight" for a in self.adapters}
        lost = next((n for n in whole if n not in self.names.parameters or isinstance(self.names.parameters[n], list)), None)
        if lost:
            raise DumpError(f"adapter {lost[:-len('.weight')]}: its weight is no matrix of ours")
        self.file.head["adapters"] = json.dumps({a.name: a.metadata(self.names.parameters[a.name + ".weight"]) for a in self.adapters})
        self.file.head["trained"] = json.dumps(lora.trained(self.parameters, self.names.parameters, self.adapters))

    def _factors(self):
        """(name, parameter) of A and B of each adapter."""
        for a in self.adapters:
            for which, p in a.factors.items():
                yield f"{a.name}.lora_{which}.weight", p

    def _factor(self, kind, name, t):
        if _is_dtensor(t):
            raise DumpError(f"{kind}{name}: an adapter that is a DTensor is not recorded: leave A and B whole on each rank")
        self.file.add(kind + name, _here(t), of=tuple(t.shape))

    # ---- activations ----------------------------------------------------------------------------------------------------------------------------

    def microbatch(self, sequences=None, positions=None, number=None, times=1.0):
        """What the next pass of this rank computes.

        sequences  numbers of its sequences in the whole batch, in order; default: all
        positions  tokens of each sequence that it has, in order; default: all
        number     of the microbatch, if the rank has several
        times      what its gradients of activations must be multiplied by to be those of the loss of the whole batch
        """
        if self.finished:
            return
        B, S = self.batch
        self.passes += 1
        self.now = dict(sequences=np.arange(B) if sequences is None else np.asarray(sequences), number=number, times=times,
                        positions=np.arange(S) if positions is None else np.asarray(positions))
        self.given.append(self.now)
        if len(self.now["positions"]) < S:
            self.seen.add("cp")

    def _is_hidden(self, module, names):
        """Whether a module is inside a compiled one that stays as it is.  Its names are left out then."""
        region = compiling.around(module, self.regions) if self.way == "borders" else None
        if region is not None:
            self.left_out.update({name: f"inside {region or 'the model'}, which is compiled" for name in names})
        return region is not None

    def _hook(self):
        if self.regions and self.way == "inside":
            compiling.reset()
        for w in self.names.watches:
            module = self.modules.get(w.module)
            if module is None or self._is_hidden(w.module, [w.name]):
                continue                                            # another stage's
            if w.side == "output":
                hook = compiling.uncompiled(lambda _m, _i, out, w=w: self._saw(w, out))
                self.handles.append(module.register_forward_hook(hook))
            else:
                # First of all hooks: what a parallel style makes of an input has only this branch's gradient.
                hook = compiling.uncompiled(lambda _m, given, named, w=w: self._saw(w, given or tuple(named.values())))
                self.handles.append(module.register_forward_pre_hook(hook, prepend=True, with_kwargs=True))
        if not self.handles and self.names.watches:
            raise DumpError("the model has none of the modules of its names: is there a prefix before them?")
        self._hook_attention()
        for mixture in self.names.mixtures:
            self._hook_experts(mixture)
        for name, (module, inside, width) in self.names.products.items():
            if module in self.modules and not self._is_hidden(inside, [name]):
                watch = known.Watch(name, module, "output", width, np.arange(width))
                take_back = experts.watch_product(self.modules[module], self.modules[inside], lambda t, w=watch: self._saw(w, t))
                self.handles.append(types.SimpleNamespace(remove=take_back))

    def _hook_experts(self, mixture):
        """Rows of each expert, and which tokens they are."""
        if mixture.module not in self.modules:
            return                                                  # another stage's
        if self._is_hidden(mixture.module, [mixture.weights, *(f"h.{mixture.layer}.{n}" for n in experts.STEPS)]):
            return
        take_back = experts.watch(self.modules[mixture.module], lambda *seen: self._saw_expert(mixture, *seen),
                                  lambda *chosen: self._chose(mixture, *chosen))
        self.handles.append(types.SimpleNamespace(remove=take_back))

    def _rows_of(self, now):
        return token_rows(now["sequences"], now["positions"], self.batch[1])

    def _chose(self, mixture, choices, weights):
        if self.now is not None:
            width = weights.shape[-1]
            self.of_mixture[mixture.layer] = self._keep_both(known.Watch(mixture.weights, mixture.module, "input", width, np.arange(width)), weights)
            self.choices.chose(mixture.layer, self._rows_of(self.of_mixture[mixture.layer]), choices.cpu())

    def _saw_expert(self, mixture, step, expert, tokens, t):
        """t: rows of one expert in one step of its computation."""
        if self.now is None:
            return
        now = self.of_mixture[mixture.layer]
        name, rows, number = f"h.{mixture.layer}.{step}", self._rows_of(now)[tokens.cpu().numpy()], now["number"]
        more = dict(piece=f"e{expert}" + ("" if number is None else f"m{number}"), micro=number)
        times = now["times"]
        if not again.is_again():
            self.choices.keep("act/" + name, mixture, expert, rows, _kept(t), dict(more, times=1.0))
        if t.requires_grad:
            t.register_hook(lambda g: self.choices.keep("grad/" + name, mixture, expert, rows, _kept(g), dict(more, times=times)))

    def _hook_attention(self):
        """Queries and keys after rotary positions are no module's result; transformers hands them to a registered function."""
        inner = lora.inner(_unwrapped(self.model))
        if not any(m in self.modules for m in self.names.layers) or not configs.is_of_transformers(inner):
            return
        config = inner.config
        kind = getattr(config, "_attn_implementation", None)
        try:
            from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as functions
        except ImportError:
            return
        layer_of = {id(self.modules[m]): i for m, i in self.names.layers.items()
                    if m in self.modules and not self._is_hidden(m, [f"h.{i}.attn.rotated"])}
        own = sys.modules[type(next(self.modules[m] for m in self.names.layers if m in self.modules)).__module__]
        inner = functions[kind] if kind in functions else getattr(own, "eager_attention_forward", None) if kind == "eager" else None
        if inner is None or not any(key in json.dumps(list(config.to_dict())) for key in ("rope", "rotary")):
            return
        registered, see = kind in functions, compiling.uncompiled(self.see)

        def watched(module, query, key, value, *args, **kwargs):
            if id(module) in layer_of:
                see(f"h.{layer_of[id(module)]}.attn.rotated", heads=(query, key, value))
            return inner(module, query, key, value, *args, **kwargs)

        functions[kind] = watched
        self.handles.append(type("Restore", (), {"remove": staticmethod(lambda: functions.__setitem__(kind, inner) if registered else functions.__delitem__(kind))}))

    def _saw(self, watch, t):
        t = t.logits if hasattr(t, "logits") else t[watch.item] if isinstance(t, (tuple, list)) else t
        self._keep_both(watch, t, turn=self._tokens_first(watch, t))

    def _tokens_first(self, watch, t):
        """What brings [sequences, heads, tokens, width] to [sequences, tokens, heads, width]."""
        if t.ndim != 4 or self.now is None:
            return lambda x: x
        heads, tokens, turned = watch.heads or 1, len(self.now["positions"]), tuple(t.shape[1:3])
        if tokens == heads and turned == (tokens, tokens):    # the view of a projection's result has its rows apart
            return (lambda x: x.transpose(1, 2)) if t.stride(1) < t.stride(2) else (lambda x: x)
        return (lambda x: x.transpose(1, 2)) if turned == (heads, tokens) else (lambda x: x)

    def see(self, name, t=None, *, heads=None, order="bhsd", explicit=None):
        """Keep a tensor that is no module's input or output, and its gradient.

        name      ours, such as h.0.attn.rotated
        t         [sequences, tokens, columns], all columns of ours or this rank's of tp
        heads     (queries, keys, values) in place of t: the tensors that the model goes on with, not copies or views of them
        order     of their dimensions: "bhsd", "bshd" or "sbhd"
        explicit  (rows, columns) of t: indices of ours, None: all
        """
        if heads is None:
            return self._keep_both(known.Watch(name, "", "", t.shape[-1], np.arange(t.shape[-1])), t, explicit)
        if order not in ("bhsd", "bshd", "sbhd"):
            raise DumpError(f"{name}: order {order!r} is not one of bhsd, bshd, sbhd")
        H, K, A = self.names.heads
        to = [order.index(d) for d in self.names.order[:2] + "hd"]
        for piece, x, start, count in zip("qkv", heads, (0, H * A, (H + K) * A), (H * A, K * A, K * A)):
            if x.shape[order.index("h")] * A > count:
                raise DumpError(f"{name}: {x.shape[order.index('h')]} heads of {piece}, but the model has {count // A}: pass those that are not repeated")
            cols = np.arange(start, start + count)
            if self.names.turned is not None and piece != "v":
                cols = (cols.reshape(-1, A)[:, self.names.turned]).reshape(-1)
            w = known.Watch(name, "", "", (H + 2 * K) * A, cols, piece)
            self._keep_both(w, x, explicit, lambda y: _widened(y.permute(to), A).flatten(2))

    def _keep_both(self, watch, t, explicit=None, turn=lambda x: x):
        """Keep an activation and its gradient.  @return the pass that it is of"""
        if self.now is None:
            return None                                             # not a pass that is recorded
        if again.is_again():
            return self._repeated(watch, t, explicit, turn)
        now = self.now
        if self.is_lora and not t.requires_grad and t.is_floating_point() and torch_is_taping() and t.is_leaf:
            t.requires_grad_(True)                                  # all before it is frozen: its gradient is made for the dump alone
        self._activation("act/", watch, turn(t), now, explicit)
        if t.requires_grad:
            t.register_hook(lambda g: self._activation("grad/", watch, turn(g), now, explicit))
        return now

    def _repeated(self, watch, t, explicit, turn):
        """A checkpointed module computes an activation again.  @return the pass that it is of"""
        name, candidates = "act/" + watch.name, []
        for now in self.given:
            then = self.file.tensors.get(key_of(name, self._piece(watch, now)))
            local = _here(turn(t)) if explicit else self._arranged(watch, turn(t), now)
            if then is not None and local is not None:
                bits, kind = to_numpy(local)
                candidates.append((now, then, (STORED[kind], None, np.ascontiguousarray(bits).tobytes())))
        now, distance, unclear = again.same_pass(name, candidates)
        if distance > 0:
            self.recomputed[name] = max(distance, self.recomputed.get(name, 0.0))

        def keep(g):
            if unclear:
                raise DumpError(f"{name} is the same in several microbatches, so whose gradient this is cannot be told: let them have other sequences")
            self._activation("grad/", watch, turn(g), now, explicit)

        if t.requires_grad:
            t.register_hook(keep)
        return now

    @staticmethod
    def _piece(watch, now):
        return watch.piece + ("" if now["number"] is None else f"m{now['number']}")

    def _activation(self, kind, watch, t, now, explicit):
        name = kind + watch.name
        rows, cols, partial, local = explicit + ((), _here(t)) if explicit else self._cut(name, watch, t, now)
        piece = self._piece(watch, now)
        of = (self.batch[0] * self.batch[1], watch.of)
        self.file.add(name, local.reshape(-1, local.shape[-1]), of=of, piece=piece, rows=rows, cols=cols, partial=partial, micro=now["number"],
                      times=now["times"] if kind == "grad/" else 1.0)

    def _arranged(self, watch, t, now):
        """This rank's numbers [sequences, tokens, columns] of an activation; None: they are not those of so many sequences."""
        local, count = _here(t), len(now["sequences"])
        if local.ndim == 2:                                         # tokens of all sequences in one dimension
            if local.shape[0] % count:
                return None
            local = local.unflatten(0, (count, -1))
        local = local.flatten(2)
        return local.transpose(0, 1) if self.names.order == "sbh" else local

    def _cut(self, name, watch, t, now):
        """(rows, columns, partial, local tensor [sequences, tokens, columns]) of an activation."""
        local, partial, tokens = self._arranged(watch, t, now), (), len(now["positions"])
        if local is None:
            raise DumpError(f"{name}: {t.shape[0]} tokens are not those of {len(now['sequences'])} sequences")
        if _is_dtensor(t):
            if t.ndim < 3:
                raise DumpError(f"{name}: a DTensor of shape {list(t.shape)} has no dimension for sequences: see(explicit=...)")
            index, partial, _ = of_dtensor(t, name)
            b, s, c = index[:2] + [index[2] if t.ndim == 3 else np.arange(local.shape[2])]
        else:
            b = np.arange(local.shape[0])
            s = self._share(name, np.arange(tokens), local.shape[1], "tokens", (tokens,))
            c = self._share(name, np.arange(len(watch.cols)), local.shape[2], "columns", watch.parts)
        if len(s) < tokens and "tp" in self.mesh:
            self.seen.add("sp")
        if len(b) != len(now["sequences"]):
            raise DumpError(f"{name}: {len(b)} sequences, but the microbatch has {len(now['sequences'])}")
        return token_rows(now["sequences"][b], now["positions"][s], self.batch[1]), watch.cols[c], partial, local

    def _share(self, name, whole, count, what, parts):
        """The part of a dimension that a plain tensor has: all of it, or this rank's of tp."""
        if count == len(whole):
            return whole
        mine = of_parts(parts or (len(whole),), self.mesh.get("tp", 1), self.at.get("tp", 0))
        if len(mine) != count:
            raise DumpError(f"{name}: {count} {what} are neither all {len(whole)} nor the {len(mine)} of this rank of tp={self.mesh.get('tp', 1)}")
        return whole[mine]

    # ---- parameters -----------------------------------------------------------------------------------------------------------------------------

    def load_start(self):
        """Give the model the weights that the golden file begins with, each rank its part.  Before start()."""
        if self.names.start is None:
            raise DumpError("load_start() needs golden=, whose weights the model is to have")
        torch = __import__("torch")
        for name, p in self.parameters.items():
            places = self.names.parameters[name]
            if name in self.shards or deepspeed.is_shared(p):
                raise DumpError(f"load_start(): {name} is a flat shard: load the weights before the model is wrapped")
            parts = [self._part_of_start(name, place, p) for place in (places if isinstance(places, list) else [places])]
            with torch.no_grad():
                _here(p).copy_(torch.as_tensor(np.stack(parts) if isinstance(places, list) else parts[0]).reshape(_here(p).shape))
        return self

    def _part_of_start(self, name, place, p):
        whole = self.names.start.weight(place.name)
        if whole is None:
            raise DumpError(f"load_start(): the golden file has no start/{place.name}")
        whole = whole[place.rows].T if place.transposed else whole[place.rows]
        if isinstance(self.names.parameters[name], list):
            return whole if place.of[1] > 1 else whole.reshape(-1)
        index, _, _ = self._cut_parameter("start/" + name, place, p, p)
        return whole[np.ix_(index[0], index[1])]

    def start(self, computed_in=None):
        """The weights before the first step.  computed_in: the torch.dtype to which mixed precision rounds them for each pass."""
        for name, p in self.parameters.items():
            if deepspeed.is_shared(p):
                deepspeed.start(self, name, p, computed_in)
            else:
                self.parameter("start/", name, p, stored_in=computed_in)
        for name, p in self._factors():
            self._factor("start/", name, p)
        return self

    def gradients(self, kind="grad/", times=1.0, partial=()):
        """Gradients as they are after backward: kind is OPT/K/grad/ for those of step K > 1.
        partial: axes over which they have not been added yet."""
        for name, p in self.parameters.items():
            if deepspeed.is_shared(p):
                deepspeed.gradient(self, kind, name, p, times)
            elif self.adapters and not p.requires_grad:
                continue                                            # frozen
            elif p.grad is None and self.shards.get(name) == (0, 0):
                continue                                            # all of it is on other ranks
            elif p.grad is None:
                raise DumpError(f"{kind}{name} is None: gradients() belongs between backward and zero_grad")
            else:
                self.parameter(kind, name, p.grad, like=p, times=times, partial=partial)
        for name, p in self._factors():
            if p.grad is None:
                raise DumpError(f"{kind}{name} is None: gradients() belongs between backward and zero_grad")
            self._factor(kind, name, p.grad)
        if kind == "grad/" and self.handles and self.passes == 0:
            raise DumpError("no pass has been recorded: call microbatch() before each forward pass, without arguments if it has the whole batch")

    def weights(self, optimizer_name, optimizer=None, step=None, last=True):
        """Weights, and the states of a torch.optim optimizer, after a step.  Ours after the last step have no number."""
        kind = self.stepped = f"{optimizer_name}/" + ("" if last else f"{step}/")
        for name, p in self.parameters.items():
            if deepspeed.is_shared(p):
                deepspeed.weight(self, kind, name, p)
                continue
            if self.adapters and not p.requires_grad and not last:
                continue                                            # frozen: that it has not moved is seen after the last step
            self.parameter(kind + "weight/", name, p)
            for state, t in (optimizer.state.get(p, {}) if optimizer else {}).items():
                if state in ("exp_avg", "exp_avg_sq", "momentum_buffer") and t is not None:
                    self.parameter(f"{kind}{state}/", name, t, like=p)
        for name, p in self._factors():
            self._factor(kind + "weight/", name, p)
            for state, t in (optimizer.state.get(p, {}) if optimizer else {}).items():
                if state in ("exp_avg", "exp_avg_sq", "momentum_buffer") and t is not None:
                    self._factor(f"{kind}{state}/", name, t)

    def parameter(self, kind, theirs, t, like=None, times=1.0, partial=(), file=None, explicit=None, stored_in=None):
        """A tensor of a parameter's shape: the parameter itself, its gradient, a state.  like: where partition attributes are."""
        if theirs in self.shards and explicit is None:
            begin, count = self.shards[theirs]
            return self.flat(kind, theirs, t if stored_in is None else t.to(stored_in), begin, count, times, partial) if count else None
        place = self.names.parameters[theirs]
        if isinstance(place, list):
            return self._experts(kind, theirs, place, t, times, partial, file, stored_in)
        index, more, factor = explicit or self._cut_parameter(kind + theirs, place, t, t if like is None else like)
        rows, cols = (index[1], index[0]) if place.transposed else (index[0], index[1])
        local = _here(t) if stored_in is None else _here(t).to(stored_in)
        (file or self.file).add(kind + place.name, local, of=place.of, piece=place.piece, rows=place.rows[rows], cols=cols,
                                partial={*partial, *more}, transposed=place.transposed, times=times * factor)

    def _experts(self, kind, theirs, places, t, times, partial, file, stored_in):
        """A tensor of all experts, which are different parameters of ours."""
        if _is_dtensor(t) or len(t) != len(places):
            raise DumpError(f"{kind}{theirs}: all {len(places)} experts must be whole on this rank")
        local = t if stored_in is None else t.to(stored_in)
        for place, one in zip(places, local):
            (file or self.file).add(kind + place.name, one, of=place.of, rows=place.rows, partial=partial, transposed=place.transposed, times=times)

    def _cut_parameter(self, what, place, t, like):
        """(index of each dimension, partial, factor) of a parameter.  A vector has one column."""
        whole = [len(place.rows), place.of[1]]
        if place.transposed:
            whole.reverse()
        if _is_dtensor(t):
            index, partial, factor = of_dtensor(t, what)
            if list(t.shape) != whole[:t.ndim]:
                raise DumpError(f"{what}: a DTensor of {list(t.shape)}, but the whole is {whole}")
            return index + [np.arange(1)] * (2 - t.ndim), partial, factor
        index, dim = [np.arange(n) for n in whole], getattr(like, "partition_dim", -1)
        if getattr(like, "tensor_model_parallel", False) and dim >= 0:
            parts = place.parts if getattr(like, "partition_stride", 1) > 1 or place.parts else ()
            index[dim] = of_parts(parts or (whole[dim],), self.mesh.get("tp", 1), self.at.get("tp", 0))
        elif t.ndim in (1, 2):
            for dim, what_of in zip(range(t.ndim), ("rows", "columns")):
                parts = place.parts if dim == (1 if place.transposed else 0) else ()
                index[dim] = self._share(what, index[dim], t.shape[dim], what_of, parts)
        return index, (), 1.0

    def flat(self, kind, theirs, t, begin, count, times=1.0, partial=()):
        """Elements begin .. begin + count - 1 of a parameter in row-major order, as flat shards have them."""
        place = self.names.parameters[theirs]
        if isinstance(place, list):
            raise DumpError(f"{kind}{theirs}: a flat shard of a tensor of all experts is no run of elements of one of ours")
        columns = place.of[1]
        start = 0 if place.transposed else int(place.rows[0]) * columns
        if not np.array_equal(place.rows, np.arange(place.rows[0], place.rows[0] + len(place.rows))):
            raise DumpError(f"{kind}{theirs}: its rows are not one interval of {place.name}, so a flat shard is no run of elements")
        self.file.add_flat(kind + place.name, _here(t), of=place.of, begin=start + begin, count=count, piece=place.piece, times=times, partial=partial,
                           transposed=place.transposed)

    # ---- gradients before they are reduced ----------------------------------------------------------------------------------------------------------

    def _keep_before(self, file, axes):
        """Autograd gives a leaf's gradient to its hooks before DDP or DeepSpeed reduce it; FSDP2's parameters are no leaves then."""
        self.before = (file, axes, {})
        for name, p in self.parameters.items():
            if _is_dtensor(p) or name in self.shards:
                raise DumpError(f"before: {name} is sharded by FSDP, so its gradient is reduced before it can be seen")
            self.handles.append(p.register_hook(lambda g, name=name: self._local_gradient(name, g)))

    def _local_gradient(self, name, g):
        kept = self.before[2]
        if self.now is not None:
            g = g.detach().to(_float32()) * self.now["times"]
            kept[name] = kept[name] + g if name in kept else g.clone()

    # ---- the rest -----------------------------------------------------------------------------------------------------------------------------------

    def number(self, name, value, **more):
        """loss, norm: a single number; partial=("dp",) if each rank has a part of it."""
        self.file.number(name, value, **more)

    def numbers(self, name, values):
        """OPT/loss, OPT/norm: one number for each step."""
        self.file.numbers(name, values)

    def stop(self):
        """Later passes are not recorded."""
        for handle in self.handles:
            handle.remove()
        if self.handles and self.regions and self.way == "inside":
            compiling.reset()                                       # later passes are compiled as if there had been no hooks
        self.handles, self.now = [], None

    def finish(self, loss=None, **more):
        """After the backward pass: gradients, the loss of the batch, and the file.  Later passes, and later calls, do nothing.
        more: as number() takes, partial=("dp",) if each rank has a part of the loss."""
        if self.finished:
            return
        self.gradients()
        if loss is not None:
            self.number("loss", loss, **more)
        self.save()
        self.finished = True

    def _tell(self):
        """What cannot be in the file, and what is in it although the backward pass went on from other numbers."""
        recorded = {key.partition("#")[0] for key in self.file.tensors}
        self.left_out = {name: why for name, why in self.left_out.items() if "act/" + name not in recorded and not self.file.is_declared("act/" + name)}
        self.file.left_out.update(self.left_out)
        if self.file.rank != 0:
            return
        for theirs, ours, _, _ in rows_of_text(Proposal(self.names.matched, dict.fromkeys(self.names.matched, "numbers"))):
            print(f"orrery_dump: {theirs} is taken to be {ours}", file=sys.stderr)
        for line in said_turned(self.names.transposed):
            print("orrery_dump: " + line, file=sys.stderr)
        for line in said(self.left_out):
            print("orrery_dump: " + line, file=sys.stderr)
        if self.recomputed:
            worst = max(self.recomputed, key=self.recomputed.get)
            print(f"orrery_dump: checkpointing computes {len(self.recomputed)} activations otherwise in the backward pass, first {next(iter(self.recomputed))}, "
                  f"most {worst}, by {self.recomputed[worst]:.1e}: gradients follow from these, the file has the forward pass's", file=sys.stderr)

    def save(self, step=None):
        """Write the file of this rank, or that of a step: what was recorded since the step before it, for orrery check --watch.
        Refused if a mode that was asked for did not show."""
        modes.check_seen(self.mode, self.seen)
        if self.passes and self.way == "inside":
            recorded = {key.partition("#")[0].partition("/")[2] for key in self.file.tensors if key.startswith("act/")}
            compiling.check_seen(self.model, clean, self.names.watches, recorded)
        self.stop()
        if self.passes:
            self._tell()
        if step is not None and self.stepped:
            for name, p in ((n, p) for n, p in self.parameters.items() if self.adapters and not p.requires_grad):
                self.parameter(self.stepped + "weight/", name, p)   # the next step's file begins with them
        if step is None or step == 1:
            self.choices.write(self.file)
        if self.before and (step is None or step == 1):
            file, axes, kept = self.before
            for name, g in kept.items():
                self.parameter("grad/", name, g, like=self.parameters[name], partial=axes, file=file)
            file.share_inputs(self.file)
            file.save()
        return self.file.save(step)


def said_turned(transposed):
    """Lines that say which matrices are taken to be [in, out], layers together."""
    of = {}
    for name, why in transposed.items():
        of.setdefault((starred(name)[0], why), []).append(name)
    return [f"{name} is transposed, [in, out], as {why} says ({len(names)})" for (name, why), names in of.items()]


def torch_is_taping():
    return __import__("torch").is_grad_enabled()


def said(left_out):
    """Lines that say what is left out, layers together."""
    of = {}
    for name, why in left_out.items():
        starred = tuple(re.sub(r"(?<=\.)\d+(?=\.|,| |$)", "*", x) for x in (name, why))
        of.setdefault(starred, []).append(name)
    return [f"{name} is not recorded ({len(names)}): {why}" for (name, why), names in of.items()]


def _kept(t):
    """A copy of a tensor's numbers, which the program may change later."""
    return t.detach().clone()


def _widened(t, width):
    """Heads of values that are narrower than queries, with ours' zeros beside them."""
    return t if t.shape[-1] == width else __import__("torch").nn.functional.pad(t, (0, width - t.shape[-1]))


def _float32():
    return __import__("torch").float32
