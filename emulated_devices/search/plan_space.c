#include "emulated_devices/search/plan_space.h"
#include "emulated_devices/plan/recompute.h"
#include "ref/io/options.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists of words ---------------------------------------------------------------------------------------------- */

static bool list_has(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, word, n) == 0 && (at[n] == ',' || at[n] == '\0')) return true;
    return list == NULL;
}

static bool list_has_number(const char *list, int number)
{
    char word[16];
    snprintf(word, sizeof word, "%d", number);
    return list_has(list, word);
}

/* Whether every word is a number above 0 without a leading zero, so that list_has_number finds it. */
static enum error_code check_numbers(const char *flag, const char *list, struct error *err)
{
    for (const char *at = list; at && *at; ) {
        char *end;
        const long n = *at >= '1' && *at <= '9' ? strtol(at, &end, 10) : 0;
        if (n < 1 || n > 1000000 || (*end != ',' && *end != '\0') || (*end == ',' && end[1] == '\0'))
            return fail(err, ERR_USAGE, "%s %.60s: must be numbers above 0 with commas between, such as 1,2,4", flag,
                        list);
        at = *end == ',' ? end + 1 : end;
    }
    return list && !*list ? fail(err, ERR_USAGE, "%s: must be numbers such as 1,2,4", flag) : OK;
}

/* ---- names of a dimension ---------------------------------------------------------------------------------------- */

static const char *const recomputations[] = { "none", "selective", "selective++", "full" };
static const char *const offloaded[] = { "none", "optimizer" };
enum {
    RECOMPUTATIONS = sizeof recomputations / sizeof *recomputations, OFFLOADS = sizeof offloaded / sizeof *offloaded
};

static const char *const flags[] = {
#define X(id, flag) flag,
    DIMENSIONS(X)
#undef X
};

static const struct { enum dimension dimension; enum scheme_kind kind; } kinds[] = {
    { BY_TENSOR, TENSOR_SCHEME }, { BY_ATTENTION, ATTENTION_SCHEME }, { BY_EXPERTS, EXPERT_SCHEME },
    { BY_DATA, DATA_SCHEME }, { BY_SCHEDULE, PIPELINE_SCHEME },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* The kind of schemes that a dimension chooses from; -1: it chooses no scheme. */
static int kind_of(enum dimension d)
{
    for (int i = 0; i < KINDS; i++)
        if (kinds[i].dimension == d) return (int)kinds[i].kind;
    return -1;
}

static int schemes_of(enum scheme_kind kind)
{
    int n = 0;
    while (scheme_at(kind, n)) n++;
    return n;
}

/* The names that a dimension's list may have.  @return how many. */
static size_t names_of(enum dimension d, const char *name[])
{
    const int kind = kind_of(d);
    size_t n = 0;
    for (int i = 0; kind >= 0 && scheme_at((enum scheme_kind)kind, i); i++)
        name[n++] = scheme_at((enum scheme_kind)kind, i)->name;
    for (int i = 0; d == BY_RECOMPUTE && i < RECOMPUTATIONS; i++) name[n++] = recomputations[i];
    for (int i = 0; d == BY_OFFLOAD && i < OFFLOADS; i++) name[n++] = offloaded[i];
    return n;
}

/* Whether an expert scheme orders rows by a table of tokens, which is made for one plan. */
static bool needs_table(int scheme) { return expert_scheme_at(scheme)->predicts; }

static enum error_code check_names(enum dimension d, const char *list, struct error *err)
{
    const char *name[SCHEMES_MOST];
    const size_t n = names_of(d, name);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        char word[64];
        size_t i = 0;
        snprintf(word, sizeof word, "%.*s", (int)strcspn(at, ","), at);
        while (i < n && strcmp(name[i], word) != 0) i++;
        if (i == n) return fail_unknown_name(err, flags[d], word, name, n);
        if (d == BY_EXPERTS && needs_table((int)i))
            return fail(err, ERR_USAGE, "--dispatch %s: needs a table of tokens, --affinity, and a search has none",
                        word);
    }
    return OK;
}

static enum error_code check_lists(const struct plan_space *s, struct error *err)
{
    enum error_code e = OK;
    for (enum dimension d = BY_MESH; d < DIMENSION_COUNT && !e; d++) {
        if (s->only[d] == NULL) continue;
        e = d == BY_MICROS || d == BY_CHUNKS ? check_numbers(flags[d], s->only[d], err)
                                             : check_names(d, s->only[d], err);
    }
    for (enum axis a = 0; a < AXIS_COUNT && !e; a++) {
        char flag[16];
        snprintf(flag, sizeof flag, "--%s", axis_name(a));
        e = check_numbers(flag, s->sizes[a], err);
    }
    return e;
}

