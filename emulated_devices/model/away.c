#include "emulated_devices/model/away.h"
#include <math.h>

enum { STAY = 2 };                      /* the last layers of a stage: backward needs them at once */

static const struct model_part *layer_of(const struct stage *s, int l) { return &s->part[1 + l]; }

int away_layers(const struct stage *s, const struct microbatch *m)
{
    const int most = s->layers - STAY;
    if (!s->plan->offload_activations || most <= 0) return 0;
    return m->plan.away ? (int)ceil(m->plan.away[s->seams->cp.rank] * most - 1e-9) : most;
}

static bool leaves(const struct stage *s, const struct microbatch *m, int layer)
{
    return layer >= 0 && layer < away_layers(s, m);
}

/* ---- places on the tier ------------------------------------------------------------------------------------------ */

/* What leaves is what the device would hold between forward and backward. */
static bool is_moved(const struct linked *l, int b)
{
    const struct buffer *is = &l->buffer[b];
    return b == BUFFER_IN || (b >= BUFFER_FIRST_OWN && is->kept && is->tag == ACTIVATIONS && !is->dropped);
}

/* The next buffer of a part that is moved, from b on; at the end the number of buffers. */
static int next_moved(const struct linked *l, int b)
{
    while (b < l->buffers && !is_moved(l, b)) b++;
    return b;
}
#define EACH_MOVED(p, b) (int b = next_moved(&(p)->linked, 0); b < (p)->linked.buffers; \
                          b = next_moved(&(p)->linked, b + 1))

static uint64_t bytes_of(const struct stage *s, const struct microbatch *m, int layer)
{
    const struct model_part *p = layer_of(s, layer);
    const struct seams seams = stage_seams(s, m, p);
    uint64_t sum = 0;
    for EACH_MOVED(p, b) sum += buffer_bytes(&p->linked.buffer[b], &seams, m->N);
    return sum;
}

static uint64_t room_of(const struct stage *s, const struct microbatch *m, int layers)
{
    uint64_t sum = 0;
    for (int l = 0; l < layers; l++) {
        const struct model_part *p = layer_of(s, l);
        const struct seams seams = stage_seams(s, m, p);
        for EACH_MOVED(p, b) sum += tier_room(buffer_bytes(&p->linked.buffer[b], &seams, m->N));
    }
    return sum;
}

/* Microbatches lie one after another, in each the layers, in each the buffers. */
static uint64_t place_micros(struct stage *s)
{
    uint64_t sum = 0;
    for (int i = 0; i < s->plan->micros; i++) {
        s->micro[i].place = sum;
        sum += room_of(s, &s->micro[i], away_layers(s, &s->micro[i]));
    }
    return sum;
}

enum error_code away_open(struct stage *s, struct error *err)
{
    const struct tier_traffic before = s->tier.traffic;
    const char *folder = s->plan->data.offload_to;
    const uint64_t bytes = place_micros(s);
    if (!s->plan->offload_activations) return OK;
    const enum error_code e = tier_open(&s->tier, s->device, folder, bytes, err);
    /* A tier begins to count anew when it is opened; what was counted before stays. */
    s->tier.traffic = before;
    return folder ? fail_about(err, e, "--offload-to") : e;
}

void away_close(struct stage *s) { tier_close(&s->tier); }

enum error_code away_cut(struct stage *s, struct error *err)
{
    if (place_micros(s) <= s->tier.size || s->tier.device == NULL) return OK;
    const struct tier_traffic so_far = s->tier.traffic;
    tier_close(&s->tier);
    s->tier.traffic = so_far;
    return away_open(s, err);
}

/* ---- moving ------------------------------------------------------------------------------------------------------ */

enum way { TO_TIER, FROM_TIER };

