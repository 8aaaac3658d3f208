/* check_against.c -- compares two dumps and prints what first differs by more than rounding.
 * check.c calls check_against when both dumps are open.  The comparison is check/report/pairs.h; check_against_json.c
 * writes it for programs. */
#include "emulated_devices/cli/check_against.h"
#include "emulated_devices/check/report/diagnose.h"
#include "emulated_devices/cli/check_pairs.h"
#include "ref/io/columns.h"
#include "ref/io/figures.h"
#include "ref/io/output.h"
#include "ref/io/pair.h"
#include "ref/io/terminal.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char letter[2] = { 'A', 'B' };

/* ---- one tensor -------------------------------------------------------------------------------------------------- */

/* Why a dump's tensor is wrong, where it was not recomputed. */
static void say_wrong_as_a_whole(char *out, size_t size, const struct checked *checked)
{
    if (checked == NULL) snprintf(out, size, "is wrong");
    else if (checked->finding == DIFFERS && !checked->apart)
        snprintf(out, size, "is outside the bound of its whole pass: error %.2e, bound %.2e", fabs(checked->error),
                 checked->bound);
    else snprintf(out, size, "%s%s%s", finding_words(checked->finding), checked->why[0] ? ": " : "",
                  checked->why[0] ? checked->why : checked->copies);
}

/* Why a dump's tensor cannot be judged. */
static void say_open(char *out, size_t size, const struct single_result *by_itself)
{
    if (by_itself && by_itself->verdict == SINGLE_LACKS)
        snprintf(out, size, "cannot be recomputed: %s is missing", by_itself->lacks);
    else if (by_itself) snprintf(out, size, "is not recomputed: %s", by_itself->made_by);
    else snprintf(out, size, "is not recomputed, and the golden file cannot judge it");
}

void pair_side_words(char *out, size_t size, const struct pair *pair, int k)
{
    char text[300];
    const struct single_result *const r = pair->by_itself[k];
    const bool recomputed = r && r->verdict <= SINGLE_WRONG;
    switch (pair->side[k]) {
    case SIDE_ABSENT: snprintf(out, size, "does not have it"); break;
    case SIDE_OPEN:   say_open(out, size, r); break;
    case SIDE_LOOSE:
    case SIDE_RIGHT:
        if (recomputed) snprintf(out, size, "is what its own inputs give");
        else snprintf(out, size, "is within the bound of its whole pass, %.2g", pair->whole[k]->bound);
        break;
    case SIDE_WRONG:
        if (recomputed && r->verdict == SINGLE_WRONG)
            snprintf(out, size, "is not what its own inputs give: %s", single_describe(r, text, sizeof text));
        else say_wrong_as_a_whole(out, size, pair->whole[k]);
    }
}

/* The first element that is different, and who has it. */
static void print_element(FILE *out, const struct pair *pair, const struct difference *difference)
{
    if (difference->why[0]) {
        say(out, 12, "  why       %c: %s", letter[difference->lacking], difference->why);
        return;
    }
    if (difference->different == 0) {
        say(out, 12, "  copies    in %s are not the same on all ranks",
            difference->copies[0] && difference->copies[1] ? "both" : difference->copies[0] ? "A" : "B");
        return;
    }
    const struct pair_text two = pair_text('g', 6, difference->value[0], difference->value[1]);
    say(out, 12, "  element   row %lld, column %lld is the first of %lld that are different, of %lld",
        (long long)(difference->first / pair->dim[1]), (long long)(difference->first % pair->dim[1]),
        (long long)difference->different, (long long)difference->elements);
    for (int k = 0; k < 2; k++)
        say(out, 12, "            %c has %s: %s", letter[k], k ? two.second : two.first, difference->holder[k]);
}

/* Compare the distance with what the operation's own rounding allows, where both are right by themselves. */
static void print_rounding(FILE *out, const struct pair *pair)
{
    const struct single_result *const a = pair->by_itself[0], *const b = pair->by_itself[1];
    if (pair->verdict != PAIR_ROUNDED || a == NULL || b == NULL || a->verdict > SINGLE_STEPWISE ||
        b->verdict > SINGLE_STEPWISE)
        return;
    const bool own = pair->distance <= a->allowed + b->allowed;
    say(out, 12, "  it is     %s: its rounding alone may be %.2g in A and %.2g in B",
        own ? "no more than this operation's own rounding"
            : "rounding that has grown, from operation to operation", a->allowed, b->allowed);
}

