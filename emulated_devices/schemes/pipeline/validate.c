/* validate.c -- proves that a schedule can be executed, or reports the device and action that prevent it.
 *
 * Three steps.  (1) The tables: chunks hold valid stages, and routes pass places that hold their stages.  (2) Each
 * device alone: every action that the routes require occurs exactly once, with its messages, after what it needs on the
 * same device.  (3) All devices: a walk through the lists reaches the end of each.  Since step 2 has found both ends of
 * each message, and a send does not wait, a device can only block in a receive whose send comes later: a cycle.
 */
#include "emulated_devices/schemes/pipeline/schedules/generate.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct check {
    const struct schedule *s;
    enum numbering numbering;           /* of the actions in texts */
    int device, index;                  /* the action being checked, or -1 */
    int *at;                            /* [kind][chunk][micro] index of that action in the device's list, or -1 */
    struct error *err;
};

static int *where(const struct check *c, enum action_kind kind, int micro, int chunk)
{
    return &c->at[((size_t)kind * (size_t)c->s->chunks + (size_t)chunk) * (size_t)c->s->micros + (size_t)micro];
}

/* How a text calls an action: "F0 of chunk 1"; in a file, whose devices mostly have one chunk, "F0". */
static struct action_text name_of(const struct check *c, struct action a)
{
    struct action_text name = action_describe(a);
    if (c->numbering != FROM_ZERO && c->s->chunks == 1) name.text[strcspn(name.text, " ")] = '\0';
    return name;
}

/* The number by which a reader finds an action of a device.  A message that was put in has that of the next action. */
static int number_of(const struct check *c, int device, int index)
{
    int number = c->numbering == FROM_ZERO ? index : index + 1;
    for (int i = 0; c->numbering == FROM_ONE_WITHOUT_MESSAGES && i < index; i++)
        number -= action_is_message(c->s->actions[device][i].kind);
    return number;
}

/* ---- (1) the tables ---------------------------------------------------------------------------------------------- */

static enum error_code check_stages(const struct schedule *s, struct error *err)
{
    bool *held = calloc((size_t)s->stages + 1, sizeof *held);
    enum error_code code = held == NULL ? fail(err, ERR_MEMORY, "schedule %s: no memory to check it", s->name) : OK;
    for (int d = 0; code == OK && d < s->devices; d++)
        for (int c = 0; code == OK && c < s->chunks; c++) {
            const int stage = s->stage_of[d][c];
            if (stage < -1 || stage >= s->stages)
                code = fail(err, ERR_PLAN, "device %d, chunk %d: stage %d is not one of 0..%d", d, c, stage,
                            s->stages - 1);
            else if (stage >= 0) held[stage] = true;
        }
    for (int t = 0; code == OK && t < s->stages; t++)
        if (!held[t]) code = fail(err, ERR_PLAN, "stage %d is on no device", t);
    free(held);
    return code;
}

static enum error_code check_route(const struct schedule *s, int r, struct error *err)
{
    int visited = 0;
    for (int t = 0; t < s->stages; t++) {
        const struct place p = s->route[r][t];
        if (p.device < 0) continue;
        visited++;
        if (p.device >= s->devices || p.chunk < 0 || p.chunk >= s->chunks || s->stage_of[p.device][p.chunk] != t)
            return fail(err, ERR_PLAN, "route %d: stage %d is not on device %d, chunk %d", r, t, p.device, p.chunk);
    }
    if (visited == 0) return fail(err, ERR_PLAN, "route %d visits no stage", r);
    return OK;
}

static enum error_code check_tables(const struct schedule *s, struct error *err)
{
    enum error_code code = check_stages(s, err);
    for (int r = 0; code == OK && r < s->routes; r++) code = check_route(s, r, err);
    for (int m = 0; code == OK && m < s->micros; m++)
        if (s->route_of[m] < 0 || s->route_of[m] >= s->routes)
            code = fail(err, ERR_PLAN, "microbatch %d: route %d is not one of 0..%d", m, s->route_of[m], s->routes - 1);
    if (code == OK && (s->update_every < 1 || s->weight_versions < 1 || s->weight_versions > 2))
        code =
            fail(err, ERR_PLAN, "update every %d microbatches with %d weight versions: expected at least 1, and 1 or 2",
                 s->update_every, s->weight_versions);
    return code;
}

/* ---- (2) a device alone ------------------------------------------------------------------------------------------ */

