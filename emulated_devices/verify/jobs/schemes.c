/* schemes.c -- `orrery verify tensor`, data, ..: the cases of a kind of schemes, as lines and as JSON; rank 0
 * prints.  job.c calls verify_schemes().  A case that does not hold is counted, and is no error.  Other errors end
 * the job: ERR_MEMORY, ERR_COMM. */
#include "emulated_devices/verify/jobs/job.h"
#include "emulated_devices/verify/cases/cases.h"
#include "emulated_devices/verify/cases/drawn.h"
#include "ref/io/json.h"
#include "ref/io/terminal.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { WITH_INDENT = 6 };

struct ratio_text { char text[16]; };

/* Three decimals; above 100 only the order of magnitude. */
static struct ratio_text ratio(double r)
{
    struct ratio_text t;
    snprintf(t.text, sizeof t.text, r < 100 ? "%.3f" : "%.0e", r);
    return t;
}

static const char *bits_word(const struct case_outcome *outcome)
{
    return !outcome->has_twin ? "-" : outcome->same_bits ? "==" : "other";
}

/* Print values that are not defaults after the line, or below it if there is no room. */
static void print_case(const struct cases *cases, const struct choice *choice, const struct plan *plan,
                       const struct case_outcome *outcome)
{
    const enum dimension own = space_of_kind(cases->space.kind);
    const struct outcome *r = &outcome->outcome;
    char with[300], size[32];
    cases_describe(cases, choice, own, with, sizeof with);
    snprintf(size, sizeof size, "M=%d v=%d", plan->micros, plan->chunks);
    const int used = printf("  %-14s %-14s %-7s %7.1e %5s %-5s %-5s %-5s %s",
                            space_value(&cases->space, DIM_MESH, choice->value[DIM_MESH]).text,
                            space_value(&cases->space, own, choice->value[own]).text, size, r->comparison.largest.error,
                            ratio(comparison_ratio(&r->comparison)).text,
                            r->traffic.code ? "other" : "==", r->memory.code ? "other" : "==", bits_word(outcome),
                            outcome->verdict.code ? "FAILED" : "ok");
    if (with[0] && used + 2 + (int)strlen(with) <= picture_columns(stdout)) printf("  %s\n", with);
    else if (with[0]) printf("\n%*s", WITH_INDENT, ""), print_wrapped(stdout, WITH_INDENT, with);
    else printf("\n");
    if (outcome->verdict.code) printf("%*s%s\n", WITH_INDENT, "", outcome->verdict.text);
    fflush(stdout);
}

/* ---- invariants of schemes that plan or adapt -------------------------------------------------------------------- */

/* How often each was compared, of the schemes of a kind: in cases, and for drawn inputs. */
struct tally { struct invariant_counts of[SCHEMES_MOST]; };

static void schemes_add_counts(struct job *job, struct tally *tally, const struct invariant_counts *counts)
{
    int i = 0;
    if (counts->scheme == NULL || counts->scheme->invariants == NULL) return;
    while (tally->of[i].scheme && tally->of[i].scheme != counts->scheme) i++;
    tally->of[i].scheme = counts->scheme;
    for (int k = 0; k < INVARIANTS_MOST; k++) tally->of[i].checked[k] += counts->checked[k];
    job->count.invariants += invariants_checked(counts);
}

static void record_counts(cJSON *to, const struct invariant_counts *counts)
{
    for (int i = 0; counts->scheme && counts->scheme->invariants && counts->scheme->invariants[i].name; i++) {
        char name[80];
        snprintf(name, sizeof name, "%s %s", counts->scheme->name, counts->scheme->invariants[i].name);
        cJSON_AddNumberToObject(to, name, (double)counts->checked[i]);
    }
}

/* A line for each scheme that has some; 0 where nothing was to be decided, as on one device. */
static void print_tally(const struct tally *tally)
{
    for (int i = 0; tally->of[i].scheme; i++) {
        const struct invariant_counts *const c = &tally->of[i];
        char text[400];
        int used = 0;
        for (int k = 0; c->scheme->invariants[k].name; k++)
            used += snprintf(text + used, sizeof text - (size_t)used, "%s%s %lld", k ? ", " : "",
                             c->scheme->invariants[k].name, (long long)c->checked[k]);
        if (i == 0) printf("  invariants, and how often they were compared\n");
        printf("    %-12s ", c->scheme->name);
        print_wrapped(stdout, 4 + 12 + 1, text);
    }
}

/* Digests are texts: a number of JSON has 53 bits. */
static void record_digest(cJSON *to, const struct digest *digest)
{
    const struct { const char *name; uint64_t value; } row[] = {
        { "numbers", digest->numbers }, { "counters", digest->counters }, { "memory", digest->memory },
        { "time", digest->time },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char text[17];
        snprintf(text, sizeof text, "%016" PRIx64, row[i].value);
        cJSON_AddStringToObject(to, row[i].name, text);
    }
}

