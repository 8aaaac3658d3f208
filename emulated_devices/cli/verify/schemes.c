/* schemes.c -- `orrery verify tensor`, data, ..: the cases of a kind of schemes, as lines and as JSON; rank 0
 * prints. */
#include "emulated_devices/cli/verify/verify.h"
#include "emulated_devices/verify/cases/cases.h"
#include "ref/io/terminal.h"
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

static const char *bits_word(const struct case_outcome *o)
{
    return !o->has_twin ? "-" : o->same_bits ? "==" : "other";
}

/* Print values that are not defaults after the line, or below it if there is no room. */
static void print_case(const struct cases *c, const struct choice *x, const struct plan *p,
                       const struct case_outcome *o)
{
    const enum dimension own = space_of_kind(c->space.kind);
    const struct outcome *r = &o->outcome;
    char with[300], size[32];
    cases_describe(c, x, own, with, sizeof with);
    snprintf(size, sizeof size, "M=%d v=%d", p->micros, p->chunks);
    const int used = printf("  %-14s %-14s %-7s %7.1e %5s %-5s %-5s %-5s %s",
                            space_value(&c->space, DIM_MESH, x->value[DIM_MESH]).text,
                            space_value(&c->space, own, x->value[own]).text, size, r->comparison.largest.error,
                            ratio(comparison_ratio(&r->comparison)).text,
                            r->traffic.code ? "other" : "==", r->memory.code ? "other" : "==", bits_word(o),
                            o->verdict.code ? "FAILED" : "ok");
    if (with[0] && used + 2 + (int)strlen(with) <= picture_columns(stdout)) printf("  %s\n", with);
    else if (with[0]) printf("\n%*s", WITH_INDENT, ""), print_wrapped(stdout, WITH_INDENT, with);
    else printf("\n");
    if (o->verdict.code) printf("%*s%s\n", WITH_INDENT, "", o->verdict.text);
    fflush(stdout);
}

static void record_case(struct job *j, const struct cases *c, const struct choice *x, const struct plan *p,
                        const struct case_outcome *o)
{
    const enum scheme_kind kind = c->space.kind;
    const enum dimension own = space_of_kind(kind);
    const struct comparison *r = &o->outcome.comparison;
    cJSON *to = verify_begin_case(j, scheme_kind_info(kind)->family, space_value(&c->space, own, x->value[own]).text,
                                  &o->verdict);
    cJSON *mesh = cJSON_AddObjectToObject(to, "mesh"), *with = cJSON_AddObjectToObject(to, "with");
    for (int a = 0; a < AXIS_COUNT; a++)
        cJSON_AddNumberToObject(mesh, axis_name((enum axis)a), a == EP ? plan_ep(p) : p->mesh.size[a]);
    for (int d = 0; d < DIMENSIONS; d++)
        if (x->value[d] && d != DIM_MESH && d != (int)own)
            cJSON_AddStringToObject(with, dimension_name((enum dimension)d),
                                    space_value(&c->space, (enum dimension)d, x->value[d]).text);
    cJSON_AddNumberToObject(to, "micro", p->micros);
    cJSON_AddNumberToObject(to, "chunks", p->chunks);
    cJSON_AddStringToObject(to, "bits", bits_word(o));
    cJSON_AddNumberToObject(to, "compared", (double)r->compared);
    cJSON_AddNumberToObject(to, "largest_error", r->largest.error);
    cJSON_AddNumberToObject(to, "largest_ratio", comparison_ratio(r));
    add_worst(to, "loss", &r->loss);
    add_worst(to, "gradients", &r->gradient);
    add_worst(to, "weights", &r->weight);
    cJSON_AddBoolToObject(to, "traffic_equals_formulas", o->outcome.traffic.code == OK);
    cJSON_AddBoolToObject(to, "memory_equals_formulas", o->outcome.memory.code == OK);
}

/* Report two values that no plan can have together, and the reason. */
static void refuse_pair(struct job *j, const struct cases *c, const struct next_case *n)
{
    const struct value_pair *p = &n->pair;
    char text[120];
    int used = 0;
    for (int i = 0; i < 2 && p->dimension[i] >= 0; i++) {
        const enum dimension d = (enum dimension)p->dimension[i];
        used += snprintf(text + used, sizeof text - (size_t)used, "%s%s %s", i ? " with " : "", dimension_name(d),
                         space_value(&c->space, d, p->value[i]).text);
    }
    verify_refuse(j, scheme_kind_info(c->space.kind)->family, text, &n->why);
}

static enum error_code run_case(struct job *j, struct cases *c, const struct choice *x, struct error *err)
{
    struct plan plan;
    struct case_outcome o;
    const enum error_code e = cases_run(c, x, &plan, &o, err);
    if (e || !j->speaks) return e;
    record_case(j, c, x, &plan, &o);
    if (j->prints) print_case(c, x, &plan, &o);
    return OK;
}

enum error_code verify_schemes(struct job *j, struct cases *c, enum scheme_kind kind, struct error *err)
{
    const int P = j->world->size;
    struct next_case n;
    enum error_code e;
    cases_begin(c, kind);
    if (j->prints)
        printf("\n%d device%s, %-*s %7s %5s %-5s %-5s bits\n", P, plural(P), P > 9 ? 27 : 29 - (P > 1),
               scheme_kind_info(kind)->family, "error", "ratio", "sent", "mem");
    while ((e = cases_next(c, &n, err)) == OK && n.result != COVERING_DONE) {
        if (!verify_takes(j)) continue;
        if (n.result == COVERING_REFUSED) refuse_pair(j, c, &n);
        else if ((e = run_case(j, c, &n.choice, err)) != OK) break;
    }
    return e;
}
