/* batch_plan_read.c -- a batch plan from text.  The format is in batch_plan.h; the file is not trusted. */
#include "emulated_devices/plan/batch_plan.h"
#include "ref/io/output.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_SEQUENCES = 1000000, MOST_NUMBERS = 1 << 22 };

static const char blanks[] = " \t\r\n";

struct number { int step, copy, micro, sequences; };

struct reader {
    const char *file;
    int line, steps, copies, micros;
    bool headed;
    struct number *all;
    int count, room;
    struct error *err;
};

static enum error_code bad(const struct reader *r, const char *what, const char *expected)
{
    return fail(r->err, ERR_FORMAT, "%s:%d: %s: expected %s", printable_path(r->file).text, r->line,
                printable(what).text, expected);
}

static enum error_code keep(struct reader *r, struct number n)
{
    if (r->count == MOST_NUMBERS) return bad(r, "this line", "at most 4194304 microbatches in all");
    if (r->count == r->room) {
        const int room = r->room ? 2 * r->room : 64;
        struct number *grown = realloc(r->all, (size_t)room * sizeof *grown);
        if (grown == NULL) return fail(r->err, ERR_MEMORY, "no memory for %d microbatches of a batch plan", room);
        r->all = grown, r->room = room;
    }
    r->all[r->count++] = n;
    if (n.micro >= r->micros) r->micros = n.micro + 1;
    return OK;
}

/* Accepts digits only, and few enough for an int. */
static bool read_number(const char *word, int *n)
{
    const size_t digits = strspn(word, "0123456789");
    *n = digits > 0 && digits < 8 ? atoi(word) : -1;
    return word[digits] == '\0' && *n >= 0 && *n <= MOST_SEQUENCES;
}

static enum error_code read_copy(struct reader *r, char *text, int copy)
{
    struct number n = { .step = r->steps, .copy = copy };
    bool none = false;
    enum error_code e = OK;
    char *rest, *word = strtok_r(text, blanks, &rest);
    if (word == NULL) return bad(r, "a copy without a word", "the sequences of its microbatches, or - for none");
    for (; word && !e; word = strtok_r(NULL, blanks, &rest)) {
        if (none || (strcmp(word, "-") == 0 && n.micro > 0)) return bad(r, word, "- alone, or numbers of sequences");
        none = strcmp(word, "-") == 0;
        if (none) continue;
        if (!read_number(word, &n.sequences)) return bad(r, word, "a number of sequences, 0..1000000, or -");
        e = keep(r, n);
        n.micro++;
    }
    return e;
}

static enum error_code read_step(struct reader *r, char *text)
{
    int copies = 0;
    int64_t all = 0;
    const int before = r->count;
    enum error_code e = OK;
    for (char *bar = text; bar && !e; text = bar) {
        bar = strchr(text, '|');
        if (bar) *bar++ = '\0';
        e = read_copy(r, text, copies++);
    }
    if (e) return e;
    if (r->steps > 0 && copies != r->copies)
        return bad(r, "this step", "as many copies, parted by |, as in the first one");
    for (int i = before; i < r->count; i++) all += r->all[i].sequences;
    if (all == 0) return bad(r, "this step", "at least one sequence");
    r->copies = copies;
    r->steps++;
    return OK;
}

static enum error_code read_line(struct reader *r, char *text, size_t length)
{
    if (strlen(text) != length) return bad(r, "this line", "text, without bytes that are 0");
    char *comment = strchr(text, '#');
    if (comment) *comment = '\0';
    text += strspn(text, blanks);
    if (*text == '\0') return OK;
    if (r->headed) return read_step(r, text);
    char *end = text + strlen(text);
    while (end > text && strchr(blanks, end[-1])) *--end = '\0';
    if (strcmp(text, "orrery batches 1") != 0) return bad(r, text, "orrery batches 1");
    r->headed = true;
    return OK;
}

static enum error_code make(const struct reader *r, struct batch_plan *b)
{
    if (r->steps == 0)
        return fail(r->err, ERR_FORMAT, "%s: ends after line %d: expected %s", printable_path(r->file).text, r->line,
                    r->headed ? "a step" : "orrery batches 1");
    const int64_t numbers = (int64_t)r->steps * r->copies * r->micros;
    if (numbers > MOST_NUMBERS)
        return fail(r->err, ERR_FORMAT, "%s: %d steps of %d copies of %d microbatches: expected at most 4194304 in all",
                    printable_path(r->file).text, r->steps, r->copies, r->micros);
    int *sequences = calloc((size_t)numbers, sizeof *sequences);
    if (sequences == NULL) return fail(r->err, ERR_MEMORY, "no memory for a batch plan of %d steps", r->steps);
    for (int i = 0; i < r->count; i++) {
        const struct number *n = &r->all[i];
        sequences[((int64_t)n->step * r->copies + n->copy) * r->micros + n->micro] = n->sequences;
    }
    return batch_plan_make(b, r->steps, r->copies, r->micros, sequences, r->err);
}

enum error_code batch_plan_read(struct batch_plan *b, FILE *from, const char *file, struct error *err)
{
    struct reader r = { .file = file, .err = err };
    char *text = NULL;
    size_t room = 0;
    ssize_t length;
    enum error_code e = OK;
    *b = (struct batch_plan){ 0 };
    while (!e && (length = getline(&text, &room, from)) >= 0) {
        r.line++;
        e = read_line(&r, text, (size_t)length);
    }
    if (!e && ferror(from)) e = fail(err, ERR_FILE, "%s: cannot be read", printable_path(file).text);
    if (!e) e = make(&r, b);
    free(text), free(r.all);
    return e;
}

enum error_code batch_plan_load(struct batch_plan *b, const char *path, struct error *err)
{
    struct stat st;
    const bool regular = stat(path, &st) == 0 && S_ISREG(st.st_mode);
    FILE *f = regular ? fopen(path, "r") : NULL;
    if (f == NULL)
        return fail(err, ERR_FILE, "%s: %s", printable_path(path).text,
                    regular || stat(path, &st) ? strerror(errno) : "is not a regular file");
    const enum error_code e = batch_plan_read(b, f, path, err);
    fclose(f);
    return e;
}
