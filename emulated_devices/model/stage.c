#include "emulated_devices/model/stage.h"
#include "emulated_devices/model/away.h"
#include "emulated_devices/model/balance.h"
#include "emulated_devices/model/link/link_cost.h"
#include "emulated_devices/model/run/run.h"
#include "ref/model/rotary.h"
#include <stdlib.h>

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static const struct model_part *embedding_of(const struct stage *s) { return &s->part[0]; }
static const struct model_part *layer_of(const struct stage *s, int l) { return &s->part[1 + l]; }
static const struct model_part *loss_of(const struct stage *s) { return &s->part[1 + s->layers]; }

static bool is_last_part(const struct stage *s, const struct model_part *p) { return p == loss_of(s); }

struct tensor *stage_buffer(struct microbatch *m, const struct model_part *p, int buffer)
{
    if (buffer == BUFFER_GRADIENT) return &m->gradient;
    if (buffer == BUFFER_OUT) return &m->tensor[p[1].first_buffer + BUFFER_IN];
    return &m->tensor[p->first_buffer + buffer];
}

const char *stage_entering(const struct model_part *p) { return p->layer == 0 ? "embedding" : "out"; }

struct tensor stage_weight(const struct stage *s, int index)
{
    return index < 0 ? tensor_none : parameter_find(s->parameters, index)->w;
}
struct tensor stage_gradient(const struct stage *s, int index)
{
    return index < 0 ? tensor_none : parameter_find(s->parameters, index)->g;
}

/* Without a backward pass nothing is kept after forward. */
static bool keeps_nothing(const struct stage *s) { return s->plan->optimizer->forward_only; }

/* ---- opening, closing -------------------------------------------------------------------------------------------- */

static enum error_code link_parts(struct stage *s, struct error *err)
{
    const struct plan *plan = s->plan;
    const struct model_config *c = &plan->model;
    enum error_code e = OK;
    for (int i = 0; i < s->layers + 2 && !e; i++) {
        struct model_part *p = &s->part[i];
        const bool has = i == 0 ? s->first : i <= s->layers || s->last;
        p->layer = i == 0 ? -1 : i <= s->layers ? s->first_layer + i - 1 : (int)c->L;
        p->index = p->layer + 1;
        p->first_buffer = s->buffers;
        p->linked.buffers = BUFFER_FIRST_OWN;
        if (has) e = link_layer(&p->linked, c, s->seams, p->layer, plan->recompute, keeps_nothing(s), err);
        s->buffers += p->linked.buffers;
        const struct layer_names names = program_names(c, p->layer);
        for (int v = 0; v < p->linked.nodes; v++) {
            p->weight[v] = program_weight(c, p->linked.node[v].is, &names);
            p->bias[v] = program_bias(p->linked.node[v].is, &names);
        }
    }
    return e;
}

/* On devices without numbers nobody reads it. */
static bool make_table(const struct stage *s, struct tensor *t, struct rotary r)
{
    *t = tensor_2d(NULL, dtype_wide(s->device->dtype), s->plan->S, rotary_table_width(&s->plan->model));
    t->data = malloc(tensor_bytes(*t));
    if (t->data && s->device->backend->has_numbers) rotary_table(&r, *t);
    return t->data != NULL;
}

static bool make_rotary(struct stage *s)
{
    const struct model_config *c = &s->plan->model;
    if (c->positions != POSITIONS_ROTARY) return true;
    return make_table(s, &s->rotary, c->rotary) &&
           (c->local_theta == 0 || make_table(s, &s->local_rotary, model_local_rotary(c)));
}

static void drop_cut(struct microbatch *m)
{
    free(m->ids.data);
    intervals_free(&m->rows), intervals_free(&m->tokens);
    context_plan_free(&m->plan);
    balance_close(m);
    m->ids = tensor_none;
}

/* Without packed samples a plan's samples are whole sequences. */
static void mask_sequences(const struct microbatch *m, int64_t S)
{
    int32_t *const sees = m->mask.data;
    for (int64_t i = 0; i < tensor_rows(m->mask); i++)
        sees[2 * i] = (int32_t)(i - i % S), sees[2 * i + 1] = (int32_t)i + 1;
}

