/* stage_layers.c -- reads --stage-layers, and cuts the layers.  check.c calls stage_layers_cut for a plan of one mesh.
 * ERR_USAGE says what would be read, ERR_PLAN names the numbers that do not fit.  Nothing is allocated. */
#include "emulated_devices/plan/stage_layers.h"
#include "ref/io/options.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define STAGE_LAYERS_CHOICES "even, embedding, loss, ends, or a list such as 7,8,8,7 or 7,..,5"

/* The names, and which ends count as a layer. */
static const struct { const char *name; bool embedding, loss; } named[] = {
    { "even", false, false }, { "embedding", true, false }, { "loss", false, true }, { "ends", true, true },
};
enum { NAMED = sizeof named / sizeof *named };

static enum error_code stage_layers_refuse(const char *choice, struct error *err)
{
    const char *names[NAMED];
    for (int i = 0; i < NAMED; i++) names[i] = named[i].name;
    if (nearest_name(choice, names, NAMED)) return fail_unknown_name(err, "--stage-layers", choice, names, NAMED);
    return fail(err, ERR_USAGE, "--stage-layers %.80s: must be " STAGE_LAYERS_CHOICES, choice);
}

/* Cut layers, and ends that count as one, equally; then the ends leave the first and the last stage. */
static enum error_code cut_with_ends(int name, struct interval layers, int stages, int *first_layer, struct error *err)
{
    const int64_t before = named[name].embedding, all = before + layers.count + named[name].loss;
    for (int t = 0; t <= stages; t++) {
        int64_t first = block_start(all, stages, t) - before;
        if (first < 0) first = 0;
        if (first > layers.count) first = layers.count;
        first_layer[t] = (int)(layers.first + first);
    }
    if (first_layer[0] < first_layer[1] && first_layer[stages - 1] < first_layer[stages]) return OK;
    return fail(err, ERR_PLAN, "--stage-layers %s: %lld layers on %d stages leave an end without a layer; use fewer "
                "stages", named[name].name, (long long)layers.count, stages);
}

/* One item of a list: a number from 1 on, or 0 for `..`; *list moves past the item and its comma. */
static bool take_item(const char **list, int64_t *layers)
{
    char *end;
    const bool others = strncmp(*list, "..", 2) == 0;
    *layers = 0;
    if (!others && (**list < '1' || **list > '9')) return false;
    if (others) end = (char *)*list + 2;
    else *layers = strtoll(*list, &end, 10);
    const bool more = *end == ',';
    *list = end + more;
    return *layers < INT32_MAX && (more ? end[1] != '\0' : *end == '\0');
}

/* A list has so many items and numbers with this sum; others is the place of `..`, -1 if there is none. */
struct stage_list { int items, others; int64_t sum; };

static bool read_list(const char *choice, struct stage_list *list)
{
    *list = (struct stage_list){ .others = -1 };
    for (const char *at = choice; *at; list->items++) {
        int64_t layers;
        if (!take_item(&at, &layers) || (layers == 0 && list->others >= 0) || list->items == INT16_MAX) return false;
        if (layers == 0) list->others = list->items;
        list->sum += layers;
    }
    return list->items > 0;
}

/* Whether the list has a number for each stage, and each stage gets a layer. */
static enum error_code check_list(const char *choice, const struct stage_list *list, struct interval layers, int stages,
                                  struct error *err)
{
    const int numbers = list->items - (list->others >= 0), rest = stages - numbers;
    const int64_t left = layers.count - list->sum;
    if (list->others < 0 && rest != 0)
        return fail(err, ERR_PLAN, "--stage-layers %.80s: has %d numbers, but stages number %d", choice, numbers,
                    stages);
    if (rest < 0)
        return fail(err, ERR_PLAN, "--stage-layers %.80s: has %d numbers, but stages number only %d", choice, numbers,
                    stages);
    if (rest == 0 ? left == 0 : left >= rest) return OK;
    if (rest == 0 || left < 0)
        return fail(err, ERR_PLAN, "--stage-layers %.80s: adds up to %lld layers, but the model has %lld", choice,
                    (long long)list->sum, (long long)layers.count);
    return fail(err, ERR_PLAN, "--stage-layers %.80s: leaves %lld layers to %d stages, and each needs at least one",
                choice, (long long)left, rest);
}

static enum error_code cut_by_list(const char *choice, struct interval layers, int stages, int *first_layer,
                                   struct error *err)
{
    struct stage_list list;
    if (!read_list(choice, &list)) return stage_layers_refuse(choice, err);
    const enum error_code e = check_list(choice, &list, layers, stages, err);
    if (e) return e;
    const int rest = stages - list.items + 1;
    const int64_t left = layers.count - list.sum;
    int stage = 0;
    first_layer[0] = (int)layers.first;
    for (const char *at = choice; *at; ) {
        int64_t own;
        take_item(&at, &own);
        const int from = first_layer[stage];
        /* Stages in place of `..` share what is left, as stages without a choice would. */
        for (int i = 1; own == 0 && i <= rest; i++) first_layer[++stage] = from + (int)block_start(left, rest, i);
        if (own > 0) first_layer[++stage] = from + (int)own;
    }
    return OK;
}

enum error_code stage_layers_cut(const char *choice, struct interval layers, int stages, int *first_layer,
                                 struct error *err)
{
    for (int i = 0; i < NAMED; i++)
        if (strcmp(choice, named[i].name) == 0) return cut_with_ends(i, layers, stages, first_layer, err);
    return cut_by_list(choice, layers, stages, first_layer, err);
}
