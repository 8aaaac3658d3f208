/* actors.c -- runs actors by events: a piece is made, a register is ready, a register is read.  cli/show/actors.c
 * calls these functions.  Errors: ERR_USAGE for words that are no actors, ERR_MEMORY, ERR_PLAN if nothing can act. */
#include "emulated_devices/schemes/sbp/actors.h"
#include "ref/io/output.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- words ------------------------------------------------------------------------------------------------------- */

static enum error_code fail_word(struct error *err, const char *word, const char *what)
{
    return fail(err, ERR_USAGE, "actor %s: %s", printable(word).text, what);
}

static int actors_named(const struct actors *actors, const char *name)
{
    for (int i = 0; i < actors->count; i++)
        if (strcmp(actors->actor[i].name, name) == 0) return i;
    return -1;
}

/* "load+decode" */
static enum error_code take_producers(const struct actors *actors, struct actor *actor, char *list, const char *word,
                                      struct error *err)
{
    char *rest = NULL;
    for (char *name = strtok_r(list, "+", &rest); name; name = strtok_r(NULL, "+", &rest)) {
        const int producer = actors_named(actors, name);
        if (producer < 0) return fail_word(err, word, "a producer stands before its consumers");
        if (actor->producers == ACTOR_PRODUCERS) return fail_word(err, word, "reads too many others");
        for (int i = 0; i < actor->producers; i++)
            if (actor->producer[i] == producer) return fail_word(err, word, "reads another one twice");
        actor->producer[actor->producers++] = producer;
    }
    return OK;
}

