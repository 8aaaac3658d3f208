/* megatron.c -- what the arguments of a Megatron-LM run mean in words of `orrery plan`: of a shell script that starts
 * it, of a text of arguments, or of the YAML file of its --yaml-cfg.
 *
 * from.c calls the functions of the two rows through frameworks.c.  The defaults and rules are those of
 * NVIDIA/Megatron-LM, core_v0.16.1 (55ac7082517c), megatron/training/arguments.py; megatron_keys.c has the keys.
 * Problems are kept in struct from.
 */
#include "emulated_devices/comm/mesh.h"
#include "emulated_devices/run/from/frameworks.h"
#include "emulated_devices/run/from/megatron_keys.h"
#include "emulated_devices/run/from/megatron_stages.h"
#include "emulated_devices/run/from/script.h"
#include <stdlib.h>
#include <string.h>

enum { MEGATRON_MOST = 1 << 24, MEGATRON_BUCKET = 40000000, MEGATRON_BUCKET_COPY = 1000000 };

/* ---- the model --------------------------------------------------------------------------------------------------- */

/* Keys of the model's shape; --model of the command line replaces them all. */
static const char *const shape[] = {
    "num-layers", "hidden-size", "ffn-hidden-size", "num-attention-heads", "group-query-attention",
    "num-query-groups", "kv-channels", "max-position-embeddings", "position-embedding-type",
    "use-rotary-position-embeddings", "no-position-embedding", "normalization", "disable-bias-linear", "add-qkv-bias",
    "swiglu", "squared-relu", "qk-layernorm", "untie-embeddings-and-output-weights", "vocab-size", "padded-vocab-size",
    "make-vocab-size-divisible-by", "tokenizer-type", "num-experts", "moe-router-topk", "moe-ffn-hidden-size",
    "moe-shared-expert-intermediate-size", NULL
};

static bool megatron_rotary(struct from *from)
{
    return from_is(from, "position-embedding-type", "rope") || from_truth(from, "use-rotary-position-embeddings");
}

/* The sizes of the model, with Megatron's defaults for those that it derives. */
static struct from_model megatron_sizes(struct from *from)
{
    struct from_model m = { .family = "gpt2" };
    const bool gated = from_truth(from, "swiglu");
    const int64_t layers = from_whole(from, "num-layers", 1, 1024), width = from_whole(from, "hidden-size", 1,
                                                                                     MEGATRON_MOST);
    const int64_t heads = from_whole(from, "num-attention-heads", 1, 65536);
    const int64_t groups = from_truth(from, "group-query-attention") ? from_whole(from, "num-query-groups", 1, 65536)
                                                                     : heads;
    const int64_t channels = from_whole(from, "kv-channels", 1, 65536);
    const int64_t usual = gated ? 4 * width * 2 / 3 / 64 * 64 : 4 * width, feed = from_whole(from, "ffn-hidden-size", 1,
                                                                                           MEGATRON_MOST);
    const int64_t experts = from_whole(from, "num-experts", 1, 65536);
    const int64_t own = from_whole(from, "moe-ffn-hidden-size", 1, MEGATRON_MOST);
    if (gated) m.family = experts ? "mixtral" : "llama";
    else if (from_truth(from, "squared-relu")) m.family = "nemotron";
    const int64_t number[10] = { layers, width, heads, groups, channels ? channels : heads ? width / heads : 0,
                                 experts && own ? own : feed ? feed : usual, 0, 0, experts,
                                 experts ? from_whole(from, "moe-router-topk", 1, 65536) : 0 };
    memcpy(m.number, number, sizeof number);
    return m;
}

/* Sizes that have no default in released code. */
static bool megatron_has_sizes(struct from *from)
{
    static const char *const needed[] = { "num-layers", "hidden-size", "num-attention-heads", "seq-length", NULL };
    for (int i = 0; needed[i] && !from->failed; i++)
        if (from_value(from, needed[i]) == NULL && !(i < 3 && from_typed(from, "--model")))
            from_refuse(from, needed[i], "is not given, and has no default");
    return !from->failed;
}

