#include "emulated_devices/cli/check_verdict.h"
#include "ref/io/terminal.h"
#include <stdarg.h>

const char *check_verdict_word(enum check_verdict v)
{
    static const char *const words[] = { "OK", "NOT ENOUGH", "FAILED" };
    return words[v];
}

struct line { char text[600]; size_t used; };

static void verdict_add(struct line *l, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void verdict_add(struct line *l, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(l->text + l->used, sizeof l->text - l->used, format, args);
    va_end(args);
    l->used += n < 0 ? 0 : (size_t)n;
    if (l->used >= sizeof l->text) l->used = sizeof l->text - 1;
}

/* "1 of 250 tensors differs, first act/h.0.attn.out"; "2 of 250 tensors differ, 3 are missing or do not fit, ...". */
static void add_wrong(struct line *l, const struct checked_kinds *n, int compared, const char *first)
{
    const int wrong = checked_kinds_of(n, JUDGED_WRONG) + n->beside, differ = wrong - n->absent;
    if (differ > 0 || n->absent == 0)
        verdict_add(l, "%d of %d tensors %s", differ, compared + n->beside, differ == 1 ? "differs" : "differ");
    if (n->absent > 0 && differ > 0) verdict_add(l, ", %d %s missing or %s not fit", n->absent,
                                         n->absent == 1 ? "is" : "are", n->absent == 1 ? "does" : "do");
    else if (n->absent > 0)
        verdict_add(l, "%d of %d tensors %s missing or %s not fit", n->absent, compared, n->absent == 1 ? "is" : "are",
            n->absent == 1 ? "does" : "do");
    if (first) verdict_add(l, ", first %s", first);
}

static void add_open(struct line *l, const struct checked_kinds *n)
{
    const int open = checked_kinds_of(n, CANNOT_BE_JUDGED);
    if (open == 0) return;
    verdict_add(l, "; %d cannot be judged (rounding explains anything there):", open);
    for (int i = 0; i < n->groups && i < OPEN_GROUPS; i++)
        verdict_add(l, "%s %d %s", i ? "," : "", n->group[i].tensors, n->group[i].name);
    if (n->groups > OPEN_GROUPS) verdict_add(l, ", ...");
}

/* Count the tensors that ACTUAL lacks, by kind. */
static void add_left_out(struct line *l, const struct checked_kinds *n)
{
    const char *before = "; not compared: ";
    for (int k = 0; k < CHECKED_KIND_COUNT; k++) {
        if (n->of[k][NOT_JUDGED] == 0) continue;
        verdict_add(l, "%s%d %s", before, n->of[k][NOT_JUDGED], checked_kind_name((enum checked_kind)k));
        before = ", ";
    }
}

void check_verdict_print(FILE *out, enum check_verdict v, const struct checked_kinds *n, const char *first)
{
    struct line l = { .used = 0 };
    int all = 0;
    for (int k = 0; k < CHECKED_KIND_COUNT; k++) all += n->all[k];
    const int loose = checked_kinds_of(n, JUDGED_LOOSELY), right = checked_kinds_of(n, JUDGED_RIGHT) + loose,
              compared = all - checked_kinds_of(n, NOT_JUDGED);
    verdict_add(&l, "%s: ", check_verdict_word(v));
    if (v == CHECK_FAILED) add_wrong(&l, n, compared, first);
    else if (v == CHECK_OK) verdict_add(&l, "%d of %d tensors compared", right, all);
    else verdict_add(&l, "%d of %d tensors %s right", right, all, right == 1 ? "is" : "are");
    if (v != CHECK_FAILED && loose > 0) verdict_add(&l, ", %d only within bounds above %g", loose, LOOSE_BOUND);
    if (v != CHECK_FAILED) add_open(&l, n);
    add_left_out(&l, n);
    fprintf(out, "\n");
    if (v != CHECK_FAILED && loose > 0)
        say(out, 10, "warning   %d tensor%s only within a bound above %g, the largest is %.2g: an error of that part "
            "of a tensor does not show\n", loose, loose == 1 ? " is" : "s are", LOOSE_BOUND, n->loosest);
    say_verdict(out, v == CHECK_OK ? GOOD_NEWS : BAD_NEWS, l.text);
}
