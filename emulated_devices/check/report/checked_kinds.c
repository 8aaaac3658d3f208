/* checked_kinds.c -- counts verdicts by kind of tensor and says whether a check has judged enough.
 * emulated_devices/cli/check.c and check_verdict.c print the counts.  checked_kinds_enough is ERR_CHECK with what
 * was not judged; a wrong kind in --require is ERR_USAGE. */
#include "emulated_devices/check/report/checked_kinds.h"
#include "ref/io/output.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Each list is made from CHECKED_KINDS, so a new kind needs a single line in the header. */
static const char *const names[] = {
#define X(id, name, words) name,
    CHECKED_KINDS(X)
#undef X
};
static const char *const described[] = {
#define X(id, name, words) words,
    CHECKED_KINDS(X)
#undef X
};

const char *checked_kind_name(enum checked_kind kind) { return names[kind]; }

/* These are numbers of a whole pass: their names end so, also behind the prefix of a step. */
static bool is_number(const char *name)
{
    static const char *const numbers[] = { "loss", "norm", "balance_loss", "z_loss" };
    const char *slash = strrchr(name, '/'), *last = slash ? slash + 1 : name;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(last, numbers[i]) == 0) return true;
    return false;
}

/* The first test that fits decides, so numbers come before everything else.  "grad/NAME" is a parameter's gradient
 * if NAME ends as a parameter's, else an activation's. */
enum checked_kind checked_kind_of(const char *name)
{
    const bool parameter = param_is_name(name);
    if (is_number(name)) return KIND_LOSS;
    /* Activations of later passes: "adamw/2/act/NAME", "adamw/2/grad/NAME". */
    if (strstr(name, "/act/")) return KIND_ACT;
    if (strstr(name, "/grad/") && strncmp(name, "micro/", 6) != 0 && !parameter) return KIND_ACT_GRAD;
    if (strncmp(name, "act/", 4) == 0) return KIND_ACT;
    if (strncmp(name, "micro/", 6) == 0) return KIND_GRAD;
    if (strncmp(name, "grad/", 5) != 0) return KIND_STEP;
    return parameter ? KIND_GRAD : KIND_ACT_GRAD;
}

/* ---- judgements -------------------------------------------------------------------------------------------------- */

const char *judgement_words(enum judgement judgement)
{
    static const char *const words[] = { "not judged", "right", "right", "wrong", "cannot be judged" };
    return words[judgement];
}

/* A result that its own inputs give is right, even if a golden bound is too wide to tell.  The golden comparison
 * counts only where nothing was recomputed. */
enum judgement judgement_of(const struct checked *checked, const struct single_result *by_itself)
{
    const bool recomputed = by_itself && by_itself->verdict <= SINGLE_WRONG;
    if (finding_fails(checked->finding) || (recomputed && by_itself->verdict == SINGLE_WRONG)) return JUDGED_WRONG;
    if (checked->finding == LEFT_OUT || checked->finding == DECLARED || checked->finding == GIVEN) return NOT_JUDGED;
    if (recomputed) return JUDGED_RIGHT;
    if (checked->finding != HOLDS) return CANNOT_BE_JUDGED;
    return checked->bound > LOOSE_BOUND ? JUDGED_LOOSELY : JUDGED_RIGHT;
}

/* Write the group of a tensor that is listed as open: "adamw/2/grad/NAME" belongs to "adamw/2/grad"; a number is
 * alone. */
static void name_group(const char *tensor, enum checked_kind kind, char *out, size_t size)
{
    const char *last = strrchr(tensor, '/');
    if (kind == KIND_STEP && last) snprintf(out, size, "%.*s", (int)(last - tensor), tensor);
    else snprintf(out, size, "%s", kind == KIND_LOSS ? tensor : names[kind]);
}

/* Count a tensor that cannot be judged.  Only OPEN_GROUPS groups are listed; `groups` counts further ones. */
static void add_open(struct checked_kinds *kinds, const struct checked *checked, enum checked_kind kind,
                     const struct single_result *by_itself)
{
    char name[sizeof kinds->group->name];
    const int kept = kinds->groups < OPEN_GROUPS ? kinds->groups : OPEN_GROUPS;
    name_group(checked->name, kind, name, sizeof name);
    if (kinds->first_open == NULL) kinds->first_open = checked->name;
    kinds->alone += checked->finding == ALONE;
    if (kinds->lacks == NULL && by_itself && by_itself->verdict == SINGLE_LACKS) kinds->lacks = by_itself->lacks;
    /* Tensors of a listed group only raise the group's count. */
    for (int i = 0; i < kept; i++)
        if (strcmp(kinds->group[i].name, name) == 0) {
            kinds->group[i].tensors++;
            return;
        }
    if (kinds->groups < OPEN_GROUPS) {
        memcpy(kinds->group[kinds->groups].name, name, sizeof name);
        kinds->group[kinds->groups].tensors = 1;
    }
    kinds->groups++;
}

/* Each golden tensor is judged once, from its finding and from what its own inputs give.  `beside` counts wrong
 * results that are no golden tensors. */
