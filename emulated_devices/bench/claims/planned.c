/* planned.c -- numbers of steps that are planned as `orrery plan` plans them: time, speed and memory, which of two
 * plans is faster, and how much more fits with one of both.  quantities.c lists the quantities of this file by name;
 * cli/bench/ computes them.  Words that a plan refuses are ERR_USAGE or ERR_PLAN; other errors are those of the
 * planner.
 *
 * Source   of gains the two inequalities of RSA, arXiv:2105.13120: cutting sequences needs less memory than tensor
 *          parallelism in an MLP if B S > 32 D, and in attention if B S > 16 A H
 */
#include "emulated_devices/bench/claims/quantity.h"
#include "emulated_devices/run/plan.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Words of a claim that are no words of a plan: how a source counts operations, and in which unit it states memory. */
static const char *const own_flags[] = { "--counted", "--unit", "--held", "--gain", NULL };
static const char OTHER[] = "--other-";                 /* before a flag: of the plan that a claim compares with */

static bool planned_is_own(const char *word)
{
    for (const char *const *flag = own_flags; *flag; flag++)
        if (strcmp(*flag, word) == 0) return true;
    return false;
}

/* Where a flag's value stands among a claim's words; -1: the claim has no such flag for the other plan. */
static int planned_other_value(const struct claim *claim, const char *flag)
{
    for (int i = 0; i + 1 < claim->words; i++)
        if (strncmp(claim->word[i], OTHER, sizeof OTHER - 1) == 0 &&
            strcmp(claim->word[i] + sizeof OTHER - 1, flag + 2) == 0)
            return i + 1;
    return -1;
}

/* Copy the words of a plan.  other: with the values that --other-FLAG gives in place of those of the flag. */
static int planned_words(const char *word[CLAIM_WORDS], const struct claim *claim, bool other)
{
    int n = 0;
    for (int i = 0; i < claim->words; i++) {
        const bool more = strncmp(claim->word[i], OTHER, sizeof OTHER - 1) == 0;
        if (planned_is_own(claim->word[i]) || more) {
            i++;                                        /* its value, too */
            continue;
        }
        const int at = other && claim->word[i][0] == '-' ? planned_other_value(claim, claim->word[i]) : -1;
        word[n++] = claim->word[i];
        if (at >= 0) word[n++] = claim->word[at], i++;
    }
    return n;
}

static enum error_code plan_claim(struct plan_numbers *numbers, struct claim *claim, bool other,
                                  const struct claims_setting *setting, struct error *err)
{
    const char *word[CLAIM_WORDS];
    const int words = planned_words(word, claim, other);
    if (setting->plan == NULL)
        return fail(err, ERR_USAGE, "claims of planned steps are for `orrery bench published`");
    return setting->plan(numbers, words, word, err);
}

/* Note the seconds that both numbers amount to.  rate: the numbers are larger if a step is shorter. */
static void planned_note(struct claim *claim, double ours, const struct plan_numbers *numbers, bool rate)
{
    claim->ours = ours;
    claim->predicted = numbers->speed.seconds;
    claim->measured = claim->predicted * (rate ? ours / claim->published : claim->published / ours);
}

enum error_code quantity_planned_seconds(struct claim *claim, const struct claims_setting *setting, struct error *err)
{
    struct plan_numbers numbers;
    const enum error_code e = plan_claim(&numbers, claim, false, setting, err);
    if (!e) planned_note(claim, numbers.speed.seconds, &numbers, false);
    return e;
}

enum error_code quantity_planned_milliseconds(struct claim *claim, const struct claims_setting *setting,
                                              struct error *err)
{
    const enum error_code e = quantity_planned_seconds(claim, setting, err);
    if (!e) claim->ours *= 1e3;
    return e;
}

/* ---- steps of a GPT ---------------------------------------------------------------------------------------------- */

enum { GPT_VOCABULARY = 51200, GPT_LARGEST = 1 << 24, GPT_WORD = 96, GPT_NODE = 8 };
struct gpt_step { int devices, batch, micro, width, heads, layers, tokens, tp, dp, pp; };

/* The sizes of a step are flags of its claim alone; the others are words of the plan. */
static enum error_code gpt_take(struct gpt_step *step, const struct claim *claim, int *words,
                                const char *word[CLAIM_WORDS], struct error *err)
{
    struct claim sizes = { .words = 0 };
    const struct { const char *flag; int *to; } flag[] = {
        { "--devices", &step->devices }, { "--batch", &step->batch }, { "--micro", &step->micro },
        { "--width", &step->width }, { "--heads", &step->heads }, { "--layers", &step->layers },
        { "--tokens", &step->tokens }, { "--tp", &step->tp }, { "--dp", &step->dp }, { "--pp", &step->pp },
    };
    enum { FLAGS = sizeof flag / sizeof *flag };
    struct option table[FLAGS + 1] = { { 0 } };
    for (int i = 0; i < FLAGS; i++)
        table[i] = (struct option){ flag[i].flag, "N", OPTION_INT, flag[i].to, .min = 1, .max = GPT_LARGEST,
                                    .required = true, .help = "" };
    for (int i = 0; i + 1 < claim->words; i += 2) {
        bool size = false;
        for (int k = 0; k < FLAGS; k++) size = size || strcmp(claim->word[i], flag[k].flag) == 0;
        const char **const to = size ? &sizes.word[sizes.words] : &word[*words];
        to[0] = claim->word[i], to[1] = claim->word[i + 1];
        *(size ? &sizes.words : words) += 2;
    }
    return claim_take(&sizes, table, err);
}

