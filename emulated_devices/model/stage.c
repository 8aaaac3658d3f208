/* stage.c -- runs one pipeline stage forward and backward on a microbatch.  model/trainer.c calls as the schedule
 * orders; model/trainer_open.c opens and closes; model/trainer_cost.c predicts.  Without memory for lists or a
 * microbatch the code is ERR_MEMORY.  After an error of stage_open the stage is closed. */
#include "emulated_devices/model/stage.h"
#include "emulated_devices/model/away.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/model/balance.h"
#include "emulated_devices/model/link/link_cost.h"
#include "emulated_devices/model/run/run.h"
#include "emulated_devices/schemes/data/tiles.h"
#include "ref/model/attention_mask.h"
#include "ref/model/kinds.h"
#include "ref/model/rotary.h"
#include "ref/numeric/fixed_sum.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static const struct model_part *embedding_of(const struct stage *stage) { return &stage->part[0]; }
static const struct model_part *layer_of(const struct stage *stage, int l) { return &stage->part[1 + l]; }
static const struct model_part *loss_of(const struct stage *stage) { return &stage->part[1 + stage->layers]; }

static bool is_last_part(const struct stage *stage, const struct model_part *part) { return part == loss_of(stage); }

struct tensor *stage_buffer(struct microbatch *micro, const struct model_part *part, int buffer)
{
    if (buffer == BUFFER_GRADIENT) return &micro->gradient;
    if (buffer == BUFFER_OUT) return &micro->tensor[part[1].first_buffer + BUFFER_IN];
    return &micro->tensor[part->first_buffer + buffer];
}

const char *stage_entering(const struct model_part *part) { return part->layer == 0 ? "embedding" : "out"; }

struct tensor stage_weight(const struct stage *stage, int index)
{
    return index < 0 ? tensor_none : parameter_find(stage->parameters, index)->w;
}
struct tensor stage_gradient(const struct stage *stage, int index)
{
    return index < 0 ? tensor_none : parameter_find(stage->parameters, index)->g;
}

/* Without a backward pass nothing is kept after forward. */
static bool keeps_nothing(const struct stage *stage) { return stage->plan->optimizer->forward_only; }

/* ---- opening, closing -------------------------------------------------------------------------------------------- */

static enum error_code link_parts(struct stage *stage, struct error *err)
{
    const struct plan *plan = stage->plan;
    const struct model_config *c = &plan->model;
    enum error_code e = OK;
    for (int i = 0; i < stage->layers + 2 && !e; i++) {
        struct model_part *p = &stage->part[i];
        const bool has = i == 0 ? stage->first : i <= stage->layers || stage->last;
        p->layer = i == 0 ? -1 : i <= stage->layers ? stage->first_layer + i - 1 : (int)c->L;
        p->index = p->layer + 1;
        /* A part's buffers follow those of the part before in the microbatch's list. */
        p->first_buffer = stage->buffers;
        /* A part of another stage still has the buffer in which its neighbour's output enters. */
        p->linked.buffers = BUFFER_FIRST_OWN;
        if (has) e = link_layer(&p->linked, c, stage->seams, p->layer, plan->recompute, keeps_nothing(stage), err);
        stage->buffers += p->linked.buffers;
        for (int v = 0; v < p->linked.nodes; v++) {
            p->weight[v] = program_weight(c, p->linked.node[v].is, p->layer);
            p->bias[v] = program_bias(c, p->linked.node[v].is, p->layer);
            p->linked.node[v].still = program_stands_still(c, p->linked.node[v].is, p->layer);
        }
    }
    return e;
}

/* On devices without numbers nobody reads the table, so that an address is enough. */
static bool make_table(const struct stage *stage, struct tensor *tensor, struct rotary rotary)
{
    *tensor = tensor_2d(NULL, dtype_wide(stage->device->dtype), stage->plan->S,
                        rotary_table_width(&stage->plan->model));
    const bool numbers = stage->device->backend->has_numbers;
    tensor->data = malloc(numbers ? tensor_bytes(*tensor) : 1);
    if (tensor->data && numbers) rotary_table(&rotary, *tensor);
    return tensor->data != NULL;
}

