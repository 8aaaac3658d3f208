/* begins.c -- compares what a resumed program begins with to what the golden file has after each of its steps.
 * cli/check_judged.c calls begins_judge.  A folder, as "adamw/2/exp_avg", has a tensor for each parameter; all are
 * judged together, because a mistake of a resume is one of all. */
#include "emulated_devices/check/report/begins.h"
#include "emulated_devices/check/recompute/own_pass.h"
#include "emulated_devices/check/report/checked_kinds.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const enum dtype begins_narrow[] = { BF16, F16 };
enum { NARROWS = 2, BEGINS_WHY = 160 };

/* All tensors of a folder together are this.  Distances and sizes are squares of norms. */
struct begins_folder {
    char optimizer[32], what[32];       /* "adamw", "exp_avg" */
    int64_t begins;                     /* the step after which it is */
    bool complete;                      /* ACTUAL has all tensors that were looked at */
    double off[GOLDEN_MOST_STEPS + 1];  /* from the golden numbers after each step; 0: those that step 1 begins with */
    double size[GOLDEN_MOST_STEPS + 1]; /* of those */
    int64_t count, zeros, moved;        /* elements; those that are 0; those that the next step has changed */
    int64_t narrow[NARROWS], narrow_golden[NARROWS], narrow_next[NARROWS];      /* numbers of 16 bits */
};

/* The name of what a folder has after a step, as the golden file calls it. */
struct begins_name { char text[RECORD_NAME + 64]; };

static struct begins_name begins_name_of(const struct begins_folder *folder, const struct golden *golden, int64_t step,
                                         const char *param)
{
    struct begins_name n;
    if (step == 0) snprintf(n.text, sizeof n.text, "start/%.*s", PARAM_NAME, param);
    else if (step == golden->steps)
        snprintf(n.text, sizeof n.text, "%.31s/%.31s/%.*s", folder->optimizer, folder->what, PARAM_NAME, param);
    else
        snprintf(n.text, sizeof n.text, "%.31s/%lld/%.31s/%.*s", folder->optimizer, (long long)step, folder->what,
                 PARAM_NAME, param);
    return n;
}

/* Find the folder of a tensor that the dump begins with.  @return the parameter's name; NULL: it is another tensor. */
static const char *begins_param(const char *name, int64_t begins, struct begins_folder *folder)
{
    long long step;
    int at = 0;
    *folder = (struct begins_folder){ .begins = begins, .complete = true };
    if (sscanf(name, "%31[^/]/%lld/%31[^/]/%n", folder->optimizer, &step, folder->what, &at) != 3) return NULL;
    return at > 0 && step == begins && strcmp(folder->what, "grad") != 0 && strcmp(folder->what, "act") != 0
           ? name + at : NULL;
}

