/* job.c -- one device of a verifying job: runs families of cases one after another; rank 0 prints.  cli/verify.c,
 * collectives.c, schemes.c and spatial.c call these functions.  ERR_CHECK counts the cases that did not hold, after
 * all have run; ERR_PLAN means too many devices. */
#include "emulated_devices/verify/jobs/job.h"
#include "emulated_devices/verify/cases/cases.h"
#include "ref/io/json.h"
#include <stdio.h>
#include <string.h>

bool verify_takes(struct job *job, const char *name)
{
    /* A case of "zero3 /2" is of zero3. */
    const size_t n = job->only ? strlen(job->only) : 0;
    if (n > 0 && (strncmp(name, job->only, n) != 0 || (name[n] != '\0' && name[n] != ' '))) return false;
    return job->place++ % job->part.of == job->part.number - 1;
}

cJSON *verify_begin_case(struct job *job, const char *family, const char *scheme, const struct error *verdict)
{
    cJSON *o = json_add(json_row(job->cases), "family %s scheme %s devices %d passed %hhd", family, scheme,
                        job->world->size, verdict->code == OK);
    if (verdict->code) json_add(o, "why %s", verdict->text);
    job->count.cases++;
    job->count.passed += verdict->code == OK;
    return o;
}

void verify_refuse(struct job *job, const char *family, const char *what, const struct error *why)
{
    job->count.refused++;
    if (!job->speaks) return;
    json_add(json_row(job->cases), "family %s scheme %s devices %d refused %s", family, what, job->world->size,
             why->text);
}

/* ---- families ---------------------------------------------------------------------------------------------------- */

/* The kind of schemes of a family; collectives come first. */
static enum scheme_kind kind_at(int place)
{
    for (int k = 0; k < SCHEME_KINDS; k++)
        if (scheme_at((enum scheme_kind)k, 0) && --place == 0) return (enum scheme_kind)k;
    return SCHEME_KINDS;
}

/* Families of cases that are drawn, after those of schemes; a new one is a line here and a file. */
static const struct { const char *name; enum error_code (*run)(struct job *, struct error *); } drawn_family[] = {
    { VERIFY_PLANS, verify_plans }, { VERIFY_ELASTIC, verify_elastic }, { VERIFY_PLANNERS, verify_planners },
    { VERIFY_SERVING, verify_serving },
};
static const struct verify_above *above;

void verify_add_family(const struct verify_above *family) { above = family; }

enum { DRAWN_FAMILIES = sizeof drawn_family / sizeof *drawn_family };
_Static_assert(1 + SCHEME_KINDS + DRAWN_FAMILIES <= VERIFY_FAMILIES, "verify.c lists all families");

/* The place among them of a family that has no kind. */
static int drawn_at(int place)
{
    int kinds = 0;
    while (kind_at(kinds + 1) < SCHEME_KINDS) kinds++;
    return place - kinds - 1;
}

const char *verify_family(int place)
{
    if (place == 0) return "collectives";
    const enum scheme_kind k = kind_at(place);
    if (k < SCHEME_KINDS) return scheme_kind_info(k)->family;
    const int drawn = drawn_at(place);
    if (drawn < DRAWN_FAMILIES) return drawn_family[drawn].name;
    return drawn == DRAWN_FAMILIES && above ? above->name : NULL;
}

static enum error_code run_family(struct job *job, struct cases *cases, int place, struct error *err)
{
    const enum scheme_kind kind = kind_at(place);
    if (place == 0) return verify_collectives(job, err);
    if (kind == SPATIAL_SCHEME) return verify_tiles(job, err);
    if (kind < SCHEME_KINDS) return verify_schemes(job, cases, kind, err);
    const int drawn = drawn_at(place);
    return drawn < DRAWN_FAMILIES ? drawn_family[drawn].run(job, err) : above->run(job, err);
}

static enum error_code write_job(struct job *job, const char *path, struct error *err)
{
    cJSON *root = json_add(cJSON_CreateObject(), "devices %d run %d passed %d refused %d invariants %g",
                           job->world->size, job->count.cases, job->count.passed, job->count.refused,
                           (double)job->count.invariants);
    cJSON_AddItemReferenceToObject(root, "cases", job->cases);
    return json_finish(path, root, err);
}

void verify_print_count(struct verify_count all)
{
    printf("%d case%s, %d passed", all.cases, plural(all.cases), all.passed);
    if (all.refused) printf("; %d refused", all.refused);
    printf("; invariants compared %lld times", (long long)all.invariants);
}

static void print_count(const struct job *job)
{
    printf("\n%d device%s: ", job->world->size, plural(job->world->size));
    verify_print_count(job->count);
    printf("\n");
    fflush(stdout);
}

static enum error_code run_families(struct job *job, struct cases *cases, const struct verify_options *options,
                                    struct error *err)
{
    const char *family;
    enum error_code e = OK;
    for (int i = 0; (family = verify_family(i)) != NULL && !e; i++) {
        if (options->what && strcmp(options->what, family) != 0) continue;
        /* Collectives and tiles have no arithmetic of their own; drawn cases say theirs, and plans take any. */
        const bool takes = i > 0 && kind_at(i) != SPATIAL_SCHEME
            && (kind_at(i) != SCHEME_KINDS || strcmp(family, VERIFY_PLANS) == 0);
        if (options->exact && !takes) continue;
        e = run_family(job, cases, i, err);
    }
    if (!e && job->prints) print_count(job);
    if (!e && job->speaks && options->json) e = write_job(job, options->json, err);
    if (!e && job->speaks && job->count.passed != job->count.cases)
        e = fail(err, ERR_CHECK, "on %d device%s, %d of %d cases did not hold", job->world->size,
                 plural(job->world->size), job->count.cases - job->count.passed, job->count.cases);
    return comm_agree(job->world, e, err);
}

enum error_code verify_device(struct comm *world, const void *asked, struct error *err)
{
    const struct verify_options *o = asked;
    struct job j = { .world = world, .speaks = world->rank == 0, .prints = world->rank == 0 && !o->quiet,
                     .only = o->only, .part = o->part, .exact = o->exact };
    struct cases c;
    if (world->size > VERIFY_MOST_DEVICES)
        return fail(err, ERR_PLAN, "verify: %d devices are too many; at most %d", world->size, VERIFY_MOST_DEVICES);
    j.cases = cJSON_CreateArray();
    enum error_code e = comm_agree(world, cases_open(&c, world, world->size, o->exact, err), err);
    if (!e) e = run_families(&j, &c, o, err);
    cases_close(&c);
    cJSON_Delete(j.cases);
    return e;
}
