#include "emulated_devices/search/search.h"
#include "emulated_devices/device/contention.h"
#include "emulated_devices/model/dry_run/dry_run.h"
#include "emulated_devices/model/dry_run/plan_memory.h"
#include <stdlib.h>
#include <string.h>

void search_close(struct search *s)
{
    free(s->of), free(s->slot);
    estimator_close(&s->estimator);
    *s = (struct search){ .space = s->space };
}

/* ---- which choices were added ------------------------------------------------------------------------------------ */

static uint64_t hash(const struct choice *c)
{
    uint64_t h = 1469598103934665603u;
    for (int d = 0; d < DIMENSION_COUNT; d++) h = (h ^ (uint64_t)(uint32_t)c->value[d]) * 1099511628211u;
    return h ^ h >> 32;
}

static int *slot_of(const struct search *s, const struct choice *c)
{
    /* A slot has a candidate's place plus one; 0 means that it is empty. */
    uint64_t at = hash(c) % (uint64_t)s->slots;
    while (s->slot[at] && memcmp(&s->of[s->slot[at] - 1].choice, c, sizeof *c) != 0)
        at = (at + 1) % (uint64_t)s->slots;
    return &s->slot[at];
}

int search_find(const struct search *s, const struct choice *c) { return s->slots > 0 ? *slot_of(s, c) - 1 : -1; }

/* Twice as many slots as there can be candidates. */
static bool grow(struct search *s)
{
    const int room = 2 * s->room + 256;
    struct candidate *more = realloc(s->of, (size_t)room * sizeof *more);
    int *slots = calloc((size_t)room * 2, sizeof *slots);
    if (more) s->of = more;
    if (more == NULL || slots == NULL) return free(slots), false;
    free(s->slot);
    s->slot = slots, s->slots = 2 * room, s->room = room;
    for (int i = 0; i < s->count; i++) *slot_of(s, &s->of[i].choice) = i + 1;
    return true;
}

/* ---- looking at a plan ------------------------------------------------------------------------------------------- */

enum error_code search_bound(const struct plan *p, uint64_t *least, struct error *err)
{
    /* The bound looks at the first and the last device along pp, which have the embedding and the loss. */
    const int last = mesh_neighbour(&p->mesh, 0, PP, p->mesh.size[PP] - 1);
    struct plan_memory first_place, last_place;
    enum error_code e = plan_memory(p, 0, 1, &first_place, err);
    last_place = first_place;
    if (!e && last != 0) e = plan_memory(p, last, 1, &last_place, err);
    if (e) return e;
    *least = first_place.peak.total > last_place.peak.total ? first_place.peak.total : last_place.peak.total;
    return OK;
}

enum error_code search_add(struct search *s, const struct plan *p, const struct choice *c, bool estimates, int *place,
                           struct error *err)
{
    struct candidate new = { .choice = *c, .unusual = plan_space_unusual(s->space->base, p) };
    if (s->count == s->room && !grow(s)) return fail(err, ERR_MEMORY, "no memory for %d plans", s->count + 1);
    if (estimates && estimate_step(&s->estimator, p, &new.estimate, err) == ERR_MEMORY) return ERR_MEMORY;
    if (place) *place = s->count;
    s->of[s->count++] = new;
    *slot_of(s, c) = s->count;
    return OK;
}

enum error_code search_lacks(struct search *s, int place, uint64_t *lacks, struct error *err)
{
    struct candidate *c = &s->of[place];
    struct plan p;
    enum error_code e = OK;
    if (c->least == 0 && plan_space_make(s->space, &c->choice, &p)) {
        e = search_bound(&p, &c->least, err);
        s->bounded++, s->over += s->memory > 0 && c->least > s->memory;
    }
    *lacks = s->memory > 0 && c->least > s->memory ? c->least - s->memory : 0;
    return e;
}

/* ---- planning ---------------------------------------------------------------------------------------------------- */

struct planned { picoseconds time; uint64_t peak, sent; };       /* sent: by the devices that ran */

static enum error_code note(struct trainer *t, void *context, struct error *err)
{
    struct planned *n = context;
    (void)err;
    if (t->device->clock.now > n->time) n->time = t->device->clock.now;
    if (t->device->arena.peak.total > n->peak) n->peak = t->device->arena.peak.total;
    for (enum traffic_kind k = 0; k < TRAFFIC_KIND_COUNT; k++)
        n->sent += ledger_kind(&t->comm->counted, k).bytes_sent;
    return OK;
}

static void add_share(struct step_share *sum, const struct step_share *s, int of)
{
    sum->computing += s->computing / of, sum->engines += s->engines / of, sum->ended += s->ended / of;
    for (int k = 0; k < TRAFFIC_KIND_COUNT; k++) sum->waiting[k] += s->waiting[k] / of;
}

