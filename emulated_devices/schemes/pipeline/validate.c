/* validate.c -- proves that a schedule can be executed, or reports the device and action that prevent it.
 *
 * Three steps.  (1) The tables: chunks hold valid stages, and routes pass places that hold their stages.  (2) Each
 * device alone: every action that the routes require occurs exactly once, with its messages, after what it needs on the
 * same device.  (3) All devices: a walk through the lists reaches the end of each.  Since step 2 has found both ends of
 * each message, and a send does not wait, a device can only block in a receive whose send comes later: a cycle.
 *
 * schedule_make's callers validate what a generator made; schedule_read.c validates what a user wrote.  All errors
 * are ERR_PLAN or ERR_MEMORY.  The checks are local, and every device gets the same result from the same lists.
 */
#include "emulated_devices/schemes/pipeline/schedules/generate.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A validation keeps its context in this struct.  The table `at` is filled anew for each device. */
struct check {
    const struct schedule *s;
    enum numbering numbering;           /* of the actions in texts */
    int device, index;                  /* the action being checked, or -1 */
    int *at;                            /* [kind][chunk][micro] index of that action in the device's list, or -1 */
    struct error *err;
};

/* The table at [kinds, chunks, M] gives the index of an action in the device's list. */
static int *where(const struct check *check, enum action_kind kind, int micro, int chunk)
{
    return &check->at[((size_t)kind * (size_t)check->s->chunks + (size_t)chunk) * (size_t)check->s->micros
                      + (size_t)micro];
}

/* How a text calls an action: "F0 of chunk 1"; in a file, whose devices mostly have one chunk, "F0". */
static struct action_text validate_name_of(const struct check *check, struct action action)
{
    struct action_text name = action_describe(action);
    if (check->numbering != FROM_ZERO && check->s->chunks == 1) name.text[strcspn(name.text, " ")] = '\0';
    return name;
}

/* The number by which a reader finds an action of a device.  A message that was put in has that of the next action. */
static int number_of(const struct check *check, int device, int index)
{
    int number = check->numbering == FROM_ZERO ? index : index + 1;
    /* The file of the user does not have the inserted messages, so the number leaves out messages. */
    for (int i = 0; check->numbering == FROM_ONE_WITHOUT_MESSAGES && i < index; i++)
        number -= action_is_message(check->s->actions[device][i].kind);
    return number;
}

/* ---- (1) the tables ---------------------------------------------------------------------------------------------- */

/* check_stages wants every stage number in range, and every stage of 0 .. stages-1 on some device. */
static enum error_code check_stages(const struct schedule *schedule, struct error *err)
{
    bool *held = calloc((size_t)schedule->stages + 1, sizeof *held);
    enum error_code code = held == NULL
        ? fail(err, ERR_MEMORY, "schedule %s: no memory to check it", schedule->name) : OK;
    for (int d = 0; code == OK && d < schedule->devices; d++)
        for (int c = 0; code == OK && c < schedule->chunks; c++) {
            const int stage = schedule->stage_of[d][c];
            if (stage < -1 || stage >= schedule->stages)
                code = fail(err, ERR_PLAN, "device %d, chunk %d: stage %d is not one of 0..%d", d, c, stage,
                            schedule->stages - 1);
            else if (stage >= 0) held[stage] = true;
        }
    /* Without a holder no microbatch could pass the stage. */
    for (int t = 0; code == OK && t < schedule->stages; t++)
        if (!held[t]) code = fail(err, ERR_PLAN, "stage %d is on no device", t);
    free(held);
    return code;
}

/* check_route wants each place of a route to hold the stage of its column.  A device below 0 is a skipped stage. */
static enum error_code check_route(const struct schedule *schedule, int r, struct error *err)
{
    int visited = 0;
    for (int t = 0; t < schedule->stages; t++) {
        const struct place p = schedule->route[r][t];
        if (p.device < 0) continue;
        visited++;
        if (p.device >= schedule->devices || p.chunk < 0 || p.chunk >= schedule->chunks
            || schedule->stage_of[p.device][p.chunk] != t)
            return fail(err, ERR_PLAN, "route %d: stage %d is not on device %d, chunk %d", r, t, p.device, p.chunk);
    }
    if (visited == 0) return fail(err, ERR_PLAN, "route %d visits no stage", r);
    return OK;
}

