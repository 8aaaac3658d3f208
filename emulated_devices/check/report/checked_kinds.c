#include "emulated_devices/check/report/checked_kinds.h"
#include "ref/io/output.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

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

const char *checked_kind_name(enum checked_kind k) { return names[k]; }

static bool ends(const char *name, const char *with)
{
    const size_t n = strlen(name), m = strlen(with);
    return n >= m && strcmp(name + n - m, with) == 0;
}

static bool is_number(const char *name)
{
    static const char *const numbers[] = { "loss", "norm", "balance_loss", "z_loss" };
    const char *slash = strrchr(name, '/'), *last = slash ? slash + 1 : name;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(last, numbers[i]) == 0) return true;
    return false;
}

enum checked_kind checked_kind_of(const char *name)
{
    if (is_number(name)) return KIND_LOSS;
    if (strncmp(name, "act/", 4) == 0) return KIND_ACT;
    if (strncmp(name, "micro/", 6) == 0) return KIND_GRAD;
    if (strncmp(name, "grad/", 5) != 0) return KIND_STEP;
    return ends(name, ".weight") || ends(name, ".bias") ? KIND_GRAD : KIND_ACT_GRAD;
}

/* ---- judgements -------------------------------------------------------------------------------------------------- */

const char *judgement_words(enum judgement j)
{
    static const char *const words[] = { "not judged", "right", "right", "wrong", "cannot be judged" };
    return words[j];
}

enum judgement judgement_of(const struct checked *c, const struct single_result *by_itself)
{
    const bool recomputed = by_itself && by_itself->verdict <= SINGLE_WRONG;
    if (finding_fails(c->finding) || (recomputed && by_itself->verdict == SINGLE_WRONG)) return JUDGED_WRONG;
    if (c->finding == LEFT_OUT) return NOT_JUDGED;
    if (recomputed) return JUDGED_RIGHT;
    if (c->finding != HOLDS) return CANNOT_BE_JUDGED;
    return c->bound > LOOSE_BOUND ? JUDGED_LOOSELY : JUDGED_RIGHT;
}

/* "adamw/2/grad/NAME" is one of "adamw/2/grad"; a number is alone. */
static void name_group(const char *tensor, enum checked_kind kind, char *out, size_t size)
{
    const char *last = strrchr(tensor, '/');
    if (kind == KIND_STEP && last) snprintf(out, size, "%.*s", (int)(last - tensor), tensor);
    else snprintf(out, size, "%s", kind == KIND_LOSS ? tensor : names[kind]);
}

static void add_open(struct checked_kinds *n, const struct checked *c, enum checked_kind kind,
                     const struct single_result *by_itself)
{
    char name[sizeof n->group->name];
    const int kept = n->groups < OPEN_GROUPS ? n->groups : OPEN_GROUPS;
    name_group(c->name, kind, name, sizeof name);
    if (n->first_open == NULL) n->first_open = c->name;
    if (n->lacks == NULL && by_itself && by_itself->verdict == SINGLE_LACKS) n->lacks = by_itself->lacks;
    for (int i = 0; i < kept; i++)
        if (strcmp(n->group[i].name, name) == 0) {
            n->group[i].tensors++;
            return;
        }
    if (n->groups < OPEN_GROUPS) {
        memcpy(n->group[n->groups].name, name, sizeof name);
        n->group[n->groups].tensors = 1;
    }
    n->groups++;
}

struct checked_kinds checked_kinds_count(const struct check_result *r, const struct singles *s)
{
    struct checked_kinds n = { 0 };
    int wrong_alone = 0;
    for (int i = 0; i < r->count; i++) {
        const struct checked *c = &r->all[i];
        const struct single_result *by_itself = singles_find(s, c->name);
        const enum checked_kind k = checked_kind_of(c->name);
        const enum judgement is = judgement_of(c, by_itself);
        n.all[k]++, n.of[k][is]++;
        n.absent += c->finding == MISSING || c->finding == MISSHAPED || c->finding == INCOMPLETE;
        wrong_alone += singles_wrong(s, c->name);
        if (is == JUDGED_LOOSELY) n.loosest = fmax(n.loosest, c->bound);
        if (is == CANNOT_BE_JUDGED) add_open(&n, c, k, by_itself);
    }
    n.beside = s->found[SINGLE_WRONG] - wrong_alone;
    return n;
}

int checked_kinds_of(const struct checked_kinds *n, enum judgement is)
{
    int all = 0;
    for (int k = 0; k < CHECKED_KIND_COUNT; k++) all += n->of[k][is];
    return all;
}

/* ---- what is enough ---------------------------------------------------------------------------------------------- */

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

static int judged(const struct checked_kinds *n, int kind)
{
    return n->of[kind][JUDGED_RIGHT] + n->of[kind][JUDGED_LOOSELY] + n->of[kind][JUDGED_WRONG];
}

/* Why some cannot be judged, and how they can be. */
static enum error_code fail_open(const struct checked_kinds *n, enum dtype format, struct error *err)
{
    const int open = checked_kinds_of(n, CANNOT_BE_JUDGED);
    char how[160];
    if (n->lacks) snprintf(how, sizeof how, "dump %s, from which it is recomputed", n->lacks);
    else if (dtype_is_narrow(format))
        snprintf(how, sizeof how, "let the program compute in fp32, where bounds are small, or leave them out");
    else snprintf(how, sizeof how, "make a golden file with a smaller --lr or a larger --eps, or leave them out");
    return fail(err, ERR_CHECK, "%d tensor%s cannot be judged, %s%s: in %s rounding explains anything there; %s", open,
                open == 1 ? "" : "s", open == 1 ? "" : "first ", n->first_open, dtype_name(format), how);
}

enum error_code checked_kinds_enough(const struct checked_kinds *n, const struct check_result *r, enum dtype format,
                                     unsigned required, struct error *err)
{
    bool more = false;
    for (int k = 0; k < CHECKED_KIND_COUNT; k++) {
        more = more || (k != KIND_LOSS && judged(n, k) > 0);
        if ((required & 1u << k) && judged(n, k) == 0)
            return fail(err, ERR_CHECK, "--require %s: none of the %d %s were judged", names[k], n->all[k],
                        described[k]);
    }
    if (r->unknown > 0)
        return fail(err, ERR_CHECK, "%d tensor%s of ACTUAL could not be judged, such as %.95s: the golden file has "
                    "such a kind, but under no such name; --map can say what is called how", r->unknown,
                    r->unknown == 1 ? "" : "s", r->first_unknown);
    if (n->first_open) return fail_open(n, format, err);
    if (required || more) return OK;
    return fail(err, ERR_CHECK, "only %s were judged, which many errors hardly change; --require %s accepts that",
                described[KIND_LOSS], names[KIND_LOSS]);
}
