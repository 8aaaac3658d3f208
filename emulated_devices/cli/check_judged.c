/* check_judged.c -- runs all comparisons of one dump, with a line on the terminal that says how far they are.
 * check_found.c calls check_judge for ACTUAL or one of its steps, and check_against.c for each of two dumps. */
#include "emulated_devices/cli/check_judged.h"
#include "emulated_devices/check/report/begins.h"
#include "emulated_devices/check/report/copies.h"
#include "emulated_devices/check/report/passes.h"
#include "emulated_devices/cli/check_progress.h"

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
        check_result_keep_step(golden, &judged->whole, step);
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

void check_judged_free(struct check_judged *judged)
{
    singles_free(&judged->single), check_result_free(&judged->whole);
}
