"""Models with names of their own: maps, what is found without one, parts along tp by shape, transposed matrices, configs, what is not recorded, adapters."""
import contextlib
import dataclasses
import io
import json
import pathlib
import sys
import tempfile
import types
import unittest

import numpy as np
import torch
import transformers

import reader
from orrery_dump import DumpError, Recorder, configs, matching
from orrery_dump.of_golden import metadata, of_golden
from orrery_dump.start import Start

ROOT = pathlib.Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "golden" / "recorded" / "llama.safetensors"
D, F, V, A = 8, 12, 16, 4                                           # of GOLDEN: two layers, two query heads, one key head
AT = "model.layers.*."


class Block(torch.nn.Module):
    def __init__(self, turned=False, square=False):
        super().__init__()
        self.n1, self.n2 = torch.nn.RMSNorm(D), torch.nn.RMSNorm(D)
        self.qkv, self.o = torch.nn.Linear(D, 2 * D, bias=False), torch.nn.Linear(D, D, bias=False)
        self.gate, self.up, self.down = torch.nn.Linear(D, F, bias=False), torch.nn.Linear(D, F, bias=False), torch.nn.Linear(F, D, bias=False)
        if turned:
            self.down.weight = torch.nn.Parameter(torch.empty(F, D))


class Model(torch.nn.Module):
    """A plain model; it need not compute anything for its names to be found."""

    def __init__(self, **more):
        super().__init__()
        self.tok, self.blocks = torch.nn.Embedding(V, D), torch.nn.ModuleList(Block(**more) for _ in range(2))
        self.last, self.out = torch.nn.RMSNorm(D), torch.nn.Linear(D, V, bias=False)


NAMES = {"tok.weight": "model.embed_tokens.weight", "blocks.*.n1.weight": AT + "input_layernorm.weight", "blocks.*.n2.weight": AT + "post_attention_layernorm.weight",
         "blocks.*.qkv.weight": AT + "self_attn.qkv_proj.weight", "blocks.*.o.weight": AT + "self_attn.o_proj.weight", "blocks.*.gate.weight": AT + "mlp.gate_proj.weight",
         "blocks.*.up.weight": AT + "mlp.up_proj.weight", "blocks.*.down.weight": AT + "mlp.down_proj.weight", "last.weight": "model.norm.weight", "out.weight": "lm_head.weight"}


