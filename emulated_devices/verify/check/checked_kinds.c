#include "emulated_devices/verify/check/checked_kinds.h"
#include "ref/io/output.h"
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

static bool was_compared(enum finding f) { return f == HOLDS || f == DIFFERS || f == NOT_FINITE; }

struct checked_kinds checked_kinds_count(const struct check_result *r)
{
    struct checked_kinds n = { 0 };
    for (int i = 0; i < r->count; i++) {
        const enum checked_kind k = checked_kind_of(r->all[i].name);
        n.all[k]++;
        n.compared[k] += was_compared(r->all[i].finding);
    }
    return n;
}

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

enum error_code checked_kinds_enough(const struct checked_kinds *n, unsigned required, struct error *err)
{
    bool more = false;
    for (int k = 0; k < CHECKED_KIND_COUNT; k++) {
        more = more || (k != KIND_LOSS && n->compared[k] > 0);
        if ((required & 1u << k) && n->compared[k] == 0)
            return fail(err, ERR_CHECK, "--require %s: none of the %d %s were compared", names[k], n->all[k],
                        described[k]);
    }
    if (required || more) return OK;
    return fail(err, ERR_CHECK, "only %s were compared, which many errors hardly change; --require %s accepts that",
                described[KIND_LOSS], names[KIND_LOSS]);
}
