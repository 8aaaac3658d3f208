/* annotated.c -- cuts a lesson's files for students: markers of solutions, variants of a course, and changes of
 * mutants.  course/trees.c and course/teacher/ call it with files of tutorials/.  Without memory the code is
 * ERR_MEMORY.  Texts that it returns are the caller's to free.  A marker without an end is ERR_FORMAT, and so is a
 * change that is not found exactly once. */
#include "emulated_devices/course/annotated.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* This is a text that grows.  bytes NULL: there was no memory. */
struct growing { char *bytes; size_t used, room; };

/* This appends n bytes; without memory the text is gone, and stays gone. */
static void annotated_append(struct growing *growing, const char *from, size_t n)
{
    if (growing->bytes && growing->used + n + 1 > growing->room) {
        growing->room = 2 * growing->room + n + 1;
        char *more = realloc(growing->bytes, growing->room);
        if (more == NULL) free(growing->bytes);
        growing->bytes = more;
    }
    if (growing->bytes == NULL) return;
    memcpy(growing->bytes + growing->used, from, n);
    growing->used += n;
    growing->bytes[growing->used] = 0;
}

static struct growing annotated_begin(void) { return (struct growing){ calloc(1, 256), 0, 256 }; }

/* Hand the text to the caller, or say that there was no memory. */
static char *done(struct growing *growing, struct error *err)
{
    if (growing->bytes == NULL) fail(err, ERR_MEMORY, "no memory for a text");
    return growing->bytes;
}

/* A line with its end, or what is left of the text. */
static size_t line_length(const char *at)
{
    const char *end = strchr(at, '\n');
    return end ? (size_t)(end - at) + 1 : strlen(at);
}

/* Whether a line is this word, but for blanks around it. */
static bool line_is(const char *at, size_t n, const char *word)
{
    while (n > 0 && isspace((unsigned char)*at)) at++, n--;
    while (n > 0 && isspace((unsigned char)at[n - 1])) n--;
    return n == strlen(word) && memcmp(at, word, n) == 0;
}

/* ---- solution or skeleton ---------------------------------------------------------------------------------------- */

/* Keep the solution or the skeleton of each marked part.  Skeletons stand in a comment of C, or in lines of a text
 * that begin with "#| ".  Markers themselves are left out. */
static char *cut_markers(const char *text, enum cut cut, struct error *err)
{
    enum { OUTSIDE, SOLUTION, SKELETON } in = OUTSIDE;
    bool quoted = false;                        /* a text's skeleton, whose lines begin with "#| " */
    struct growing out = annotated_begin();
    for (const char *at = text; *at;) {
        const size_t n = line_length(at);
        /* Lines of markers change the state and are not copied; all others are copied, or not, by the state. */
        if (in == OUTSIDE && (line_is(at, n, "/*SOLUTION*/") || line_is(at, n, "#SOLUTION"))) in = SOLUTION;
        else if (in == SOLUTION && (line_is(at, n, "/*SKELETON") || line_is(at, n, "#SKELETON")))
            quoted = line_is(at, n, "#SKELETON"), in = SKELETON;
        else if (in == SOLUTION && line_is(at, n, "/*SKELETON*/")) in = OUTSIDE;
        else if (in == SKELETON && line_is(at, n, quoted ? "#END" : "*/")) in = OUTSIDE;
        else if (in == OUTSIDE || (in == SOLUTION && cut == CUT_SOLUTION)) annotated_append(&out, at, n);
        else if (in == SKELETON && cut == CUT_SKELETON) {
            const size_t skip = quoted ? (strncmp(at, "#| ", 3) == 0 ? 3 : strncmp(at, "#|", 2) == 0 ? 2 : 0) : 0;
            annotated_append(&out, at + skip, n - skip);
        }
        at += n;
    }
    /* A marker that is open at the end of the text is a mistake of the lesson. */
    if (in == OUTSIDE) return done(&out, err);
    free(out.bytes);
    fail(err, ERR_FORMAT, "a %s marker has no end", in == SOLUTION ? "SOLUTION" : "SKELETON");
    return NULL;
}

/* ---- variants ---------------------------------------------------------------------------------------------------- */

/* Replace a choice in a comment, "{NAME: first|second}".  @return where it ends; NULL: none begins here. */
static const char *braces_at(const char *at, const struct lesson *lesson, uint64_t variant, struct growing *out)
{
    if (*at != '{') return NULL;
    for (const struct vary *v = lesson->vary; v->name; v++) {
        const size_t n = strlen(v->name);
        if (strncmp(at + 1, v->name, n) != 0 || strncmp(at + 1 + n, ": ", 2) != 0) continue;
        const char *from = at + n + 3, *end = strchr(from, '}');
        for (int i = lesson_choice(lesson, v->name, variant); end && i > 0; i--) {
            from = memchr(from, '|', (size_t)(end - from));
            if (from == NULL) return NULL;
            from++;
        }
        if (end == NULL) return NULL;
        annotated_append(out, from, strcspn(from, "|}"));
        return end + 1;
    }
    return NULL;
}

