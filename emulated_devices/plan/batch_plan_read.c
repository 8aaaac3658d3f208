/* batch_plan_read.c -- reads a batch plan from text.  The format is in batch_plan.h; the file is not trusted.
 *
 * run/words/take.c and the fuzz test call.  An error names file and line; ERR_MEMORY and ERR_FILE have no line.
 */
#include "emulated_devices/plan/batch_plan.h"
#include "ref/io/output.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_SEQUENCES = 1000000, MOST_NUMBERS = 1 << 22 };

static const char blanks[] = " \t\r\n";

/* This is how many sequences a microbatch of a copy has in a step, as read. */
struct number { int step, copy, micro, sequences; };

/* A reader has what was read so far, and where.  The numbers become an array at the end, when the sizes are known. */
struct reader {
    const char *file;
    int line, steps, copies, micros;
    bool headed;
    struct number *all;
    int count, room;
    struct error *err;
};

/* Refuse the current line: what stands there, and what was expected. */
static enum error_code batch_plan_read_bad(const struct reader *reader, const char *what, const char *expected)
{
    return fail(reader->err, ERR_FORMAT, "%s:%d: %s: expected %s", printable_path(reader->file).text, reader->line,
                printable(what).text, expected);
}

/* Keep one number; the list grows up to MOST_NUMBERS, so a hostile file cannot take all memory. */
static enum error_code batch_plan_read_keep(struct reader *reader, struct number number)
{
    if (reader->count == MOST_NUMBERS)
        return batch_plan_read_bad(reader, "this line", "at most 4194304 microbatches in all");
    if (reader->count == reader->room) {
        const int room = reader->room ? 2 * reader->room : 64;
        struct number *grown = realloc(reader->all, (size_t)room * sizeof *grown);
        if (grown == NULL) return fail(reader->err, ERR_MEMORY, "no memory for %d microbatches of a batch plan", room);
        reader->all = grown, reader->room = room;
    }
    reader->all[reader->count++] = number;
    if (number.micro >= reader->micros) reader->micros = number.micro + 1;
    return OK;
}

/* Accepts digits only, and few enough for an int. */
static bool read_number(const char *word, int *n)
{
    const size_t digits = strspn(word, "0123456789");
    *n = digits > 0 && digits < 8 ? atoi(word) : -1;
    return word[digits] == '\0' && *n >= 0 && *n <= MOST_SEQUENCES;
}

/* Read the numbers of one copy's microbatches, or a single `-`. The text is cut into words in place. */
static enum error_code read_copy(struct reader *reader, char *text, int copy)
{
    struct number n = { .step = reader->steps, .copy = copy };
    bool none = false;
    enum error_code e = OK;
    char *rest, *word = strtok_r(text, blanks, &rest);
    if (word == NULL) return batch_plan_read_bad(reader, "a copy without a word",
                                                 "the sequences of its microbatches, or - for none");
    for (; word && !e; word = strtok_r(NULL, blanks, &rest)) {
        if (none || (strcmp(word, "-") == 0 && n.micro > 0))
            return batch_plan_read_bad(reader, word, "- alone, or numbers of sequences");
        none = strcmp(word, "-") == 0;
        if (none) continue;
        if (!read_number(word, &n.sequences))
            return batch_plan_read_bad(reader, word, "a number of sequences, 0..1000000, or -");
        e = batch_plan_read_keep(reader, n);
        n.micro++;
    }
    return e;
}

/* Read one step: copies parted by bars, as many as in the first step, and at least one sequence. */
static enum error_code read_step(struct reader *reader, char *text)
{
    int copies = 0;
    int64_t all = 0;
    const int before = reader->count;
    enum error_code e = OK;
    for (char *bar = text; bar && !e; text = bar) {
        bar = strchr(text, '|');
        if (bar) *bar++ = '\0';
        e = read_copy(reader, text, copies++);
    }
    if (e) return e;
    if (reader->steps > 0 && copies != reader->copies)
        return batch_plan_read_bad(reader, "this step", "as many copies, parted by |, as in the first one");
    for (int i = before; i < reader->count; i++) all += reader->all[i].sequences;
    if (all == 0) return batch_plan_read_bad(reader, "this step", "at least one sequence");
    reader->copies = copies;
    reader->steps++;
    return OK;
}