static bool make_rotary(struct stage *stage)
{
    const struct model_config *c = &stage->plan->model;
    if (c->positions != POSITIONS_ROTARY) return true;
    return make_table(stage, &stage->rotary, c->rotary) &&
           (c->local_theta == 0 || make_table(stage, &stage->local_rotary, model_local_rotary(c)));
}

static void drop_cut(struct microbatch *micro)
{
    if (!micro->borrows) free(micro->ids.data);
    intervals_free(&micro->rows), intervals_free(&micro->tokens);
    context_plan_free(&micro->plan);
    balance_close(micro);
    micro->ids = tensor_none, micro->borrows = false;
}

/* Without packed samples each sequence is a sample.  In a plan its positions follow those of the sequence before. */
static void mask_sequences(const struct microbatch *micro, const struct attention_mask *mask, int64_t S, bool one)
{
    int32_t *const sees = micro->mask.data;
    for (int64_t row = 0; row < tensor_rows(micro->mask); row += S)
        attention_mask_fill(mask, one ? row : 0, S, sees + row * tensor_cols(micro->mask));
}

/* Shuffled rows: where each is, from the first of the batch to the last. */
static int compare_rows(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static bool sort_places(struct microbatch *micro)
{
    struct place { int64_t row; int32_t at; } *const place = malloc((size_t)(micro->N + 1) * sizeof *place);
    int32_t n = 0;
    if (place == NULL) return false;
    for (int i = 0; i < micro->rows.count; i++)
        for (int64_t row = micro->rows.at[i].first; row < interval_end(micro->rows.at[i]); row++, n++)
            place[n] = (struct place){ row, n };
    qsort(place, (size_t)micro->N, sizeof *place, compare_rows);
    for (int64_t i = 0; i < micro->N; i++) ((int32_t *)micro->sorted.data)[i] = place[i].at;
    free(place);
    return true;
}

/* A token's position counts from the start of its sequence.  Only kernels with numbers read it. */
static void fill_positions(const struct microbatch *microbatch, int64_t S)
{
    int32_t *position = microbatch->positions.data;
    for (int i = 0; i < microbatch->rows.count; i++)
        for (int64_t row = microbatch->rows.at[i].first; row < interval_end(microbatch->rows.at[i]); row++)
            *position++ = (int32_t)(row % S);
}

/* Whether both have as many rows, at the same places of their sequences. */
static bool same_positions(const struct microbatch *a, const struct microbatch *b, int64_t S)
{
    bool same = a->N == b->N && a->rows.count == b->rows.count
        && intervals_total(&a->tokens) == intervals_total(&b->tokens);
    for (int i = 0; same && i < a->rows.count; i++)
        same = a->rows.at[i].count == b->rows.at[i].count && a->rows.at[i].first % S == b->rows.at[i].first % S;
    return same;
}

/* On a device without numbers nobody reads ids and labels: microbatches whose positions are equal have them once, as
 * a device of a plan may have hundreds of microbatches.  @return whether this one takes those of the one before. */
static bool borrow_integers(const struct stage *stage, struct microbatch *microbatch, int micro)
{
    const struct microbatch *const before = microbatch - 1;
    const bool own = stage->device->backend->has_numbers || stage->plan->packed || stage->seams->cp.scheme->plan
        || plan_shuffles(stage->plan);
    const bool as_many = micro > 0 && before->sequences.count == microbatch->sequences.count;
    if (own || !as_many || before->ids.data == NULL || !same_positions(before, microbatch, stage->plan->S))
        return false;
    microbatch->ids = before->ids, microbatch->positions = before->positions, microbatch->labels = before->labels;
    /* Whole sequences see alike, so as many of them have the same mask. */
    microbatch->mask = before->mask, microbatch->sorted = tensor_none;
    microbatch->pairs[0] = microbatch->pairs[1] = -1;
    return microbatch->borrows = true;
}

/* Make the rows of a microbatch: ids, positions and labels, then the mask, then the places of sorted rows. */
static bool make_integers(const struct stage *stage, struct microbatch *microbatch)
{
    const bool plans = stage->seams->cp.scheme->plan != NULL, shuffled = plan_shuffles(stage->plan);
    const struct attention_mask *const mask = &stage->plan->model.mask;
    const bool sees = stage->plan->packed || plans || !attention_mask_is_causal(mask);
    /* Devices that share a batch of lengths share its mask, too (trainer_batch.c). */
    const int64_t masked = sees && !stage->plan->lengths ? microbatch->sequences.count * stage->plan->S : 0,
        width = 2 * attention_mask_ranges(mask);
    /* One allocation has ids, positions and labels, then the mask [masked, width], then sorted places. */
    int32_t *ints = calloc((size_t)((shuffled ? 4 : 3) * microbatch->N + width * masked) + 1, sizeof *ints);
    microbatch->ids = tensor_1d(ints, I32, microbatch->N);
    microbatch->positions = tensor_1d(ints ? ints + microbatch->N : NULL, I32, microbatch->N);
    microbatch->labels = tensor_1d(ints ? ints + 2 * microbatch->N : NULL, I32, intervals_total(&microbatch->tokens));
    microbatch->mask = masked > 0 ? tensor_2d(ints ? ints + 3 * microbatch->N : NULL, I32, masked, width) : tensor_none;
    microbatch->pairs[0] = microbatch->pairs[1] = -1;
    if (ints && stage->device->backend->has_numbers) fill_positions(microbatch, stage->plan->S);
    if (ints && sees && masked > 0) mask_sequences(microbatch, mask, stage->plan->S, plans);
    microbatch->sorted = shuffled && ints ? tensor_1d(ints + 3 * microbatch->N + width * masked, I32, microbatch->N)
        : tensor_none;
    return ints && (!shuffled || sort_places(microbatch));
}

static enum error_code cut_microbatch(const struct stage *stage, struct microbatch *microbatch, int micro,
                                      struct error *err)
{
    const int dp = mesh_coordinate(&stage->plan->mesh, stage->rank, DP);
    drop_cut(microbatch);
    /* not known yet */
    for (int i = 0; microbatch->routing && i < stage->layers + 2; i++) expert_routing_clear(&microbatch->routing[i]);
    const enum error_code e = plan_context(stage->plan, dp, micro, tensor_none, &microbatch->plan, err);
    if (e) return e;
    microbatch->sequences = plan_sequences(stage->plan, dp, micro);
    microbatch->rows = plan_rows_by(stage->plan, stage->rank, micro, &microbatch->plan);
    microbatch->N = intervals_total(&microbatch->rows);
    microbatch->tokens = plan_loss_rows_by(stage->plan, stage->rank, micro, &microbatch->plan);
    const bool made = borrow_integers(stage, microbatch, micro) || make_integers(stage, microbatch);
    const bool counts = stage->plan->model.mlp != MLP_MIXTURE || balance_open(stage, microbatch);
    const bool ok = made && counts && !intervals_lost(&microbatch->rows)
        && !intervals_lost(&microbatch->tokens);
    return ok ? OK : fail(err, ERR_MEMORY, "no memory for the rows of a microbatch");
}

enum error_code stage_cut(struct stage *stage, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; !e && i < stage->plan->micros; i++) e = cut_microbatch(stage, &stage->micro[i], i, err);
    return e ? e : away_cut(stage, err);
}

