/* megatron_stages.c -- how Megatron-LM's arguments cut layers over the stages of a pipeline, and which layers of a
 * stage they recompute.  Facts: NVIDIA/Megatron-LM, megatron/training/arguments.py, megatron/core/transformer/
 * transformer_config.py (__post_init__) and transformer_block.py (get_num_layers_to_build).  A problem is noted in the
 * struct from; after the first one nothing more is said. */
#include "emulated_devices/run/from/megatron_stages.h"
#include <stdio.h>
#include <string.h>

static const char first_key[] = "decoder-first-pipeline-num-layers", last_key[] = "decoder-last-pipeline-num-layers",
                  embedding_key[] = "account-for-embedding-in-pipeline-split",
                  loss_key[] = "account-for-loss-in-pipeline-split";

/* The arguments say how many layers the first and the last device along pp have (0: they do not), and whether the
 * embedding, and the loss, count as a layer. */
struct uneven { int64_t first, last; bool embedding, loss; };

/* ---- stages of a device ------------------------------------------------------------------------------------------ */

/* Stages of the pipeline on each device.  Layers are those to cut, with ends that count. */
static int64_t megatron_say_chunks(struct from *from, int64_t pp, const struct uneven *uneven)
{
    static const char each[] = "num-layers-per-virtual-pipeline-stage";
    static const char number[] = "num-virtual-stages-per-pipeline-rank";
    const int64_t layers = from_whole(from, each, 1, 1024), chunks = from_whole(from, number, 1, 64);
    const int64_t all = from_whole(from, "num-layers", 1, 1024) + uneven->embedding + uneven->loss;
    const bool ends = uneven->first > 0 || uneven->last > 0;
    const char *const key = chunks ? number : each;
    if (from_has(from, "overlap-p2p-comm"))
        from_nothing(from, "overlap-p2p-comm", "the plan's stages never wait to send");
    if (from->failed || (layers == 0 && chunks == 0)) return 1;
    if (layers && chunks) from_refuse(from, each, "and --%s %lld: give one of them", number, (long long)chunks);
    if (layers && ends) from_refuse(from, each, "with uneven stages use --%s", number);
    if (pp == 1) from_refuse(from, key, "needs --pipeline-model-parallel-size above 1");
    const int64_t v = chunks ? chunks : all > 0 && all % (pp * layers) == 0 ? all / (pp * layers) : 0;
    if (!from->failed && (v == 0 || (!ends && all % (pp * v) != 0)))
        from_refuse(from, key, "does not cut --num-layers %lld evenly into --pipeline-model-parallel-size %lld stages",
                    (long long)all, (long long)pp);
    if (from->failed || v == 1) {
        from_nothing(from, key, "off: one stage a device");
        return 1;
    }
    from_say(from, key, "--schedule", "interleaved");
    from_say(from, key, "--chunks", "%lld", (long long)v);
    return v;
}

/* ---- layers of a stage ------------------------------------------------------------------------------------------- */

static struct uneven read_uneven(struct from *from)
{
    const struct uneven u = {
        .first = from_whole(from, first_key, 1, 1024), .last = from_whole(from, last_key, 1, 1024),
        .embedding = from_truth(from, embedding_key), .loss = from_truth(from, loss_key),
    };
    const bool ends = u.first > 0 || u.last > 0;
    if (ends && (u.embedding || u.loss))
        from_refuse(from, u.embedding ? embedding_key : loss_key, "and --%s: give one of them",
                    u.first ? first_key : last_key);
    return u;
}

/* Layers of each device along pp that is neither first nor last by the arguments; 0 if they cannot be. */
static int64_t middle_layers(struct from *from, int64_t all, int64_t pp, const struct uneven *uneven)
{
    const int64_t left = all - uneven->first - uneven->last, devices = pp - (uneven->first > 0) - (uneven->last > 0);
    const char *const key = uneven->first > 0 ? first_key : last_key;
    if (all == 0) from_refuse(from, key, "needs --num-layers; with --model say --stage-layers");
    else if (devices < 0) from_refuse(from, key, "needs --pipeline-model-parallel-size above 1");
    else if ((left != 0) != (devices != 0) || left < 0 || (devices > 0 && left % devices != 0))
        from_refuse(from, key, "leaves %lld of --num-layers %lld to %lld devices, which cannot have equally many",
                    (long long)left, (long long)all, (long long)devices);
    return from->failed || devices == 0 ? 0 : left / devices;
}