/* Print a tensor with its evidence. */
static enum error_code print_pair(FILE *out, const struct check_against *against, const struct pair *pair,
                                  const struct pair_dump dump[2], struct error *err)
{
    struct difference d;
    char text[400];
    if (pair->side[0] == SIDE_ABSENT || pair->side[1] == SIDE_ABSENT) return OK;
    if (pair->dim[0] == 0) {
        say(out, 12, "  why       A and B show different shapes, or store fewer elements than these");
        return OK;
    }
    const enum error_code e = pairs_look(pair, dump, &d, err);
    if (e) return e;
    if (d.why[0] == '\0') say(out, 12, "  distance  %.2e, norm over norm", pair->distance);
    print_element(out, pair, &d);
    for (int k = 0; k < 2 && against->golden && pair->verdict != PAIR_OTHER_START; k++) {
        pair_side_words(text, sizeof text, pair, k);
        say(out, 12, "  %c         %s", letter[k], text);
    }
    print_rounding(out, pair);
    return OK;
}

/* A wrong operation's worst element, and its ranks. */
static void print_evidence(FILE *out, const struct pair *pair, const struct pair_dump dump[2])
{
    for (int k = 0; k < 2; k++) {
        const struct single_result *const r = pair->by_itself[k];
        if (r == NULL || r->verdict != SINGLE_WRONG) continue;
        const struct pair_text two = pair_text('g', 6, r->have, r->want);
        const char *const where = dump[k].single->where[r - dump[k].single->all];
        say(out, 12, "  worst     in %c, row %lld, column %lld: %s, its inputs give %s; error/bound %.3g%s%s",
            letter[k], (long long)(r->worst / r->cols), (long long)(r->worst % r->cols), two.first, two.second,
            r->ratio, where[0] ? "; only on " : "", where);
    }
}

/* The nearest tensor before it that is the same. */
static void print_before(FILE *out, const struct pairs *pairs, int at)
{
    for (int i = at - 1; i >= 0; i--) {
        const struct pair *const p = &pairs->all[i];
        if (p->verdict == PAIR_SAME) say(out, 12, "  before    %s: the same bits", p->name);
        else if (p->verdict == PAIR_ROUNDED)
            say(out, 12, "  before    %s: the same within rounding, distance %.2e", p->name, p->distance);
        else continue;
        return;
    }
}

static const char *maker_of(const struct pair *pair)
{
    const struct single_result *const r = pair->by_itself[0] ? pair->by_itself[0] : pair->by_itself[1];
    return r ? r->made_by : "";
}

