/* gain.c -- how much more fits with one plan than with another one: the largest batch or sequence; tokens a second;
 * and how many times less memory is needed, or fewer bytes are sent.  quantities.c lists the quantity by name.  Words
 * that a plan refuses are ERR_USAGE or ERR_PLAN; other errors are those of the planner.
 *
 * Source   the two inequalities of RSA, arXiv:2105.13120: cutting sequences needs less memory than tensor parallelism
 *          in an MLP if B S > 32 D, and in attention if B S > 16 A H
 */
#include "emulated_devices/bench/claims/quantity.h"
#include "emulated_devices/run/plan.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A largest number that fits is known to one part of so many. */
enum { GAIN_PARTS = 32, GAIN_DOUBLINGS = 20 };

/* One of the two plans of a claim. */
struct side {
    const struct claims_setting *setting;
    const char *word[CLAIM_WORDS];
    int words;
    char number[24];                    /* in place of the value of --batch or --seq */
};

static enum error_code side_plan(struct side *side, struct plan_numbers *numbers, struct error *err)
{
    return side->setting->plan(numbers, side->words, side->word, err);
}

/* Whether `units` times the first number of sequences, or tokens, fit.  A plan that is refused does not fit. */
static bool side_fits(struct side *side, int64_t first, int64_t units)
{
    struct plan_numbers numbers;
    struct error unread;
    snprintf(side->number, sizeof side->number, "%lld", (long long)(first * units));
    return side_plan(side, &numbers, &unread) == OK && (numbers.budget == 0 || numbers.peak <= numbers.budget);
}

/* Look for the most that fits, as multiples of the number in the claim; a peak grows with both numbers.
 * ERR_PLAN: not even that number fits. */
static enum error_code side_most(struct side *side, const char *flag, double *most, struct error *err)
{
    int at = 0;
    while (at + 1 < side->words && strcmp(side->word[at], flag) != 0) at++;
    if (at + 1 >= side->words) return fail(err, ERR_USAGE, "a gain of %s needs the smallest number to try", flag);
    const int64_t first = strtoll(side->word[at + 1], NULL, 10);
    side->word[at + 1] = side->number;
    int64_t fits = 0, fails = 1;
    for (int i = 0; i < GAIN_DOUBLINGS && side_fits(side, first, fails); i++) fits = fails, fails *= 2;
    while (fits > 0 && fails - fits > 1 + fits / GAIN_PARTS) {
        const int64_t middle = fits + (fails - fits) / 2;
        if (side_fits(side, first, middle)) fits = middle;
        else fails = middle;
    }
    *most = (double)(first * fits);
    return fits > 0 ? OK : fail(err, ERR_PLAN, "%s %lld: does not fit", flag, (long long)first);
}

static enum error_code side_number(struct side *side, const char *gain, double *number, struct error *err)
{
    struct plan_numbers numbers;
    if (strcmp(gain, "batch") == 0) return side_most(side, "--batch", number, err);
    if (strcmp(gain, "seq") == 0) return side_most(side, "--seq", number, err);
    const enum error_code e = side_plan(side, &numbers, err);
    if (!e) *number = strcmp(gain, "rate") == 0 ? numbers.speed.tokens
                    : 1 / (double)(strcmp(gain, "memory") == 0 ? numbers.peak : numbers.sent);
    return e;
}

static bool is_gain(const char *word)
{
    static const char *const gains[] = { "batch", "seq", "rate", "memory", "bytes" };
    for (size_t i = 0; i < sizeof gains / sizeof *gains; i++)
        if (strcmp(word, gains[i]) == 0) return true;
    return false;
}

enum error_code quantity_planned_gain(struct claim *claim, const struct claims_setting *setting, struct error *err)
{
    struct side first = { .setting = setting }, other = { .setting = setting };
    const char *const gain = claim_word(claim, "--gain");
    double ours = 0, theirs = 0;
    if (!is_gain(gain)) return fail(err, ERR_USAGE, "--gain %s: must be batch, seq, rate, memory or bytes", gain);
    if (setting->plan == NULL) return fail(err, ERR_USAGE, "claims of planned steps need a planner");
    first.words = planned_words(first.word, claim, false), other.words = planned_words(other.word, claim, true);
    enum error_code e = side_number(&first, gain, &ours, err);
    if (!e) e = side_number(&other, gain, &theirs, err);
    if (!e) claim->ours = ours / theirs;
    return e;
}
