/* search.c -- keeps candidates, plans the most promising, ranks and groups them, and replays the finalists.  The
 * planners add candidates; cli/train/search.c ranks and prints.  Errors are ERR_MEMORY and those of a dry run. */
#include "emulated_devices/plan/plan.h"
#include "emulated_devices/search/search.h"
#include "emulated_devices/device/contention.h"
#include "emulated_devices/train/dry_run/dry_run.h"
#include "emulated_devices/train/dry_run/plan_memory.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

void search_close(struct search *search)
{
    free(search->of), free(search->slot);
    estimator_close(&search->estimator);
    *search = (struct search){ .space = search->space };
}

/* ---- which choices were added ------------------------------------------------------------------------------------ */

/* This hashes a choice's values, for the table of slots. */
static uint64_t hash(const struct choice *choice)
{
    uint64_t h = 1469598103934665603u;
    for (int d = 0; d < DIMENSION_COUNT; d++) h = (h ^ (uint64_t)(uint32_t)choice->value[d]) * 1099511628211u;
    return h ^ h >> 32;
}

/* The result is the slot that has the choice, or the free slot where the choice belongs.  There is always a free
 * slot. */
static int *slot_of(const struct search *search, const struct choice *choice)
{
    /* A slot has a candidate's place plus one; 0 means that it is empty. */
    uint64_t at = hash(choice) % (uint64_t)search->slots;
    while (search->slot[at] && memcmp(&search->of[search->slot[at] - 1].choice, choice, sizeof *choice) != 0)
        at = (at + 1) % (uint64_t)search->slots;
    return &search->slot[at];
}

int search_find(const struct search *search, const struct choice *choice) { return search->slots > 0
                                                                           ? *slot_of(search, choice) - 1 : -1; }

/* Twice as many slots as there can be candidates. */
static bool search_grow(struct search *search)
{
    const int room = 2 * search->room + 256;
    struct candidate *more = realloc(search->of, (size_t)room * sizeof *more);
    int *slots = calloc((size_t)room * 2, sizeof *slots);
    if (more) search->of = more;
    if (more == NULL || slots == NULL) return free(slots), false;
    free(search->slot);
    search->slot = slots, search->slots = 2 * room, search->room = room;
    for (int i = 0; i < search->count; i++) *slot_of(search, &search->of[i].choice) = i + 1;
    return true;
}

/* ---- how far it is ----------------------------------------------------------------------------------------------- */

bool search_ends(struct search *search)
{
    search->ended = search->ended || (search->ends && search->ends(search->context));
    return search->ended;
}

bool search_stops(struct search *search)
{
    const bool stops = search->stop.asked && search->stop.asked(search->stop.context);
    search->ended = search->ended || stops;
    return stops;
}

static void search_tell(const struct search *search, const char *doing, double part)
{
    if (search->tell) search->tell(search->context, doing, part);
}

/* ---- looking at a plan ------------------------------------------------------------------------------------------- */

enum error_code search_bound(const struct plan *plan, uint64_t *least, struct error *err)
{
    /* The bound looks at the first and the last device along pp, which have the embedding and the loss. */
    const int last = mesh_neighbour(&plan->mesh, 0, PP, plan->mesh.size[PP] - 1);
    struct plan_memory first_place, last_place;
    enum error_code e = plan_memory(plan, 0, 1, &first_place, err);
    last_place = first_place;
    if (!e && last != 0) e = plan_memory(plan, last, 1, &last_place, err);
    if (e) return e;
    *least = first_place.peak.total > last_place.peak.total ? first_place.peak.total : last_place.peak.total;
    return OK;
}

enum error_code search_add(struct search *search, const struct plan *plan, const struct choice *choice,
                           bool estimates, int *place, struct error *err)
{
    struct candidate new = { .choice = *choice, .unusual = plan_space_unusual(search->space->base, plan) };
    if (search->count == search->room && !search_grow(search))
        return fail(err, ERR_MEMORY, "no memory for %d plans", search->count + 1);
    struct estimate step = { 0, 0 };
    search->estimator.stop = &search->stop;
    const enum error_code e = estimates ? estimate_step(&search->estimator, plan, &step, err) : OK;
    if (e == ERR_MEMORY) return e;
    search->ended = search->ended || e == ERR_STOPPED;
    /* A plan without an estimate, for whatever reason, comes last, and may be any work. */
    new.estimate = step.time, new.work = step.work;
    if (place) *place = search->count;
    search->of[search->count++] = new;
    *slot_of(search, choice) = search->count;
    return OK;
}