static void record_case(struct job *job, const struct cases *cases, const struct choice *choice,
                        const struct plan *plan, const struct case_outcome *outcome)
{
    const enum scheme_kind kind = cases->space.kind;
    const enum dimension own = space_of_kind(kind);
    const struct comparison *r = &outcome->outcome.comparison;
    cJSON *to = verify_begin_case(job, scheme_kind_info(kind)->family,
                                  space_value(&cases->space, own, choice->value[own]).text, &outcome->verdict);
    cJSON *mesh = cJSON_AddObjectToObject(to, "mesh"), *with = cJSON_AddObjectToObject(to, "with");
    for (int a = 0; a < AXIS_COUNT; a++)
        cJSON_AddNumberToObject(mesh, axis_name((enum axis)a), a == EP ? plan_ep(plan) : plan->mesh.size[a]);
    for (int d = 0; d < DIMENSIONS; d++)
        if (choice->value[d] && d != DIM_MESH && d != (int)own)
            cJSON_AddStringToObject(with, dimension_name((enum dimension)d),
                                    space_value(&cases->space, (enum dimension)d, choice->value[d]).text);
    json_add(to, "micro %d chunks %d bits %s compared %g largest_error %g largest_ratio %g", plan->micros, plan->chunks,
             bits_word(outcome), (double)r->compared, r->largest.error, comparison_ratio(r));
    worst_add(to, "loss", &r->loss);
    worst_add(to, "gradients", &r->gradient);
    worst_add(to, "weights", &r->weight);
    json_add(to, "traffic_equals_formulas %hhd memory_equals_formulas %hhd", outcome->outcome.traffic.code == OK,
             outcome->outcome.memory.code == OK);
    record_digest(cJSON_AddObjectToObject(to, "digest"), &outcome->outcome.digest);
    cJSON *invariants = cJSON_AddObjectToObject(to, "invariants");
    for (int i = 0; i < ADAPTING; i++) record_counts(invariants, &outcome->outcome.adapted[i]);
}

/* A case of each scheme of the kind that plans or adapts: drawn inputs, in which there is much to adapt to. */
static enum error_code run_drawn(struct job *job, enum scheme_kind kind, struct tally *tally, struct error *err)
{
    const struct scheme *s;
    enum error_code e = OK;
    for (int i = 0; (s = scheme_at(kind, i)) != NULL && !e; i++) {
        struct invariant_counts c;
        struct error found = { 0 };
        if (s->invariants == NULL || !verify_takes(job, s->name)) continue;
        e = adaptation_drawn(s, job->world, &c, &found);
        if (e && e != ERR_CHECK) return fail(err, e, "%s", found.text);
        schemes_add_counts(job, tally, &c);
        e = OK;
        if (!job->speaks) continue;
        cJSON *to = verify_begin_case(job, scheme_kind_info(kind)->family, s->name, &found);
        json_add(cJSON_AddObjectToObject(to, "with"), "inputs %s", "drawn");
        record_counts(cJSON_AddObjectToObject(to, "invariants"), &c);
        if (job->prints)
            printf("  %-14s %-14s %s\n", "drawn inputs", s->name, found.code ? "FAILED" : "ok");
        if (job->prints && found.code) printf("%*s%s\n", WITH_INDENT, "", found.text);
    }
    return e;
}

/* Report two values that no plan can have together, and the reason. */
static void refuse_pair(struct job *job, const struct cases *cases, const struct next_case *next_case)
{
    const struct value_pair *p = &next_case->pair;
    char text[120];
    int used = 0;
    for (int i = 0; i < 2 && p->dimension[i] >= 0; i++) {
        const enum dimension d = (enum dimension)p->dimension[i];
        used += snprintf(text + used, sizeof text - (size_t)used, "%s%s %s", i ? " with " : "", dimension_name(d),
                         space_value(&cases->space, d, p->value[i]).text);
    }
    verify_refuse(job, scheme_kind_info(cases->space.kind)->family, text, &next_case->why);
}

static enum error_code run_case(struct job *job, struct cases *cases, const struct choice *choice, struct tally *tally,
                                struct error *err)
{
    struct plan plan;
    struct case_outcome o;
    const enum error_code e = cases_run(cases, choice, &plan, &o, err);
    if (e || !job->speaks) return e;
    for (int i = 0; i < ADAPTING; i++)         /* what has no scheme is listed where something was to be decided */
        if (i < ADAPTS_PLACEMENT || invariants_checked(&o.outcome.adapted[i]) > 0)
            schemes_add_counts(job, tally, &o.outcome.adapted[i]);
    record_case(job, cases, choice, &plan, &o);
    if (job->prints) print_case(cases, choice, &plan, &o);
    return OK;
}

enum error_code verify_schemes(struct job *job, struct cases *cases, enum scheme_kind kind, struct error *err)
{
    const int P = job->world->size;
    struct next_case n;
    struct tally tally = { 0 };
    enum error_code e;
    cases_begin(cases, kind);
    if (job->prints)
        printf("\n%d device%s, %-*s %7s %5s %-5s %-5s bits\n", P, plural(P), P > 9 ? 27 : 29 - (P > 1),
               scheme_kind_info(kind)->family, "error", "ratio", "sent", "mem");
    while ((e = cases_next(cases, &n, err)) == OK && n.result != COVERING_DONE) {
        struct value_name own = { "" };         /* of a pair that no plan can have: of no scheme */
        if (n.result != COVERING_REFUSED)
            own = space_value(&cases->space, space_of_kind(kind), n.choice.value[space_of_kind(kind)]);
        if (!verify_takes(job, own.text)) continue;
        if (n.result == COVERING_REFUSED) refuse_pair(job, cases, &n);
        else if ((e = run_case(job, cases, &n.choice, &tally, err)) != OK) break;
    }
    if (!e) e = run_drawn(job, kind, &tally, err);
    if (job->prints) print_tally(&tally);
    return e;
}
