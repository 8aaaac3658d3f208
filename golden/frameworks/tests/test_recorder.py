"""Files, names, modes and hooks, each on one process; folders are joined by a reader that shares nothing with the package."""
import json
import pathlib
import tempfile
import types
import unittest

import numpy as np
import safetensors
import torch
import transformers

import reader
from orrery_dump import DumpError, RankFile, Recorder, modes
from orrery_dump import names as known
from orrery_dump.names import Names, Place, Watch
from orrery_dump.of_golden import of_golden
from orrery_dump.recorder import clean

LLAMA = dict(model_type="llama", vocab_size=11, hidden_size=12, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=6,
             intermediate_size=10, max_position_embeddings=8)


def llama():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**{k: v for k, v in LLAMA.items() if k != "model_type"}, use_cache=False)
    return transformers.LlamaForCausalLM(config).double()


class Folder(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        self.addCleanup(self.temporary.cleanup)

    def file(self, rank=0, dp=1, **more):
        return RankFile(self.folder, rank, {"dp": dp}, {"dp": rank}, **more)


class Steps(Folder):
    """A file of each step, with what was added since the step before; it gets its name when it is whole."""

    def test_each_step_has_its_own(self):
        file = self.file(rank=1, dp=2)
        file.add("grad/w", np.zeros((2, 3)), of=(2, 6), cols=range(3, 6))
        self.assertEqual(file.save(1).name, "step1.rank1.safetensors")
        file.add("adamw/2/grad/w", np.ones((2, 6)), of=(2, 6))
        file.number("adamw/2/norm", 3.0)
        second = file.save(2)
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["step1.rank1.safetensors", "step2.rank1.safetensors"])
        with safetensors.safe_open(second, "np") as f:
            self.assertEqual(sorted(f.keys()), ["adamw/2/grad/w", "adamw/2/norm"])
            self.assertEqual(list(json.loads(f.metadata()["layout"])), ["adamw/2/grad/w"])
        with self.assertRaisesRegex(DumpError, "has recorded nothing"):
            file.save(3)


class GoldenNames(Folder):
    """What a golden file tells; one of a Llama's layer whose heads are normed, which has two matrices."""

    def golden(self, names):
        path = self.folder / "golden.safetensors"
        header = json.dumps({"__metadata__": {} if names is None else {"names": json.dumps(names)}}).encode()
        path.write_bytes(len(header).to_bytes(8, "little") + header)
        return path

    def parameter(self, name, rows, columns, parts, layer=0):
        parts = [dict(name=n, rows=r, apart=1, first=0, together=1, items=0, item=0) for n, r in parts]
        return dict(name=name, layer=layer, expert=-1, role="", rows=rows, columns=columns, transposed=False, parts=parts)

    def told(self):
        at = "model.layers.0."
        node = lambda out, by, parameter, *read: dict(out=out, by=by, layer=0, kept=True, **({"parameter": parameter} if parameter else {}), **{"in": list(read)})
        qkv, norms = at + "self_attn.qkv_proj.weight", at + "self_attn.qk_norm.weight"
        return dict(query_heads=4, key_heads=2, head_width=6, latent=False, layers=[at[:-1]], parameters=[
            self.parameter("model.embed_tokens.weight", 11, 12, [("model.embed_tokens.weight", 11)], -1),
            self.parameter(at + "input_layernorm.weight", 12, 1, [(at + "input_layernorm.weight", 12)]),
            self.parameter(qkv, 48, 12, [(f"{at}self_attn.{n}_proj.weight", r) for n, r in (("q", 24), ("k", 12), ("v", 12))]),
            self.parameter(norms, 12, 1, [(f"{at}self_attn.{n}_norm.weight", 6) for n in "qk"])], nodes=[
            node("h.0.ln_1", "norm", at + "input_layernorm.weight", "embedding"), node("h.0.attn.qkv", "matrix", qkv, "h.0.ln_1"),
            node("h.0.attn.normed", "head norm", norms, "h.0.attn.qkv"), node("h.0.inside", "", None, "h.0.attn.normed")])