/* ---- meshes ------------------------------------------------------------------------------------------------------ */

/* What of a mesh cannot be, whatever the schemes are. */
static bool mesh_fits(const struct plan_space *s, const struct arrangement *a)
{
    const struct plan *p = s->base;
    const int stage = a->size[DP] * a->size[CP] * a->size[TP];
    const bool mixture = p->model.mlp == MLP_MIXTURE;
    for (enum axis x = 0; x < AXIS_COUNT; x++)
        if (!list_has_number(s->sizes[x], x == EP ? a->ep : a->size[x])) return false;
    return a->size[PP] <= p->model.L && p->B % a->size[DP] == 0 && a->size[CP] <= p->S &&
           (a->ep == 1 || (mixture && stage % a->ep == 0 && p->model.mixture.E % a->ep == 0));
}

static bool add_mesh(struct plan_space *s, const struct arrangement *a, int *room)
{
    if (!mesh_fits(s, a)) return true;
    if (s->meshes == *room) {
        struct arrangement *more = realloc(s->mesh, (size_t)(*room = 2 * *room + 64) * sizeof *more);
        if (more == NULL) return false;
        s->mesh = more;
    }
    s->mesh[s->meshes++] = *a;
    return true;
}

enum error_code plan_space_open(struct plan_space *s, struct error *err)
{
    const int n = s->devices;
    int room = 0;
    bool memory = true;
    enum error_code e = check_lists(s, err);
    if (e) return e;
    for (int tp = 1; tp <= n; tp++)
        for (int cp = 1; cp <= n / tp; cp++)
            for (int dp = 1; dp <= n / tp / cp && n % (tp * cp) == 0; dp++)
                for (int ep = 1; ep <= tp * cp * dp && n % (tp * cp * dp) == 0; ep++) {
                    const struct arrangement a = {
                        .size = { [PP] = n / tp / cp / dp, [DP] = dp, [CP] = cp, [EP] = 1, [TP] = tp }, .ep = ep
                    };
                    memory = memory && (ep == 1 || s->base->model.mlp == MLP_MIXTURE ? add_mesh(s, &a, &room) : true);
                }
    if (!memory) return fail(err, ERR_MEMORY, "no memory for a list of meshes");
    if (s->meshes == 0)
        return fail(err, ERR_PLAN, "--devices %d: there is no mesh of %d devices with the sizes asked for", n, n);
    return OK;
}

void plan_space_close(struct plan_space *s)
{
    free(s->mesh);
    s->mesh = NULL, s->meshes = 0;
}

static bool set_mesh(struct plan *p, const struct arrangement *a)
{
    p->ep = a->ep, p->etp = 1;
    return mesh_make(&p->mesh, a->size, NULL) == OK;
}

/* ---- other dimensions -------------------------------------------------------------------------------------------- */

/* The nth divisor of a number, from the smallest; 0: there are not so many. */
static int64_t divisor(int64_t number, int n)
{
    for (int64_t d = 1; d <= number; d++)
        if (number % d == 0 && n-- == 0) return d;
    return 0;
}

static int divisors(int64_t number)
{
    int n = 0;
    while (divisor(number, n)) n++;
    return n;
}

/* Whether there is anything for a kind of schemes to split. */
static bool splits(const struct plan *p, enum scheme_kind kind)
{
    switch (kind) {
    case TENSOR_SCHEME:    return p->mesh.size[TP] > 1;
    case ATTENTION_SCHEME: return p->mesh.size[CP] > 1;
    case EXPERT_SCHEME:    return p->ep > 1;
    case DATA_SCHEME:      return plan_copies(p) > 1;
    case PIPELINE_SCHEME:  return p->mesh.size[PP] > 1;
    default:               return false;
    }
}

static void set_name(struct plan *p, enum scheme_kind kind, const char *name)
{
    if (kind == TENSOR_SCHEME) p->tensor = name;
    if (kind == ATTENTION_SCHEME) p->attention = name;
    if (kind == EXPERT_SCHEME) p->dispatch = name;
    if (kind == DATA_SCHEME) p->data.scheme = name;
    if (kind == PIPELINE_SCHEME) p->schedule = name;
}

static bool set_scheme(const struct plan_space *s, enum dimension d, struct plan *p, int value)
{
    const enum scheme_kind kind = (enum scheme_kind)kind_of(d);
    const struct scheme *scheme = scheme_at(kind, value);
    set_name(p, kind, scheme->name);
    if (kind == EXPERT_SCHEME && needs_table(value)) return false;
    const bool taken = scheme->equality != DIFFERS || s->only[d] != NULL;
    return !splits(p, kind) || (taken && list_has(s->only[d], scheme->name));
}