/* Shuffled rows: where each is, from the first of the batch to the last. */
static int compare_rows(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static bool sort_places(struct microbatch *m)
{
    struct place { int64_t row; int32_t at; } *const place = malloc((size_t)(m->N + 1) * sizeof *place);
    int32_t n = 0;
    if (place == NULL) return false;
    for (int i = 0; i < m->rows.count; i++)
        for (int64_t row = m->rows.at[i].first; row < interval_end(m->rows.at[i]); row++, n++)
            place[n] = (struct place){ row, n };
    qsort(place, (size_t)m->N, sizeof *place, compare_rows);
    for (int64_t i = 0; i < m->N; i++) ((int32_t *)m->sorted.data)[i] = place[i].at;
    free(place);
    return true;
}

static enum error_code cut_microbatch(const struct stage *s, struct microbatch *m, int micro, struct error *err)
{
    const int dp = mesh_coordinate(&s->plan->mesh, s->rank, DP);
    const bool plans = s->seams->cp.scheme->plan != NULL;
    drop_cut(m);
    for (int i = 0; m->routing && i < s->layers + 2; i++) expert_routing_clear(&m->routing[i]); /* not known yet */
    const enum error_code e = plan_context(s->plan, dp, micro, tensor_none, &m->plan, err);
    if (e) return e;
    m->sequences = plan_sequences(s->plan, dp, micro);
    m->rows = plan_rows_by(s->plan, s->rank, micro, &m->plan);
    m->N = intervals_total(&m->rows);
    m->tokens = plan_loss_rows_by(s->plan, s->rank, micro, &m->plan);
    const int64_t masked = s->plan->packed || plans ? m->sequences.count * s->plan->S : 0;
    const bool shuffled = plan_shuffles(s->plan);
    int32_t *ints = calloc((size_t)((shuffled ? 4 : 3) * m->N + 2 * masked) + 1, sizeof *ints);
    m->ids = tensor_1d(ints, I32, m->N);
    m->positions = tensor_1d(ints ? ints + m->N : NULL, I32, m->N);
    m->labels = tensor_1d(ints ? ints + 2 * m->N : NULL, I32, intervals_total(&m->tokens));
    m->mask = masked > 0 ? tensor_2d(ints ? ints + 3 * m->N : NULL, I32, masked, 2) : tensor_none;
    m->pairs[0] = m->pairs[1] = -1;
    int32_t *position = ints ? ints + m->N : NULL;
    for (int i = 0; ints && i < m->rows.count; i++)
        for (int64_t row = m->rows.at[i].first; row < interval_end(m->rows.at[i]); row++)
            *position++ = (int32_t)(row % s->plan->S);
    if (ints && plans) mask_sequences(m, s->plan->S);
    m->sorted = shuffled && ints ? tensor_1d(ints + 3 * m->N + 2 * masked, I32, m->N) : tensor_none;
    const bool sorted = !shuffled || (ints && sort_places(m));
    const bool counts = s->plan->model.mlp != MLP_MIXTURE || balance_open(s, m);
    const bool ok = ints && sorted && counts && !intervals_lost(&m->rows) && !intervals_lost(&m->tokens);
    return ok ? OK : fail(err, ERR_MEMORY, "no memory for the rows of a microbatch");
}

enum error_code stage_cut(struct stage *s, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; !e && i < s->plan->micros; i++) e = cut_microbatch(s, &s->micro[i], i, err);
    return e ? e : away_cut(s, err);
}

static bool make_routing(const struct stage *s, struct microbatch *m)
{
    m->routing = calloc((size_t)s->layers + 2, sizeof *m->routing);
    return m->routing != NULL;
}

/* The tables of integers and of rotary positions are inputs, not tensors of the model, so they are not counted. */
enum error_code stage_open(struct stage *s, const struct plan *plan, struct device *device, struct tensor_parallel *tp,
                           struct seams *seams, struct data_parallel *data, int index, int rank, struct error *err)
{
    *s = (struct stage){ .plan = plan, .device = device, .tp = tp, .seams = seams, .data = data,
                         .parameters = data->parameters, .rank = rank, .index = index, .first = index == 0,
                         .last = index == plan->stages - 1, .first_layer = (int)plan_first_layer(plan, index) };
    s->layers = (int)plan_first_layer(plan, index + 1) - s->first_layer;
    s->micro = calloc((size_t)plan->micros, sizeof *s->micro);
    s->part = calloc((size_t)s->layers + 2, sizeof *s->part);
    s->moved = calloc((size_t)s->layers + 1, sizeof *s->moved);
    bool ok = s->micro && s->part && s->moved && make_rotary(s);
    enum error_code e = ok ? link_parts(s, err) : OK;
    for (int i = 0; ok && !e && i < plan->micros; i++)
        ok = (s->micro[i].tensor = calloc((size_t)s->buffers, sizeof *s->micro[i].tensor)) != NULL &&
             (plan->model.mlp != MLP_MIXTURE || make_routing(s, &s->micro[i]));
    if (ok && !e) e = stage_cut(s, err);
    if (!ok) e = fail(err, ERR_MEMORY, "no memory for the lists of %d microbatches", plan->micros);
    if (e) stage_close(s);
    return e;
}