static enum error_code print_named(FILE *out, const struct check_against *against, const char *heading,
                                   const struct pairs *pairs, int at, const struct pair_dump dump[2],
                                   struct error *err)
{
    const struct pair *const p = &pairs->all[at];
    const char *const maker = maker_of(p);
    say(out, 2, "%s: %s%s%s: %s", heading, p->name, maker[0] ? ", " : "", maker, pair_words(p->verdict));
    const enum error_code e = print_pair(out, against, p, dump, err);
    if (e) return e;
    print_evidence(out, p, dump);
    print_before(out, pairs, at);
    return OK;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

/* Only the first of each verdict is named; --all has all. */
static void print_counts(FILE *out, const struct pairs *pairs)
{
    for (int v = 0; v < PAIR_VERDICT_COUNT; v++) {
        int first = 0;
        if (pairs->found[v] == 0) continue;
        while (pairs->all[first].verdict != (enum pair_verdict)v) first++;
        if (v == PAIR_SAME || v == PAIR_ROUNDED) fprintf(out, "  %5d  %s\n", pairs->found[v], pair_words(v));
        else say(out, 9, "  %5d  %s: %s%s", pairs->found[v], pair_words(v), pairs->all[first].name,
                 pairs->found[v] > 1 ? ", ..." : "");
    }
    if (pairs->neither > 0)
        say(out, 9, "  %5d  in the golden file only: %s%s", pairs->neither, pairs->first_neither,
            pairs->neither > 1 ? ", ..." : "");
}

static void print_every(FILE *out, const struct pairs *pairs)
{
    struct columns t = columns_start(out);
    do for (int i = 0; i < pairs->count; i++) {
        const struct pair *const p = &pairs->all[i];
        columns_add(&t, LEFT_ALIGNED, "%s", p->name);
        if (p->different > 0) columns_add(&t, LEFT_ALIGNED, "distance %.2e", p->distance);
        else columns_add(&t, LEFT_ALIGNED, "%s", "");
        columns_add(&t, LEFT_ALIGNED, "%s", pair_words(p->verdict));
        columns_end_row(&t);
    } while (columns_again(&t));
}

/* Warnings do not change the verdict.  Weights are worth one, because everything follows from them. */
static void print_warnings(FILE *out, const struct pairs *pairs, const struct pair_dump dump[2])
{
    const bool golden[2] = { dump[0].single && dump[0].single->golden_weights,
                             dump[1].single && dump[1].single->golden_weights };
    if (golden[0] != golden[1])
        say(out, 10, "warning   only %s has the weights that it begins with, start/NAME: %s's are the golden file's",
            golden[0] ? "B" : "A", golden[0] ? "A" : "B");
    if (pairs->wrong_in_both > 0)
        say(out, 10, "warning   %d tensor%s of the same bits %s not what %s own inputs give, first %s: "
            "`orrery check GOLDEN A` says why", pairs->wrong_in_both, plural(pairs->wrong_in_both),
            pairs->wrong_in_both == 1 ? "is" : "are", pairs->wrong_in_both == 1 ? "its" : "their",
            pairs->all[pairs->first_wrong_in_both].name);
    if (pairs->loose > 0)
        say(out, 10, "warning   %d tensor%s only within a bound above %g: an error of that part of a tensor does not "
            "show", pairs->loose, pairs->loose == 1 ? " is" : "s are", LOOSE_BOUND);
}

enum check_verdict pairs_verdict(const struct pairs *pairs, unsigned required, const char **lacks)
{
    bool more = false;
    *lacks = NULL;
    for (int k = 0; k < CHECKED_KIND_COUNT; k++) {
        more = more || (k != KIND_LOSS && pairs->judged[k] > 0);
        if ((required & 1u << k) && pairs->judged[k] == 0 && *lacks == NULL)
            *lacks = checked_kind_name((enum checked_kind)k);
    }
    if (pairs->first >= 0) return CHECK_FAILED;
    return pairs->first_open >= 0 || *lacks || (required == 0 && !more) ? CHECK_NOT_ENOUGH : CHECK_OK;
}

/* Count the tensors that both have. */
static int count_of_both(const struct pairs *pairs)
{
    return pairs->count - pairs->found[PAIR_ONLY_A] - pairs->found[PAIR_ONLY_B] - pairs->found[PAIR_MISSING];
}

static void print_verdict(FILE *out, enum check_verdict verdict, const struct pairs *pairs)
{
    char text[500], alone[100] = "";
    int differ = 0, open = 0;
    const int both = count_of_both(pairs), alone_a = pairs->found[PAIR_ONLY_A], alone_b = pairs->found[PAIR_ONLY_B];
    for (int v = 0; v < PAIR_VERDICT_COUNT; v++) {
        differ += pair_differs(v) ? pairs->found[v] : 0;
        open += pair_is_open(v) ? pairs->found[v] : 0;
    }
    if (alone_a + alone_b > 0)
        snprintf(alone, sizeof alone, "; not compared: %d in A only, %d in B only", alone_a, alone_b);
    if (verdict == CHECK_FAILED)
        snprintf(text, sizeof text, "FAILED: %d of %d tensors %s by more than rounding, first %s%s", differ,
                 both + pairs->found[PAIR_MISSING], differ == 1 ? "differs" : "differ", pairs->all[pairs->first].name,
                 alone);
    else if (verdict == CHECK_OK)
        snprintf(text, sizeof text, "OK: %d tensors of both, %d with the same bits, %d the same within rounding%s",
                 both, pairs->found[PAIR_SAME], pairs->found[PAIR_ROUNDED], alone);
    else
        snprintf(text, sizeof text, "NOT ENOUGH: %d of %d tensors cannot be judged; %d with the same bits, %d the same "
                 "within rounding%s", open, both, pairs->found[PAIR_SAME], pairs->found[PAIR_ROUNDED], alone);
    fprintf(out, "\n");
    say_verdict(out, verdict == CHECK_OK ? GOOD_NEWS : BAD_NEWS, text);
}

/* Print all; files are read again for the tensors that are named. */
static enum error_code against_report(FILE *out, const struct check_against *against, const struct pairs *pairs,
                                    const struct pair_dump dump[2], enum check_verdict verdict, struct error *err)
{
    enum error_code e = OK;
    if (against->golden) say(out, 8, "golden  %s", against->golden_path);
    for (int k = 0; k < 2; k++)
        say(out, 8, "%c       %s, %d file%s, computed in %s%s%s", letter[k], against->path[k],
            against->actual[k]->files, plural(against->actual[k]->files), dtype_name(against->setting[k].format),
            against->actual[k]->program ? " by " : "",
            against->actual[k]->program ? printable(against->actual[k]->program).text : "");
    fprintf(out, "\n");
    if (against->all) print_every(out, pairs);
    if (pairs->first >= 0)
        e = print_named(out, against, "first to differ by more than rounding", pairs, pairs->first, dump, err);
    else if (pairs->first_open >= 0)
        e = print_named(out, against, "first that cannot be judged", pairs, pairs->first_open, dump, err);
    const int first = pairs->first >= 0 ? pairs->first : pairs->first_open;
    if (!e && first >= 0) fprintf(out, "\n");
    if (!e && pairs->first_different >= 0 && pairs->first_different != first)
        e = print_named(out, against, "first without the same bits", pairs, pairs->first_different, dump, err);
    if (e) return e;
    if (pairs->farthest >= 0)
        say(out, 2, "largest distance: %s, %.2e: %s", pairs->all[pairs->farthest].name,
            pairs->all[pairs->farthest].distance, pair_words(pairs->all[pairs->farthest].verdict));
    fprintf(out, "\n");
    print_counts(out, pairs);
    print_warnings(out, pairs, dump);
    print_verdict(out, verdict, pairs);
    return OK;
}

/* Say in one line why the exit status is not 0. */
static enum error_code fail_by_pair(const struct check_against *against, const struct pairs *pairs,
                                    enum check_verdict verdict, const char *lacks, struct error *err)
{
    char text[400];
    if (verdict == CHECK_OK) return OK;
    const int at = verdict == CHECK_FAILED ? pairs->first : pairs->first_open;
    if (at < 0 && lacks) return fail(err, ERR_CHECK, "--require %s: no tensor of this kind was judged", lacks);
    if (at < 0) return fail(err, ERR_CHECK, "only losses and norms were judged, which many errors hardly change; "
                            "--require loss accepts that");
    const struct pair *const p = &pairs->all[at];
    if (against->golden == NULL)
        return fail(err, ERR_CHECK, "%s: %s; `orrery check GOLDEN A --against B` recomputes it", p->name,
                    pair_words(p->verdict));
    const int wrong = p->verdict == PAIR_A_WRONG || p->verdict == PAIR_NEITHER ? 0 : 1;
    if (p->verdict != PAIR_A_WRONG && p->verdict != PAIR_B_WRONG && !pair_is_open(p->verdict))
        return fail(err, ERR_CHECK, "%s: %s", p->name, pair_words(p->verdict));
    const int open = pair_is_open(p->verdict) && p->side[0] == SIDE_OPEN ? 0 : wrong;
    pair_side_words(text, sizeof text, p, open);
    return fail(err, ERR_CHECK, "%s: %s; %c's %s", p->name, pair_words(p->verdict), letter[open], text);
}

static enum error_code report_pairs(const struct check_against *against, const struct pair_dump dump[2],
                                    struct error *err)
{
    struct pairs pairs;
    const char *lacks;
    enum error_code e = pairs_make(&pairs, against->golden, dump, err);
    if (e) return e;
    const enum check_verdict verdict = pairs_verdict(&pairs, against->required, &lacks);
    const bool to_stdout = against->json && strcmp(against->json, "-") == 0;
    e = against_report(to_stdout ? stderr : stdout, against, &pairs, dump, verdict, err);
    if (!e && against->json)
        e = fail_about(err, check_pairs_json(against, &pairs, dump, verdict, err), "--json");
    if (!e) e = fail_by_pair(against, &pairs, verdict, lacks, err);
    pairs_free(&pairs);
    return e;
}

enum error_code check_against(const struct check_against *against, struct error *err)
{
    struct check_judged judged[2];
    struct pair_dump dump[2];
    int ready = 0;
    enum error_code e = OK;
    for (int k = 0; k < 2; k++)
        dump[k] = (struct pair_dump){ .actual = against->actual[k], .format = against->setting[k].format };
    for (; against->golden && ready < 2 && !e; ready += !e) {
        e = check_judge(against->golden, against->actual[ready], &against->setting[ready], 0, false, &judged[ready],
                        err);
        dump[ready].whole = &judged[ready].whole, dump[ready].single = &judged[ready].single;
    }
    if (!e) e = report_pairs(against, dump, err);
    for (int k = 0; k < ready; k++) check_judged_free(&judged[k]);
    return e;
}