/* A whole number from least to most, which ends where the text ends. */
static bool actors_take_number(const char *text, int64_t least, int64_t most, int64_t *number)
{
    char *end;
    *number = strtoll(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0' && *number >= least && *number <= most;
}

static enum error_code take_actor(struct actors *actors, const char *word, int registers, struct error *err)
{
    static const int64_t LONGEST = 1000000000;          /* so that sums of all pieces fit */
    struct actor *const actor = &actors->actor[actors->count];
    char text[200];
    int64_t takes, own = registers;
    if (actors->count == ACTORS_MOST || strlen(word) >= sizeof text) return fail_word(err, word, "is one too many");
    snprintf(text, sizeof text, "%s", word);
    char *const producers = strchr(text, '<');
    if (producers) *producers = '\0';
    char *const time = strchr(text, ':'), *const more = time ? strchr(time + 1, ':') : NULL;
    if (time) *time = '\0';
    if (more) *more = '\0';
    if (!time || text[0] == '\0' || strlen(text) >= sizeof actor->name || actors_named(actors, text) >= 0)
        return fail_word(err, word, "must be NAME:TIME[:REGISTERS][<PRODUCERS], each name once");
    if (!actors_take_number(time + 1, 0, LONGEST, &takes))
        return fail_word(err, word, "the time is no number up to 10^9");
    if (more && !actors_take_number(more + 1, 0, ACTOR_REGISTERS, &own))
        return fail_word(err, word, "the registers are no number up to 4096");
    *actor = (struct actor){ .takes = takes, .registers = (int)own };
    snprintf(actor->name, sizeof actor->name, "%s", text);
    if (producers) {
        const enum error_code e = take_producers(actors, actor, producers + 1, word, err);
        if (e) return e;
    } else if (actors->count > 0) {
        actor->producer[actor->producers++] = actors->count - 1;
    }
    actors->count++;
    return OK;
}

enum error_code actors_read(struct actors *actors, const char *words, int registers, struct error *err)
{
    enum error_code e = OK;
    actors->count = 0;
    for (const char *at = words; !e; at++) {
        const size_t length = strcspn(at, ",");
        char word[256];
        if (length >= sizeof word) return fail_word(err, words, "is too long");
        memcpy(word, at, length), word[length] = '\0';
        e = take_actor(actors, word, registers, err);
        at += length;
        if (*at == '\0') break;
    }
    return e;
}

/* ---- what an actor computes -------------------------------------------------------------------------------------- */

/* A number that depends on the actor, the piece and every register that is read: of another piece it is another one. */
static uint64_t piece_begun(int actor, int64_t piece) { return (uint64_t)piece * 1000003 + (uint64_t)actor; }
static uint64_t piece_with(uint64_t value, uint64_t read) { return (value ^ read) * UINT64_C(0x9E3779B97F4A7C15); }

uint64_t actors_serial(const struct actors *actors, int actor, int64_t piece)
{
    uint64_t made[ACTORS_MOST];
    for (int a = 0; a <= actor; a++) {
        made[a] = piece_begun(a, piece);
        for (int i = 0; i < actors->actor[a].producers; i++)
            made[a] = piece_with(made[a], made[actors->actor[a].producer[i]]);
    }
    return made[actor];
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

enum kind { MADE, READY, READ };

/* to: the actor that it happens to.  from: the actor whose register it is. */
struct event { picoseconds at; int64_t order; enum kind kind; int to, from, slot; };

/* The state of an actor, while it runs. */
struct acting {
    int64_t begun;                      /* pieces begun */
    bool busy;
    int slot, slots;                    /* register that the current piece is written to; of all */
    int *readers;                       /* [slots] consumers that have not read it yet; 0: free */
    uint64_t *value;                    /* [slots] */
    int in_use;
    int64_t arrived[ACTOR_PRODUCERS];   /* registers of each producer that have become ready */
    int *queue[ACTOR_PRODUCERS];        /* [pieces] their slots, in order */
};

struct running {
    const struct actors *actors;
    struct actors_run *run;
    struct acting acting[ACTORS_MOST];
    struct event *heap;                 /* the earliest first; of the same time the one that was entered first */
    int events, room;
    int64_t order;
};

static bool event_before(const struct event *a, const struct event *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void heap_swap(struct running *running, int a, int b)
{
    const struct event event = running->heap[a];
    running->heap[a] = running->heap[b], running->heap[b] = event;
}

static enum error_code event_add(struct running *running, struct event event, struct error *err)
{
    if (running->events == running->room) {
        const int room = 2 * running->room + 64;
        struct event *const more = realloc(running->heap, (size_t)room * sizeof *more);
        if (more == NULL) return fail(err, ERR_MEMORY, "no memory for %d events of actors", room);
        running->heap = more, running->room = room;
    }
    event.order = running->order++;
    int i = running->events++;
    running->heap[i] = event;
    for (; i > 0 && event_before(&running->heap[i], &running->heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap_swap(running, i, (i - 1) / 2);
    return OK;
}

static struct event event_take(struct running *running)
{
    const struct event first = running->heap[0];
    running->heap[0] = running->heap[--running->events];
    for (int i = 0;;) {
        int least = i;
        for (int child = 2 * i + 1; child <= 2 * i + 2 && child < running->events; child++)
            if (event_before(&running->heap[child], &running->heap[least])) least = child;
        if (least == i) return first;
        heap_swap(running, i, least), i = least;
    }
}

static int consumers_of(const struct actors *actors, int actor)
{
    int consumers = 0;
    for (int a = actor + 1; a < actors->count; a++)
        for (int i = 0; i < actors->actor[a].producers; i++) consumers += actors->actor[a].producer[i] == actor;
    return consumers;
}

static int free_slot(const struct acting *acting)
{
    for (int s = 0; s < acting->slots; s++)
        if (acting->readers[s] == 0) return s;
    return -1;
}

/* Begin a piece, if all that the actor needs is there. */
static enum error_code actor_try(struct running *running, int a, picoseconds now, struct error *err)
{
    struct acting *const acting = &running->acting[a];
    const struct actor *const actor = &running->actors->actor[a];
    if (acting->busy || acting->begun == running->actors->pieces) return OK;
    for (int i = 0; i < actor->producers; i++)
        if (acting->arrived[i] <= acting->begun) return OK;
    acting->slot = free_slot(acting);
    if (acting->slot < 0) return OK;                    /* back pressure */
    acting->busy = true, acting->begun++, acting->in_use++;
    acting->readers[acting->slot] = 1;                  /* the actor itself, until the piece is made */
    int *const held = &running->run->held[a];
    if (acting->in_use > *held) *held = acting->in_use;
    return event_add(running, (struct event){ .at = now + actor->takes, .kind = MADE, .to = a }, err);
}

static void slot_read(struct acting *acting, int slot)
{
    if (--acting->readers[slot] == 0) acting->in_use--;
}

/* The piece is written from what the producers' registers have now; then messages go to both sides. */
static enum error_code actor_makes(struct running *running, int a, picoseconds now, struct error *err)
{
    const struct actors *const actors = running->actors;
    struct acting *const acting = &running->acting[a];
    const int64_t piece = acting->begun - 1;
    const picoseconds then = now + actors->latency;
    uint64_t value = piece_begun(a, piece);
    enum error_code e = OK;
    for (int i = 0; i < actors->actor[a].producers && !e; i++) {
        const int from = actors->actor[a].producer[i], slot = acting->queue[i][piece];
        value = piece_with(value, running->acting[from].value[slot]);
        e = event_add(running, (struct event){ .at = then, .kind = READ, .to = from, .from = from, .slot = slot }, err);
        running->run->messages++;
    }
    acting->value[acting->slot] = value;
    running->run->made[a * actors->pieces + piece] = value;
    running->run->end[a * actors->pieces + piece] = now;
    if (now > running->run->last) running->run->last = now;
    acting->readers[acting->slot] += consumers_of(actors, a);
    for (int c = a + 1; c < actors->count && !e; c++)
        for (int i = 0; i < actors->actor[c].producers && !e; i++)
            if (actors->actor[c].producer[i] == a) {
                e = event_add(running, (struct event){ .at = then, .kind = READY, .to = c, .from = i,
                                                       .slot = acting->slot }, err);
                running->run->messages++;
            }
    slot_read(acting, acting->slot), acting->busy = false;
    return e ? e : actor_try(running, a, now, err);
}

static enum error_code event_happens(struct running *running, struct event event, struct error *err)
{
    struct acting *const acting = &running->acting[event.to];
    if (event.kind == MADE) return actor_makes(running, event.to, event.at, err);
    if (event.kind == READ) slot_read(acting, event.slot);
    else acting->queue[event.from][acting->arrived[event.from]++] = event.slot;
    return actor_try(running, event.to, event.at, err);
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

static bool acting_open(struct acting *acting, const struct actor *actor, int64_t pieces)
{
    acting->slots = actor->registers > 0 ? actor->registers : (int)pieces;
    acting->readers = calloc((size_t)acting->slots, sizeof *acting->readers);
    acting->value = calloc((size_t)acting->slots, sizeof *acting->value);
    bool ok = acting->readers && acting->value;
    for (int i = 0; i < actor->producers && ok; i++) {
        acting->queue[i] = calloc((size_t)pieces, sizeof *acting->queue[i]);
        ok = acting->queue[i] != NULL;
    }
    return ok;
}

static void running_close(struct running *running)
{
    for (int a = 0; a < running->actors->count; a++) {
        free(running->acting[a].readers), free(running->acting[a].value);
        for (int i = 0; i < ACTOR_PRODUCERS; i++) free(running->acting[a].queue[i]);
    }
    free(running->heap);
}

static enum error_code all_made(const struct running *running, struct error *err)
{
    for (int a = 0; a < running->actors->count; a++)
        if (running->acting[a].begun < running->actors->pieces)
            return fail(err, ERR_PLAN, "actor %s waits for ever after %lld pieces", running->actors->actor[a].name,
                        (long long)running->acting[a].begun);
    return OK;
}

enum error_code actors_run(const struct actors *actors, struct actors_run *run, struct error *err)
{
    struct running running = { .actors = actors, .run = run };
    const size_t all = (size_t)(actors->count * actors->pieces);
    *run = (struct actors_run){ .end = calloc(all, sizeof *run->end), .made = calloc(all, sizeof *run->made) };
    bool ok = run->end && run->made;
    for (int a = 0; a < actors->count && ok; a++)
        ok = acting_open(&running.acting[a], &actors->actor[a], actors->pieces);
    enum error_code e = ok ? OK : fail(err, ERR_MEMORY, "no memory for %d actors", actors->count);
    for (int a = 0; a < actors->count && !e; a++) e = actor_try(&running, a, 0, err);
    while (running.events > 0 && !e) e = event_happens(&running, event_take(&running), err);
    if (!e) e = all_made(&running, err);
    running_close(&running);
    if (e) actors_free(run);
    return e;
}

void actors_free(struct actors_run *run)
{
    free(run->end), free(run->made);
    *run = (struct actors_run){ 0 };
}

double actors_period(const struct actors *actors, const struct actors_run *run, int64_t over)
{
    const picoseconds *const end = run->end + (actors->count - 1) * actors->pieces;
    return (double)(end[actors->pieces - 1] - end[actors->pieces - 1 - over]) / (double)over;
}

double actors_chain_period(const struct actors *actors)
{
    double period = 0;
    for (int a = 0; a < actors->count; a++) {
        const struct actor *const actor = &actors->actor[a];
        if (actor->producers != (a > 0) || (a > 0 && actor->producer[0] != a - 1)) return NAN;
        period = fmax(period, (double)actor->takes);
        if (a == 0 || actors->actor[a - 1].registers == 0) continue;
        period = fmax(period, (double)(actors->actor[a - 1].takes + actor->takes + 2 * actors->latency) /
                                  actors->actor[a - 1].registers);
    }
    return period;
}
