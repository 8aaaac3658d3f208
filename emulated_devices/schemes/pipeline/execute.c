#include "emulated_devices/schemes/pipeline/execute.h"
#include "emulated_devices/device/trace.h"
#include <stdlib.h>
#include <string.h>

/* A tensor that is being sent to another device, or a note: tensor_none. */
struct sending { struct message message; struct tensor tensor; };

/* The posted receives of a tensor and of the note beside it. */
struct expected { struct message tensor, note; bool noted; };

struct run_state {
    const struct schedule *schedule;
    struct group *group;
    struct device *device;
    const struct stage_operations *ops;
    void *context;
    struct sending *sending;
    int sends;
    struct expected *posted;            /* [actions] receives that are posted */
    struct posting posting;
    struct pass_work work;              /* of a pass that has another beside it */
    bool beside;                        /* in that other pass */
};

/* The number of a message within the pp group: unique for each microbatch, receiving stage and direction, and for a
 * tensor and the note beside it. */
static uint32_t message_name(const struct schedule *s, int micro, int stage, bool gradient, bool note)
{
    return (((uint32_t)micro * (uint32_t)s->stages + (uint32_t)stage) * 2 + gradient) * 2 + note;
}

static struct exchange exchange_of(const struct run_state *x, const struct action *a, int stage, bool gradient,
                                   bool note)
{
    return exchange_named(x->group, POINT_TO_POINT, message_name(x->schedule, a->micro, stage, gradient, note));
}

static struct stage_note note_of(const struct run_state *x, int chunk, int micro, bool gradient)
{
    return x->ops->note ? x->ops->note(x->context, chunk, micro, gradient) : (struct stage_note){ 0 };
}

/* A note stays where it is: the stage does not write it again in this step. */
static void send_note(struct run_state *x, const struct action *a, int to_stage, bool gradient)
{
    const struct stage_note n = note_of(x, a->chunk, a->micro, gradient);
    if (n.bytes == 0) return;
    struct exchange e = exchange_of(x, a, to_stage, gradient, true);
    ledger_messages(&x->group->comm->expected, x->group, POINT_TO_POINT, a->peer, n.bytes, 1);
    x->sending[x->sends++] = (struct sending){ message_send(&e, a->peer, n.numbers, n.bytes), tensor_none };
}

static void send_tensor(struct run_state *x, const struct action *a, struct tensor t, int to_stage, bool gradient)
{
    struct exchange e = exchange_of(x, a, to_stage, gradient, false);
    ledger_messages(&x->group->comm->expected, x->group, POINT_TO_POINT, a->peer, tensor_bytes(t), 1);
    x->sending[x->sends++] = (struct sending){ message_send(&e, a->peer, t.data, tensor_bytes(t)), t };
    /* The tensor belongs to the message until it is waited for at the end of the list. */
    arena_hand_over(&x->device->arena, t.data);
    send_note(x, a, to_stage, gradient);
}

static enum error_code post(struct run_state *x, int i, struct error *err)
{
    const struct action *a = &x->schedule->actions[x->group->rank][i];
    const int stage = x->schedule->stage_of[x->group->rank][a->chunk];
    const bool gradient = a->kind == RECEIVE_GRADIENT;
    struct exchange e = exchange_of(x, a, stage, gradient, false), beside = exchange_of(x, a, stage, gradient, true);
    const struct stage_note note = note_of(x, a->chunk, a->micro, gradient);
    /* The stage gives the place where the tensor has to be. */
    const struct tensor t = (gradient ? x->ops->output_gradient : x->ops->input)(x->context, a->chunk, a->micro);
    if (t.data == NULL) return fail(err, ERR_MEMORY, "no memory to receive microbatch %d of stage %d", a->micro, stage);
    x->posted[i] = (struct expected){ .tensor = message_receive(&e, a->peer, t.data, tensor_bytes(t)),
                                      .noted = note.bytes > 0 };
    if (note.bytes > 0) x->posted[i].note = message_receive(&beside, a->peer, note.numbers, note.bytes);
    return OK;
}

/* Post what is posted before this action. */
static enum error_code post_before(struct run_state *x, int i, struct error *err)
{
    enum error_code e = OK;
    for (int at; !e && (at = posting_next(&x->posting, x->schedule, x->group->rank, i)) >= 0; ) e = post(x, at, err);
    return e;
}

static enum error_code receive(struct run_state *x, int i, struct error *err)
{
    x->posting.open--;
    const enum error_code e = message_wait(x->group->comm, x->posted[i].tensor, err);
    return e || !x->posted[i].noted ? e : message_wait(x->group->comm, x->posted[i].note, err);
}

/* Copy a tensor to the next stage on the same device, right after the action that computed it. */
static enum error_code hand_over(struct run_state *x, struct tensor from, struct tensor to, struct error *err)
{
    if (to.data == NULL) return fail(err, ERR_MEMORY, "no memory to hand a microbatch to the next stage");
    device_copy(x->device, to.data, from.data, tensor_bytes(to));
    device_free(x->device, from);
    return OK;
}

static void hand_over_note(const struct run_state *x, const struct action *a, int to_chunk, bool gradient)
{
    const struct stage_note from = note_of(x, a->chunk, a->micro, gradient),
                            to = note_of(x, to_chunk, a->micro, gradient);
    if (from.bytes > 0) memcpy(to.numbers, from.numbers, from.bytes);
}

