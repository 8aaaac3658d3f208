/* warmup_answer.c -- reads the answer to a warm-up, and says what is wrong with it.  cli/course/ and course/teacher/
 * call these functions.  A student may type 48, 48 bytes, 0.5, 1/2, 2*3 or 2^-7, and 12, 21 or "all" for a word.  What
 * cannot be read is told, and is no error. */
#include "emulated_devices/course/warmups/warmup.h"
#include "ref/io/output.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Numbers that are not whole may be rounded to this part: three digits. */
#define ROUNDED 0.005

enum unit_kind { UNIT_NONE, UNIT_BYTES, UNIT_TIME, UNIT_PART };

/* A KB has 1000 bytes for some and 1024 for others; both are taken. */
static const struct unit { const char *word; enum unit_kind kind; double size, also; } units[] = {
    { "B", UNIT_BYTES, 1, 1 }, { "byte", UNIT_BYTES, 1, 1 }, { "bytes", UNIT_BYTES, 1, 1 },
    { "KiB", UNIT_BYTES, 1024, 1024 }, { "MiB", UNIT_BYTES, 0x1p20, 0x1p20 }, { "GiB", UNIT_BYTES, 0x1p30, 0x1p30 },
    { "KB", UNIT_BYTES, 1e3, 1024 }, { "MB", UNIT_BYTES, 1e6, 0x1p20 }, { "GB", UNIT_BYTES, 1e9, 0x1p30 },
    { "ps", UNIT_TIME, 1, 1 }, { "ns", UNIT_TIME, 1e3, 1e3 }, { "us", UNIT_TIME, 1e6, 1e6 },
    { "\u00b5s", UNIT_TIME, 1e6, 1e6 }, { "microsecond", UNIT_TIME, 1e6, 1e6 }, { "ms", UNIT_TIME, 1e9, 1e9 },
    { "microseconds", UNIT_TIME, 1e6, 1e6 }, { "s", UNIT_TIME, 1e12, 1e12 }, { "seconds", UNIT_TIME, 1e12, 1e12 },
    { "%", UNIT_PART, 1, 1 }, { "percent", UNIT_PART, 1, 1 },
};

static const struct unit *unit_find(const char *word)
{
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcasecmp(units[i].word, word) == 0) return &units[i];
    return NULL;
}

/* "message" and "messages" are the same word. */
static bool same_word(const char *a, const char *b)
{
    const size_t n = strlen(a), m = strlen(b);
    const size_t na = n && a[n - 1] == 's' ? n - 1 : n, nb = m && b[m - 1] == 's' ? m - 1 : m;
    return na == nb && strncasecmp(a, b, na) == 0;
}

