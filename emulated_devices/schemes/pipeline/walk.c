/* walk.c -- walks through a schedule: each device's list in order, a receive after its send.
 *
 * Used to prove that a schedule finishes, and to time it.  The work is linear in the number of actions: a waiting
 * device is checked again only after its peer has made progress.
 *
 * validate.c and timing.c call walk_through.  A deadlock is no error here: the result is OK, and walk->next shows
 * which devices stopped early.  The only error is ERR_MEMORY.
 */
#include "emulated_devices/schemes/pipeline/schedules/generate.h"
#include <stdlib.h>

/* The key of a message: activation or gradient, receiving stage, microbatch. */
static size_t walk_key_of(const struct schedule *schedule, int device, struct action action)
{
    int stage = schedule_stage(schedule, device, action);
    struct place to = { device, action.chunk };
    if (action.kind == SEND_ACTIVATION) to = place_after(schedule, action.micro, stage);
    if (action.kind == SEND_GRADIENT) to = place_before(schedule, action.micro, stage);
    stage = schedule->stage_of[to.device][to.chunk];
    const size_t gradient = action.kind == SEND_GRADIENT || action.kind == RECEIVE_GRADIENT;
    return (gradient * (size_t)schedule->stages + (size_t)stage) * (size_t)schedule->micros + (size_t)action.micro;
}

static bool is_send(struct action action) { return action.kind == SEND_ACTIVATION || action.kind == SEND_GRADIENT; }

/* A device is on the stack at most once, so the stack needs room for P devices. */
struct state {
    struct walk *w;
    int *sent;                          /* [key] 1 + index of the send in its device's list; 0: not yet */
    int *stack, *on_stack, depth;       /* devices that may be able to continue */
};

/* Something has happened for which the device may wait, so the walk looks at the device again. */
static void wake(struct state *st, int device)
{
    if (st->on_stack[device]) return;
    st->on_stack[device] = 1;
    st->stack[st->depth++] = device;
}

/* The device's next action counts as executed now, and the visitor is called.  For a receive, `from` is its send. */
static void walk_perform(struct state *st, int device, int from)
{
    struct walk *w = st->w;
    const int index = w->next[device]++;
    if (w->visit != NULL) w->visit(w->context, device, index, from);
}

/* With blocking sends, a message completes when both devices have reached it. */
static bool walk_meet(struct state *st, int device, struct action action)
{
    const struct schedule *s = st->w->s;
    const int peer = action.peer, at = st->w->next[peer];
    if (at >= s->count[peer]) return false;
    const struct action b = s->actions[peer][at];
    /* The peer's next action must be the other end of this very message. */
    if (!action_is_message(b.kind) || is_send(action) == is_send(b)
        || walk_key_of(s, device, action) != walk_key_of(s, peer, b)) return false;
    const int sender = is_send(action) ? device : peer, receiver = is_send(action) ? peer : device,
        from = st->w->next[sender];
    walk_perform(st, sender, -1);
    walk_perform(st, receiver, from);
    wake(st, peer);
    return true;
}

/* Where updates meet, the last device to reach its update completes it for all. */
static bool meet_update(struct state *st, struct action action)
{
    const struct schedule *s = st->w->s;
    for (int d = 0; d < s->devices; d++) {
        const int at = st->w->next[d];
        if (s->count[d] == 0) continue;         /* it holds no stage */
        if (at >= s->count[d] || s->actions[d][at].kind != UPDATE || s->actions[d][at].micro != action.micro)
            return false;
    }
    for (int d = 0; d < s->devices; d++) {
        if (s->count[d] == 0) continue;
        walk_perform(st, d, -1);
        wake(st, d);
    }
    return true;
}

/* @return whether the device's next action was executed. */
static bool walk_step(struct state *st, int device)
{
    const struct schedule *s = st->w->s;
    const int index = st->w->next[device];
    const struct action a = s->actions[device][index];
    int from = -1;
    if (a.kind == UPDATE && st->w->updates_meet) return meet_update(st, a);
    if (action_is_message(a.kind)) {
        if (st->w->blocking) return walk_meet(st, device, a);
        /* A send does not wait here.  The send leaves a mark under the message's key, and the receive reads this
         * mark. */
        int *sent = &st->sent[walk_key_of(s, device, a)];
        if (is_send(a)) {
            /* The receiver, which may have stopped for this message, is looked at again. */
            *sent = 1 + index;
            wake(st, a.peer);
        } else {
            /* The message has not been sent.  The sender wakes this device later. */
            if (*sent == 0) return false;
            from = *sent - 1;
        }
    }
    walk_perform(st, device, from);
    return true;
}

enum error_code walk_through(struct walk *walk, struct error *err)
{
    const struct schedule *s = walk->s;
    const size_t P = (size_t)s->devices;
    struct state st = { .w = walk };
    walk->next = calloc(P, sizeof *walk->next);
    /* The marks are [2 kinds of message, stages, M]. */
    st.sent = calloc(2 * (size_t)s->stages * (size_t)s->micros, sizeof *st.sent);
    st.stack = calloc(P, sizeof *st.stack);
    st.on_stack = calloc(P, sizeof *st.on_stack);
    enum error_code code = OK;
    if (walk->next == NULL || st.sent == NULL || st.stack == NULL || st.on_stack == NULL) {
        code = fail(err, ERR_MEMORY, "schedule %s: no memory to go through it", s->name);
        free(walk->next);
        walk->next = NULL;
    } else {
        /* The stack begins with device 0 on top. */
        for (int d = s->devices - 1; d >= 0; d--) wake(&st, d);
        while (st.depth > 0) {
            const int d = st.stack[--st.depth];
            st.on_stack[d] = 0;
            /* A device goes on until it waits for another one, which wakes it. */
            while (walk->next[d] < s->count[d] && walk_step(&st, d)) {}
        }
    }
    free(st.sent);
    free(st.stack);
    free(st.on_stack);
    return code;
}
