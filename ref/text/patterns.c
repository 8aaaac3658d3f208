/* patterns.c -- rewrites the expressions of tokenizer files for PCRE2, compiles and matches them.
 *
 * step.c opens patterns; files of normalizers/, splitters/ and decoders/ match them.  The library `tokenizers` matches
 * with Oniguruma, which has other classes of characters; classes.h has its tables.  Errors are ERR_FORMAT and
 * ERR_MEMORY.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "ref/text/patterns.h"
#include "ref/text/character_sets.h"
#include "ref/text/utf8.h"
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pattern {
    pcre2_code *code;
    pcre2_match_data *found;            /* of the last search */
    bool compiled;                      /* to machine code */
};

/* ---- rewriting --------------------------------------------------------------------------------------------------- */

enum { NESTED_MOST = 50, SURROGATE_FIRST = 0xD800, SURROGATE_LAST = 0xDFFF };

struct rewriting {
    const char *text, *where;
    char *out;
    size_t count, room;
    size_t atom;                        /* where what a quantifier refers to begins in out */
    size_t open[NESTED_MOST];           /* beginnings of groups that are open */
    int depth;
    bool folds, outer[NESTED_MOST];     /* whether cases are alike here, and around the groups that are open */
    bool full;                          /* out of memory */
};

/* Without memory `full` is set, and rewrite() reports it at its end. */
static void patterns_put(struct rewriting *rewriting, const char *text, size_t n)
{
    if (rewriting->count + n + 1 > rewriting->room) {
        const size_t room = 2 * (rewriting->count + n + 1);
        char *more = realloc(rewriting->out, room);
        if (more == NULL) { rewriting->full = true; return; }
        rewriting->out = more, rewriting->room = room;
    }
    memcpy(rewriting->out + rewriting->count, text, n);
    rewriting->out[rewriting->count += n] = '\0';
}

/* The ranges of a set, in brackets.  PCRE2 refuses surrogates, which no text has. */
static void put_set(struct rewriting *rewriting, const struct character_set *set, bool opposite)
{
    char range[40];
    if (set->count == 0) {                                      /* nothing matches, or everything */
        const char *text = opposite ? "[\\x{0}-\\x{10FFFF}]" : "(?!)";
        patterns_put(rewriting, text, strlen(text));
        return;
    }
    patterns_put(rewriting, opposite ? "[^" : "[", opposite ? 2 : 1);
    for (int i = 0; i < set->count; i++) {
        uint32_t first = set->range[i].first, last = set->range[i].last;
        if (first >= SURROGATE_FIRST && first <= SURROGATE_LAST) first = SURROGATE_LAST + 1;
        if (last >= SURROGATE_FIRST && last <= SURROGATE_LAST) last = SURROGATE_FIRST - 1;
        if (first > last) continue;
        const int n = snprintf(range, sizeof range, "\\x{%X}-\\x{%X}", (unsigned)first, (unsigned)last);
        patterns_put(rewriting, range, (size_t)n);
    }
    patterns_put(rewriting, "]", 1);
}

static enum error_code patterns_refuse(const struct rewriting *rewriting, const char *at, size_t n, struct error *err)
{
    return fail(err, ERR_FORMAT, "%s: %.*s: this class of characters is not supported here",
                rewriting->where, (int)n, at);
}

/* A part that means another thing to PCRE2, or nothing. */
static enum error_code patterns_refuse_part(const struct rewriting *rewriting, const char *at, size_t n,
                                            struct error *err)
{
    return fail(err, ERR_FORMAT, "%s: %.*s is not supported in an expression", rewriting->where, (int)n, at);
}

/* Brackets, or an escape that stands for a class.  @return their bytes; 0 with an error, or for another escape. */
static size_t rewrite_class(struct rewriting *rewriting, const char *t, struct error *err)
{
    struct character_set set = { 0 };
    bool opposite;
    const char *wrong;
    size_t bytes;
    const size_t n = character_set_read(&set, t, &opposite, &wrong, &bytes);
    rewriting->full = rewriting->full || set.no_memory;
    /* \p has its own cases in Oniguruma, also where others are alike. */
    for (size_t i = 0; rewriting->folds && i + 1 < n; i++)
        if (t[i] == '\\' && (t[i + 1] | 0x20) == 'p')
            return character_set_free(&set), (void)patterns_refuse_part(rewriting, "(?i) around \\p", 14, err), 0;
    if (n) put_set(rewriting, &set, opposite);
    else if (bytes) (void)patterns_refuse(rewriting, wrong, bytes, err);
    else if (*t == '[') (void)fail(err, ERR_FORMAT, "%s: [ without ]", rewriting->where);
    character_set_free(&set);
    return n;
}

