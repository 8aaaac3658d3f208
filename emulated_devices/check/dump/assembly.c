#include "emulated_devices/check/dump/assembly.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The ranks whose pieces are added up, and where these are in the list of pieces. */
struct group { unsigned partial; int base; };           /* base: the rank with the coordinates 0 in the partial axes */

enum { SPAN = 1 << 18 };                /* elements at a time, where nobody wants the whole */

struct assembling {
    struct assembly *out;
    const struct actual *actual;
    const char *name;
    const int64_t *dim;
    const struct assembly_watch *watch;
    struct actual_pieces pieces;
    struct interval rows, span;         /* rows that are now put together, their elements: indices count from these */
    bool last_rows;                     /* there are none behind them */
    double *whole;
    uint32_t *last;                     /* [elements] the last group that has it, from 1; 0: none yet */
    double *sum;                        /* [elements] of a group; NULL: no piece is partial */
    uint32_t *added;                    /* [elements] to how many of its members' pieces an element belongs */
    const struct actual_piece *piece;   /* the one that is read */
    int *start;                         /* [ranks + 1] the first piece of each rank */
    bool *taken;                        /* [pieces] */
    const int *rank;                    /* the current group's members */
    uint32_t groups, member;            /* groups begun; members of the current one that are complete */
    struct copies *of_group;            /* [pieces] of each group, of all rows so far */
    struct copies *copies;              /* of the current group */
    enum error_code failed;
    struct error *err;
};

static int64_t elements(const struct assembling *s) { return s->span.count; }

/* Of a run of the whole what is put together. */
static struct run inside(const struct assembling *s, struct run r)
{
    const int64_t from = r.whole > s->span.first ? r.whole : s->span.first, end = r.whole + r.length,
                  last = s->span.first + s->span.count, to = end < last ? end : last;
    r.whole = from - s->span.first, r.length = to > from ? to - from : 0;
    return r;
}

static double *absolute_of(const struct assembling *s) { return s->watch ? s->watch->absolute : NULL; }

const char *assembly_rank(const struct actual *a, int rank, char *out, size_t size)
{
    char place[64];
    int number = rank;
    for (int f = 0; f < a->files; f++)
        if (a->file[f].rank == rank) number = a->file[f].number;
    snprintf(out, size, "rank %d (%s)", number, mesh_describe(&a->mesh, rank, place, sizeof place));
    return out;
}

/* Fail at an element: "act/h.0.mid, row 3, column 0: rank 1 (dp=1) has it twice". */
static void refuse(struct assembling *s, int64_t at, int rank, const char *what)
{
    char who[96];
    if (s->failed) return;
    at += s->span.first;
    s->failed = fail(s->err, ERR_CHECK, "%s, row %lld, column %lld: %s %s", s->name, (long long)(at / s->dim[1]),
                     (long long)(at % s->dim[1]), assembly_rank(s->actual, rank, who, sizeof who), what);
}

static const char TWICE[] = "has it in two pieces, or twice in one";

/* ---- laying a group's numbers into the whole --------------------------------------------------------------------- */

static void compare_copies(struct assembling *s, int64_t at, double value)
{
    struct copies *c = s->copies;
    const double before = s->whole[at], d = value - before, worst = c->value[1] - c->value[0];
    if (value == before || (value != value && before != before)) return;
    if (s->watch && s->watch->apart) devices_add(s->watch->apart, s->piece->file->rank);
    c->elements++;
    c->apart += d * d;
    if (c->elements > 1 && !(d * d > worst * worst)) return;
    c->worst = s->span.first + at;
    c->rank[1] = s->piece->file->rank;
    c->value[0] = before, c->value[1] = value;
}

static bool is_last(const struct assembling *s, const struct actual_piece *p)
{
    return s->watch && s->watch->last && devices_have(s->watch->last, p->file->rank);
}

static bool is_wanted(const struct assembling *s)
{
    return s->watch && s->watch->over && devices_have(s->watch->over, s->piece->file->rank);
}

static bool are_new(const struct assembling *s, int64_t at, int64_t length)
{
    uint32_t any = 0;
    for (int64_t i = at; i < at + length; i++) any |= s->last[i];
    return any == 0;
}

static void lay(struct assembling *s, int64_t at, int64_t length, const double *values)
{
    if (are_new(s, at, length)) {
        memcpy(s->whole + at, values, (size_t)length * sizeof *values);
        for (int64_t i = at; i < at + length; i++) s->last[i] = s->groups;
    } else for (int64_t i = 0; i < length; i++) {
        uint32_t *last = &s->last[at + i];
        if (*last == s->groups) {
            refuse(s, at + i, s->piece->file->rank, TWICE);
            return;
        }
        if (*last) compare_copies(s, at + i, values[i]);
        if (*last == 0 || is_wanted(s) || is_last(s, s->piece)) s->whole[at + i] = values[i];
        *last = s->groups;
    }
    if (s->watch && s->watch->see)
        s->watch->see(s->watch->context, (int)s->groups - 1, s->piece, s->span.first + at, length, values);
}

