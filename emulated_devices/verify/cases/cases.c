/* cases.c -- gives `orrery verify` its cases one after another, runs each, and compares bits of equal plans.
 * Callers are verify/jobs and test_covering.c.  Rank 0 searches alone, because a search may be long; the others wait
 * for its message.  The functions report ERR_CHECK and ERR_MEMORY, and pass on the errors of what they call. */
#include "emulated_devices/verify/cases/cases.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first plan of a key ended with these bits; choice says which plan. */
struct seen_bits { uint64_t key, hash; struct choice choice; };

enum error_code cases_open(struct cases *cases, struct comm *world, int devices, enum exact_rule exact,
                           struct error *err)
{
    memset(cases, 0, sizeof *cases);
    cases->world = world;
    const enum error_code e = space_open(&cases->space, devices, exact, err);
    if (e) return e;
    cases->covering = (struct covering){
        .dimensions = DIMENSIONS, .values = cases->space.values, .check = space_check, .context = &cases->space,
    };
    return covering_open(&cases->covering, err);
}

void cases_close(struct cases *cases)
{
    covering_close(&cases->covering);
    space_close(&cases->space);
    free(cases->seen);
    cases->seen = NULL;
}

void cases_begin(struct cases *cases, enum scheme_kind kind)
{
    /* The check of the covering reads the kind from the space, so the kind is set first. */
    cases->space.kind = kind;
    for (int d = 0; d < DIMENSIONS; d++) cases->covering.varies[d] = space_varies(kind, (enum dimension)d);
    cases->covering.first = space_of_kind(kind);
    covering_begin(&cases->covering);
}

/* ---- searched by one, for all ------------------------------------------------------------------------------------ */

static bool searches(const struct cases *cases) { return cases->world == NULL || cases->world->rank == 0; }

/* Send what rank 0 has found to all devices.  Without a world there is nobody to tell. */
static enum error_code cases_tell(struct cases *cases, void *found, uint64_t bytes, struct error *err)
{
    return cases->world ? comm_tell(cases->world, found, bytes, err) : OK;
}

enum error_code cases_next(struct cases *cases, struct next_case *next_case, struct error *err)
{
    memset(next_case, 0, sizeof *next_case);
    if (searches(cases)) next_case->result = covering_next(&cases->covering, &next_case->choice, &next_case->pair,
                                                           &next_case->why);
    return cases_tell(cases, next_case, sizeof *next_case, err);
}

char *cases_describe(const struct cases *cases, const struct choice *choice, enum dimension but,
                     char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int d = 0; d < DIMENSIONS; d++) {
        /* Mesh, microbatches and chunks have columns of their own in the table of cases. */
        const bool told = d == DIM_MESH || d == DIM_MICROS || d == DIM_CHUNKS || d == (int)but;
        if (told || choice->value[d] == 0 || used >= size) continue;
        used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "",
                                 space_value(&cases->space, (enum dimension)d, choice->value[d]).text);
    }
    return text;
}

/* ---- bits -------------------------------------------------------------------------------------------------------- */

/* Find the bits of a key; NULL if no plan with this key has been trained. */
static struct seen_bits *find_bits(struct cases *cases, uint64_t key)
{
    for (int i = 0; i < cases->count; i++)
        if (cases->seen[i].key == key) return &cases->seen[i];
    return NULL;
}

/* Keep the bits of a key.  The list grows, so older pointers into it become invalid. */
static enum error_code note_bits(struct cases *cases, uint64_t key, uint64_t hash, const struct choice *choice,
                                 struct error *err)
{
    if (cases->count == cases->room) {
        struct seen_bits *more = realloc(cases->seen, (size_t)(cases->room + 64) * sizeof *more);
        if (more == NULL) return fail(err, ERR_MEMORY, "no memory for the bits of %d cases", cases->room);
        cases->seen = more, cases->room += 64;
    }
    cases->seen[cases->count++] = (struct seen_bits){ key, hash, *choice };
    return OK;
}

/* Train the plan with the most default values for a choice's key, if it is another one, and store its bits. */
static enum error_code train_twin(struct cases *cases, uint64_t key, const struct choice *x, struct error *err)
{
    struct { struct choice choice; bool is_another; } plain = { *x, false };
    uint64_t hash = 0;
    /* The twin is searched by rank 0 alone: the search makes and checks many plans. */
    if (searches(cases)) plain.is_another = space_plain(&cases->space, x, &plain.choice);
    enum error_code e = cases_tell(cases, &plain, sizeof plain, err);
    if (e || !plain.is_another) return e;
    struct plan p = space_plan(&cases->space, &plain.choice);
    e = plan_check(&p, err);
    if (!e) e = case_train(&p, case_steps(&p), &hash, NULL, err);
    return e ? e : note_bits(cases, key, hash, &plain.choice, err);
}

/* Compare a case's final weights with the bits of its key.  The first case of a key also trains its twin.  A
 * difference becomes the verdict unless the case is wrong already. */
static enum error_code compare_bits(struct cases *cases, const struct plan *plan, const struct choice *choice,
                                    struct case_outcome *outcome, struct error *err)
{
    uint64_t key;
    char text[200];
    enum error_code e = case_bits_key(plan, &key, err);
    if (!e && find_bits(cases, key) == NULL) e = train_twin(cases, key, choice, err);
    const struct seen_bits *twin = find_bits(cases, key);
    if (e || twin == NULL) return e ? e : note_bits(cases, key, outcome->outcome.whole_hash, choice, err);
    outcome->has_twin = true, outcome->same_bits = twin->hash == outcome->outcome.whole_hash;
    if (!outcome->same_bits && !outcome->verdict.code)
        fail(&outcome->verdict, ERR_CHECK,
             "weights have other bits than those of the same plan with %s, which adds in the same order",
             cases_describe(cases, &twin->choice, DIM_MESH, text, sizeof text)[0] ? text : "all as usual");
    return OK;
}

enum error_code cases_run(struct cases *cases, const struct choice *choice, struct plan *plan,
                          struct case_outcome *outcome, struct error *err)
{
    *outcome = (struct case_outcome){ .has_twin = false };
    *plan = space_plan(&cases->space, choice);
    enum error_code e = plan_check(plan, err);
    if (!e) e = case_run(plan, &outcome->outcome, err);
    outcome->verdict = outcome->outcome.verdict;
    return e ? e : compare_bits(cases, plan, choice, outcome, err);
}
