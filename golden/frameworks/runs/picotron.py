#!/usr/bin/env python3
"""A Llama in the manner of picotron (own_models.py), cut by hand: 2 copies of 2 processes.  Its names are its own, its parts are plain tensors."""
import torch.distributed as dist

import common
import own_models
from orrery_dump import Recorder

AT, LAYER = "decoder_layers.*.", "model.layers.*."
NAMES = {"embedding.weight": "model.embed_tokens.weight", "final_norm.weight": "model.norm.weight", "final_proj.weight": "lm_head.weight",
         AT + "norm1.weight": LAYER + "input_layernorm.weight", AT + "norm2.weight": LAYER + "post_attention_layernorm.weight",
         AT + "attention.out_proj.weight": LAYER + "self_attn.o_proj.weight", AT + "mlp.gate.weight": LAYER + "mlp.gate_proj.weight",
         AT + "attention.q_proj.weight": LAYER + "self_attn.q_proj.weight", AT + "mlp.up.weight": LAYER + "mlp.up_proj.weight",
         AT + "attention.k_proj.weight": LAYER + "self_attn.k_proj.weight", AT + "mlp.down.weight": LAYER + "mlp.down_proj.weight",
         AT + "attention.v_proj.weight": LAYER + "self_attn.v_proj.weight"}
DP = TP = 2


def run(golden, out, case):
    dp, tp = divmod(dist.get_rank(), TP)
    groups = [dist.new_group(range(d * TP, d * TP + TP)) for d in range(DP)], [dist.new_group(range(t, DP * TP, TP)) for t in range(TP)]
    model = own_models.Llama(golden.config, groups[0][dp]).to(common.DTYPES[case.dtype])
    recorder = Recorder(model, ({"dp": DP, "tp": TP}, {"dp": dp, "tp": tp}), out, batch=(golden.sequences, golden.tokens), golden=golden.path,
                        names=NAMES, not_recorded=["h.*.attn.rotated"], dtype=case.dtype)
    recorder.load_start().start()
    mine = range(dp * golden.sequences // DP, (dp + 1) * golden.sequences // DP)
    recorder.microbatch(sequences=list(mine))
    loss = common.summed_loss(model(golden.ids[0, mine]), golden.labels[0, mine]) / golden.counted()
    loss.backward()
    for p in model.parameters():
        if case.bug != "gradients-not-summed" or p.ndim > 1:
            dist.all_reduce(p.grad, group=groups[1][tp])
    recorder.finish(common.summed_over(loss, groups[1][tp]))


if __name__ == "__main__":
    common.launch(run, DP * TP, bugs=("gradients-not-summed",))
