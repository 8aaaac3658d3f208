/* plan_space.c -- the dimensions of a search: how many values each has, how a value changes a plan, and its words.
 * The planners, changes.c and cli/train/search.c call.  Errors are in the words of the command line: ERR_USAGE and
 * ERR_PLAN.  Without memory the code is ERR_MEMORY. */
#include "emulated_devices/plan/plan.h"
#include "emulated_devices/search/arrange.h"
#include "emulated_devices/plan/recompute.h"
#include "ref/io/options.h"
#include "ref/model/kinds.h"
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists of words ---------------------------------------------------------------------------------------------- */

/* Whether a word is in a list with commas; a list that is NULL has every word. */
static bool list_has(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        /* A word must end where the list's does: zero1 is no zero10. */
        if (strncmp(at, word, n) == 0 && (at[n] == ',' || at[n] == '\0')) return true;
    return list == NULL;
}

bool plan_space_list_has(const char *list, int number)
{
    char word[16];
    snprintf(word, sizeof word, "%d", number);
    return list_has(list, word);
}

/* Whether every word is a number above 0 without a leading zero, so that plan_space_list_has finds it. */
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
static const char *const stage_cuts[] = { "even", "embedding", "loss", "ends" };        /* stage_layers.h */
static const int stage_ends[] = { 0, 1, 1, 2 };         /* ends of the model that count as a layer */
enum {
    RECOMPUTATIONS = sizeof recomputations / sizeof *recomputations, OFFLOADS = sizeof offloaded / sizeof *offloaded,
    STAGE_CUTS = sizeof stage_cuts / sizeof *stage_cuts
};

/* Each dimension has a flag on the command line, for errors and for a plan's words. */
static const char *const flags[] = {
#define X(id, flag) flag,
    DIMENSIONS(X)
#undef X
};

const char *plan_space_flag(enum dimension dimension) { return flags[dimension]; }

static const struct { enum dimension dimension; enum scheme_kind kind; } kinds[] = {
    { BY_TENSOR, TENSOR_SCHEME }, { BY_ATTENTION, ATTENTION_SCHEME }, { BY_EXPERTS, EXPERT_SCHEME },
    { BY_DATA, DATA_SCHEME }, { BY_SCHEDULE, PIPELINE_SCHEME },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* A dimension chooses from this kind of schemes; -1: it chooses no scheme. */
static int kind_of(enum dimension dimension)
{
    for (int i = 0; i < KINDS; i++)
        if (kinds[i].dimension == dimension) return (int)kinds[i].kind;
    return -1;
}

/* Count the schemes of a kind in the registry. */
static int schemes_of(enum scheme_kind kind)
{
    int n = 0;
    while (scheme_at(kind, n)) n++;
    return n;
}

/* The names that a dimension's list may have.  @return how many. */
static size_t names_of(enum dimension dimension, const char *name[])
{
    const int kind = kind_of(dimension);
    size_t n = 0;
    for (int i = 0; kind >= 0 && scheme_at((enum scheme_kind)kind, i); i++)
        name[n++] = scheme_at((enum scheme_kind)kind, i)->name;
    for (int i = 0; dimension == BY_RECOMPUTE && i < RECOMPUTATIONS; i++) name[n++] = recomputations[i];
    for (int i = 0; dimension == BY_OFFLOAD && i < OFFLOADS; i++) name[n++] = offloaded[i];
    for (int i = 0; dimension == BY_STAGES && i < STAGE_CUTS; i++) name[n++] = stage_cuts[i];
    return n;
}

/* Whether an expert scheme orders rows by a table of tokens, which is made for one plan. */
static bool needs_table(int scheme) { return expert_scheme_at(scheme)->predicts; }

/* The word behind a flag. */
struct value_word { char text[160]; };

/* Whether a list is the layers of each stage, 7,8,8,7, which all plans with a pipeline then have. */
static bool is_one_cut(const char *list) { return list && (list[0] == '.' || (list[0] >= '0' && list[0] <= '9')); }

/* Check that every word of a list is a name of its dimension; the error suggests the most similar name. */
static enum error_code check_names(enum dimension dimension, const char *list, struct error *err)
{
    const char *name[SCHEMES_MOST];
    const size_t n = names_of(dimension, name);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        char word[64];
        size_t i = 0;
        snprintf(word, sizeof word, "%.*s", (int)strcspn(at, ","), at);
        while (i < n && strcmp(name[i], word) != 0) i++;
        if (i == n) return fail_unknown_name(err, flags[dimension], word, name, n);
        if (dimension == BY_EXPERTS && needs_table((int)i))
            return fail(err, ERR_USAGE, "--dispatch %s: needs a table of tokens, --affinity, and a search has none",
                        word);
    }
    return OK;
}

