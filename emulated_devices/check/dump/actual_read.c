/* actual_read.c -- the numbers of a piece, some at a time: memory does not grow with its size. */
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

/* Of a transpose whole rows, else any elements. */
static enum error_code read_some(struct stream *s, struct error *err)
{
    const struct actual_piece *p = s->piece;
    const struct safetensors *st = &p->file->st;
    if (p->transposed) {
        const int64_t row = s->first / s->shape[1], most = SOME_OF_TRANSPOSE / s->shape[1],
                      left = s->shape[0] - row, rows = most < 1 ? 1 : most < left ? most : left;
        s->count = rows * s->shape[1];
        return safetensors_read_box(st, p->stored, (int64_t[]){ row, 0 }, (int64_t[]){ rows, s->shape[1] }, true, F64,
                                    s->buffer, err);
    }
    struct safetensors_entry flat = *p->stored;
    const int64_t left = flat.count - s->first;
    flat.ndim = 1, flat.dim[0] = flat.count;
    s->count = left < SOME ? left : SOME;
    return safetensors_read_box(st, &flat, &s->first, &s->count, false, F64, s->buffer, err);
}

/* at: an element of the piece that is then in the buffer. */
static void refill(struct stream *s, int64_t at)
{
    s->first = s->piece->transposed ? at / s->shape[1] * s->shape[1] : at;
    s->failed = read_some(s, s->err);
    for (int64_t i = 0; !s->failed && s->piece->times != 1 && i < s->count; i++) s->buffer[i] *= s->piece->times;
}

/* Of a run what is wanted. */
static void pass_on(void *context, struct run r)
{
    struct stream *s = context;
    const int64_t from = r.whole > s->from ? r.whole : s->from, end = r.whole + r.length,
                  to = end < s->to ? end : s->to, at = s->base + r.piece - r.whole;
    for (int64_t next = from; next < to && !s->failed;) {
        if (at + next < s->first || at + next >= s->first + s->count) refill(s, at + next);
        if (s->failed) return;
        const int64_t in = at + next - s->first, left = s->count - in, n = to - next < left ? to - next : left;
        s->f(s->context, next, n, s->buffer + in);
        next += n;
    }
}

enum error_code actual_read_some(const struct actual_piece *p, struct interval of_whole,
                                 void (*f)(void *context, int64_t whole, int64_t length, const double *values),
                                 void *context, struct error *err)
{
    struct stream s = { .piece = p, .f = f, .context = context, .from = of_whole.first,
                        .to = of_whole.first + of_whole.count, .err = err };
    if (p->count == 0) return OK;
    actual_shape(p->stored, p->transposed, s.shape);
    const int64_t strip = s.shape[1] > SOME_OF_TRANSPOSE ? s.shape[1] : SOME_OF_TRANSPOSE,
                  room = p->transposed ? strip : SOME;
    s.buffer = malloc((size_t)(p->stored->count < room ? p->stored->count : room) * sizeof *s.buffer);
    if (s.buffer == NULL) return fail(err, ERR_MEMORY, "no memory to read %s", printable(p->stored->name).text);
    for (int i = 0; i < p->parts && !s.failed; i++) {
        const int64_t cols = p->part[i].dim[1] > 0 ? p->part[i].dim[1] : 1, first = s.from / cols,
                      end = s.to < INT64_MAX - cols ? (s.to + cols - 1) / cols : INT64_MAX;
        part_each_run_in(&p->part[i], (struct interval){ first, end - first }, pass_on, &s);
        s.base += part_count(&p->part[i]);
    }
    free(s.buffer);
    return s.failed;
}

enum error_code actual_read(const struct actual_piece *p,
                            void (*f)(void *context, int64_t whole, int64_t length, const double *values),
                            void *context, struct error *err)
{
    return actual_read_some(p, (struct interval){ 0, INT64_MAX }, f, context, err);
}

struct actual_words actual_describe(const struct actual_piece *p)
{
    struct actual_words w;
    snprintf(w.text, sizeof w.text, "%s in %s", printable(p->stored->name).text, printable_path(p->file->st.path).text);
    return w;
}
