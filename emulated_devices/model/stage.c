#include "emulated_devices/model/stage.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/model/block.h"
#include "emulated_devices/model/ends.h"
#include "emulated_devices/model/matrix.h"
#include "emulated_devices/model/memory.h"
#include "emulated_devices/model/recompute.h"
#include "ref/model/rotary.h"
#include <stdlib.h>

static void drop_microbatch(struct stage *s, struct microbatch *m)
{
    for (int l = 0; l < s->layers; l++) {
        block_drop(s, &m->block[l]);
        block_drop_gradients(s, &m->d_block[l]);
    }
    struct tensor *const all[] = { &m->out, &m->lnf_mean, &m->lnf_rstd, &m->lnf, &m->logits, &m->top, &m->sums, &m->d_lnf,
                                   &m->d_out, &m->d_in };
    drop_tensors(s->device, all, sizeof all / sizeof *all);
}

/* Bytes of one block's activations: all of them, and those that are dropped between forward and backward. */
static uint64_t all_bytes(const struct stage *s, const struct microbatch *m)
{
    return kept_bytes(s->device, block_keeps(s, m));
}

static uint64_t forgotten_bytes(const struct stage *s, const struct microbatch *m, int l)
{
    return kept_bytes(s->device, block_forgets(s, m, s->first_layer + l));
}

static uint64_t loss_bytes(const struct stage *s, const struct microbatch *m)
{
    return kept_bytes(s->device, loss_keeps(s, m));
}

/* Where there is no backward pass, nothing is kept for it. */
static bool keeps_nothing(const struct stage *s) { return s->plan->optimizer->forward_only; }

static void hold(struct held *h, uint64_t bytes)
{
    h->now += bytes;
    if (h->now > h->peak) h->peak = h->now;
}

void stage_forward_held(const struct stage *s, int micro, struct held *h)
{
    const struct microbatch *m = &s->micro[micro];
    const uint64_t stream = stage_message_bytes(s, micro);
    if (s->first) hold(h, stream);
    for (int l = 0; l < s->layers; l++) {
        if (l + 1 < s->layers || s->last) hold(h, stream);              /* the output */
        hold(h, all_bytes(s, m) - stream);
        h->now -= keeps_nothing(s) ? all_bytes(s, m) : forgotten_bytes(s, m, l);
    }
    if (s->last) hold(h, loss_bytes(s, m) - stream);
    if (s->last && keeps_nothing(s)) h->now -= loss_bytes(s, m);
}

void stage_backward_held(const struct stage *s, int micro, bool input, bool weight, struct held *h)
{
    const struct microbatch *m = &s->micro[micro];
    if (s->last && weight) h->now -= loss_bytes(s, m);
    for (int l = s->layers - 1; l >= 0; l--) {
        if (input) hold(h, forgotten_bytes(s, m, l));
        if (weight) h->now -= all_bytes(s, m);
    }
}

uint64_t stage_message_bytes(const struct stage *s, int micro)
{
    return (uint64_t)(s->micro[micro].stream.count * s->tp->channels) * dtype_size(s->device->dtype);
}

struct tensor stage_weight(const struct stage *s, int index) { return index < 0 ? tensor_none : parameter_find(s->parameters, index)->w; }
struct tensor stage_gradient(const struct stage *s, int index) { return index < 0 ? tensor_none : parameter_find(s->parameters, index)->g; }

struct tensor rows_of(struct tensor table, struct rows r)
{
    return tensor_1d((int32_t *)table.data + r.first, I32, r.count);
}

/* ---- opening, closing ------------------------------------------------------------------------------------------------ */

static bool make_rotary(struct stage *s)
{
    const struct model_config *c = &s->plan->model;
    if (c->positions != POSITIONS_ROTARY) return true;
    s->rotary = tensor_2d(NULL, dtype_wide(s->device->dtype), s->plan->S, c->A);
    s->rotary.data = malloc(tensor_bytes(s->rotary));
    if (s->rotary.data) rotary_table(&c->rotary, s->rotary);
    return s->rotary.data != NULL;
}

