#define PCRE2_CODE_UNIT_WIDTH 8
#include "ref/text/patterns.h"
#include "ref/text/classes.h"
#include "ref/text/utf8.h"
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pattern { pcre2_code *code; pcre2_match_data *found; bool gave_up; };

/* ---- rewriting --------------------------------------------------------------------------------------------------- */

enum { NESTED_MOST = 50 };

struct rewriting {
    const char *text, *where;
    char *out;
    size_t count, room;
    size_t atom;                        /* where what a quantifier refers to begins in out */
    size_t open[NESTED_MOST];           /* beginnings of groups that are open */
    int depth;
    bool full;                          /* out of memory */
};

static void put(struct rewriting *r, const char *text, size_t n)
{
    if (r->count + n + 1 > r->room) {
        const size_t room = 2 * (r->count + n + 1);
        char *more = realloc(r->out, room);
        if (more == NULL) { r->full = true; return; }
        r->out = more, r->room = room;
    }
    memcpy(r->out + r->count, text, n);
    r->out[r->count += n] = '\0';
}

static void put_ranges(struct rewriting *r, const struct character_class *k)
{
    char range[40];
    for (int i = 0; i < k->count; i++) {
        const int n = snprintf(range, sizeof range, "\\x{%X}-\\x{%X}", (unsigned)k->range[i].first,
                               (unsigned)k->range[i].last);
        put(r, range, (size_t)n);
    }
}

static const struct character_class *class_of(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (strlen(classes[i].name) == n && memcmp(classes[i].name, name, n) == 0) return &classes[i];
    return NULL;
}

/* \p{..}, \s, \d, and their opposites: the table they stand for, and how many bytes they have; 0: another escape. */
static size_t class_at(const char *t, const struct character_class **k, bool *opposite)
{
    *opposite = t[1] == 'P' || t[1] == 'S' || t[1] == 'D';
    if (t[1] == 's' || t[1] == 'S') return *k = class_of("s", 1), 2;
    if (t[1] == 'd' || t[1] == 'D') return *k = class_of("Nd", 2), 2;
    if ((t[1] != 'p' && t[1] != 'P') || t[2] != '{') return 0;
    const size_t n = strcspn(t + 3, "}");
    *k = class_of(t + 3, n);
    return t[3 + n] ? n + 4 : 0;
}

static enum error_code refuse(const struct rewriting *r, const char *at, size_t n, struct error *err)
{
    return fail(err, ERR_FORMAT, "%s: %.*s: this class of characters is not supported here", r->where, (int)n, at);
}

/* An escape outside or inside brackets.  @return its bytes in the text, or 0 with an error. */
static size_t rewrite_escape(struct rewriting *r, const char *t, bool inside, struct error *err)
{
    const struct character_class *k = NULL;
    bool opposite;
    const size_t n = class_at(t, &k, &opposite);
    if (n == 0 && strchr("wWbBhHR", t[1]) != NULL && t[1]) return refuse(r, t, 2, err), 0;
    if (n == 0) return put(r, t, t[1] ? 2 : 1), t[1] ? 2 : 1;
    if (k == NULL || (opposite && inside)) return refuse(r, t, n, err), 0;
    if (!inside) put(r, opposite ? "[^" : "[", opposite ? 2 : 1);
    put_ranges(r, k);
    if (!inside) put(r, "]", 1);
    return n;
}

/* [...].  @return its bytes, or 0 with an error. */
static size_t rewrite_brackets(struct rewriting *r, const char *t, struct error *err)
{
    size_t i = 1;
    put(r, "[", 1);
    if (t[i] == '^') put(r, "^", 1), i++;
    /* A ] that comes first is a character of the class. */
    if (t[i] == ']') put(r, "\\]", 2), i++;
    while (t[i] && t[i] != ']') {
        if (t[i] == '[' || (t[i] == '&' && t[i + 1] == '&')) return refuse(r, t, i + 1, err), 0;
        if (t[i] != '\\') { put(r, t + i, 1), i++; continue; }
        const size_t n = rewrite_escape(r, t + i, true, err);
        if (n == 0) return 0;
        i += n;
    }
    if (t[i] == '\0') return fail(err, ERR_FORMAT, "%s: [ without ]", r->where), 0;
    put(r, "]", 1);
    return i + 1;
}

