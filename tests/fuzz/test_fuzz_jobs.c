/* Jobs of a cluster from anybody: what is accepted has names, plans, whole sizes and an order, and is written so that
 * it is read as the same.
 * tier: check
 */
#include "emulated_devices/cluster/jobs.h"
#include "tests/fuzz/fuzz.h"

static void check_job(const struct cluster_jobs *jobs, int i)
{
    const struct cluster_job *const j = &jobs->at[i];
    must(j->name[0] && j->user >= 0 && j->user < jobs->users && j->kind >= 0 && j->kind < jobs->kinds,
         "job %d has no name, user or plan", i);
    must(job_size_is_whole(j->devices) && job_size_is_whole(j->least) && job_size_is_whole(j->most)
         && j->least <= j->devices && j->devices <= j->most, "job %d has %d devices, %d to %d", i, j->devices, j->least,
         j->most);
    must(j->steps >= 1 && j->arrival >= 0 && (i == 0 || jobs->at[i - 1].arrival <= j->arrival),
         "job %d comes at %lld ms for %lld steps", i, (long long)j->arrival, (long long)j->steps);
}

static void check_written(const struct cluster_jobs *jobs)
{
    struct cluster_jobs again;
    struct error err = { 0 };
    const char *const path = as_file((const uint8_t *)"", 0);
    must(cluster_jobs_write(jobs, path, &err) == OK, "%s", err.text);
    must(cluster_jobs_read(&again, path, &err) == OK, "what was written is not read: %s", err.text);
    must(again.count == jobs->count && again.kinds == jobs->kinds && again.users == jobs->users, "jobs are lost");
    for (int i = 0; i < jobs->count; i++) {
        const struct cluster_job *const a = &jobs->at[i], *const b = &again.at[i];
        must(strcmp(a->name, b->name) == 0 && a->arrival == b->arrival && a->steps == b->steps
             && a->devices == b->devices && a->least == b->least && a->most == b->most
             && strcmp(jobs->plan[a->kind], again.plan[b->kind]) == 0
             && strcmp(jobs->user[a->user], again.user[b->user]) == 0, "job %d is read as another one", i);
    }
    cluster_jobs_free(&again);
}

static void try(const uint8_t *data, size_t size)
{
    struct cluster_jobs jobs;
    struct error err = { 0 };
    const enum error_code e = cluster_jobs_read(&jobs, as_file(data, size), &err);
    if (e) {
        must(err.text[0] != '\0' && jobs.count == 0, "refused without a word, or something is left");
        return;
    }
    for (int i = 0; i < jobs.count; i++) check_job(&jobs, i);
    check_written(&jobs);
    cluster_jobs_free(&jobs);
}

FUZZ_TARGET("jobs")
