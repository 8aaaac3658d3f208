/* run_streams.c -- parallel streams: attention to the prefix of each, and the weighted mean of their results.
 *
 * Source  M. Chen et al., "Parallel scaling law for language models", arXiv:2505.10475; see ref/model/streams.c
 * Called  run_node.c calls these functions.  Errors: ERR_MEMORY without room for an operand, and those of the
 *         schemes, after which the step cannot go on.
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/model/run/run_node.h"

/* ---- a prefix as part of the keys -------------------------------------------------------------------------------- */

/* This holds what attention to the prefixes of this device's streams needs besides the arguments of the node. */
struct prefixed {
    const struct node_call *call;
    struct device *device;
    struct attention shape;             /* of a prefix and a sequence */
    int64_t S, T, sequences;            /* tokens of a sequence and of a prefix; sequences of each stream */
    struct interval streams;
    struct tensor at, packed;           /* I32 [T + S] positions; keys and values, if the weight has them apart */
    struct tensor keys;                 /* [streams T, 2 K A] */
};

static struct tensor run_streams_weight_of(const struct node_call *call, bool gradient)
{
    const int index = call->part->weight[call->node - call->part->linked.node];
    return gradient ? stage_gradient(call->stage, index) : stage_weight(call->stage, index);
}

/* Columns [part * width, (part + 1) * width) of fused rows. */
static void copy_columns(struct device *device, struct tensor fused, int part, struct tensor apart, bool to_fused)
{
    const uint64_t size = dtype_size(fused.dtype), pitch = (uint64_t)tensor_cols(fused) * size,
                   width = (uint64_t)tensor_cols(apart) * size;
    char *const at = (char *)fused.data + (uint64_t)part * width;
    if (to_fused) device_copy_rows(device, at, pitch, apart.data, width, width, tensor_rows(apart));
    else device_copy_rows(device, apart.data, width, at, pitch, width, tensor_rows(apart));
}

/* This device's rows of keys (part 0) or values of a weight that has them one after the other. */
static struct tensor half(const struct prefixed *prefixed, struct tensor w, int part)
{
    return tensor_rows_of(w, part * (tensor_rows(w) / 2) + prefixed->streams.first * prefixed->T,
                          prefixed->streams.count * prefixed->T);
}

static bool is_fused(const struct prefixed *prefixed, struct tensor w)
{
    return tensor_cols(w) == 2 * prefixed->shape.K * prefixed->shape.A;
}

static struct prefixed prefixed(const struct node_call *call)
{
    const struct stage *s = call->stage;
    const struct context_parallel *cp = &s->seams->cp;
    struct prefixed p = { .call = call, .device = s->device, .shape = node_attention(call), .S = s->plan->S,
                          .T = s->plan->model.streams.prefix, .streams = streams_of(cp, cp->rank) };
    p.sequences = call->micro->N / (p.streams.count * p.S);
    p.shape.S += p.T;
    return p;
}

static void close_prefix(struct prefixed *prefixed)
{
    device_free(prefixed->device, prefixed->at);
    device_free(prefixed->device, prefixed->packed);
}

static enum error_code fail_prefix(struct prefixed *prefixed, struct error *err)
{
    close_prefix(prefixed);
    return fail(err, ERR_MEMORY, "no memory for the prefixes of %lld streams", (long long)prefixed->streams.count);
}

static bool make_positions(struct prefixed *prefixed)
{
    prefixed->at = device_tensor_in(prefixed->device, BUFFERS, I32, prefixed->T + prefixed->S);
    if (prefixed->at.data == NULL) return false;
    struct views v = views_of(prefixed->device);
    int32_t *const at = view_write(&v, prefixed->at).data;
    for (int64_t i = 0; i < prefixed->T + prefixed->S; i++) at[i] = (int32_t)i;
    views_end(&v);
    return true;
}

/* The keys and values of this device's streams, fused. */
static bool take_keys(struct prefixed *prefixed)
{
    const struct tensor w = run_streams_weight_of(prefixed->call, false);
    if (is_fused(prefixed, w)) {
        prefixed->keys = tensor_rows_of(w, prefixed->streams.first * prefixed->T,
                                        prefixed->streams.count * prefixed->T);
        return true;
    }
    prefixed->keys = prefix_shape(&prefixed->call->stage->seams->cp, w.dtype);
    prefixed->packed = device_tensor_in(prefixed->device, BUFFERS, w.dtype, tensor_count(prefixed->keys));
    prefixed->keys.data = prefixed->packed.data;
    for (int part = 0; part < 2 && prefixed->keys.data; part++)
        copy_columns(prefixed->device, prefixed->keys, part, half(prefixed, w, part), true);
    return prefixed->keys.data != NULL;
}