static bool make_routing(const struct stage *stage, struct microbatch *micro)
{
    micro->routing = calloc((size_t)stage->layers + 2, sizeof *micro->routing);
    return micro->routing != NULL;
}

/* The tables of integers and of rotary positions are inputs, not tensors of the model, so they are not counted. */
enum error_code stage_open(struct stage *stage, const struct plan *plan, struct device *device,
                           struct tensor_parallel *tp,
                           struct seams *seams, struct data_parallel *data, int index, int rank, struct error *err)
{
    *stage = (struct stage){ .plan = plan, .device = device, .tp = tp, .seams = seams, .data = data,
                         .parameters = data->parameters, .rank = rank, .index = index,
                         .first = index == 0 && plan_has_embedding(plan),
                         .last = index == plan->stages - 1 && plan_has_loss(plan),
                         .first_layer = (int)plan_first_layer(plan, index) };
    stage->layers = (int)plan_first_layer(plan, index + 1) - stage->first_layer;
    stage->micro = calloc((size_t)plan->micros, sizeof *stage->micro);
    stage->part = calloc((size_t)stage->layers + 2, sizeof *stage->part);
    stage->moved = calloc((size_t)stage->layers + 1, sizeof *stage->moved);
    bool ok = stage->micro && stage->part && stage->moved && make_rotary(stage);
    enum error_code e = ok ? link_parts(stage, err) : OK;
    for (int i = 0; ok && !e && i < plan->micros; i++)
        ok = (stage->micro[i].tensor = calloc((size_t)stage->buffers, sizeof *stage->micro[i].tensor)) != NULL &&
             (plan->model.mlp != MLP_MIXTURE || make_routing(stage, &stage->micro[i]));
    if (ok && !e) e = stage_cut(stage, err);
    if (!ok) e = fail(err, ERR_MEMORY, "no memory for the lists of %d microbatches", plan->micros);
    if (e) stage_close(stage);
    return e;
}