class OfGolden(GoldenNames):
    def test_a_file_without_names(self):
        with self.assertRaisesRegex(DumpError, "its metadata has no names: make it with orrery golden make"):
            of_golden(self.golden(None), llama())

    def test_modules_of_weights(self):
        torch.manual_seed(0)
        config = transformers.Qwen3Config(**{**LLAMA, "model_type": "qwen3", "num_hidden_layers": 1}, use_cache=False)
        names = of_golden(self.golden(self.told()), transformers.Qwen3ForCausalLM(config))
        place = names.parameters["model.layers.0.self_attn.k_proj.weight"]
        self.assertEqual((place.name, place.of, place.rows.tolist()), ("model.layers.0.self_attn.qkv_proj.weight", (48, 12), list(range(24, 36))))
        found = {(w.name, w.module.rpartition(".")[2], w.side): (w.cols[0], len(w.cols)) for w in names.watches}
        self.assertEqual(found["h.0.ln_1", "input_layernorm", "output"], (0, 12))
        self.assertEqual(found["h.0.attn.qkv", "v_proj", "output"], (36, 12))
        self.assertEqual(found["h.0.attn.normed", "k_norm", "output"], (24, 12))
        self.assertEqual(found["h.0.attn.normed", "v_proj", "output"], (36, 12))
        self.assertEqual(names.left_out, {"h.0.inside": "inside a module; see() keeps it"})

    def test_heads_before_tokens_are_turned(self):
        told = self.told()
        config = transformers.Qwen3Config(**{**LLAMA, "model_type": "qwen3", "num_hidden_layers": 1}, use_cache=False)
        model = transformers.Qwen3ForCausalLM(config)
        for tokens in (4, 5):                                       # as many as heads: only the strides tell them apart
            recorder = Recorder(model, None, self.folder, batch=(1, tokens), names=Names(dict(of_golden(self.golden(told), model).parameters,
                                **{n: Place(n, (1, 1), np.arange(1)) for n, _ in model.named_parameters()}), []))
            recorder.microbatch()
            rows, watch = torch.randn(1, tokens, 4, 6), Watch("x", "", "output", 24, np.arange(24), heads=4)
            for t in (rows, rows.transpose(1, 2)):
                self.assertTrue(torch.equal(recorder._tokens_first(watch, t)(t), rows))