/* All stages of a device have equally many layers. */
static void cut_by_devices(struct from *from, int64_t all, int64_t pp, const struct uneven *uneven,
                           struct megatron_stages *stages)
{
    const int64_t middle = middle_layers(from, all, pp, uneven), v = stages->chunks;
    if (from->failed) return;
    for (int64_t s = 0; s < stages->count; s++) {
        const int64_t device = s % pp;
        const bool first = device == 0 && uneven->first > 0, last = device == pp - 1 && uneven->last > 0;
        const int64_t own = first ? uneven->first : last ? uneven->last : middle;
        if (own % v != 0) {
            from_refuse(from, first ? first_key : last || uneven->first == 0 ? last_key : first_key,
                        "%lld layers of a device cannot be divided over its %lld stages", (long long)own, (long long)v);
            return;
        }
        stages->layers[s] = own / v;
    }
}

/* Say the layers of each stage in one word, and take the rows of the keys that are a part of the word. */
static void say_layers(struct from *from, const struct megatron_stages *stages, const struct uneven *uneven)
{
    char list[FROM_TEXT] = "";
    size_t used = 0;
    for (int64_t s = 0; s < stages->count && used < sizeof list; s++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%lld", s ? "," : "", (long long)stages->layers[s]);
    if (used >= sizeof list) from_refuse(from, first_key, "there are too many stages to list their layers");
    from_say(from, uneven->first ? first_key : last_key, "--stage-layers", "%s", list);
    if (uneven->first && uneven->last) from_with(from, last_key, "in --stage-layers");
}

static void say_ends(struct from *from, const struct uneven *uneven)
{
    from_say(from, uneven->embedding ? embedding_key : loss_key, "--stage-layers", "%s",
             uneven->embedding && uneven->loss ? "ends" : uneven->embedding ? "embedding" : "loss");
    if (uneven->embedding && uneven->loss) from_with(from, loss_key, "in --stage-layers");
}

/* Keys that are switched off, or that a single stage does not need. */
static void say_no_use(struct from *from, int64_t pp, const struct uneven *uneven)
{
    const struct { const char *key; bool on; } keys[] = { { first_key, uneven->first > 0 },
                                                          { last_key, uneven->last > 0 },
                                                          { embedding_key, uneven->embedding },
                                                          { loss_key, uneven->loss } };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (from_has(from, keys[i].key) && (pp == 1 || !keys[i].on))
            from_nothing(from, keys[i].key, keys[i].on ? "off: there is one stage" : "off");
}

void megatron_say_stages(struct from *from, int64_t pp, struct megatron_stages *stages)
{
    const struct uneven u = read_uneven(from);
    const int64_t all = from_whole(from, "num-layers", 1, 1024), counted = all + u.embedding + u.loss;
    *stages = (struct megatron_stages){ .chunks = megatron_say_chunks(from, pp, &u) };
    stages->count = pp * stages->chunks;
    if (!from->failed && stages->count > MEGATRON_MOST_STAGES)
        from_refuse(from, "pipeline-model-parallel-size", "makes more than %d stages", MEGATRON_MOST_STAGES);
    if (from->failed) return;
    if (pp > 1 && (u.first > 0 || u.last > 0)) cut_by_devices(from, all, pp, &u, stages);
    else {
        if (all > 0 && pp > 1 && (u.embedding || u.loss) && counted % stages->count != 0)
            from_refuse(from, u.embedding ? embedding_key : loss_key, "%lld layers with it cannot be divided over %lld "
                        "stages", (long long)counted, (long long)stages->count);
        for (int64_t s = 0; s < stages->count; s++) stages->layers[s] = counted / stages->count;
        if (pp > 1) stages->layers[0] -= u.embedding, stages->layers[stages->count - 1] -= u.loss;
    }
    say_no_use(from, pp, &u);
    if (from->failed || pp == 1) return;
    if (u.first > 0 || u.last > 0) say_layers(from, stages, &u);
    else if (u.embedding || u.loss) say_ends(from, &u);
}

/* ---- recomputation ----------------------------------------------------------------------------------------------- */

/* The layers that "block" recomputes: the first n of each stage. */
static void megatron_say_blocks(struct from *from, int64_t n, const struct megatron_stages *stages)
{
    char list[FROM_TEXT] = "";
    size_t used = 0;
    bool all = true;
    for (int64_t s = 0; s < stages->count; s++) all = all && n >= stages->layers[s];
    if (all) {
        from_say(from, "recompute-num-layers", "--recompute", "full");
        return;
    }
    for (int64_t s = 0, layer = 0; s < stages->count && used < sizeof list; layer += stages->layers[s++]) {
        const int64_t own = n < stages->layers[s] ? n : stages->layers[s];
        if (own == 0) continue;
        used += (size_t)snprintf(list + used, sizeof list - used, own > 1 ? "%s%lld-%lld" : "%s%lld", used ? "," : "",
                                 (long long)layer, (long long)(layer + own - 1));
    }
    if (used >= sizeof list) from_refuse(from, "recompute-num-layers", "there are too many stages to list its layers");
    from_say(from, "recompute-num-layers", "--recompute", "%s", list);
}

static void megatron_say_full(struct from *from, const struct megatron_stages *stages)
{
    static const char number[] = "recompute-num-layers";
    const int64_t n = from_whole(from, number, 1, 1024);
    if (from_value(from, "recompute-method") == NULL)
        from_refuse(from, "recompute-granularity", "needs --recompute-method uniform or block");
    if (n == 0) from_refuse(from, "recompute-granularity", "needs --recompute-num-layers");
    if (from->failed) return;
    if (from_is(from, "recompute-method", "block")) {
        megatron_say_blocks(from, n, stages);
        from_with(from, "recompute-granularity", "in --recompute");
    } else if (from_is(from, "recompute-method", "uniform")) {
        from_say(from, "recompute-granularity", "--recompute", "full");
        if (n == 1) from_with(from, number, "in --recompute: each layer alone");
        else from_outside(from, number, "one saved input for %lld layers, and their activations at once in backward; "
                          "the plan saves one for each layer", (long long)n);
    } else from_refuse(from, "recompute-method", "must be uniform or block");
    from_with(from, "recompute-method", "in --recompute");
}

void megatron_say_recompute(struct from *from, const struct megatron_stages *stages)
{
    static const char what[] = "recompute-granularity", parts[] = "recompute-modules", old[] = "recompute-activations";
    static const char *const of_full[] = { "recompute-method", "recompute-num-layers" };
    const bool selective = from_truth(from, old) || from_is(from, what, "selective");
    if (selective) {
        from_say(from, from_truth(from, old) ? old : what, "--recompute", "selective");
        if (from_truth(from, old) && from_has(from, what)) from_with(from, what, "in --recompute");
    } else if (from_is(from, what, "full")) megatron_say_full(from, stages);
    else if (from_value(from, what)) from_refuse(from, what, "must be full or selective");
    else if (from_has(from, what)) from_nothing(from, what, "off");
    if (from_has(from, old) && !from_truth(from, old)) from_nothing(from, old, "off");
    for (int i = 0; i < 2; i++) {
        if (!from_has(from, of_full[i]) || from_is(from, what, "full")) continue;
        if (selective && from_value(from, of_full[i]))
            from_refuse(from, of_full[i], "is for --recompute-granularity full, and it is selective");
        from_nothing(from, of_full[i], "of --recompute-granularity full alone");
    }
    if (!from_has(from, parts)) return;
    if (!selective) from_nothing(from, parts, "of --recompute-granularity selective alone");
    else if (from_is(from, parts, "core_attn")) from_with(from, parts, "in --recompute");
    else from_outside(from, parts, "other parts would be computed again, and not kept; the plan's selective is "
                      "core_attn");
}