static void drop_microbatch(struct stage *stage, struct microbatch *micro)
{
    for (int i = 0; micro->tensor && i < stage->layers + 2; i++) run_drop(stage, micro, &stage->part[i]);
    device_free(stage->device, micro->gradient);
    for (int i = 0; micro->routing && i < stage->layers + 2; i++) expert_routing_clear(&micro->routing[i]);
    free(micro->tensor), free(micro->routing);
    drop_cut(micro);
}

void stage_close(struct stage *stage)
{
    for (int i = 0; stage->micro && i < stage->plan->micros; i++) drop_microbatch(stage, &stage->micro[i]);
    away_close(stage);
    free(stage->micro), free(stage->part), free(stage->moved), free(stage->rotary.data), free(stage->local_rotary.data);
    stage->micro = NULL, stage->part = NULL, stage->moved = NULL;
    stage->rotary = stage->local_rotary = tensor_none;
}

/* ---- probes ------------------------------------------------------------------------------------------------------ */

void stage_show(struct stage *stage, const struct microbatch *micro, const char *name, int layer, bool gradient,
                struct tensor t)
{
    if (stage->probe) stage->probe->see(stage->probe->context, name, layer, gradient, (int)(micro - stage->micro), t);
}

/* ---- exact sums that do not exist -------------------------------------------------------------------------------- */

void stage_begin_sums(struct stage *stage)
{
    stage->lost = (struct lost_sum){ .order = INFINITY };
    (void)fixed_loss_take();
}

/* The place of a part's list in a step: layers one after another, and back. */
static double order_of(const struct stage *stage, const struct model_part *part, enum list which)
{
    const double layers = (double)stage->plan->model.L + 2, at = part ? part->layer + 1 : layers;
    return which == LIST_FORWARD ? at : 2 * layers - at;
}

void stage_note_lost(struct stage *stage, const struct model_part *part, enum list which, const char *name)
{
    static const char *const what[LIST_COUNT] = { "", "", "the gradient of what enters ",
                                                  "the gradient of the weights of " };
    struct lost_sum *const lost = &stage->lost;
    const enum fixed_loss why = fixed_loss_take();
    char layer[24] = "";
    if (why == FIXED_ALL_THERE || lost->order < (double)INFINITY) return;
    if (part && part->layer >= 0 && part->layer < stage->plan->model.L)
        snprintf(layer, sizeof layer, "h.%d.", part->layer);
    *lost = (struct lost_sum){ .order = order_of(stage, part, which), .beyond = why == FIXED_BEYOND };
    snprintf(lost->name, sizeof lost->name, "%s%s%s", part ? what[which] : "", layer, name);
}

