#include "emulated_devices/verify/cases/cases.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct seen_bits { uint64_t key, hash; struct choice choice; };

enum error_code cases_open(struct cases *c, struct comm *world, int devices, struct error *err)
{
    memset(c, 0, sizeof *c);
    c->world = world;
    const enum error_code e = space_open(&c->space, devices, err);
    if (e) return e;
    c->covering = (struct covering){
        .dimensions = DIMENSIONS, .values = c->space.values, .check = space_check, .context = &c->space,
    };
    return covering_open(&c->covering, err);
}

void cases_close(struct cases *c)
{
    covering_close(&c->covering);
    space_close(&c->space);
    free(c->seen);
    c->seen = NULL;
}

void cases_begin(struct cases *c, enum scheme_kind kind)
{
    c->space.kind = kind;
    for (int d = 0; d < DIMENSIONS; d++) c->covering.varies[d] = space_varies(kind, (enum dimension)d);
    c->covering.first = space_of_kind(kind);
    covering_begin(&c->covering);
}

/* ---- searched by one, for all ------------------------------------------------------------------------------------ */

static bool searches(const struct cases *c) { return c->world == NULL || c->world->rank == 0; }

static enum error_code tell(struct cases *c, void *found, uint64_t bytes, struct error *err)
{
    return c->world ? comm_tell(c->world, found, bytes, err) : OK;
}

enum error_code cases_next(struct cases *c, struct next_case *n, struct error *err)
{
    memset(n, 0, sizeof *n);
    if (searches(c)) n->result = covering_next(&c->covering, &n->choice, &n->pair, &n->why);
    return tell(c, n, sizeof *n, err);
}

char *cases_describe(const struct cases *c, const struct choice *x, enum dimension but, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int d = 0; d < DIMENSIONS; d++) {
        const bool told = d == DIM_MESH || d == DIM_MICROS || d == DIM_CHUNKS || d == (int)but;
        if (told || x->value[d] == 0 || used >= size) continue;
        used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "",
                                 space_value(&c->space, (enum dimension)d, x->value[d]).text);
    }
    return text;
}

/* ---- bits -------------------------------------------------------------------------------------------------------- */

static struct seen_bits *find_bits(struct cases *c, uint64_t key)
{
    for (int i = 0; i < c->count; i++)
        if (c->seen[i].key == key) return &c->seen[i];
    return NULL;
}

static enum error_code note_bits(struct cases *c, uint64_t key, uint64_t hash, const struct choice *x,
                                 struct error *err)
{
    if (c->count == c->room) {
        struct seen_bits *more = realloc(c->seen, (size_t)(c->room + 64) * sizeof *more);
        if (more == NULL) return fail(err, ERR_MEMORY, "no memory for the bits of %d cases", c->room);
        c->seen = more, c->room += 64;
    }
    c->seen[c->count++] = (struct seen_bits){ key, hash, *x };
    return OK;
}

/* Train the plan with the most default values for a choice's key, if it is another one, and store its bits. */
static enum error_code train_twin(struct cases *c, uint64_t key, const struct choice *x, struct error *err)
{
    struct { struct choice choice; bool is_another; } plain = { *x, false };
    uint64_t hash = 0;
    if (searches(c)) plain.is_another = space_plain(&c->space, x, &plain.choice);
    enum error_code e = tell(c, &plain, sizeof plain, err);
    if (e || !plain.is_another) return e;
    struct plan p = space_plan(&c->space, &plain.choice);
    e = plan_check(&p, err);
    if (!e) e = case_train(&p, case_steps(&p), &hash, NULL, err);
    return e ? e : note_bits(c, key, hash, &plain.choice, err);
}

static enum error_code compare_bits(struct cases *c, const struct plan *p, const struct choice *x,
                                    struct case_outcome *o, struct error *err)
{
    uint64_t key;
    char text[200];
    enum error_code e = case_bits_key(p, &key, err);
    if (!e && find_bits(c, key) == NULL) e = train_twin(c, key, x, err);
    const struct seen_bits *twin = find_bits(c, key);
    if (e || twin == NULL) return e ? e : note_bits(c, key, o->outcome.whole_hash, x, err);
    o->has_twin = true, o->same_bits = twin->hash == o->outcome.whole_hash;
    if (!o->same_bits && !o->verdict.code)
        fail(&o->verdict, ERR_CHECK,
             "weights have other bits than those of the same plan with %s, which adds in the same order",
             cases_describe(c, &twin->choice, DIM_MESH, text, sizeof text)[0] ? text : "all as usual");
    return OK;
}

enum error_code cases_run(struct cases *c, const struct choice *x, struct plan *p, struct case_outcome *o,
                          struct error *err)
{
    *o = (struct case_outcome){ .has_twin = false };
    *p = space_plan(&c->space, x);
    enum error_code e = plan_check(p, err);
    if (!e) e = case_run(p, &o->outcome, err);
    o->verdict = o->outcome.verdict;
    return e ? e : compare_bits(c, p, x, o, err);
}
