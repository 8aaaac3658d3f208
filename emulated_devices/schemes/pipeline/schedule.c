/* schedule.c -- builds and frees a schedule, and answers queries that need no execution. */
#include "emulated_devices/schemes/pipeline/schedules/generate.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const char *const letters[] = {
#define X(id, letter, what) [id] = letter,
    ACTIONS(X)
#undef X
};

static const char *const meanings[] = {
#define X(id, letter, what) [id] = what,
    ACTIONS(X)
#undef X
};

const char *action_letter(enum action_kind kind) { return kind < ACTION_KINDS ? letters[kind] : "?"; }
const char *action_meaning(enum action_kind kind) { return kind < ACTION_KINDS ? meanings[kind] : "unknown action"; }
bool action_is_receive(enum action_kind k) { return k == RECEIVE_ACTIVATION || k == RECEIVE_GRADIENT; }

/* The nearest computation from action i on, in one direction; -1: there is none. */
static int computation_from(const struct schedule *s, int device, int i, int step)
{
    while (i >= 0 && i < s->count[device] && action_is_message(s->actions[device][i].kind)) i += step;
    return i < s->count[device] ? i : -1;
}

bool schedule_is_beside(const struct schedule *s, int device, int i)
{
    if (!s->pairs) return false;
    const struct action *list = s->actions[device], a = list[i];
    /* A receive belongs to the computation after it, a send to the one before it. */
    const int at = computation_from(s, device, i, action_is_receive(a.kind) ? 1 : -1);
    if (at < 0 || !list[at].beside || at == i) return at == i && list[i].beside;
    const bool gradient = a.kind == SEND_GRADIENT || a.kind == RECEIVE_GRADIENT;
    return list[at].micro == a.micro && list[at].chunk == a.chunk && (list[at].kind == FORWARD) != gradient;
}

bool schedule_has_beside(const struct schedule *s, int device, int i)
{
    if (!s->pairs || action_is_message(s->actions[device][i].kind)) return false;
    const int next = computation_from(s, device, i + 1, 1);
    return next >= 0 && s->actions[device][next].beside;
}

int posting_next(struct posting *p, const struct schedule *s, int device, int i)
{
    for (; p->at < s->count[device]; p->at++) {
        if (!action_is_receive(s->actions[device][p->at].kind)) continue;
        /* A receive of a later action is posted early while fewer than receives_ahead are open. */
        if (p->at > i && p->open >= s->receives_ahead) return -1;
        p->open++;
        return p->at++;
    }
    return -1;
}

bool action_is_message(enum action_kind kind) { return kind >= SEND_ACTIVATION && kind < ACTION_KINDS; }

struct action_text action_describe(struct action a)
{
    struct action_text out;
    snprintf(out.text, sizeof out.text, "%s%d of chunk %d", action_letter(a.kind), a.micro, a.chunk);
    return out;
}

/* Rows of equal length in one block, which row[0] owns. */
#define DEFINE_ROWS(name, type)                                            \
    static type **name(int n, size_t length)                               \
    {                                                                      \
        const size_t count = n > 0 ? (size_t)n : 1;                        \
        type **row = calloc(count, sizeof *row);                           \
        type *block = calloc(count * length, sizeof *block);               \
        if (row == NULL || block == NULL) {                                \
            free(row);                                                     \
            free(block);                                                   \
            return NULL;                                                   \
        }                                                                  \
        for (int i = 0; i < n; i++) row[i] = block + (size_t)i * length;   \
        return row;                                                        \
    }
DEFINE_ROWS(int_rows, int)
DEFINE_ROWS(place_rows, struct place)
DEFINE_ROWS(action_rows, struct action)

size_t most_actions(const struct schedule *s) { return 8 * (size_t)s->micros * (size_t)s->chunks; }