class GptOss(Folder):
    """One tensor of theirs is many of ours."""

    def test_experts_are_parameters_of_their_own(self):
        E, D, F = 3, 8, 5
        torch.manual_seed(0)
        model = transformers.GptOssForCausalLM(transformers.GptOssConfig(
            vocab_size=11, hidden_size=D, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=6, intermediate_size=F,
            num_local_experts=E, num_experts_per_tok=2, max_position_embeddings=8, sliding_window=4, use_cache=False)).double()
        recorder = Recorder(model, None, self.folder, batch=(1, 4), dtype="fp64")
        recorder.start()
        recorder.save()
        joined, experts = reader.join(self.folder), model.model.layers[1].mlp.experts
        at = "start/model.layers.1.mlp.experts.2."
        for ours, theirs in ((joined[at + "gate_up_proj.weight"], experts.gate_up_proj[2].T), (joined[at + "gate_up_proj.bias"], experts.gate_up_proj_bias[2][:, None])):
            self.assertEqual(ours.tolist(), torch.cat([theirs[::2], theirs[1::2]]).tolist())
        self.assertEqual(joined[at + "down_proj.weight"].tolist(), experts.down_proj[2].T.tolist())
        self.assertEqual(joined["start/model.layers.1.self_attn.sinks.weight"].tolist(), model.model.layers[1].self_attn.sinks[:, None].tolist())
        self.assertEqual(len(joined), 3 + 2 * (4 + 2 + 1 + 2 + 4 * E))         # norms and projections with biases of qkv and the output

    def mixture(self, **more):
        torch.manual_seed(0)
        config = transformers.GptOssConfig(
            vocab_size=11, hidden_size=8, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=6, intermediate_size=5,
            num_local_experts=3, num_experts_per_tok=2, max_position_embeddings=8, sliding_window=4, use_cache=False, attn_implementation="eager")
        config._experts_implementation = more.get("experts", "eager")
        model = transformers.GptOssForCausalLM(config).double()
        for p in model.parameters():
            torch.nn.init.normal_(p, std=0.5)
        return model

    def recorded(self, model, ids, folder, batches):
        recorder = Recorder(model, None, folder, batch=tuple(ids.shape), dtype="fp64")
        for i, sequences in enumerate(batches):
            recorder.microbatch(sequences=sequences, number=i if len(batches) > 1 else None)
            model(input_ids=ids[sequences]).logits.pow(2).sum().backward()
        recorder.save()
        return reader.join(folder)

    def test_rows_of_experts_are_those_of_the_batch(self):
        model, ids = self.mixture(), torch.randint(0, 11, (3, 4))
        whole = self.recorded(model, ids, self.folder / "whole", [[0, 1, 2]])
        apart = self.recorded(model, ids, self.folder / "apart", [[2], [0, 1]])
        self.assertEqual(set(whole), set(apart))
        self.assertIn("grad/h.1.attn.rotated", whole)
        for name in whole:
            np.testing.assert_allclose(apart[name], whole[name], rtol=1e-12, atol=1e-14, err_msg=name)
        for layer in range(2):
            at, experts = f"act/h.{layer}.", model.model.layers[layer].mlp.experts
            chosen = np.argsort(-whole[at + "router.logits"], axis=1, kind="stable")[:, :2]
            rows = sorted((e, t) for t in range(12) for e in chosen[t])
            for i, (e, t) in enumerate(rows):
                up = torch.from_numpy(whole[at + "ln_2"][t]) @ experts.gate_up_proj[e] + experts.gate_up_proj_bias[e]
                act = torch.from_numpy(whole[at + "mlp.act"][i])
                self.assertTrue(np.allclose(whole[at + "mlp.up"][i], torch.cat([up[::2], up[1::2]]).detach(), rtol=1e-12))
                self.assertTrue(np.allclose(whole[at + "experts.out"][i], (act @ experts.down_proj[e] + experts.down_proj_bias[e]).detach(), rtol=1e-12))
                weight = whole[at + "router.weights"][t, list(chosen[t]).index(e)]
                self.assertTrue(np.allclose(whole[f"grad/h.{layer}.experts.out"][i], weight * whole[f"grad/h.{layer}.mlp.out"][t], rtol=1e-12))
                self.assertTrue(np.allclose(whole[f"grad/h.{layer}.mlp.act"][i], whole[f"grad/h.{layer}.experts.out"][i] @ experts.down_proj[e].detach().numpy().T))

    def test_forward_is_given_back(self):
        model = self.mixture()
        recorder = Recorder(model, None, self.folder, batch=(1, 4))
        self.assertIn("forward", vars(model.model.layers[0].mlp.experts))
        recorder.stop()
        self.assertNotIn("forward", vars(model.model.layers[0].mlp.experts))

    def test_experts_that_are_not_seen_are_refused(self):
        model = self.mixture(experts="batched_mm")
        with self.assertRaisesRegex(DumpError, r"model.layers.0.mlp.experts: nothing of its experts was seen: set config._experts_implementation"):
            self.recorded(model, torch.randint(0, 11, (1, 4)), self.folder, [[0]])

    def test_choices_of_other_ranks_must_be_known(self):
        model, ids = self.mixture(), torch.randint(0, 11, (2, 4))
        with self.assertRaisesRegex(DumpError, r"h.0.experts: the choices of 4 of 8 tokens are known"):
            self.recorded(model, ids, self.folder, [[1]])

    def test_a_part_of_the_experts_is_refused(self):
        config = transformers.GptOssConfig(vocab_size=11, hidden_size=8, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, head_dim=6,
                                           intermediate_size=5, num_local_experts=3, num_experts_per_tok=2, max_position_embeddings=8)
        model = transformers.GptOssForCausalLM(config)
        recorder = Recorder(model, None, self.folder, batch=(1, 4))
        with self.assertRaisesRegex(DumpError, "start/model.layers.0.mlp.experts.down_proj: all 3 experts must be whole on this rank"):
            recorder.parameter("start/", "model.layers.0.mlp.experts.down_proj", model.model.layers[0].mlp.experts.down_proj[:2])