/* ---- what the executor sends and receives ------------------------------------------------------------------------ */

static struct tensor stream(const struct stage *stage, const struct microbatch *micro, enum arena_tag tag)
{
    return device_tensor_2d(stage->device, tag, tensor_rows_at(stage->tp, STREAM, micro->N).count,
                            stage->tp->channels.count);
}

static struct tensor stage_take(struct tensor *tensor)
{
    const struct tensor taken = *tensor;
    *tensor = tensor_none;
    return taken;
}

struct tensor stage_input(struct stage *stage, int micro)
{
    struct microbatch *m = &stage->micro[micro];
    return *stage_buffer(m, layer_of(stage, 0), BUFFER_IN) = stream(stage, m, ACTIVATIONS);
}

struct tensor stage_output_gradient(struct stage *stage, int micro)
{
    return stage->micro[micro].gradient = stream(stage, &stage->micro[micro], BUFFERS);
}
struct tensor stage_take_output(struct stage *stage, int micro)
{
    return stage_take(stage_buffer(&stage->micro[micro], loss_of(stage), BUFFER_IN));
}
struct tensor stage_take_input_gradient(struct stage *stage, int micro)
{
    return stage_take(&stage->micro[micro].gradient);
}

struct stage_note stage_note(const struct stage *stage, int micro, bool gradient)
{
    return balance_note(stage, &stage->micro[micro], gradient);
}

/* ---- the operations ---------------------------------------------------------------------------------------------- */

/* Allocate a part's output.  An output for the next stage will be sent; it is not kept. */
static enum error_code make_output(struct stage *stage, struct microbatch *micro, const struct model_part *part,
                                   struct error *err)
{
    if (is_last_part(stage, part)) return OK;
    const bool leaves = is_last_part(stage, part + 1) && !stage->last;
    const struct tensor out = stream(stage, micro, leaves ? BUFFERS : ACTIVATIONS);
    *stage_buffer(micro, part, BUFFER_OUT) = out;
    return out.data ? OK
                    : fail(err, ERR_MEMORY, "the machine has no memory left for microbatch %d of stage %d",
                           (int)(micro - stage->micro), stage->index);
}

/* For reports of the peak. */
static void note_part(const struct stage *stage, const struct model_part *part)
{
    struct doing *const d = &stage->device->arena.doing;
    d->part = part->layer < 0 ? "the embedding" : part->layer == stage->plan->model.L ? "the loss" : "layer";
    d->layer = part->layer, d->what = NULL;
}

static enum error_code forward_part(struct stage *stage, struct microbatch *micro, const struct model_part *part,
                                    struct error *err)
{
    note_part(stage, part);
    enum error_code e = make_output(stage, micro, part, err);
    if (!e) e = run_make(stage, micro, part, LIST_FORWARD, err);
    if (e) return e;
    e = data_acquire(stage->data, part->index, err);
    if (!e) e = run_bring(stage, micro, part, false, err);
    if (!e) e = run_list(stage, micro, part, LIST_FORWARD, err);
    data_release(stage->data, part->index);
    return e;
}

/* Nothing of a part is run; its weights are expected to be used all the same. */
static enum error_code pass_by(struct stage *stage, const struct model_part *part, struct error *err)
{
    const enum error_code e = data_acquire(stage->data, part->index, err);
    data_release(stage->data, part->index);
    return e;
}