/* Check all lists of the command line before anything is searched. */
static enum error_code check_lists(const struct plan_space *space, struct error *err)
{
    enum error_code e = OK;
    for (enum dimension d = BY_MESH; d < DIMENSION_COUNT && !e; d++) {
        if (space->only[d] == NULL) continue;
        if (d == BY_STAGES && is_one_cut(space->only[d])) {
            if (strlen(space->only[d]) >= sizeof (struct value_word))
                e = fail(err, ERR_USAGE, "--stage-layers %.20s..: a search takes up to %zu letters; write .. for "
                         "stages that share the other layers", space->only[d], sizeof (struct value_word) - 1);
            continue;
        }
        e = d == BY_MICROS || d == BY_CHUNKS || d == BY_SPLIT ? check_numbers(flags[d], space->only[d], err)
                                             : check_names(d, space->only[d], err);
    }
    if (!e) e = check_numbers("--ring-window", space->windows, err);
    for (enum axis a = 0; a < AXIS_COUNT && !e; a++) {
        char flag[16];
        snprintf(flag, sizeof flag, "--%s", axis_name(a));
        e = check_numbers(flag, space->sizes[a], err);
    }
    return e;
}

/* ---- meshes ------------------------------------------------------------------------------------------------------ */

/* Some meshes cannot be, whatever the schemes are. */
static bool mesh_fits(const struct plan_space *space, const struct arrangement *arrangement)
{
    /* A mesh must have the sizes that are asked for and no more stages than layers.  Its parts must divide batch and
     * experts. */
    const struct plan *p = space->base;
    const int stage = arrangement->size[DP] * arrangement->size[CP] * arrangement->size[TP];
    const bool mixture = p->model.mlp == MLP_MIXTURE;
    for (enum axis x = 0; x < AXIS_COUNT; x++)
        if (!plan_space_list_has(space->sizes[x], x == EP ? arrangement->ep : arrangement->size[x])) return false;
    return arrangement->size[PP] <= p->model.L && p->B % arrangement->size[DP] == 0 && arrangement->size[CP] <= p->S &&
           (arrangement->ep == 1
            || (mixture && stage % arrangement->ep == 0 && p->model.mixture.E % arrangement->ep == 0));
}

/* Add a mesh if it fits.  @return false: there is no memory. */
static bool add_mesh(struct plan_space *space, const struct arrangement *arrangement, int *room)
{
    if (!mesh_fits(space, arrangement)) return true;
    if (space->meshes == *room) {
        struct arrangement *more = realloc(space->mesh, (size_t)(*room = 2 * *room + 64) * sizeof *more);
        if (more == NULL) return false;
        space->mesh = more;
    }
    space->mesh[space->meshes++] = *arrangement;
    return true;
}

/* The only size that an axis may have; 0: it may have several. */
static int only_size(const struct plan_space *space, enum axis axis)
{
    const char *const list = space->sizes[axis];
    return list && strchr(list, ',') == NULL ? (int)strtol(list, NULL, 10) : 0;
}

/* Say which sizes that are asked for leave no mesh: of one axis, of all together, or with the model and the batch. */
static enum error_code fail_no_mesh(const struct plan_space *space, struct error *err)
{
    const struct plan *const p = space->base;
    const int n = space->devices, pp = only_size(space, PP), dp = only_size(space, DP);
    char words[120] = "";
    int64_t together = 1;
    for (enum axis a = 0; a < AXIS_COUNT; a++) {
        const int size = only_size(space, a);
        const size_t used = strlen(words);
        if (size == 0 || a == EP) continue;
        together *= size;
        snprintf(words + used, sizeof words - used, "%s--%s %d", used ? " " : "", axis_name(a), size);
    }
    if (n % together != 0)
        return fail(err, ERR_PLAN, "--devices %d: cannot be divided by the %lld of %s", n, (long long)together, words);
    if (pp > p->model.L)
        return fail(err, ERR_PLAN, "--pp %d: %s has %lld layers", pp, p->model.name, (long long)p->model.L);
    if (dp > 0 && p->B % dp != 0)
        return fail(err, ERR_PLAN, "--dp %d: does not divide the batch of %lld sequences", dp, (long long)p->B);
    return fail(err, ERR_PLAN, "--devices %d: there is no mesh of %d devices with the sizes asked for", n, n);
}