static void drop_microbatch(struct stage *s, struct microbatch *m)
{
    for (int i = 0; m->tensor && i < s->layers + 2; i++) run_drop(s, m, &s->part[i]);
    device_free(s->device, m->gradient);
    for (int i = 0; m->routing && i < s->layers + 2; i++) expert_routing_clear(&m->routing[i]);
    free(m->tensor), free(m->routing);
    drop_cut(m);
}

void stage_close(struct stage *s)
{
    for (int i = 0; s->micro && i < s->plan->micros; i++) drop_microbatch(s, &s->micro[i]);
    away_close(s);
    free(s->micro), free(s->part), free(s->moved), free(s->rotary.data), free(s->local_rotary.data);
    s->micro = NULL, s->part = NULL, s->moved = NULL;
    s->rotary = s->local_rotary = tensor_none;
}

/* ---- probes ------------------------------------------------------------------------------------------------------ */

void stage_show(struct stage *s, const struct microbatch *m, const char *name, int layer, bool gradient,
                struct tensor t)
{
    if (s->probe) s->probe->see(s->probe->context, name, layer, gradient, (int)(m - s->micro), t);
}

/* ---- what the executor sends and receives ------------------------------------------------------------------------ */

static struct tensor stream(const struct stage *s, const struct microbatch *m, enum arena_tag tag)
{
    return device_tensor_2d(s->device, tag, tensor_rows_at(s->tp, STREAM, m->N).count, s->tp->channels.count);
}

static struct tensor take(struct tensor *t)
{
    const struct tensor taken = *t;
    *t = tensor_none;
    return taken;
}

struct tensor stage_input(struct stage *s, int micro)
{
    struct microbatch *m = &s->micro[micro];
    return *stage_buffer(m, layer_of(s, 0), BUFFER_IN) = stream(s, m, ACTIVATIONS);
}

struct tensor stage_output_gradient(struct stage *s, int micro)
{
    return s->micro[micro].gradient = stream(s, &s->micro[micro], BUFFERS);
}
struct tensor stage_take_output(struct stage *s, int micro)
{
    return take(stage_buffer(&s->micro[micro], loss_of(s), BUFFER_IN));
}
struct tensor stage_take_input_gradient(struct stage *s, int micro) { return take(&s->micro[micro].gradient); }

struct stage_note stage_note(const struct stage *s, int micro, bool gradient)
{
    return balance_note(s, &s->micro[micro], gradient);
}

/* ---- the operations ---------------------------------------------------------------------------------------------- */

/* Allocate a part's output.  An output for the next stage will be sent; it is not kept. */
static enum error_code make_output(struct stage *s, struct microbatch *m, const struct model_part *p, struct error *err)
{
    if (is_last_part(s, p)) return OK;
    const bool leaves = is_last_part(s, p + 1) && !s->last;
    const struct tensor out = stream(s, m, leaves ? BUFFERS : ACTIVATIONS);
    *stage_buffer(m, p, BUFFER_OUT) = out;
    return out.data ? OK
                    : fail(err, ERR_MEMORY, "the machine has no memory left for microbatch %d of stage %d",
                           (int)(m - s->micro), s->index);
}

/* For reports of the peak. */
static void note_part(const struct stage *s, const struct model_part *p)
{
    struct doing *const d = &s->device->arena.doing;
    d->part = p->layer < 0 ? "the embedding" : p->layer == s->plan->model.L ? "the loss" : "layer";
    d->layer = p->layer, d->what = NULL;
}

static enum error_code forward_part(struct stage *s, struct microbatch *m, const struct model_part *p,
                                    struct error *err)
{
    note_part(s, p);
    enum error_code e = make_output(s, m, p, err);
    if (!e) e = run_make(s, m, p, LIST_FORWARD, err);
    if (e) return e;
    e = data_acquire(s->data, p->index, err);
    if (!e) e = run_list(s, m, p, LIST_FORWARD, err);
    data_release(s->data, p->index);
    return e;
}

enum error_code stage_forward(struct stage *s, int micro, struct error *err)
{
    struct microbatch *m = &s->micro[micro];
    balance_begin(s, m);
    enum error_code e = s->first ? forward_part(s, m, embedding_of(s), err) : OK;
    for (int l = 0; l < s->layers && !e; l++) {
        e = forward_part(s, m, layer_of(s, l), err);
        if (!e) e = away_after_forward(s, m, l, err);
    }
    if (!e && s->last) e = forward_part(s, m, loss_of(s), err);
    return e ? e : balance_after_forward(s, m, err);
}

/* First recompute what was dropped. */
static enum error_code backward_input(struct stage *s, struct microbatch *m, const struct model_part *p,
                                      struct error *err)
{
    static const enum list lists[] = { LIST_AGAIN, LIST_INPUT };
    const bool weights = list_uses_weights(&p->linked, LIST_INPUT);
    enum error_code e = weights ? data_acquire(s->data, p->index, err) : OK;
    for (int i = 0; i < 2 && !e; i++) {
        e = run_make(s, m, p, lists[i], err);
        if (!e) e = run_list(s, m, p, lists[i], err);
    }
    if (weights) data_release(s->data, p->index);
    return e;
}