/* check_tables runs first, because every later step uses these tables as indices without a check. */
static enum error_code check_tables(const struct schedule *schedule, struct error *err)
{
    enum error_code code = check_stages(schedule, err);
    for (int r = 0; code == OK && r < schedule->routes; r++) code = check_route(schedule, r, err);
    for (int m = 0; code == OK && m < schedule->micros; m++)
        if (schedule->route_of[m] < 0 || schedule->route_of[m] >= schedule->routes)
            code = fail(err, ERR_PLAN, "microbatch %d: route %d is not one of 0..%d", m, schedule->route_of[m],
                        schedule->routes - 1);
    if (code == OK && (schedule->update_every < 1 || schedule->weight_versions < 1 || schedule->weight_versions > 2))
        code =
            fail(err, ERR_PLAN, "update every %d microbatches with %d weight versions: expected at least 1, and 1 or 2",
                 schedule->update_every, schedule->weight_versions);
    return code;
}

/* ---- (2) a device alone ------------------------------------------------------------------------------------------ */

/* Report an error at this action, with what was expected. */
static enum error_code wrong(struct check *check, int index, const char *expected)
{
    check->index = index;
    return fail(check->err, ERR_PLAN, "device %d, action %d: %s: %s", check->device,
                number_of(check, check->device, index),
                validate_name_of(check, check->s->actions[check->device][index]).text, expected);
}

/* Store the index of each action; none may be out of range, repeated, or for a microbatch whose route is elsewhere. */
static enum error_code index_actions(struct check *check)
{
    const struct schedule *s = check->s;
    /* All bytes 0xff make every int -1: the action has not been seen. */
    memset(check->at, -1, (size_t)ACTION_KINDS * (size_t)s->chunks * (size_t)s->micros * sizeof *check->at);
    for (int i = 0; i < s->count[check->device]; i++) {
        const struct action a = s->actions[check->device][i];
        char text[120];
        if (a.kind >= ACTION_KINDS) return wrong(check, i, "no such kind of action");
        if (a.micro < 0 || a.micro >= s->micros) {
            snprintf(text, sizeof text, "expected a microbatch of 0..%d", s->micros - 1);
            return wrong(check, i, text);
        }
        /* The microbatch is valid from here on.  The chunk must be valid before stage_of is read. */
        if (a.chunk < 0 || a.chunk >= s->chunks || s->stage_of[check->device][a.chunk] < 0) {
            snprintf(text, sizeof text, "expected a chunk of 0..%d that holds a stage", s->chunks - 1);
            return wrong(check, i, text);
        }
        const struct place p = place_of(s, a.micro, s->stage_of[check->device][a.chunk]);
        if (p.device != check->device || p.chunk != a.chunk) {
            snprintf(text, sizeof text, "microbatch %d does not come here: its route computes stage %d on device %d",
                     a.micro, s->stage_of[check->device][a.chunk], p.device);
            return wrong(check, i, p.device < 0
                         ? "microbatch does not come here: its route leaves this stage out" : text);
        }
        /* Each kind, microbatch and chunk has one index, so a second such action is an error. */
        int *at = where(check, a.kind, a.micro, a.chunk);
        if (*at >= 0) {
            snprintf(text, sizeof text, "done twice, first as action %d", number_of(check, check->device, *at));
            return wrong(check, i, text);
        }
        *at = i;
    }
    return OK;
}

/* The action must occur if and only if it is needed. */
static enum error_code presence(struct check *check, enum action_kind kind, int micro, int chunk, bool needed,
                                const char *why)
{
    const int i = *where(check, kind, micro, chunk);
    /* The list agrees with the route: the action is needed and there, or neither. */
    if (needed == (i >= 0)) return OK;
    if (!needed) return wrong(check, i, why);
    const struct action a = { kind, micro, chunk, -1, false };
    return fail(check->err, ERR_PLAN, "device %d: %s is missing (%s)", check->device, validate_name_of(check, a).text,
                action_meaning(kind));
}