class Files(Folder):
    def test_every_format_keeps_its_bits(self):
        values = torch.tensor([[1.5, -2.0], [0.25, 3.0]])
        f = self.file(dtype="bf16", program="test", parts=3)
        for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
            f.add(f"act/{dtype}", values.to(dtype), of=(2, 2))
        tensors, meta, formats = reader.read_file(f.save())
        self.assertEqual(sorted(formats.values()), ["BF16", "F16", "F32", "F64"])
        self.assertEqual((meta["dtype"], meta["program"], meta["parts"], meta["mesh"]), ("bf16", "test", "3", '{"dp": 1}'))
        for t in tensors.values():
            self.assertEqual(t.tolist(), values.tolist())

    def test_pieces_of_every_kind_join(self):
        whole = np.arange(35.0).reshape(5, 7)
        for r in range(2):
            f = self.file(r, 2)
            rows, cols = np.arange(5)[::-1][r::2], np.array([6, 0, 1, 2, 3, 4, 5])
            f.add("act/boxes", whole[np.ix_(rows, cols)], of=(5, 7), rows=rows, cols=cols)
            f.add("act/turned", whole[r::2].T, of=(5, 7), rows=np.arange(5)[r::2], transposed=True)
            f.add("act/part", whole * (0.25, 0.75)[r], of=(5, 7), partial=("dp",), times=2.0)
            f.add_flat("grad/flat", np.concatenate([whole.reshape(-1)[r * 18:r * 18 + 18], np.full(1 + r, np.nan)]), of=(5, 7), begin=18 * r,
                       count=18 - r)
            f.add_flat("grad/flat.turned", whole.T.reshape(-1)[r * 18:r * 18 + 18], of=(5, 7), begin=18 * r, count=18 - r, transposed=True)
            f.number("loss", 1.25 + r, partial=("dp",))
            f.save()
        joined = reader.join(self.folder)
        self.assertEqual(joined.pop("loss").tolist(), [[3.5]])
        self.assertEqual(joined.pop("act/part").tolist(), (2 * whole).tolist())
        self.assertEqual(sorted(joined), ["act/boxes", "act/turned", "grad/flat", "grad/flat.turned"])
        for name, t in joined.items():
            self.assertEqual(t.tolist(), whole.tolist(), name)

    def test_refusals(self):
        f = self.file()
        with self.assertRaisesRegex(DumpError, "rank 0 has recorded nothing"):
            f.save()
        with self.assertRaisesRegex(DumpError, r"act/x: \[3, 4\] is stored, but its layout has 2 rows and 4 columns of \[5, 4\]"):
            f.add("act/x", np.zeros((3, 4)), of=(5, 4), rows=np.arange(2))
        f.add("act/y", np.zeros((3, 4)), of=(3, 4))
        with self.assertRaisesRegex(DumpError, "act/y is recorded twice on rank 0"):
            f.add("act/y", np.ones((3, 4)), of=(3, 4))
        with self.assertRaisesRegex(DumpError, "format int64 is not one of"):
            f.add("act/z", np.zeros((3, 4), np.int64), of=(3, 4))
        with self.assertRaisesRegex(DumpError, "mesh axis 'data' is not one of pp, dp, cp, ep, tp"):
            RankFile(self.folder, 0, {"data": 2}, {"data": 0})