enum error_code search_lacks(struct search *search, int place, uint64_t *lacks, struct error *err)
{
    struct candidate *c = &search->of[place];
    struct plan p;
    enum error_code e = OK;
    if (c->least == 0 && plan_space_make(search->space, &c->choice, &p)) {
        e = search_bound(&p, &c->least, err);
        search->estimator.worked += estimate_listing(&p);
        search->bounded++, search->over += search->memory > 0 && c->least > search->memory;
    }
    *lacks = search->memory > 0 && c->least > search->memory ? c->least - search->memory : 0;
    return e;
}

/* ---- planning ---------------------------------------------------------------------------------------------------- */

struct planned { picoseconds time; uint64_t peak, sent; };       /* sent: by the devices that ran */

/* Note one device after its step: the slowest device's time, the fullest one's peak, and the bytes of all. */
static enum error_code search_note(struct trainer *trainer, void *context, struct error *err)
{
    struct planned *n = context;
    (void)err;
    if (trainer->device->clock.now > n->time) n->time = trainer->device->clock.now;
    if (trainer->device->arena.peak.total > n->peak) n->peak = trainer->device->arena.peak.total;
    for (enum traffic_kind k = 0; k < TRAFFIC_KIND_COUNT; k++)
        n->sent += ledger_kind(&trainer->comm->counted, k).bytes_sent;
    return OK;
}

/* Add one of so many devices' shares of a step to their mean. */
static void add_share(struct step_share *sum, const struct step_share *share, int of)
{
    sum->computing += share->computing / of, sum->engines += share->engines / of, sum->ended += share->ended / of;
    for (int k = 0; k < TRAFFIC_KIND_COUNT; k++) sum->waiting[k] += share->waiting[k] / of;
}

/* The mean of the devices that ran: each of them stands for as many. */
static struct step_share mean_share(const struct folding *folding, struct events **events)
{
    struct step_share sum = { 0 };
    const picoseconds end = step_end(folding, events);
    for (int n = 0; n < folding_lives(folding) && end > 0; n++) {
        const struct step_share one = step_share(events[folding_first(folding, n)], end);
        add_share(&sum, &one, folding_lives(folding));
    }
    return sum;
}

/* Replay the events of all devices on links that they share.  The time is that of the last device to end. */
static enum error_code replay(const struct plan *plan, struct events **events, picoseconds *time, struct error *err)
{
    const int P = plan->mesh.devices;
    picoseconds *end = calloc((size_t)P, sizeof *end);
    const enum error_code e = end ? contention_replay(plan->cluster, events, P, end, err)
                                  : fail(err, ERR_MEMORY, "no memory to replay %d devices", P);
    *time = 0;
    for (int d = 0; d < P && !e; d++) *time = end[d] > *time ? end[d] : *time;
    free(end);
    return e;
}

/* A step on the plan's cluster; a replay needs all events of all devices. */
static enum error_code run_step(const struct search *search, const struct plan *plan, struct candidate *candidate,
                                struct error *err)
{
    const bool replays = cluster_replays(plan->cluster);
    struct dry_events events;
    struct planned noted = { 0 };
    struct dry_run d;
    int64_t left = search->most_events > 0 ? search->most_events : STEP_MOST_EVENTS;
    /* A replay needs every event; otherwise all devices together may keep `left` events. */
    enum error_code e = dry_events_open(&events, plan->mesh.devices, replays ? NULL : &left, err);
    if (!e) e = dry_run_step(plan, &search->stop, &events, search_note, &noted, &d, err);
    if (!e && replays) e = replay(plan, events.of, &noted.time, err);
    if (!e) {
        candidate->time = noted.time, candidate->peak = noted.peak;
        /* The devices that ran stand for equally many, so their bytes are multiplied. */
        candidate->sent = noted.sent * (uint64_t)folding_share(&d.folding);
        candidate->share = mean_share(&d.folding, events.of);
        candidate->share_known = step_end(&d.folding, events.of) >= 0;
    }
    dry_events_close(&events, plan->mesh.devices);
    return e;
}

/* Plan a step as if devices did not share links.  The time by the clocks alone needs no replay. */
static enum error_code plan_by_clocks(const struct search *search, const struct plan *plan,
                                      struct candidate *candidate, struct error *err)
{
    const struct cluster alone = cluster_without_replay(plan->cluster);
    struct plan q = *plan;
    q.cluster = &alone;
    return run_step(search, &q, candidate, err);
}

enum error_code search_plan(const struct plan *plan, struct candidate *candidate, struct error *err)
{
    return plan_by_clocks(&(struct search){ .count = 0 }, plan, candidate, err);
}

/* ---- ranking ----------------------------------------------------------------------------------------------------- */

/* The space has an order: dimension by dimension, value by value. */
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

/* Whether a planned candidate fits into the memory; 0 stands for no limit. */
static bool search_fits(const struct candidate *candidate, uint64_t memory)
{
    return memory == 0 || candidate->peak <= memory;
}