static enum error_code gpt_check(const struct gpt_step *step, struct error *err)
{
    const char *const why = (int64_t)step->tp * step->dp * step->pp != step->devices
        ? "tp, dp and pp do not make the number of devices"
        : step->batch % ((int64_t)step->dp * step->micro) != 0 ? "the batch is not whole microbatches" : NULL;
    if (!why) return OK;
    return fail(err, ERR_PLAN, "tp %d, dp %d, pp %d of %d devices: %s", step->tp, step->dp, step->pp, step->devices,
                why);
}

/* A GPT has 12 D^2 and 13 D parameters in a layer, and V + S rows of embeddings (arXiv:2104.04473, section 5.1). */
static void gpt_name(struct claim *claim, const struct gpt_step *step)
{
    const double width = step->width, parameters = 12 * step->layers * width * width * (1 + 13 / (12 * width))
        + (GPT_VOCABULARY + step->tokens) * width;
    snprintf(claim->what, sizeof claim->what, "%.1fB on %d: tp %d pp %d dp %d, %d of %d", parameters / 1e9,
             step->devices, step->tp, step->pp, step->dp, step->micro, step->batch);
}

enum error_code quantity_gpt_milliseconds(struct claim *claim, const struct claims_setting *setting, struct error *err)
{
    struct gpt_step s = { 0 };
    const char *word[CLAIM_WORDS];
    char model[GPT_WORD], size[5][GPT_WORD];
    static const char *const flag[] = { "--batch", "--dp", "--tp", "--pp", "--micro" };
    struct plan_numbers numbers;
    int words = 0;
    if (setting->plan == NULL) return fail(err, ERR_USAGE, "claims of planned steps need a planner");
    enum error_code e = gpt_take(&s, claim, &words, word, err);
    if (!e) e = gpt_check(&s, err);
    if (e) return e;
    snprintf(model, sizeof model, "gpt2:L=%d,H=%d,D=%d,F=%lld,V=%d,S=%d", s.layers, s.heads, s.width,
             4LL * s.width, GPT_VOCABULARY, s.tokens);
    const int value[] = { s.batch, s.dp, s.tp, s.pp, s.batch / s.dp / s.micro };
    word[words++] = "--model", word[words++] = model;
    for (int i = 0; i < 5; i++) {
        snprintf(size[i], sizeof size[i], "%d", value[i]);
        word[words++] = flag[i], word[words++] = size[i];
    }
    /* NCCL's rings leave a node by all of its cards, which two rings across each other do as well. */
    if (s.tp > GPT_NODE) word[words++] = "--allreduce", word[words++] = "torus_2d";
    gpt_name(claim, &s);
    e = setting->plan(&numbers, words, word, err);
    if (!e) planned_note(claim, 1e3 * numbers.speed.seconds, &numbers, false);
    return e;
}

/* ---- speed and memory -------------------------------------------------------------------------------------------- */

enum error_code quantity_planned_tokens(struct claim *claim, const struct claims_setting *setting, struct error *err)
{
    struct plan_numbers numbers;
    const enum error_code e = plan_claim(&numbers, claim, false, setting, err);
    if (!e) planned_note(claim, numbers.speed.tokens, &numbers, true);
    return e;
}

/* How a source counts the operations of attention: there is no usual way, so each file must say it. */
static enum error_code planned_count(enum attention_count *count, const struct claim *claim, struct error *err)
{
    const char *const word = claim_word(claim, "--counted");
    *count = strcmp(word, "whole") == 0 ? ATTENTION_WHOLE : ATTENTION_BY_HALF;
    if (*count == ATTENTION_WHOLE || strcmp(word, "by-half") == 0) return OK;
    return fail(err, ERR_USAGE, "--counted %s: must be whole or by-half", word);
}

enum error_code quantity_planned_rate(struct claim *claim, const struct claims_setting *setting, struct error *err)
{
    struct plan_numbers numbers;
    enum attention_count count;
    enum error_code e = planned_count(&count, claim, err);
    if (!e) e = plan_claim(&numbers, claim, false, setting, err);
    if (!e) planned_note(claim, numbers.speed.flops[count] / 1e12, &numbers, true);
    return e;
}

enum error_code quantity_planned_utilization(struct claim *claim, const struct claims_setting *setting,
                                             struct error *err)
{
    struct plan_numbers numbers;
    enum attention_count count;
    enum error_code e = planned_count(&count, claim, err);
    if (!e) e = plan_claim(&numbers, claim, false, setting, err);
    if (!e) planned_note(claim, 100 * numbers.speed.utilization[count], &numbers, true);
    return e;
}