/* The action at index i (-1: there is none) must come after another one. */
static enum error_code validate_after(struct check *check, int i, enum action_kind first, int micro, int chunk)
{
    const int before = *where(check, first, micro, chunk);
    const struct action need = { first, micro, chunk, -1, false };
    char text[160];
    /* A missing action is reported elsewhere (presence), so here only the order counts. */
    if (i < 0 || (before >= 0 && before < i)) return OK;
    if (before >= 0)
        snprintf(text, sizeof text, "expected after %s, which is action %d", validate_name_of(check, need).text,
                 number_of(check, check->device, before));
    else snprintf(text, sizeof text, "expected after %s, which is missing", validate_name_of(check, need).text);
    return wrong(check, i, text);
}

/* A message must occur if and only if the neighbour on the route is another device: with that peer, in the right
 * order. */
static enum error_code check_message(struct check *check, enum action_kind kind, int micro, int chunk,
                                     struct place neighbour)
{
    const bool needed = neighbour.device >= 0 && neighbour.device != check->device;
    enum error_code code = presence(check, kind, micro, chunk, needed,
                                    "no message is needed: the neighbouring stage is here, or there is none");
    if (code != OK || !needed) return code;
    const int i = *where(check, kind, micro, chunk);
    if (check->s->actions[check->device][i].peer != neighbour.device) {
        char text[80];
        snprintf(text, sizeof text, "peer is device %d, expected %d", check->s->actions[check->device][i].peer,
                 neighbour.device);
        return wrong(check, i, text);
    }
    return OK;
}

/* validate_check_forward checks F of a microbatch on a chunk, with its messages and what must come before.  `before`
 * and `next` are its neighbours on the route. */
static enum error_code validate_check_forward(struct check *check, int micro, int chunk, struct place before,
                                              struct place next)
{
    const int f = *where(check, FORWARD, micro, chunk);
    enum error_code code = presence(check, FORWARD, micro, chunk, true, "");
    if (code == OK) code = check_message(check, RECEIVE_ACTIVATION, micro, chunk, before);
    if (code == OK) code = check_message(check, SEND_ACTIVATION, micro, chunk, next);
    /* The input comes from this device (a copy) or from another one (a receive).  Stage 0 has neither. */
    if (code == OK && before.device == check->device) code = validate_after(check, f, FORWARD, micro, before.chunk);
    if (code == OK && before.device >= 0 && before.device != check->device)
        code = validate_after(check, f, RECEIVE_ACTIVATION, micro, chunk);
    if (code == OK) code = validate_after(check, *where(check, SEND_ACTIVATION, micro, chunk), FORWARD, micro, chunk);
    return code;
}

/* backward_missing reports a microbatch without B, I and W, and says which two forms would be right. */
static enum error_code backward_missing(struct check *check, int micro, int chunk)
{
    char where[40] = "";
    if (check->numbering == FROM_ZERO || check->s->chunks > 1) snprintf(where, sizeof where, ", chunk %d", chunk);
    return fail(check->err, ERR_PLAN,
                "device %d: the backward of microbatch %d%s is missing: expected B%d, or I%d and W%d",
                check->device, micro, where, micro, micro, micro);
}

/* validate_check_backward checks the backward of a microbatch on a chunk: either B alone, or I and later W. */
static enum error_code validate_check_backward(struct check *check, int micro, int chunk, struct place before,
                                               struct place next)
{
    const bool whole = *where(check, BACKWARD, micro, chunk) >= 0;
    const enum action_kind kind = whole ? BACKWARD : BACKWARD_INPUT;
    if (!whole && *where(check, BACKWARD_INPUT, micro, chunk) < 0 && *where(check, BACKWARD_WEIGHT, micro, chunk) < 0)
        return backward_missing(check, micro, chunk);
    const char *split = "a whole backward (B) has been done already";
    enum error_code code = presence(check, BACKWARD_INPUT, micro, chunk, !whole, split);
    if (code == OK) code = presence(check, BACKWARD_WEIGHT, micro, chunk, !whole, split);
    /* b is the action that produces the input's gradient: B or I. */
    const int b = *where(check, kind, micro, chunk);
    if (code == OK) code = check_message(check, RECEIVE_GRADIENT, micro, chunk, next);
    if (code == OK) code = check_message(check, SEND_GRADIENT, micro, chunk, before);
    if (code == OK) code = validate_after(check, b, FORWARD, micro, chunk);
    if (code == OK && next.device >= 0 && next.device != check->device)
        code = validate_after(check, b, RECEIVE_GRADIENT, micro, chunk);
    if (code == OK && next.device == check->device) {
        /* The next stage on this device may have chosen the other form for this microbatch. */
        const bool next_whole = *where(check, BACKWARD, micro, next.chunk) >= 0;
        code = validate_after(check, b, next_whole ? BACKWARD : BACKWARD_INPUT, micro, next.chunk);
    }
    if (code == OK) code = validate_after(check, *where(check, SEND_GRADIENT, micro, chunk), kind, micro, chunk);
    if (code == OK && !whole)
        code = validate_after(check, *where(check, BACKWARD_WEIGHT, micro, chunk), BACKWARD_INPUT, micro, chunk);
    return code;
}

