/* collectives.c -- `orrery verify collectives`: every algorithm of every operation; rank 0 prints.  job.c calls
 * verify_collectives().  An algorithm that refuses the devices is listed, and is no error.  All errors come from the
 * cases. */
#include "emulated_devices/verify/cases/collectives.h"
#include "emulated_devices/verify/jobs/job.h"
#include "ref/io/json.h"
#include "ref/io/terminal.h"
#include <stdio.h>
#include <string.h>

/* The results of one operation, for a line. */
struct tally { char names[400], refused[200]; int calls; bool failed; };

static void add_name(char *list, size_t size, const char *name)
{
    const size_t used = strlen(list);
    snprintf(list + used, size - used, "%s%s", used ? " " : "", name);
}

static void print_tally(enum operation op, const struct tally *tally)
{
    char line[800];
    int used = snprintf(line, sizeof line, "%s, %d calls: %s", tally->failed ? "FAILED" : "ok", tally->calls,
                        tally->names);
    if (tally->refused[0])
        snprintf(line + used, sizeof line - (size_t)used, "; not for this group: %s", tally->refused);
    printf("  %-15s ", operation_name(op));
    print_wrapped(stdout, 18, line);
    fflush(stdout);
}

static void record_algorithm(struct job *job, const struct algorithm *algorithm,
                             const struct algorithm_outcome *outcome, struct tally *tally)
{
    char scheme[80];
    snprintf(scheme, sizeof scheme, "%s %s", operation_name(algorithm->operation), algorithm->name);
    if (outcome->refused) {
        struct error why;
        fail(&why, ERR_PLAN, "%s", outcome->refused);
        verify_refuse(job, "collectives", scheme, &why);
        add_name(tally->refused, sizeof tally->refused, algorithm->name);
        return;
    }
    cJSON *c = verify_begin_case(job, "collectives", scheme, &outcome->verdict);
    json_add(c, "calls %d elements %g", outcome->calls, (double)outcome->elements);
    tally->calls += outcome->calls;
    tally->failed = tally->failed || outcome->verdict.code != OK;
    add_name(tally->names, sizeof tally->names, algorithm->name);
    if (job->prints && outcome->verdict.code) printf("      %s\n", outcome->verdict.text);
}

/* Time the choice of `auto` after the algorithms of an operation, unless blocks have places of their own. */
static enum error_code run_choice(struct job *job, struct group *group, enum operation op, struct tally *tally,
                                  struct error *err)
{
    struct algorithm_outcome o;
    const struct algorithm named = { .name = ALGORITHM_AUTO, .operation = op };
    const bool sparse = op == SPARSE_ALLGATHER || op == SPARSE_REDUCE_SCATTER;
    if (sparse || group->size == 1 || !verify_takes(job, ALGORITHM_AUTO)) return OK;
    const enum error_code e = verify_choice(group, op, &o, err);
    if (!e && job->speaks) record_algorithm(job, &named, &o, tally);
    return e;
}

static enum error_code run_algorithm(struct job *job, struct group *group, const struct algorithm *algorithm,
                                     struct tally *tally, struct error *err)
{
    struct algorithm_outcome o;
    const enum error_code e = verify_algorithm(group, algorithm, &o, err);
    if (!e && job->speaks) record_algorithm(job, algorithm, &o, tally);
    return e;
}

/* A group with the members in reverse order: code that confuses ranks with members fails. */
static enum error_code open_group(struct group *group, struct comm *world, struct error *err)
{
    int ranks[VERIFY_MOST_DEVICES];
    for (int i = 0; i < world->size; i++) ranks[i] = world->size - 1 - i;
    return comm_agree(world, group_of(group, world, ranks, world->size, TRAFFIC_OTHER, 0, err), err);
}

enum error_code verify_collectives(struct job *job, struct error *err)
{
    struct group g;
    enum error_code e = open_group(&g, job->world, err);
    if (e) return e;
    const struct cluster *m = &job->world->device->clock.cluster;
    if (job->prints) {
        say(stdout, 0, "\n%d device%s of %s, collectives: exact results, messages, bytes and additions",
            job->world->size, plural(job->world->size), m->name);
    }
    struct tally t = { .calls = 0 };
    for (int i = 0; algorithms[i] && !e; i++) {
        if (verify_takes(job, algorithms[i]->name)) e = run_algorithm(job, &g, algorithms[i], &t, err);
        if (e || (algorithms[i + 1] && algorithms[i + 1]->operation == algorithms[i]->operation)) continue;
        e = run_choice(job, &g, algorithms[i]->operation, &t, err);
        if (e) break;
        if (job->prints && (t.calls || t.refused[0])) print_tally(algorithms[i]->operation, &t);    /* after its last */
        t = (struct tally){ .calls = 0 };
    }
    group_close(&g);
    return e;
}
