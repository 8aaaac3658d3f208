/* check_exact.c -- `orrery check --exact GOLDEN ACTUAL`: says which tensors of a dump have the bits of the exact rule.
 * check.c calls check_exact after it has opened both.  ERR_CHECK names the first tensor that differs, its element, both
 * numbers and how many units of the grid lie between them. */
#include "emulated_devices/cli/check_exact.h"
#include "emulated_devices/check/report/bits.h"
#include "ref/io/columns.h"
#include "ref/io/document.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include "ref/io/terminal.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum error_code check_exact_options(const struct check_options *options, struct error *err)
{
    const struct { const char *flag; bool given; const char *why; } other[] = {
        { "--against", options->against, "which compares two dumps; without GOLDEN it compares bits" },
        { "--first", options->first, "which names the first tensor anyway" },
        { "--watch", options->watch, "which judges steps of a program that still runs" },
        { "--map", options->map, "which is for files that do not describe themselves: write a dump" },
        { "--page", options->page, "which draws bounds" },
        { "--require", options->require, "which needs all kinds of tensors that there are" },
        { "--sums", options->sums, "which is for sums that round" },
        { "--parts", options->parts > 0, "which is for sums that round" },
        { "--fused", options->fused, "which is for sums that round" },
        { "--stored-norms", options->stored_norms, "which is for sums that round" },
        { "--stored-states", options->stored_states, "which is for sums that round" },
    };
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (other[i].given)
            return fail(err, ERR_USAGE, "--exact does not go with %s, %s", other[i].flag, other[i].why);
    return OK;
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

struct bits_words { char text[400]; };

/* "element [3, 5]", of a vector "element [3]". */
static struct bits_words element_of(const struct bits_tensor *tensor)
{
    struct bits_words w;
    const long long row = (long long)(tensor->at / tensor->dim[1]), column = (long long)(tensor->at % tensor->dim[1]);
    if (tensor->dim[1] == 1) snprintf(w.text, sizeof w.text, "element [%lld]", row);
    else snprintf(w.text, sizeof w.text, "element [%lld, %lld]", row, column);
    return w;
}

/* "1 unit of the grid, 2^-26"; of many units, or numbers that are not finite, without the unit. */
static struct bits_words units_of(const struct bits_tensor *tensor)
{
    struct bits_words w;
    const double size = fabs(tensor->units);
    if (!isfinite(size)) snprintf(w.text, sizeof w.text, "no number of units");
    else snprintf(w.text, sizeof w.text, "%.6g unit%s of the grid, 2^%d", size, size == 1 ? "" : "s", tensor->unit);
    return w;
}

static void print_first(FILE *out, const struct bits_tensor *tensor)
{
    say(out, 2, "first to differ, in order of execution: %s %s", tensor->name, bits_finding_words(tensor->finding));
    if (tensor->finding == BITS_MISFIT) {
        say(out, 12, "  why       %s", tensor->why);
        return;
    }
    say(out, 12, "  where     %s%s%s", element_of(tensor).text, tensor->on[0] ? " on " : "", tensor->on);
    say(out, 12, "  stored    %.9g (%a)", tensor->have, tensor->have);
    say(out, 12, "  %s %.9g (%a)", tensor->finding == BITS_COPIES ? "first copy" : "the rule ", tensor->want,
        tensor->want);
    say(out, 12, "  apart     %s; %lld of %lld elements differ", units_of(tensor).text, (long long)tensor->differing,
        (long long)(tensor->dim[0] * tensor->dim[1]));
}

/* Whether enough was judged: a loss or a norm alone hides most errors. */
static bool is_enough(const struct bits_found *found)
{
    return found->of[BITS_SAME] + found->of[BITS_DIFFER] > found->numbers && found->missing == 0 &&
           found->unknown == 0 && found->of[BITS_NOT_JUDGED] == 0;
}

static enum check_verdict verdict_of(const struct bits_found *found)
{
    if (found->first >= 0) return CHECK_FAILED;
    if (!is_enough(found)) return CHECK_NOT_ENOUGH;
    return found->declared > 0 ? CHECK_RECORDED : CHECK_OK;
}

/* These words say what lacks for a verdict. */
static struct bits_words lacking_of(const struct bits_found *found)
{
    struct bits_words w;
    for (int i = 0; i < found->count; i++)
        if (found->all[i].finding == BITS_NOT_JUDGED) {
            snprintf(w.text, sizeof w.text, "%.95s cannot be judged: %.280s", found->all[i].name,
                     found->all[i].why);
            return w;
        }
    if (found->unknown > 0)
        snprintf(w.text, sizeof w.text, "%d of the dump's tensors, first %s, are not of this rule: nothing was "
                 "compared with them", found->unknown, printable(found->first_unknown).text);
    else if (found->missing > 0)
        snprintf(w.text, sizeof w.text, "%s is not there, though others of its kind are; say that it is not recorded "
                 "by --not-recorded '%s'", found->first_missing, found->first_missing);
    else snprintf(w.text, sizeof w.text, "%d tensors beside losses and norms were compared: record activations, "
                  "gradients or weights", found->count - found->numbers);
    return w;
}

static int differing_of(const struct bits_found *found)
{
    return found->of[BITS_DIFFER] + found->of[BITS_COPIES] + found->of[BITS_MISFIT];
}

static void print_verdict(FILE *out, const struct bits_found *found)
{
    const enum check_verdict verdict = verdict_of(found);
    const int differing = differing_of(found);
    if (verdict == CHECK_FAILED)
        say(out, 8, "FAILED: %d of %d tensors %s other bits than their own inputs give, first %s", differing,
            found->count, differing == 1 ? "has" : "have", found->all[found->first].name);
    else if (verdict == CHECK_NOT_ENOUGH) say(out, 8, "NOT ENOUGH: %s", lacking_of(found).text);
    else say(out, 8, "%s: %d tensors have the bits that the exact rule gives of their own inputs%s",
             check_verdict_word(verdict), found->count,
             found->declared ? "; others were declared not recorded" : "");
}

static void print_all(FILE *out, const struct bits_found *found)
{
    struct columns t = columns_start(out);
    do for (int i = 0; i < found->count; i++) {
        const struct bits_tensor *const b = &found->all[i];
        columns_add(&t, LEFT_ALIGNED, "%s", b->name);
        columns_add(&t, RIGHT_ALIGNED, "%lld", (long long)b->differing);
        columns_add(&t, LEFT_ALIGNED, "%s", bits_finding_words(b->finding));
        columns_end_row(&t);
    } while (columns_again(&t));
    fprintf(out, "\n");
}

static void print_bits(FILE *out, const struct check_options *options, const struct actual *actual, enum dtype dtype,
                       const struct bits_found *found)
{
    say(out, 8, "golden  %s", options->golden);
    say(out, 8, "actual  %s, %d file%s, computed in %s with exact sums", options->actual, actual->files,
        plural(actual->files), dtype_name(dtype));
    if (actual->program) say(out, 8, "program %s", printable(actual->program).text);
    fprintf(out, "\n");
    if (options->all) print_all(out, found);
    if (found->first >= 0) print_first(out, &found->all[found->first]), fprintf(out, "\n");
    for (int f = 0; f <= BITS_NOT_JUDGED; f++)
        if (found->of[f]) fprintf(out, "  %5d  %s\n", found->of[f], bits_finding_words((enum bits_finding)f));
    fprintf(out, "\n");
    print_verdict(out, found);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void add_tensor(cJSON *list, const struct bits_tensor *tensor)
{
    cJSON *const o = cJSON_CreateObject();
    cJSON_AddItemToArray(list, o);
    cJSON_AddStringToObject(o, "tensor", tensor->name);
    cJSON_AddStringToObject(o, "finding", bits_finding_words(tensor->finding));
    cJSON_AddNumberToObject(o, "differing", (double)tensor->differing);
    if (tensor->why[0]) cJSON_AddStringToObject(o, "why", tensor->why);
    if (tensor->finding != BITS_DIFFER && tensor->finding != BITS_COPIES) return;
    cJSON_AddNumberToObject(o, "row", (double)(tensor->at / tensor->dim[1]));
    cJSON_AddNumberToObject(o, "column", (double)(tensor->at % tensor->dim[1]));
    cJSON_AddNumberToObject(o, "stored", tensor->have);
    cJSON_AddNumberToObject(o, "expected", tensor->want);
    cJSON_AddNumberToObject(o, "units", tensor->units);
    cJSON_AddNumberToObject(o, "unit_exponent", tensor->unit);
    if (tensor->on[0]) cJSON_AddStringToObject(o, "wrong_on", tensor->on);
}

static enum error_code write_json(const char *path, enum dtype dtype, const struct bits_found *found,
                                  struct error *err)
{
    cJSON *const root = document_start("orrery check --exact");
    const enum check_verdict verdict = verdict_of(found);
    cJSON_AddBoolToObject(root, "holds", check_verdict_holds(verdict));
    cJSON_AddStringToObject(root, "verdict", check_verdict_word(verdict));
    cJSON_AddStringToObject(root, "dtype", dtype_name(dtype));
    cJSON_AddNumberToObject(root, "declared_not_recorded", found->declared);
    cJSON_AddNumberToObject(root, "missing", found->missing);
    cJSON_AddNumberToObject(root, "unknown", found->unknown);
    if (found->first >= 0) cJSON_AddStringToObject(root, "first", found->all[found->first].name);
    cJSON *const list = cJSON_AddArrayToObject(root, "tensors");
    for (int i = 0; i < found->count; i++) add_tensor(list, &found->all[i]);
    const enum error_code e = fail_about(err, json_write(path, root, err), "--json");
    cJSON_Delete(root);
    return e;
}

/* ---- the verdict ------------------------------------------------------------------------------------------------- */

static enum error_code conclude(const struct bits_found *found, struct error *err)
{
    const enum check_verdict verdict = verdict_of(found);
    if (check_verdict_holds(verdict)) return OK;
    if (verdict == CHECK_NOT_ENOUGH) return fail(err, ERR_CHECK, "%.390s", lacking_of(found).text);
    const struct bits_tensor *const t = &found->all[found->first];
    if (t->finding == BITS_MISFIT) return fail(err, ERR_CHECK, "%s does not fit: %.250s", t->name, t->why);
    return fail(err, ERR_CHECK, "%s %s at %s%s%s: %.9g, not %.9g, %s", t->name, bits_finding_words(t->finding),
                element_of(t).text, t->on[0] ? " on " : "", t->on, t->have, t->want, units_of(t).text);
}

enum error_code check_exact(const struct check_options *options, const struct golden *golden,
                            struct actual *actual, struct error *err)
{
    actual->not_recorded = options->not_recorded;
    const enum dtype dtype = check_setting_of(options, golden, actual).format;
    struct bits_found found;
    enum error_code e = bits_check(golden, actual, dtype, &found, err);
    if (e) return fail_about(err, e, "--exact");
    print_bits(options->json && strcmp(options->json, "-") == 0 ? stderr : stdout, options, actual, dtype, &found);
    if (options->json) e = write_json(options->json, dtype, &found, err);
    if (!e) e = conclude(&found, err);
    bits_found_free(&found);
    return e;
}
