/* collectives.c -- `orrery verify collectives`: every algorithm of every operation; rank 0 prints. */
#include "emulated_devices/verify/cases/collectives.h"
#include "emulated_devices/cli/verify/verify.h"
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

static void print_tally(enum operation op, const struct tally *t)
{
    char line[800];
    int used = snprintf(line, sizeof line, "%s, %d calls: %s", t->failed ? "FAILED" : "ok", t->calls, t->names);
    if (t->refused[0]) snprintf(line + used, sizeof line - (size_t)used, "; not for this group: %s", t->refused);
    printf("  %-15s ", operation_name(op));
    print_wrapped(stdout, 18, line);
    fflush(stdout);
}

static void record_algorithm(struct job *j, const struct algorithm *a, const struct algorithm_outcome *o,
                             struct tally *t)
{
    char scheme[80];
    snprintf(scheme, sizeof scheme, "%s %s", operation_name(a->operation), a->name);
    if (o->refused) {
        struct error why;
        fail(&why, ERR_PLAN, "%s", o->refused);
        verify_refuse(j, "collectives", scheme, &why);
        add_name(t->refused, sizeof t->refused, a->name);
        return;
    }
    cJSON *c = verify_begin_case(j, "collectives", scheme, &o->verdict);
    cJSON_AddNumberToObject(c, "calls", o->calls);
    cJSON_AddNumberToObject(c, "elements", (double)o->elements);
    t->calls += o->calls;
    t->failed = t->failed || o->verdict.code != OK;
    add_name(t->names, sizeof t->names, a->name);
    if (j->prints && o->verdict.code) printf("      %s\n", o->verdict.text);
}

/* Time the choice of `auto` after the algorithms of an operation, unless blocks have places of their own. */
static enum error_code run_choice(struct job *j, struct group *g, enum operation op, struct tally *t, struct error *err)
{
    struct algorithm_outcome o;
    const struct algorithm named = { .name = ALGORITHM_AUTO, .operation = op };
    const bool sparse = op == SPARSE_ALLGATHER || op == SPARSE_REDUCE_SCATTER;
    if (sparse || g->size == 1 || !verify_takes(j)) return OK;
    const enum error_code e = verify_choice(g, op, &o, err);
    if (!e && j->speaks) record_algorithm(j, &named, &o, t);
    return e;
}

static enum error_code run_algorithm(struct job *j, struct group *g, const struct algorithm *a, struct tally *t,
                                     struct error *err)
{
    struct algorithm_outcome o;
    const enum error_code e = verify_algorithm(g, a, &o, err);
    if (!e && j->speaks) record_algorithm(j, a, &o, t);
    return e;
}

/* A group with the members in reverse order: code that confuses ranks with members fails. */
static enum error_code open_group(struct group *g, struct comm *world, struct error *err)
{
    int ranks[VERIFY_MOST_DEVICES];
    for (int i = 0; i < world->size; i++) ranks[i] = world->size - 1 - i;
    return comm_agree(world, group_of(g, world, ranks, world->size, TRAFFIC_OTHER, 0, err), err);
}

enum error_code verify_collectives(struct job *j, struct error *err)
{
    struct group g;
    enum error_code e = open_group(&g, j->world, err);
    if (e) return e;
    const struct cluster *m = &j->world->device->clock.cluster;
    if (j->prints) {
        printf("\n");
        say(stdout, 0, "%d device%s of %s, collectives: exact results, messages, bytes and additions", j->world->size,
            plural(j->world->size), m->name);
    }
    struct tally t = { .calls = 0 };
    for (int i = 0; algorithms[i] && !e; i++) {
        if (verify_takes(j)) e = run_algorithm(j, &g, algorithms[i], &t, err);
        if (e || (algorithms[i + 1] && algorithms[i + 1]->operation == algorithms[i]->operation)) continue;
        e = run_choice(j, &g, algorithms[i]->operation, &t, err);
        if (e) break;
        if (j->prints && (t.calls || t.refused[0])) print_tally(algorithms[i]->operation, &t);    /* after its last */
        t = (struct tally){ .calls = 0 };
    }
    group_close(&g);
    return e;
}
