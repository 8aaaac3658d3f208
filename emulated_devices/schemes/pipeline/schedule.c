/* schedule.c -- builds and frees a schedule, and answers queries that need no execution.
 *
 * The generators in schedules/ build with schedule_begin, schedule_put and schedule_finish; schedule_read.c fills the
 * same tables from a file.  Errors are ERR_PLAN for sizes out of range and ERR_MEMORY; after an error nothing is left
 * to free.  Everything here is local: no device sends a message.
 */
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

/* The letters and meanings come from the list ACTIONS, so a new kind needs one line there. */
const char *action_letter(enum action_kind kind) { return kind < ACTION_KINDS ? letters[kind] : "?"; }
const char *action_meaning(enum action_kind kind) { return kind < ACTION_KINDS ? meanings[kind] : "unknown action"; }
bool action_is_receive(enum action_kind kind) { return kind == RECEIVE_ACTIVATION || kind == RECEIVE_GRADIENT; }

/* The nearest computation from action i on, in one direction; -1: there is none. */
static int computation_from(const struct schedule *schedule, int device, int i, int step)
{
    while (i >= 0 && i < schedule->count[device] && action_is_message(schedule->actions[device][i].kind)) i += step;
    return i < schedule->count[device] ? i : -1;
}

bool schedule_is_beside(const struct schedule *schedule, int device, int i)
{
    /* Most schedules have no passes side by side and need no search. */
    if (!schedule->pairs) return false;
    const struct action *list = schedule->actions[device], a = list[i];
    /* A receive belongs to the computation after it, a send to the one before it. */
    const int at = computation_from(schedule, device, i, action_is_receive(a.kind) ? 1 : -1);
    /* A computation answers for itself.  A message belongs to `beside` only if the message is of that very pass. */
    if (at < 0 || !list[at].beside || at == i) return at == i && list[i].beside;
    const bool gradient = a.kind == SEND_GRADIENT || a.kind == RECEIVE_GRADIENT;
    return list[at].micro == a.micro && list[at].chunk == a.chunk && (list[at].kind == FORWARD) != gradient;
}

bool schedule_has_beside(const struct schedule *schedule, int device, int i)
{
    if (!schedule->pairs || action_is_message(schedule->actions[device][i].kind)) return false;
    /* Messages between the two passes belong to the second pass, so the search passes over messages. */
    const int next = computation_from(schedule, device, i + 1, 1);
    return next >= 0 && schedule->actions[device][next].beside;
}

int posting_next(struct posting *posting, const struct schedule *schedule, int device, int i)
{
    for (; posting->at < schedule->count[device]; posting->at++) {
        if (!action_is_receive(schedule->actions[device][posting->at].kind)) continue;
        /* A receive of a later action is posted early while fewer than receives_ahead are open. */
        if (posting->at > i && posting->open >= schedule->receives_ahead) return -1;
        posting->open++;
        return posting->at++;
    }
    return -1;
}

/* The kinds of messages are the last in the list of actions. */
bool action_is_message(enum action_kind kind) { return kind >= SEND_ACTIVATION && kind < ACTION_KINDS; }

