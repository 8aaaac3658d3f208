/* check_judged.c -- runs all comparisons of one dump, with a line on the terminal that says how far they are.
 * check_found.c calls check_judge for ACTUAL or one of its steps, and check_against.c for each of two dumps. */
#include "emulated_devices/cli/check_judged.h"
#include "emulated_devices/check/mistakes/sequences.h"
#include "emulated_devices/check/mistakes/stale.h"
#include "emulated_devices/check/report/begins.h"
#include "emulated_devices/check/report/copies.h"
#include "emulated_devices/check/report/diagnose.h"
#include "emulated_devices/check/report/passes.h"
#include "emulated_devices/cli/check_progress.h"
#include <stdlib.h>
#include <string.h>

/* Compare, then recompute; with `first` it is the other way round. */
static enum error_code judge_tensors(const struct golden *golden, const struct actual *actual,
                                     const struct check_setting *setting, bool first, struct check_progress *progress,
                                     struct check_judged *judged, struct error *err)
{
    if (first) {
        check_progress_next(progress);
        return first_check(golden, actual, setting->format, setting->rounding, &judged->whole, &judged->single,
                           &judged->first, err);
    }
    enum error_code e = check_files(golden, actual, setting->format, &judged->whole, err);
    if (e) return e;
    check_progress_next(progress);
    e = singles_check(golden, actual, setting->format, setting->rounding, &judged->single, err);
    if (e) check_result_free(&judged->whole);
    return e;
}

/* Keep the tensors of a step, then judge later passes. */
static enum error_code judge_passes(const struct golden *golden, const struct actual *actual,
                                    const struct check_setting *setting, int64_t step, struct check_judged *judged,
                                    struct error *err)
{
    enum error_code e = OK;
    if (step > 0) {
        check_result_keep_step(golden, actual->begins, &judged->whole, step);
        e = singles_keep_step(golden, &judged->single, step, err);
    }
    if (!e)
        e = passes_judge(golden, actual, setting->format, setting->rounding, &judged->single, &judged->whole, err);
    if (!e) copies_explain(&judged->whole, &judged->single);
    return e;
}

enum error_code check_judge(const struct golden *golden, struct actual *actual, const struct check_setting *setting,
                            int64_t step, bool first, struct check_judged *judged, struct error *err)
{
    struct check_progress progress;
    *judged = (struct check_judged){ .first = { 0 } };
    check_progress_begin(&progress, golden, actual);
    enum error_code e = judge_tensors(golden, actual, setting, first, &progress, judged, err);
    if (!e) {
        e = begins_judge(golden, actual, &judged->whole, err);
        if (!e) e = judge_passes(golden, actual, setting, step, judged, err);
        if (e) check_judged_free(judged);
    }
    check_progress_end(&progress);
    return e;
}

/* The length of what stands before a gradient's parameter: "adamw/2/grad/"; 0: it is none. */
static size_t judged_prefix(const char *name)
{
    const char *const of_step = strstr(name, "/grad/");
    return of_step ? (size_t)(of_step - name) + strlen("/grad/") : strncmp(name, "grad/", 5) == 0 ? 5 : 0;
}

/* Explain a gradient that differs: one of another step, or a sum over other sequences.  All wrong gradients of its step
 * say that together. */
static const char *judged_gradient(char *out, size_t size, const struct golden *golden, const struct actual *actual,
                                   const struct check_result *r, const struct checked *first)
{
    const size_t prefix = judged_prefix(first->name);
    const struct batch_cuts cuts = batch_cuts_of(golden, actual);
    struct wrong_gradient *all = prefix > 0 ? calloc((size_t)r->count + 1, sizeof *all) : NULL;
    int count = 0;
    out[0] = 0;
    for (int i = r->first; i < r->count && all; i++)
        if (r->all[i].finding == DIFFERS && strncmp(r->all[i].name, first->name, prefix) == 0)
            all[count++] = (struct wrong_gradient){ r->all[i].name, r->all[i].bound };
    if (all && stale_describe(out, size, golden, actual, &cuts, first->name, first->bound)[0] == 0)
        sequences_describe(out, size, golden, actual, &cuts, all, count);
    free(all);
    return out;
}

const char *check_judged_first(char *out, size_t size, const struct golden *golden, const struct actual *actual,
                               const struct check_result *result)
{
    const struct checked *first = result->first >= 0 ? &result->all[result->first] : NULL;
    out[0] = 0;
    if (first == NULL || (first->finding != DIFFERS && first->finding != NOT_FINITE)) return out;
    if (judged_gradient(out, size, golden, actual, result, first)[0]) return out;
    return diagnose_scale(out, size, &actual->mesh, 1, first->on);
}

void check_judged_free(struct check_judged *judged)
{
    singles_free(&judged->single), check_result_free(&judged->whole);
}
