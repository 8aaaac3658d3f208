/* run.c -- runs a list of a part on one microbatch.  model/stage.c calls for each layer, forward and backward.
 * Tensors are allocated and dropped as the list says.  Without memory in the arena the code is ERR_MEMORY. */
#include "emulated_devices/model/run/run.h"
#include "emulated_devices/model/run/run_node.h"
#include "emulated_devices/device/arena_list.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/device/trace.h"

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* The tensor that is in a buffer, for lists of what a device holds. */
static const char *name_of_buffer(const struct linked *linked, int buffer)
{
    for (int i = 0; i < linked->slots; i++)
        if (linked->slot[i].value == buffer || linked->slot[i].gradient == buffer) return linked->slot[i].name;
    return "what operations keep";
}

static enum error_code run_run_make(struct stage *stage, struct microbatch *micro,
                                    const struct model_part *part, int buffer, struct error *err)
{
    const struct buffer *b = &part->linked.buffer[buffer];
    struct tensor *t = stage_buffer(micro, part, buffer);
    const struct seams seams = stage_seams(stage, micro, part);
    *t = buffer_shape(b, &seams, micro->N);
    t->data = arena_alloc(&stage->device->arena, b->tag, tensor_bytes(*t));
    arena_name(&stage->device->arena, t->data, name_of_buffer(&part->linked, buffer));
    return t->data ? OK
                   : fail(err, ERR_MEMORY, "the machine has no memory left for microbatch %d in layer %d",
                          (int)(micro - stage->micro), part->layer);
}

static void run_run_drop(struct stage *stage, struct tensor *tensor)
{
    device_free(stage->device, *tensor);
    *tensor = tensor_none;
}

/* The two buffers have one shape and one tag. */
static void run_exchange(struct tensor *a, struct tensor *b)
{
    const struct tensor before = *a;
    *a = *b, *b = before;
}

static void copy_rows(struct stage *stage, const struct microbatch *micro, const struct model_part *part,
                      struct part_step step, struct tensor to, struct tensor from)
{
    const struct tensor own = tensor_own_rows(stage->tp, to,
                                              stage_rows(stage, micro, part->linked.buffer[step.at].width));
    device_copy(stage->device, own.data, from.data, tensor_bytes(from));
    dev_charge(stage->device, "copy", from, 2, 0);
}