static const uint64_t *memory_to_rank;          /* qsort has no context; one search at a time */

/* Plans that fit come first, replayed ones before others.  Then time, peak, bytes and unusual choices decide. */
static int fastest(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    const bool first = x->time > 0 && search_fits(x, *memory_to_rank), second = y->time > 0
        && search_fits(y, *memory_to_rank);
    if (first != second) return first ? -1 : 1;
    if ((x->clocks > 0) != (y->clocks > 0)) return x->clocks > 0 ? -1 : 1;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    if (x->peak != y->peak) return x->peak < y->peak ? -1 : 1;
    if (x->sent != y->sent) return x->sent < y->sent ? -1 : 1;
    if (x->unusual != y->unusual) return x->unusual < y->unusual ? -1 : 1;
    return in_order(&x->choice, &y->choice);
}

/* Sort the candidates, then enter all into the slots anew: their places have changed. */
static void sort(struct search *search, int (*order)(const void *, const void *))
{
    memory_to_rank = &search->memory;
    qsort(search->of, (size_t)search->count, sizeof *search->of, order);
    memset(search->slot, 0, (size_t)search->slots * sizeof *search->slot);
    for (int i = 0; i < search->count; i++) *slot_of(search, &search->of[i].choice) = i + 1;
}

const struct candidate *search_best(const struct search *search)
{
    const struct candidate *best = NULL;
    memory_to_rank = &search->memory;
    for (int i = 0; i < search->count; i++) {
        const struct candidate *c = &search->of[i];
        if (c->time > 0 && search_fits(c, search->memory) && (best == NULL || fastest(c, best) < 0)) best = c;
    }
    return best;
}

/* The number of plans that will be planned at most. */
static int64_t plans_at_most(const struct search *search)
{
    return search->most > 0 && search->most < search->count ? search->most : search->count;
}

enum error_code search_plan_now(struct search *search, int place, struct error *err)
{
    struct plan p;
    uint64_t lacks;
    const enum error_code e = search_lacks(search, place, &lacks, err);
    /* A candidate that lacks memory even by the lower bound is not planned, unless all are asked for. */
    if (e || (lacks > 0 && !search->plans_all)) return e;
    if (search->of[place].time > 0 || !plan_space_make(search->space, &search->of[place].choice, &p)) return OK;
    const enum error_code planned = plan_by_clocks(search, &p, &search->of[place], err);
    search->ended = search->ended || planned == ERR_STOPPED;
    if (planned == ERR_STOPPED) return OK;
    search->planned++, search->worked += search->of[place].work;
    return planned;
}

bool search_is_tired(const struct search *search, double share)
{
    return search->work_most > 0 && search->estimator.worked > share * search->work_most;
}

bool search_affords(const struct search *search, int place, double share)
{
    return search->work_most <= 0
           || search->of[place].work <= fmin(share * search->work_most, search->work_most - search->worked);
}

/* The candidate that may fit and takes the least work to plan; -1: all were planned, or lack memory. */
static int least_work(const struct search *search)
{
    int least = -1;
    for (int i = 0; i < search->count; i++) {
        const struct candidate *const c = &search->of[i];
        const bool lacks = search->memory > 0 && c->least > search->memory;
        if (c->time == 0 && !lacks && (least < 0 || c->work < search->of[least].work)) least = i;
    }
    return least;
}

/* With no answer, plan what takes least, even if that is more work than is left. */
static enum error_code plan_least_work(struct search *search, struct error *err)
{
    enum error_code e = OK;
    for (int i = least_work(search); i >= 0 && !e && (search->most == 0 || search->planned < search->most);
         i = least_work(search)) {
        e = search_plan_now(search, i, err);
        const struct candidate *const c = &search->of[i];
        if (c->time > 0) search->dear -= search->dear > 0;
        if (e || search_stops(search) || (c->time > 0 && search_fits(c, search->memory))) break;
        /* A candidate that lacks memory by its bound was not planned, and its bound is known now. */
        if (c->time == 0 && c->least <= search->memory) break;
    }
    return e;
}

enum error_code search_rank(struct search *search, int *ranked, struct error *err)
{
    enum error_code e = OK;
    bool fits = search_best(search) != NULL;
    *ranked = 0;
    if (search->count == 0) return OK;
    sort(search, most_promising);
    for (int i = 0; i < search->count && !e && (search->most == 0 || search->planned < search->most); i++) {
        /* A search that ends early still plans until it has an answer. */
        if (search_stops(search) || (fits && search_ends(search))) break;
        if (search->of[i].time == 0 && !search_affords(search, i, 1)) {
            search->dear++;
            continue;
        }
        e = search_plan_now(search, i, err);
        fits = fits || (!e && search->of[i].time > 0 && search_fits(&search->of[i], search->memory));
        search_tell(search, "planning", (double)search->planned / (double)plans_at_most(search));
    }
    if (!e && !fits && search->work_most > 0 && !search_stops(search)) e = plan_least_work(search, err);
    sort(search, fastest);
    while (*ranked < search->count && search->of[*ranked].time > 0 && search_fits(&search->of[*ranked], search->memory))
        ++*ranked;
    return e;
}