class Models(Folder):
    def test_llama_whole(self):
        model = llama()
        recorder = Recorder(model, None, self.folder, batch=(2, 5))
        recorder.start()
        ids = torch.arange(10).reshape(2, 5)
        for b in (1, 0):
            recorder.microbatch(sequences=[b], number=b)
            model(input_ids=ids[b:b + 1]).logits.square().sum().backward()
        recorder.gradients()
        recorder.stop()
        model(input_ids=ids)                                        # not recorded
        recorder.save()
        joined, layer = reader.join(self.folder), model.model.layers[1]
        qkv = [layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj]
        self.assertTrue(np.array_equal(joined["start/model.layers.1.self_attn.qkv_proj.weight"], torch.cat([m.weight for m in qkv]).detach()))
        self.assertTrue(np.array_equal(joined["grad/model.layers.1.self_attn.qkv_proj.weight"], torch.cat([m.weight.grad for m in qkv])))
        self.assertTrue(np.allclose(joined["act/logits"], model(input_ids=ids).logits.detach().reshape(10, 11), rtol=1e-12, atol=0))
        self.assertTrue(np.allclose(joined["grad/logits"], 2 * joined["act/logits"]))
        expected = {f"{kind}/{w.name}" for w in recorder.names.watches for kind in ("act", "grad")}
        expected |= {f"{kind}/h.{i}.attn.rotated" for i in range(2) for kind in ("act", "grad")}
        expected |= {f"{kind}/{recorder.names.parameters[n].name}" for n in recorder.parameters for kind in ("start", "grad")}
        self.assertEqual(set(joined), expected)

    def test_gpt2_matrices_are_transposed(self):
        torch.manual_seed(0)
        config = transformers.GPT2Config(vocab_size=11, n_positions=8, n_embd=6, n_layer=1, n_head=2, n_inner=10)
        model = transformers.GPT2LMHeadModel(config)
        recorder = Recorder(model, None, self.folder, batch=(1, 4))
        recorder.start()
        recorder.save()
        joined = reader.join(self.folder)
        self.assertTrue(np.array_equal(joined["start/h.0.attn.c_attn.weight"], model.transformer.h[0].attn.c_attn.weight.detach().T))
        self.assertNotIn("start/lm_head.weight", joined)            # tied

    def test_a_stage_has_layers_of_its_own(self):
        names = known.llama(LLAMA, layers=[1], offset=1)
        self.assertEqual(names.parameters["model.layers.0.self_attn.k_proj.weight"].name, "model.layers.1.self_attn.qkv_proj.weight")
        self.assertEqual({w.name for w in names.watches if w.module == "model.layers.0"}, {"h.1.out"})

    def test_megatron_is_interleaved(self):
        place = known.megatron(LLAMA).parameters["decoder.layers.0.self_attention.linear_qkv.weight"]
        self.assertEqual(place.rows.reshape(-1, 6)[:, 0].tolist(), [0, 6, 24, 36, 12, 18, 30, 42])

    def test_plain_tensors_are_cut_as_their_shape_says(self):
        model = llama()
        recorder = Recorder(model, ({"tp": 2}, {"tp": 1}), self.folder, batch=(2, 4))
        recorder.microbatch(sequences=[1])
        watch = next(w for w in recorder.names.watches if w.piece == "k")
        rows, cols, partial, _ = recorder._cut("act/x", watch, torch.zeros(1, 2, 6), recorder.now)
        self.assertEqual((rows.tolist(), cols.tolist(), partial), ([6, 7], list(range(30, 36)), ()))
        with self.assertRaisesRegex(DumpError, "act/x: 5 columns are neither all 12 nor the 6 of this rank of tp=2"):
            recorder._cut("act/x", watch, torch.zeros(1, 4, 5), recorder.now)
        with self.assertRaisesRegex(DumpError, "act/x: 2 sequences, but the microbatch has 1"):
            recorder._cut("act/x", watch, torch.zeros(2, 4, 6), recorder.now)

    def test_refusals(self):
        model = llama()
        with self.assertRaisesRegex(DumpError, "no names are known for model_type 'bert'"):
            known.of_config({"model_type": "bert"})
        with self.assertRaisesRegex(DumpError, "mesh has no names"):
            Recorder(model, types.SimpleNamespace(mesh_dim_names=None), self.folder, batch=(1, 4))
        recorder = Recorder(model, None, self.folder, batch=(1, 4))
        with self.assertRaisesRegex(DumpError, "grad/model.embed_tokens.weight is None"):
            recorder.gradients()
        model(input_ids=torch.zeros(1, 4, dtype=torch.long)).logits.sum().backward()
        with self.assertRaisesRegex(DumpError, "no pass has been recorded: call microbatch"):
            recorder.gradients()
        model.model.layers[0].mlp.extra = torch.nn.Linear(2, 2)
        with self.assertRaisesRegex(DumpError, "parameter model.layers.0.mlp.extra.weight has no name of ours"):
            Recorder(model, None, self.folder, batch=(1, 4))