/* Where the plan's families differ from the model that the arguments describe. */
static void megatron_say_differences(struct from *from, const struct from_model *model)
{
    const bool gated = from_truth(from, "swiglu"), rotary = megatron_rotary(from);
    const bool biased = !from_truth(from, "disable-bias-linear"), root = from_is(from, "normalization", "RMSNorm");
    const bool relu = strcmp(model->family, "nemotron") == 0, plain = !gated && !relu;
    if (gated || relu) {
        if (rotary) from_with(from, "position-embedding-type", "of --model: rotary positions");
        else from_assume(from, "position-embedding-type", "rotary positions: without the S D weights of learned ones");
    } else if (!rotary) from_with(from, "position-embedding-type", "of --model: learned positions");
    else from_assume(from, "position-embedding-type", "learned positions: S D weights more than rotary ones have");
    if (gated == root) from_with(from, "normalization", "of --model");
    else from_assume(from, "normalization", gated ? "RMSNorm: without the D biases of each layer norm"
                                                  : "layer norms: D biases more for each norm");
    if (plain == biased) from_with(from, "disable-bias-linear", "of --model: %s biases", plain ? "with" : "without");
    else from_assume(from, "disable-bias-linear", plain ? "linear layers have biases" : "linear layers have no biases");
    if (from_truth(from, "add-qkv-bias"))
        from_assume(from, "add-qkv-bias", "%s", plain ? "all linear layers have biases"
                                                      : "no biases of queries, keys, values");
    else if (from_has(from, "add-qkv-bias")) from_nothing(from, "add-qkv-bias", "off");
    if (from_truth(from, "qk-layernorm"))
        from_outside(from, "qk-layernorm", "two norms of head width in each layer: a few weights, and their time");
    else if (from_has(from, "qk-layernorm")) from_nothing(from, "qk-layernorm", "off");
    if (from_truth(from, "swiglu") && model->number[8] == 0) from_with(from, "swiglu", "of --model: a gated MLP");
    else if (from_has(from, "swiglu")) from_with(from, "swiglu", "of --model");
    if (from_has(from, "squared-relu")) from_with(from, "squared-relu", "of --model");
}

/* Heads, groups and other sizes that the word of --model has. */
static void megatron_say_sizes(struct from *from, const char *word)
{
    static const char *const others[] = { "ffn-hidden-size", "num-attention-heads", "hidden-size",
                                          "group-query-attention", "num-query-groups", "kv-channels",
                                          "use-rotary-position-embeddings", "no-position-embedding", "num-experts",
                                          "moe-router-topk", "moe-ffn-hidden-size", NULL };
    from_say(from, "num-layers", "--model", "%s", word);
    for (int i = 0; others[i]; i++)
        if (from_has(from, others[i])) from_with(from, others[i], "in --model");
}

/* Experts that every token goes to, in whole widths of one expert. */
static void megatron_say_shared(struct from *from, const struct from_model *model)
{
    static const char key[] = "moe-shared-expert-intermediate-size";
    const int64_t shared = from_whole(from, key, 1, MEGATRON_MOST), width = model->number[5];
    if (shared == 0) return;
    if (shared % width == 0) from_say(from, key, "--shared-experts", "%lld", (long long)(shared / width));
    else from_refuse(from, key, "shared experts must be as wide as a whole number of experts, %lld", (long long)width);
}

/* The vocabulary that the tokenizer has, if the arguments say it. */
static int64_t megatron_tokens(struct from *from)
{
    const bool null = from_is(from, "tokenizer-type", "NullTokenizer");
    const char *const type = from_value(from, "tokenizer-type");
    const int64_t given = from_whole(from, "vocab-size", 1, MEGATRON_MOST);
    if (given) return null ? given + 1 : given;         /* NullTokenizer adds the token that ends a document */
    if (type == NULL || strcmp(type, "GPT2BPETokenizer") == 0) {
        from_assume(from, "vocab-size", "50257, the tokens of GPT-2's vocabulary file");
        return 50257;
    }
    if (strcmp(type, "Llama2Tokenizer") == 0) {
        from_assume(from, "vocab-size", "32000, the tokens of Llama 2's tokenizer");
        return 32000;
    }
    from_refuse(from, "tokenizer-type", "its file says how many tokens there are; add --vocabulary N");
    return 1;
}