enum error_code schedule_begin(struct schedule *s, const char *name, int devices, int micros, int chunks,
                               struct error *err)
{
    memset(s, 0, sizeof *s);
    if (devices < 1 || devices > SCHEDULE_MOST_DEVICES || chunks < 1 || chunks > SCHEDULE_MOST_CHUNKS || micros < 1 ||
        (int64_t)devices * chunks * micros > SCHEDULE_MOST_CELLS)
        return fail(err, ERR_PLAN,
                    "schedule %s: devices=%d (1..%d), micros=%d, chunks=%d (1..%d) and their product (1..%d) "
                    "must be in range",
                    name, devices, SCHEDULE_MOST_DEVICES, micros, chunks, SCHEDULE_MOST_CHUNKS, SCHEDULE_MOST_CELLS);
    snprintf(s->name, sizeof s->name, "%s", name);
    s->devices = devices;
    s->micros = micros;
    s->chunks = chunks;
    s->stages = devices * chunks;
    s->weight_versions = 1;
    s->update_every = micros;
    s->stage_of = int_rows(devices, (size_t)chunks);
    s->actions = action_rows(devices, most_actions(s));
    s->count = calloc((size_t)devices, sizeof *s->count);
    s->route_of = calloc((size_t)micros, sizeof *s->route_of);
    if (s->stage_of == NULL || s->actions == NULL || s->count == NULL || s->route_of == NULL) {
        schedule_free(s);
        return fail(err, ERR_MEMORY, "schedule %s: no memory for %d devices, %d microbatches", name, devices, micros);
    }
    for (int d = 0; d < devices; d++)
        for (int c = 0; c < chunks; c++) s->stage_of[d][c] = -1;
    return OK;
}

void schedule_free(struct schedule *s)
{
    if (s->stage_of != NULL) free(s->stage_of[0]);
    if (s->route != NULL) free(s->route[0]);
    if (s->actions != NULL) free(s->actions[0]);
    free(s->stage_of);
    free(s->route);
    free(s->actions);
    free(s->count);
    free(s->route_of);
    memset(s, 0, sizeof *s);
}

void schedule_put(struct schedule *s, int device, enum action_kind kind, int micro, int chunk)
{
    /* Generators may count past the last microbatch. */
    if (micro >= s->micros) return;
    assert(!action_is_message(kind) && micro >= 0 && chunk >= 0 && chunk < s->chunks);
    assert((size_t)s->count[device] < most_actions(s));
    s->actions[device][s->count[device]++] = (struct action){ kind, micro, chunk, -1, false };
}

/* ---- placement --------------------------------------------------------------------------------------------------- */

void place_looped(struct schedule *s)
{
    for (int d = 0; d < s->devices; d++)
        for (int c = 0; c < s->chunks; c++) s->stage_of[d][c] = c * s->devices + d;
}

void place_v(struct schedule *s)
{
    /* The first chunks go down the devices, the second ones come back up. */
    for (int d = 0; d < s->devices; d++) {
        s->stage_of[d][0] = d;
        s->stage_of[d][1] = 2 * s->devices - 1 - d;
    }
}

enum error_code place_bidirectional(struct schedule *s, struct error *err)
{
    const int P = s->devices;
    s->stages = P;
    if (routes_begin(s, 2, err) != OK) return ERR_MEMORY;
    for (int d = 0; d < P; d++) {
        s->stage_of[d][0] = d;
        s->stage_of[d][1] = P - 1 - d;
        s->route[0][d] = (struct place){ d, 0 };
        s->route[1][P - 1 - d] = (struct place){ d, 1 };
    }
    for (int m = 0; m < s->micros; m++) s->route_of[m] = m % 2;
    return OK;
}

enum error_code routes_begin(struct schedule *s, int routes, struct error *err)
{
    s->route = place_rows(routes, (size_t)s->stages);
    if (s->route == NULL) return fail(err, ERR_MEMORY, "schedule %s: no memory for %d routes", s->name, routes);
    s->routes = routes;
    for (int r = 0; r < routes; r++)
        for (int t = 0; t < s->stages; t++) s->route[r][t] = (struct place){ -1, -1 };
    return OK;
}

enum error_code only_route(struct schedule *s, struct error *err)
{
    if (routes_begin(s, 1, err) != OK) return ERR_MEMORY;
    for (int d = 0; d < s->devices; d++)
        for (int c = 0; c < s->chunks; c++) {
            const int stage = s->stage_of[d][c];
            if (stage >= 0) s->route[0][stage] = (struct place){ d, c };
        }
    return OK;
}

struct place place_of(const struct schedule *s, int micro, int stage)
{
    if (stage < 0 || stage >= s->stages) return (struct place){ -1, -1 };
    return s->route[s->route_of[micro]][stage];
}

struct place place_before(const struct schedule *s, int micro, int stage)
{
    struct place p = { -1, -1 };
    while (--stage >= 0 && p.device < 0) p = place_of(s, micro, stage);
    return p;
}

struct place place_after(const struct schedule *s, int micro, int stage)
{
    struct place p = { -1, -1 };
    while (++stage < s->stages && p.device < 0) p = place_of(s, micro, stage);
    return p;
}