/* Only rows whose logits are asked for go through the output matrix. */
static enum error_code forward_asked(struct stage *stage, struct microbatch *micro, struct error *err)
{
    struct tensor *const in = stage_buffer(micro, loss_of(stage), BUFFER_IN);
    const struct tensor asked = stage->answering->asked, all = *in;
    const int64_t N = micro->N;
    if (stage->answering->read_stream) {
        const enum error_code e = stage->answering->read_stream(stage->answering->context, all, err);
        if (e) return e;
    }
    *in = tensor_none;
    if (tensor_count(asked) == 0) return device_free(stage->device, all), pass_by(stage, loss_of(stage), err);
    *in = device_tensor_2d(stage->device, ACTIVATIONS, tensor_count(asked), tensor_cols(all));
    if (in->data == NULL) return fail(err, ERR_MEMORY, "no memory for the rows whose logits are asked for");
    dev_gather_forward(stage->device, *in, all, asked, 1);
    device_free(stage->device, all);
    micro->N = tensor_count(asked);
    const enum error_code e = forward_part(stage, micro, loss_of(stage), err);
    micro->N = N;
    return e;
}

static enum error_code forward_loss(struct stage *stage, struct microbatch *micro, struct error *err)
{
    return stage->answering ? forward_asked(stage, micro, err) : forward_part(stage, micro, loss_of(stage), err);
}

enum error_code stage_forward(struct stage *stage, int micro, struct error *err)
{
    struct microbatch *m = &stage->micro[micro];
    balance_begin(stage, m);
    enum error_code e = stage->first ? forward_part(stage, m, embedding_of(stage), err) : OK;
    for (int l = 0; l < stage->layers && !e; l++) {
        e = forward_part(stage, m, layer_of(stage, l), err);
        if (!e) e = away_after_forward(stage, m, l, err);
    }
    if (!e && stage->last) e = forward_loss(stage, m, err);
    return e ? e : balance_after_forward(stage, m, err);
}

/* First recompute what was dropped. */
static enum error_code stage_backward_input(struct stage *stage, struct microbatch *micro,
                                            const struct model_part *part, struct error *err)
{
    static const enum list lists[] = { LIST_AGAIN, LIST_INPUT };
    const bool weights = list_uses_weights(&part->linked, LIST_INPUT);
    enum error_code e = weights ? data_acquire(stage->data, part->index, err) : OK;
    if (!e) e = run_bring(stage, micro, part, true, err);
    /* Buffers of a list are made just before it runs, so that memory is taken late. */
    for (int i = 0; i < 2 && !e; i++) {
        e = run_make(stage, micro, part, lists[i], err);
        if (!e) e = run_list(stage, micro, part, lists[i], err);
    }
    if (weights) data_release(stage->data, part->index);
    return e;
}

static enum error_code backward_weight(struct stage *stage, struct microbatch *micro, const struct model_part *part,
                                       struct error *err)
{
    enum error_code e = data_begin_gradient(stage->data, part->index, err);
    if (!e) e = run_list(stage, micro, part, LIST_WEIGHT, err);
    if (!e) run_finish(stage, micro, part);
    return e ? e : data_end_gradient(stage->data, part->index, err);
}

static enum error_code backward_part(struct stage *stage, struct microbatch *micro,
                                     const struct model_part *part, bool input, bool weight, struct error *err)
{
    note_part(stage, part);
    const enum error_code e = input ? stage_backward_input(stage, micro, part, err) : OK;
    return e || !weight ? e : backward_weight(stage, micro, part, err);
}

enum error_code stage_backward(struct stage *stage, int micro, bool input, bool weight, struct error *err)
{
    struct microbatch *m = &stage->micro[micro];
    enum error_code e = input ? run_bring_early(stage, m, layer_of(stage, stage->layers - 1), err) : OK;
    if (!e && stage->last) e = backward_part(stage, m, loss_of(stage), input, weight, err);
    for (int l = stage->layers - 1; l >= 0 && !e; l--) {
        /* Activations on the slow tier come back before their layer's backward pass. */
        if (input) e = away_before_backward(stage, m, l, err);
        if (!e) e = backward_part(stage, m, layer_of(stage, l), input, weight, err);
    }
    return !e && stage->first ? backward_part(stage, m, embedding_of(stage), input, weight, err) : e;
}