static bool begins_is_of(const char *name, const struct begins_folder *folder)
{
    struct begins_folder own;
    return begins_param(name, folder->begins, &own) && strcmp(own.optimizer, folder->optimizer) == 0
           && strcmp(own.what, folder->what) == 0;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Count the numbers that a 16-bit format has, of fp32 numbers. */
static void begins_count_narrow(const double *x, int64_t count, int64_t narrow[NARROWS])
{
    double buffer;
    for (int f = 0; f < NARROWS; f++) {
        const struct tensor one = tensor_1d(&buffer, begins_narrow[f], 1);
        for (int64_t i = 0; i < count; i++) {
            tensor_set(one, 0, (float)x[i]);
            narrow[f] += tensor_get(one, 0) == (float)x[i];
        }
    }
}

/* Measure the distances of a tensor from what the golden file has after each step. */
static enum error_code begins_compare(struct begins_folder *folder, const struct golden *golden, const char *param,
                                      const double *have, double *other, int64_t count, struct error *err)
{
    enum error_code e = OK;
    for (int64_t step = 0; step <= golden->steps && !e; step++) {
        const struct begins_name name = begins_name_of(folder, golden, step, param);
        /* States begin at zero, which is no step's but the first one's start. */
        if (step == 0 && strcmp(folder->what, "weight") != 0) continue;
        e = golden_read(golden, name.text, F64, count, other, err);
        for (int64_t i = 0; i < count && !e; i++) {
            const double d = have[i] - other[i];
            folder->off[step] += d * d, folder->size[step] += other[i] * other[i];
        }
        if (!e && step == folder->begins) begins_count_narrow(other, count, folder->narrow_golden);
    }
    return e;
}

/* Add a tensor that the dump begins with to its folder. */
static enum error_code begins_add(struct begins_folder *folder, const struct golden *golden,
                                  const struct actual *actual, const char *name, const char *param, struct error *err)
{
    const struct safetensors_entry *entry = safetensors_find(&golden->file, name);
    const int64_t cols = entry->ndim > 1 ? entry->dim[entry->ndim - 1] : 1,
                  dim[2] = { cols > 0 ? entry->count / cols : 0, cols };
    double *have = malloc(2 * (size_t)entry->count * sizeof *have + 1), *other = have + entry->count;
    bool there = false, next = false;
    enum error_code e = have ? own_tensor_read(actual, name, dim, have, &there, err)
                             : fail(err, ERR_MEMORY, "no memory for %s", name);
    folder->complete = folder->complete && there;
    if (!e && there) {
        folder->count += entry->count;
        for (int64_t i = 0; i < entry->count; i++) folder->zeros += have[i] == 0;
        begins_count_narrow(have, entry->count, folder->narrow);
        e = begins_compare(folder, golden, param, have, other, entry->count, err);
        const struct begins_name after = begins_name_of(folder, golden, folder->begins + 1, param);
        if (!e) e = own_tensor_read(actual, after.text, dim, other, &next, err);
        for (int64_t i = 0; i < entry->count && !e && next; i++) folder->moved += other[i] != have[i];
        if (!e && next) begins_count_narrow(other, entry->count, folder->narrow_next);
    }
    free(have);
    return e;
}

/* ---- mistakes ---------------------------------------------------------------------------------------------------- */

/* Numbers of another step are so many times nearer than those of this one, and near. */
static const double BEGINS_NEARER = 4;

static bool begins_is_other_step(const struct begins_folder *folder, const struct golden *golden, char why[BEGINS_WHY])
{
    int64_t best = folder->begins;
    for (int64_t step = 0; step <= golden->steps; step++)
        if (folder->size[step] > 0 && folder->off[step] < folder->off[best]) best = step;
    if (!(BEGINS_NEARER * sqrt(folder->off[best]) <= sqrt(folder->off[folder->begins])) || best == folder->begins
        || sqrt(folder->off[best]) > LOOSE_BOUND * sqrt(folder->size[best])) return false;
    if (best == 0) snprintf(why, BEGINS_WHY, "it is what step 1 begins with, not what there is after step %lld",
                            (long long)folder->begins);
    else snprintf(why, BEGINS_WHY, "it is what there is after step %lld, not after step %lld", (long long)best,
                  (long long)folder->begins);
    return true;
}

/* Whether all numbers are 16-bit ones where the golden file's are not, and most that move in the next step are none any
 * more.  So masters were made from rounded numbers.  A program that only shows rounded numbers shows them in the next
 * step, too. */
static bool begins_is_rounded(const struct begins_folder *folder, char why[BEGINS_WHY])
{
    for (int f = 0; f < NARROWS; f++) {
        if (folder->narrow[f] < folder->count || 2 * folder->narrow_golden[f] > folder->count || folder->moved == 0 ||
            2 * (folder->count - folder->narrow_next[f]) < folder->moved) continue;
        snprintf(why, BEGINS_WHY, "all of them are %s numbers, and those after step %lld are not: what was kept in "
                 "fp32 is lost, and made from rounded numbers", dtype_name(begins_narrow[f]),
                 (long long)folder->begins + 1);
        return true;
    }
    return false;
}

/* Find the mistake of a resume that a folder shows. */
static bool begins_is_wrong(const struct begins_folder *folder, const struct golden *golden, char why[BEGINS_WHY])
{
    if (!folder->complete || folder->count == 0) return false;
    if (folder->zeros == folder->count && folder->size[folder->begins] > 0) {
        snprintf(why, BEGINS_WHY, "all of them are 0: they are not read from the checkpoint, and begin anew");
        return true;
    }
    return begins_is_other_step(folder, golden, why) || begins_is_rounded(folder, why);
}

/* ---- the result -------------------------------------------------------------------------------------------------- */

/* Set the findings of a folder.  @return whether its numbers are not the golden file's. */
static bool begins_find(struct check_result *result, const struct begins_folder *folder, bool wrong, const char *why)
{
    bool own = wrong;
    for (int i = 0; i < result->count; i++) {
        struct checked *c = &result->all[i];
        if (!begins_is_of(c->name, folder) || (c->finding != HOLDS && c->finding != OPEN && c->finding != DIFFERS))
            continue;
        if (wrong) {
            c->finding = RESUMED, c->compared = false;
            snprintf(c->why, sizeof c->why, "%s", why);
        } else if (c->finding != HOLDS) c->finding = GIVEN, c->compared = false, own = true;
    }
    return own;
}

/* Judge all folders of an optimizer, each when its first tensor is met. */
static enum error_code begins_judge_folders(const struct golden *golden, const struct actual *actual,
                                            struct check_result *result, bool *own, struct error *err)
{
    enum error_code e = OK;
    struct begins_folder folder, last = { .optimizer = "" };
    for (int i = 0; i < result->count && !e; i++) {
        char why[BEGINS_WHY] = "";
        if (begins_param(result->all[i].name, actual->begins, &folder) == NULL
            || begins_is_of(result->all[i].name, &last) || !actual_has(actual, result->all[i].name)) continue;
        for (int k = i; k < result->count && !e; k++) {
            struct begins_folder same;
            const char *const param = begins_param(result->all[k].name, actual->begins, &same);
            if (param && begins_is_of(result->all[k].name, &folder))
                e = begins_add(&folder, golden, actual, result->all[k].name, param, err);
        }
        last = folder;
        if (!e && begins_find(result, &folder, begins_is_wrong(&folder, golden, why), why)) *own = true;
    }
    return e;
}

/* The first tensor that ACTUAL has may be what a resumed program begins with, without saying so. */
static void begins_hint(struct check_result *result)
{
    int first = 0;
    long long step;
    while (first < result->count && (result->all[first].finding == LEFT_OUT || result->all[first].finding == DECLARED ||
                                     result->all[first].finding == MISSING))
        first++;
    if (first == result->count || result->all[first].finding != DIFFERS) return;
    struct checked *c = &result->all[first];
    struct begins_folder folder;
    if (sscanf(c->name, "%*[^/]/%lld/", &step) != 1 || begins_param(c->name, step, &folder) == NULL) return;
    snprintf(c->why, sizeof c->why, "if the program was resumed after step %lld and begins with this, its dump says "
             "so: metadata \"begins\": \"%lld\"", step, step);
}

enum error_code begins_judge(const struct golden *golden, const struct actual *actual, struct check_result *result,
                             struct error *err)
{
    bool own = false;
    if (actual->begins == 0) {
        begins_hint(result);
        return OK;
    }
    const enum error_code e = begins_judge_folders(golden, actual, result, &own, err);
    for (int i = 0; i < result->count && own; i++)
        if (result->all[i].finding == DIFFERS) {
            free(result->all[i].on);
            result->all[i].on = NULL, result->all[i].compared = false, result->all[i].finding = ALONE;
        }
    if (!e) check_result_count(result);
    return e;
}