static enum error_code open_prefix(struct prefixed *p, const struct node_call *call, struct error *err)
{
    *p = prefixed(call);
    return make_positions(p) && take_keys(p) ? OK : fail_prefix(p, err);
}

/* Return, for sequence i of the rows of all streams, its rows of a tensor; its stream's of keys, or of their
 * gradient. */
static struct tensor of_sequence(const struct prefixed *prefixed, struct tensor t, int64_t i)
{
    return tensor_rows_of(t, i * prefixed->S, prefixed->S);
}
static struct tensor of_stream(const struct prefixed *prefixed, struct tensor t, int64_t i)
{
    return tensor_rows_of(t, i / prefixed->sequences * prefixed->T, prefixed->T);
}
static struct tensor prefix_at(const struct prefixed *prefixed)
{
    return tensor_1d(prefixed->at.data, I32, prefixed->T);
}
static struct tensor tokens_at(const struct prefixed *prefixed)
{
    return tensor_1d((int32_t *)prefixed->at.data + prefixed->T, I32, prefixed->S);
}
static double run_streams_pairs(const struct prefixed *prefixed) { return (double)(prefixed->S * prefixed->T); }

/* One number for each query of each head, as operations on parts read it. */
static struct tensor by_head(const struct prefixed *prefixed, struct tensor t)
{
    return tensor_2d(t.data, t.dtype, tensor_count(t) / prefixed->S, prefixed->S);
}

/* Attention to the prefixes alone, then merged with that to the tokens. */
static enum error_code merge_prefix(struct prefixed *prefixed, struct error *err)
{
    const struct linked_node *n = prefixed->call->node;
    const struct tensor out = node_buffer(prefixed->call, n->y), lse = node_buffer(prefixed->call, n->statistic[0]),
                        qkv = node_buffer(prefixed->call, n->x[0]);
    struct tensor own = device_tensor_2d(prefixed->device, BUFFERS, tensor_rows(out), tensor_cols(out)), own_lse = lse;
    own_lse.data = device_tensor_in(prefixed->device, BUFFERS, lse.dtype, tensor_count(lse)).data;
    const bool ok = own.data && own_lse.data;
    for (int64_t i = 0; ok && i < prefixed->streams.count * prefixed->sequences; i++)
        dev_attention_part_forward(prefixed->device, of_sequence(prefixed, own, i), of_sequence(prefixed, own_lse, i),
                                   of_sequence(prefixed, qkv, i), of_stream(prefixed, prefixed->keys, i),
                                   tokens_at(prefixed), prefix_at(prefixed),
                                   attention_of_pairs(prefixed->shape, run_streams_pairs(prefixed)));
    if (ok)
        dev_attention_merge(prefixed->device, out, by_head(prefixed, lse), own, by_head(prefixed, own_lse),
                            node_attention(prefixed->call));
    device_free(prefixed->device, own);
    device_free(prefixed->device, own_lse);
    return ok ? OK : fail(err, ERR_MEMORY, "no memory for attention to prefixes");
}

enum error_code node_prefixed_forward(const struct node_call *call, struct error *err)
{
    struct prefixed p;
    enum error_code e = node_attention_forward(call, err);
    if (e || call->micro->N == 0) return e;
    e = open_prefix(&p, call, err);
    if (e) return e;
    e = merge_prefix(&p, err);
    close_prefix(&p);
    return e;
}

/* Where gradients of the queries add up: d_qkv, or with exact sums a copy of it as sums. */
static struct tensor open_sums(struct prefixed *prefixed, struct tensor d_qkv)
{
    if (!prefixed->device->exact) return d_qkv;
    struct tensor sums = d_qkv;
    sums.dtype = EXACT;
    sums.data = device_tensor_in(prefixed->device, BUFFERS, EXACT, tensor_count(d_qkv)).data;
    if (sums.data) dev_round(prefixed->device, sums, d_qkv);
    return sums;
}

static void close_sums(struct prefixed *prefixed, struct tensor d_qkv, struct tensor sums)
{
    if (sums.data == d_qkv.data) return;
    dev_round(prefixed->device, d_qkv, sums);
    device_free(prefixed->device, sums);
}

