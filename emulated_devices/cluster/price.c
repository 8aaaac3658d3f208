/* price.c -- keeps the prices of steps and moves, and turns steps into time and energy.  simulate.c and schedulers
 * call.  Errors are those of the source, and ERR_MEMORY. */
#include "emulated_devices/cluster/price.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

__extension__ typedef __int128 wide;

struct kept_price { bool known; struct job_price price; };
struct kept_move { int kind, from, to; bool apart; struct job_move move; };

/* Millionths of a step in picoseconds are so many to a millisecond. */
static const int64_t millionths_of_millisecond = INT64_C(1000000000000000);

enum error_code pricing_open(struct pricing *pricing, const struct cluster_jobs *jobs,
                             const struct price_source *source, const int *clock, int clocks,
                             const struct device_power *power, int node, struct error *err)
{
    *pricing = (struct pricing){ .source = *source, .jobs = jobs, .clocks = clocks, .power = *power, .node = node };
    memcpy(pricing->clock, clock, (size_t)clocks * sizeof *clock);
    pricing->price = calloc((size_t)jobs->kinds * JOB_SIZES * (size_t)clocks + 1, sizeof *pricing->price);
    return pricing->price ? OK : fail(err, ERR_MEMORY, "no memory for the prices of %d plans", jobs->kinds);
}

void pricing_close(struct pricing *pricing)
{
    free(pricing->price), free(pricing->move);
    pricing->price = NULL, pricing->move = NULL;
}

enum error_code pricing_step(struct pricing *pricing, int kind, int devices, int clock, const struct job_price **price,
                             struct error *err)
{
    struct kept_price *const kept =
        &pricing->price[(kind * JOB_SIZES + job_size_log(devices)) * pricing->clocks + clock];
    *price = &kept->price;
    if (kept->known) return OK;
    const enum error_code e = pricing->source.step(pricing->source.context, pricing->jobs->plan[kind], devices,
                                                   pricing->clock[clock], &kept->price, err);
    kept->known = !e, pricing->asked++;
    return e;
}

enum error_code pricing_move(struct pricing *pricing, int kind, int from, int at, int to, int place,
                             struct job_move *move, struct error *err)
{
    const struct kept_move new = { kind, from, to, at >= place + to || place >= at + from, { 0 } };
    for (int i = 0; i < pricing->moves; i++) {
        const struct kept_move *const k = &pricing->move[i];
        if (k->kind == kind && k->from == from && k->to == to && k->apart == new.apart) return *move = k->move, OK;
    }
    if (pricing->moves == pricing->room) {
        const int room = pricing->room > 0 ? 2 * pricing->room : 32;
        struct kept_move *const grown = realloc(pricing->move, (size_t)room * sizeof *grown);
        if (grown == NULL) return fail(err, ERR_MEMORY, "no memory for the moves of %d plans", pricing->jobs->kinds);
        pricing->move = grown, pricing->room = room;
    }
    const enum error_code e = pricing->source.move(pricing->source.context, pricing->jobs->plan[kind], from, to,
                                                   new.apart, move, err);
    if (e) return e;
    pricing->move[pricing->moves] = new;
    pricing->move[pricing->moves++].move = *move;
    return OK;
}

int64_t pricing_watts(const struct pricing *pricing, int clock)
{
    const double f = 0.01 * pricing->clock[clock];
    return pricing->power.steady + llrint((double)pricing->power.dynamic * f * f * f);
}

double pricing_joules(const struct pricing *pricing, const struct job_price *price, int devices, int clock)
{
    const double computing = 1e-12 * (double)price->computing, waiting = 1e-12 * (double)price->step - computing;
    return devices * (computing * (double)pricing_watts(pricing, clock) + waiting * (double)pricing->power.steady);
}

int64_t price_milliseconds(const struct job_price *price, int64_t millionths)
{
    const wide x = (wide)millionths * price->step;
    return (int64_t)((x + millionths_of_millisecond - 1) / millionths_of_millisecond);
}

int64_t price_millionths(const struct job_price *price, int64_t milliseconds)
{
    if (price->step <= 0) return INT64_MAX;
    return (int64_t)((wide)milliseconds * millionths_of_millisecond / price->step);
}
