/* execute.c -- runs one device's list of a schedule: passes of the model, sends, receives and copies.
 * model/trainer.c and model/trainer_cost.c call these functions.  Errors: ERR_MEMORY without room for a microbatch,
 * ERR_COMM of a message, and those of a pass; the step cannot go on then. */
#include "emulated_devices/schemes/pipeline/execute.h"
#include "emulated_devices/comm/crew.h"
#include "emulated_devices/device/trace.h"
#include <stdlib.h>
#include <string.h>

/* A tensor that is being sent to another device, or a note: tensor_none. */
struct sending { struct message message; struct tensor tensor; };

/* The posted receives of a tensor and of the note beside it. */
struct expected { struct message tensor, note; bool noted; };

/* schedule_execute keeps the state of one execution in this struct, on its stack. */
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

/* The number of a message is unique within the pp group, for each microbatch, receiving stage and direction.  A
 * tensor and its note have different numbers, too. */
static uint32_t message_name(const struct schedule *schedule, int micro, int stage, bool gradient, bool note)
{
    return (((uint32_t)micro * (uint32_t)schedule->stages + (uint32_t)stage) * 2 + gradient) * 2 + note;
}

/* Both ends make the same exchange, because `stage` is the receiving stage on both sides. */
static struct exchange exchange_of(const struct run_state *run_state, const struct action *action, int stage,
                                   bool gradient, bool note)
{
    return exchange_named(run_state->group, POINT_TO_POINT,
                          message_name(run_state->schedule, action->micro, stage, gradient, note));
}

/* The result is an empty note where the model has no notes. */
static struct stage_note note_of(const struct run_state *run_state, int chunk, int micro, bool gradient)
{
    return run_state->ops->note ? run_state->ops->note(run_state->context, chunk, micro, gradient)
           : (struct stage_note){ 0 };
}

/* A note stays where it is: the stage does not write it again in this step. */
static void send_note(struct run_state *run_state, const struct action *action, int to_stage, bool gradient)
{
    const struct stage_note n = note_of(run_state, action->chunk, action->micro, gradient);
    if (n.bytes == 0) return;
    /* The ledger of expected messages is filled before the send, so verify can compare the ledger with the group's
     * counters. */
    struct exchange e = exchange_of(run_state, action, to_stage, gradient, true);
    ledger_messages(&run_state->group->comm->expected, run_state->group, POINT_TO_POINT, action->peer, n.bytes, 1);
    run_state->sending[run_state->sends++] = (struct sending){ message_send(&e, action->peer, n.numbers, n.bytes),
                                                              tensor_none };
}

/* send_tensor starts to send a tensor [N, D] and the note beside the tensor.  The calling device does not wait. */
static void send_tensor(struct run_state *run_state, const struct action *action, struct tensor t, int to_stage,
                        bool gradient)
{
    struct exchange e = exchange_of(run_state, action, to_stage, gradient, false);
    clock_start_collective(&run_state->device->clock);
    ledger_messages(&run_state->group->comm->expected, run_state->group, POINT_TO_POINT, action->peer,
                    tensor_bytes(t), 1);
    run_state->sending[run_state->sends++] = (struct sending){ message_send(&e, action->peer, t.data,
                                                                            tensor_bytes(t)), t };
    /* The tensor belongs to the message until it is waited for at the end of the list. */
    arena_hand_over(&run_state->device->arena, t.data);
    send_note(run_state, action, to_stage, gradient);
}

/* post starts receive i of the list and the receive of its note.  The sender computes the same two message numbers. */
static enum error_code post(struct run_state *run_state, int i, struct error *err)
{
    const struct action *a = &run_state->schedule->actions[run_state->group->rank][i];
    const int stage = run_state->schedule->stage_of[run_state->group->rank][a->chunk];
    const bool gradient = a->kind == RECEIVE_GRADIENT;
    struct exchange e = exchange_of(run_state, a, stage, gradient, false),
        beside = exchange_of(run_state, a, stage, gradient, true);
    const struct stage_note note = note_of(run_state, a->chunk, a->micro, gradient);
    /* The stage gives the place where the tensor has to be. */
    const struct tensor t = (gradient ? run_state->ops->output_gradient : run_state->ops->input)(run_state->context,
                                                                                                 a->chunk, a->micro);
    if (t.data == NULL) return fail(err, ERR_MEMORY, "no memory to receive microbatch %d of stage %d", a->micro, stage);
    clock_start_collective(&run_state->device->clock);
    /* The receiving stage gives the size.  A message of another size becomes ERR_COMM in message_wait. */
    run_state->posted[i] = (struct expected){ .tensor = message_receive(&e, a->peer, t.data, tensor_bytes(t)),
                                      .noted = note.bytes > 0 };
    if (note.bytes > 0) run_state->posted[i].note = message_receive(&beside, a->peer, note.numbers, note.bytes);
    return OK;
}