/* Report an error at this action, with what was expected. */
static enum error_code wrong(struct check *c, int index, const char *expected)
{
    c->index = index;
    return fail(c->err, ERR_PLAN, "device %d, action %d: %s: %s", c->device, number_of(c, c->device, index),
                name_of(c, c->s->actions[c->device][index]).text, expected);
}

/* Store the index of each action; none may be out of range, repeated, or for a microbatch whose route is elsewhere. */
static enum error_code index_actions(struct check *c)
{
    const struct schedule *s = c->s;
    memset(c->at, -1, (size_t)ACTION_KINDS * (size_t)s->chunks * (size_t)s->micros * sizeof *c->at);
    for (int i = 0; i < s->count[c->device]; i++) {
        const struct action a = s->actions[c->device][i];
        char text[120];
        if (a.kind >= ACTION_KINDS) return wrong(c, i, "no such kind of action");
        if (a.micro < 0 || a.micro >= s->micros) {
            snprintf(text, sizeof text, "expected a microbatch of 0..%d", s->micros - 1);
            return wrong(c, i, text);
        }
        if (a.chunk < 0 || a.chunk >= s->chunks || s->stage_of[c->device][a.chunk] < 0) {
            snprintf(text, sizeof text, "expected a chunk of 0..%d that holds a stage", s->chunks - 1);
            return wrong(c, i, text);
        }
        const struct place p = place_of(s, a.micro, s->stage_of[c->device][a.chunk]);
        if (p.device != c->device || p.chunk != a.chunk) {
            snprintf(text, sizeof text, "microbatch %d does not come here: its route computes stage %d on device %d",
                     a.micro, s->stage_of[c->device][a.chunk], p.device);
            return wrong(c, i, p.device < 0 ? "microbatch does not come here: its route leaves this stage out" : text);
        }
        int *at = where(c, a.kind, a.micro, a.chunk);
        if (*at >= 0) {
            snprintf(text, sizeof text, "done twice, first as action %d", number_of(c, c->device, *at));
            return wrong(c, i, text);
        }
        *at = i;
    }
    return OK;
}

/* The action must occur if and only if it is needed. */
static enum error_code presence(struct check *c, enum action_kind kind, int micro, int chunk, bool needed,
                                const char *why)
{
    const int i = *where(c, kind, micro, chunk);
    if (needed == (i >= 0)) return OK;
    if (!needed) return wrong(c, i, why);
    const struct action a = { kind, micro, chunk, -1, false };
    return fail(c->err, ERR_PLAN, "device %d: %s is missing (%s)", c->device, name_of(c, a).text,
                action_meaning(kind));
}

/* The action at index i (-1: there is none) must come after another one. */
static enum error_code after(struct check *c, int i, enum action_kind first, int micro, int chunk)
{
    const int before = *where(c, first, micro, chunk);
    const struct action need = { first, micro, chunk, -1, false };
    char text[160];
    if (i < 0 || (before >= 0 && before < i)) return OK;
    if (before >= 0)
        snprintf(text, sizeof text, "expected after %s, which is action %d", name_of(c, need).text,
                 number_of(c, c->device, before));
    else snprintf(text, sizeof text, "expected after %s, which is missing", name_of(c, need).text);
    return wrong(c, i, text);
}

/* A message must occur if and only if the neighbour on the route is another device: with that peer, in the right
 * order. */
static enum error_code check_message(struct check *c, enum action_kind kind, int micro, int chunk,
                                     struct place neighbour)
{
    const bool needed = neighbour.device >= 0 && neighbour.device != c->device;
    enum error_code code = presence(c, kind, micro, chunk, needed,
                                    "no message is needed: the neighbouring stage is here, or there is none");
    if (code != OK || !needed) return code;
    const int i = *where(c, kind, micro, chunk);
    if (c->s->actions[c->device][i].peer != neighbour.device) {
        char text[80];
        snprintf(text, sizeof text, "peer is device %d, expected %d", c->s->actions[c->device][i].peer,
                 neighbour.device);
        return wrong(c, i, text);
    }
    return OK;
}

static enum error_code check_forward(struct check *c, int micro, int chunk, struct place before, struct place next)
{
    const int f = *where(c, FORWARD, micro, chunk);
    enum error_code code = presence(c, FORWARD, micro, chunk, true, "");
    if (code == OK) code = check_message(c, RECEIVE_ACTIVATION, micro, chunk, before);
    if (code == OK) code = check_message(c, SEND_ACTIVATION, micro, chunk, next);
    if (code == OK && before.device == c->device) code = after(c, f, FORWARD, micro, before.chunk);
    if (code == OK && before.device >= 0 && before.device != c->device)
        code = after(c, f, RECEIVE_ACTIVATION, micro, chunk);
    if (code == OK) code = after(c, *where(c, SEND_ACTIVATION, micro, chunk), FORWARD, micro, chunk);
    return code;
}