/* Per cent of the time that makes progress when devices fail, with the words of --mtbf. */
enum error_code quantity_planned_goodput(struct claim *claim, const struct claims_setting *setting, struct error *err)
{
    struct plan_numbers numbers;
    const enum error_code e = plan_claim(&numbers, claim, false, setting, err);
    if (!e) claim->ours = 100 * numbers.goodput;
    return e;
}

/* The peak that a source prints: of our own tensors, or with --memory-of what a framework's allocator has. */
static enum error_code planned_peak(uint64_t *bytes, const struct claim *claim, const struct plan_numbers *numbers,
                                    struct error *err)
{
    const char *const word = claim_word(claim, "--held");
    const bool framework = numbers->memory.reserved > 0;
    if (strcmp(word, "own") == 0) *bytes = numbers->peak;
    else if (framework && strcmp(word, "reserved") == 0) *bytes = numbers->memory.reserved;
    else if (framework && strcmp(word, "allocated") == 0) *bytes = numbers->memory.allocated;
    else return fail(err, ERR_USAGE, "--held %s: must be own, or with --memory-of reserved or allocated", word);
    return OK;
}

enum error_code quantity_planned_memory(struct claim *claim, const struct claims_setting *setting, struct error *err)
{
    static const struct { const char *name; double bytes; } units[] = { { "GiB", 0x1p30 }, { "GB", 1e9 },
                                                                        { "MiB", 0x1p20 } };
    struct plan_numbers numbers;
    uint64_t peak = 0;
    double bytes = 0;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(claim_word(claim, "--unit"), units[i].name) == 0) bytes = units[i].bytes;
    if (!(bytes > 0)) return fail(err, ERR_USAGE, "--unit %s: must be GiB, GB or MiB", claim_word(claim, "--unit"));
    enum error_code e = plan_claim(&numbers, claim, false, setting, err);
    if (!e) e = planned_peak(&peak, claim, &numbers, err);
    if (e) return e;
    claim->ours = (double)peak / bytes;
    claim->predicted = (double)peak / 0x1p30;
    claim->measured = claim->published * bytes / 0x1p30;
    return OK;
}

/* How many times as long the other plan takes for a token, because the batches may differ. */
enum error_code quantity_planned_order(struct claim *claim, const struct claims_setting *setting, struct error *err)
{
    struct plan_numbers first, other;
    enum error_code e = plan_claim(&first, claim, false, setting, err);
    if (!e) e = plan_claim(&other, claim, true, setting, err);
    if (!e) claim->ours = first.speed.tokens / other.speed.tokens;
    return e;
}

/* How many times as many tokens of samples a second as with a sample in each sequence, whose other tokens are padding
 * that is computed. */
enum error_code quantity_planned_packing(struct claim *claim, const struct claims_setting *setting, struct error *err)
{
    struct plan_numbers packed, alone;
    struct claim one = *claim;
    enum error_code e = plan_claim(&packed, claim, false, setting, err);
    for (int i = 0; i + 1 < one.words; i++) {
        if (strcmp(one.word[i], "--pack") != 0) continue;
        memmove(one.word + i, one.word + i + 2, (size_t)(one.words - i - 2) * sizeof *one.word);
        one.words -= 2;
    }
    if (!e) e = plan_claim(&alone, &one, false, setting, err);
    if (!e) claim->ours = packed.speed.tokens * packed.useful / (alone.speed.tokens * packed.alone);
    return e;
}

/* ---- how much more ----------------------------------------------------------------------------------------------- */

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
                    : 1 / (double)(strcmp(gain, "memory") == 0 ? numbers.peak
                                   : strcmp(gain, "messages") == 0 ? numbers.messages : numbers.sent);
    return e;
}

static bool is_gain(const char *word)
{
    static const char *const gains[] = { "batch", "seq", "rate", "memory", "bytes", "messages" };
    for (size_t i = 0; i < sizeof gains / sizeof *gains; i++)
        if (strcmp(word, gains[i]) == 0) return true;
    return false;
}

enum error_code quantity_planned_gain(struct claim *claim, const struct claims_setting *setting, struct error *err)
{
    struct side first = { .setting = setting }, other = { .setting = setting };
    const char *const gain = claim_word(claim, "--gain");
    double ours = 0, theirs = 0;
    if (!is_gain(gain))
        return fail(err, ERR_USAGE, "--gain %s: must be batch, seq, rate, memory, bytes or messages", gain);
    if (setting->plan == NULL) return fail(err, ERR_USAGE, "claims of planned steps need a planner");
    first.words = planned_words(first.word, claim, false), other.words = planned_words(other.word, claim, true);
    enum error_code e = side_number(&first, gain, &ours, err);
    if (!e) e = side_number(&other, gain, &theirs, err);
    if (!e) claim->ours = ours / theirs;
    return e;
}