/* The mean of the devices that ran: each of them stands for as many. */
static struct step_share mean_share(const struct folding *f, const struct events *list, struct events **events)
{
    struct step_share sum = { 0 };
    const picoseconds end = step_end(f, events);
    for (int d = 0; d < f->mesh.devices && end > 0; d++) {
        if (folding_stands_for(f, d) != d) continue;
        const struct step_share one = step_share(&list[d], end);
        add_share(&sum, &one, folding_lives(f));
    }
    return sum;
}

static enum error_code replay(const struct plan *p, struct events **events, picoseconds *time, struct error *err)
{
    const int P = p->mesh.devices;
    picoseconds *end = calloc((size_t)P, sizeof *end);
    const enum error_code e = end ? contention_replay(p->cluster, events, P, end, err)
                                  : fail(err, ERR_MEMORY, "no memory to replay %d devices", P);
    *time = 0;
    for (int d = 0; d < P && !e; d++) *time = end[d] > *time ? end[d] : *time;
    free(end);
    return e;
}

/* A step on the plan's cluster; a replay needs all events of all devices. */
static enum error_code run_step(const struct plan *p, int64_t most_events, struct candidate *c, struct error *err)
{
    const size_t n = (size_t)p->mesh.devices;
    const bool replays = cluster_replays(p->cluster);
    struct events *list = calloc(n, sizeof *list), **events = calloc(n, sizeof *events);
    struct planned noted = { 0 };
    struct dry_run d;
    int64_t left = most_events > 0 ? most_events : STEP_MOST_EVENTS;
    enum error_code e = list && events ? OK : fail(err, ERR_MEMORY, "no memory for the events of %zu devices", n);
    for (size_t i = 0; i < n && !e; i++) events[i] = &list[i], list[i].left = replays ? NULL : &left;
    if (!e) e = dry_run(p, 1, false, events, NULL, note, &noted, &d, err);
    if (!e && replays) e = replay(p, events, &noted.time, err);
    if (!e) {
        c->time = noted.time, c->peak = noted.peak;
        c->sent = noted.sent * (n / (size_t)folding_lives(&d.folding));
        c->share = mean_share(&d.folding, list, events);
        c->share_known = step_end(&d.folding, events) >= 0;
    }
    for (size_t i = 0; i < n && list; i++) events_free(&list[i]);
    free(list), free(events);
    return e;
}

static enum error_code plan_by_clocks(const struct plan *p, int64_t most_events, struct candidate *c,
                                      struct error *err)
{
    const struct cluster alone = cluster_without_replay(p->cluster);
    struct plan q = *p;
    q.cluster = &alone;
    return run_step(&q, most_events, c, err);
}

enum error_code search_plan(const struct plan *p, struct candidate *c, struct error *err)
{
    return plan_by_clocks(p, 0, c, err);
}

/* ---- ranking ----------------------------------------------------------------------------------------------------- */

static int in_order(const struct choice *a, const struct choice *b)
{
    for (int d = 0; d < DIMENSION_COUNT; d++)
        if (a->value[d] != b->value[d]) return a->value[d] < b->value[d] ? -1 : 1;
    return 0;
}

/* Those without an estimate first: nothing is known of them. */
static int most_promising(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->estimate != y->estimate) return x->estimate < y->estimate ? -1 : 1;
    return in_order(&x->choice, &y->choice);
}

static bool fits(const struct candidate *c, uint64_t memory) { return memory == 0 || c->peak <= memory; }

static const uint64_t *memory_to_rank;          /* qsort has no context; one search at a time */

static int fastest(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    const bool first = x->time > 0 && fits(x, *memory_to_rank), second = y->time > 0 && fits(y, *memory_to_rank);
    if (first != second) return first ? -1 : 1;
    if ((x->clocks > 0) != (y->clocks > 0)) return x->clocks > 0 ? -1 : 1;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    if (x->peak != y->peak) return x->peak < y->peak ? -1 : 1;
    if (x->sent != y->sent) return x->sent < y->sent ? -1 : 1;
    if (x->unusual != y->unusual) return x->unusual < y->unusual ? -1 : 1;
    return in_order(&x->choice, &y->choice);
}

static void sort(struct search *s, int (*order)(const void *, const void *))
{
    memory_to_rank = &s->memory;
    qsort(s->of, (size_t)s->count, sizeof *s->of, order);
    memset(s->slot, 0, (size_t)s->slots * sizeof *s->slot);
    for (int i = 0; i < s->count; i++) *slot_of(s, &s->of[i].choice) = i + 1;
}

