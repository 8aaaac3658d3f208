/* simulation.c -- answers requests without devices.  plans/search.c calls.  Errors: ERR_MEMORY; ERR_USAGE of requests;
 * ERR_INTERNAL of a scheduler's counts. */
#include "emulated_devices/serve/simulation.h"
#include <stdlib.h>

/* A replica: its schedulers, and the next request of each. */
struct simulated_replica {
    const struct simulation *of;
    struct simulated_serving *to;
    int64_t number, now, seen;
    struct scheduler *scheduler;        /* [together] */
    int64_t *next;                      /* [together] */
    const struct iteration **part;      /* [together] */
    int32_t *token;                     /* [running] what pieces that sample get */
};

static int64_t simulation_scheduler(const struct simulated_replica *replica, int64_t member)
{
    return replica->number * replica->of->together + member;
}

/* ---- composition ------------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t sum, int64_t value)
{
    sum = (sum ^ (uint64_t)value) * UINT64_C(0x9E3779B97F4A7C15);
    return sum ^ sum >> 29;
}

uint64_t iteration_composition(uint64_t before, const struct iteration *now)
{
    uint64_t sum = mix(mix(before + 1, now->pieces), now->preempted);
    for (int64_t i = 0; i < now->pieces; i++) {
        const struct token_piece *const p = &now->piece[i];
        sum = mix(mix(mix(sum, p->of->number), p->first), 2 * p->count + p->samples);
    }
    for (int64_t i = 0; i < now->outs; i++) sum = mix(mix(sum, now->out[i].from), now->out[i].to);
    for (int64_t i = 0; i < now->ins; i++) sum = mix(mix(sum, now->in[i].from), now->in[i].to);
    return sum;
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* Requests are dealt in turn. */
static enum error_code admit(struct simulated_replica *replica, int64_t member, struct error *err)
{
    const struct simulation *const of = replica->of;
    const struct requests *const all = of->requests;
    int64_t *const next = &replica->next[member];
    for (; *next < all->count && all->at[*next].arrival <= replica->seen; *next += of->replicas * of->together) {
        const struct request *const r = &all->at[*next];
        const struct answer_end end = { r->most, NULL, 0 };
        struct sequence *const s = sequence_new(*next, r->prompt.id, r->prompt.count, &end, of->limits.block_tokens);
        if (s == NULL) return fail(err, ERR_MEMORY, "no memory for the tokens of request %.60s", r->name);
        scheduler_add(&replica->scheduler[member], s);
    }
    return OK;
}

static void note_sampled(struct simulated_replica *replica, const struct iteration *now)
{
    int64_t n = 0;
    for (int64_t i = 0; i < now->pieces; i++) {
        const struct sequence *const s = now->piece[i].of;
        if (!now->piece[i].samples) continue;
        const int64_t place = s->count - s->prompt;
        if (place == 0) replica->to->first[s->number] = replica->now;
        replica->to->last[s->number] = replica->now;
        replica->token[n++] = sequence_unseen(s, place);
    }
}

static enum error_code part_take(struct simulated_replica *replica, int64_t member, int64_t began, struct error *err)
{
    const struct iteration *const now = replica->part[member];
    watch_iteration(&replica->of->watch, simulation_scheduler(replica, member), now, began, replica->now);
    note_sampled(replica, now);
    const enum error_code e = scheduler_take(&replica->scheduler[member], replica->token, err);
    for (int64_t i = 0; i < now->ends && !e; i++) sequence_free(now->ended[i]);
    return e;
}

static enum error_code replica_step(struct simulated_replica *replica, struct error *err)
{
    const struct simulation *const of = replica->of;
    const int64_t began = replica->now;
    enum error_code e = OK;
    for (int64_t m = 0; m < of->together; m++) {
        struct scheduler *const scheduler = &replica->scheduler[m];
        replica->part[m] = scheduler_idle(scheduler) ? NULL : scheduler_plan(scheduler);
        if (replica->part[m] && replica->part[m]->tokens == 0)
            return fail(err, ERR_INTERNAL, "no sequence has room in the cache, and none runs");
    }
    replica->now += of->takes(of->context, replica->number, replica->part);
    replica->seen = of->limits.ahead ? began : replica->now;
    replica->to->busy += replica->now - began, replica->to->steps++;
    for (int64_t m = 0; m < of->together && !e; m++)
        if (replica->part[m]) e = part_take(replica, m, began, err);
    return e;
}

/* ---- a replica --------------------------------------------------------------------------------------------------- */