static bool set_chunks(const struct plan_space *s, struct plan *p, int value)
{
    const struct schedule_generator *g = schedule_generator(p->schedule, NULL);
    p->chunks = g->chunks ? g->chunks : value + 1;
    if (g->chunks) return value == 0;
    return p->mesh.size[PP] == 1 || list_has_number(s->only[BY_CHUNKS], p->chunks)
               ? p->chunks == 1 || p->model.L % (p->mesh.size[PP] * p->chunks) == 0 : false;
}

int plan_space_values(const struct plan_space *s, enum dimension d, const struct plan *p)
{
    const int kind = kind_of(d), pp = p->mesh.size[PP];
    if (kind >= 0) return splits(p, (enum scheme_kind)kind) ? schemes_of((enum scheme_kind)kind) : 1;
    switch (d) {
    case BY_MESH:      return s->meshes;
    case BY_MICROS:    return divisors(p->B / p->mesh.size[DP]);
    case BY_RECOMPUTE: return RECOMPUTATIONS;
    case BY_OFFLOAD:   return OFFLOADS;
    case BY_CHUNKS:    return pp == 1 ? 1 : (int)(p->model.L / pp);
    default:           return 1;
    }
}

/* Microbatches, stages and the classes that are offloaded. */
static bool set_value(const struct plan_space *s, enum dimension d, struct plan *p, int value)
{
    switch (d) {
    case BY_MICROS:
        p->micros = (int)divisor(p->B / p->mesh.size[DP], value);
        return list_has_number(s->only[d], p->micros);
    case BY_RECOMPUTE:
        p->recompute = value ? recomputations[value] : NULL;
        return list_has(s->only[d], recomputations[value]);
    case BY_OFFLOAD:
        p->data.offload = value ? 1u << OPTIMIZER : 0;
        return s->only[d] ? list_has(s->only[d], offloaded[value]) : value == 0;
    default:
        return set_chunks(s, p, value);
    }
}

bool plan_space_set(const struct plan_space *s, enum dimension d, struct plan *p, int value)
{
    if (d == BY_MESH) return set_mesh(p, &s->mesh[value]);
    return kind_of(d) >= 0 ? set_scheme(s, d, p, value) : set_value(s, d, p, value);
}

bool plan_space_is_legal(struct plan *p)
{
    struct error unread;
    return plan_check(p, &unread) == OK;
}