def recorded(model, folder, batches=((0, 1),), backward_last=False, **more):
    """What a dump of a Llama has; each microbatch has sequences of four tokens."""
    ids = torch.arange(16).reshape(4, 4) % 11
    recorder = Recorder(model, None, folder, batch=(sum(map(len, batches)), 4), dtype="fp64", **more)
    losses = []
    for number, of in enumerate(batches):
        recorder.microbatch(sequences=of, number=number)
        losses.append(model(input_ids=ids[list(of)]).logits.square().sum())
        if not backward_last:
            losses[-1].backward()
    for loss in losses if backward_last else ():
        loss.backward()
    recorder.finish()
    return recorder, reader.join(folder)


class Again(Folder):
    """Activation checkpointing: what the forward pass computes is kept, gradients are there once, and microbatches are not mixed up."""

    def checkpointed(self, reentrant):
        model = llama()
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        model.enable_input_require_grads()
        return model.train()

    def test_it_is_as_without(self):
        _, plain = recorded(llama(), self.folder / "plain", ((0, 1), (2, 3)))
        for reentrant in (False, True):
            recorder, again = recorded(self.checkpointed(reentrant), self.folder / str(reentrant), ((0, 1), (2, 3)), backward_last=True)
            self.assertEqual((set(again), recorder.recomputed), (set(plain), {}))
            for name, t in plain.items():
                np.testing.assert_allclose(again[name], t, rtol=1e-12, atol=1e-15, err_msg=f"{name}, reentrant {reentrant}")

    def test_what_is_computed_otherwise_is_said(self):
        for reentrant in (False, True):
            model, times = self.checkpointed(reentrant), []
            model.model.layers[1].mlp.up_proj.register_forward_hook(lambda m, i, out: times.append(0) or out * (1 + (len(times) == 2)), prepend=True)
            recorder, joined = recorded(model, self.folder / f"{reentrant}")
            _, plain = recorded(llama(), self.folder / "plain" / f"{reentrant}")
            self.assertAlmostEqual(recorder.recomputed["act/h.1.mlp.up"], 1.0, delta=0.5)
            self.assertNotIn("act/h.1.ln_2", recorder.recomputed)
            self.assertNotIn("act/h.0.mlp.up", recorder.recomputed)
            np.testing.assert_allclose(joined["act/h.1.mlp.up"], plain["act/h.1.mlp.up"], rtol=1e-12)

    def test_microbatches_with_the_same_tokens(self):
        with self.assertRaisesRegex(DumpError, "is the same in several microbatches, so whose gradient this is cannot be told"):
            model = self.checkpointed(True)
            recorder = Recorder(model, None, self.folder, batch=(2, 4))
            losses = []
            for number in range(2):
                recorder.microbatch(sequences=[number], number=number)
                losses.append(model(input_ids=torch.zeros(1, 4, dtype=torch.long)).logits.sum())
            losses[0].backward()

    def test_a_pass_that_was_not_recorded(self):
        model = self.checkpointed(True)
        recorder = Recorder(model, None, self.folder, batch=(1, 4))
        loss = model(input_ids=torch.zeros(1, 4, dtype=torch.long)).logits.sum()
        recorder.microbatch()
        with self.assertRaisesRegex(DumpError, "is computed in the backward pass, but not in a forward pass that was recorded"):
            loss.backward()


