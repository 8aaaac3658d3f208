/* away.c -- moves activations of layers to the slow tier after forward, and back before backward.
 * model/trainer_open.c and model/stage.c call; model/trainer_cost.c takes the predicted traffic.  Without memory to
 * fetch a layer the code is ERR_MEMORY.  Errors of the tier are passed on. */
#include "emulated_devices/model/away.h"
#include <math.h>

enum { STAY = 2 };                      /* the last layers of a stage: backward needs them at once */

static const struct model_part *layer_of(const struct stage *stage, int l) { return &stage->part[1 + l]; }

/* How many layers may leave: all but the last two. */
static int most_away(const struct stage *stage) { return stage->layers > STAY ? stage->layers - STAY : 0; }

int away_layers(const struct stage *stage, const struct microbatch *micro)
{
    const int most = most_away(stage);
    if (!stage->plan->offload_activations) return 0;
    return micro->plan.away ? (int)ceil(micro->plan.away[stage->seams->cp.rank] * most - 1e-9) : most;
}

bool away_is_chosen(int layers, int most, int layer)
{
    return layer >= 0 && layer < most && (layer * layers + most - 1) / most < ((layer + 1) * layers + most - 1) / most;
}

static bool leaves(const struct stage *stage, const struct microbatch *micro, int layer)
{
    return away_is_chosen(away_layers(stage, micro), most_away(stage), layer);
}

/* The layer whose copy must have ended when this one's forward pass has; -1: none.  A copy has the time until the next
 * layer leaves, or the first that never does. */
static int leaver_before(const struct stage *stage, const struct microbatch *micro, int layer)
{
    const int most = most_away(stage);
    if (layer > most || (layer < most && !leaves(stage, micro, layer))) return -1;
    int before = layer - 1;
    while (before >= 0 && !leaves(stage, micro, before)) before--;
    return before;
}

/* ---- places on the tier ------------------------------------------------------------------------------------------ */

/* The device lets go of what it would hold between forward and backward. */
static bool is_moved(const struct linked *linked, int b)
{
    const struct buffer *is = &linked->buffer[b];
    return b == BUFFER_IN || (b >= BUFFER_FIRST_OWN && is->kept && is->tag == ACTIVATIONS && !is->dropped);
}

/* The next buffer of a part that is moved, from b on; at the end the number of buffers. */
static int next_moved(const struct linked *linked, int b)
{
    while (b < linked->buffers && !is_moved(linked, b)) b++;
    return b;
}
#define EACH_MOVED(p, b) (int b = next_moved(&(p)->linked, 0); b < (p)->linked.buffers; \
                          b = next_moved(&(p)->linked, b + 1))

static uint64_t away_bytes_of(const struct stage *stage, const struct microbatch *micro, int layer)
{
    const struct model_part *p = layer_of(stage, layer);
    const struct seams seams = stage_seams(stage, micro, p);
    uint64_t sum = 0;
    for EACH_MOVED(p, b) sum += buffer_bytes(&p->linked.buffer[b], &seams, micro->N);
    return sum;
}

/* The room of those of the first layers that leave. */
static uint64_t room_of(const struct stage *stage, const struct microbatch *micro, int layers)
{
    uint64_t sum = 0;
    for (int l = 0; l < layers; l++) {
        const struct model_part *p = layer_of(stage, l);
        const struct seams seams = stage_seams(stage, micro, p);
        if (!leaves(stage, micro, l)) continue;
        for EACH_MOVED(p, b) sum += tier_room(buffer_bytes(&p->linked.buffer[b], &seams, micro->N));
    }
    return sum;
}

/* Microbatches lie one after another, in each the layers, in each the buffers. */
static uint64_t place_micros(struct stage *stage)
{
    uint64_t sum = 0;
    for (int i = 0; i < stage->plan->micros; i++) {
        stage->micro[i].place = sum;
        sum += room_of(stage, &stage->micro[i], most_away(stage));
    }
    return sum;
}

enum error_code away_open(struct stage *stage, struct error *err)
{
    const struct tier_traffic before = stage->tier.traffic;
    const char *folder = stage->plan->data.offload_to;
    const uint64_t bytes = place_micros(stage);
    if (!stage->plan->offload_activations) return OK;
    const enum error_code e = tier_open(&stage->tier, stage->device, folder, bytes, err);
    /* A tier begins to count anew when it is opened; what was counted before stays. */
    stage->tier.traffic = before;
    return folder ? fail_about(err, e, "--offload-to") : e;
}

void away_close(struct stage *stage) { tier_close(&stage->tier); }