static void lay_piece(void *context, int64_t at, int64_t length, const double *values)
{
    struct assembling *s = context;
    at -= s->span.first;
    for (int64_t i = 0; absolute_of(s) && i < length; i++) absolute_of(s)[at + i] = fabs(values[i]);
    if (!s->failed) lay(s, at, length, values);
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

static void clear_run(void *context, struct run r)
{
    struct assembling *s = context;
    r = inside(s, r);
    for (int64_t i = 0; i < r.length; i++) s->sum[r.whole + i] = 0, s->added[r.whole + i] = 0;
    for (int64_t i = 0; absolute_of(s) && i < r.length; i++) absolute_of(s)[r.whole + i] = 0;
}

static void refuse_part(struct assembling *s, int64_t at)
{
    char text[160], other[96];
    snprintf(text, sizeof text, "has a part of a sum, of which %s has none",
             assembly_rank(s->actual, s->rank[s->added[at]], other, sizeof other));
    refuse(s, at, s->piece->file->rank, text);
}

static void add_piece(void *context, int64_t at, int64_t length, const double *values)
{
    struct assembling *s = context;
    at -= s->span.first;
    for (int64_t i = at; i < at + length && !s->failed; i++) {
        if (s->added[i] > s->member) refuse(s, i, s->piece->file->rank, TWICE);
        if (s->added[i] < s->member) refuse_part(s, i);
        s->added[i]++;
        s->sum[i] += values[i - at];
        if (absolute_of(s)) absolute_of(s)[i] += fabs(values[i - at]);
    }
}

static void lay_sum(void *context, struct run r)
{
    struct assembling *s = context;
    r = inside(s, r);
    for (int64_t i = r.whole; i < r.whole + r.length && !s->failed; i++)
        if (s->added[i] < s->member) refuse_part(s, i);
    if (!s->failed) lay(s, r.whole, r.length, s->sum + r.whole);
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

static struct group group_of(const struct assembling *s, const struct actual_piece *p)
{
    struct group g = { p->partial, p->file->rank };
    for (enum axis a = 0; a < AXIS_COUNT; a++)
        if (p->partial & AXIS_BIT(a)) g.base = mesh_neighbour(&s->actual->mesh, g.base, a, 0);
    return g;
}

/* The pieces of a rank that belong to a group. */
static void each_of(struct assembling *s, struct group g, int rank, void (*f)(struct assembling *))
{
    for (int i = s->start[rank]; i < s->start[rank + 1] && !s->failed; i++) {
        if (s->pieces.all[i].partial != g.partial) continue;
        s->piece = &s->pieces.all[i];
        s->taken[i] = true;
        f(s);
    }
}

static void clear_one(struct assembling *s)
{
    for (int i = 0; i < s->piece->parts; i++) part_each_run_in(&s->piece->part[i], s->rows, clear_run, s);
}

static void add_one(struct assembling *s)
{
    const enum error_code e = actual_read_some(s->piece, s->span, add_piece, s, s->err);
    if (!s->failed) s->failed = e;
}

static void lay_one(struct assembling *s)
{
    const enum error_code e = actual_read_some(s->piece, s->span, lay_piece, s, s->err);
    if (!s->failed) s->failed = e;
}

static void lay_one_sum(struct assembling *s)
{
    for (int i = 0; i < s->piece->parts; i++) part_each_run_in(&s->piece->part[i], s->rows, lay_sum, s);
}

static enum error_code make_sum(struct assembling *s)
{
    const size_t n = (size_t)elements(s) + 1;
    if (s->sum) return OK;
    s->sum = malloc(n * sizeof *s->sum), s->added = malloc(n * sizeof *s->added);
    return s->sum && s->added ? OK : fail(s->err, ERR_MEMORY, "no memory to add up %s", s->name);
}

static void add_group(struct assembling *s, struct group g, const int rank[], int ranks)
{
    s->failed = make_sum(s);
    for (int i = 0; i < ranks; i++) each_of(s, g, rank[i], clear_one);
    for (s->member = 0; s->member < (uint32_t)ranks; s->member++) each_of(s, g, rank[s->member], add_one);
    each_of(s, g, rank[0], lay_one_sum);
}

/* What is known of a group when all rows are laid. */
static void end_group(struct assembling *s, const int *rank, int ranks)
{
    struct copies *all = &s->out->copies;
    const int64_t before = all->elements;
    if (s->copies->elements > 0 && (before == 0 || !(s->copies->apart <= all->apart))) *all = *s->copies;
    all->elements = before + s->copies->elements;
    if (s->watch && s->watch->end) s->watch->end(s->watch->context, (int)s->groups - 1, rank, ranks);
}

static void take_group(struct assembling *s, struct group g, int *rank)
{
    const int ranks = mesh_members(&s->actual->mesh, g.base, g.partial, rank);
    s->copies = &s->of_group[s->groups++];
    if (ranks > s->out->parts) s->out->parts = ranks;
    if (ranks > 1) add_group(s, g, rank, ranks);
    else each_of(s, g, rank[0], lay_one);
    if (!s->failed && s->last_rows) end_group(s, rank, ranks);
}

static void find_starts(struct assembling *s)
{
    int i = 0;
    for (int r = 0; r <= s->actual->mesh.devices; r++) {
        while (i < s->pieces.count && s->pieces.all[i].file->rank < r) i++;
        s->start[r] = i;
    }
}

/* A group is taken when its first piece is met, those that are laid over all when the others are. */
static void take_groups(struct assembling *s, int *rank)
{
    s->rank = rank, s->groups = 0;
    memset(s->taken, 0, (size_t)s->pieces.count * sizeof *s->taken);
    memset(s->last, 0, (size_t)elements(s) * sizeof *s->last);
    for (int last = 0; last < 2; last++)
        for (int i = 0; i < s->pieces.count && !s->failed; i++)
            if (!s->taken[i] && is_last(s, &s->pieces.all[i]) == (last == 1))
                take_group(s, group_of(s, &s->pieces.all[i]), rank);
}

static void count_holes(struct assembling *s)
{
    struct assembly *out = s->out;
    int64_t missing = 0, hole = 0;
    for (int64_t i = 0; i < elements(s); i++) missing += s->last[i] == 0;
    while (missing > 0 && s->last[hole] != 0) hole++;
    if (missing > 0 && out->missing == 0) out->hole = s->span.first + hole;
    out->missing += missing;
}

static void take_rows(struct assembling *s, struct interval rows)
{
    s->rows = rows, s->span = (struct interval){ rows.first * s->dim[1], rows.count * s->dim[1] };
}

/* Some rows after the others: all at once for somebody who wants the whole. */
static void take_all(struct assembling *s, struct interval rows, int64_t at_once, int *rank)
{
    find_starts(s);
    for (int64_t first = rows.first; !s->failed && !s->last_rows; first += at_once) {
        const int64_t left = interval_end(rows) - first;
        s->last_rows = left <= at_once;
        take_rows(s, (struct interval){ first, s->last_rows ? left : at_once });
        take_groups(s, rank);
        if (!s->failed) count_holes(s);
    }
}

struct search { int64_t at; bool found; };

static void search_run(void *context, struct run r)
{
    struct search *s = context;
    s->found = s->found || (s->at >= r.whole && s->at < r.whole + r.length);
}

/* The first rank that has the element whose copies are furthest apart. */
static void find_first_copy(struct assembling *s)
{
    struct search search = { .at = s->out->copies.worst };
    for (int i = 0; i < s->pieces.count && !search.found; i++) {
        const struct actual_piece *p = &s->pieces.all[i];
        for (int k = 0; k < p->parts; k++) part_each_run(&p->part[k], search_run, &search);
        s->out->copies.rank[0] = p->file->rank;
    }
}

static enum error_code make_room(struct assembling *s, bool own, struct error *err)
{
    const size_t ranks = (size_t)s->actual->mesh.devices, pieces = (size_t)s->pieces.count;
    s->start = malloc((ranks + 1) * sizeof *s->start), s->taken = calloc(pieces, sizeof *s->taken);
    s->last = calloc((size_t)elements(s) + 1, sizeof *s->last), s->of_group = calloc(pieces, sizeof *s->of_group);
    if (own) s->whole = malloc(((size_t)elements(s) + 1) * sizeof *s->whole);
    return s->start && s->taken && s->last && s->of_group && s->whole
               ? OK : fail(err, ERR_MEMORY, "no memory to put %s together", s->name);
}

enum error_code assembly_make(struct assembly *out, const struct actual *a, const char *ours, const int64_t dim[2],
                              double *whole, const struct assembly_watch *watch, struct error *err)
{
    struct assembling s = { .out = out, .actual = a, .name = ours, .dim = dim, .watch = watch, .whole = whole,
                            .err = err };
    const struct interval rows = watch && watch->rows.count > 0 ? watch->rows : (struct interval){ 0, dim[0] };
    const int64_t some = dim[1] > SPAN ? 1 : dim[1] > 0 ? SPAN / dim[1] : rows.count,
                  at_once = whole || some > rows.count ? rows.count : some;
    *out = (struct assembly){ .missing = rows.count * dim[1] };
    enum error_code e = actual_find(a, ours, dim, &s.pieces, err);
    if (e || s.pieces.count == 0) {
        if (!e) actual_pieces_free(&s.pieces);
        return e;
    }
    int *rank = malloc((size_t)a->mesh.devices * sizeof *rank);
    take_rows(&s, (struct interval){ rows.first, at_once });
    out->any = true, out->missing = 0;
    s.failed = make_room(&s, whole == NULL, err);
    if (rank == NULL && !s.failed) s.failed = fail(err, ERR_MEMORY, "no memory to put %s together", ours);
    if (!s.failed) take_all(&s, rows, at_once, rank);
    if (!s.failed && out->copies.elements > 0) find_first_copy(&s);
    free(rank), free(s.start), free(s.taken), free(s.last), free(s.of_group), free(s.sum), free(s.added);
    if (whole == NULL) free(s.whole);
    actual_pieces_free(&s.pieces);
    return s.failed;
}