static enum error_code tell(struct reply *reply, enum reply_kind kind, const char *text)
{
    reply->kind = kind;
    snprintf(reply->text, sizeof reply->text, "%s", text);
    return OK;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* In front of three digits a comma divides thousands; else it is a decimal point. */
static void take_commas(char *text)
{
    char *to = text;
    for (const char *at = text; *at; at++) {
        size_t before = 0;
        while (at - text > (long)before && isdigit((unsigned char)at[-1 - (long)before])) before++;
        const bool thousands = *at == ',' && before > 0 && at[-(long)before] != '0' &&
                               strspn(at + 1, "0123456789") == 3;
        if (!thousands) *to++ = *at == ',' ? '.' : *at;
    }
    *to = '\0';
}

/* Cut "48 bytes" into a number and a word.  @return false: there is no number. */
static bool answer_split(const char *answer, double *value, char *word, size_t size)
{
    struct formula_scope none = { .numbers = 0 };
    struct formula_number n;
    char text[ANSWER_MOST + 1];
    size_t used = 0;
    /* The number ends with its last digit, or with the parenthesis behind it. */
    for (size_t i = 0; answer[i]; i++) if (isdigit((unsigned char)answer[i]) || answer[i] == ')') used = i + 1;
    if (used > 0 && answer[used] == '.') used++;
    snprintf(text, sizeof text, "%.*s", (int)used, answer);
    if (used == 0 || strspn(text, "0123456789.,+-*/^()% eE") != used) return false;
    const char *rest = answer + used + strspn(answer + used, " ");
    snprintf(word, size, "%.*s", (int)strcspn(rest, " "), rest);
    take_commas(text);
    if (formula_compute(&none, text, &n, NULL) != OK) return false;
    *value = n.value;
    return true;
}

static bool is_answer(double got, double want)
{
    const double off = fabs(got - want);
    return want == floor(want) ? off <= 1e-9 * fmax(1, fabs(want)) : off <= ROUNDED * fabs(want);
}

/* Whether a number with its unit is this one.  percent: a part of 1 may stand for it. */
static bool number_is(const struct question *question, double got, const struct unit *typed, double want)
{
    const char *asked = question->warmup->unit;
    const struct unit *unit = asked ? unit_find(asked) : NULL;
    if (unit && typed && unit->kind == typed->kind)
        return is_answer(got * typed->size / unit->size, want) || is_answer(got * typed->also / unit->size, want);
    if (unit && unit->kind == UNIT_PART && is_answer(100 * got, want) && want != 0) return true;
    return is_answer(got, want);
}

/* How far off it is, without giving the answer away. */
static const char *far_off(double got, double want)
{
    const double more = got / want, less = want / got;
    if (want == 0 || got == 0 || more < 0) return "Not yet.";
    if (more >= 2 && fabs(more - round(more)) < 1e-9)
        return "Not yet: it is too large, by a whole factor.  What is in it more than once?";
    if (less >= 2 && fabs(less - round(less)) < 1e-9)
        return "Not yet: it is too small, by a whole factor.  What is in it too seldom?";
    return more > 1 ? "Not yet: it is too large." : "Not yet: it is too small.";
}

static enum error_code tell_wrong(const struct question *question, const struct warmup_wrong *wrong,
                                  struct reply *reply, struct error *err)
{
    char *text = warmup_text(question, wrong->means, err);
    if (text == NULL) return err->code;
    tell(reply, REPLY_WRONG, text);
    free(text);
    return OK;
}

static enum error_code answer_number(const struct question *question, const char *answer, struct reply *reply,
                                     struct error *err)
{
    char word[40] = "", why[260];
    double got = 0;
    const char *asked = question->warmup->unit;
    if (!answer_split(answer, &got, word, sizeof word))
        return tell(reply, REPLY_UNREADABLE, "A number is expected, such as 12, 3/4, 0.75 or 2*6.");
    const struct unit *typed = unit_find(word), *unit = asked ? unit_find(asked) : NULL;
    const bool fits = word[0] == '\0' || (asked && same_word(word, asked)) ||
                      (typed && unit && typed->kind == unit->kind);
    if (!fits) {
        snprintf(why, sizeof why, "\"%s\": the question asks for %s.", printable(word).text, asked ? asked
                 : "a number alone");
        return tell(reply, REPLY_UNREADABLE, why);
    }
    if (number_is(question, got, typed, question->right)) return tell(reply, REPLY_RIGHT, "");
    for (const struct warmup_wrong *w = question->warmup->wrong; w->answer; w++) {
        struct formula_number n;
        if (formula_compute(&question->scope, w->answer, &n, err) != OK) return err->code;
        if (number_is(question, got, typed, n.value)) return tell_wrong(question, w, reply, err);
    }
    const double in_unit = typed && unit ? got * typed->size / unit->size : got;
    return tell(reply, REPLY_WRONG, asked ? far_off(in_unit, question->right) : "Not yet.");
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

static int compare_characters(const void *a, const void *b) { return *(const char *)a - *(const char *)b; }

/* Write a word in one way: small letters, without blanks and signs.  Devices of a sum have no order; all of them
 * are `*`. */
static void plain_word(const struct question *question, const char *word, char *to, size_t size)
{
    struct formula_number W = { 0, true };
    size_t n = 0, digits;
    for (const char *at = word; *at && n + 1 < size; at++)
        if (!strchr(" ,+&\"'`", *at)) to[n++] = (char)tolower((unsigned char)*at);
    to[n] = '\0';
    if (strcmp(to, "all") == 0 || strcmp(to, "everything") == 0) snprintf(to, size, "*");
    digits = strspn(to, "0123456789");
    if (digits == 0 || to[digits]) return;
    qsort(to, digits, 1, compare_characters);
    bool all = formula_compute(&question->scope, "W", &W, NULL) == OK && (double)digits == W.value;
    for (size_t i = 0; i < digits; i++) all = all && to[i] == (char)('0' + i);
    if (all) snprintf(to, size, "*");
}

static enum error_code answer_word(const struct question *question, const char *answer, struct reply *reply,
                                   struct error *err)
{
    char got[80], want[80];
    plain_word(question, answer, got, sizeof got), plain_word(question, question->word, want, sizeof want);
    if (strcmp(got, want) == 0) return tell(reply, REPLY_RIGHT, "");
    for (const struct warmup_wrong *w = question->warmup->wrong; w->answer; w++) {
        char *text = warmup_text(question, w->answer, err);
        if (text == NULL) return err->code;
        plain_word(question, text, want, sizeof want);
        free(text);
        if (strcmp(got, want) == 0) return tell_wrong(question, w, reply, err);
    }
    return tell(reply, REPLY_WRONG, "Not yet.");
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

void warmup_right(const struct question *question, char *to, size_t size)
{
    const struct warmup *w = question->warmup;
    if (w->kind == ASKS_WORD) snprintf(to, size, "%s", question->word);
    else if (w->kind == ASKS_LINE) snprintf(to, size, "%s", w->answer);
    else snprintf(to, size, "%s%s%s", warmup_number(question->right).text, w->unit ? " " : "", w->unit ? w->unit : "");
}

enum error_code warmup_answer(const struct question *question, const char *answer, struct reply *reply,
                              struct error *err)
{
    for (const char *at = answer; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 127)
            return tell(reply, REPLY_UNREADABLE, "The answer has characters that are no text.");
    if (strlen(answer) > ANSWER_MOST) return tell(reply, REPLY_UNREADABLE, "The answer is too long.");
    if (answer[strspn(answer, " ")] == '\0') return tell(reply, REPLY_UNREADABLE, "An answer is expected.");
    answer += strspn(answer, " ");
    return question->warmup->kind == ASKS_WORD ? answer_word(question, answer, reply, err)
                                            : answer_number(question, answer, reply, err);
}