/* The tables of integers and of rotary positions are inputs, not tensors of the model: they are not counted. */
enum error_code stage_open(struct stage *s, const struct plan *plan, struct device *device, struct tensor_parallel *tp,
                           struct data_parallel *data, int index, int dp, struct error *err)
{
    *s = (struct stage){ .plan = plan, .device = device, .tp = tp, .data = data, .parameters = data->parameters, .index = index,
                         .first = index == 0, .last = index == plan->stages - 1, .first_layer = (int)plan_first_layer(plan, index) };
    s->layers = (int)plan_first_layer(plan, index + 1) - s->first_layer;
    s->micro = calloc((size_t)plan->micros, sizeof *s->micro);
    bool ok = s->micro != NULL && make_rotary(s);
    for (int i = 0; ok && i < plan->micros; i++) {
        struct microbatch *m = &s->micro[i];
        m->sequences = plan_microbatch(plan, dp, i);
        m->N = m->sequences.count * plan->S;
        m->stream = tensor_rows_at(tp, STREAM, m->N), m->inner = tensor_rows_at(tp, INNER, m->N);
        m->input = tensor_rows_at(tp, INPUT, m->N), m->gradient = tensor_rows_at(tp, GRADIENT, m->N);
        m->block = calloc((size_t)s->layers, sizeof *m->block);
        m->d_block = calloc((size_t)s->layers, sizeof *m->d_block);
        int32_t *ints = calloc((size_t)(3 * m->N), sizeof *ints);
        ok = m->block && m->d_block && ints;
        m->ids = tensor_1d(ints, I32, m->N);
        m->positions = tensor_1d(ints ? ints + m->N : NULL, I32, m->N);
        m->labels = tensor_1d(ints ? ints + 2 * m->N : NULL, I32, m->N);
        for (int64_t n = 0; ok && n < m->N; n++) ints[m->N + n] = (int32_t)(n % plan->S);
    }
    if (ok) return OK;
    stage_close(s);
    return fail(err, ERR_MEMORY, "no memory for the lists of %d microbatches", plan->micros);
}

void stage_close(struct stage *s)
{
    for (int i = 0; s->micro && i < s->plan->micros; i++) {
        struct microbatch *m = &s->micro[i];
        if (m->block && m->d_block) drop_microbatch(s, m);
        free(m->block), free(m->d_block), free(m->ids.data);
    }
    free(s->micro);
    free(s->rotary.data);
    s->micro = NULL;
    s->rotary = tensor_none;
}

/* ---- probes --------------------------------------------------------------------------------------------------------- */

void stage_show(struct stage *s, const struct microbatch *m, const char *name, int layer, struct tensor t)
{
    if (s->probe) s->probe->see(s->probe->context, name, layer, false, (int)(m - s->micro), t);
}

void stage_show_gradient(struct stage *s, const struct microbatch *m, const char *name, int layer, struct tensor t)
{
    if (s->probe) s->probe->see(s->probe->context, name, layer, true, (int)(m - s->micro), t);
}

/* ---- the executor's places ----------------------------------------------------------------------------------------- */

struct tensor stage_input(struct stage *s, int micro)
{
    struct microbatch *m = &s->micro[micro];
    return m->block[0].in = device_tensor_2d(s->device, ACTIVATIONS, m->stream.count, s->tp->channels);
}

struct tensor stage_output_gradient(struct stage *s, int micro)
{
    struct microbatch *m = &s->micro[micro];
    return m->d_out = device_tensor_2d(s->device, BUFFERS, m->stream.count, s->tp->channels);
}

struct tensor stage_take_output(struct stage *s, int micro) { return take_tensor(&s->micro[micro].out); }
struct tensor stage_take_input_gradient(struct stage *s, int micro) { return take_tensor(&s->micro[micro].d_in); }

/* ---- the operations ------------------------------------------------------------------------------------------------- */

static enum error_code out_of_memory(const struct stage *s, int micro, struct error *err)
{
    return fail(err, ERR_MEMORY, "the machine has no memory left for microbatch %d of stage %d", micro, s->index);
}

/* Parts of the model, as the data scheme counts them. */
static int part_of_layer(const struct stage *s, int l) { return 1 + s->first_layer + l; }
static int part_of_loss(const struct stage *s) { return 1 + (int)s->plan->model.L; }

static enum error_code forward_embedding(struct stage *s, struct microbatch *m, int micro, struct error *err)
{
    m->block[0].in = device_tensor_2d(s->device, ACTIVATIONS, m->stream.count, s->tp->channels);
    if (m->block[0].in.data == NULL) return out_of_memory(s, micro, err);
    enum error_code e = data_acquire(s->data, 0, err);
    if (!e) e = embedding_forward(s, m, m->block[0].in, err);
    data_release(s->data, 0);
    return e;
}

static enum error_code forward_layer(struct stage *s, struct microbatch *m, int micro, int l, struct error *err)
{
    /* what goes to the next stage is on its way out, not kept */
    const bool leaves = l + 1 == s->layers && !s->last;
    const struct tensor out = device_tensor_2d(s->device, leaves ? BUFFERS : ACTIVATIONS, m->stream.count, s->tp->channels);
    *(l + 1 < s->layers ? &m->block[l + 1].in : &m->out) = out;
    if (!block_make(s, m, &m->block[l]) || out.data == NULL) return out_of_memory(s, micro, err);
    enum error_code e = data_acquire(s->data, part_of_layer(s, l), err);
    if (!e) e = block_forward(s, m, s->first_layer + l, out, err);
    data_release(s->data, part_of_layer(s, l));
    if (keeps_nothing(s)) block_drop(s, &m->block[l]);
    else block_forget(s, m, s->first_layer + l);
    return e;
}