enum error_code plan_space_open(struct plan_space *space, struct error *err)
{
    const int n = space->devices;
    int room = 0;
    const bool mixture = space->base->model.mlp == MLP_MIXTURE;
    bool memory = true;
    enum error_code e = check_lists(space, err);
    if (e) return e;
    /* Each loop tries all sizes of an axis that the axes before it leave: divisors of what is left of the devices. */
    for (int tp = 1; tp <= n; tp++)
        for (int cp = 1; cp <= n / tp && n % tp == 0; cp++)
            for (int dp = 1; dp <= n / tp / cp && n % (tp * cp) == 0; dp++)
                for (int ep = 1; ep <= (mixture ? tp * cp * dp : 1) && n % (tp * cp * dp) == 0; ep++) {
                    /* pp is what is left of the devices. */
                    const struct arrangement a = {
                        .size = { [PP] = n / tp / cp / dp, [DP] = dp, [CP] = cp, [EP] = 1, [TP] = tp }, .ep = ep
                    };
                    memory = memory && (tp * cp * dp % ep != 0 || add_mesh(space, &a, &room));
                }
    if (!memory) return fail(err, ERR_MEMORY, "no memory for a list of meshes");
    return space->meshes == 0 ? fail_no_mesh(space, err) : OK;
}

void plan_space_close(struct plan_space *space)
{
    free(space->mesh);
    space->mesh = NULL, space->meshes = 0;
}

/* Set the mesh and the parts of the experts; experts are not sliced in a search. */
static bool set_mesh(struct plan *plan, const struct arrangement *arrangement)
{
    plan->ep = arrangement->ep, plan->etp = 1;
    return mesh_make(&plan->mesh, arrangement->size, NULL) == OK;
}

/* ---- other dimensions -------------------------------------------------------------------------------------------- */

/* The nth divisor of a number, from the smallest; 0: there are not so many. */
static int64_t divisor(int64_t number, int n)
{
    for (int64_t d = 1; d <= number; d++)
        if (number % d == 0 && n-- == 0) return d;
    return 0;
}

/* Count the divisors of a number. */
static int divisors(int64_t number)
{
    int n = 0;
    while (divisor(number, n)) n++;
    return n;
}

/* Whether there is anything for a kind of schemes to split. */
static bool splits(const struct plan *plan, enum scheme_kind kind)
{
    switch (kind) {
    case TENSOR_SCHEME:    return plan->mesh.size[TP] > 1;
    case ATTENTION_SCHEME: return plan->mesh.size[CP] > 1;
    case EXPERT_SCHEME:    return plan->ep > 1;
    case DATA_SCHEME:      return plan_copies(plan) > 1;
    case PIPELINE_SCHEME:  return plan->mesh.size[PP] > 1;
    default:               return false;
    }
}

/* Put a scheme's name where the plan keeps names of its kind. */
static void set_name(struct plan *plan, enum scheme_kind kind, const char *name)
{
    if (kind == TENSOR_SCHEME) plan->tensor = name;
    if (kind == ATTENTION_SCHEME) plan->attention = name;
    if (kind == EXPERT_SCHEME) plan->dispatch = name;
    if (kind == DATA_SCHEME) plan->data.scheme = name;
    if (kind == PIPELINE_SCHEME) plan->schedule = name;
}

/* Set a scheme.  Where its axis has one device the first scheme stands for all.  A scheme that trains another
 * function must be named in a list. */