/* Updates inside the schedule: with two versions batch b (update_every microbatches) uses the weights after batch b-2.
 * So its forwards come after U of batch b - versions, and U of a batch after the batch's last backward. */
static enum error_code check_updates(struct check *check, int chunk)
{
    const struct schedule *s = check->s;
    const int n = s->update_every;
    /* Without a stream the optimizer steps after the list, and no U may occur. */
    const bool stream = n < s->micros || s->weight_versions > 1;
    enum error_code code = OK;
    for (int m = 0; code == OK && m < s->micros; m++) {
        const struct place here = place_of(s, m, s->stage_of[check->device][chunk]);
        const bool mine = here.device == check->device && here.chunk == chunk;
        /* A batch has n microbatches; the last batch may be shorter.  U carries the number of its batch's last
         * microbatch. */
        const int last = m / n * n + n - 1 < s->micros ? m / n * n + n - 1 : s->micros - 1;
        const int u = *where(check, UPDATE, last, chunk), old = m / n * n - 1 - (s->weight_versions - 1) * n;
        code =
            presence(check, UPDATE, m, chunk, stream && m == last,
                     stream ? "U belongs after the last microbatch of a batch" : "no U: the step ends with the list");
        if (code != OK || !stream || !mine) continue;
        code = validate_after(check, u, *where(check, BACKWARD, m, chunk) >= 0 ? BACKWARD : BACKWARD_WEIGHT, m, chunk);
        if (code == OK && old >= 0) code = validate_after(check, *where(check, FORWARD, m, chunk), UPDATE, old, chunk);
    }
    return code;
}

/* Passes side by side are two: with W or U after it, or a third, a pass has nothing to fill. */
static enum error_code check_pairs(struct check *check)
{
    const struct action *list = check->s->actions[check->device], *before = NULL;
    for (int i = 0; i < check->s->count[check->device]; i++) {
        /* Only F, B and I can wait for messages, and only these can fill such a wait. */
        const bool pass = list[i].kind == FORWARD || list[i].kind == BACKWARD || list[i].kind == BACKWARD_INPUT;
        if (list[i].beside && (!pass || before == NULL || before->beside))
            return wrong(check, i, "it is beside the action before it: expected an F, B or I after another of these "
                               "that is not beside a third");
        if (!action_is_message(list[i].kind)) before = pass ? &list[i] : NULL;
    }
    return OK;
}

/* check_device does step 2 for one device.  index_actions must come first: the other checks read its table. */
static enum error_code check_device(struct check *check)
{
    const struct schedule *s = check->s;
    enum error_code code = index_actions(check);
    if (code == OK) code = check_pairs(check);
    for (int chunk = 0; chunk < s->chunks; chunk++) {
        const int stage = s->stage_of[check->device][chunk];
        if (stage < 0) continue;
        for (int m = 0; code == OK && m < s->micros; m++) {
            const struct place here = place_of(s, m, stage);
            /* The microbatch takes another copy of this stage, or skips the stage. */
            if (here.device != check->device || here.chunk != chunk) continue;
            const struct place before = place_before(s, m, stage), next = place_after(s, m, stage);
            code = validate_check_forward(check, m, chunk, before, next);
            if (code == OK) code = validate_check_backward(check, m, chunk, before, next);
        }
        if (code == OK) code = check_updates(check, chunk);
    }
    return code;
}

/* ---- (3) all together -------------------------------------------------------------------------------------------- */