struct action_text action_describe(struct action action)
{
    struct action_text out;
    snprintf(out.text, sizeof out.text, "%s%d of chunk %d", action_letter(action.kind), action.micro, action.chunk);
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

/* The 8 actions for each microbatch and chunk are F, I, W, U and four messages. */
size_t most_actions(const struct schedule *schedule) { return 8 * (size_t)schedule->micros * (size_t)schedule->chunks; }

enum error_code schedule_begin(struct schedule *schedule, const char *name, int devices, int micros, int chunks,
                               struct error *err)
{
    memset(schedule, 0, sizeof *schedule);
    if (devices < 1 || devices > SCHEDULE_MOST_DEVICES || chunks < 1 || chunks > SCHEDULE_MOST_CHUNKS || micros < 1 ||
        (int64_t)devices * chunks * micros > SCHEDULE_MOST_CELLS)
        return fail(err, ERR_PLAN,
                    "schedule %s: devices=%d (1..%d), micros=%d, chunks=%d (1..%d) and their product (1..%d) "
                    "must be in range",
                    name, devices, SCHEDULE_MOST_DEVICES, micros, chunks, SCHEDULE_MOST_CHUNKS, SCHEDULE_MOST_CELLS);
    snprintf(schedule->name, sizeof schedule->name, "%s", name);
    schedule->devices = devices;
    schedule->micros = micros;
    schedule->chunks = chunks;
    /* A bidirectional placement lowers the number of stages later, because two devices hold each stage. */
    schedule->stages = devices * chunks;
    /* A schedule has one version of the weights and one update after the list, unless its generator changes these
     * fields. */
    schedule->weight_versions = 1;
    schedule->update_every = micros;
    schedule->stage_of = int_rows(devices, (size_t)chunks);
    schedule->actions = action_rows(devices, most_actions(schedule));
    schedule->count = calloc((size_t)devices, sizeof *schedule->count);
    schedule->route_of = calloc((size_t)micros, sizeof *schedule->route_of);
    if (schedule->stage_of == NULL || schedule->actions == NULL || schedule->count == NULL
        || schedule->route_of == NULL) {
        schedule_free(schedule);
        return fail(err, ERR_MEMORY, "schedule %s: no memory for %d devices, %d microbatches", name, devices, micros);
    }
    /* Every chunk is unused (-1) until the generator places a stage there. */
    for (int d = 0; d < devices; d++)
        for (int c = 0; c < chunks; c++) schedule->stage_of[d][c] = -1;
    return OK;
}

/* schedule_free accepts a schedule that schedule_begin has filled only in part.  All tables are NULL afterwards. */
void schedule_free(struct schedule *schedule)
{
    if (schedule->stage_of != NULL) free(schedule->stage_of[0]);
    if (schedule->route != NULL) free(schedule->route[0]);
    if (schedule->actions != NULL) free(schedule->actions[0]);
    free(schedule->stage_of);
    free(schedule->route);
    free(schedule->actions);
    free(schedule->count);
    free(schedule->route_of);
    memset(schedule, 0, sizeof *schedule);
}

void schedule_put(struct schedule *schedule, int device, enum action_kind kind, int micro, int chunk)
{
    /* Generators may count past the last microbatch. */
    if (micro >= schedule->micros) return;
    assert(!action_is_message(kind) && micro >= 0 && chunk >= 0 && chunk < schedule->chunks);
    assert((size_t)schedule->count[device] < most_actions(schedule));
    schedule->actions[device][schedule->count[device]++] = (struct action){ kind, micro, chunk, -1, false };
}

/* ---- placement --------------------------------------------------------------------------------------------------- */

void place_looped(struct schedule *schedule)
{
    for (int d = 0; d < schedule->devices; d++)
        for (int c = 0; c < schedule->chunks; c++) schedule->stage_of[d][c] = c * schedule->devices + d;
}

void place_v(struct schedule *schedule)
{
    /* The first chunks go down the devices, the second ones come back up. */
    for (int d = 0; d < schedule->devices; d++) {
        schedule->stage_of[d][0] = d;
        schedule->stage_of[d][1] = 2 * schedule->devices - 1 - d;
    }
}

enum error_code place_bidirectional(struct schedule *schedule, struct error *err)
{
    const int P = schedule->devices;
    /* Both directions pass the same P stages, so the pipeline has P stages and not 2 P. */
    schedule->stages = P;
    if (routes_begin(schedule, 2, err) != OK) return ERR_MEMORY;
    for (int d = 0; d < P; d++) {
        schedule->stage_of[d][0] = d;
        schedule->stage_of[d][1] = P - 1 - d;
        schedule->route[0][d] = (struct place){ d, 0 };
        schedule->route[1][P - 1 - d] = (struct place){ d, 1 };
    }
    /* Even microbatches go down the devices (route 0), odd microbatches go up (route 1). */
    for (int m = 0; m < schedule->micros; m++) schedule->route_of[m] = m % 2;
    return OK;
}

enum error_code routes_begin(struct schedule *schedule, int routes, struct error *err)
{
    schedule->route = place_rows(routes, (size_t)schedule->stages);
    if (schedule->route == NULL)
        return fail(err, ERR_MEMORY, "schedule %s: no memory for %d routes", schedule->name, routes);
    schedule->routes = routes;
    for (int r = 0; r < routes; r++)
        for (int t = 0; t < schedule->stages; t++) schedule->route[r][t] = (struct place){ -1, -1 };
    return OK;
}

enum error_code only_route(struct schedule *schedule, struct error *err)
{
    if (routes_begin(schedule, 1, err) != OK) return ERR_MEMORY;
    for (int d = 0; d < schedule->devices; d++)
        for (int c = 0; c < schedule->chunks; c++) {
            const int stage = schedule->stage_of[d][c];
            /* Where a file without routes puts a stage on two devices, the last place gets all microbatches. */
            if (stage >= 0) schedule->route[0][stage] = (struct place){ d, c };
        }
    return OK;
}

struct place place_of(const struct schedule *schedule, int micro, int stage)
{
    /* Before the first stage and after the last stage there is no place. */
    if (stage < 0 || stage >= schedule->stages) return (struct place){ -1, -1 };
    return schedule->route[schedule->route_of[micro]][stage];
}

struct place place_before(const struct schedule *schedule, int micro, int stage)
{
    struct place p = { -1, -1 };
    /* Stages that the microbatch skips have device -1, so the search goes on to the nearest stage on its route. */
    while (--stage >= 0 && p.device < 0) p = place_of(schedule, micro, stage);
    return p;
}

struct place place_after(const struct schedule *schedule, int micro, int stage)
{
    struct place p = { -1, -1 };
    while (++stage < schedule->stages && p.device < 0) p = place_of(schedule, micro, stage);
    return p;
}

int schedule_holders(const struct schedule *schedule, int stage, struct place *holder, int most)
{
    int n = 0;
    for (int d = 0; d < schedule->devices; d++)
        for (int c = 0; c < schedule->chunks; c++)
            if (schedule->stage_of[d][c] == stage) {
                /* The count goes on when holder is full, so the caller sees how many copies exist. */
                if (n < most) holder[n] = (struct place){ d, c };
                n++;
            }
    return n;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

struct list { struct action *at; int n; };       /* at == NULL: only count */

/* A first run without memory counts the actions; a second run with memory writes the list. */
static void schedule_append(struct list *list, struct action action)
{
    if (list->at != NULL) list->at[list->n] = action;
    list->n++;
}

/* A neighbour on this device needs no message, and -1 is no neighbour. */
static void append_message(struct list *list, enum action_kind kind, struct action action,
                           struct place peer, int device)
{
    if (peer.device >= 0 && peer.device != device)
        schedule_append(list, (struct action){ kind, action.micro, action.chunk, peer.device, false });
}

/* with_messages lists one device's computations, each with its receive right before and its send right after.  With
 * at == NULL the actions are only counted. */
static struct list with_messages(const struct schedule *schedule, int device, struct action *at)
{
    struct list list = { at, 0 };
    for (int i = 0; i < schedule->count[device]; i++) {
        const struct action a = schedule->actions[device][i];
        const int stage = schedule_stage(schedule, device, a);
        const struct place before = place_before(schedule, a.micro, stage),
            after = place_after(schedule, a.micro, stage);
        const bool forward = a.kind == FORWARD, backward = a.kind == BACKWARD || a.kind == BACKWARD_INPUT;
        if (forward) append_message(&list, RECEIVE_ACTIVATION, a, before, device);
        if (backward) append_message(&list, RECEIVE_GRADIENT, a, after, device);
        schedule_append(&list, a);
        if (forward) append_message(&list, SEND_ACTIVATION, a, after, device);
        if (backward) append_message(&list, SEND_GRADIENT, a, before, device);
    }
    return list;
}

/* insert_messages replaces every list by a longer list with sends and receives.  After an error the old lists
 * remain. */
static enum error_code insert_messages(struct schedule *schedule, struct error *err)
{
    int longest = 0;
    for (int d = 0; d < schedule->devices; d++) {
        const int n = with_messages(schedule, d, NULL).n;
        if (n > longest) longest = n;
    }
    /* All rows have the length of the longest list. */
    struct action **full = action_rows(schedule->devices, (size_t)longest + 1);
    if (full == NULL) return fail(err, ERR_MEMORY, "schedule %s: no memory for its messages", schedule->name);
    for (int d = 0; d < schedule->devices; d++) schedule->count[d] = with_messages(schedule, d, full[d]).n;
    free(schedule->actions[0]);
    free(schedule->actions);
    schedule->actions = full;
    return OK;
}

/* Routes come first, because a message goes to the next place on the microbatch's route. */
enum error_code schedule_finish(struct schedule *schedule, struct error *err)
{
    enum error_code code = schedule->route == NULL ? only_route(schedule, err) : OK;
    if (code == OK) code = insert_messages(schedule, err);
    if (code != OK) schedule_free(schedule);
    return code;
}

/* ---- queries ----------------------------------------------------------------------------------------------------- */

int schedule_peak(const struct schedule *schedule,
                  int device) { return (int)schedule_peak_memory(schedule, device, 1, 1); }

int64_t schedule_peak_memory(const struct schedule *schedule, int device, int64_t activation, int64_t kept_for_weight)
{
    int64_t held = 0, peak = 0;
    for (int i = 0; i < schedule->count[device]; i++) {
        /* A whole backward frees all that its forward kept.  I and W free one part each: together the same bytes. */
        switch (schedule->actions[device][i].kind) {
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

/* Every message has one send, so counting sends counts messages. */
int64_t schedule_messages(const struct schedule *schedule)
{
    int64_t n = 0;
    for (int d = 0; d < schedule->devices; d++)
        for (int i = 0; i < schedule->count[d]; i++)
            n += schedule->actions[d][i].kind == SEND_ACTIVATION || schedule->actions[d][i].kind == SEND_GRADIENT;
    return n;
}

bool schedule_adds_in_order(const struct schedule *schedule)
{
    for (int d = 0; d < schedule->devices; d++)
        for (int c = 0; c < schedule->chunks; c++) {
            int last = -1;
            for (int i = 0; i < schedule->count[d]; i++) {
                const struct action a = schedule->actions[d][i];
                /* Only B and W add to weight gradients; sums of floating-point numbers depend on this order. */
                if (a.chunk != c || (a.kind != BACKWARD && a.kind != BACKWARD_WEIGHT)) continue;
                if (a.micro < last) return false;
                last = a.micro;
            }
        }
    return true;
}

/* A microbatch is partial if its route has no place for some stage. */
bool schedule_is_partial(const struct schedule *schedule)
{
    for (int m = 0; m < schedule->micros; m++)
        for (int stage = 0; stage < schedule->stages; stage++)
            if (place_of(schedule, m, stage).device < 0) return true;
    return false;
}