static bool works(const struct simulated_replica *replica)
{
    for (int64_t m = 0; m < replica->of->together; m++)
        if (!scheduler_idle(&replica->scheduler[m])) return true;
    return false;
}

/* The arrival of the next request of any scheduler; negative: there is none. */
static int64_t next_arrival(const struct simulated_replica *replica)
{
    const struct requests *const all = replica->of->requests;
    int64_t least = -1;
    for (int64_t m = 0; m < replica->of->together; m++) {
        const int64_t at = replica->next[m] < all->count ? all->at[replica->next[m]].arrival : -1;
        if (at >= 0 && (least < 0 || at < least)) least = at;
    }
    return least;
}

static enum error_code answer_all(struct simulated_replica *replica, struct error *err)
{
    enum error_code e = OK;
    for (;;) {
        for (int64_t m = 0; m < replica->of->together && !e; m++) e = admit(replica, m, err);
        if (e) return e;
        const int64_t next = next_arrival(replica);
        if (works(replica)) e = replica_step(replica, err);
        else if (next >= 0) replica->seen = replica->now = next > replica->now ? next : replica->now;
        else return OK;
    }
}

/* Sequences are left behind a failure alone. */
static void close_scheduler(struct scheduler *scheduler)
{
    for (int64_t i = 0; i < scheduler->active; i++) sequence_free(scheduler->running[i]);
    for (struct sequence *s = scheduler->waiting, *next; s; s = next) next = s->next, sequence_free(s);
    scheduler_close(scheduler);
}

static enum error_code run_replica(const struct simulation *of, int64_t number, struct simulated_serving *to,
                                   struct error *err)
{
    const size_t n = (size_t)of->together;
    struct simulated_replica replica = { .of = of, .to = to, .number = number };
    int64_t opened = 0;
    replica.scheduler = calloc(n, sizeof *replica.scheduler);
    replica.next = calloc(n, sizeof *replica.next), replica.part = calloc(n, sizeof *replica.part);
    replica.token = calloc((size_t)of->limits.running + 1, sizeof *replica.token);
    enum error_code e = replica.scheduler && replica.next && replica.part && replica.token ? OK
                        : fail(err, ERR_MEMORY, "no memory for %lld schedulers", (long long)of->together);
    for (; opened < of->together && !e; opened += !e) {
        replica.next[opened] = simulation_scheduler(&replica, opened);
        e = scheduler_open(&replica.scheduler[opened], &of->limits, err);
    }
    if (!e) e = answer_all(&replica, err);
    if (replica.now > to->end) to->end = replica.now;
    for (int64_t m = 0; m < opened; m++) {
        to->counts[simulation_scheduler(&replica, m)] = replica.scheduler[m].counts;
        close_scheduler(&replica.scheduler[m]);
    }
    free(replica.scheduler), free(replica.next), free(replica.part), free(replica.token);
    return e;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static enum error_code check_requests(const struct simulation *of, struct error *err)
{
    for (int64_t i = 0; i < of->requests->count; i++) {
        const struct request *const r = &of->requests->at[i];
        const int64_t needs = sequence_needs(r->prompt.count, r->most);
        if (r->stop.count > 0)
            return fail(err, ERR_USAGE, "request %.60s: a simulation does not see stop tokens: ignore_eos must be "
                        "true", r->name);
        if (needs > of->limits.blocks * of->limits.block_tokens)
            return fail(err, ERR_USAGE, "%lld blocks have no room for request %.60s, which needs %lld tokens",
                        (long long)of->limits.blocks, r->name, (long long)needs);
    }
    return OK;
}

enum error_code simulation_run(const struct simulation *simulation, struct simulated_serving *to, struct error *err)
{
    const size_t n = (size_t)simulation->requests->count;
    const size_t schedulers = (size_t)(simulation->replicas * simulation->together);
    *to = (struct simulated_serving){ .first = calloc(n + 1, sizeof *to->first),
                                      .last = calloc(n + 1, sizeof *to->last),
                                      .counts = calloc(schedulers + 1, sizeof *to->counts) };
    enum error_code e = to->first && to->last && to->counts ? check_requests(simulation, err)
                        : fail(err, ERR_MEMORY, "no memory for the times of %zu requests", n);
    for (int64_t r = 0; r < simulation->replicas && !e; r++) e = run_replica(simulation, r, to, err);
    if (e) simulated_serving_free(to);
    return e;
}

void simulated_serving_free(struct simulated_serving *simulated)
{
    free(simulated->first), free(simulated->last), free(simulated->counts);
    *simulated = (struct simulated_serving){ .first = NULL };
}
