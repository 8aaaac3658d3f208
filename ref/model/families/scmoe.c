/* scmoe.c -- a mixture on a shortcut (ScMoE): a layer is two blocks of attention and a dense feed-forward; a mixture
 * reads what the first feed-forward does, and is added at the end of the second.
 *
 * Rows travel to the experts while the first dense feed-forward and the product for the second block's q, k and v are
 * computed, and back during its attention and second dense feed-forward; between these the experts compute.
 *
 * Source  W. Cai et al., "Shortcut-connected expert parallelism for accelerating mixture-of-experts", arXiv:2404.05019;
 *         Meituan LongCat Team, "LongCat-Flash technical report", arXiv:2509.01322, as transformers has it, with
 *         grouped-query attention in place of its latent attention
 * Called  families.def lists the family; config_json.c finds a family by the model_type of a file.
 */
#include "ref/model/families/shared.h"

static const struct config_reading defaults = {         /* Mixtral's, and LongCat-Flash's for the rest: ours alone */
    .c = { RMS_DECODER, .mlp = MLP_MIXTURE, .eps = 1e-5, .shortcut = true,
           .mixture = { .E = 8, .k = 2, .router = { .normalized = true, .scale = 1 },
                        .balance_coefficient = 0.001 } },
    .rope_theta = 1e6, .pad_token = NO_TOKEN,
};

#define HALF_QKV(n) { "self_attn." n ".qkv_proj.weight", { "self_attn." n ".q_proj.weight",                          \
                                                           "self_attn." n ".k_proj.weight",                          \
                                                           "self_attn." n ".v_proj.weight" } }
#define HALF_UP(n) { "mlps." n ".gate_up_proj.weight", { "mlps." n ".gate_proj.weight", "mlps." n ".up_proj.weight" } }

static const struct naming naming = {                   /* LongCat-Flash's */
    DECODER_NAMES, EXPERT_NAMES,
    .of_block = {
        [LN1_W] = { .whole = "input_layernorm.0.weight" }, [SECOND_LN1_W] = { .whole = "input_layernorm.1.weight" },
        [QKV_W] = HALF_QKV("0"),                           [SECOND_QKV_W] = HALF_QKV("1"),
        [PROJ_W] = { .whole = "self_attn.0.o_proj.weight" },
        [SECOND_PROJ_W] = { .whole = "self_attn.1.o_proj.weight" },
        [LN2_W] = { .whole = "post_attention_layernorm.0.weight" },
        [SECOND_LN2_W] = { .whole = "post_attention_layernorm.1.weight" },
        [DENSE_UP_W] = HALF_UP("0"),                       [SECOND_UP_W] = HALF_UP("1"),
        [DENSE_DOWN_W] = { .whole = "mlps.0.down_proj.weight" },
        [SECOND_DOWN_W] = { .whole = "mlps.1.down_proj.weight" },
        [ROUTER_W] = { .whole = "mlp.router.classifier.weight" },
    },
};

static const struct node block[] = {
    { OP_NORM,      .out = "ln_1",         .in = { "in" },         .param = LN1_W },
    { OP_MATRIX,    .out = "attn.qkv",     .in = { "ln_1" },       .param = QKV_W },
    { OP_ROTARY,    .out = "attn.rotated", .in = { "attn.qkv" } },
    { OP_ATTENTION, .out = "attn.heads",   .in = { "attn.rotated" } },
    { OP_MATRIX,    .out = "attn.out",     .in = { "attn.heads" }, .param = PROJ_W },
    { OP_DROPOUT,   .out = "attn.dropped", .in = { "attn.out" },   .place = "attention", .unseen = true },
    { OP_ADD,       .out = "mid",          .in = { "in", "attn.dropped" } },
    { OP_NORM,      .out = "ln_2",         .in = { "mid" },        .param = LN2_W },

    { OP_MATRIX,    .out = "router.logits", .in = { "ln_2" },       .param = ROUTER_W },
    { OP_ROUTE,     .out = "router.weights", .in = { "router.logits" } },
    { OP_MIXTURE,   .out = "mlp.out",      .in = { "ln_2", "router.weights" },
      .param = UP_W, .before = "second.attn.rotated" },

    { OP_MATRIX,    .out = "dense.up",     .in = { "ln_2" },       .param = DENSE_UP_W },
    { OP_SWIGLU,    .out = "dense.act",    .in = { "dense.up" } },
    { OP_MATRIX,    .out = "dense.out",    .in = { "dense.act" },  .param = DENSE_DOWN_W },
    { OP_DROPOUT,   .out = "dense.dropped", .in = { "dense.out" },  .place = "dense", .unseen = true },
    { OP_ADD,       .out = "half",         .in = { "mid", "dense.dropped" } },

    { OP_NORM,      .out = "second.ln_1",  .in = { "half" },       .param = SECOND_LN1_W },
    { OP_MATRIX,    .out = "second.attn.qkv", .in = { "second.ln_1" }, .param = SECOND_QKV_W },
    { OP_ROTARY,    .out = "second.attn.rotated", .in = { "second.attn.qkv" }, .second = true },
    { OP_ATTENTION, .out = "second.attn.heads", .in = { "second.attn.rotated" }, .second = true },
    { OP_MATRIX,    .out = "second.attn.out", .in = { "second.attn.heads" }, .param = SECOND_PROJ_W },
    { OP_DROPOUT,   .out = "second.attn.dropped", .in = { "second.attn.out" },
      .place = "attention", .second = true, .unseen = true },
    { OP_ADD,       .out = "second.mid",   .in = { "half", "second.attn.dropped" } },
    { OP_NORM,      .out = "second.ln_2",  .in = { "second.mid" }, .param = SECOND_LN2_W },
    { OP_MATRIX,    .out = "second.dense.up", .in = { "second.ln_2" }, .param = SECOND_UP_W },
    { OP_SWIGLU,    .out = "second.dense.act", .in = { "second.dense.up" } },
    { OP_MATRIX,    .out = "second.dense.out", .in = { "second.dense.act" }, .param = SECOND_DOWN_W },
    { OP_DROPOUT,   .out = "second.dense.dropped", .in = { "second.dense.out" },
      .place = "dense", .second = true, .unseen = true },
    { OP_ADD,       .out = "dense.sum",    .in = { "second.mid", "second.dense.dropped" }, .unseen = true },

    { OP_DROPOUT,   .out = "mlp.dropped",  .in = { "mlp.out" },    .place = "mlp", .unseen = true },
    { OP_ADD,       .out = "out",          .in = { "dense.sum", "mlp.dropped" } },
    { .op = OP_END }
};

const struct family family_scmoe = {
    .name = "scmoe", .title = "an ScMoE", .architecture = "ScMoEForCausalLM", .without_head = "ScMoEModel",
    .defaults = &defaults, .keys = mixtral_keys, .finish = decoder_finish, .write = decoder_to_json,
    .naming = &naming, .may = { HAS_FEWER_KEYS },
    .program = { { llama_embedding, block, llama_loss } },
};