/* ---- their memory ------------------------------------------------------------------------------------------------ */

uint64_t stage_message_bytes(const struct stage *stage, int micro)
{
    return (uint64_t)(tensor_rows_at(stage->tp, STREAM, stage->micro[micro].N).count * stage->tp->channels.count) *
           dtype_size(stage->device->dtype);
}

/* A part's output is counted unless it leaves the stage. */
static void forward_held(const struct stage *stage, int micro, const struct model_part *part, struct held *held)
{
    const bool leaves = is_last_part(stage, part) || (is_last_part(stage, part + 1) && !stage->last);
    if (!leaves) held_more(held, stage_message_bytes(stage, micro));
    run_held(stage, &stage->micro[micro], part, LIST_FORWARD, held);
}

void stage_forward_held(const struct stage *stage, int micro, struct held *held)
{
    if (stage->first) forward_held(stage, micro, embedding_of(stage), held);
    for (int l = 0; l < stage->layers; l++) {
        forward_held(stage, micro, layer_of(stage, l), held);
        away_forward_held(stage, micro, l, held);
    }
    if (stage->last) forward_held(stage, micro, loss_of(stage), held);
}

static void backward_held(const struct stage *stage, int micro, const struct model_part *part, bool input, bool weight,
                          struct held *held)
{
    if (input) run_held(stage, &stage->micro[micro], part, LIST_AGAIN, held);
    if (input) run_held(stage, &stage->micro[micro], part, LIST_INPUT, held);
    if (weight) run_held(stage, &stage->micro[micro], part, LIST_WEIGHT, held);
}

void stage_backward_held(const struct stage *stage, int micro, bool input, bool weight, struct held *held)
{
    if (stage->last) backward_held(stage, micro, loss_of(stage), input, weight, held);
    for (int l = stage->layers - 1; l >= 0; l--) {
        if (input) away_backward_held(stage, micro, l, held);
        backward_held(stage, micro, layer_of(stage, l), input, weight, held);
    }
    if (stage->first) backward_held(stage, micro, embedding_of(stage), input, weight, held);
}

/* ---- their messages ---------------------------------------------------------------------------------------------- */

struct seams stage_seams(const struct stage *stage, const struct microbatch *micro, const struct model_part *part)
{
    struct seams seams = *stage->seams;
    seams.ep.routing = micro->routing ? &micro->routing[part - stage->part] : NULL;
    if (seams.cp.scheme->plan) seams.cp.plan = &micro->plan, seams.cp.S = micro->plan.tokens;
    return seams;
}

bool stage_skips(const struct stage *stage, const struct microbatch *micro)
{
    /* Devices of a copy share the plan, so all of them skip. */
    return micro->plan.devices > 0 && micro->plan.tokens == 0 && stage->plan->model.mlp != MLP_MIXTURE
           && !uses_tiles(&stage->plan->data);
}

struct account stage_attention_cost(const struct stage *stage, int micro)
{
    const struct context_parallel cp = stage_seams(stage, &stage->micro[micro], stage->part).cp;
    struct account sum = { 0 };
    if (stage_skips(stage, &stage->micro[micro])) return sum;
    for (int i = 0; i < stage->layers + 2; i++)
        account_add(&sum, linked_attention_cost(&stage->part[i].linked, &cp, stage->micro[micro].N), 1);
    account_add(&sum, balance_cost(stage, &stage->micro[micro], CP), 1);
    return sum;
}

struct account stage_cost(const struct stage *stage, int micro)
{
    struct account sum = { 0 };
    if (stage_skips(stage, &stage->micro[micro])) return sum;
    for (int i = 0; i < stage->layers + 2; i++)
        account_add(&sum, linked_cost(&stage->part[i].linked, stage->seams, stage->micro[micro].N), 1);
    account_add(&sum, balance_cost(stage, &stage->micro[micro], TP), 1);
    return sum;
}