/* Megatron pads the vocabulary to a multiple for each device along tp. */
static void megatron_say_vocabulary(struct from *from, int64_t tp)
{
    const int64_t padded = from_whole(from, "padded-vocab-size", 1, MEGATRON_MOST);
    const int64_t multiple = tp * from_whole(from, "make-vocab-size-divisible-by", 1, 1 << 20);
    if (from_typed(from, "--vocabulary")) {
        static const char *const keys[] = { "padded-vocab-size", "vocab-size", "make-vocab-size-divisible-by" };
        for (int i = 0; i < 3; i++)
            if (from_has(from, keys[i])) from_with(from, keys[i], "the command line says --vocabulary instead");
        if (from_has(from, "tokenizer-type")) from_with(from, "tokenizer-type", "in --vocabulary");
        return;
    }
    if (padded) {
        from_say(from, "padded-vocab-size", "--vocabulary", "%lld", (long long)padded);
        if (from_has(from, "vocab-size")) from_with(from, "vocab-size", "padded: padded-vocab-size");
    } else {
        const int64_t tokens = megatron_tokens(from);
        if (from->failed) return;
        const int64_t up = (tokens + multiple - 1) / multiple * multiple;
        from_say(from, "make-vocab-size-divisible-by", "--vocabulary", "%lld", (long long)up);
        if (from_has(from, "vocab-size"))
            from_with(from, "vocab-size", "%lld tokens, padded to a multiple of %lld", (long long)tokens,
                      (long long)multiple);
    }
    if (from_has(from, "tokenizer-type")) from_with(from, "tokenizer-type", "in --vocabulary");
    if (padded && from_has(from, "make-vocab-size-divisible-by"))
        from_with(from, "make-vocab-size-divisible-by", "padded: padded-vocab-size");
}

static void megatron_say_positions(struct from *from, const struct from_model *model)
{
    const int64_t positions = from_whole(from, "max-position-embeddings", 1, MEGATRON_MOST);
    if (positions == 0) return;
    if (strcmp(model->family, "gpt2") == 0) from_with(from, "max-position-embeddings", "in --model or --seq");
    else from_nothing(from, "max-position-embeddings", "numbers of the model that change neither memory nor time");
}

static void megatron_say_model(struct from *from, int64_t tp)
{
    char word[FROM_TEXT];
    if (!megatron_has_sizes(from)) return;
    if (from_typed(from, "--model")) {
        for (int i = 0; shape[i]; i++)
            if (from_has(from, shape[i])) from_with(from, shape[i], "the command line says --model instead");
        return;
    }
    struct from_model m = megatron_sizes(from);
    const int64_t positions = from_whole(from, "max-position-embeddings", 1, MEGATRON_MOST);
    if (strcmp(m.family, "gpt2") == 0 && positions) m.number[7] = positions;
    if (!from->failed && m.number[8] && strcmp(m.family, "mixtral") != 0)
        from_refuse(from, "num-experts", "without --swiglu: the plan's mixtures have gated experts alone; --model "
                    "names another");
    if (from->failed) return;
    from_model_word(&m, word, sizeof word);
    megatron_say_sizes(from, word);
    megatron_say_positions(from, &m);
    megatron_say_differences(from, &m);
    megatron_say_shared(from, &m);
    megatron_say_vocabulary(from, tp);
    static const char untied[] = "untie-embeddings-and-output-weights";
    const bool tied_family = strcmp(m.family, "gpt2") == 0;
    if (from_truth(from, untied) && tied_family) from_say(from, untied, "--untied", NULL);
    else if (from_truth(from, untied)) from_with(from, untied, "of --model");
    else if (!tied_family) from_assume(from, untied, "the output matrix is no copy of the embedding: V D weights more");
    else if (from_has(from, untied)) from_with(from, untied, "of --model");
}

/* ---- the mesh ---------------------------------------------------------------------------------------------------- */

/* The first of two spellings that the file has. */
static const char *megatron_either(struct from *from, const char *first, const char *second)
{
    return from_has(from, first) ? first : second;
}