/* Post what is posted before this action. */
static enum error_code post_before(struct run_state *run_state, int i, struct error *err)
{
    enum error_code e = OK;
    for (int at; !e && (at = posting_next(&run_state->posting, run_state->schedule, run_state->group->rank, i)) >= 0; )
        e = post(run_state, at, err);
    return e;
}

/* execute_receive waits for receive i, which post_before has started: first for the tensor, then for its note. */
static enum error_code execute_receive(struct run_state *run_state, int i, struct error *err)
{
    /* A receive that is waited for is no longer open, so a later receive may be posted ahead. */
    run_state->posting.open--;
    struct clock *const clock = &run_state->device->clock;
    enum error_code e = message_wait(run_state->group->comm, run_state->posted[i].tensor, err);
    if (!e && run_state->posted[i].noted) e = message_wait(run_state->group->comm, run_state->posted[i].note, err);
    /* Released programs wait with their host here, all of them or those with one stage on a device. */
    clock_host_waits(clock, WAIT_RECEIVES);
    if (run_state->schedule->chunks == 1) clock_host_waits(clock, WAIT_PLAIN_RECEIVES);
    return e;
}

/* Copy a tensor to the next stage on the same device, right after the action that computed it. */
static enum error_code hand_over(struct run_state *run_state, struct tensor from, struct tensor to, struct error *err)
{
    if (to.data == NULL) return fail(err, ERR_MEMORY, "no memory to hand a microbatch to the next stage");
    device_copy(run_state->device, to.data, from.data, tensor_bytes(to));
    device_free(run_state->device, from);
    return OK;
}

/* Both stages are on this device, so the note is copied in the host's memory and no message is sent. */
static void hand_over_note(const struct run_state *run_state, const struct action *action, int to_chunk, bool gradient)
{
    const struct stage_note from = note_of(run_state, action->chunk, action->micro, gradient),
                            to = note_of(run_state, to_chunk, action->micro, gradient);
    if (from.bytes > 0) memcpy(to.numbers, from.numbers, from.bytes);
}

/* execute_compute runs a pass of the model.  A next stage on this device then gets its input at once, without a
 * message. */
static enum error_code execute_compute(struct run_state *run_state, const struct action *action, struct error *err)
{
    const struct schedule *s = run_state->schedule;
    const int self = run_state->group->rank, stage = s->stage_of[self][action->chunk];
    enum error_code e = run_state->ops->compute(run_state->context, action->kind, action->chunk, action->micro, err);
    /* Programs that measure their passes wait with their host until each has ended. */
    clock_host_waits(&run_state->device->clock, WAIT_PASSES);
    /* These leave nothing for another stage. */
    if (e || action->kind == BACKWARD_WEIGHT || action->kind == UPDATE) return e;
    if (action->kind == FORWARD) {
        /* A next stage on this device gets a copy at once; on another one a SEND follows in the list. */
        const struct place next = place_after(s, action->micro, stage);
        if (next.device != self) return OK;
        hand_over_note(run_state, action, next.chunk, false);
        return hand_over(run_state, run_state->ops->take_output(run_state->context, action->chunk, action->micro),
                         run_state->ops->input(run_state->context, next.chunk, action->micro), err);
    }
    /* The passes B and I produce the gradient of the stage's input; the stage before reads this gradient. */
    const struct place before = place_before(s, action->micro, stage);
    if (before.device != self) return OK;
    hand_over_note(run_state, action, before.chunk, true);
    return hand_over(run_state, run_state->ops->take_input_gradient(run_state->context, action->chunk, action->micro),
                     run_state->ops->output_gradient(run_state->context, before.chunk, action->micro), err);
}