static enum error_code backward_missing(struct check *c, int micro, int chunk)
{
    char where[40] = "";
    if (c->numbering == FROM_ZERO || c->s->chunks > 1) snprintf(where, sizeof where, ", chunk %d", chunk);
    return fail(c->err, ERR_PLAN, "device %d: the backward of microbatch %d%s is missing: expected B%d, or I%d and W%d",
                c->device, micro, where, micro, micro, micro);
}

static enum error_code check_backward(struct check *c, int micro, int chunk, struct place before, struct place next)
{
    const bool whole = *where(c, BACKWARD, micro, chunk) >= 0;
    const enum action_kind kind = whole ? BACKWARD : BACKWARD_INPUT;
    if (!whole && *where(c, BACKWARD_INPUT, micro, chunk) < 0 && *where(c, BACKWARD_WEIGHT, micro, chunk) < 0)
        return backward_missing(c, micro, chunk);
    const char *split = "a whole backward (B) has been done already";
    enum error_code code = presence(c, BACKWARD_INPUT, micro, chunk, !whole, split);
    if (code == OK) code = presence(c, BACKWARD_WEIGHT, micro, chunk, !whole, split);
    const int b = *where(c, kind, micro, chunk);
    if (code == OK) code = check_message(c, RECEIVE_GRADIENT, micro, chunk, next);
    if (code == OK) code = check_message(c, SEND_GRADIENT, micro, chunk, before);
    if (code == OK) code = after(c, b, FORWARD, micro, chunk);
    if (code == OK && next.device >= 0 && next.device != c->device) code = after(c, b, RECEIVE_GRADIENT, micro, chunk);
    if (code == OK && next.device == c->device) {
        const bool next_whole = *where(c, BACKWARD, micro, next.chunk) >= 0;
        code = after(c, b, next_whole ? BACKWARD : BACKWARD_INPUT, micro, next.chunk);
    }
    if (code == OK) code = after(c, *where(c, SEND_GRADIENT, micro, chunk), kind, micro, chunk);
    if (code == OK && !whole) code = after(c, *where(c, BACKWARD_WEIGHT, micro, chunk), BACKWARD_INPUT, micro, chunk);
    return code;
}

/* Updates inside the schedule: with two versions batch b (update_every microbatches) uses the weights after batch b-2.
 * So its forwards come after U of batch b - versions, and U of a batch after the batch's last backward. */
static enum error_code check_updates(struct check *c, int chunk)
{
    const struct schedule *s = c->s;
    const int n = s->update_every;
    const bool stream = n < s->micros || s->weight_versions > 1;
    enum error_code code = OK;
    for (int m = 0; code == OK && m < s->micros; m++) {
        const struct place here = place_of(s, m, s->stage_of[c->device][chunk]);
        const bool mine = here.device == c->device && here.chunk == chunk;
        const int last = m / n * n + n - 1 < s->micros ? m / n * n + n - 1 : s->micros - 1;
        const int u = *where(c, UPDATE, last, chunk), old = m / n * n - 1 - (s->weight_versions - 1) * n;
        code =
            presence(c, UPDATE, m, chunk, stream && m == last,
                     stream ? "U belongs after the last microbatch of a batch" : "no U: the step ends with the list");
        if (code != OK || !stream || !mine) continue;
        code = after(c, u, *where(c, BACKWARD, m, chunk) >= 0 ? BACKWARD : BACKWARD_WEIGHT, m, chunk);
        if (code == OK && old >= 0) code = after(c, *where(c, FORWARD, m, chunk), UPDATE, old, chunk);
    }
    return code;
}

/* Passes side by side are two: with W or U after it, or a third, a pass has nothing to fill. */
static enum error_code check_pairs(struct check *c)
{
    const struct action *list = c->s->actions[c->device], *before = NULL;
    for (int i = 0; i < c->s->count[c->device]; i++) {
        const bool pass = list[i].kind == FORWARD || list[i].kind == BACKWARD || list[i].kind == BACKWARD_INPUT;
        if (list[i].beside && (!pass || before == NULL || before->beside))
            return wrong(c, i, "it is beside the action before it: expected an F, B or I after another of these "
                               "that is not beside a third");
        if (!action_is_message(list[i].kind)) before = pass ? &list[i] : NULL;
    }
    return OK;
}

