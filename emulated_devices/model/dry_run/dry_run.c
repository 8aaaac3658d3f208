#include "emulated_devices/model/dry_run/dry_run.h"
#include "emulated_devices/model/dry_run/alike.h"
#include "emulated_devices/model/charged.h"
#include "emulated_devices/model/training.h"
#include <stdio.h>

struct job {
    const struct plan *plan;
    int64_t steps;
    struct events *const *events;
    dry_run_fn *before, *after;
    void *context;
    double *flops;                      /* charged to the devices that run */
};

static bool ends_inexact(const void *crew) { return crew_is_inexact(crew); }

static enum error_code take_steps(struct trainer *t, const struct job *j, const struct crew *crew, struct error *err)
{
    const struct training_observer inexact = { .context = (void *)(uintptr_t)crew, .ends = ends_inexact };
    enum error_code e = j->before ? j->before(t, j->context, err) : OK;
    if (!e) e = training_run(t, j->steps, &inexact, 1, NULL, err);
    if (e || crew_is_inexact(crew)) return e;
    *j->flops += t->device->clock.flops;
    e = charged_check_device(t->device, t->comm->rank, err);
    return e ? e : j->after(t, j->context, err);
}

static enum error_code train(struct comm *c, const struct job *j, const struct crew *crew, struct error *err)
{
    struct trainer t;
    const struct cluster own = cluster_of_rank(j->plan->cluster, c->rank);
    if (j->events) c->device->clock.events = j->events[c->rank];
    clock_restart(&c->device->clock, &own, j->plan->dtype);
    enum error_code e = trainer_open(&t, j->plan, c, (struct batch_source){ NULL, NULL }, err);
    if (e) return e;
    e = take_steps(&t, j, crew, err);
    trainer_close(&t);
    return e;
}

static enum error_code be_device(struct crew *crew, int rank, const void *asked, struct error *err)
{
    const struct job *j = asked;
    struct device device;
    struct comm comm;
    enum error_code e = device_open(&device, backend_find("count"), j->plan->dtype, 0, err);
    if (e) return e;
    e = crew_join(&comm, crew, rank, &device, err);
    if (!e) {
        e = train(&comm, j, crew, err);
        comm_close(&comm);
    }
    device_close(&device);
    return e;
}

/* Picoseconds in 64 bits end after 106 days. */
enum { MOST_DAYS = 50 };

static enum error_code check_time(const struct plan *p, struct error *err)
{
    const double rate = p->cluster ? 1e6 * (double)p->cluster->flop_rate[p->dtype] * p->mesh.devices : 0,
                 days = rate > 0 ? model_step_flops(&p->model, p->B, p->S) / rate / 86400 : 0;
    if (days <= MOST_DAYS) return OK;
    return fail(err, ERR_PLAN, "--cluster %s: a step of %lld sequences computes for %.0f days; "
                               "virtual time counts up to %d",
                p->cluster->name, (long long)p->B, days, MOST_DAYS);
}

enum error_code dry_run(const struct plan *p, int64_t steps, bool unfolded, struct events *const *events,
                        dry_run_fn *before, dry_run_fn *after, void *context, struct dry_run *d, struct error *err)
{
    double flops = 0;
    const struct job j = { p, steps, events, before, after, context, &flops };
    *d = (struct dry_run){ .folding = folding_none(&p->mesh) };
    if (unfolded) snprintf(d->why, sizeof d->why, "--unfolded");
    else if (events && cluster_replays(p->cluster)) snprintf(d->why, sizeof d->why, "the cluster needs a replay");
    else d->folding = plan_alike(p, d->why);
    enum error_code e = check_time(p, err);
    if (e) return e;
    e = crew_run_folded(&d->folding, be_device, &j, &d->crew, err);
    while (d->crew.inexact[0] && !folding_is_none(&d->folding)) {       /* fold less */
        snprintf(d->why, sizeof d->why, "%s", d->crew.inexact);
        d->folding = plan_alike_refined(p, &d->folding, d->crew.axes);
        flops = 0;
        e = crew_run_folded(&d->folding, be_device, &j, &d->crew, err);
    }
    return e ? e : charged_check(p, steps, flops * p->mesh.devices / folding_lives(&d->folding), err);
}