/* Adds to the gradient of the queries; the gradient of keys and values waits for the pass for the weights. */
static enum error_code prefix_input(struct prefixed *prefixed, struct error *err)
{
    const struct linked_node *n = prefixed->call->node;
    const struct tensor out = node_buffer(prefixed->call, n->y), lse = node_buffer(prefixed->call, n->statistic[0]),
                        qkv = node_buffer(prefixed->call, n->x[0]), d_out = node_buffer(prefixed->call, n->dy),
                        d_qkv = node_buffer(prefixed->call, n->dx[0]),
                            d_keys = node_buffer(prefixed->call, n->gradient[0]);
    struct tensor delta = lse, sums = open_sums(prefixed, d_qkv);
    delta.data = device_tensor_in(prefixed->device, BUFFERS, lse.dtype, tensor_count(lse)).data;
    if (delta.data == NULL || sums.data == NULL) {
        if (sums.data != d_qkv.data) device_free(prefixed->device, sums);
        device_free(prefixed->device, delta);
        return fail(err, ERR_MEMORY, "no memory for the gradient of attention to prefixes");
    }
    dev_attention_delta(prefixed->device, by_head(prefixed, delta), d_out, out, node_attention(prefixed->call));
    for (int64_t i = 0; i < prefixed->streams.count * prefixed->sequences; i++)
        dev_attention_part_backward(prefixed->device, of_sequence(prefixed, sums, i), of_stream(prefixed, d_keys, i),
                                    of_sequence(prefixed, d_out, i), of_sequence(prefixed, delta, i),
                                    of_sequence(prefixed, lse, i),
                                    of_sequence(prefixed, qkv, i), of_stream(prefixed, prefixed->keys, i),
                                    tokens_at(prefixed), prefix_at(prefixed),
                                    attention_of_pairs(prefixed->shape, run_streams_pairs(prefixed)));
    close_sums(prefixed, d_qkv, sums);
    device_free(prefixed->device, delta);
    return OK;
}

enum error_code node_prefixed_input(const struct node_call *call, struct error *err)
{
    struct prefixed p;
    enum error_code e = node_attention_input(call, err);
    if (e) return e;
    device_zero(call->stage->device, node_buffer(call, call->node->gradient[0]));
    if (call->micro->N == 0) return OK;
    e = open_prefix(&p, call, err);
    if (e) return e;
    e = prefix_input(&p, err);
    close_prefix(&p);
    return e;
}

enum error_code node_prefixed_weight(const struct node_call *call, struct error *err)
{
    const struct prefixed p = prefixed(call);
    const struct tensor g = run_streams_weight_of(call, true), own = node_buffer(call, call->node->gradient[0]);
    const enum error_code e = heads_add_copies(call->stage->tp, own, err);
    if (e) return e;
    if (is_fused(&p, g)) {
        const struct tensor here = tensor_rows_of(g, p.streams.first * p.T, p.streams.count * p.T);
        dev_add(p.device, here, here, own);
        return OK;
    }
    for (int part = 0; part < 2; part++) {
        const struct tensor here = half(&p, g, part);
        struct tensor more = device_tensor_in(p.device, BUFFERS, own.dtype, tensor_count(here));
        if (more.data == NULL) return fail(err, ERR_MEMORY, "no memory for the gradient of prefixes");
        more = tensor_2d(more.data, more.dtype, tensor_rows(here), tensor_cols(here));
        copy_columns(p.device, own, part, more, false);
        dev_add(p.device, here, here, more);
        device_free(p.device, more);
    }
    return OK;
}

/* ---- the mean ---------------------------------------------------------------------------------------------------- */

enum error_code node_beside_forward(const struct node_call *call, struct error *err)
{
    return streams_beside(&call->stage->seams->cp, node_buffer(call, call->node->y),
                          node_buffer(call, call->node->x[0]), err);
}

enum error_code node_beside_input(const struct node_call *call, struct error *err)
{
    return streams_apart(&call->stage->seams->cp, node_buffer(call, call->node->dx[0]),
                         node_buffer(call, call->node->dy), err);
}

enum error_code node_mix_forward(const struct node_call *call, struct error *err)
{
    const struct linked_node *n = call->node;
    (void)err;
    dev_streams_mix_forward(call->stage->device, node_buffer(call, n->y), node_buffer(call, n->statistic[0]),
                            node_buffer(call, n->x[1]), node_buffer(call, n->x[0]),
                            call->stage->plan->model.streams.smoothing);
    return OK;
}

enum error_code node_mix_input(const struct node_call *call, struct error *err)
{
    const struct linked_node *n = call->node;
    (void)err;
    dev_streams_mix_backward_input(call->stage->device, node_buffer(call, n->dx[0]), node_buffer(call, n->dx[1]),
                                   node_buffer(call, n->dy), node_buffer(call, n->statistic[0]),
                                   node_buffer(call, n->x[0]),
                                   call->stage->plan->model.streams.smoothing);
    return OK;
}
