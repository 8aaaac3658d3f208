#include "emulated_devices/schemes/pipeline/execute.h"
#include "emulated_devices/device/trace.h"
#include <stdlib.h>

/* A tensor that is being sent to another device. */
struct sending { struct message message; struct tensor tensor; };

struct run_state {
    const struct schedule *schedule;
    struct group *group;
    struct device *device;
    const struct stage_operations *ops;
    void *context;
    struct sending *sending;
    int sends;
};

/* The number of a message within the pp group: unique for each microbatch, receiving stage and direction. */
static uint32_t message_name(const struct schedule *s, int micro, int stage, bool gradient)
{
    return ((uint32_t)micro * (uint32_t)s->stages + (uint32_t)stage) * 2 + gradient;
}

static void send_tensor(struct run_state *x, const struct action *a, struct tensor t, int to_stage, bool gradient)
{
    struct exchange e =
        exchange_named(x->group, POINT_TO_POINT, message_name(x->schedule, a->micro, to_stage, gradient));
    ledger_messages(&x->group->comm->expected, x->group, POINT_TO_POINT, a->peer, tensor_bytes(t), 1);
    x->sending[x->sends++] = (struct sending){ message_send(&e, a->peer, t.data, tensor_bytes(t)), t };
    arena_hand_over(&x->device->arena, t.data);
}

static enum error_code receive_tensor(struct run_state *x, const struct action *a, struct tensor t, int stage,
                                      bool gradient, struct error *err)
{
    struct exchange e = exchange_named(x->group, POINT_TO_POINT, message_name(x->schedule, a->micro, stage, gradient));
    if (t.data == NULL) return fail(err, ERR_MEMORY, "no memory to receive microbatch %d of stage %d", a->micro, stage);
    return message_wait(x->group->comm, message_receive(&e, a->peer, t.data, tensor_bytes(t)), err);
}

/* Copy a tensor to the next stage on the same device, right after the action that computed it. */
static enum error_code hand_over(struct run_state *x, struct tensor from, struct tensor to, struct error *err)
{
    if (to.data == NULL) return fail(err, ERR_MEMORY, "no memory to hand a microbatch to the next stage");
    device_copy(x->device, to.data, from.data, tensor_bytes(to));
    device_free(x->device, from);
    return OK;
}

static enum error_code compute(struct run_state *x, const struct action *a, struct error *err)
{
    const struct schedule *s = x->schedule;
    const int self = x->group->rank, stage = s->stage_of[self][a->chunk];
    enum error_code e = x->ops->compute(x->context, a->kind, a->chunk, a->micro, err);
    if (e || a->kind == BACKWARD_WEIGHT || a->kind == UPDATE) return e;
    if (a->kind == FORWARD) {
        const struct place next = place_after(s, a->micro, stage);
        if (next.device != self) return OK;
        return hand_over(x, x->ops->take_output(x->context, a->chunk, a->micro),
                         x->ops->input(x->context, next.chunk, a->micro), err);
    }
    const struct place before = place_before(s, a->micro, stage);
    if (before.device != self) return OK;
    return hand_over(x, x->ops->take_input_gradient(x->context, a->chunk, a->micro),
                     x->ops->output_gradient(x->context, before.chunk, a->micro), err);
}

static enum error_code perform(struct run_state *x, const struct action *a, struct error *err)
{
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
        return receive_tensor(x, a, x->ops->input(x->context, a->chunk, a->micro), stage, false, err);
    case RECEIVE_GRADIENT:
        return receive_tensor(x, a, x->ops->output_gradient(x->context, a->chunk, a->micro), stage, true, err);
    default: return compute(x, a, err);
    }
}

static bool is_of_backward(enum action_kind k)
{
    return k == BACKWARD || k == BACKWARD_INPUT || k == BACKWARD_WEIGHT || k == RECEIVE_GRADIENT || k == SEND_GRADIENT;
}

enum error_code schedule_execute(const struct schedule *s, struct group *group, const struct stage_operations *ops,
                                 void *context, struct action_time *times, struct error *err)
{
    struct run_state x = {
        .schedule = s, .group = group, .device = group->comm->device, .ops = ops, .context = context
    };
    const int n = s->count[group->rank];
    x.sending = calloc((size_t)n + 1, sizeof *x.sending);
    if (x.sending == NULL) return fail(err, ERR_MEMORY, "no memory for a list of %d messages", n);
    enum error_code e = OK;
    bool backward = false;
    for (int i = 0; i < n && !e; i++) {
        const struct action *a = &s->actions[group->rank][i];
        const int64_t start = x.device->clock.now;
        if (!backward && is_of_backward(a->kind) && ops->backward_begins) e = ops->backward_begins(context, err);
        backward = backward || is_of_backward(a->kind);
        trace_enter_action(x.device->clock.trace, action_letter(a->kind), a->micro);
        if (!e) e = perform(&x, a, err);
        if (times) times[i] = (struct action_time){ start, x.device->clock.now };
    }
    trace_enter_action(x.device->clock.trace, NULL, 0);
    for (int i = 0; i < x.sends; i++) {
        if (!e) e = message_wait(group->comm, x.sending[i].message, err);
        device_free(x.device, x.sending[i].tensor);
    }
    free(x.sending);
    return e;
}

struct account schedule_cost(const struct schedule *s, const struct group *group, uint64_t (*bytes)(const void *, int),
                             const void *context)
{
    struct ledger l = { 0 };
    for (int i = 0; i < s->count[group->rank]; i++) {
        const struct action *a = &s->actions[group->rank][i];
        if (a->kind != SEND_ACTIVATION && a->kind != SEND_GRADIENT) continue;
        ledger_messages(&l, group, POINT_TO_POINT, a->peer, bytes(context, a->micro), 1);
    }
    return l.of[group->kind];
}