void run_drop(struct stage *stage, struct microbatch *micro, const struct model_part *part)
{
    run_run_drop(stage, stage_buffer(micro, part, BUFFER_IN));
    for (int b = BUFFER_FIRST_OWN; b < part->linked.buffers; b++) run_run_drop(stage, stage_buffer(micro, part, b));
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static void run_show(struct stage *stage, struct microbatch *micro, const struct model_part *part, int slot,
                     bool gradient)
{
    const struct slot *shown = &part->linked.slot[slot];
    const int buffer = gradient ? shown->gradient : shown->value;
    const struct tensor t = *stage_buffer(micro, part, buffer);
    const enum tensor_place rows = part->linked.buffer[buffer].rows;
    const bool entered = slot == 0;
    stage_show(stage, micro, entered ? stage_entering(part) : shown->name,
               entered ? part->layer - 1 : part->layer, gradient, rows == INPUT || rows == GRADIENT
                   ? tensor_own_rows(stage->tp, t, stage_rows(stage, micro, shown->width)) : t);
}

/* ---- experts' weights that come from other devices --------------------------------------------------------------- */

/* The node of the experts that a list runs; NULL: it runs none. */
static const struct linked_node *experts_in(const struct model_part *part, enum list which)
{
    const struct steps *list = &part->linked.list[which];
    for (int i = 0; i < list->count; i++)
        if (list->step[i].kind == STEP_RUN && part->linked.node[list->step[i].at].is->op == OP_MIXTURE)
            return &part->linked.node[list->step[i].at];
    return NULL;
}

/* Begin to bring the weights of a part's experts; a part without experts has none. */
static enum error_code bring_experts(struct stage *stage, struct microbatch *micro, const struct model_part *part,
                                     bool back, struct error *err)
{
    const bool again = back && experts_in(part, LIST_AGAIN);
    const struct linked_node *n = experts_in(part, again ? LIST_AGAIN : back ? LIST_INPUT : LIST_FORWARD);
    if (n == NULL) return OK;
    return node_mixture_bring(&(struct node_call){ stage, micro, part, n, again, ALL_PHASES },
                              again ? EXCHANGE_PASS : back ? INPUT_PASS : FORWARD_PASS, err);
}

enum error_code run_bring(struct stage *stage, struct microbatch *micro, const struct model_part *part, bool back,
                          struct error *err)
{
    /* The moment is compared with that in which weights have left early. */
    if (back && experts_in(part, LIST_INPUT))
        micro->routing[part - stage->part].pace.reached = stage->device->clock.now;
    return bring_experts(stage, micro, part, back, err);
}

enum error_code run_bring_early(struct stage *stage, struct microbatch *micro, const struct model_part *part,
                                struct error *err)
{
    const bool layer = part > stage->part && part <= stage->part + stage->layers;
    return layer && data_keeps_weights(stage->data, part->index) ? bring_experts(stage, micro, part, true, err)
                                                                 : OK;
}

void run_finish(struct stage *stage, struct microbatch *micro, const struct model_part *part)
{
    const struct linked_node *n = experts_in(part, LIST_WEIGHT);
    if (n) node_mixture_finish(&(struct node_call){ stage, micro, part, n, false, ALL_PHASES });
}

/* ---- the steps of a list ----------------------------------------------------------------------------------------- */

/* Whether a step of the forward list comes behind the part's attention. */
static bool is_behind_attention(const struct model_part *part, int node)
{
    for (int i = 0; i < node; i++) {
        const enum op op = part->linked.node[i].is->op;
        if (op == OP_ATTENTION || op == OP_SINK_ATTENTION || op == OP_PREFIXED_ATTENTION) return true;
    }
    return false;
}

/* Layers alone are cut: the logits are asked for rows of all parts. */
static bool runs_in_parts(const struct stage *stage, const struct model_part *part, enum list which)
{
    return which == LIST_FORWARD && stage->answering && stage->answering->cuts && part->layer >= 0 &&
           part->layer < stage->plan->model.L;
}

static enum error_code run_step(struct stage *stage, struct microbatch *micro, const struct model_part *part,
                                enum list which, struct part_step step, struct error *err)
{
    const bool of_node = step.kind == STEP_RUN || step.kind == STEP_BEGIN || step.kind == STEP_MIDDLE,
               of_slot = step.kind == STEP_SHOW || step.kind == STEP_SHOW_GRADIENT;
    struct tensor *t = of_node || of_slot ? NULL : stage_buffer(micro, part, step.at),
                  *from = t ? stage_buffer(micro, part, step.from) : NULL;
    switch (step.kind) {
    case STEP_MAKE:          return run_run_make(stage, micro, part, step.at, err);
    case STEP_DROP:          return run_run_drop(stage, t), OK;
    case STEP_ADD:           return dev_add(stage->device, *t, *stage_buffer(micro, part, step.before), *from), OK;
    case STEP_EXCHANGE:      return run_exchange(t, from), OK;
    case STEP_COPY:          return copy_rows(stage, micro, part, step, *t, *from), OK;
    case STEP_SHOW:          return run_show(stage, micro, part, step.at, false), OK;
    case STEP_SHOW_GRADIENT: return run_show(stage, micro, part, step.at, true), OK;
    default: break;
    }
    const struct linked_node *n = &part->linked.node[step.at];
    /* Where gradients of patches leave the stream, the embedding's pass runs in any case. */
    if (which == LIST_WEIGHT && n->still && n->is->op != OP_EMBED) return OK;
    if (stage_skips(stage, micro)) return OK;
    /* A node in three parts: it sends at its own place, computes and takes results at later ones. */
    const bool parts = n->end > 0 && (which == LIST_FORWARD || which == LIST_INPUT);
    const enum expert_phase phases = step.kind == STEP_BEGIN ? SEND_ROWS : step.kind == STEP_MIDDLE ? COMPUTE_ROWS
                                   : parts ? RETURN_ROWS : ALL_PHASES;
    const struct node_call call = { stage, micro, part, n, which == LIST_AGAIN, phases };
    const enum error_code e = runs_in_parts(stage, part, which)
                              ? run_node_in_parts(&call, is_behind_attention(part, step.at), err)
                              : run_node(&call, which, err);
    if (stage->device->exact) stage_note_lost(stage, part, which, n->is->out);
    /* Copies that the layer before needs travel while attention's gradients are computed here. */
    const bool before = which == LIST_INPUT && n->is->op == OP_MIXTURE && (phases & RETURN_ROWS);
    return e || !before ? e : run_bring_early(stage, micro, part - 1, err);
}

static int made_first(const struct steps *list)
{
    int n = 0;
    while (n < list->count && list->step[n].kind == STEP_MAKE) n++;
    return n;
}

/* The tensor for which steps are made from here on, for reports of the peak. */
static const char *tensor_ahead(const struct model_part *part, const struct steps *list, int i)
{
    while (i < list->count && list->step[i].kind != STEP_RUN) i++;
    return i < list->count ? part->linked.node[list->step[i].at].is->out : NULL;
}

static enum error_code run_steps(struct stage *stage, struct microbatch *micro, const struct model_part *part,
                                 enum list which, int from, int to, struct error *err)
{
    const struct steps *list = &part->linked.list[which];
    enum error_code e = OK;
    trace_enter_layer(stage->device->clock.trace, true, part->layer);
    for (int i = from; i < to && !e; i++) {
        /* The report of a peak names the tensor that allocations are for. */
        if (list->step[i].kind != STEP_DROP) stage->device->arena.doing.what = tensor_ahead(part, list, i);
        e = run_step(stage, micro, part, which, list->step[i], err);
    }
    trace_enter_layer(stage->device->clock.trace, false, 0);
    return e;
}

enum error_code run_make(struct stage *stage, struct microbatch *micro, const struct model_part *part, enum list which,
                         struct error *err)
{
    return run_steps(stage, micro, part, which, 0, made_first(&part->linked.list[which]), err);
}

enum error_code run_list(struct stage *stage, struct microbatch *micro, const struct model_part *part, enum list which,
                         struct error *err)
{
    const struct steps *list = &part->linked.list[which];
    return run_steps(stage, micro, part, which, made_first(list), list->count, err);
}

/* Weights and gradients are allocated after the allocations at the start of a list. */
void run_held(const struct stage *stage, const struct microbatch *micro, const struct model_part *part, enum list which,
              struct held *h)
{
    static const enum pass pass[LIST_COUNT] = { PASS_FORWARD, PASS_BACKWARD_INPUT, PASS_BACKWARD_INPUT,
                                                PASS_BACKWARD_WEIGHT };
    const struct steps *list = &part->linked.list[which];
    const struct seams seams = stage_seams(stage, micro, part);
    const bool needs = which == LIST_FORWARD || which == LIST_WEIGHT || list_uses_weights(&part->linked, LIST_INPUT);
    /* Gathered weights, or the gradient, exist while the part's steps run. */
    const uint64_t made = needs ? data_part_bytes(stage->data, part->index, pass[which]) : 0;
    for (int i = 0; i < list->count; i++) {
        const struct part_step step = list->step[i];
        if (i == made_first(list)) h->made = made, held_note(h);
        if (step.kind != STEP_MAKE && step.kind != STEP_DROP) continue;
        const struct buffer *b = &part->linked.buffer[step.at];
        if (b->tag != ACTIVATIONS && step.at < BUFFER_FIRST_OWN) continue;      /* passes to another part or stage */
        /* Both sums follow the list as the arena will. */
        uint64_t *held = b->tag == ACTIVATIONS ? &h->now : &h->buffers;
        *held += step.kind == STEP_MAKE ? buffer_bytes(b, &seams, micro->N) : -buffer_bytes(b, &seams, micro->N);
        held_note(h);
    }
    h->made = 0;
}