bool plan_space_make(const struct plan_space *s, const struct choice *c, struct plan *p)
{
    *p = *s->base;
    for (enum dimension d = BY_MESH; d < DIMENSION_COUNT; d++)
        if (c->value[d] >= plan_space_values(s, d, p) || !plan_space_set(s, d, p, c->value[d])) return false;
    return plan_space_is_legal(p);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

/* A walk over all choices.  at_end gets each plan whose dimensions are all set, legal or not. */
struct all {
    const struct plan_space *s;
    enum error_code (*at_end)(struct all *, struct plan *);
    plan_space_fn *each;
    void *context;
    struct error *err;
    struct choice choice;
};

static enum error_code descend(struct all *w, enum dimension d, const struct plan *p)
{
    const int values = plan_space_values(w->s, d, p);
    enum error_code e = OK;
    for (int i = 0; i < values && !e; i++) {
        struct plan q = *p;
        w->choice.value[d] = i;
        if (!plan_space_set(w->s, d, &q, i)) continue;
        e = d + 1 < DIMENSION_COUNT ? descend(w, d + 1, &q) : w->at_end(w, &q);
    }
    return e;
}

static enum error_code call_if_legal(struct all *w, struct plan *p)
{
    return plan_space_is_legal(p) ? w->each(p, &w->choice, w->context, w->err) : OK;
}

enum error_code plan_space_each(const struct plan_space *s, plan_space_fn *each, void *context, struct error *err)
{
    struct all w = { .s = s, .at_end = call_if_legal, .each = each, .context = context, .err = err };
    return descend(&w, BY_MESH, s->base);
}

/* ---- why there is none ------------------------------------------------------------------------------------------- */

enum { SPACE_TRIED = 20000, REFUSALS = 64 };

/* Refusals of plan_check by their texts.  A text that finds the table full is counted in `tried` alone. */
struct refusals {
    struct { struct error why; int count; } of[REFUSALS];
    int texts, tried;
};

/* @return OK, or what ends the walk.  ERR_PLAN: a plan is legal; ERR_CHECK, without a text: SPACE_TRIED are enough. */
static enum error_code refusals_add(struct all *w, struct plan *p)
{
    struct refusals *const refusals = w->context;
    struct error why = { 0 };
    int i = 0;
    if (plan_check(p, &why) == OK)
        return fail(w->err, ERR_PLAN, "--devices %d: this planner finds no plan, although there are some; "
                    "try --planner exhaustive", w->s->devices);
    while (i < refusals->texts && strcmp(refusals->of[i].why.text, why.text) != 0) i++;
    if (i == refusals->texts && i < REFUSALS) refusals->of[refusals->texts++].why = why;
    if (i < REFUSALS) refusals->of[i].count++;
    return ++refusals->tried < SPACE_TRIED ? OK : ERR_CHECK;
}

enum error_code plan_space_explain(const struct plan_space *s, struct error *err)
{
    struct refusals refusals = { .texts = 0 };
    struct all w = { .s = s, .at_end = refusals_add, .context = &refusals, .err = err };
    int most = 0;
    if (descend(&w, BY_MESH, s->base) == ERR_PLAN) return ERR_PLAN;
    for (int i = 1; i < refusals.texts; i++) most = refusals.of[i].count > refusals.of[most].count ? i : most;
    if (refusals.texts == 0)
        return fail(err, ERR_PLAN, "--devices %d: no mesh, scheme and number of microbatches can be combined",
                    s->devices);
    return fail(err, ERR_PLAN, "--devices %d: no plan is possible; %d of %d are refused so: %s", s->devices,
                refusals.of[most].count, refusals.tried, refusals.of[most].why.text);
}

/* ---- as words ---------------------------------------------------------------------------------------------------- */

static void add_words(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void add_words(char *text, size_t size, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, size - used, format, args);
    va_end(args);
}

/* The dimensions that have words, in the order of these words. */
static const enum dimension told[] = {
    BY_TENSOR, BY_ATTENTION, BY_EXPERTS, BY_DATA, BY_SCHEDULE, BY_CHUNKS, BY_RECOMPUTE, BY_OFFLOAD, BY_MICROS
};
enum { TOLD = sizeof told / sizeof *told };

struct value_word { char text[64]; };

/* Return the word behind the flag of a dimension. */
static struct value_word value_word(const struct plan *p, enum dimension d)
{
    const char *const name[DIMENSION_COUNT] = {
        [BY_TENSOR] = p->tensor, [BY_ATTENTION] = p->attention, [BY_EXPERTS] = p->dispatch, [BY_DATA] = p->data.scheme,
        [BY_SCHEDULE] = p->schedule, [BY_RECOMPUTE] = p->recompute, [BY_OFFLOAD] = p->data.offload ? "optimizer" : NULL,
    };
    const int number = d == BY_MICROS ? p->micros : p->chunks > 1 ? p->chunks : 1;
    struct value_word word;
    if (d == BY_MICROS || d == BY_CHUNKS) snprintf(word.text, sizeof word.text, "%d", number);
    else snprintf(word.text, sizeof word.text, "%s", name[d] ? name[d] : "none");
    return word;
}

/* Whether the plan has a value of this dimension that is to be said. */
static bool has_word(const struct plan *p, enum dimension d)
{
    const int kind = kind_of(d);
    if (kind >= 0) return splits(p, (enum scheme_kind)kind);
    return d == BY_MICROS || (d == BY_CHUNKS ? p->chunks > 1 : d == BY_RECOMPUTE ? p->recompute != NULL
                                                                                  : p->data.offload != 0);
}

static bool differs(const struct plan *a, const struct plan *b, enum dimension d)
{
    return (has_word(a, d) || has_word(b, d)) && strcmp(value_word(a, d).text, value_word(b, d).text) != 0;
}

static void end_words(char *text)
{
    const size_t used = strlen(text);
    if (used > 0 && text[used - 1] == ' ') text[used - 1] = '\0';
}

const char *plan_space_words(const struct plan *p, char *text, size_t size)
{
    text[0] = '\0';
    for (enum axis a = 0; a < AXIS_COUNT; a++) {
        const int n = a == EP ? p->ep : p->mesh.size[a];
        if (n > 1) add_words(text, size, "--%s %d ", axis_name(a), n);
    }
    for (int i = 0; i < TOLD; i++)
        if (has_word(p, told[i])) add_words(text, size, "%s %s ", flags[told[i]], value_word(p, told[i]).text);
    end_words(text);
    return text;
}

const char *plan_space_difference(const struct plan *from, const struct plan *to, char *text, size_t size)
{
    text[0] = '\0';
    for (int i = 0; i < TOLD; i++)
        if (differs(from, to, told[i])) add_words(text, size, "%s %s ", flags[told[i]], value_word(to, told[i]).text);
    end_words(text);
    return text;
}

int plan_space_unusual(const struct plan *base, const struct plan *p)
{
    int n = 0;
    for (int i = 0; i < TOLD; i++)
        n += has_word(p, told[i]) && strcmp(value_word(base, told[i]).text, value_word(p, told[i]).text) != 0;
    return n;
}
