/* dry_run.c -- runs steps of a plan without numbers on all its devices, in this process.  run/plan.c, search/,
 * cli/show/ and bench/ call.  A step longer than virtual time can count is ERR_PLAN.  Errors of devices are passed
 * on, and every device is closed.  A step that was asked to end is ERR_STOPPED. */
#include "emulated_devices/train/dry_run/dry_run.h"
#include "emulated_devices/train/dry_run/alike.h"
#include "emulated_devices/train/dry_run/dry_batch.h"
#include "emulated_devices/model/charged.h"
#include "emulated_devices/train/training.h"
#include "emulated_devices/device/events.h"
#include "ref/machine/system.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#endif

/* ---- events ------------------------------------------------------------------------------------------------------ */

enum error_code dry_events_open(struct dry_events *events, int devices, int64_t *left, struct error *err)
{
    *events = (struct dry_events){ calloc((size_t)devices, sizeof *events->of), left };
    return events->of ? OK : fail(err, ERR_MEMORY, "no memory for the events of %d devices", devices);
}

void dry_events_close(struct dry_events *events, int devices)
{
    for (int d = 0; d < devices && events->of; d++) {
        if (events->of[d]) events_free(events->of[d]);
        free(events->of[d]);
    }
    free(events->of);
    events->of = NULL;
}