int schedule_holders(const struct schedule *s, int stage, struct place *holder, int most)
{
    int n = 0;
    for (int d = 0; d < s->devices; d++)
        for (int c = 0; c < s->chunks; c++)
            if (s->stage_of[d][c] == stage) {
                if (n < most) holder[n] = (struct place){ d, c };
                n++;
            }
    return n;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

struct list { struct action *at; int n; };       /* at == NULL: only count */

static void append(struct list *list, struct action a)
{
    if (list->at != NULL) list->at[list->n] = a;
    list->n++;
}

static void append_message(struct list *list, enum action_kind kind, struct action a, struct place peer, int device)
{
    if (peer.device >= 0 && peer.device != device)
        append(list, (struct action){ kind, a.micro, a.chunk, peer.device, false });
}

/* One device's computations, each with its receive right before and its send right after it. */
static struct list with_messages(const struct schedule *s, int device, struct action *at)
{
    struct list list = { at, 0 };
    for (int i = 0; i < s->count[device]; i++) {
        const struct action a = s->actions[device][i];
        const int stage = schedule_stage(s, device, a);
        const struct place before = place_before(s, a.micro, stage), after = place_after(s, a.micro, stage);
        const bool forward = a.kind == FORWARD, backward = a.kind == BACKWARD || a.kind == BACKWARD_INPUT;
        if (forward) append_message(&list, RECEIVE_ACTIVATION, a, before, device);
        if (backward) append_message(&list, RECEIVE_GRADIENT, a, after, device);
        append(&list, a);
        if (forward) append_message(&list, SEND_ACTIVATION, a, after, device);
        if (backward) append_message(&list, SEND_GRADIENT, a, before, device);
    }
    return list;
}

static enum error_code insert_messages(struct schedule *s, struct error *err)
{
    int longest = 0;
    for (int d = 0; d < s->devices; d++) {
        const int n = with_messages(s, d, NULL).n;
        if (n > longest) longest = n;
    }
    struct action **full = action_rows(s->devices, (size_t)longest + 1);
    if (full == NULL) return fail(err, ERR_MEMORY, "schedule %s: no memory for its messages", s->name);
    for (int d = 0; d < s->devices; d++) s->count[d] = with_messages(s, d, full[d]).n;
    free(s->actions[0]);
    free(s->actions);
    s->actions = full;
    return OK;
}

enum error_code schedule_finish(struct schedule *s, struct error *err)
{
    enum error_code code = s->route == NULL ? only_route(s, err) : OK;
    if (code == OK) code = insert_messages(s, err);
    if (code != OK) schedule_free(s);
    return code;
}

/* ---- queries ----------------------------------------------------------------------------------------------------- */

int schedule_peak(const struct schedule *s, int device) { return (int)schedule_peak_memory(s, device, 1, 1); }

int64_t schedule_peak_memory(const struct schedule *s, int device, int64_t activation, int64_t kept_for_weight)
{
    int64_t held = 0, peak = 0;
    for (int i = 0; i < s->count[device]; i++) {
        switch (s->actions[device][i].kind) {
        case FORWARD:         held += activation; break;
        case BACKWARD:        held -= activation; break;
        case BACKWARD_INPUT:  held -= activation - kept_for_weight; break;
        case BACKWARD_WEIGHT: held -= kept_for_weight; break;
        default:              break;
        }
        if (held > peak) peak = held;
    }
    return peak;
}

int64_t schedule_messages(const struct schedule *s)
{
    int64_t n = 0;
    for (int d = 0; d < s->devices; d++)
        for (int i = 0; i < s->count[d]; i++)
            n += s->actions[d][i].kind == SEND_ACTIVATION || s->actions[d][i].kind == SEND_GRADIENT;
    return n;
}

bool schedule_adds_in_order(const struct schedule *s)
{
    for (int d = 0; d < s->devices; d++)
        for (int c = 0; c < s->chunks; c++) {
            int last = -1;
            for (int i = 0; i < s->count[d]; i++) {
                const struct action a = s->actions[d][i];
                if (a.chunk != c || (a.kind != BACKWARD && a.kind != BACKWARD_WEIGHT)) continue;
                if (a.micro < last) return false;
                last = a.micro;
            }
        }
    return true;
}

bool schedule_is_partial(const struct schedule *s)
{
    for (int m = 0; m < s->micros; m++)
        for (int stage = 0; stage < s->stages; stage++)
            if (place_of(s, m, stage).device < 0) return true;
    return false;
}