static enum error_code forward_loss(struct stage *s, struct microbatch *m, int micro, struct error *err)
{
    enum error_code e = data_acquire(s->data, part_of_loss(s), err);
    if (!e) e = loss_forward(s, m, micro, err);
    data_release(s->data, part_of_loss(s));
    if (keeps_nothing(s)) loss_drop(s, m);
    return e;
}

enum error_code stage_forward(struct stage *s, int micro, struct error *err)
{
    struct microbatch *m = &s->micro[micro];
    enum error_code e = s->first ? forward_embedding(s, m, micro, err) : OK;
    for (int l = 0; l < s->layers && !e; l++) e = forward_layer(s, m, micro, l, err);
    return !e && s->last ? forward_loss(s, m, micro, err) : e;
}

static enum error_code backward_loss(struct stage *s, struct microbatch *m, bool input, bool weight, struct error *err)
{
    const int part = part_of_loss(s);
    enum error_code e = OK;
    if (input) {
        e = data_acquire(s->data, part, err);
        if (!e) e = loss_backward_input(s, m, err);
        data_release(s->data, part);
    }
    if (e || !weight) return e;
    e = data_begin_gradient(s->data, part, err);
    if (e) return e;
    e = loss_backward_weight(s, m, err);
    return e ? e : data_end_gradient(s->data, part, err);
}

static enum error_code backward_layer(struct stage *s, struct microbatch *m, int l, bool input, bool weight, struct error *err)
{
    const int part = part_of_layer(s, l), layer = s->first_layer + l;
    enum error_code e = OK;
    if (input) {
        e = data_acquire(s->data, part, err);
        if (!e) e = block_remember(s, m, layer, err);
        if (!e) e = block_backward_input(s, m, layer, m->d_out, err);
        data_release(s->data, part);
    }
    if (e || !weight) return e;
    e = data_begin_gradient(s->data, part, err);
    if (e) return e;
    e = block_backward_weight(s, m, layer, err);
    return e ? e : data_end_gradient(s->data, part, err);
}

/* There is no input whose gradient anybody wants. */
static enum error_code backward_embedding(struct stage *s, struct microbatch *m, struct error *err)
{
    enum error_code e = data_begin_gradient(s->data, 0, err);
    if (e) return e;
    e = embedding_backward_weight(s, m, err);
    return e ? e : data_end_gradient(s->data, 0, err);
}

enum error_code stage_backward(struct stage *s, int micro, bool input, bool weight, struct error *err)
{
    struct microbatch *m = &s->micro[micro];
    enum error_code e = s->last ? backward_loss(s, m, input, weight, err) : OK;
    for (int l = s->layers - 1; l >= 0 && !e; l--) e = backward_layer(s, m, l, input, weight, err);
    if (e) return e;
    if (input) m->d_in = take_tensor(&m->d_out);
    if (s->first && input) dev_dropout(s->device, m->d_in, m->d_in, dropout_of(s, m, s->plan->model.dropout_embedding, -1, "embedding"));
    return s->first && weight ? backward_embedding(s, m, err) : OK;
}

/* ---- the same, as a list ---------------------------------------------------------------------------------------------- */

int stage_uses_forward(const struct stage *s, struct use *use)
{
    int n = 0;
    if (s->first) n += part_uses(s, 0, PASS_FORWARD, false, use + n);
    for (int l = 0; l < s->layers; l++) n += part_uses(s, part_of_layer(s, l), PASS_FORWARD, false, use + n);
    if (s->last) n += part_uses(s, part_of_loss(s), PASS_FORWARD, false, use + n);
    return n;
}

static int list_backward(const struct stage *s, int part, bool again, bool input, bool weight, struct use *use)
{
    int n = 0;
    if (input) n += part_uses(s, part, PASS_BACKWARD_INPUT, again, use + n);
    if (weight) n += part_uses(s, part, PASS_BACKWARD_WEIGHT, false, use + n);
    return n;
}

int stage_uses_backward(const struct stage *s, bool input, bool weight, struct use *use)
{
    int n = 0;
    if (s->last) n += list_backward(s, part_of_loss(s), false, input, weight, use + n);
    for (int l = s->layers - 1; l >= 0; l--)
        n += list_backward(s, part_of_layer(s, l), recompute_of(s->plan->recompute, s->first_layer + l) == RECOMPUTE_FULL, input, weight, use + n);
    if (s->first) n += list_backward(s, 0, false, false, weight, use + n);
    return n;
}
