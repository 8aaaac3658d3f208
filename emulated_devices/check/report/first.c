/* first.c -- stops the recomputation at the first wrong result, and compares only what comes before it.
 * emulated_devices/cli/check_judged.c calls first_check once for a dump.  Errors are those of reading and memory. */
#include "emulated_devices/check/report/first.h"
#include "emulated_devices/check/report/execution.h"
#include <stdio.h>
#include <string.h>

/* The wrong result, and what was recomputed until then. */
struct until {
    const struct actual *actual;
    const struct singles *single;
    const struct golden_list *list;
    const char *wrong;
    struct execution at;
};

/* Whether ACTUAL has activations of the pass that a tensor is of: then its results are recomputed in turn. */
static bool first_pass_is_recomputed(const struct until *until, const char *name)
{
    char prefix[64];
    const char *const first = execution_first_name(name);
    const int before = first ? (int)(first - name) : 0;
    snprintf(prefix, sizeof prefix, "%.*sact/", before, name);
    const size_t n = strlen(prefix);
    for (int f = 0; f < until->actual->files; f++)
        for (int i = 0; i < until->actual->file[f].st.count; i++)
            if (strncmp(until->actual->file[f].st.entry[i].name, prefix, n) == 0) return true;
    return false;
}

/* Whether a golden tensor must be compared: it comes before the wrong one, and its own inputs have not judged it. */
static bool first_is_wanted(const void *context, const char *name)
{
    const struct until *const u = context;
    if (strcmp(name, u->wrong) == 0) return true;
    const struct execution at = execution_of(name, u->list);
    if (execution_compare(&at, &u->at) > 0) return false;
    const struct single_result *const r = singles_find(u->single, name);
    if (r) return r->verdict > SINGLE_WRONG;
    if (!actual_has(u->actual, name)) return true;
    /* Backward results of one layer come in the order of the recomputation: one without a verdict comes later. */
    const bool of_pass = at.phase == PHASE_FORWARD || at.phase == PHASE_LOSS || at.phase == PHASE_BACKWARD;
    return !of_pass || strncmp(name, "micro/", 6) == 0 || !first_pass_is_recomputed(u, name);
}

/* The wrong result that was met last: behind a wrong number one more result is judged.  NULL: none is wrong. */
static const struct single_result *first_last_wrong(const struct singles *singles)
{
    for (int i = singles->count - 1; i >= 0; i--)
        if (singles->all[i].verdict == SINGLE_WRONG) return &singles->all[i];
    return NULL;
}

/* Count the tensors that were recomputed or compared. */
static int first_count(const struct check_result *result, const struct singles *singles)
{
    int count = 0;
    for (int i = 0; i < singles->count; i++) count += singles_find(singles, singles->all[i].name) == &singles->all[i];
    for (int i = 0; i < result->count; i++)
        count += result->all[i].compared && singles_find(singles, result->all[i].name) == NULL;
    return count;
}

/* Compare what comes before a wrong result. */
static enum error_code first_compare(const struct golden *golden, const struct actual *actual, enum dtype format,
                                     const struct single_result *wrong, struct check_result *result,
                                     const struct singles *singles, struct error *err)
{
    const struct until until = { actual, singles, &result->list, wrong->name,
                                 execution_of(wrong->name, &result->list) };
    return check_files_some(golden, actual, format, &(struct check_wanted){ first_is_wanted, &until }, result, err);
}

enum error_code first_check(const struct golden *golden, const struct actual *actual, enum dtype format,
                            struct rounding rounding, struct check_result *result, struct singles *singles,
                            struct first_found *found, struct error *err)
{
    *found = (struct first_found){ .stopped = false }, *singles = (struct singles){ .format = format };
    enum error_code e = check_files_begin(golden, actual, format, result, err);
    if (e) return e;
    found->all = checker_count(golden, actual, &result->list);
    /* Weights are what all is recomputed from, so wrong ones are first. */
    found->stopped = result->first >= 0;
    if (!found->stopped) e = singles_check_first(golden, actual, format, rounding, singles, err);
    if (e) {
        check_result_free(result);
        return e;
    }
    const struct single_result *const wrong = first_last_wrong(singles);
    if (wrong) e = first_compare(golden, actual, format, wrong, result, singles, err);
    else if (!found->stopped) e = check_files_rest(golden, actual, format, result, err);
    found->stopped = found->stopped || wrong;
    found->looked = e ? 0 : found->stopped ? first_count(result, singles) : found->all;
    if (e) singles_free(singles);
    return e;
}