static bool set_scheme(const struct plan_space *space, enum dimension dimension, struct plan *plan, int value)
{
    const enum scheme_kind kind = (enum scheme_kind)kind_of(dimension);
    const struct scheme *scheme = scheme_at(kind, value);
    set_name(plan, kind, scheme->name);
    if (kind == EXPERT_SCHEME && needs_table(value)) return false;
    const bool taken = scheme->equality != DIFFERS || space->only[dimension] != NULL;
    return !splits(plan, kind) || (taken && list_has(space->only[dimension], scheme->name));
}

/* Set the number of stages on a device: the schedule's own number, or a number that cuts the layers evenly. */
static bool set_chunks(const struct plan_space *space, struct plan *plan, int value)
{
    const struct schedule_generator *g = schedule_generator(plan->schedule, NULL);
    plan->chunks = g->chunks ? g->chunks : value + 1;
    if (g->chunks) return value == 0;
    /* The ends of the model may count as layers; a list of all stages is checked with the plan. */
    int64_t layers = plan->model.L;
    for (int i = 0; i < STAGE_CUTS && plan->stage_layers; i++)
        if (strcmp(plan->stage_layers, stage_cuts[i]) == 0) layers += stage_ends[i];
    return plan->mesh.size[PP] == 1 || plan_space_list_has(space->only[BY_CHUNKS], plan->chunks)
               ? plan->chunks == 1 || is_one_cut(plan->stage_layers)
                 || layers % (plan->mesh.size[PP] * plan->chunks) == 0 : false;
}

int plan_space_values(const struct plan_space *space, enum dimension dimension, const struct plan *plan)
{
    struct context_split split;
    int shards[3];
    const int kind = kind_of(dimension), pp = plan->mesh.size[PP];
    if (kind >= 0) return splits(plan, (enum scheme_kind)kind) ? schemes_of((enum scheme_kind)kind) : 1;
    switch (dimension) {
    case BY_MESH:      return space->meshes;
    case BY_MICROS:    return divisors(plan->B / plan->mesh.size[DP]);
    case BY_RECOMPUTE: return RECOMPUTATIONS;
    case BY_OFFLOAD:   return OFFLOADS;
    case BY_STAGES:    return pp == 1 ? 1 : STAGE_CUTS;
    case BY_SPLIT:     return arrange_split(space, plan, INT_MAX, &split);
    case BY_SHARDS:    return arrange_shards(space, plan, INT_MAX, shards);
    case BY_CHUNKS:    return pp == 1 ? 1 : (int)(plan->model.L / pp);
    default:           return 1;
    }
}

/* Set how many layers the stages have.  Without a list they have equally many. */
static bool set_stages(const char *list, struct plan *plan, int value)
{
    const bool alone = plan->mesh.size[PP] == 1;
    plan->stage_layers = alone ? NULL : is_one_cut(list) ? list : value ? stage_cuts[value] : NULL;
    if (alone || list == NULL || is_one_cut(list)) return value == 0;
    return list_has(list, stage_cuts[value]);
}

/* Set microbatches, recomputation, a split, shards, offloading, stages or chunks.  The result says whether the lists
 * allow the value. */
static bool set_value(const struct plan_space *space, enum dimension dimension, struct plan *plan, int value)
{
    switch (dimension) {
    case BY_MICROS:
        plan->micros = (int)divisor(plan->B / plan->mesh.size[DP], value);
        return plan_space_list_has(space->only[dimension], plan->micros);
    case BY_RECOMPUTE:
        plan->recompute = value ? recomputations[value] : NULL;
        return list_has(space->only[dimension], recomputations[value]);
    case BY_SPLIT:
        return arrange_split(space, plan, value, &plan->split) > value;
    case BY_SHARDS:
        return arrange_shards(space, plan, value, plan->data.shards) > value;
    case BY_OFFLOAD:
        plan->data.offload = value ? 1u << OPTIMIZER : 0;
        return space->only[dimension] ? list_has(space->only[dimension], offloaded[value]) : value == 0;
    case BY_STAGES:
        return set_stages(space->only[dimension], plan, value);
    default:
        return set_chunks(space, plan, value);
    }
}

bool plan_space_set(const struct plan_space *space, enum dimension dimension, struct plan *plan, int value)
{
    if (dimension == BY_MESH) return set_mesh(plan, &space->mesh[value]);
    return kind_of(dimension) >= 0 ? set_scheme(space, dimension, plan, value)
           : set_value(space, dimension, plan, value);
}