class Compiled(Folder):
    def test_inside_after_it_was_compiled(self):
        _, plain = recorded(llama(), self.folder / "plain")
        model = torch.compile(llama(), backend="aot_eager")
        model(input_ids=torch.zeros(2, 4, dtype=torch.long))
        recorder, inside = recorded(model, self.folder / "inside")
        self.assertEqual((set(inside), recorder.left_out), (set(plain), {}))
        for name, t in plain.items():
            np.testing.assert_allclose(inside[name], t, rtol=1e-12, atol=1e-15, err_msg=name)

    def test_borders(self):
        model = llama()
        model.model.layers[1].compile(backend="aot_eager")
        recorder, joined = recorded(model, self.folder, compiled="borders")
        of_layer = {n for n in recorder.left_out if n.startswith("h.1.")}
        self.assertEqual(set(recorder.left_out), of_layer)
        self.assertEqual(len(of_layer), 10)                         # all but h.1.out
        self.assertEqual(set(recorder.left_out.values()), {"inside model.layers.1, which is compiled"})
        self.assertLessEqual({"act/h.1.out", "grad/h.1.out", "act/h.0.mlp.act", "act/h.0.attn.rotated"}, set(joined))
        _, meta, _ = reader.read_file(self.folder / "rank0.safetensors")
        self.assertEqual(json.loads(meta["left_out"]), recorder.left_out)

    def test_refusals(self):
        model = torch.compile(llama(), backend="aot_eager", fullgraph=True)
        with self.assertRaisesRegex(DumpError, "the model is compiled with fullgraph=True, so hooks inside it cannot run"):
            Recorder(model, None, self.folder, batch=(1, 4))
        with self.assertRaisesRegex(DumpError, "compiled 'no' is not one of inside, borders"):
            Recorder(llama(), None, self.folder, batch=(1, 4), compiled="no")

    def test_a_module_that_was_traced_without_hooks(self):
        model, ids = llama(), torch.zeros(1, 4, dtype=torch.long)
        recorder = Recorder(model, None, self.folder, batch=(1, 4))
        recorder.stop()                                             # hooks are away while the model is traced
        model.model.layers[0].mlp.compile(backend="aot_eager")
        model(input_ids=ids)
        recorder._hook()
        recorder.microbatch()
        model(input_ids=ids).logits.sum().backward()
        with self.assertRaisesRegex(DumpError, r"model.layers.0.mlp is compiled, and hooks of model.layers.0.mlp.\w+ inside it did not run"):
            recorder.save()


class Wrapped(Folder):
    """The prefixes of wrappers are in no name."""

    def test_wrappers_around_wrappers(self):
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
        self.assertEqual(clean("module._orig_mod._fsdp_wrapped_module.h.0._checkpoint_wrapped_module.mlp.weight"), "h.0.mlp.weight")
        _, plain = recorded(llama(), self.folder / "plain")
        model = llama()
        for i, layer in enumerate(model.model.layers):
            model.model.layers[i] = checkpoint_wrapper(layer)
        model = torch.compile(model, backend="aot_eager")
        _, wrapped = recorded(model, self.folder / "wrapped")
        self.assertEqual(set(wrapped), set(plain))
        for name, t in plain.items():
            np.testing.assert_allclose(wrapped[name], t, rtol=1e-12, atol=1e-15, err_msg=name)