/* Devices by the launcher's arguments; 0: it does not say. */
static int64_t megatron_devices(struct from *from)
{
    const char *const each = from_has(from, "launcher.num_gpus") ? "launcher.num_gpus"
                           : megatron_either(from, "launcher.nproc_per_node", "launcher.nproc-per-node");
    const char *const nodes = megatron_either(from, "launcher.nnodes", "launcher.num_nodes");
    if (from_typed(from, "--dp")) {
        if (from_has(from, each)) from_with(from, each, "the command line says --dp instead");
        if (from_has(from, nodes)) from_with(from, nodes, "the command line says --dp instead");
        return 0;
    }
    const int64_t devices = from_whole(from, each, 1, 1 << 20), of = from_whole(from, nodes, 1, 1 << 20);
    if (devices) from_with(from, each, "in --dp: devices of a node");
    if (of) from_with(from, nodes, "in --dp: nodes");
    return devices * (of ? of : 1);
}

static int64_t megatron_say_axis(struct from *from, const char *key, const char *flag)
{
    const int64_t size = from_whole(from, key, 1, MESH_MOST_DEVICES);
    if (from_has(from, key)) from_say(from, key, flag, "%lld", (long long)size);
    return from_typed_whole(from, flag, size);
}

/* How layers are cut over tp. */
static void megatron_say_tensor(struct from *from, int64_t tp)
{
    const bool cut = from_truth(from, "sequence-parallel"), hidden = from_truth(from, "tp-comm-overlap");
    if (cut && tp > 1) from_say(from, "sequence-parallel", "--tensor", hidden ? "1d-sp-overlap" : "1d-sp");
    else if (from_has(from, "sequence-parallel"))
        from_nothing(from, "sequence-parallel", cut ? "off: Megatron-LM switches it off without tp" : "off");
    if (!from_has(from, "tp-comm-overlap")) return;
    if (hidden && cut && tp > 1) from_with(from, "tp-comm-overlap", "in --tensor");
    else if (hidden && tp > 1) from_refuse(from, "tp-comm-overlap", "needs --sequence-parallel");
    else from_nothing(from, "tp-comm-overlap", "off");
}

/* How sequences are cut over cp. */
static void megatron_say_context(struct from *from, int64_t cp)
{
    const char *const type = from_value(from, "cp-comm-type"), *name = "ring-zigzag";
    if (cp == 1) {
        if (from_has(from, "cp-comm-type")) from_nothing(from, "cp-comm-type", "off");
        return;
    }
    if (type && strcmp(type, "a2a") == 0) name = "ulysses";
    else if (type && strcmp(type, "all_gather") == 0) name = "allgather-kv";
    else if (type && strcmp(type, "a2a+p2p") == 0) name = "usp";
    else if (type && strcmp(type, "p2p") != 0)
        from_refuse(from, "cp-comm-type", "the plan has one for all layers: p2p, all_gather, a2a or a2a+p2p");
    from_say(from, "cp-comm-type", "--attention", "%s", name);
}

/* Experts over devices.  Megatron-LM cuts an expert over tp unless the arguments say otherwise. */
static void megatron_say_experts(struct from *from, const struct megatron_mesh *mesh)
{
    const int64_t tp = mesh->tp, stage = mesh->tp * mesh->cp * mesh->dp;
    static const char parts[] = "expert-tensor-parallel-size", way[] = "moe-token-dispatcher-type";
    const bool any = from_value(from, "num-experts") || from_typed(from, "--model");
    const int64_t ep = from_whole(from, "expert-model-parallel-size", 1, MESH_MOST_DEVICES);
    const int64_t given = from_whole(from, parts, 1, MESH_MOST_DEVICES), etp = given ? given : tp;
    if (from->failed) return;
    if (!any || (ep == 1 && etp == tp)) {
        if (from_has(from, "expert-model-parallel-size")) from_nothing(from, "expert-model-parallel-size", "off");
        if (given) from_nothing(from, parts, any ? "as --tp cuts experts" : "off");
        if (from_has(from, way)) from_nothing(from, way, "off: no experts on other devices");
        return;
    }
    if (tp > 1 && !from_truth(from, "sequence-parallel"))
        from_refuse(from, "expert-model-parallel-size", "with --tensor-model-parallel-size %lld needs "
                    "--sequence-parallel", (long long)tp);
    if (stage % (ep * etp) != 0)
        from_refuse(from, "expert-model-parallel-size", "times --%s %lld does not divide the %lld devices of a stage",
                    parts, (long long)etp, (long long)stage);
    from_say(from, "expert-model-parallel-size", "--ep", "%lld", (long long)ep);
    if (etp > 1) from_say(from, parts, "--etp", "%lld", (long long)etp);
    else if (given) from_nothing(from, parts, "off");
    if (from_is(from, way, "flex")) from_assume(from, way, "--dispatch alltoall: rows go to experts as by all-to-alls");
    else from_say(from, way, "--dispatch", "%s", from_is(from, way, "alltoall") ? "alltoall" : "allgather");
}

