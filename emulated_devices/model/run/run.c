#include "emulated_devices/model/run/run.h"
#include "emulated_devices/model/run/run_node.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/device/trace.h"

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static enum error_code make(struct stage *s, struct microbatch *m, const struct model_part *p, int buffer,
                            struct error *err)
{
    const struct buffer *b = &p->linked.buffer[buffer];
    struct tensor *t = stage_buffer(m, p, buffer);
    const struct seams seams = stage_seams(s, m, p);
    *t = buffer_shape(b, &seams, m->N);
    t->data = arena_alloc(&s->device->arena, b->tag, tensor_bytes(*t));
    return t->data ? OK
                   : fail(err, ERR_MEMORY, "the machine has no memory left for microbatch %d in layer %d",
                          (int)(m - s->micro), p->layer);
}

static void drop(struct stage *s, struct tensor *t)
{
    device_free(s->device, *t);
    *t = tensor_none;
}

/* The two buffers have one shape and one tag. */
static void exchange(struct tensor *a, struct tensor *b)
{
    const struct tensor before = *a;
    *a = *b, *b = before;
}

static void copy_rows(struct stage *s, const struct microbatch *m, const struct model_part *p, struct part_step step,
                      struct tensor to, struct tensor from)
{
    const struct tensor own = tensor_own_rows(s->tp, to, stage_rows(s, m, p->linked.buffer[step.at].width));
    device_copy(s->device, own.data, from.data, tensor_bytes(from));
    dev_charge(s->device, "copy", from, 2, 0);
}

void run_drop(struct stage *s, struct microbatch *m, const struct model_part *p)
{
    drop(s, stage_buffer(m, p, BUFFER_IN));
    for (int b = BUFFER_FIRST_OWN; b < p->linked.buffers; b++) drop(s, stage_buffer(m, p, b));
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static void show(struct stage *s, struct microbatch *m, const struct model_part *p, int slot, bool gradient)
{
    const struct slot *shown = &p->linked.slot[slot];
    const int buffer = gradient ? shown->gradient : shown->value;
    const struct tensor t = *stage_buffer(m, p, buffer);
    const enum tensor_place rows = p->linked.buffer[buffer].rows;
    const bool entered = slot == 0;
    stage_show(s, m, entered ? stage_entering(p) : shown->name, entered ? p->layer - 1 : p->layer, gradient,
               rows == INPUT || rows == GRADIENT ? tensor_own_rows(s->tp, t, stage_rows(s, m, shown->width)) : t);
}

static enum error_code run_step(struct stage *s, struct microbatch *m, const struct model_part *p, enum list which,
                                struct part_step step, struct error *err)
{
    const bool of_node = step.kind == STEP_RUN || step.kind == STEP_BEGIN || step.kind == STEP_MIDDLE,
               of_slot = step.kind == STEP_SHOW || step.kind == STEP_SHOW_GRADIENT;
    struct tensor *t = of_node || of_slot ? NULL : stage_buffer(m, p, step.at),
                  *from = t ? stage_buffer(m, p, step.from) : NULL;
    switch (step.kind) {
    case STEP_MAKE:          return make(s, m, p, step.at, err);
    case STEP_DROP:          return drop(s, t), OK;
    case STEP_ADD:           return dev_add(s->device, *t, *stage_buffer(m, p, step.before), *from), OK;
    case STEP_EXCHANGE:      return exchange(t, from), OK;
    case STEP_COPY:          return copy_rows(s, m, p, step, *t, *from), OK;
    case STEP_SHOW:          return show(s, m, p, step.at, false), OK;
    case STEP_SHOW_GRADIENT: return show(s, m, p, step.at, true), OK;
    default: break;
    }
    const struct linked_node *n = &p->linked.node[step.at];
    /* A node in three parts: it sends at its own place, computes and takes results at later ones. */
    const bool parts = n->end > 0 && (which == LIST_FORWARD || which == LIST_INPUT);
    const enum expert_phase phases = step.kind == STEP_BEGIN ? SEND_ROWS : step.kind == STEP_MIDDLE ? COMPUTE_ROWS
                                   : parts ? RETURN_ROWS : ALL_PHASES;
    return run_node(&(struct node_call){ s, m, p, n, which == LIST_AGAIN, phases }, which, err);
}

static int made_first(const struct steps *list)
{
    int n = 0;
    while (n < list->count && list->step[n].kind == STEP_MAKE) n++;
    return n;
}

/* The tensor for which steps are made from here on, for reports of the peak. */
static const char *tensor_ahead(const struct model_part *p, const struct steps *list, int i)
{
    while (i < list->count && list->step[i].kind != STEP_RUN) i++;
    return i < list->count ? p->linked.node[list->step[i].at].is->out : NULL;
}

static enum error_code run_steps(struct stage *s, struct microbatch *m, const struct model_part *p, enum list which,
                                 int from, int to, struct error *err)
{
    const struct steps *list = &p->linked.list[which];
    enum error_code e = OK;
    trace_enter_layer(s->device->clock.trace, true, p->layer);
    for (int i = from; i < to && !e; i++) {
        /* The report of a peak names the tensor that allocations are for. */
        if (list->step[i].kind != STEP_DROP) s->device->arena.doing.what = tensor_ahead(p, list, i);
        e = run_step(s, m, p, which, list->step[i], err);
    }
    trace_enter_layer(s->device->clock.trace, false, 0);
    return e;
}

enum error_code run_make(struct stage *s, struct microbatch *m, const struct model_part *p, enum list which,
                         struct error *err)
{
    return run_steps(s, m, p, which, 0, made_first(&p->linked.list[which]), err);
}

enum error_code run_list(struct stage *s, struct microbatch *m, const struct model_part *p, enum list which,
                         struct error *err)
{
    const struct steps *list = &p->linked.list[which];
    return run_steps(s, m, p, which, made_first(list), list->count, err);
}

/* Weights and gradients are allocated after the allocations at the start of a list. */
void run_held(const struct stage *s, const struct microbatch *m, const struct model_part *p, enum list which,
              struct held *h)
{
    static const enum pass pass[LIST_COUNT] = { PASS_FORWARD, PASS_BACKWARD_INPUT, PASS_BACKWARD_INPUT,
                                                PASS_BACKWARD_WEIGHT };
    const struct steps *list = &p->linked.list[which];
    const struct seams seams = stage_seams(s, m, p);
    const bool needs = which == LIST_FORWARD || which == LIST_WEIGHT || list_uses_weights(&p->linked, LIST_INPUT);
    /* Gathered weights, or the gradient, exist while the part's steps run. */
    const uint64_t made = needs ? data_part_bytes(s->data, p->index, pass[which]) : 0;
    for (int i = 0; i < list->count; i++) {
        const struct part_step step = list->step[i];
        if (i == made_first(list)) h->made = made, held_note(h);
        if (step.kind != STEP_MAKE && step.kind != STEP_DROP) continue;
        const struct buffer *b = &p->linked.buffer[step.at];
        if (b->tag != ACTIVATIONS && step.at < BUFFER_FIRST_OWN) continue;      /* passes to another part or stage */
        /* Both sums follow the list as the arena will. */
        uint64_t *held = b->tag == ACTIVATIONS ? &h->now : &h->buffers;
        *held += step.kind == STEP_MAKE ? buffer_bytes(b, &seams, m->N) : -buffer_bytes(b, &seams, m->N);
        held_note(h);
    }
    h->made = 0;
}