/* Read one line without its comment.  The first line that is not empty must be the head; later ones are steps. */
static enum error_code batch_plan_read_read_line(struct reader *reader, char *text, size_t length)
{
    /* A byte 0 would hide the rest of the line from all that follows. */
    if (strlen(text) != length) return batch_plan_read_bad(reader, "this line", "text, without bytes that are 0");
    char *comment = strchr(text, '#');
    if (comment) *comment = '\0';
    text += strspn(text, blanks);
    if (*text == '\0') return OK;
    if (reader->headed) return read_step(reader, text);
    char *end = text + strlen(text);
    while (end > text && strchr(blanks, end[-1])) *--end = '\0';
    if (strcmp(text, "orrery batches 1") != 0) return batch_plan_read_bad(reader, text, "orrery batches 1");
    reader->headed = true;
    return OK;
}

/* Put all numbers into an array [steps, copies, micros]; microbatches that a copy does not have stay 0. */
static enum error_code batch_plan_read_make(const struct reader *reader, struct batch_plan *plan)
{
    if (reader->steps == 0)
        return fail(reader->err, ERR_FORMAT, "%s: ends after line %d: expected %s", printable_path(reader->file).text,
                    reader->line, reader->headed ? "a step" : "orrery batches 1");
    /* The array may be larger than the file: every copy has room for the most microbatches of any. */
    const int64_t numbers = (int64_t)reader->steps * reader->copies * reader->micros;
    if (numbers > MOST_NUMBERS)
        return fail(reader->err, ERR_FORMAT,
                    "%s: %d steps of %d copies of %d microbatches: expected at most 4194304 in all",
                    printable_path(reader->file).text, reader->steps, reader->copies, reader->micros);
    int *sequences = calloc((size_t)numbers, sizeof *sequences);
    if (sequences == NULL)
        return fail(reader->err, ERR_MEMORY, "no memory for a batch plan of %d steps", reader->steps);
    for (int i = 0; i < reader->count; i++) {
        const struct number *n = &reader->all[i];
        sequences[((int64_t)n->step * reader->copies + n->copy) * reader->micros + n->micro] = n->sequences;
    }
    return batch_plan_make(plan, reader->steps, reader->copies, reader->micros, sequences, reader->err);
}

enum error_code batch_plan_read(struct batch_plan *plan, FILE *from, const char *file, struct error *err)
{
    struct reader r = { .file = file, .err = err };
    char *text = NULL;
    size_t room = 0;
    ssize_t length;
    enum error_code e = OK;
    *plan = (struct batch_plan){ 0 };
    while (!e && (length = getline(&text, &room, from)) >= 0) {
        r.line++;
        e = batch_plan_read_read_line(&r, text, (size_t)length);
    }
    if (!e && ferror(from)) e = fail(err, ERR_FILE, "%s: cannot be read", printable_path(file).text);
    if (!e) e = batch_plan_read_make(&r, plan);
    free(text), free(r.all);
    return e;
}

enum error_code batch_plan_load(struct batch_plan *plan, const char *path, struct error *err)
{
    struct stat st;
    /* Only a regular file is opened: opening a pipe would wait for its writer. */
    const bool regular = stat(path, &st) == 0 && S_ISREG(st.st_mode);
    FILE *f = regular ? fopen(path, "r") : NULL;
    if (f == NULL)
        return fail(err, ERR_FILE, "%s: %s", printable_path(path).text,
                    regular || stat(path, &st) ? strerror(errno) : "is not a regular file");
    const enum error_code e = batch_plan_read(plan, f, path, err);
    fclose(f);
    return e;
}