/* Start to copy all of a layer; the copies follow one another. */
static enum error_code move(struct stage *s, struct microbatch *m, int layer, enum way way, struct error *err)
{
    const struct model_part *p = layer_of(s, layer);
    picoseconds *when = &s->moved[layer];
    /* A layer's home lies behind those of the layers before it. */
    uint64_t at = m->place + room_of(s, m, layer);
    enum error_code e = OK;
    *when = s->device->clock.now;
    for EACH_MOVED(p, b) {
        const struct tensor here = *stage_buffer(m, p, b);
        const struct tensor home = tensor_1d(s->tier.memory + at, here.dtype, tensor_count(here));
        at += tier_room(tensor_bytes(here));
        if (e) continue;
        if (way == TO_TIER) e = tier_write(&s->tier, home, here, when, err);
        else {
            *when = tier_announce(&s->tier, home, *when);
            e = tier_read(&s->tier, here, home, when, err);
        }
    }
    return e;
}

static void wait_for(struct stage *s, int layer) { clock_wait(&s->device->clock, s->moved[layer]); }

static void free_layer(struct stage *s, struct microbatch *m, int layer)
{
    const struct model_part *p = layer_of(s, layer);
    for EACH_MOVED(p, b) {
        struct tensor *t = stage_buffer(m, p, b);
        device_free(s->device, *t);
        *t = tensor_none;
    }
}

static enum error_code make_layer(struct stage *s, struct microbatch *m, int layer, struct error *err)
{
    const struct model_part *p = layer_of(s, layer);
    const struct seams seams = stage_seams(s, m, p);
    for EACH_MOVED(p, b) {
        struct tensor *t = stage_buffer(m, p, b);
        *t = buffer_shape(&p->linked.buffer[b], &seams, m->N);
        t->data = arena_alloc(&s->device->arena, ACTIVATIONS, tensor_bytes(*t));
        if (t->data == NULL)
            return fail(err, ERR_MEMORY, "the machine has no memory left to fetch layer %d of microbatch %d", p->layer,
                        (int)(m - s->micro));
    }
    return OK;
}

enum error_code away_after_forward(struct stage *s, struct microbatch *m, int layer, struct error *err)
{
    /* The copy of the layer before had this layer's forward pass to end in; now its memory is free. */
    if (leaves(s, m, layer - 1)) wait_for(s, layer - 1), free_layer(s, m, layer - 1);
    return leaves(s, m, layer) ? move(s, m, layer, TO_TIER, err) : OK;
}

enum error_code away_before_backward(struct stage *s, struct microbatch *m, int layer, struct error *err)
{
    if (leaves(s, m, layer)) wait_for(s, layer);
    if (!leaves(s, m, layer - 1)) return OK;
    /* The layer before comes back while this one's backward pass computes. */
    const enum error_code e = make_layer(s, m, layer - 1, err);
    return e ? e : move(s, m, layer - 1, FROM_TIER, err);
}

/* ---- by formula -------------------------------------------------------------------------------------------------- */

void away_forward_held(const struct stage *s, int micro, int layer, struct held *h)
{
    const struct microbatch *m = &s->micro[micro];
    if (leaves(s, m, layer - 1)) h->now -= bytes_of(s, m, layer - 1);
}

void away_backward_held(const struct stage *s, int micro, int layer, struct held *h)
{
    const struct microbatch *m = &s->micro[micro];
    if (leaves(s, m, layer - 1)) held_more(h, bytes_of(s, m, layer - 1));
}

struct tier_traffic away_moves(const struct stage *s, int micro)
{
    const struct microbatch *m = &s->micro[micro];
    struct tier_traffic t = { 0 };
    for (int l = 0; leaves(s, m, l); l++) {
        const struct model_part *p = layer_of(s, l);
        const struct seams seams = stage_seams(s, m, p);
        for EACH_MOVED(p, b) {
            const uint64_t bytes = buffer_bytes(&p->linked.buffer[b], &seams, m->N);
            t.writes += bytes > 0, t.reads += bytes > 0, t.bytes_written += bytes, t.bytes_read += bytes;
        }
    }
    return t;
}