static struct megatron_mesh megatron_say_mesh(struct from *from)
{
    struct megatron_mesh m = { .dp = 1 };
    m.tp = megatron_say_axis(from, "tensor-model-parallel-size", "--tp");
    m.pp = megatron_say_axis(from, "pipeline-model-parallel-size", "--pp");
    m.cp = megatron_say_axis(from, "context-parallel-size", "--cp");
    m.devices = megatron_devices(from);
    m.dp = from_copies(from, m.devices, m.tp * m.pp * m.cp, "nproc_per_node x nnodes",
                       "--tensor-model-parallel-size x --pipeline-model-parallel-size x --context-parallel-size");
    if (m.devices)
        from_say(from, from_has(from, "launcher.nproc-per-node") ? "launcher.nproc-per-node"
                       : from_has(from, "launcher.num_gpus") ? "launcher.num_gpus" : "launcher.nproc_per_node",
                 "--dp", "%lld", (long long)m.dp);
    return m;
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* The stage of ZeRO that the arguments ask for, and the key that says so. */
static int megatron_zero(struct from *from, const char **key)
{
    static const char *const strategies[] = { "no_shard", "optim", "optim_grads", "optim_grads_params" };
    *key = "use-distributed-optimizer";
    if (from_truth(from, "use-torch-fsdp2")) {
        *key = "use-torch-fsdp2";
        return 3;
    }
    if (!from_truth(from, "use-megatron-fsdp")) return from_truth(from, *key) ? 1 : 0;
    *key = "data-parallel-sharding-strategy";
    for (int i = 0; i < 4; i++)
        if (from_is(from, *key, strategies[i])) return i;
    from_refuse(from, *key, "must be no_shard, optim, optim_grads or optim_grads_params");
    return 0;
}

static void megatron_note(struct from *from, const char *key, const char *said)
{
    if (!from_has(from, key) || strcmp(key, said) == 0) return;
    if (from_truth(from, key)) from_with(from, key, "in --zero, as --%s", said);
    else from_nothing(from, key, "off");
}

/* With overlapped reductions a bucket is what is reduced at a time; else all gradients are one bucket. */
static void megatron_say_buckets(struct from *from, int64_t dp, int zero)
{
    static const char key[] = "overlap-grad-reduce";
    const int64_t given = from_whole(from, "ddp-bucket-size", 1, (int64_t)1 << 40);
    const int64_t usual = dp * MEGATRON_BUCKET_COPY > MEGATRON_BUCKET ? dp * MEGATRON_BUCKET_COPY : MEGATRON_BUCKET;
    const bool halves = from_truth(from, "grad-reduce-in-bf16") || (from_truth(from, "fp16")
                        && !from_truth(from, "accumulate-allreduce-grads-in-fp32"));
    if (from->failed || zero == 3 || dp == 1) {
        if (from_has(from, key)) from_nothing(from, key, dp == 1 ? "off: there is one copy" : "in --zero 3");
        if (given) from_nothing(from, "ddp-bucket-size", dp == 1 ? "off: there is one copy" : "in --zero 3");
        return;
    }
    if (!from_truth(from, key)) {
        from_assume(from, key, "reductions overlap with backward passes; Megatron-LM would reduce all gradients after "
                    "them");
        if (given) from_nothing(from, "ddp-bucket-size", "of --overlap-grad-reduce alone");
        return;
    }
    const int64_t bytes = (given ? given : usual) * (halves ? 2 : 4);
    from_say(from, given ? "ddp-bucket-size" : key, "--bucket", "%lld", (long long)bytes);
    if (given) from_with(from, key, "in --bucket");
}

/* Whether new weights are gathered beside the next forward pass, and what the key has become. */
static bool megatron_gathers_late(struct from *from, int zero)
{
    static const char gather[] = "overlap-param-gather", reduce[] = "overlap-grad-reduce";
    if (!from_truth(from, gather)) {
        if (from_has(from, gather)) from_nothing(from, gather, "off");
        return false;
    }
    if (zero == 0) from_refuse(from, gather, "needs --use-distributed-optimizer");
    else if (!from_truth(from, reduce)) from_refuse(from, gather, "needs --%s", reduce);
    else if (zero == 1) from_with(from, gather, "in --data-parallel");
    else from_with(from, gather, "in --zero %d", zero);
    return zero == 1;
}

static void megatron_say_copies(struct from *from, const struct megatron_mesh *mesh)
{
    static const char groups[] = "num-distributed-optimizer-instances";
    static const char keep[] = "torch-fsdp2-no-reshard-after-forward";
    const char *key;
    const int zero = megatron_zero(from, &key);
    const int64_t n = from_whole(from, groups, 1, MESH_MOST_DEVICES), all = mesh->dp * mesh->cp;
    if (megatron_gathers_late(from, zero)) from_say(from, key, "--data-parallel", "zero1-overlap");
    else from_say(from, key, "--zero", "%d", zero);
    megatron_note(from, "use-distributed-optimizer", key);
    megatron_note(from, "use-megatron-fsdp", key);
    if (!from_truth(from, "use-megatron-fsdp")) {
        if (from_has(from, "data-parallel-sharding-strategy"))
            from_nothing(from, "data-parallel-sharding-strategy", "of --use-megatron-fsdp alone");
    }
    if (n > 1 && (zero == 0 || all % n != 0))
        from_refuse(from, groups, zero ? "does not divide the %lld copies" : "needs --use-distributed-optimizer",
                    (long long)all);
    if (n > 1) from_say(from, groups, "--shard-group", "%lld", (long long)(all / n));
    else if (from_has(from, groups)) from_nothing(from, groups, "off");
    if (from_has(from, "use-torch-fsdp2") && zero != 3) from_nothing(from, "use-torch-fsdp2", "off");
    if (from_truth(from, keep)) from_say(from, keep, "--reshard-after-forward", "no");
    else if (from_has(from, keep)) from_nothing(from, keep, "off");
    megatron_say_buckets(from, mesh->dp, zero);
}

/* ---- the step ---------------------------------------------------------------------------------------------------- */

static void megatron_say_formats(struct from *from)
{
    const bool brain = from_truth(from, "bf16"), half = from_truth(from, "fp16");
    static const char sums[] = "accumulate-allreduce-grads-in-fp32", low[] = "grad-reduce-in-bf16",
                      main_grads[] = "main-grads-dtype";
    if (brain && half) from_refuse(from, "fp16", "and --bf16: give one of them");
    if (brain) from_say(from, "bf16", "--dtype", "bf16");
    else if (half) from_say(from, "fp16", "--dtype", "fp16");
    if (from_has(from, "bf16") && !brain) from_nothing(from, "bf16", "off");
    if (from_has(from, "fp16") && !half) from_nothing(from, "fp16", "off");
    const bool sixteen = (brain && (from_truth(from, low) || from_is(from, main_grads, "bf16")))
                       || (half && !from_truth(from, sums));
    if (sixteen)
        from_say(from, !brain ? sums : from_truth(from, low) ? low : main_grads, "--grad-dtype", "%s",
                 brain ? "bf16" : "fp16");
    const char *const keys[] = { sums, low, main_grads };
    for (int i = 0; i < 3; i++)
        if (from_has(from, keys[i]) && !(sixteen && brain && i == (from_truth(from, low) ? 1 : 2)))
            from_nothing(from, keys[i], "gradients have the default format");
    if (half && from_value(from, "loss-scale"))
        from_assume(from, "loss-scale", "a scale that moves: its steps take the same");
    else if (from_has(from, "loss-scale")) from_nothing(from, "loss-scale", "of --fp16 alone");
    if (from_has(from, "initial-loss-scale"))
        from_nothing(from, "initial-loss-scale", "length of the run, and rates of learning");
}

static void megatron_say_optimizer(struct from *from)
{
    static const char away[] = "optimizer-cpu-offload", part[] = "optimizer-offload-fraction";
    if (from_is(from, "optimizer", "adam")) from_say(from, "optimizer", "--optimizer", "adamw");
    else if (from_is(from, "optimizer", "sgd")) from_say(from, "optimizer", "--optimizer", "momentum");
    else from_refuse(from, "optimizer", "the plan has adam and sgd");
    from_say(from, "optimizer", "--as", "megatron");
    from_say(from, "clip-grad", "--clip", "%g", from_real(from, "clip-grad", 0, 1e30));
    const double fraction = from_real(from, part, 0, 1);
    if (from_truth(from, away)) from_say(from, away, "--offload", "optimizer");
    else if (from_has(from, away)) from_nothing(from, away, "off");
    if (!from_has(from, part)) return;
    if (from_truth(from, away) && fraction < 1)
        from_outside(from, part, "a part of the state would stay on the device: the plan moves all of it");
    else from_nothing(from, part, "all of the state, or none");
}

static void megatron_say_dropout(struct from *from)
{
    const double weights = from_real(from, "attention-dropout", 0, 0.999), rest = from_real(from, "hidden-dropout", 0,
                                                                                            0.999);
    from_say(from, "hidden-dropout", "--dropout", "%g", rest > weights ? rest : weights);
    if (rest == weights) from_with(from, "attention-dropout", "in --dropout");
    else from_assume(from, "attention-dropout", "as large as the dropout of the rest: its mask is kept or not with it");
}

static void megatron_say_batch(struct from *from, int64_t dp)
{
    const int64_t micro = from_whole(from, "micro-batch-size", 1, INT32_MAX);
    const int64_t given = from_whole(from, "global-batch-size", 1, 1000000000);
    if (!from->failed && micro == 0) from_refuse(from, "micro-batch-size", "is not given, and has no default");
    from_say(from, "seq-length", "--seq", "%lld", (long long)from_whole(from, "seq-length", 1, 1000000000));
    from_batch(from, "global-batch-size", "micro-batch-size", given ? given : micro * dp, micro, dp);
}

/* Programs that train models of another kind have the same arguments: their plan would be of the wrong model. */
static void megatron_say_program(struct from *from)
{
    static const char key[] = "launcher.program", usual[] = "pretrain_gpt.py";
    const char *const path = from_value(from, key), *const slash = path ? strrchr(path, '/') : NULL;
    const char *const name = slash ? slash + 1 : path;
    if (name == NULL) return;
    if (strcmp(name, usual) == 0) from_with(from, key, "--model is a causal decoder");
    else if (strncmp(name, "pretrain_", strlen("pretrain_")) == 0 && from_typed(from, "--model") == NULL)
        from_refuse(from, key, "trains another model than the causal decoder of %s; add --model NAME", usual);
    else from_assume(from, key, "it trains a causal decoder, as %s does", usual);
}

void megatron_translate(struct from *from)
{
    megatron_say_program(from);
    const int64_t tp = from_typed_whole(from, "--tp", from_whole(from, "tensor-model-parallel-size", 1,
                                                                 MESH_MOST_DEVICES));
    megatron_say_model(from, tp > 0 ? tp : 1);
    if (from->failed) return;
    const struct megatron_mesh m = megatron_say_mesh(from);
    if (from->failed) return;
    struct megatron_stages stages;
    megatron_say_stages(from, m.pp, &stages);
    megatron_say_tensor(from, m.tp);
    megatron_say_context(from, m.cp);
    megatron_say_experts(from, &m);
    megatron_say_copies(from, &m);
    megatron_say_batch(from, m.dp);
    megatron_say_formats(from);
    megatron_say_optimizer(from);
    megatron_say_dropout(from);
    if (!from->failed) megatron_say_recompute(from, &stages);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static bool megatron_is(const char *text) { return strstr(text, "--") != NULL; }

const struct framework framework_megatron = {
    .name = "megatron", .title = "Megatron-LM", .release = MEGATRON_RELEASE,
    .source = "NVIDIA/Megatron-LM: megatron/training/arguments.py", .dashes = "--",
    .is = megatron_is, .read = script_read, .keys = megatron_keys, .groups = megatron_groups,
    .translate = megatron_translate,
};
