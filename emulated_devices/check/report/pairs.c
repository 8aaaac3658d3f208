/* pairs.c -- lists the tensors of two dumps, compares each, and decides what its difference is.
 * emulated_devices/cli/check_against.c calls pairs_make once.  Only reading and memory fail, and dumps without a common
 * tensor. */
#include "emulated_devices/check/report/pairs.h"
#include "emulated_devices/check/report/execution.h"
#include "ref/golden/golden.h"
#include "ref/numeric/distance.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *pair_words(enum pair_verdict verdict)
{
    static const char *const all[] = {
#define X(id, words, differs, open) words,
        PAIR_VERDICTS(X)
#undef X
    };
    return all[verdict];
}

bool pair_differs(enum pair_verdict verdict)
{
    static const bool all[] = {
#define X(id, words, differs, open) differs,
        PAIR_VERDICTS(X)
#undef X
    };
    return all[verdict];
}

bool pair_is_open(enum pair_verdict verdict)
{
    static const bool all[] = {
#define X(id, words, differs, open) open,
        PAIR_VERDICTS(X)
#undef X
    };
    return all[verdict];
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* A name with its place, while the list is sorted. */
struct placed { char *name; struct execution at; };
struct placed_list { struct placed *all; int count, room; };

static int placed_by_name(const void *a, const void *b)
{
    return strcmp(((const struct placed *)a)->name, ((const struct placed *)b)->name);
}

static int placed_by_execution(const void *a, const void *b)
{
    const struct placed *const x = a, *const y = b;
    const int c = execution_compare(&x->at, &y->at);
    return c ? c : strcmp(x->name, y->name);
}

static void placed_free(struct placed_list *list)
{
    for (int i = 0; i < list->count; i++) free(list->all[i].name);
    free(list->all);
}

/* Add a copy of a name; names occur once for each piece. */
static bool placed_add(struct placed_list *list, const char *name, size_t length)
{
    if (list->count == list->room) {
        const int room = list->room ? 2 * list->room : 256;
        struct placed *more = realloc(list->all, (size_t)room * sizeof *more);
        if (more == NULL) return false;
        list->all = more, list->room = room;
    }
    char *const copy = malloc(length + 1);
    if (copy == NULL) return false;
    memcpy(copy, name, length), copy[length] = '\0';
    list->all[list->count++].name = copy;
    return true;
}

/* Add the names of all tensors of a dump that are computed, and of the weights that it begins with. */
static bool placed_of_dump(struct placed_list *list, const struct actual *actual)
{
    bool memory = true;
    for (int f = 0; f < actual->files; f++)
        for (int i = 0; i < actual->file[f].st.count && memory; i++) {
            const char *const key = actual->file[f].st.entry[i].name;
            if (golden_is_input(key) && strncmp(key, "start/", 6) != 0) continue;
            memory = placed_add(list, key, actual->dump ? strcspn(key, "#") : strlen(key));
        }
    return memory;
}

/* Keep each name once, in order of execution.  Pieces and ranks repeat names. */
static void placed_order(struct placed_list *list, const struct golden_list *golden)
{
    int once = 0;
    if (list->count > 0) qsort(list->all, (size_t)list->count, sizeof *list->all, placed_by_name);
    for (int i = 0; i < list->count; i++) {
        if (once > 0 && strcmp(list->all[once - 1].name, list->all[i].name) == 0) free(list->all[i].name);
        else list->all[once++] = list->all[i];
    }
    list->count = once;
    for (int i = 0; i < once; i++) list->all[i].at = execution_of(list->all[i].name, golden);
    if (once > 0) qsort(list->all, (size_t)once, sizeof *list->all, placed_by_execution);
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

/* The golden file's shape of a tensor, also of one of a later pass; NULL: it is not golden. */
static const struct safetensors_entry *golden_entry(const struct golden *golden, const char *name)
{
    const struct safetensors_entry *const entry = golden ? safetensors_find(&golden->file, name) : NULL;
    const char *const first = entry || golden == NULL ? NULL : execution_first_name(name);
    return first ? safetensors_find(&golden->file, first) : entry;
}

/* The shape that both dumps show.  Flat pieces fit any rows and columns.  @return false: they show different ones, or
 * more elements than one of them stores. */
static bool shown_shape(const struct pair_dump dump[2], const char *name, int64_t dim[2])
{
    const struct actual_extent of[2] = { actual_extent(dump[0].actual, name), actual_extent(dump[1].actual, name) };
    const struct actual_extent *const by = of[0].shaped ? &of[0] : &of[1];
    dim[0] = by->shaped ? by->dim[0] : of[0].elements, dim[1] = by->shaped ? by->dim[1] : 1;
    for (int k = 0; k < 2; k++) {
        if (of[k].shaped && (of[k].dim[0] != dim[0] || of[k].dim[1] != dim[1])) return false;
        if (!of[k].shaped && !by->shaped && of[k].elements != dim[0]) return false;
        if (dim[1] > 0 && dim[0] > of[k].stored / dim[1]) return false;
    }
    return true;
}

/* @return false: the dumps do not show the same shape, and no golden file says it. */
static bool pair_shape(const struct golden *golden, const struct pair_dump dump[2], struct pair *pair)
{
    const struct safetensors_entry *const entry = golden_entry(golden, pair->name);
    if (entry == NULL) return shown_shape(dump, pair->name, pair->dim);
    pair->dim[1] = entry->ndim > 1 ? entry->dim[entry->ndim - 1] : 1;
    pair->dim[0] = pair->dim[1] > 0 ? entry->count / pair->dim[1] : 0;
    return true;
}

/* ---- each side --------------------------------------------------------------------------------------------------- */

static const struct checked *find_checked(const struct check_result *result, const char *name)
{
    for (int i = 0; result && i < result->count; i++)
        if (strcmp(result->all[i].name, name) == 0) return &result->all[i];
    return NULL;
}

/* Whether a dump begins with the golden file's weights, as far as it shows them: then golden numbers are its own. */
static bool begins_as_golden(const struct pair_dump *dump)
{
    for (int i = 0; dump->whole && i < dump->whole->count; i++)
        if (strncmp(dump->whole->all[i].name, "start/", 6) == 0) return false;
    return dump->whole != NULL;
}

/* Copies of a tensor are apart, and not each is what its own rank's inputs give. */
static bool has_wrong_copies(const struct pair_dump *dump, const struct checked *checked,
                             const struct single_result *by_itself)
{
    if (checked == NULL || !checked->apart || (checked->finding != DIFFERS && checked->finding != COPIES)) return false;
    return by_itself == NULL || !dump->single->each[by_itself - dump->single->all];
}

/* Judge what one dump has.  Own inputs decide; golden numbers only where nothing was recomputed. */
static enum pair_side judge_side(const struct pair_dump *dump, const struct checked *checked,
                                 const struct single_result *by_itself, bool as_golden)
{
    const enum finding finding = checked ? checked->finding : OPEN;
    if (finding == MISSHAPED || finding == INCOMPLETE || finding == NOT_FINITE) return SIDE_WRONG;
    if (has_wrong_copies(dump, checked, by_itself)) return SIDE_WRONG;
    if (by_itself && by_itself->verdict <= SINGLE_WRONG)
        return by_itself->verdict == SINGLE_WRONG ? SIDE_WRONG : SIDE_RIGHT;
    if (checked == NULL || !as_golden) return SIDE_OPEN;
    switch (judgement_of(checked, NULL)) {
    case JUDGED_RIGHT:   return SIDE_RIGHT;
    case JUDGED_LOOSELY: return SIDE_LOOSE;
    case JUDGED_WRONG:   return SIDE_WRONG;
    default:             return SIDE_OPEN;
    }
}

/* ---- both sides -------------------------------------------------------------------------------------------------- */

/* Only one dump has the tensor.  Missing is what has others of its kind in the other dump. */
static enum pair_verdict verdict_of_one(const struct pair *pair)
{
    const int lacks = pair->side[0] == SIDE_ABSENT ? 0 : 1;
    if (pair->whole[lacks] && pair->whole[lacks]->finding == MISSING) return PAIR_MISSING;
    return lacks == 0 ? PAIR_ONLY_B : PAIR_ONLY_A;
}

/* Weights that a run begins with may be rounded to the format of each dump. */
static enum pair_verdict verdict_of_start(const struct pair *pair, const struct pair_dump dump[2],
                                          const struct difference *difference)
{
    double bound = 0;
    for (int k = 0; k < 2; k++)
        bound += relative_or_absolute(0, difference->norm[k], pair->elements, dump[k].format);
    return pair->distance <= bound ? PAIR_ROUNDED : PAIR_OTHER_START;
}

static enum pair_verdict verdict_of_two(const struct pair *pair)
{
    const enum pair_side a = pair->side[0], b = pair->side[1];
    if (a == SIDE_WRONG && b == SIDE_WRONG) return PAIR_NEITHER;
    /* A wrong result beside one that cannot be judged may be wrong in both. */
    if (a == SIDE_OPEN || b == SIDE_OPEN) return PAIR_OPEN;
    if (a == SIDE_WRONG) return PAIR_A_WRONG;
    if (b == SIDE_WRONG) return PAIR_B_WRONG;
    /* A wide bound says little, but the distance of the two is measured. */
    const bool loose = a == SIDE_LOOSE || b == SIDE_LOOSE;
    return !loose || pair->distance <= LOOSE_BOUND ? PAIR_ROUNDED : PAIR_OPEN;
}

/* Compare the numbers of a tensor that both have, and decide. */
static enum error_code compare_pair(const struct golden *golden, const struct pair_dump dump[2], struct pair *pair,
                                    struct error *err)
{
    struct difference d;
    pair->verdict = PAIR_MISFIT;
    if (!pair_shape(golden, dump, pair)) {
        pair->dim[0] = pair->dim[1] = 0;
        return OK;
    }
    const enum error_code e = pairs_look(pair, dump, &d, err);
    if (e || d.why[0]) return e;
    pair->elements = d.elements, pair->different = d.different, pair->distance = difference_distance(&d);
    pair->verdict = difference_is_none(&d) ? PAIR_SAME
                  : strncmp(pair->name, "start/", 6) == 0 ? verdict_of_start(pair, dump, &d) : verdict_of_two(pair);
    return OK;
}

enum error_code pairs_look(const struct pair *pair, const struct pair_dump dump[2], struct difference *difference,
                           struct error *err)
{
    const struct actual *const both[2] = { dump[0].actual, dump[1].actual };
    return difference_make(difference, both, pair->name, pair->dim, err);
}

/* Judge one tensor. */
static enum error_code judge_pair(const struct golden *golden, const struct pair_dump dump[2], const bool as_golden[2],
                                  struct pair *pair, struct error *err)
{
    bool has[2];
    for (int k = 0; k < 2; k++) {
        has[k] = actual_has(dump[k].actual, pair->name);
        pair->whole[k] = find_checked(dump[k].whole, pair->name);
        pair->by_itself[k] = dump[k].single ? singles_find(dump[k].single, pair->name) : NULL;
        pair->side[k] = has[k] ? judge_side(&dump[k], pair->whole[k], pair->by_itself[k], as_golden[k]) : SIDE_ABSENT;
    }
    if (has[0] && has[1]) return compare_pair(golden, dump, pair, err);
    pair->verdict = verdict_of_one(pair);
    return OK;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static bool pair_is_same(const struct pair *pair)
{
    return pair->verdict == PAIR_SAME || pair->verdict == PAIR_ROUNDED;
}

/* Count one tensor; the list is walked in order, so the first of each kind stays. */
static void pairs_add(struct pairs *pairs, int i)
{
    const struct pair *const p = &pairs->all[i];
    pairs->found[p->verdict]++;
    if (pairs->first < 0 && pair_differs(p->verdict)) pairs->first = i;
    if (pairs->first_open < 0 && pair_is_open(p->verdict)) pairs->first_open = i;
    if (pairs->first_different < 0 && p->verdict != PAIR_SAME && p->different > 0) pairs->first_different = i;
    if (p->distance > 0 && (pairs->farthest < 0 || p->distance > pairs->all[pairs->farthest].distance))
        pairs->farthest = i;
    if (!pair_is_same(p)) return;
    if (strncmp(p->name, "start/", 6) != 0) pairs->judged[checked_kind_of(p->name)]++;
    pairs->loose += p->verdict == PAIR_ROUNDED && (p->side[0] == SIDE_LOOSE || p->side[1] == SIDE_LOOSE);
    if (p->verdict == PAIR_SAME && p->side[0] == SIDE_WRONG && p->side[1] == SIDE_WRONG &&
        pairs->wrong_in_both++ == 0)
        pairs->first_wrong_in_both = i;
}

/* Count the golden tensors that neither dump has. */
static void count_neither(struct pairs *pairs, const struct pair_dump dump[2])
{
    const struct golden_list *const list = &dump[0].whole->list;
    for (int i = 0; i < list->count; i++) {
        if (actual_has(dump[0].actual, list->all[i].name) || actual_has(dump[1].actual, list->all[i].name)) continue;
        if (pairs->neither++ == 0) pairs->first_neither = list->all[i].name;
    }
}

/* Judge all tensors in order.  The names now belong to the pairs. */
static enum error_code judge_all(struct pairs *pairs, const struct golden *golden, const struct pair_dump dump[2],
                                 struct error *err)
{
    const bool as_golden[2] = { begins_as_golden(&dump[0]), begins_as_golden(&dump[1]) };
    enum error_code e = OK;
    for (int i = 0; i < pairs->count && !e; i++) {
        e = judge_pair(golden, dump, as_golden, &pairs->all[i], err);
        if (!e) pairs_add(pairs, i);
    }
    if (e) return e;
    if (golden) count_neither(pairs, dump);
    if (pairs->found[PAIR_ONLY_A] + pairs->found[PAIR_ONLY_B] + pairs->found[PAIR_MISSING] < pairs->count) return OK;
    return fail(err, ERR_CHECK, "nothing to compare: no tensor of A has the name of one of B");
}

enum error_code pairs_make(struct pairs *pairs, const struct golden *golden, const struct pair_dump dump[2],
                           struct error *err)
{
    struct placed_list names = { 0 };
    *pairs = (struct pairs){ .first = -1, .first_open = -1, .first_different = -1, .farthest = -1,
                             .first_wrong_in_both = -1 };
    bool memory = placed_of_dump(&names, dump[0].actual) && placed_of_dump(&names, dump[1].actual);
    if (memory) placed_order(&names, golden ? &dump[0].whole->list : NULL);
    if (memory) pairs->all = calloc((size_t)names.count + 1, sizeof *pairs->all);
    memory = memory && pairs->all;
    for (int i = 0; i < names.count && memory; i++) {
        pairs->all[pairs->count++] = (struct pair){ .name = names.all[i].name };
        names.all[i].name = NULL;
    }
    placed_free(&names);
    const enum error_code e = memory ? judge_all(pairs, golden, dump, err)
                                     : fail(err, ERR_MEMORY, "no memory for the tensors of two dumps");
    if (e) pairs_free(pairs);
    return e;
}

void pairs_free(struct pairs *pairs)
{
    for (int i = 0; i < pairs->count; i++) free(pairs->all[i].name);
    free(pairs->all);
    *pairs = (struct pairs){ 0 };
}
