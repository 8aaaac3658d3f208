/* run_streams.c -- parallel streams: attention to the prefix of each, and the weighted mean of their results.
 *
 * Source  M. Chen et al., "Parallel scaling law for language models", arXiv:2505.10475; see ref/model/streams.c
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/model/run/run_node.h"

/* ---- a prefix as part of the keys -------------------------------------------------------------------------------- */

/* What attention to the prefixes of this device's streams needs besides the arguments of the node. */
struct prefixed {
    const struct node_call *call;
    struct device *device;
    struct attention shape;             /* of a prefix and a sequence */
    int64_t S, T, sequences;            /* tokens of a sequence and of a prefix; sequences of each stream */
    struct interval streams;
    struct tensor at, packed;           /* I32 [T + S] positions; keys and values, if the weight has them apart */
    struct tensor keys;                 /* [streams T, 2 K A] */
};

static struct tensor weight_of(const struct node_call *c, bool gradient)
{
    const int index = c->part->weight[c->node - c->part->linked.node];
    return gradient ? stage_gradient(c->stage, index) : stage_weight(c->stage, index);
}

/* Columns [part * width, (part + 1) * width) of fused rows. */
static void copy_columns(struct device *d, struct tensor fused, int part, struct tensor apart, bool to_fused)
{
    const uint64_t size = dtype_size(fused.dtype), pitch = (uint64_t)tensor_cols(fused) * size,
                   width = (uint64_t)tensor_cols(apart) * size;
    char *const at = (char *)fused.data + (uint64_t)part * width;
    if (to_fused) device_copy_rows(d, at, pitch, apart.data, width, width, tensor_rows(apart));
    else device_copy_rows(d, apart.data, width, at, pitch, width, tensor_rows(apart));
}

/* This device's rows of keys (part 0) or values of a weight that has them one after the other. */
static struct tensor half(const struct prefixed *p, struct tensor w, int part)
{
    return tensor_rows_of(w, part * (tensor_rows(w) / 2) + p->streams.first * p->T, p->streams.count * p->T);
}

static bool is_fused(const struct prefixed *p, struct tensor w)
{
    return tensor_cols(w) == 2 * p->shape.K * p->shape.A;
}

static struct prefixed prefixed(const struct node_call *c)
{
    const struct stage *s = c->stage;
    const struct context_parallel *cp = &s->seams->cp;
    struct prefixed p = { .call = c, .device = s->device, .shape = node_attention(c), .S = s->plan->S,
                          .T = s->plan->model.streams.prefix, .streams = streams_of(cp, cp->rank) };
    p.sequences = c->micro->N / (p.streams.count * p.S);
    p.shape.S += p.T;
    return p;
}

static void close_prefix(struct prefixed *p)
{
    device_free(p->device, p->at);
    device_free(p->device, p->packed);
}

static enum error_code fail_prefix(struct prefixed *p, struct error *err)
{
    close_prefix(p);
    return fail(err, ERR_MEMORY, "no memory for the prefixes of %lld streams", (long long)p->streams.count);
}

static bool make_positions(struct prefixed *p)
{
    p->at = device_tensor_in(p->device, BUFFERS, I32, p->T + p->S);
    if (p->at.data == NULL) return false;
    struct views v = views_of(p->device);
    int32_t *const at = view_write(&v, p->at).data;
    for (int64_t i = 0; i < p->T + p->S; i++) at[i] = (int32_t)i;
    views_end(&v);
    return true;
}

/* The keys and values of this device's streams, fused. */
static bool take_keys(struct prefixed *p)
{
    const struct tensor w = weight_of(p->call, false);
    if (is_fused(p, w)) {
        p->keys = tensor_rows_of(w, p->streams.first * p->T, p->streams.count * p->T);
        return true;
    }
    p->keys = prefix_shape(&p->call->stage->seams->cp, w.dtype);
    p->packed = device_tensor_in(p->device, BUFFERS, w.dtype, tensor_count(p->keys));
    p->keys.data = p->packed.data;
    for (int part = 0; part < 2 && p->keys.data; part++) copy_columns(p->device, p->keys, part, half(p, w, part), true);
    return p->keys.data != NULL;
}

static enum error_code open_prefix(struct prefixed *p, const struct node_call *c, struct error *err)
{
    *p = prefixed(c);
    return make_positions(p) && take_keys(p) ? OK : fail_prefix(p, err);
}

/* Of sequence i of the rows of all streams: its rows of a tensor; its stream's of keys, or of their gradient. */
static struct tensor of_sequence(const struct prefixed *p, struct tensor t, int64_t i)
{
    return tensor_rows_of(t, i * p->S, p->S);
}
static struct tensor of_stream(const struct prefixed *p, struct tensor t, int64_t i)
{
    return tensor_rows_of(t, i / p->sequences * p->T, p->T);
}
static struct tensor prefix_at(const struct prefixed *p) { return tensor_1d(p->at.data, I32, p->T); }
static struct tensor tokens_at(const struct prefixed *p)
{
    return tensor_1d((int32_t *)p->at.data + p->T, I32, p->S);
}
static double pairs(const struct prefixed *p) { return (double)(p->S * p->T); }

/* One number for each query of each head, as operations on parts read it. */
static struct tensor by_head(const struct prefixed *p, struct tensor t)
{
    return tensor_2d(t.data, t.dtype, tensor_count(t) / p->S, p->S);
}

