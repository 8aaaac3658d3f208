/* check_verdict.c -- prints the last line of a check, and has the words of verdicts.  cli/check.c calls after all
 * comparisons.  Inputs are the verdict and the counts of checked kinds.  No function reports errors. */
#include "emulated_devices/cli/check_verdict.h"
#include "ref/io/terminal.h"
#include <stdarg.h>

const char *check_verdict_word(enum check_verdict verdict)
{
    static const char *const words[] = { "OK", "OK for what was recorded", "NOT ENOUGH", "FAILED" };
    return words[verdict];
}

struct line { char text[600]; size_t used; };

static void verdict_add(struct line *l, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void verdict_add(struct line *line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(line->text + line->used, sizeof line->text - line->used, format, args);
    va_end(args);
    line->used += n < 0 ? 0 : (size_t)n;
    if (line->used >= sizeof line->text) line->used = sizeof line->text - 1;
}

/* "1 of 250 tensors differs, first act/h.0.attn.out"; "2 of 250 tensors differ, 3 are missing or do not fit, ...". */
static void add_wrong(struct line *line, const struct checked_kinds *kinds, int compared, const char *first)
{
    const int wrong = checked_kinds_of(kinds, JUDGED_WRONG) + kinds->beside, differ = wrong - kinds->absent;
    if (differ > 0 || kinds->absent == 0)
        verdict_add(line, "%d of %d tensors %s", differ, compared + kinds->beside, differ == 1 ? "differs" : "differ");
    if (kinds->absent > 0 && differ > 0) verdict_add(line, ", %d %s missing or %s not fit", kinds->absent,
                                         kinds->absent == 1 ? "is" : "are", kinds->absent == 1 ? "does" : "do");
    else if (kinds->absent > 0)
        verdict_add(line, "%d of %d tensors %s missing or %s not fit", kinds->absent, compared,
                    kinds->absent == 1 ? "is" : "are",
            kinds->absent == 1 ? "does" : "do");
    if (first) verdict_add(line, ", first %s", first);
}

static void add_open(struct line *line, const struct checked_kinds *kinds)
{
    const int open = checked_kinds_of(kinds, CANNOT_BE_JUDGED);
    if (open == 0) return;
    const char *const why = checked_kinds_why_open(kinds);
    verdict_add(line, "; %d cannot be judged%s%s%s:", open, why[0] ? " (" : "", why, why[0] ? ")" : "");
    for (int i = 0; i < kinds->groups && i < OPEN_GROUPS; i++)
        verdict_add(line, "%s %d %s", i ? "," : "", kinds->group[i].tensors, kinds->group[i].name);
    if (kinds->groups > OPEN_GROUPS) verdict_add(line, ", ...");
}

/* Count the tensors that ACTUAL lacks, by kind. */
static void add_left_out(struct line *line, const struct checked_kinds *kinds)
{
    const char *before = "; not compared: ";
    for (int k = 0; k < CHECKED_KIND_COUNT; k++) {
        if (kinds->undeclared[k] == 0) continue;
        verdict_add(line, "%s%d %s", before, kinds->undeclared[k], checked_kind_name((enum checked_kind)k));
        before = ", ";
    }
    if (kinds->declared > 0)
        verdict_add(line, "; %d tensor%s declared not recorded", kinds->declared,
                    kinds->declared == 1 ? " was" : "s were");
}

void check_verdict_print(FILE *out, enum check_verdict verdict, const struct checked_kinds *kinds, const char *first)
{
    struct line l = { .used = 0 };
    int all = 0;
    for (int k = 0; k < CHECKED_KIND_COUNT; k++) all += kinds->all[k];
    const int loose = checked_kinds_of(kinds, JUDGED_LOOSELY), right = checked_kinds_of(kinds, JUDGED_RIGHT) + loose,
              compared = all - checked_kinds_of(kinds, NOT_JUDGED);
    verdict_add(&l, "%s: ", check_verdict_word(verdict));
    if (verdict == CHECK_FAILED) add_wrong(&l, kinds, compared, first);
    else if (check_verdict_holds(verdict)) verdict_add(&l, "%d of %d tensors compared", right, all);
    else verdict_add(&l, "%d of %d tensors %s right", right, all, right == 1 ? "is" : "are");
    if (verdict != CHECK_FAILED && loose > 0) verdict_add(&l, ", %d only within bounds above %g", loose, LOOSE_BOUND);
    if (verdict != CHECK_FAILED) add_open(&l, kinds);
    add_left_out(&l, kinds);
    fprintf(out, "\n");
    if (verdict != CHECK_FAILED && loose > 0)
        say(out, 10, "warning   %d tensor%s only within a bound above %g, the largest is %.2g: an error of that part "
            "of a tensor does not show\n", loose, loose == 1 ? " is" : "s are", LOOSE_BOUND, kinds->loosest);
    say_verdict(out, check_verdict_holds(verdict) ? GOOD_NEWS : BAD_NEWS, l.text);
}