/* execute_perform does action i.  A message begins or ends here; every other action is a pass of the model. */
static enum error_code execute_perform(struct run_state *run_state, int i, struct error *err)
{
    const struct action *a = &run_state->schedule->actions[run_state->group->rank][i];
    const int stage = run_state->schedule->stage_of[run_state->group->rank][a->chunk];
    switch (a->kind) {
    case SEND_ACTIVATION: {
        /* The message is named by its receiving stage, so the sender looks up the next stage of this microbatch. */
        const struct place next = place_after(run_state->schedule, a->micro, stage);
        send_tensor(run_state, a, run_state->ops->take_output(run_state->context, a->chunk, a->micro),
                    run_state->schedule->stage_of[next.device][next.chunk], false);
        return OK;
    }
    case SEND_GRADIENT: {
        const struct place before = place_before(run_state->schedule, a->micro, stage);
        send_tensor(run_state, a, run_state->ops->take_input_gradient(run_state->context, a->chunk, a->micro),
                    run_state->schedule->stage_of[before.device][before.chunk], true);
        return OK;
    }
    case RECEIVE_ACTIVATION:
    /* The receive is posted already, so here the device only waits. */
    case RECEIVE_GRADIENT: return execute_receive(run_state, i, err);
    default: return execute_compute(run_state, a, err);
    }
}

/* UPDATE is not in this list: an optimizer step does not begin the backward pass. */
static bool is_of_backward(enum action_kind kind)
{
    return kind == BACKWARD || kind == BACKWARD_INPUT || kind == BACKWARD_WEIGHT || kind == RECEIVE_GRADIENT
           || kind == SEND_GRADIENT;
}

/* The compute stream waits here for the stream BESIDE, before its next action begins. */
static void end_beside(struct run_state *run_state)
{
    if (run_state->beside) clock_end(&run_state->device->clock), clock_join(&run_state->device->clock, BESIDE);
    run_state->beside = false;
}

/* A pass beside another one is executed after it, on a stream that begins with it. */
static void change_stream(struct run_state *run_state, int i)
{
    struct clock *clock = &run_state->device->clock;
    const bool beside = schedule_is_beside(run_state->schedule, run_state->group->rank, i);
    if (!beside) end_beside(run_state);
    if (beside && !run_state->beside) clock_beside(clock);
    run_state->beside = beside;
    if (schedule_has_beside(run_state->schedule, run_state->group->rank, i)) clock_note(clock, &run_state->work);
}

enum error_code schedule_execute(const struct schedule *schedule, struct group *group,
                                 const struct stage_operations *ops,
                                 void *context, struct action_time *times, struct error *err)
{
    struct run_state x = {
        .schedule = schedule, .group = group, .device = group->comm->device, .ops = ops, .context = context
    };
    /* An action sends or receives at most a tensor and a note, so room for 2 n messages is enough. */
    const int n = schedule->count[group->rank];
    x.sending = calloc(2 * (size_t)n + 1, sizeof *x.sending);
    x.posted = calloc((size_t)n + 1, sizeof *x.posted);
    enum error_code e = x.sending && x.posted ? OK : fail(err, ERR_MEMORY, "no memory for a list of %d messages", n);
    bool backward = false;
    for (int i = 0; i < n && !e; i++) {
        const struct action *a = &schedule->actions[group->rank][i];
        change_stream(&x, i);
        const int64_t start = x.device->clock.now;
        /* Devices may communicate here once a step, before the first action of the backward pass. */
        if (!backward && is_of_backward(a->kind) && ops->backward_begins) e = ops->backward_begins(context, err);
        backward = backward || is_of_backward(a->kind);
        trace_enter_action(x.device->clock.trace, action_letter(a->kind), a->micro);
        /* Receives that are posted ahead come before this action. */
        if (!e) e = post_before(&x, i, err);
        /* In a run that means nothing any more, no device would get what it waits for. */
        if (!e && !comm_is_idle(group->comm)) e = execute_perform(&x, i, err);
        if (times) times[i] = (struct action_time){ start, x.device->clock.now };
    }
    /* Devices without a backward pass call the function, too, because the call may be collective among devices. */
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

/* The expected messages follow from the list alone.  The order of the sends does not matter for the sum. */
struct account schedule_cost(const struct schedule *schedule, const struct group *group,
                             const struct stage_sizes *sizes, const void *context)
{
    struct ledger l = { 0 };
    for (int i = 0; i < schedule->count[group->rank]; i++) {
        const struct action *a = &schedule->actions[group->rank][i];
        if (a->kind != SEND_ACTIVATION && a->kind != SEND_GRADIENT) continue;
        const uint64_t note = sizes->note ? sizes->note(context, a->micro, a->kind == SEND_GRADIENT) : 0;
        ledger_messages(&l, group, POINT_TO_POINT, a->peer, sizes->tensor(context, a->micro), 1);
        if (note > 0) ledger_messages(&l, group, POINT_TO_POINT, a->peer, note, 1);
    }
    return l.of[group->kind];
}