static enum error_code compute(struct run_state *x, const struct action *a, struct error *err)
{
    const struct schedule *s = x->schedule;
    const int self = x->group->rank, stage = s->stage_of[self][a->chunk];
    enum error_code e = x->ops->compute(x->context, a->kind, a->chunk, a->micro, err);
    /* These leave nothing for another stage. */
    if (e || a->kind == BACKWARD_WEIGHT || a->kind == UPDATE) return e;
    if (a->kind == FORWARD) {
        /* A next stage on this device gets a copy at once; on another one a SEND follows in the list. */
        const struct place next = place_after(s, a->micro, stage);
        if (next.device != self) return OK;
        hand_over_note(x, a, next.chunk, false);
        return hand_over(x, x->ops->take_output(x->context, a->chunk, a->micro),
                         x->ops->input(x->context, next.chunk, a->micro), err);
    }
    const struct place before = place_before(s, a->micro, stage);
    if (before.device != self) return OK;
    hand_over_note(x, a, before.chunk, true);
    return hand_over(x, x->ops->take_input_gradient(x->context, a->chunk, a->micro),
                     x->ops->output_gradient(x->context, before.chunk, a->micro), err);
}

static enum error_code perform(struct run_state *x, int i, struct error *err)
{
    const struct action *a = &x->schedule->actions[x->group->rank][i];
    const int stage = x->schedule->stage_of[x->group->rank][a->chunk];
    switch (a->kind) {
    case SEND_ACTIVATION: {
        const struct place next = place_after(x->schedule, a->micro, stage);
        send_tensor(x, a, x->ops->take_output(x->context, a->chunk, a->micro),
                    x->schedule->stage_of[next.device][next.chunk], false);
        return OK;
    }
    case SEND_GRADIENT: {
        const struct place before = place_before(x->schedule, a->micro, stage);
        send_tensor(x, a, x->ops->take_input_gradient(x->context, a->chunk, a->micro),
                    x->schedule->stage_of[before.device][before.chunk], true);
        return OK;
    }
    case RECEIVE_ACTIVATION:
    case RECEIVE_GRADIENT: return receive(x, i, err);
    default: return compute(x, a, err);
    }
}

static bool is_of_backward(enum action_kind k)
{
    return k == BACKWARD || k == BACKWARD_INPUT || k == BACKWARD_WEIGHT || k == RECEIVE_GRADIENT || k == SEND_GRADIENT;
}

static void end_beside(struct run_state *x)
{
    if (x->beside) clock_end(&x->device->clock), clock_join(&x->device->clock, BESIDE);
    x->beside = false;
}

/* A pass beside another one is executed after it, on a stream that begins with it. */
static void change_stream(struct run_state *x, int i)
{
    struct clock *clock = &x->device->clock;
    const bool beside = schedule_is_beside(x->schedule, x->group->rank, i);
    if (!beside) end_beside(x);
    if (beside && !x->beside) clock_beside(clock);
    x->beside = beside;
    if (schedule_has_beside(x->schedule, x->group->rank, i)) clock_note(clock, &x->work);
}

enum error_code schedule_execute(const struct schedule *s, struct group *group, const struct stage_operations *ops,
                                 void *context, struct action_time *times, struct error *err)
{
    struct run_state x = {
        .schedule = s, .group = group, .device = group->comm->device, .ops = ops, .context = context
    };
    const int n = s->count[group->rank];
    x.sending = calloc(2 * (size_t)n + 1, sizeof *x.sending);
    x.posted = calloc((size_t)n + 1, sizeof *x.posted);
    enum error_code e = x.sending && x.posted ? OK : fail(err, ERR_MEMORY, "no memory for a list of %d messages", n);
    bool backward = false;
    for (int i = 0; i < n && !e; i++) {
        const struct action *a = &s->actions[group->rank][i];
        change_stream(&x, i);
        const int64_t start = x.device->clock.now;
        /* Devices may communicate here once a step, before the first action of the backward pass. */
        if (!backward && is_of_backward(a->kind) && ops->backward_begins) e = ops->backward_begins(context, err);
        backward = backward || is_of_backward(a->kind);
        trace_enter_action(x.device->clock.trace, action_letter(a->kind), a->micro);
        /* Receives that are posted ahead come before this action. */
        if (!e) e = post_before(&x, i, err);
        if (!e) e = perform(&x, i, err);
        if (times) times[i] = (struct action_time){ start, x.device->clock.now };
    }
    if (!backward && !e && ops->backward_begins) e = ops->backward_begins(context, err);        /* there is none here */
    end_beside(&x);
    x.device->clock.noted = NULL;               /* x ends; after an error a pass may be noted that none is beside */
    trace_enter_action(x.device->clock.trace, NULL, 0);
    for (int i = 0; i < x.sends; i++) {
        /* Sends are waited for only here, so none of them holds up the list. */
        if (!e) e = message_wait(group->comm, x.sending[i].message, err);
        device_free(x.device, x.sending[i].tensor);
    }
    free(x.sending), free(x.posted), free(x.work.span);
    return e;
}

struct account schedule_cost(const struct schedule *s, const struct group *group, const struct stage_sizes *sizes,
                             const void *context)
{
    struct ledger l = { 0 };
    for (int i = 0; i < s->count[group->rank]; i++) {
        const struct action *a = &s->actions[group->rank][i];
        if (a->kind != SEND_ACTIVATION && a->kind != SEND_GRADIENT) continue;
        const uint64_t note = sizes->note ? sizes->note(context, a->micro, a->kind == SEND_GRADIENT) : 0;
        ledger_messages(&l, group, POINT_TO_POINT, a->peer, sizes->tensor(context, a->micro), 1);
        if (note > 0) ledger_messages(&l, group, POINT_TO_POINT, a->peer, note, 1);
    }
    return l.of[group->kind];
}