struct checked_kinds checked_kinds_count(const struct check_result *result, const struct singles *singles)
{
    struct checked_kinds n = { 0 };
    int wrong_alone = 0;
    for (int i = 0; i < result->count; i++) {
        const struct checked *c = &result->all[i];
        const struct single_result *by_itself = singles_find(singles, c->name);
        const enum checked_kind k = checked_kind_of(c->name);
        const enum judgement is = judgement_of(c, by_itself);
        n.all[k]++, n.of[k][is]++;
        n.absent += c->finding == MISSING || c->finding == MISSHAPED || c->finding == INCOMPLETE;
        n.declared += c->finding == DECLARED, n.undeclared[k] += is == NOT_JUDGED && c->finding != DECLARED;
        wrong_alone += singles_wrong(singles, c->name);
        if (is == JUDGED_LOOSELY) n.loosest = fmax(n.loosest, c->bound);
        if (is == CANNOT_BE_JUDGED) add_open(&n, c, k, by_itself);
    }
    /* Wrong results of golden names are counted above; all others are beside them. */
    n.beside = singles->found[SINGLE_WRONG] - wrong_alone;
    return n;
}

int checked_kinds_of(const struct checked_kinds *kinds, enum judgement is)
{
    int all = 0;
    for (int k = 0; k < CHECKED_KIND_COUNT; k++) all += kinds->of[k][is];
    return all;
}

/* ---- what is enough ---------------------------------------------------------------------------------------------- */

/* Add the kind with this name to the set. */
static enum error_code read_one(const char *name, size_t length, unsigned *set, struct error *err)
{
    for (int k = 0; k < CHECKED_KIND_COUNT; k++)
        if (strlen(names[k]) == length && strncmp(names[k], name, length) == 0) {
            *set |= 1u << k;
            return OK;
        }
    return fail(err, ERR_USAGE, "'%.60s' does not begin with a kind: loss, act, act-grad, grad or step; commas between",
                printable(name).text);
}

enum error_code checked_kinds_read(const char *list, unsigned *set, struct error *err)
{
    enum error_code e = OK;
    *set = 0;
    while (list && !e) {
        const size_t length = strcspn(list, ",");
        e = read_one(list, length, set, err);
        list = list[length] == ',' ? list + length + 1 : NULL;
    }
    return e;
}

/* A kind has so many tensors with a verdict, right or wrong. */
static int judged(const struct checked_kinds *kinds, int kind)
{
    return kinds->of[kind][JUDGED_RIGHT] + kinds->of[kind][JUDGED_LOOSELY] + kinds->of[kind][JUDGED_WRONG];
}

const char *checked_kinds_why_open(const struct checked_kinds *kinds)
{
    if (kinds->alone == 0) return "rounding explains anything there";
    return kinds->alone == checked_kinds_of(kinds, CANNOT_BE_JUDGED)
           ? "the golden file has no numbers of later passes" : "";
}

/* Fail: some tensors cannot be judged.  The message says what to dump or how to compute, so that they can be. */
static enum error_code fail_open(const struct checked_kinds *kinds, enum dtype format, struct error *err)
{
    const int open = checked_kinds_of(kinds, CANNOT_BE_JUDGED);
    const char *const reason = checked_kinds_why_open(kinds);
    char why[96] = "", how[160];
    if (kinds->alone == 0) snprintf(why, sizeof why, "in %s %s; ", dtype_name(format), reason);
    else if (reason[0]) snprintf(why, sizeof why, "%s; ", reason);
    if (kinds->lacks) snprintf(how, sizeof how, "dump %s, from which it is recomputed", kinds->lacks);
    else if (kinds->alone) snprintf(how, sizeof how, "dump all that its operation reads, or leave them out");
    else if (dtype_is_narrow(format))
        snprintf(how, sizeof how, "let the program compute in fp32, where bounds are small, or leave them out");
    else snprintf(how, sizeof how, "make a golden file with a smaller --lr or a larger --eps, or leave them out");
    return fail(err, ERR_CHECK, "%d tensor%s cannot be judged, %s%s: %s%s", open, open == 1 ? "" : "s",
                open == 1 ? "" : "first ", kinds->first_open, why, how);
}

enum error_code checked_kinds_enough(const struct checked_kinds *kinds, const struct check_result *result,
                                     enum dtype format, unsigned required, struct error *err)
{
    /* The loss alone is not enough, unless --require says so. */
    bool more = false;
    for (int k = 0; k < CHECKED_KIND_COUNT; k++) {
        more = more || (k != KIND_LOSS && judged(kinds, k) > 0);
        if ((required & 1u << k) && judged(kinds, k) == 0)
            return fail(err, ERR_CHECK, "--require %s: none of the %d %s were judged", names[k], kinds->all[k],
                        described[k]);
    }
    if (result->unknown > 0)
        return fail(err, ERR_CHECK, "%d tensor%s of ACTUAL could not be judged, such as %.95s: the golden file has "
                    "such a kind, but under no such name; --map can say what is called how", result->unknown,
                    result->unknown == 1 ? "" : "s", result->first_unknown);
    if (kinds->first_open) return fail_open(kinds, format, err);
    if (required || more) return OK;
    return fail(err, ERR_CHECK, "only %s were judged, which many errors hardly change; --require %s accepts that",
                described[KIND_LOSS], names[KIND_LOSS]);
}