class Fused(GoldenNames):
    """Modules that have the weights of several operations."""

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.layers = torch.nn.Embedding(11, 12), torch.nn.ModuleList([torch.nn.Module()])
            self.layers[0].qkv = torch.nn.Module()
            self.layers[0].qkv.norm, self.layers[0].qkv.weight = torch.nn.Parameter(torch.ones(12)), torch.nn.Parameter(torch.ones(48, 12))

    def told(self):
        told = super().told()
        told["nodes"] = told["nodes"][:2] + [dict(told["nodes"][3], **{"in": ["h.0.attn.qkv"]})]
        told["parameters"] = told["parameters"][:3]
        return told

    NAMES = {"embedding.weight": "model.embed_tokens.weight", "layers.*.qkv.norm": "model.layers.*.input_layernorm.weight",
              "layers.*.qkv.weight": "model.layers.*.self_attn.qkv_proj.weight"}

    def test_what_is_between_is_left_out(self):
        names = of_golden(self.golden(self.told()), self.Model(), self.NAMES)
        self.assertEqual({(w.name, w.module, w.side) for w in names.watches}, {("h.0.attn.qkv", "layers.0.qkv", "output")})
        self.assertEqual(names.left_out, {"h.0.ln_1": "inside layers.0.qkv", "h.0.inside": "inside a module; see() keeps it"})
        self.assertEqual(names.parameters["layers.0.qkv.weight"].of, (48, 12))

    def test_what_a_module_returns(self):
        names = of_golden(self.golden(self.told()), self.Model(), self.NAMES, {"layers.*.qkv": ("h.*.attn.qkv", None, "h.*.ln_1")})
        self.assertEqual({(w.name, w.item, w.of) for w in names.watches}, {("h.0.attn.qkv", 0, 48), ("h.0.ln_1", 2, 12)})
        self.assertEqual(list(names.left_out), ["h.0.inside"])

    def test_rows_in_another_order(self):
        rows = np.arange(48)[::-1]
        names = of_golden(self.golden(self.told()), self.Model(), {**self.NAMES, "layers.*.qkv.weight": ("model.layers.*.self_attn.qkv_proj.weight", rows)})
        self.assertEqual(names.parameters["layers.0.qkv.weight"].rows.tolist(), rows.tolist())

    def test_refusals(self):
        for names, returns, why in (
                ({"layer.*.norm": "x"}, {}, r"names: the model has no layer\.\*\.norm"),
                ({**self.NAMES, "layers.0.qkv.norm": "none.weight"}, {}, "names: layers.0.qkv.norm is said to be none.weight, which the golden file does not have"),
                ({**self.NAMES, "layers.*.qkv.norm": "model.layers.*.self_attn.qkv_proj.weight"}, {}, r"names: layers.0.qkv.norm has shape \[12\], but"),
                (self.NAMES, {"layers.*.qkv": ("h.*.ln_7",)}, "returns: the golden file has no activation h.0.ln_7")):
            with self.assertRaisesRegex(DumpError, why):
                of_golden(self.golden(self.told()), self.Model(), names, returns)


class Modes(Folder):
    def refused(self, mode, why, mesh=({"dp": 2, "tp": 2}, {"dp": 0, "tp": 0})):
        with self.assertRaisesRegex(DumpError, f"mode {mode} is not in force: {why}"):
            Recorder(llama(), mesh, self.folder, batch=(1, 4), mode=mode)

    def test_a_plain_model_is_in_no_mode(self):
        self.refused("ddp", "the model is a LlamaForCausalLM, not a DistributedDataParallel")
        self.refused("fsdp1", "the model is a LlamaForCausalLM, not a FullyShardedDataParallel")
        self.refused("fsdp2", "the model is a LlamaForCausalLM, not an FSDPModule")
        self.refused("tp", "model.layers.0.self_attn.q_proj.weight is a plain tensor, not a DTensor")
        self.refused("zero3", "the model is a LlamaForCausalLM, not a DeepSpeedEngine")

    def test_what_shows_while_it_runs(self):
        for mode in ("sp", "cp", "pp"):
            model = llama()
            recorder = Recorder(model, ({"tp": 1}, {"tp": 0}), self.folder, batch=(1, 4), mode=mode)
            recorder.microbatch()
            model(input_ids=torch.zeros(1, 4, dtype=torch.long))
            with self.assertRaisesRegex(DumpError, f"mode {mode} is not in force"):
                recorder.save()

    def test_unknown(self):
        with self.assertRaisesRegex(DumpError, "mode 'fsdp' is not one of ddp, fsdp1, fsdp2, tp"):
            modes.check(("fsdp",), None, {}, {})


if __name__ == "__main__":
    unittest.main()
