/* goodput.c -- computes and simulates the share of a training's time that makes progress.
 * report_failures.c calls these functions.  Times are seconds; no function can fail. */
#include "emulated_devices/run/report/goodput.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <stdbool.h>
#include <stddef.h>

enum { MOST_FAILURES = 200 * 1000 };            /* of a simulation: without progress it would not end */

/* Seconds that a save waits for the checkpoint before it. */
static double goodput_wait(const struct failing_job *job, double work)
{
    return fmax(0, job->committed - work - job->held);
}

struct goodput goodput_of(const struct failing_job *job, int64_t every)
{
    const double work = (double)every * job->step, M = job->between;
    const double saving = job->held + goodput_wait(job, work);
    /* E = M exp((R + f) / M) (exp((t + d) / M) - 1) */
    const double expected = M * exp((job->restart + job->committed) / M) * expm1((work + saving) / M);
    struct goodput g = { .restarting = -expm1(-job->restart / M) };
    if (isfinite(expected)) g.useful = work / expected, g.saving = saving / expected;
    g.again = fmax(0, 1 - g.useful - g.saving - g.restarting);
    return g;
}

/* Goodput rises with the interval up to its best value, then falls. */
int64_t goodput_best(const struct failing_job *job)
{
    int64_t low = 1, high = 2;
    while (high < INT64_MAX / 4 && goodput_of(job, high).useful > goodput_of(job, high - 1).useful) high *= 2;
    while (low < high) {                /* the first interval whose successor is no better */
        const int64_t middle = low + (high - low) / 2;
        if (goodput_of(job, middle + 1).useful > goodput_of(job, middle).useful) low = middle + 1;
        else high = middle;
    }
    return low;
}

double goodput_young(const struct failing_job *job) { return sqrt(2 * job->held * job->between); }

double goodput_daly(const struct failing_job *job)
{
    const double d = job->held, M = job->between, x = d / (2 * M);
    return d < 2 * M ? goodput_young(job) * (1 + sqrt(x) / 3 + x / 9) - d : M;
}

/* ---- simulation -------------------------------------------------------------------------------------------------- */

struct simulation {
    const struct failing_job *job;
    uint64_t seed, drawn;               /* times between failures so far */
    double left;                        /* seconds until the next failure */
    double useful, saving, again, restarting;
};

/* -M log(1 - u): u is below 1. */
static void simulation_draw(struct simulation *s)
{
    s->left = -s->job->between * log1p(-random_uniform(s->seed, random_stream("failures"), s->drawn++));
}

/* Let this much time pass.  @return seconds that passed; less than all: a failure came. */
static double simulation_pass(struct simulation *s, double seconds)
{
    const double passed = fmin(s->left, seconds);
    s->left -= passed;
    return passed;
}

/* Restarts fail like everything else: then a restart begins again. */
static void simulation_restart(struct simulation *s)
{
    simulation_draw(s);
    while (s->left < s->job->restart && s->drawn < MOST_FAILURES) {
        s->restarting += s->left;
        simulation_draw(s);
    }
    const double passed = simulation_pass(s, s->job->restart);
    s->restarting += passed;
}

/* A segment of work and its save, or of work alone if `saving` is 0.  @return whether it ended without a failure;
 * else *passed are the seconds until the failure. */
static bool simulation_segment(struct simulation *s, double work, double saving, double *passed)
{
    *passed = simulation_pass(s, work + saving);
    return *passed >= work + saving;
}

struct goodput goodput_simulate(const struct failing_job *job, int64_t every, int64_t steps, uint64_t seed,
                                int64_t *failures)
{
    struct simulation s = { .job = job, .seed = seed };
    double before_work = 0, before_saving = 0;  /* of the segment whose checkpoint may not be committed yet */
    int64_t done = 0;
    bool pending = false;
    simulation_draw(&s);
    while ((done < steps || pending) && s.drawn < MOST_FAILURES) {
        const int64_t next = steps - done < every ? steps - done : every;
        const double work = (double)next * job->step;
        /* After the last step the job waits until the last checkpoint is committed. */
        const double saving = next > 0 ? job->held + goodput_wait(job, work) : fmax(0, job->committed);
        double passed;
        if (simulation_segment(&s, work, saving, &passed)) {
            s.useful += work, s.saving += saving;
            before_work = work, before_saving = saving, done += next;
            pending = next > 0 && job->committed > 0;
            continue;
        }
        s.again += passed;
        if (pending && passed < job->committed) {       /* the checkpoint before is lost with its segment */
            s.useful -= before_work, s.saving -= before_saving, s.again += before_work + before_saving;
            done -= (int64_t)llround(before_work / job->step);
        }
        pending = false;
        simulation_restart(&s);
    }
    if (failures) *failures = (int64_t)s.drawn - 1;
    const double all = s.useful + s.saving + s.again + s.restarting;
    return (struct goodput){ s.useful / all, s.saving / all, s.again / all, s.restarting / all };
}