enum error_code away_cut(struct stage *stage, struct error *err)
{
    if (place_micros(stage) <= stage->tier.size || stage->tier.device == NULL) return OK;
    const struct tier_traffic so_far = stage->tier.traffic;
    tier_close(&stage->tier);
    stage->tier.traffic = so_far;
    return away_open(stage, err);
}

/* ---- moving ------------------------------------------------------------------------------------------------------ */

enum way { TO_TIER, FROM_TIER };

/* Start to copy all of a layer; the copies follow one another. */
static enum error_code away_move(struct stage *stage, struct microbatch *micro, int layer, enum way way,
                                 struct error *err)
{
    const struct model_part *p = layer_of(stage, layer);
    picoseconds *when = &stage->moved[layer];
    /* A layer's home lies behind those of the layers before it. */
    uint64_t at = micro->place + room_of(stage, micro, layer);
    enum error_code e = OK;
    *when = stage->device->clock.now;
    for EACH_MOVED(p, b) {
        const struct tensor here = *stage_buffer(micro, p, b);
        const struct tensor home = tensor_1d(stage->tier.memory + at, here.dtype, tensor_count(here));
        at += tier_room(tensor_bytes(here));
        if (e) continue;
        if (way == TO_TIER) e = tier_write(&stage->tier, home, here, when, err);
        else {
            *when = tier_announce(&stage->tier, home, *when);
            e = tier_read(&stage->tier, here, home, when, err);
        }
    }
    return e;
}

static void wait_for(struct stage *stage, int layer) { clock_wait(&stage->device->clock, stage->moved[layer]); }

static void free_layer(struct stage *stage, struct microbatch *micro, int layer)
{
    const struct model_part *p = layer_of(stage, layer);
    for EACH_MOVED(p, b) {
        struct tensor *t = stage_buffer(micro, p, b);
        device_free(stage->device, *t);
        *t = tensor_none;
    }
}

static enum error_code make_layer(struct stage *stage, struct microbatch *micro, int layer, struct error *err)
{
    const struct model_part *p = layer_of(stage, layer);
    const struct seams seams = stage_seams(stage, micro, p);
    for EACH_MOVED(p, b) {
        struct tensor *t = stage_buffer(micro, p, b);
        *t = buffer_shape(&p->linked.buffer[b], &seams, micro->N);
        t->data = arena_alloc(&stage->device->arena, ACTIVATIONS, tensor_bytes(*t));
        if (t->data == NULL)
            return fail(err, ERR_MEMORY, "the machine has no memory left to fetch layer %d of microbatch %d", p->layer,
                        (int)(micro - stage->micro));
    }
    return OK;
}

enum error_code away_after_forward(struct stage *stage, struct microbatch *micro, int layer, struct error *err)
{
    /* The copy of the layer that left before had until now to end; now its memory is free. */
    const int before = leaver_before(stage, micro, layer);
    if (before >= 0) wait_for(stage, before), free_layer(stage, micro, before);
    return leaves(stage, micro, layer) ? away_move(stage, micro, layer, TO_TIER, err) : OK;
}

enum error_code away_before_backward(struct stage *stage, struct microbatch *micro, int layer, struct error *err)
{
    const int before = leaver_before(stage, micro, layer);
    if (leaves(stage, micro, layer)) wait_for(stage, layer);
    if (before < 0) return OK;
    /* The layer that left before comes back while this one's backward pass computes, and those of layers between. */
    const enum error_code e = make_layer(stage, micro, before, err);
    return e ? e : away_move(stage, micro, before, FROM_TIER, err);
}

/* ---- by formula -------------------------------------------------------------------------------------------------- */

void away_forward_held(const struct stage *stage, int micro, int layer, struct held *held)
{
    const struct microbatch *m = &stage->micro[micro];
    const int before = leaver_before(stage, m, layer);
    if (before >= 0) held->now -= away_bytes_of(stage, m, before);
}

void away_backward_held(const struct stage *stage, int micro, int layer, struct held *held)
{
    const struct microbatch *m = &stage->micro[micro];
    const int before = leaver_before(stage, m, layer);
    if (before >= 0) held_more(held, away_bytes_of(stage, m, before));
}

struct tier_traffic away_moves(const struct stage *stage, int micro)
{
    const struct microbatch *m = &stage->micro[micro];
    struct tier_traffic t = { 0 };
    for (int l = 0; l < most_away(stage); l++) {
        const struct model_part *p = layer_of(stage, l);
        if (!leaves(stage, m, l)) continue;
        const struct seams seams = stage_seams(stage, m, p);
        for EACH_MOVED(p, b) {
            const uint64_t bytes = buffer_bytes(&p->linked.buffer[b], &seams, m->N);
            t.writes += bytes > 0, t.reads += bytes > 0, t.bytes_written += bytes, t.bytes_read += bytes;
        }
    }
    return t;
}