enum error_code search_rank(struct search *s, int *ranked, struct error *err)
{
    enum error_code e = OK;
    *ranked = 0;
    if (s->count == 0) return OK;
    sort(s, most_promising);
    for (int i = 0; i < s->count && !e && (s->most == 0 || s->planned < s->most); i++) {
        struct plan p;
        uint64_t lacks;
        e = search_lacks(s, i, &lacks, err);
        /* A candidate that lacks memory even by the lower bound is not planned, unless all are asked for. */
        if (e || (lacks > 0 && !s->plans_all)) continue;
        if (s->of[i].time > 0 || !plan_space_make(s->space, &s->of[i].choice, &p)) continue;
        e = plan_by_clocks(&p, s->most_events, &s->of[i], err);
        s->planned++;
        if (s->seen) s->seen(s->seen_context, s->planned, s->most > 0 && s->most < s->count ? s->most : s->count);
    }
    sort(s, fastest);
    while (*ranked < s->count && s->of[*ranked].time > 0 && fits(&s->of[*ranked], s->memory)) ++*ranked;
    return e;
}

int search_frontier(const struct candidate *c, int ranked, int place[])
{
    uint64_t least = UINT64_MAX;
    int n = 0;
    for (int i = 0; i < ranked; i++)
        /* Candidates come by time, so one is on the frontier if its peak is below all earlier peaks. */
        if (c[i].peak < least) least = c[i].peak, place[n++] = i;
    return n;
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

static bool same_mesh(const struct candidate *a, const struct candidate *b)
{
    return a->choice.value[BY_MESH] == b->choice.value[BY_MESH];
}

bool search_equal(const struct candidate *a, const struct candidate *b)
{
    return same_mesh(a, b) && a->time == b->time && a->peak == b->peak && a->sent == b->sent;
}

static bool gains_nothing(const struct candidate *c, const struct candidate *first)
{
    return same_mesh(c, first) && (double)c->time < (1 + SEARCH_NEAR) * (double)first->time &&
           (double)c->peak > (1 - SEARCH_NEAR) * (double)first->peak;
}

int search_group(const struct candidate *c, int ranked, int first[])
{
    int groups = 0;
    for (int i = 0; i < ranked; i++) {
        first[i] = 0;
        while (first[i] < i && (first[first[i]] != first[i] || !gains_nothing(&c[i], &c[first[i]]))) first[i]++;
        groups += first[i] == i;
    }
    return groups;
}

/* ---- finalists --------------------------------------------------------------------------------------------------- */

static enum error_code replay_one(struct search *s, int place, int *replayed, struct error *err)
{
    struct candidate *c = &s->of[place];
    struct plan p;
    const picoseconds clocks = c->time;
    if (c->clocks > 0 || !plan_space_make(s->space, &c->choice, &p)) return OK;
    const enum error_code e = run_step(&p, s->most_events, c, err);
    c->clocks = clocks, ++*replayed;
    return e;
}

/* How many groups those of the first n are that have been replayed and take no longer than `time`.
 * done, first: [n], to work with. */
static int groups_within(const struct search *s, int n, picoseconds time, struct candidate *done, int *first)
{
    int count = 0;
    for (int i = 0; i < n; i++)
        if (s->of[i].clocks > 0 && s->of[i].time <= time) done[count++] = s->of[i];
    memory_to_rank = &s->memory;
    qsort(done, (size_t)count, sizeof *done, fastest);
    return search_group(done, count, first);
}

enum error_code search_replay(struct search *s, int best, int most, int *ranked, bool *beaten, struct error *err)
{
    const int n = *ranked;
    int replayed = 0, next = 0;
    enum error_code e = OK;
    *beaten = true;
    if (n == 0 || !cluster_replays(s->space->base->cluster)) return OK;
    int *place = calloc((size_t)n, sizeof *place);
    struct candidate *done = calloc((size_t)n, sizeof *done);
    if (place == NULL || done == NULL) {
        free(place), free(done);
        return fail(err, ERR_MEMORY, "no memory for a list of plans");
    }
    const int frontiers = search_frontier(s->of, n, place);
    for (int i = 0; i < frontiers && replayed < most && !e; i++) e = replay_one(s, place[i], &replayed, err);
    for (; next < n && replayed < most && !e; next++) {
        if (s->of[next].clocks > 0) continue;
        if (groups_within(s, n, s->of[next].time, done, place) >= best) break;
        e = replay_one(s, next, &replayed, err);
    }
    while (next < n && s->of[next].clocks > 0) next++;
    *beaten = next == n || groups_within(s, n, s->of[next].time, done, place) >= best;
    free(place), free(done);
    sort(s, fastest);
    *ranked = replayed;
    return e;
}