/* Attention to the prefixes alone, then merged with that to the tokens. */
static enum error_code merge_prefix(struct prefixed *p, struct error *err)
{
    const struct linked_node *n = p->call->node;
    const struct tensor out = node_buffer(p->call, n->y), lse = node_buffer(p->call, n->statistic[0]),
                        qkv = node_buffer(p->call, n->x[0]);
    struct tensor own = device_tensor_2d(p->device, BUFFERS, tensor_rows(out), tensor_cols(out)), own_lse = lse;
    own_lse.data = device_tensor_in(p->device, BUFFERS, lse.dtype, tensor_count(lse)).data;
    const bool ok = own.data && own_lse.data;
    for (int64_t i = 0; ok && i < p->streams.count * p->sequences; i++)
        dev_attention_part_forward(p->device, of_sequence(p, own, i), of_sequence(p, own_lse, i),
                                   of_sequence(p, qkv, i), of_stream(p, p->keys, i), tokens_at(p), prefix_at(p),
                                   attention_of_pairs(p->shape, pairs(p)));
    if (ok)
        dev_attention_merge(p->device, out, by_head(p, lse), own, by_head(p, own_lse), node_attention(p->call));
    device_free(p->device, own);
    device_free(p->device, own_lse);
    return ok ? OK : fail(err, ERR_MEMORY, "no memory for attention to prefixes");
}

enum error_code node_prefixed_forward(const struct node_call *c, struct error *err)
{
    struct prefixed p;
    enum error_code e = node_attention_forward(c, err);
    if (e || c->micro->N == 0) return e;
    e = open_prefix(&p, c, err);
    if (e) return e;
    e = merge_prefix(&p, err);
    close_prefix(&p);
    return e;
}

/* Adds to the gradient of the queries; the gradient of keys and values waits for the pass for the weights. */
static enum error_code prefix_input(struct prefixed *p, struct error *err)
{
    const struct linked_node *n = p->call->node;
    const struct tensor out = node_buffer(p->call, n->y), lse = node_buffer(p->call, n->statistic[0]),
                        qkv = node_buffer(p->call, n->x[0]), d_out = node_buffer(p->call, n->dy),
                        d_qkv = node_buffer(p->call, n->dx[0]), d_keys = node_buffer(p->call, n->gradient[0]);
    struct tensor delta = lse;
    delta.data = device_tensor_in(p->device, BUFFERS, lse.dtype, tensor_count(lse)).data;
    if (delta.data == NULL) return fail(err, ERR_MEMORY, "no memory for the gradient of attention to prefixes");
    dev_attention_delta(p->device, by_head(p, delta), d_out, out, node_attention(p->call));
    for (int64_t i = 0; i < p->streams.count * p->sequences; i++)
        dev_attention_part_backward(p->device, of_sequence(p, d_qkv, i), of_stream(p, d_keys, i),
                                    of_sequence(p, d_out, i), of_sequence(p, delta, i), of_sequence(p, lse, i),
                                    of_sequence(p, qkv, i), of_stream(p, p->keys, i), tokens_at(p), prefix_at(p),
                                    attention_of_pairs(p->shape, pairs(p)));
    device_free(p->device, delta);
    return OK;
}

enum error_code node_prefixed_input(const struct node_call *c, struct error *err)
{
    struct prefixed p;
    enum error_code e = node_attention_input(c, err);
    if (e) return e;
    device_zero(c->stage->device, node_buffer(c, c->node->gradient[0]));
    if (c->micro->N == 0) return OK;
    e = open_prefix(&p, c, err);
    if (e) return e;
    e = prefix_input(&p, err);
    close_prefix(&p);
    return e;
}

enum error_code node_prefixed_weight(const struct node_call *c, struct error *err)
{
    const struct prefixed p = prefixed(c);
    const struct tensor g = weight_of(c, true), own = node_buffer(c, c->node->gradient[0]);
    const enum error_code e = heads_add_copies(c->stage->tp, own, err);
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

enum error_code node_beside_forward(const struct node_call *c, struct error *err)
{
    return streams_beside(&c->stage->seams->cp, node_buffer(c, c->node->y), node_buffer(c, c->node->x[0]), err);
}

enum error_code node_beside_input(const struct node_call *c, struct error *err)
{
    return streams_apart(&c->stage->seams->cp, node_buffer(c, c->node->dx[0]), node_buffer(c, c->node->dy), err);
}

enum error_code node_mix_forward(const struct node_call *c, struct error *err)
{
    const struct linked_node *n = c->node;
    (void)err;
    dev_streams_mix_forward(c->stage->device, node_buffer(c, n->y), node_buffer(c, n->statistic[0]),
                            node_buffer(c, n->x[1]), node_buffer(c, n->x[0]),
                            c->stage->plan->model.streams.smoothing);
    return OK;
}

enum error_code node_mix_input(const struct node_call *c, struct error *err)
{
    const struct linked_node *n = c->node;
    (void)err;
    dev_streams_mix_backward_input(c->stage->device, node_buffer(c, n->dx[0]), node_buffer(c, n->dx[1]),
                                   node_buffer(c, n->dy), node_buffer(c, n->statistic[0]), node_buffer(c, n->x[0]),
                                   c->stage->plan->model.streams.smoothing);
    return OK;
}