int search_frontier(const struct candidate *candidate, int ranked, int place[])
{
    uint64_t least = UINT64_MAX;
    int n = 0;
    for (int i = 0; i < ranked; i++)
        /* Candidates come by time, so one is on the frontier if its peak is below all earlier peaks. */
        if (candidate[i].peak < least) least = candidate[i].peak, place[n++] = i;
    return n;
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

/* Plans on different meshes are different ideas, however close their times are. */
static bool same_mesh(const struct candidate *a, const struct candidate *b)
{
    return a->choice.value[BY_MESH] == b->choice.value[BY_MESH];
}

bool search_equal(const struct candidate *a, const struct candidate *b)
{
    return same_mesh(a, b) && a->time == b->time && a->peak == b->peak && a->sent == b->sent;
}

/* Whether a plan is no idea of its own: it takes nearly the time and the memory of the group's first plan. */
static bool gains_nothing(const struct candidate *candidate, const struct candidate *first)
{
    return same_mesh(candidate, first) && (double)candidate->time < (1 + SEARCH_NEAR) * (double)first->time &&
           (double)candidate->peak > (1 - SEARCH_NEAR) * (double)first->peak;
}

int search_group(const struct candidate *candidate, int ranked, int first[])
{
    int groups = 0;
    for (int i = 0; i < ranked; i++) {
        first[i] = 0;
        while (first[i] < i && (first[first[i]] != first[i] || !gains_nothing(&candidate[i], &candidate[first[i]])))
            first[i]++;
        groups += first[i] == i;
    }
    return groups;
}

/* ---- finalists --------------------------------------------------------------------------------------------------- */

/* Replay one candidate: its time becomes the replayed one, and the time by the clocks is kept. */
static enum error_code replay_one(struct search *search, int place, int *replayed, struct error *err)
{
    struct candidate *c = &search->of[place];
    struct plan p;
    const picoseconds clocks = c->time;
    if (c->clocks > 0 || !plan_space_make(search->space, &c->choice, &p)) return OK;
    const enum error_code e = run_step(search, &p, c, err);
    if (e == ERR_STOPPED) return search->ended = true, OK;
    c->clocks = clocks, ++*replayed;
    return e;
}

/* How many groups those of the first n are that have been replayed and take no longer than `time`.
 * done, first: [n], to work with. */
static int groups_within(const struct search *search, int n, picoseconds time, struct candidate *done, int *first)
{
    int count = 0;
    for (int i = 0; i < n; i++)
        if (search->of[i].clocks > 0 && search->of[i].time <= time) done[count++] = search->of[i];
    memory_to_rank = &search->memory;
    qsort(done, (size_t)count, sizeof *done, fastest);
    return search_group(done, count, first);
}

enum error_code search_replay(struct search *search, int best, int most, int *ranked, bool *beaten, struct error *err)
{
    const int n = *ranked;
    int replayed = 0, next = 0;
    enum error_code e = OK;
    *beaten = true;
    if (n == 0 || !cluster_replays(search->space->base->cluster)) return OK;
    int *place = calloc((size_t)n, sizeof *place);
    struct candidate *done = calloc((size_t)n, sizeof *done);
    if (place == NULL || done == NULL) {
        free(place), free(done);
        return fail(err, ERR_MEMORY, "no memory for a list of plans");
    }
    const int frontiers = search_frontier(search->of, n, place);
    /* The frontier first: no other plan is better in time and memory at once. */
    for (int i = 0; i < frontiers && replayed < most && !e && !search_stops(search); i++)
        e = replay_one(search, place[i], &replayed, err);
    for (; next < n && replayed < most && !e && !search_stops(search); next++) {
        if (search->of[next].clocks > 0) continue;
        if (groups_within(search, n, search->of[next].time, done, place) >= best) break;
        e = replay_one(search, next, &replayed, err);
    }
    /* The next plan that was not replayed tells whether the best groups could still be beaten. */
    while (next < n && search->of[next].clocks > 0) next++;
    *beaten = next == n || groups_within(search, n, search->of[next].time, done, place) >= best;
    free(place), free(done);
    sort(search, fastest);
    /* If it was asked to end before any was replayed, the plans are ranked by the clocks. */
    *ranked = replayed > 0 ? replayed : n;
    return e;
}