/* A place between a word and something else, or \B, another place.  PCRE2's own \b knows other words. */
static void put_boundary(struct rewriting *rewriting, bool opposite)
{
    static const char *const look[2][4] = { { "(?:(?<=", ")(?!", ")|(?<!", ")(?=" },
                                            { "(?:(?<=", ")(?=", ")|(?<!", ")(?!" } };
    struct character_set word = { 0 };
    (void)character_set_add(&word, "bare_w");
    rewriting->full = rewriting->full || word.no_memory;
    for (int i = 0; i < 4; i++) {
        patterns_put(rewriting, look[opposite][i], strlen(look[opposite][i]));
        put_set(rewriting, &word, false);
    }
    patterns_put(rewriting, "))", 2);
    character_set_free(&word);
}

/* Whether an escape that is no class has one meaning: signs, some letters, code points of ASCII, references. */
static bool means_the_same(const char *t)
{
    const bool letter = (*t | 0x20) >= 'a' && (*t | 0x20) <= 'z';
    if (*t == 'x' && t[1] != '{') return t[1] >= '0' && t[1] < '8' && strspn(t + 1, "0123456789abcdefABCDEF") >= 2;
    return letter ? strchr("nrtfaevAzZx", *t) != NULL : *t != '0';
}

/* An escape outside brackets.  @return its bytes in the text, or 0 with an error. */
static size_t rewrite_escape(struct rewriting *rewriting, const char *t, struct error *err)
{
    char code[12];
    if (t[1] == '\0') return (void)fail(err, ERR_FORMAT, "%s: ends with a backslash", rewriting->where), 0;
    if (strchr("dDsSwWhHpP", t[1])) {
        const size_t n = rewrite_class(rewriting, t, err);
        if (n == 0 && (t[1] == 'p' || t[1] == 'P') && t[2] != '{') (void)patterns_refuse(rewriting, t, 2, err);
        else if (n == 0 && strchr(t, '}') == NULL) (void)fail(err, ERR_FORMAT, "%s: { without }", rewriting->where);
        return n;
    }
    if (t[1] == 'b' || t[1] == 'B') return put_boundary(rewriting, t[1] == 'B'), 2;
    /* To PCRE2 \v is a class; \u, which it does not know, has four digits. */
    if (t[1] == 'v') return patterns_put(rewriting, "\\x0B", 4), 2;
    if (t[1] == 'u' && strspn(t + 2, "0123456789abcdefABCDEF") >= 4) {
        snprintf(code, sizeof code, "\\x{%.4s}", t + 2);
        return patterns_put(rewriting, code, strlen(code)), 6;
    }
    if (!means_the_same(t + 1)) return (void)patterns_refuse_part(rewriting, t, 2, err), 0;
    const size_t n = 1 + (size_t)utf8_first(t + 1, UTF8_MOST, &(uint32_t){ 0 });
    return patterns_put(rewriting, t, n), n;
}

/* {1,3} and what follows it. */
static size_t rewrite_braces(struct rewriting *rewriting, const char *t)
{
    const size_t n = strspn(t + 1, "0123456789,") + 2;
    if (t[n - 1] != '}' || n == 2 || strncmp(t, "{,}", n) == 0) return patterns_put(rewriting, "\\{", 2), 1;
    /* Without a smallest number PCRE2 takes it for a text. */
    if (t[1] == ',') patterns_put(rewriting, "{0", 2);
    patterns_put(rewriting, t + (t[1] == ','), n - (t[1] == ','));
    /* To PCRE2 {1,3}+ is possessive and {3}? is lazy; in tokenizer files the sign repeats the repetition. */
    if (t[n] != '+' && (t[n] != '?' || memchr(t, ',', n))) return n;
    const size_t tail = rewriting->count - rewriting->atom;                     /* (?:ATOM{1,3})+ */
    patterns_put(rewriting, "    ", 4);
    if (rewriting->full) return n + 1;
    memmove(rewriting->out + rewriting->atom + 3, rewriting->out + rewriting->atom, tail);
    memcpy(rewriting->out + rewriting->atom, "(?:", 3);
    rewriting->count = rewriting->atom + 3 + tail;
    patterns_put(rewriting, t[n] == '+' ? ")+" : ")?", 2);
    return n + 1;
}

