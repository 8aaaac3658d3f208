/* check_found.c -- judges one dump of `orrery check`, or one step of it, and decides: the verdict, and what is named.
 * check.c calls check_find for ACTUAL, and check_watch.c for each step.  Errors are those of check_judge. */
#include "emulated_devices/cli/check_found.h"
#include <string.h>

/* ---- how the program computes ------------------------------------------------------------------------------------ */

/* Single numbers are summed in a wider format than the rest. */
static bool is_number(const char *name)
{
    const char *slash = strrchr(name, '/'), *last = slash ? slash + 1 : name;
    return strcmp(last, "loss") == 0 || strcmp(last, "norm") == 0 || strcmp(last, "balance_loss") == 0 ||
           strcmp(last, "z_loss") == 0;
}

/* Return what a dump says, or the widest format of a tensor: a gradient in fp32 beside weights in bf16 was summed in
 * fp32. */
static enum dtype widest(const struct actual *actual)
{
    static const enum dtype wide[] = { F64, F32, BF16, F16 };
    if (actual->dtype != DTYPE_COUNT) return actual->dtype;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        for (int f = 0; f < actual->files; f++)
            for (int k = 0; k < actual->file[f].st.count; k++)
                if (strcmp(actual->file[f].st.entry[k].dtype, dtype_file_name(wide[i])) == 0 &&
                    !is_number(actual->file[f].st.entry[k].name))
                    return wide[i];
    return F32;
}

struct check_setting check_setting_of(const struct check_options *options, const struct golden *golden,
                                      const struct actual *actual)
{
    const enum dtype format = options->dtype ? dtype_by_name(options->dtype) : widest(actual);
    struct check_setting s = { format,
                               rounding_of(format, options->sums ? dtype_by_name(options->sums) : actual->sums,
                                           options->parts > 0 ? options->parts : singles_parts(actual)) };
    s.rounding.fused = options->fused, s.rounding.stored_norms = options->stored_norms;
    s.rounding.stored_states = options->stored_states;
    if (options->parts == 0 && golden) s.rounding.gradient_parts = singles_gradient_parts(golden, actual);
    return s;
}

/* ---- what is named ----------------------------------------------------------------------------------------------- */

/* The first operation that is wrong by itself, if it comes before the first tensor that differs, or this is wrong by
 * itself but made later; else NULL: NaN is named where it comes up.  In 16 bits tensors have wide bounds, and the first
 * that exceeds its own may be far behind the mistake.  A number says less than a tensor: the loss is made before the
 * gradient of logits, which is named. */
static const struct single_result *first_by_itself(const struct check_result *result, const struct singles *singles)
{
    const struct single_result *wrong = NULL;
    if (result->first >= 0 && result->all[result->first].finding == NOT_FINITE) return NULL;
    for (int i = 0; i < singles->count && wrong == NULL; i++)
        if (singles->all[i].verdict == SINGLE_WRONG) wrong = &singles->all[i];
    /* Copies that differ say less than a result that is not what its own inputs give. */
    if (result->first >= 0 && result->all[result->first].finding == COPIES) return wrong;
    const struct single_result *const differs =
        result->first >= 0 ? singles_find(singles, result->all[result->first].name) : NULL;
    if (differs && differs->verdict == SINGLE_WRONG && wrong < differs && !result->all[result->first].apart &&
        wrong->rows * wrong->cols > 1)
        return wrong;
    for (int i = 0; i < result->first && wrong; i++)
        if (strcmp(result->all[i].name, wrong->name) == 0) return wrong;
    return result->first < 0 ? wrong : NULL;
}

enum { MOST_COPIES = 4 };               /* tensors whose copies are looked at: a state may be listed after its weight */

/* Where copies of the first tensor that differs do, too: what is wrong with it on the ranks that differ. */
static enum error_code find_copies(struct verdicts *verdicts, const struct actual *actual, struct rounding rounding,
                                   struct error *err)
{
    const struct check_result *r = verdicts->whole;
    enum error_code e = OK;
    if (r->first < 0 || !r->all[r->first].apart || r->all[r->first].finding != DIFFERS) return OK;
    for (int i = r->first, tried = 0; i < r->count && tried < MOST_COPIES && !e; i++) {
        if (!r->all[i].apart || r->all[i].finding != DIFFERS) continue;
        tried++, verdicts->copy_of = i;
        e = singles_check_copy(verdicts->golden, actual, verdicts->format, rounding, r->all[i].name,
                               &r->all[i].on->failing, &verdicts->copy, err);
        if (!e && verdicts->copy.verdict == SINGLE_WRONG) return OK;
    }
    verdicts->copy.name[0] = 0;
    return e;
}

/* ---- the verdict ------------------------------------------------------------------------------------------------- */

static bool all_hold(const struct verdicts *verdicts)
{
    return verdicts->whole->first < 0 && verdicts->single->found[SINGLE_WRONG] == 0;
}

/* Count, and decide. */
static void find_verdict(unsigned required, struct verdicts *verdicts)
{
    struct verdicts *const v = verdicts;
    v->kinds = checked_kinds_count(v->whole, v->single);
    const enum error_code enough = checked_kinds_enough(&v->kinds, v->whole, v->format, required, &v->lacking);
    v->verdict = !all_hold(v) ? CHECK_FAILED : enough ? CHECK_NOT_ENOUGH
                                  : v->kinds.declared > 0 ? CHECK_RECORDED : CHECK_OK;
    v->first_by_itself = first_by_itself(v->whole, v->single);
}

enum error_code check_find(const struct check_options *options, const struct golden *golden, struct actual *actual,
                           int64_t step, struct check_judged *judged, struct verdicts *verdicts, struct error *err)
{
    const struct check_setting s = check_setting_of(options, golden, actual);
    actual->not_recorded = options->not_recorded;
    enum error_code e = check_judge(golden, actual, &s, step, options->first, judged, err);
    if (e) return e;
    *verdicts = (struct verdicts){ .golden = golden, .format = s.format, .whole = &judged->whole,
                                   .single = &judged->single, .first = options->first ? &judged->first : NULL };
    e = singles_find_parts(golden, actual, s.format, s.rounding, &judged->single, err);
    if (!e) e = find_copies(verdicts, actual, s.rounding, err);
    if (!e) check_judged_first(verdicts->first_is, sizeof verdicts->first_is, golden, actual, verdicts->whole);
    if (e) check_judged_free(judged);
    else find_verdict(options->required, verdicts);
    return e;
}