/* Find a choice that begins here, "/ *NAME* /" or "<!--NAME-->".  @return its length, or 0. */
static size_t choice_at(const char *at, const struct lesson *lesson, const struct vary **found, const char **open,
                        const char **close)
{
    static const char *const opens[] = { "/*", "<!--" }, *const closes[] = { "*/", "-->" };
    for (int i = 0; i < 2; i++) {
        if (strncmp(at, opens[i], strlen(opens[i])) != 0) continue;
        const char *name = at + strlen(opens[i]);
        for (const struct vary *v = lesson->vary; v->name; v++) {
            const size_t n = strlen(v->name);
            if (strncmp(name, v->name, n) != 0 || strncmp(name + n, closes[i], strlen(closes[i])) != 0) continue;
            *found = v, *open = opens[i], *close = closes[i];
            return strlen(opens[i]) + n + strlen(closes[i]);
        }
    }
    return 0;
}

/* Append the alternative number `which` of "first/ *|second|third* /", which begins at `at`.  @return where it
 * ends; NULL: it does not. */
static const char *annotated_choose(const char *at, int which, const char *open, const char *close, struct growing *out)
{
    char bar[8];
    snprintf(bar, sizeof bar, "%s|", open);
    const char *others = strstr(at, bar), *end = others ? strstr(others, close) : NULL;
    if (end == NULL) return NULL;
    /* The first alternative stands before the comment, the others inside it. */
    const char *from = at, *to = others;
    for (int i = 0; i < which; i++) {
        from = i == 0 ? others + strlen(bar) : to + 1;
        to = memchr(from, '|', (size_t)(end - from));
        if (to == NULL) to = end;
        if (from > end) return NULL;
    }
    annotated_append(out, from, (size_t)(to - from));
    return end + strlen(close);
}

/* Every choice of the text takes the alternative of this variant; all other text is copied. */
static char *choose_variant(const char *text, const struct lesson *lesson, uint64_t variant, struct error *err)
{
    struct growing out = annotated_begin();
    for (const char *at = text; *at;) {
        const struct vary *v = NULL;
        const char *open, *close;
        const char *behind = braces_at(at, lesson, variant, &out);
        if (behind) {
            at = behind;
            continue;
        }
        const size_t n = choice_at(at, lesson, &v, &open, &close);
        if (n == 0) {
            annotated_append(&out, at++, 1);
            continue;
        }
        at = annotated_choose(at + n, lesson_choice(lesson, v->name, variant), open, close, &out);
        if (at) continue;
        free(out.bytes);
        fail(err, ERR_FORMAT, "choice %s: its alternatives have no end, or are too few", v->name);
        return NULL;
    }
    return done(&out, err);
}

/* Cut the markers first: a choice may lie inside a skeleton. */
char *annotated_cut(const char *text, enum cut cut, const struct lesson *lesson, uint64_t variant, struct error *err)
{
    char *cut_text = cut_markers(text, cut, err);
    char *out = cut_text ? choose_variant(cut_text, lesson, variant, err) : NULL;
    free(cut_text);
    return out;
}

char *annotated_strip(const char *text, struct error *err) { return cut_markers(text, CUT_SKELETON, err); }

/* ---- changes ----------------------------------------------------------------------------------------------------- */

/* Blanks around a line do not matter: a mutant may be indented otherwise. */
static bool same_line(const char *a, size_t n, const char *b, size_t m)
{
    while (n > 0 && isspace((unsigned char)*a)) a++, n--;
    while (m > 0 && isspace((unsigned char)*b)) b++, m--;
    while (n > 0 && isspace((unsigned char)a[n - 1])) n--;
    while (m > 0 && isspace((unsigned char)b[m - 1])) m--;
    return n == m && memcmp(a, b, n) == 0;
}

/* A change has lines that go (-), come (+) and stay (blank). */
static bool is_change(const char *line) { return *line == '-' || *line == '+' || *line == ' ' || *line == '\t'; }

/* How far the lines of a block that go or stay reach in the text from here; 0: they are not here. */
static size_t reach(const char *text, const char *block)
{
    const char *at = text;
    for (; is_change(block); block += line_length(block)) {
        if (*block == '+') continue;
        const size_t n = line_length(at), m = line_length(block);
        if (n == 0 || !same_line(at, n, block + 1, m - 1)) return 0;
        at += n;
    }
    return (size_t)(at - text);
}

/* A block must be found exactly once, so that a change says where it is. */
static char *change_block(const char *text, const char *block, struct error *err)
{
    const char *place = NULL, *at = text;
    struct growing out = annotated_begin();
    int times = 0;
    for (; *at; at += line_length(at))
        if (reach(at, block) > 0) place = at, times++;
    if (times != 1) {
        free(out.bytes);
        fail(err, ERR_FORMAT, "a change is found %d times: %.*s", times, (int)line_length(block), block);
        return NULL;
    }
    annotated_append(&out, text, (size_t)(place - text));
    for (const char *line = block; is_change(line); line += line_length(line))
        if (*line != '-') annotated_append(&out, line + 1, line_length(line) - 1);
    at = place + reach(place, block);
    annotated_append(&out, at, strlen(at));
    return done(&out, err);
}

/* Apply the blocks of a change one after another; each is found in the text as the blocks before have left it. */
char *annotated_change(const char *text, const char *change, struct error *err)
{
    struct growing copy = annotated_begin();
    annotated_append(&copy, text, strlen(text));
    char *now = done(&copy, err);
    for (const char *at = change; *at && now;) {
        if (!is_change(at)) {
            at += line_length(at);
            continue;
        }
        char *next = change_block(now, at, err);
        free(now);
        now = next;
        while (is_change(at)) at += line_length(at);
    }
    return now;
}