/* Where cases are alike, one character may equal two, as in "ss"; PCRE2 does not know that. */
static enum error_code folds_alike(const struct rewriting *rewriting, const char *t, size_t n, struct error *err)
{
    static const char *const pairs[] = { "ss", "ff", "fi", "fl", "st" };
    const char a = (char)(t[0] | 0x20), b = (char)(t[1] | 0x20);
    bool wrong = n > 1;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) wrong = wrong || (a == pairs[i][0] && b == pairs[i][1]);
    return rewriting->folds && wrong ? patterns_refuse_part(rewriting, t, n > 1 ? n : 2, err) : OK;
}

/* The sign that opens a group, with options: m is for Oniguruma what s is for PCRE2, that a dot matches line ends. */
static size_t rewrite_group(struct rewriting *rewriting, const char *t, struct error *err)
{
    const size_t n = t[1] == '?' ? strspn(t + 2, "abcdefghijklmnopqrstuvwxyz-") : 0;
    const bool options = n > 0 && (t[2 + n] == ':' || t[2 + n] == ')'), here = options && t[2 + n] == ')';
    const bool starts = t == rewriting->text || t[-1] == '(' || (t[-1] == ':' && rewriting->depth > 0);
    /* (?i) in the middle of a group is another way around the | that follow. */
    if (options && (strspn(t + 2, "imx-") < n || (here && !starts)))
        return (void)patterns_refuse_part(rewriting, t, n + 3, err), 0;
    if (rewriting->depth == NESTED_MOST)
        return (void)fail(err, ERR_FORMAT, "%s: more than %d groups", rewriting->where, NESTED_MOST), 0;
    if (!here) {
        rewriting->outer[rewriting->depth] = rewriting->folds;
        rewriting->open[rewriting->depth++] = rewriting->count;
    }
    if (!options) return patterns_put(rewriting, t, 1), 1;
    const char *i = memchr(t + 2, 'i', n), *minus = memchr(t + 2, '-', n);
    if (i) rewriting->folds = minus == NULL || i < minus;
    patterns_put(rewriting, "(?", 2);
    for (size_t k = 0; k <= n; k++) patterns_put(rewriting, t[2 + k] == 'm' ? "s" : t + 2 + k, 1);
    return n + 3;
}

/* The expression is copied sign by sign; `atom` is where the last repeatable part begins. */
static enum error_code rewrite(struct rewriting *rewriting, struct error *err)
{
    for (const char *t = rewriting->text; *t && !rewriting->full;) {
        uint32_t c;
        size_t n = 1;
        if (*t == '(') {
            if ((n = rewrite_group(rewriting, t, err)) == 0) return ERR_FORMAT;
        } else if (*t == ')') {
            rewriting->atom = rewriting->depth > 0 ? rewriting->open[--rewriting->depth] : 0;
            rewriting->folds = rewriting->outer[rewriting->depth];
            patterns_put(rewriting, t, 1);
        } else if (*t == '{') n = rewrite_braces(rewriting, t);
        else if (strchr("?*+|", *t) != NULL) patterns_put(rewriting, t, 1);
        else {
            rewriting->atom = rewriting->count;
            if (*t == '\\') n = rewrite_escape(rewriting, t, err);
            else if (*t == '[') n = rewrite_class(rewriting, t, err);
            /* JSON's texts are valid */
            else n = (size_t)utf8_first(t, UTF8_MOST, &c), patterns_put(rewriting, t, n);
            if (n == 0 || folds_alike(rewriting, t, n * (*t != '\\' && *t != '['), err)) return ERR_FORMAT;
        }
        t += n;
    }
    return rewriting->full ? fail(err, ERR_MEMORY, "%s: no memory", rewriting->where) : OK;
}

/* ---- compiling and matching -------------------------------------------------------------------------------------- */