/* Every unfinished device waits for another unfinished one: follow them until a device repeats. */
static enum error_code tell_cycle(struct check *check, const int *next)
{
    const struct schedule *s = check->s;
    int d = 0, size = 0;
    while (next[d] == s->count[d]) d++;
    for (int i = 0; i < s->devices; i++) {              /* after this many steps d is on the cycle */
        assert(action_is_message(s->actions[d][next[d]].kind));
        d = s->actions[d][next[d]].peer;
    }
    /* The error is reported at this device of the circle. */
    check->device = d;
    check->index = next[d];
    char text[300];
    int used = 0, at = d;
    /* The text names at most four devices of the circle. */
    do {
        const struct action a = s->actions[at][next[at]];
        if (size++ < 4)
            used += snprintf(text + used, sizeof text - (size_t)used,
                             "%sdevice %d, action %d (%s%s) waits for device %d", size > 1 ? "; " : "", at,
                             number_of(check, at, next[at]), check->numbering == FROM_ONE_WITHOUT_MESSAGES
                                 ? "needs " : "",
                             validate_name_of(check, a).text, a.peer);
        at = a.peer;
    } while (at != d && used < (int)sizeof text);
    return fail(check->err, ERR_PLAN, "deadlock: %s%s", text, size > 4 ? "; and so on in a circle" : "");
}

/* Step 3: all devices must reach the ends of their lists. */
static enum error_code check_progress(struct check *check)
{
    struct walk w = { .s = check->s };
    enum error_code code = walk_through(&w, check->err);
    bool through = true;
    for (int d = 0; code == OK && d < check->s->devices; d++) through = through && w.next[d] == check->s->count[d];
    if (code == OK && !through) code = tell_cycle(check, w.next);
    free(w.next);
    return code;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

enum error_code schedule_validate_at(const struct schedule *schedule, enum numbering numbering, int *device, int *index,
                                     struct error *err)
{
    struct check c = { .s = schedule, .numbering = numbering, .device = -1, .index = -1, .err = err };
    enum error_code code = check_tables(schedule, err);
    if (code == OK) {
        c.at = malloc((size_t)ACTION_KINDS * (size_t)schedule->chunks * (size_t)schedule->micros * sizeof *c.at);
        if (c.at == NULL) code = fail(err, ERR_MEMORY, "schedule %s: no memory to check it", schedule->name);
    }
    for (int d = 0; code == OK && d < schedule->devices; d++) {
        c.device = d;
        code = check_device(&c);
    }
    if (code == OK) {
        /* A deadlock has no single device until tell_cycle finds one. */
        c.device = -1;
        code = check_progress(&c);
    }
    free(c.at);
    *device = c.device;
    *index = c.index;
    return code;
}

enum error_code schedule_validate(const struct schedule *schedule, struct error *err)
{
    int device, index;
    return schedule_validate_at(schedule, FROM_ZERO, &device, &index, err);
}

/* comes_through walks without an error text.  Without memory the answer is false. */
static bool comes_through(struct walk walk)
{
    bool through = walk_through(&walk, NULL) == OK;
    for (int d = 0; through && d < walk.s->devices; d++) through = walk.next[d] == walk.s->count[d];
    free(walk.next);
    return through;
}

/* tutorials/11_schedules/check.c calls this function.  The schedule must be valid, so the only fault left is a
 * circle. */
enum error_code schedule_blocks(const struct schedule *schedule, enum numbering numbering, struct error *err)
{
    struct check c = { .s = schedule, .numbering = numbering, .device = -1, .index = -1, .err = err };
    struct walk w = { .s = schedule, .blocking = true };
    enum error_code code = walk_through(&w, err);
    bool through = true;
    for (int d = 0; code == OK && d < schedule->devices; d++) through = through && w.next[d] == schedule->count[d];
    if (code == OK && !through) code = tell_cycle(&c, w.next);
    free(w.next);
    return code;
}

bool schedule_survives_blocking_sends(const struct schedule *schedule)
{
    return comes_through((struct walk){ .s = schedule, .blocking = true });
}

bool schedule_updates_can_meet(const struct schedule *schedule)
{
    return comes_through((struct walk){ .s = schedule, .updates_meet = true });
}