class Folder(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        self.addCleanup(self.temporary.cleanup)

    def recorder(self, model, mesh=None, **more):
        return Recorder(model, mesh, self.folder, batch=(2, 6), golden=GOLDEN, dtype="fp32", **more)

    def started(self, **more):
        model = Model(**more)
        self.recorder(model, names=NAMES).load_start()
        return model


class Maps(Folder):
    def test_the_map_is_enough(self):
        recorder = self.recorder(Model(), names=NAMES).load_start().start()
        recorder.save()
        joined, start = reader.join(self.folder), Start(GOLDEN)
        self.assertEqual(len(joined), 3 + 2 * 6)
        for name, t in joined.items():
            np.testing.assert_allclose(t, start.weight(name.removeprefix("start/")), rtol=1e-6, err_msg=name)
        watched = {w.name: (w.module, w.side) for w in recorder.names.watches}
        self.assertEqual(watched["h.1.attn.heads"], ("blocks.1.o", "input"))
        self.assertEqual(watched["h.0.out"], ("blocks.0", "output"))
        self.assertIn("h.0.attn.rotated", recorder.names.left_out)

    def test_refusals(self):
        for names, why in (({**NAMES, "blocks.*.q.weight": "x"}, r"names: the model has no blocks\.\*\.q\.weight"),
                           ({**NAMES, "out.weight": AT + "mlp.down_proj.weight"}, r"names: model.layers.\*.mlp.down_proj.weight has more stars than out.weight"),
                           ({**NAMES, "out.weight": "none.weight"}, "names: out.weight is said to be none.weight, which the golden file does not have"),
                           ({**NAMES, "blocks.*.o.weight": AT + "self_attn.qkv_proj.weight"}, r"names: blocks.0.o.weight has shape \[8, 8\], but")):
            with self.assertRaisesRegex(DumpError, why):
                self.recorder(Model(), names=names)
        with self.assertRaisesRegex(DumpError, "names= and returns= need golden="):
            Recorder(Model(), None, self.folder, batch=(2, 6), names=NAMES)


class Found(Folder):
    """Without a map: by numbers, by shape, by order."""

    def proposal(self, model):
        told = json.loads(metadata(GOLDEN)["names"])
        with self.assertRaises(DumpError) as caught:
            of_golden(GOLDEN, model)
        self.assertEqual(len(told["layers"]), 2)
        return str(caught.exception)

    def test_numbers_tell_matrices_and_norms_are_guesses(self):
        text = self.proposal(self.started())
        self.assertRegex(text, "which is which is not clear for 4, first blocks.0.n1.weight; 12 of 17 are told by their numbers")
        self.assertIn('"blocks.*.qkv.weight": "model.layers.*.self_attn.qkv_proj.weight",\n', text)
        self.assertRegex(text, r'"blocks.\*.n1.weight": "model.layers.\*.input_layernorm.weight", +# by order; it may also be model.layers.\*.post_attention_layernorm.weight')

    def test_new_weights_are_told_by_shape_and_order(self):
        text = self.proposal(Model())
        self.assertIn("none has the numbers of the golden file's start", text)
        names = eval(text[text.index("names={") + len("names="):])      # it can be pasted
        self.assertEqual(names, NAMES)

    def test_a_map_that_is_clear_is_used_and_said(self):
        model, said = self.started(), io.StringIO()
        rest = {k: v for k, v in NAMES.items() if ".n1" in k or ".n2" in k}
        recorder = self.recorder(model, names=rest).start()
        self.assertEqual(set(recorder.names.matched.values()) & {"lm_head.weight", "model.embed_tokens.weight"}, {"lm_head.weight", "model.embed_tokens.weight"})
        recorder.passes = 1
        with contextlib.redirect_stderr(said):
            recorder._tell()
        self.assertIn("orrery_dump: blocks.*.up.weight is taken to be model.layers.*.mlp.up_proj.weight\n", said.getvalue())

    def test_nothing_that_is_left(self):
        model = self.started()
        model.blocks[0].extra = torch.nn.Linear(3, 5, bias=False)
        self.assertIn('# "blocks.*.extra.weight":', self.proposal(model))

    def test_what_is_a_number_of_a_name(self):
        self.assertEqual(matching.starred("h.12.mlp.w13.0"), ("h.*.mlp.w13.*", ("12", "0")))


class Cut(Folder):
    """Plain parameters are cut as their shape says."""

    def test_parts_of_ranks_join(self):
        start = Start(GOLDEN)
        for tp in range(2):
            model = Model()
            for block in model.blocks:
                rows = {"qkv": np.r_[tp * 4:tp * 4 + 4, 8 + tp * 2:10 + tp * 2, 12 + tp * 2:14 + tp * 2], "gate": np.r_[tp * 6:tp * 6 + 6], "up": np.r_[tp * 6:tp * 6 + 6]}
                for name, index in rows.items():
                    getattr(block, name).weight = torch.nn.Parameter(getattr(block, name).weight[index].detach())
                block.down.weight = torch.nn.Parameter(block.down.weight[:, tp * 6:tp * 6 + 6].detach())
                block.o.weight = torch.nn.Parameter(block.o.weight[:, tp * 4:tp * 4 + 4].detach())
            recorder = self.recorder(model, ({"tp": 2}, {"tp": tp}), names=NAMES, rank=tp).load_start().start()
            recorder.save()
        joined = reader.join(self.folder)
        for name, t in joined.items():
            np.testing.assert_allclose(t, start.weight(name.removeprefix("start/")), rtol=1e-6, err_msg=name)

    def test_another_part_is_refused(self):
        model = Model()
        model.out.weight = torch.nn.Parameter(torch.zeros(5, D))
        with self.assertRaisesRegex(DumpError, r"names: out.weight has shape \[5, 8\], but lm_head.weight has 16 rows of 8"):
            self.recorder(model, ({"tp": 2}, {"tp": 0}), names=NAMES)


class Transposed(Folder):
    def test_by_shape_and_by_numbers(self):
        model = self.started(turned=True)
        for block in model.blocks:
            block.o.weight.data = block.o.weight.data.T.contiguous()
        recorder = self.recorder(model, names=NAMES).start()
        self.assertEqual(recorder.names.transposed, {**{f"blocks.{i}.down.weight": "its shape" for i in range(2)}, **{f"blocks.{i}.o.weight": "its numbers" for i in range(2)}})
        recorder.save()
        start = Start(GOLDEN)
        for name, t in reader.join(self.folder).items():
            np.testing.assert_allclose(t, start.weight(name.removeprefix("start/")), rtol=1e-6, err_msg=name)


@dataclasses.dataclass
class Config:
    model_type: str = "bert"


class Configs(Folder):
    def test_any_kind(self):
        for config in (Config(), {"model_type": "bert"}, types.SimpleNamespace(model_type="bert"), transformers.BertConfig()):
            model = Model()
            model.config = config
            self.assertEqual(configs.of_model(model)["model_type"], "bert")
            with self.assertRaisesRegex(DumpError, "no names are known for model_type 'bert': give golden="):
                Recorder(model, None, self.folder, batch=(2, 6))
        model.config = 3
        with self.assertRaisesRegex(DumpError, "the config of a Model is a int, of which no fields are known: give golden="):
            Recorder(model, None, self.folder, batch=(2, 6))
        del model.config
        with self.assertRaisesRegex(DumpError, "a Model has no config, so its names are not known: give golden="):
            Recorder(model, None, self.folder, batch=(2, 6))


class NotRecorded(Folder):
    def test_patterns(self):
        recorder = self.recorder(Model(), names=NAMES, not_recorded=["start/*norm*", "h.*.attn.rotated"]).load_start().start()
        self.assertTrue(recorder.file.is_declared("grad/h.1.attn.rotated") and not recorder.file.is_declared("grad/h.1.attn.rotated.weight"))
        path = recorder.save()
        self.assertEqual(json.loads(metadata(path)["not_recorded"]), ["start/*norm*", "h.*.attn.rotated"])
        self.assertEqual([n for n in reader.join(self.folder) if "norm" in n], [])
        with self.assertRaisesRegex(DumpError, "not_recorded: 3 is no pattern of names"):
            self.recorder(Model(), names=NAMES, not_recorded=[3])


class Adapters(Folder):
    def model(self, **more):
        import peft
        torch.manual_seed(0)
        config = json.loads(metadata(GOLDEN)["config"])
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{k: v for k, v in config.items() if k not in ("architectures", "model_type")}, use_cache=False))
        return peft.get_peft_model(model, peft.LoraConfig(**{**dict(r=2, lora_alpha=6, target_modules=["q_proj", "down_proj"]), **more}))

    def test_what_the_file_says(self):
        recorder = self.recorder(self.model(modules_to_save=["lm_head"], use_rslora=True)).start()
        head = metadata(recorder.save())
        self.assertEqual(json.loads(head["adapters"])["model.layers.1.self_attn.q_proj"],
                         {"of": "model.layers.1.self_attn.qkv_proj.weight", "rows": [0, 8], "rank": 2, "alpha": 6.0, "rslora": True})
        self.assertEqual(json.loads(head["trained"]), ["lm_head.weight"])
        joined = reader.join(self.folder)
        self.assertEqual(joined["start/model.layers.0.mlp.down_proj.lora_A.weight"].shape, (2, F))
        self.assertIn("start/model.layers.0.mlp.down_proj.weight", joined)

    def test_refusals(self):
        for more, why in ((dict(lora_dropout=0.1), "lora_dropout 0.1 draws masks"), (dict(use_dora=True), "use_dora divides by norms"),
                          (dict(target_modules=["embed_tokens"]), "adapters of embeddings are not recorded"), (dict(lora_bias=True), "lora_bias adds a bias to B")):
            with self.assertRaisesRegex(DumpError, why):
                self.recorder(self.model(**more).train())
        model = self.model()
        import peft
        model.add_adapter("second", peft.LoraConfig(r=2, target_modules=["q_proj"]))
        with self.assertRaisesRegex(DumpError, "adapter model.layers.0.self_attn.q_proj: it has 2 adapters, default, second: one can be recorded"):
            self.recorder(model)
        model = self.model()
        model.merge_adapter()
        with self.assertRaisesRegex(DumpError, "it is merged into its weight"):
            self.recorder(model)


if __name__ == "__main__":
    unittest.main()