static enum error_code check_device(struct check *c)
{
    const struct schedule *s = c->s;
    enum error_code code = index_actions(c);
    if (code == OK) code = check_pairs(c);
    for (int chunk = 0; chunk < s->chunks; chunk++) {
        const int stage = s->stage_of[c->device][chunk];
        if (stage < 0) continue;
        for (int m = 0; code == OK && m < s->micros; m++) {
            const struct place here = place_of(s, m, stage);
            if (here.device != c->device || here.chunk != chunk) continue;
            const struct place before = place_before(s, m, stage), next = place_after(s, m, stage);
            code = check_forward(c, m, chunk, before, next);
            if (code == OK) code = check_backward(c, m, chunk, before, next);
        }
        if (code == OK) code = check_updates(c, chunk);
    }
    return code;
}

/* ---- (3) all together -------------------------------------------------------------------------------------------- */

/* Every unfinished device waits for another unfinished one: follow them until a device repeats. */
static enum error_code tell_cycle(struct check *c, const int *next)
{
    const struct schedule *s = c->s;
    int d = 0, size = 0;
    while (next[d] == s->count[d]) d++;
    for (int i = 0; i < s->devices; i++) {              /* after this many steps d is on the cycle */
        assert(action_is_message(s->actions[d][next[d]].kind));
        d = s->actions[d][next[d]].peer;
    }
    c->device = d;
    c->index = next[d];
    char text[300];
    int used = 0, at = d;
    do {
        const struct action a = s->actions[at][next[at]];
        if (size++ < 4)
            used += snprintf(text + used, sizeof text - (size_t)used,
                             "%sdevice %d, action %d (%s%s) waits for device %d", size > 1 ? "; " : "", at,
                             number_of(c, at, next[at]), c->numbering == FROM_ONE_WITHOUT_MESSAGES ? "needs " : "",
                             name_of(c, a).text, a.peer);
        at = a.peer;
    } while (at != d && used < (int)sizeof text);
    return fail(c->err, ERR_PLAN, "deadlock: %s%s", text, size > 4 ? "; and so on in a circle" : "");
}

static enum error_code check_progress(struct check *c)
{
    struct walk w = { .s = c->s };
    enum error_code code = walk_through(&w, c->err);
    bool through = true;
    for (int d = 0; code == OK && d < c->s->devices; d++) through = through && w.next[d] == c->s->count[d];
    if (code == OK && !through) code = tell_cycle(c, w.next);
    free(w.next);
    return code;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

enum error_code schedule_validate_at(const struct schedule *s, enum numbering numbering, int *device, int *index,
                                     struct error *err)
{
    struct check c = { .s = s, .numbering = numbering, .device = -1, .index = -1, .err = err };
    enum error_code code = check_tables(s, err);
    if (code == OK) {
        c.at = malloc((size_t)ACTION_KINDS * (size_t)s->chunks * (size_t)s->micros * sizeof *c.at);
        if (c.at == NULL) code = fail(err, ERR_MEMORY, "schedule %s: no memory to check it", s->name);
    }
    for (int d = 0; code == OK && d < s->devices; d++) {
        c.device = d;
        code = check_device(&c);
    }
    if (code == OK) {
        c.device = -1;
        code = check_progress(&c);
    }
    free(c.at);
    *device = c.device;
    *index = c.index;
    return code;
}

enum error_code schedule_validate(const struct schedule *s, struct error *err)
{
    int device, index;
    return schedule_validate_at(s, FROM_ZERO, &device, &index, err);
}

static bool comes_through(struct walk w)
{
    bool through = walk_through(&w, NULL) == OK;
    for (int d = 0; through && d < w.s->devices; d++) through = w.next[d] == w.s->count[d];
    free(w.next);
    return through;
}

enum error_code schedule_blocks(const struct schedule *s, enum numbering numbering, struct error *err)
{
    struct check c = { .s = s, .numbering = numbering, .device = -1, .index = -1, .err = err };
    struct walk w = { .s = s, .blocking = true };
    enum error_code code = walk_through(&w, err);
    bool through = true;
    for (int d = 0; code == OK && d < s->devices; d++) through = through && w.next[d] == s->count[d];
    if (code == OK && !through) code = tell_cycle(&c, w.next);
    free(w.next);
    return code;
}

bool schedule_survives_blocking_sends(const struct schedule *s)
{
    return comes_through((struct walk){ .s = s, .blocking = true });
}

bool schedule_updates_can_meet(const struct schedule *s)
{
    return comes_through((struct walk){ .s = s, .updates_meet = true });
}
