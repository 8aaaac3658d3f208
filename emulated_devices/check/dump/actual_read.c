/* actual_read.c -- the numbers of a piece, some at a time: memory does not grow with its size.  assembly.c reads
 * every piece with actual_read_some.  Numbers become fp64, and a dump's "times" is applied here.  The files are
 * mapped or read by ref/io/safetensors. */
#include "emulated_devices/check/dump/actual_open.h"
#include <stdio.h>
#include <stdlib.h>

enum { SOME = 1 << 17, SOME_OF_TRANSPOSE = 1 << 20 };   /* elements at a time; strips of a transpose are wider */

/* The numbers in order of memory, and how far they are read. */
struct stream {
    const struct actual_piece *piece;
    void (*f)(void *context, int64_t whole, int64_t length, const double *values);
    void *context;
    int64_t from, to;                   /* elements of the whole that are wanted */
    int64_t shape[2];                   /* of the stored tensor, or of its transpose */
    double *buffer;
    int64_t base;                       /* elements of the piece before the current part */
    int64_t first, count;               /* elements of the piece in the buffer */
    enum error_code failed;
    struct error *err;
};

/* Fill the buffer from stream->first on: whole rows if the file has the transpose, else any elements. */
static enum error_code read_some(struct stream *stream, struct error *err)
{
    const struct actual_piece *p = stream->piece;
    const struct safetensors *st = &p->file->st;
    /* A row of the whole is a column of the file; many rows are read at once, because each read walks through the
     * file. */
    if (p->transposed) {
        const int64_t row = stream->first / stream->shape[1], most = SOME_OF_TRANSPOSE / stream->shape[1],
                      left = stream->shape[0] - row, rows = most < 1 ? 1 : most < left ? most : left;
        stream->count = rows * stream->shape[1];
        return safetensors_read_box(st, p->stored, (int64_t[]){ row, 0 },
                                    (int64_t[]){ rows, stream->shape[1] }, true, F64, stream->buffer, err);
    }
    /* A stored tensor that is not transposed is read as one row of numbers. */
    struct safetensors_entry flat = *p->stored;
    const int64_t left = flat.count - stream->first;
    flat.ndim = 1, flat.dim[0] = flat.count;
    stream->count = left < SOME ? left : SOME;
    return safetensors_read_box(st, &flat, &stream->first, &stream->count, false, F64, stream->buffer, err);
}

/* Read the part of the file that has element `at` of the piece.  Afterwards element `at` is in the buffer, or
 * stream->failed is set. */
static void refill(struct stream *stream, int64_t at)
{
    stream->first = stream->piece->transposed ? at / stream->shape[1] * stream->shape[1] : at;
    stream->failed = read_some(stream, stream->err);
    /* A dump may store a gradient that its program scaled; "times" takes the scale back. */
    for (int64_t i = 0; !stream->failed && stream->piece->times != 1 && i < stream->count; i++)
        stream->buffer[i] *= stream->piece->times;
}

/* Pass on the elements of a run that lie in the wanted interval, at most a buffer at a time. */
static void actual_read_pass_on(void *context, struct run run)
{
    struct stream *s = context;
    const int64_t from = run.whole > s->from ? run.whole : s->from, end = run.whole + run.length,
                  to = end < s->to ? end : s->to, at = s->base + run.piece - run.whole;
    /* `at` turns an index of the whole into an index of the piece: at + next is the element's place in the file. */
    for (int64_t next = from; next < to && !s->failed;) {
        if (at + next < s->first || at + next >= s->first + s->count) refill(s, at + next);
        if (s->failed) return;
        const int64_t in = at + next - s->first, left = s->count - in, n = to - next < left ? to - next : left;
        s->f(s->context, next, n, s->buffer + in);
        next += n;
    }
}

enum error_code actual_read_some(const struct actual_piece *piece, struct interval of_whole,
                                 void (*f)(void *context, int64_t whole, int64_t length, const double *values),
                                 void *context, struct error *err)
{
    struct stream s = { .piece = piece, .f = f, .context = context, .from = of_whole.first,
                        .to = of_whole.first + of_whole.count, .err = err };
    if (piece->count == 0) return OK;
    /* Rows of the stored tensor, or of its transpose, decide how much is read at once. */
    actual_shape(piece->stored, piece->transposed, s.shape);
    const int64_t strip = s.shape[1] > SOME_OF_TRANSPOSE ? s.shape[1] : SOME_OF_TRANSPOSE,
                  room = piece->transposed ? strip : SOME;
    s.buffer = malloc((size_t)(piece->stored->count < room ? piece->stored->count : room) * sizeof *s.buffer);
    if (s.buffer == NULL) return fail(err, ERR_MEMORY, "no memory to read %s", printable(piece->stored->name).text);
    /* The interval counts elements of the whole.  Rows around it are asked of each part, so other rows cost
     * nothing. */
    for (int i = 0; i < piece->parts && !s.failed; i++) {
        const int64_t cols = piece->part[i].dim[1] > 0 ? piece->part[i].dim[1] : 1, first = s.from / cols,
                      end = s.to < INT64_MAX - cols ? (s.to + cols - 1) / cols : INT64_MAX;
        part_each_run_in(&piece->part[i], (struct interval){ first, end - first }, actual_read_pass_on, &s);
        /* A piece's parts follow each other in the file. */
        s.base += part_count(&piece->part[i]);
    }
    free(s.buffer);
    return s.failed;
}

enum error_code actual_read(const struct actual_piece *piece,
                            void (*f)(void *context, int64_t whole, int64_t length, const double *values),
                            void *context, struct error *err)
{
    return actual_read_some(piece, (struct interval){ 0, INT64_MAX }, f, context, err);
}

struct actual_words actual_describe(const struct actual_piece *piece)
{
    struct actual_words w;
    snprintf(w.text, sizeof w.text, "%s in %s", printable(piece->stored->name).text,
             printable_path(piece->file->st.path).text);
    return w;
}