bool plan_space_is_legal(struct plan *plan)
{
    struct error unread;
    return plan_check(plan, &unread) == OK;
}

bool plan_space_make(const struct plan_space *space, const struct choice *choice, struct plan *plan)
{
    *plan = *space->base;
    for (enum dimension d = BY_MESH; d < DIMENSION_COUNT; d++)
        if (choice->value[d] >= plan_space_values(space, d, plan) || !plan_space_set(space, d, plan, choice->value[d]))
            return false;
    return plan_space_is_legal(plan);
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

/* Set one dimension to each of its values and go on with the next.  A refused value cuts off all plans behind it. */
static enum error_code descend(struct all *all, enum dimension dimension, const struct plan *plan)
{
    const int values = plan_space_values(all->s, dimension, plan);
    enum error_code e = OK;
    for (int i = 0; i < values && !e; i++) {
        struct plan q = *plan;
        all->choice.value[dimension] = i;
        if (!plan_space_set(all->s, dimension, &q, i)) continue;
        e = dimension + 1 < DIMENSION_COUNT ? descend(all, dimension + 1, &q) : all->at_end(all, &q);
    }
    return e;
}

/* Pass a plan on if plan_check takes it; the walk's usual end. */
static enum error_code call_if_legal(struct all *all, struct plan *plan)
{
    return plan_space_is_legal(plan) ? all->each(plan, &all->choice, all->context, all->err) : OK;
}

enum error_code plan_space_each(const struct plan_space *space, plan_space_fn *each, void *context, struct error *err)
{
    struct all w = { .s = space, .at_end = call_if_legal, .each = each, .context = context, .err = err };
    return descend(&w, BY_MESH, space->base);
}

/* ---- why there is none ------------------------------------------------------------------------------------------- */

enum { SPACE_TRIED = 20000, REFUSALS = 64 };

/* Refusals of plan_check by their texts.  A text that finds the table full is counted in `tried` alone. */
struct refusals {
    struct { struct error why; int count; } of[REFUSALS];
    int texts, tried;
};

/* @return OK, or what ends the walk.  ERR_PLAN: a plan is legal; ERR_CHECK, without a text: SPACE_TRIED are enough. */
static enum error_code refusals_add(struct all *all, struct plan *plan)
{
    struct refusals *const refusals = all->context;
    struct error why = { 0 };
    int i = 0;
    if (plan_check(plan, &why) == OK)
        return fail(all->err, ERR_PLAN, "--devices %d: this planner finds no plan, although there are some; "
                    "try --planner exhaustive", all->s->devices);
    while (i < refusals->texts && strcmp(refusals->of[i].why.text, why.text) != 0) i++;
    if (i == refusals->texts && i < REFUSALS) refusals->of[refusals->texts++].why = why;
    if (i < REFUSALS) refusals->of[i].count++;
    return ++refusals->tried < SPACE_TRIED ? OK : ERR_CHECK;
}

enum error_code plan_space_explain(const struct plan_space *space, struct error *err)
{
    struct refusals refusals = { .texts = 0 };
    struct all w = { .s = space, .at_end = refusals_add, .context = &refusals, .err = err };
    /* The reason that refuses most plans is told, with how many it refuses. */
    int most = 0;
    if (descend(&w, BY_MESH, space->base) == ERR_PLAN) return ERR_PLAN;
    for (int i = 1; i < refusals.texts; i++) most = refusals.of[i].count > refusals.of[most].count ? i : most;
    if (refusals.texts == 0)
        return fail(err, ERR_PLAN, "--devices %d: no mesh, scheme and number of microbatches can be combined",
                    space->devices);
    return fail(err, ERR_PLAN, "--devices %d: no plan is possible; %d of %d are refused so: %s", space->devices,
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

/* These dimensions have words, in the order of the words. */
static const enum dimension told[] = {
    BY_TENSOR, BY_ATTENTION, BY_SPLIT, BY_EXPERTS, BY_DATA, BY_SHARDS, BY_SCHEDULE, BY_STAGES, BY_CHUNKS, BY_RECOMPUTE,
    BY_OFFLOAD, BY_MICROS
};
enum { TOLD = sizeof told / sizeof *told };

/* The words of a split behind --head-parallel. */
static struct value_word split_word(const struct context_split *split)
{
    struct value_word word, window = { "" };
    if (split->window > 0) snprintf(window.text, sizeof window.text, " --ring-window %d", split->window);
    snprintf(word.text, sizeof word.text, "%d%.40s%s", split->heads, window.text,
             split->context_first ? " --context-first" : "");
    return word;
}

/* Return the word behind the flag of a dimension. */
static struct value_word value_word(const struct plan *plan, enum dimension dimension)
{
    const char *const name[DIMENSION_COUNT] = {
        [BY_TENSOR] = plan->tensor, [BY_ATTENTION] = plan->attention, [BY_EXPERTS] = plan->dispatch,
            [BY_DATA] = plan->data.scheme,
        [BY_SCHEDULE] = plan->schedule, [BY_RECOMPUTE] = plan->recompute, [BY_OFFLOAD] = plan->data.offload
            ? "optimizer" : NULL, [BY_STAGES] = plan->stage_layers ? plan->stage_layers : "even",
    };
    const int number = dimension == BY_MICROS ? plan->micros : plan->chunks > 1 ? plan->chunks : 1;
    const int *const shards = plan->data.shards;
    struct value_word word;
    if (dimension == BY_SPLIT) return split_word(&plan->split);
    if (dimension == BY_SHARDS) snprintf(word.text, sizeof word.text, "%d,%d,%d", shards[0], shards[1], shards[2]);
    else if (dimension == BY_MICROS || dimension == BY_CHUNKS) snprintf(word.text, sizeof word.text, "%d", number);
    else snprintf(word.text, sizeof word.text, "%s", name[dimension] ? name[dimension] : "none");
    return word;
}

/* Whether the plan has a value of this dimension that is to be said. */
static bool has_word(const struct plan *plan, enum dimension dimension)
{
    const int kind = kind_of(dimension);
    if (kind >= 0) return splits(plan, (enum scheme_kind)kind);
    if (dimension == BY_SPLIT) return plan->split.heads > 0 && plan->mesh.size[CP] > 1;
    if (dimension == BY_STAGES) return plan->stage_layers != NULL;
    if (dimension == BY_SHARDS) return plan->data.shards[0] > 0 && plan_copies(plan) > 1;
    return dimension == BY_MICROS
           || (dimension == BY_CHUNKS ? plan->chunks > 1 : dimension == BY_RECOMPUTE ? plan->recompute != NULL
                                                                                  : plan->data.offload != 0);
}

/* Whether two plans have another word for a dimension, or only one of both has a word. */
static bool plan_space_differs(const struct plan *a, const struct plan *b, enum dimension dimension)
{
    return (has_word(a, dimension) || has_word(b, dimension))
           && strcmp(value_word(a, dimension).text, value_word(b, dimension).text) != 0;
}

/* Remove the blank behind the last word. */
static void end_words(char *text)
{
    const size_t used = strlen(text);
    if (used > 0 && text[used - 1] == ' ') text[used - 1] = '\0';
}

const char *plan_space_words(const struct plan *plan, char *text, size_t size)
{
    text[0] = '\0';
    for (enum axis a = 0; a < AXIS_COUNT; a++) {
        const int n = a == EP ? plan->ep : plan->mesh.size[a];
        if (n > 1) add_words(text, size, "--%s %d ", axis_name(a), n);
    }
    for (int i = 0; i < TOLD; i++)
        if (has_word(plan, told[i])) add_words(text, size, "%s %s ", flags[told[i]], value_word(plan, told[i]).text);
    end_words(text);
    return text;
}

const char *plan_space_difference(const struct plan *from, const struct plan *to, char *text, size_t size)
{
    text[0] = '\0';
    for (int i = 0; i < TOLD; i++)
        if (plan_space_differs(from, to, told[i]))
            add_words(text, size, "%s %s ", flags[told[i]], value_word(to, told[i]).text);
    end_words(text);
    return text;
}

int plan_space_unusual(const struct plan *base, const struct plan *plan)
{
    int n = 0;
    for (int i = 0; i < TOLD; i++)
        n += has_word(plan, told[i]) && strcmp(value_word(base, told[i]).text, value_word(plan, told[i]).text) != 0;
    return n;
}