static enum error_code backward_weight(struct stage *s, struct microbatch *m, const struct model_part *p,
                                       struct error *err)
{
    enum error_code e = data_begin_gradient(s->data, p->index, err);
    if (!e) e = run_list(s, m, p, LIST_WEIGHT, err);
    return e ? e : data_end_gradient(s->data, p->index, err);
}

static enum error_code backward_part(struct stage *s, struct microbatch *m, const struct model_part *p, bool input,
                                     bool weight, struct error *err)
{
    note_part(s, p);
    const enum error_code e = input ? backward_input(s, m, p, err) : OK;
    return e || !weight ? e : backward_weight(s, m, p, err);
}

enum error_code stage_backward(struct stage *s, int micro, bool input, bool weight, struct error *err)
{
    struct microbatch *m = &s->micro[micro];
    enum error_code e = s->last ? backward_part(s, m, loss_of(s), input, weight, err) : OK;
    for (int l = s->layers - 1; l >= 0 && !e; l--) {
        if (input) e = away_before_backward(s, m, l, err);
        if (!e) e = backward_part(s, m, layer_of(s, l), input, weight, err);
    }
    return !e && s->first ? backward_part(s, m, embedding_of(s), input, weight, err) : e;
}

/* ---- their memory ------------------------------------------------------------------------------------------------ */

uint64_t stage_message_bytes(const struct stage *s, int micro)
{
    return (uint64_t)(tensor_rows_at(s->tp, STREAM, s->micro[micro].N).count * s->tp->channels.count) *
           dtype_size(s->device->dtype);
}

/* A part's output is counted unless it leaves the stage. */
static void forward_held(const struct stage *s, int micro, const struct model_part *p, struct held *h)
{
    const bool leaves = is_last_part(s, p) || (is_last_part(s, p + 1) && !s->last);
    if (!leaves) held_more(h, stage_message_bytes(s, micro));
    run_held(s, &s->micro[micro], p, LIST_FORWARD, h);
}

void stage_forward_held(const struct stage *s, int micro, struct held *h)
{
    if (s->first) forward_held(s, micro, embedding_of(s), h);
    for (int l = 0; l < s->layers; l++) {
        forward_held(s, micro, layer_of(s, l), h);
        away_forward_held(s, micro, l, h);
    }
    if (s->last) forward_held(s, micro, loss_of(s), h);
}

static void backward_held(const struct stage *s, int micro, const struct model_part *p, bool input, bool weight,
                          struct held *h)
{
    if (input) run_held(s, &s->micro[micro], p, LIST_AGAIN, h);
    if (input) run_held(s, &s->micro[micro], p, LIST_INPUT, h);
    if (weight) run_held(s, &s->micro[micro], p, LIST_WEIGHT, h);
}

void stage_backward_held(const struct stage *s, int micro, bool input, bool weight, struct held *h)
{
    if (s->last) backward_held(s, micro, loss_of(s), input, weight, h);
    for (int l = s->layers - 1; l >= 0; l--) {
        if (input) away_backward_held(s, micro, l, h);
        backward_held(s, micro, layer_of(s, l), input, weight, h);
    }
    if (s->first) backward_held(s, micro, embedding_of(s), input, weight, h);
}

/* ---- their messages ---------------------------------------------------------------------------------------------- */

struct seams stage_seams(const struct stage *s, const struct microbatch *m, const struct model_part *p)
{
    struct seams seams = *s->seams;
    seams.ep.routing = m->routing ? &m->routing[p - s->part] : NULL;
    if (seams.cp.scheme->plan) seams.cp.plan = &m->plan, seams.cp.S = m->plan.tokens;
    return seams;
}

struct account stage_attention_cost(const struct stage *s, int micro)
{
    const struct context_parallel cp = stage_seams(s, &s->micro[micro], s->part).cp;
    struct account sum = { 0 };
    for (int i = 0; i < s->layers + 2; i++)
        account_add(&sum, linked_attention_cost(&s->part[i].linked, &cp, s->micro[micro].N), 1);
    account_add(&sum, balance_cost(s, &s->micro[micro], CP), 1);
    return sum;
}

struct account stage_cost(const struct stage *s, int micro)
{
    struct account sum = { 0 };
    for (int i = 0; i < s->layers + 2; i++)
        account_add(&sum, linked_cost(&s->part[i].linked, s->seams, s->micro[micro].N), 1);
    account_add(&sum, balance_cost(s, &s->micro[micro], TP), 1);
    return sum;
}
