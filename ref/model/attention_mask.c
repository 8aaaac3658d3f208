/* attention_mask.c -- the masks of attention_mask.h, one row each: a name, its two numbers and what a token sees.
 * A mask of its own is one function and one row.  Callers are named in attention_mask.h.  Only a text can be wrong:
 * ERR_USAGE. */
#include "ref/model/attention_mask.h"
#include "ref/model/config.h"
#include "ref/io/options.h"
#include "ref/io/output.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The most tokens that a number of a mask counts. */
#define MOST_TOKENS 1e9

/* Places that a token sees: [0, end of the first range), and [start of the second one, the token itself]. */
struct seen { int64_t end, start; };

/* ---- what a token at a place sees -------------------------------------------------------------------------------- */

/* The first range ends behind the token itself, so that nothing is left for a second one. */
static struct seen causal_sees(const double value[2], int64_t n, int64_t at)
{
    (void)value, (void)n;
    return (struct seen){ at + 1, at + 1 };
}

static struct seen lambda_sees(const double value[2], int64_t n, int64_t at)
{
    (void)n;
    return (struct seen){ (int64_t)value[0], at + 1 - (int64_t)value[1] };
}

static struct seen shared_question_sees(const double value[2], int64_t n, int64_t at)
{
    const int64_t answers = (int64_t)value[0], question = (int64_t)((double)n * value[1]);
    /* The last answer also has the tokens that are left when all answers are equally long. */
    const int64_t each = (n - question) / answers, last = question + (answers - 1) * each;
    if (at < question) return causal_sees(value, n, at);
    return (struct seen){ question, at < last ? question + (at - question) / each * each : last };
}

static struct seen blockwise_sees(const double value[2], int64_t n, int64_t at)
{
    const int64_t size = (int64_t)value[0], block = at / size;
    if (block == 0 || block == (n - 1) / size) return causal_sees(value, n, at);
    /* The released code counts the window in tokens, not in whole blocks: BLOCKS x TOKENS before the token itself. */
    return (struct seen){ size, at - (int64_t)value[1] * size };
}

/* ---- the rows ---------------------------------------------------------------------------------------------------- */

/* A number of a mask: its name, the released code's value, and which values can be. */
struct mask_number { const char *name; double usual, least, most; bool whole; };

static const struct mask_row {
    const char *name;
    struct mask_number number[2];       /* no name: the mask has no such number */
    struct seen (*sees)(const double value[2], int64_t n, int64_t at);
} mask_rows[ATTENTION_MASKS] = {
    [ATTENTION_CAUSAL] = { "causal", .sees = causal_sees },
    [ATTENTION_LAMBDA] = {
        "lambda", { { "SINKS", 64, 0, MOST_TOKENS, true }, { "WINDOW", 4096, 0, MOST_TOKENS, true } }, lambda_sees },
    [ATTENTION_SHARED_QUESTION] = {
        "shared-question", { { "ANSWERS", 4, 1, MOST_TOKENS, true }, { "PART", 0.2, 0, 0.999, false } },
        shared_question_sees },
    [ATTENTION_BLOCKWISE] = {
        "blockwise", { { "TOKENS", 256, 1, MOST_TOKENS, true }, { "BLOCKS", 2, 0, 1e6, true } }, blockwise_sees },
};

bool attention_mask_is_causal(const struct attention_mask *mask) { return mask->kind == ATTENTION_CAUSAL; }

int attention_mask_ranges(const struct attention_mask *mask)
{
    return attention_mask_is_causal(mask) ? 1 : ATTENTION_MASK_RANGES;
}

static int64_t mask_least(int64_t a, int64_t b) { return a < b ? a : b; }

void attention_mask_fill(const struct attention_mask *mask, int64_t first, int64_t n, int32_t *sees)
{
    const int ranges = attention_mask_ranges(mask);
    for (int64_t at = 0; at < n; at++) {
        const struct seen s = mask_rows[mask->kind].sees(mask->value, n, at);
        /* No token sees a later one.  The second range begins where the first one has ended, or later. */
        const int64_t end = mask_least(s.end, at + 1), start = s.start > end ? s.start : end;
        *sees++ = (int32_t)first, *sees++ = (int32_t)(first + end);
        if (ranges > 1) *sees++ = (int32_t)(first + mask_least(start, at + 1)), *sees++ = (int32_t)(first + at + 1);
    }
}