/* The list of a device that runs; a run with less folding begins it again. */
static enum error_code dry_events_of(struct dry_events *events, int rank, struct clock *clock, struct error *err)
{
    if (events == NULL) return OK;
    if (events->of[rank] == NULL) events->of[rank] = calloc(1, sizeof **events->of);
    if (events->of[rank] == NULL) return fail(err, ERR_MEMORY, "no memory for the events of device %d", rank);
    events->of[rank]->left = events->left;
    clock->events = events->of[rank];
    return OK;
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

struct job {
    const struct plan *plan;
    int64_t steps;
    struct dry_events *events;
    dry_run_fn *before, *after;
    void *context;
    const struct crew_stop *stop;       /* NULL: the steps run to their end */
    double *flops;                      /* charged to the devices that run */
    struct dry_batches *batches;        /* that the devices share */
};

static bool ends_inexact(const void *crew) { return crew_is_inexact(crew); }

static enum error_code take_steps(struct trainer *trainer, const struct job *job, const struct crew *crew,
                                  struct error *err)
{
    const struct training_observer inexact = { .context = (void *)(uintptr_t)crew, .ends = ends_inexact };
    enum error_code e = job->before ? job->before(trainer, job->context, err) : OK;
    if (!e) e = training_run(trainer, job->steps, &inexact, 1, NULL, err);
    if (e || crew_is_inexact(crew)) return e;
    *job->flops += trainer->device->clock.flops;
    e = charged_check_device(trainer->device, trainer->comm->rank, err);
    return e ? e : job->after(trainer, job->context, err);
}

static enum error_code train(struct comm *comm, const struct job *job, const struct crew *crew, struct error *err)
{
    struct trainer t;
    const struct cluster own = cluster_of_rank(job->plan->cluster, comm->rank);
    /* To open a device of a large mixture takes long; of a run that means nothing it is not opened. */
    if (crew_is_inexact(crew)) return OK;
    enum error_code e = dry_events_of(job->events, comm->rank, &comm->device->clock, err);
    if (e) return e;
    clock_restart(&comm->device->clock, &own, job->plan->dtype);
    e = trainer_open(&t, job->plan, comm, dry_batches_source(job->batches), err);
    if (e) return e;
    e = take_steps(&t, job, crew, err);
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

static enum error_code dry_run_check_time(const struct plan *plan, struct error *err)
{
    const double rate = plan->cluster ? 1e6 * (double)plan->cluster->flop_rate[plan->dtype] * plan->mesh.devices : 0,
                 days = rate > 0 ? model_step_flops(&plan->model, plan->B, plan->S) / rate / 86400 : 0;
    if (days <= MOST_DAYS) return OK;
    return fail(err, ERR_PLAN, "--cluster %s: a step of %lld sequences computes for %.0f days; virtual time counts up "
                "to %d: take a faster cluster, more devices, or a smaller --batch or --seq", plan->cluster->name,
                (long long)plan->B, days, MOST_DAYS);
}

/* Tables of tokens, which nobody fills in a run without numbers, take no memory if they are pages of their own. */
enum { OWN_PAGES_FROM = 1 << 16 };      /* bytes */

/* Copies of which each runs send to all others: so many messages of a collective take minutes. */
enum { MOST_ENDS = 1 << 24 };

/* The nearest number of copies, in one direction, of which each has as many sequences; 0: there is none. */
static int nearest_even(const struct plan *plan, int step)
{
    const int64_t most = plan->B < MESH_MOST_DEVICES ? plan->B : MESH_MOST_DEVICES;
    for (int64_t n = plan->mesh.size[DP]; n >= 1 && n <= most; n += step)
        if (plan->B % n == 0) return (int)n;
    return 0;
}

/* Say what is nearest to a plan that does not fold, and does. */
static const char *name_nearest(const struct plan *plan, char *text, size_t size)
{
    const int below = nearest_even(plan, -1), above = nearest_even(plan, 1);
    if (plan->B % plan->mesh.size[DP] == 0)
        return strcmp(plan->data.scheme, "ddp") == 0
               ? "--zero 1 pads what copies share to equal blocks, so any number of them folds"
               : "copies fold if they are alike and their number divides what they share, as powers of two often do";
    if (above > 0)
        snprintf(text, size, "of --batch %lld all copies have as many with --dp %d or %d", (long long)plan->B, below,
                 above);
    else
        snprintf(text, size, "of --batch %lld all copies have as many with --dp %d", (long long)plan->B, below);
    return text;
}

static enum error_code dry_run_check_folding(const struct plan *plan, const struct dry_run *run, struct error *err)
{
    const struct folding *f = &run->folding;
    const int lives = folding_lives(f);
    char text[120];
    if ((int64_t)lives * f->mesh.size[DP] <= MOST_ENDS) return OK;
    return fail(err, ERR_PLAN, "--dp %d: at least %d of %d devices would have to run, which is too many (%s); %s",
                f->mesh.size[DP], lives, f->mesh.devices, run->why, name_nearest(plan, text, sizeof text));
}

/* Run the crew, with less folding as long as it is inexact. */
static enum error_code dry_run_crew(const struct job *job, bool unfolded, struct dry_run *d, struct error *err)
{
    const struct plan *const plan = job->plan;
    enum error_code e = unfolded ? OK : dry_run_check_folding(plan, d, err);
    if (!e) e = crew_run_folded(&d->folding, job->stop, be_device, job, &d->crew, err);
    while (!e && !d->crew.stopped && d->crew.inexact[0] && !folding_is_none(&d->folding)) {   /* fold less */
        snprintf(d->why, sizeof d->why, "%s", d->crew.inexact);
        d->folding = plan_alike_refined(plan, &d->folding, &d->crew);
        *job->flops = 0;
        e = dry_run_check_folding(plan, d, err);
        if (!e) e = crew_run_folded(&d->folding, job->stop, be_device, job, &d->crew, err);
    }
    if (!e && d->crew.stopped) return fail(err, ERR_STOPPED, "a step was asked to end before it was planned");
    return e ? e : charged_check(plan, job->steps, *job->flops * plan->mesh.devices / folding_lives(&d->folding), err);
}

static enum error_code dry_run_job(const struct plan *plan, const struct crew_stop *stop, int64_t steps, bool unfolded,
                                   struct dry_events *events, dry_run_fn *before, dry_run_fn *after, void *context,
                                   struct dry_run *d, struct error *err)
{
    double flops = 0;
    struct dry_batches batches;
    const struct job j = { plan, steps, events, before, after, context, stop, &flops, &batches };
    *d = (struct dry_run){ .folding = folding_none(&plan->mesh) };
    if (unfolded) snprintf(d->why, sizeof d->why, "--unfolded");
    else if (events && cluster_replays(plan->cluster)) snprintf(d->why, sizeof d->why, "the cluster needs a replay");
    else d->folding = plan_alike(plan, d->why);
    enum error_code e = dry_run_check_time(plan, err);
    if (!e) e = dry_batches_open(&batches, plan, steps, err);
    if (e) return e;
    system_own_pages(OWN_PAGES_FROM);
    e = dry_run_crew(&j, unfolded, d, err);
    dry_batches_close(&batches);
    return e;
}

enum error_code dry_run(const struct plan *plan, int64_t steps, bool unfolded, struct dry_events *events,
                        dry_run_fn *before, dry_run_fn *after, void *context, struct dry_run *d, struct error *err)
{
    return dry_run_job(plan, NULL, steps, unfolded, events, before, after, context, d, err);
}

enum error_code dry_run_step(const struct plan *plan, const struct crew_stop *stop, struct dry_events *events,
                             dry_run_fn *after, void *context, struct dry_run *d, struct error *err)
{
    return dry_run_job(plan, stop, 1, false, events, NULL, after, context, d, err);
}