/* A plain text as an expression: each sign with a meaning gets a backslash. */
static char *literal(const char *text)
{
    char *out = malloc(2 * strlen(text) + 1), *to = out;
    for (; out && *text; text++) {
        if (strchr("\\^$.[]|()?*+{}#-", *text) != NULL) *to++ = '\\';
        *to++ = *text;
    }
    if (out) *to = '\0';
    return out;
}

/* An expression that PCRE2 does not understand is an error of the file, in PCRE2's words. */
enum error_code pattern_open(struct pattern **out, const char *text, bool plain, const char *where, struct error *err)
{
    struct rewriting r = { .text = text, .where = where };
    int code;
    size_t at;
    char why[120];
    struct pattern *p = *out = calloc(1, sizeof *p);
    if (p == NULL) return fail(err, ERR_MEMORY, "%s: no memory", where);
    enum error_code e = OK;
    if (plain) r.out = literal(text);
    else e = rewrite(&r, err);
    if (!e && r.out == NULL) e = fail(err, plain ? ERR_MEMORY : ERR_FORMAT, "%s: an empty expression", where);
    if (!e) p->code = pcre2_compile((PCRE2_SPTR)r.out, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_MULTILINE,
                                    &code, &at, NULL);
    if (!e && p->code == NULL) {
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
        e = fail(err, ERR_FORMAT, "%s: this expression is not understood: %s", where, why);
    }
    p->compiled = !e && pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE) == 0;    /* else it is only slower */
    if (!e && (p->found = pcre2_match_data_create_from_pattern(p->code, NULL)) == NULL)
        e = fail(err, ERR_MEMORY, "%s: no memory", where);
    free(r.out);
    if (e) pattern_close(p), *out = NULL;
    return e;
}

void pattern_close(struct pattern *pattern)
{
    if (pattern == NULL) return;
    pcre2_match_data_free(pattern->found);
    pcre2_code_free(pattern->code);
    free(pattern);
}

/* A long match may need more stack than compiled code has; without that PCRE2 takes memory instead. */
static int pattern_match(struct pattern *pattern, const char *text, size_t bytes, size_t from)
{
    const int found = pattern->compiled
        ? pcre2_jit_match(pattern->code, (PCRE2_SPTR)text, bytes, from, 0, pattern->found, NULL)
        : PCRE2_ERROR_JIT_STACKLIMIT;
    return found != PCRE2_ERROR_JIT_STACKLIMIT ? found
           : pcre2_match(pattern->code, (PCRE2_SPTR)text, bytes, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         pattern->found, NULL);
}

/* The search goes on at the end of the last match.  An empty match there is passed over by one character. */
enum error_code pattern_next(struct pattern *pattern, const char *text, size_t bytes, struct match *match,
                             struct error *err)
{
    uint32_t c;
    /* The library looks for nothing in an empty text. */
    for (size_t from = match->end; bytes && from <= bytes;) {
        const int found = pattern_match(pattern, text, bytes, from);
        if (found == PCRE2_ERROR_NOMATCH) break;
        if (found < 0)
            return fail(err, ERR_FORMAT, "an expression of the tokenizer takes too many steps for this text");
        const size_t *at = pcre2_get_ovector_pointer(pattern->found);
        if (at[0] == at[1] && match->found && at[1] == match->end) {
            from += from < bytes ? (size_t)utf8_first(text + from, bytes - from, &c) : 1;
            continue;
        }
        return *match = (struct match){ at[0], at[1], true }, OK;
    }
    match->found = false;
    return OK;
}

bool pattern_matches_nothing(const struct pattern *pattern)
{
    uint32_t does = 1;
    (void)pcre2_pattern_info(pattern->code, PCRE2_INFO_MATCHEMPTY, &does);
    return does;
}

enum error_code pattern_replace(struct pattern *pattern, const char *text, size_t bytes, const char *content,
                                struct text_buffer *out, struct error *err)
{
    struct match match = { 0 };
    const size_t content_bytes = strlen(content);
    size_t done = 0;
    enum error_code e;
    while (!(e = pattern_next(pattern, text, bytes, &match, err)) && match.found) {
        e = text_buffer_add(out, text + done, match.begin - done, err);
        if (!e) e = text_buffer_add(out, content, content_bytes, err);
        if (e) break;
        done = match.end;
    }
    return e ? e : text_buffer_add(out, text + done, bytes - done, err);
}