double attention_mask_pairs(const struct attention_mask *mask, int64_t n)
{
    double pairs = 0;
    if (attention_mask_is_causal(mask)) return (double)n * (double)(n + 1) / 2;
    for (int64_t at = 0; at < n; at++) {
        const struct seen s = mask_rows[mask->kind].sees(mask->value, n, at);
        const int64_t end = mask_least(s.end, at + 1), start = s.start > end ? s.start : end;
        pairs += (double)(end + at + 1 - mask_least(start, at + 1));
    }
    return pairs;
}

/* ---- as typed ---------------------------------------------------------------------------------------------------- */

/* The fewest digits that are read as the same number: a checkpoint has this text, and later runs read it. */
static int mask_digits(double value)
{
    char text[32];
    /* Ten digits are those of a whole number up to MOST_TOKENS: it is written without a power of ten. */
    int digits = 10;
    for (; digits < DBL_DECIMAL_DIG; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    return digits;
}

struct attention_mask_text attention_mask_text(const struct attention_mask *mask)
{
    struct attention_mask_text t;
    const struct mask_row *row = &mask_rows[mask->kind];
    const double a = mask->value[0], b = mask->value[1];
    if (row->number[0].name == NULL) snprintf(t.text, sizeof t.text, "%s", row->name);
    else snprintf(t.text, sizeof t.text, "%s:%.*g,%.*g", row->name, mask_digits(a), a, mask_digits(b), b);
    return t;
}

/* Read one number and step behind it.  A number is decimal: strtod also takes blanks, signs, "inf" and "0x4".
 * @return whether a number was there that the mask can have. */
static bool take_mask_number(const struct mask_number *number, const char **at, double *value)
{
    char *end;
    *value = strtod(*at, &end);
    const bool decimal = **at >= '0' && **at <= '9' && strspn(*at, "0123456789.eE+-") >= (size_t)(end - *at);
    const bool there = decimal && *value >= number->least && *value <= number->most;
    *at = end;
    return there && (!number->whole || *value == floor(*value));
}

/* "FIRST,SECOND", of which the second one may be missing. */
static bool take_mask_numbers(struct attention_mask *mask, const char *at)
{
    const struct mask_row *const row = &mask_rows[mask->kind];
    if (row->number[0].name == NULL || !take_mask_number(&row->number[0], &at, &mask->value[0])) return false;
    if (*at == ',') at++;
    else return *at == '\0';
    return take_mask_number(&row->number[1], &at, &mask->value[1]) && *at == '\0';
}

static enum error_code refuse_mask_numbers(const struct mask_row *row, const char *text, struct error *err)
{
    const struct mask_number *const a = &row->number[0], *const b = &row->number[1];
    if (a->name == NULL)
        return fail(err, ERR_USAGE, "--mask %s: %s has no numbers", printable(text).text, row->name);
    return fail(err, ERR_USAGE, "--mask %s: must be %s:%s,%s: %s a %snumber from %g to %g, %s a %snumber from %g to %g",
                printable(text).text, row->name, a->name, b->name, a->name, a->whole ? "whole " : "", a->least, a->most,
                b->name, b->whole ? "whole " : "", b->least, b->most);
}

enum error_code attention_mask_parse(struct attention_mask *mask, const char *text, struct error *err)
{
    const size_t length = strcspn(text, ":");
    const char *names[ATTENTION_MASKS];
    char name[64];
    unsigned kind = 0;
    snprintf(name, sizeof name, "%.*s", length < sizeof name ? (int)length : (int)sizeof name - 1, text);
    for (int i = 0; i < ATTENTION_MASKS; i++) names[i] = mask_rows[i].name;
    while (kind < ATTENTION_MASKS && strcmp(names[kind], name) != 0) kind++;
    if (kind == ATTENTION_MASKS) return fail_unknown_name(err, "--mask", name, names, ATTENTION_MASKS);
    const struct mask_row *const row = &mask_rows[kind];
    *mask = (struct attention_mask){ .kind = kind, .value = { row->number[0].usual, row->number[1].usual } };
    if (text[length] == ':' && !take_mask_numbers(mask, text + length + 1)) return refuse_mask_numbers(row, text, err);
    if (kind == ATTENTION_LAMBDA && mask->value[0] + mask->value[1] == 0)
        return fail(err, ERR_USAGE, "--mask %s: tokens would see no key; SINKS or WINDOW must be at least 1",
                    printable(text).text);
    return OK;
}