/* {1,3} and what follows it. */
static size_t rewrite_braces(struct rewriting *r, const char *t)
{
    const size_t n = strspn(t + 1, "0123456789,") + 2;
    if (t[n - 1] != '}') return put(r, "\\{", 2), 1;
    put(r, t, n);
    if (t[n] != '+') return n;
    /* To PCRE2 {1,3}+ is possessive; in tokenizer files the + repeats the repetition. */
    const size_t tail = r->count - r->atom;                     /* (?:ATOM{1,3})+ */
    put(r, "    ", 4);
    if (r->full) return n + 1;
    memmove(r->out + r->atom + 3, r->out + r->atom, tail);
    memcpy(r->out + r->atom, "(?:", 3);
    r->count = r->atom + 3 + tail;
    put(r, ")+", 2);
    return n + 1;
}

static enum error_code rewrite(struct rewriting *r, struct error *err)
{
    for (const char *t = r->text; *t && !r->full;) {
        uint32_t c;
        size_t n = 1;
        if (*t == '(') {
            if (r->depth == NESTED_MOST) return fail(err, ERR_FORMAT, "%s: more than %d groups", r->where, NESTED_MOST);
            r->open[r->depth++] = r->count;
            put(r, t, 1);
        } else if (*t == ')') {
            r->atom = r->depth > 0 ? r->open[--r->depth] : 0;
            put(r, t, 1);
        } else if (*t == '{') n = rewrite_braces(r, t);
        else if (strchr("?*+|", *t) != NULL) put(r, t, 1);
        else {
            r->atom = r->count;
            if (*t == '\\') n = rewrite_escape(r, t, false, err);
            else if (*t == '[') n = rewrite_brackets(r, t, err);
            else n = (size_t)utf8_first(t, UTF8_MOST, &c), put(r, t, n);       /* JSON's texts are valid */
            if (n == 0) return ERR_FORMAT;
        }
        t += n;
    }
    return r->full ? fail(err, ERR_MEMORY, "%s: no memory", r->where) : OK;
}

/* ---- compiling and matching -------------------------------------------------------------------------------------- */

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
    if (!e) p->code = pcre2_compile((PCRE2_SPTR)r.out, PCRE2_ZERO_TERMINATED, PCRE2_UTF,
                                    &code, &at, NULL);
    if (!e && p->code == NULL) {
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
        e = fail(err, ERR_FORMAT, "%s: this expression is not understood: %s", where, why);
    }
    if (!e) (void)pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE);      /* without it, it is only slower */
    if (!e && (p->found = pcre2_match_data_create_from_pattern(p->code, NULL)) == NULL)
        e = fail(err, ERR_MEMORY, "%s: no memory", where);
    free(r.out);
    if (e) pattern_close(p), *out = NULL;
    return e;
}

void pattern_close(struct pattern *p)
{
    if (p == NULL) return;
    pcre2_match_data_free(p->found);
    pcre2_code_free(p->code);
    free(p);
}

bool pattern_next(struct pattern *p, const char *text, size_t bytes, size_t from, size_t *begin, size_t *end)
{
    const int found = pcre2_match(p->code, (PCRE2_SPTR)text, bytes, from, PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, p->found,
                                  NULL);
    if (found < 0) {
        p->gave_up = p->gave_up || found != PCRE2_ERROR_NOMATCH;
        return false;
    }
    const size_t *at = pcre2_get_ovector_pointer(p->found);
    *begin = at[0], *end = at[1];
    return true;
}

bool pattern_gave_up(struct pattern *p)
{
    const bool it_did = p->gave_up;
    p->gave_up = false;
    return it_did;
}

bool is_in_class(uint32_t c, const char *name)
{
    const struct character_class *k = class_of(name, strlen(name));
    for (int i = 0; i < k->count; i++)
        if (c >= k->range[i].first && c <= k->range[i].last) return true;
    return false;
}
