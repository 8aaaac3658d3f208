/* growth.c -- grows jobs under a budget of energy, greedily and by trying all.  powerflow.c, claims and tests call.
 * Errors: ERR_MEMORY. */
#include "emulated_devices/cluster/powerflow.h"
#include <math.h>
#include <stdlib.h>

/* A growth of a job, in a heap by priority; equal ones in the order of jobs. */
struct growth { double priority; int job, size, clock; };
struct heap { struct growth *at; int count; };

static bool is_before(const struct growth *a, const struct growth *b)
{
    if (a->priority != b->priority) return a->priority > b->priority;
    if (a->job != b->job) return a->job < b->job;
    return a->size < b->size;
}

static void heap_push(struct heap *heap, struct growth growth)
{
    int i = heap->count++;
    for (; i > 0 && is_before(&growth, &heap->at[(i - 1) / 2]); i = (i - 1) / 2) heap->at[i] = heap->at[(i - 1) / 2];
    heap->at[i] = growth;
}

static struct growth heap_pop(struct heap *heap)
{
    const struct growth top = heap->at[0], last = heap->at[--heap->count];
    int i = 0;
    for (int child; (child = 2 * i + 1) < heap->count; i = child) {
        if (child + 1 < heap->count && is_before(&heap->at[child + 1], &heap->at[child])) child++;
        if (!is_before(&heap->at[child], &last)) break;
        heap->at[i] = heap->at[child];
    }
    heap->at[i] = last;
    return top;
}

static double growth_seconds(const struct growth_job *job)
{
    return job->size < 0 ? INFINITY : job->steps * job->of->seconds[job->size][job->clock];
}

static double growth_joules(const struct growth_job *job)
{
    return job->size < 0 ? 0 : job->steps * job->of->joules[job->size][job->clock];
}

double growth_time(const struct growth_job *job, int jobs)
{
    double time = 0;
    for (int i = 0; i < jobs; i++) time += growth_seconds(&job[i]);
    return time;
}

double growth_energy(const struct growth_job *job, int jobs)
{
    double energy = 0;
    for (int i = 0; i < jobs; i++) energy += growth_joules(&job[i]);
    return energy;
}

/* The leanest choice on the fewest devices that fit. */
static bool choose_leanest(struct growth_job *job, int clocks)
{
    for (int size = job->first; size <= job->last; size++) {
        job->clock = -1;
        for (int c = 0; c < clocks; c++)
            if (isfinite(job->of->seconds[size][c]) &&
                (job->clock < 0 || job->of->joules[size][c] < job->of->joules[size][job->clock])) job->clock = c;
        if (job->clock >= 0) return job->size = size, true;
    }
    job->size = -1;
    return false;
}

/* This divides what a job gains by a growth by what the growth costs; 0: the job gains nothing. */
static double priority_of(const struct growth_job *job, int size, int clock)
{
    const double time = job->of->seconds[job->size][job->clock], energy = job->of->joules[job->size][job->clock];
    const double saves = (time - job->of->seconds[size][clock]) / time,
                 costs = (job->of->joules[size][clock] - energy) / energy;
    if (!(saves > 0)) return 0;
    return costs <= 0 ? INFINITY : saves / costs;
}

static void push_growths(struct heap *heap, const struct growth_job *job, int number, int clocks)
{
    const int sizes[] = { job->size + 1, job->size }, rates[] = { job->clock, job->clock + 1 };
    for (int way = 0; way < 2; way++) {
        if (sizes[way] > job->last || rates[way] >= clocks) continue;
        const double priority = priority_of(job, sizes[way], rates[way]);
        if (priority > 0) heap_push(heap, (struct growth){ priority, number, sizes[way], rates[way] });
    }
}

enum error_code growth_run(struct growth_job *job, int jobs, int devices, int clocks, double budget, struct error *err)
{
    /* A job has two growths at a time; one that was passed over is not pushed again. */
    struct heap heap = { malloc((2 * (size_t)jobs * (JOB_SIZES + CLOCKS_MOST) + 2) * sizeof *heap.at), 0 };
    double energy = 0;
    if (heap.at == NULL) return fail(err, ERR_MEMORY, "no memory for the growths of %d jobs", jobs);
    for (int i = 0; i < jobs; i++) {
        if (!choose_leanest(&job[i], clocks)) continue;
        if (1 << job[i].size > devices) job[i].size = -1;
        else devices -= 1 << job[i].size, energy += job[i].steps * job[i].of->joules[job[i].size][job[i].clock];
    }
    for (int i = 0; i < jobs; i++)
        if (job[i].size >= 0) push_growths(&heap, &job[i], i, clocks);
    while (heap.count > 0) {
        const struct growth g = heap_pop(&heap);
        struct growth_job *const j = &job[g.job];
        const bool stale = g.size < j->size || g.clock < j->clock || (g.size == j->size && g.clock == j->clock)
                           || g.size + g.clock != j->size + j->clock + 1;
        if (stale) continue;
        const int more = (1 << g.size) - (1 << j->size);
        const double dearer = j->steps * (j->of->joules[g.size][g.clock] - j->of->joules[j->size][j->clock]);
        if (more > devices || energy + dearer > budget) continue;
        devices -= more, energy += dearer;
        j->size = g.size, j->clock = g.clock;
        push_growths(&heap, j, g.job, clocks);
    }
    free(heap.at);
    return OK;
}

enum { TRIED_MOST = 3 };                /* jobs: all choices of more take too long */

/* Try all choices of one job after another. */
struct trial {
    struct growth_job *job;
    int jobs, clocks;
    double budget, best;                /* joules; the least sum of seconds so far */
    int size[TRIED_MOST], clock[TRIED_MOST];    /* its choices */
};

static void try_job(struct trial *trial, int number, int devices, double time, double energy)
{
    if (devices < 0 || energy > trial->budget || time >= trial->best) return;
    if (number == trial->jobs) {
        trial->best = time;
        for (int i = 0; i < number && i < TRIED_MOST; i++)
            trial->size[i] = trial->job[i].size, trial->clock[i] = trial->job[i].clock;
        return;
    }
    struct growth_job *const j = &trial->job[number];
    for (int size = j->first; size <= j->last; size++)
        for (int c = 0; c < trial->clocks; c++) {
            j->size = size, j->clock = c;
            if (isfinite(j->of->seconds[size][c]))
                try_job(trial, number + 1, devices - (1 << size), time + growth_seconds(j), energy + growth_joules(j));
        }
}

double growth_best(struct growth_job *job, int jobs, int devices, int clocks, double budget)
{
    struct trial trial = { job, jobs, clocks, budget, INFINITY, { -1, -1, -1 }, { 0 } };
    if (jobs > TRIED_MOST) return INFINITY;
    try_job(&trial, 0, devices, 0, 0);
    for (int i = 0; i < jobs; i++) job[i].size = trial.size[i], job[i].clock = trial.clock[i];
    return trial.best;
}
