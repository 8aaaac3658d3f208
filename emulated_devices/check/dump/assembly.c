/* assembly.c -- adds up the parts of sums and lays all ranks' pieces into the whole tensor, some rows at a time.
 * Files of check/report/ and recompute/own_pass.c call assembly_make.  Each group of ranks has a
 * number from 1; for each element the last group that laid it is noted.  An element that a group lays twice, or
 * that a part of a sum lacks, is ERR_CHECK. */
#include "emulated_devices/check/dump/assembly_put.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPAN = 1 << 18 };                /* elements at a time, where nobody wants the whole */

/* Everything that putting a single tensor together needs.  Indices of elements count from the begin of `span`. */
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

static int64_t assembly_elements(const struct assembling *assembling) { return assembling->span.count; }

/* The part of a run that lies in the rows now put together, with an index from their begin. */
static struct run assembly_inside(const struct assembling *assembling, struct run run)
{
    const int64_t from = run.whole > assembling->span.first ? run.whole : assembling->span.first,
        end = run.whole + run.length,
                  last = assembling->span.first + assembling->span.count, to = end < last ? end : last;
    run.whole = from - assembling->span.first, run.length = to > from ? to - from : 0;
    return run;
}

/* Whether the caller wants what the k-th rank of a sum has, from 0; k is -1 for what is no sum. */
static bool wants_part(const struct assembling *assembling, int k)
{
    const int part = assembling->watch ? assembling->watch->part : 0;
    return part == 0 || part == (k < 0 ? ASSEMBLY_NO_SUMS : k + 1);
}

/* This is where the caller wants absolute values, or NULL. */
static double *absolute_of(const struct assembling *assembling)
{
    return assembling->watch ? assembling->watch->absolute : NULL;
}

/* A dump's program may number its ranks in another order than the mesh; the message has the program's number. */
const char *assembly_rank(const struct actual *actual, int rank, char *out, size_t size)
{
    char place[64];
    int number = rank;
    for (int f = 0; f < actual->files; f++)
        if (actual->file[f].rank == rank) number = actual->file[f].number;
    snprintf(out, size, "rank %d (%s)", number, mesh_describe(&actual->mesh, rank, place, sizeof place));
    return out;
}

/* Fail at an element: "act/h.0.mid, row 3, column 0: rank 1 (dp=1) has it twice". */
static void assembly_refuse(struct assembling *assembling, int64_t at, int rank, const char *what)
{
    char who[96];
    /* The first error stays; later errors of the same tensor are its consequences. */
    if (assembling->failed) return;
    at += assembling->span.first;
    assembling->failed = fail(assembling->err, ERR_CHECK, "%s, row %lld, column %lld: %s %s", assembling->name,
                              (long long)(at / assembling->dim[1]), (long long)(at % assembling->dim[1]),
                              assembly_rank(assembling->actual, rank, who, sizeof who), what);
}

static const char TWICE[] = "has it in two pieces, or twice in one";

/* ---- laying a group's numbers into the whole --------------------------------------------------------------------- */

/* An element that another group has laid before: note a difference between both copies.  Two NaN are the same, and the
 * first NaN beside a number is further than all numbers.  The furthest element is kept for the message. */
static void compare_copies(struct assembling *assembling, int64_t at, double value)
{
    struct copies *c = assembling->copies;
    /* `worst` is the difference that has been kept so far. */
    const double before = assembling->whole[at], d = value - before, worst = c->value[1] - c->value[0];
    if (value == before || (value != value && before != before)) return;
    if (assembling->watch && assembling->watch->apart)
        devices_add(assembling->watch->apart, assembling->piece->file->rank);
    c->elements++;
    c->apart += d * d;
    if (c->elements > 1 && (isnan(worst) || !(isnan(d) || d * d > worst * worst))) return;
    c->worst = assembling->span.first + at;
    c->rank[1] = assembling->piece->file->rank;
    c->value[0] = before, c->value[1] = value;
}

/* Whether a piece belongs to the ranks whose copies are laid over all others. */
static bool is_last(const struct assembling *assembling, const struct actual_piece *piece)
{
    return assembling->watch && assembling->watch->last && devices_have(assembling->watch->last, piece->file->rank);
}

/* Whether the piece that is read now belongs to the ranks whose copies win over others. */
static bool is_wanted(const struct assembling *assembling)
{
    return assembling->watch && assembling->watch->over
           && devices_have(assembling->watch->over, assembling->piece->file->rank);
}

/* Whether no group has laid these elements: then they can be copied as a block. */
static bool are_new(const struct assembling *assembling, int64_t at, int64_t length)
{
    uint32_t any = 0;
    for (int64_t i = at; i < at + length; i++) any |= assembling->last[i];
    return any == 0;
}

/* Lay consecutive elements of the current group into the whole.  The first group's numbers stay, except where the
 * watch wants other ranks' copies.  Copies are compared before one replaces another. */
static void lay(struct assembling *assembling, int64_t at, int64_t length, const double *values)
{
    /* The whole block is new in the usual case. */
    if (are_new(assembling, at, length)) {
        memcpy(assembling->whole + at, values, (size_t)length * sizeof *values);
        for (int64_t i = at; i < at + length; i++) assembling->last[i] = assembling->groups;
    } else for (int64_t i = 0; i < length; i++) {
        uint32_t *last = &assembling->last[at + i];
        if (*last == assembling->groups) {
            assembly_refuse(assembling, at + i, assembling->piece->file->rank, TWICE);
            return;
        }
        if (*last) compare_copies(assembling, at + i, values[i]);
        if (*last == 0 || is_wanted(assembling) || is_last(assembling, assembling->piece))
            assembling->whole[at + i] = values[i];
        *last = assembling->groups;
    }
    /* The watch sees every group's numbers, also those that do not stay. */
    if (assembling->watch && assembling->watch->see)
        assembling->watch->see(assembling->watch->context, (int)assembling->groups - 1, assembling->piece,
                               assembling->span.first + at, length, values);
}

/* A piece that is no part of a sum: its numbers go straight into the whole, or zeros if only parts are wanted. */
static void lay_piece(void *context, int64_t at, int64_t length, const double *values)
{
    static const double zero = 0;
    struct assembling *s = context;
    at -= s->span.first;
    for (int64_t i = 0; !wants_part(s, -1) && i < length && !s->failed; i++) lay(s, at + i, 1, &zero);
    if (!wants_part(s, -1)) return;
    for (int64_t i = 0; absolute_of(s) && i < length; i++) absolute_of(s)[at + i] = fabs(values[i]);
    if (!s->failed) lay(s, at, length, values);
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

/* Before a group is added up, its elements begin at zero. */
static void clear_run(void *context, struct run run)
{
    struct assembling *s = context;
    run = assembly_inside(s, run);
    /* Absolute values are those of the sum's parts, and begin at zero with the sum. */
    for (int64_t i = 0; i < run.length; i++) s->sum[run.whole + i] = 0, s->added[run.whole + i] = 0;
    for (int64_t i = 0; absolute_of(s) && i < run.length; i++) absolute_of(s)[run.whole + i] = 0;
}

/* Fail: `piece` has an element of a sum, but the first member that has not added it lacks it. */
static void refuse_part(struct assembling *assembling, int64_t at)
{
    char text[160], other[96];
    snprintf(text, sizeof text, "has a part of a sum, of which %s has none",
             assembly_rank(assembling->actual, assembling->rank[assembling->added[at]], other, sizeof other));
    assembly_refuse(assembling, at, assembling->piece->file->rank, text);
}

/* Add a member's numbers.  An element's counter must equal the number of members before this one.  A larger counter
 * means twice, a smaller one means that a member lacks the element. */
static void add_piece(void *context, int64_t at, int64_t length, const double *values)
{
    struct assembling *s = context;
    at -= s->span.first;
    for (int64_t i = at; i < at + length && !s->failed; i++) {
        if (s->added[i] > s->member) assembly_refuse(s, i, s->piece->file->rank, TWICE);
        if (s->added[i] < s->member) refuse_part(s, i);
        s->added[i]++;
        if (wants_part(s, (int)s->member)) s->sum[i] += values[i - at];
        if (absolute_of(s)) absolute_of(s)[i] += fabs(values[i - at]);
    }
}

/* Lay the sum where every member has added its part. */
static void lay_sum(void *context, struct run run)
{
    struct assembling *s = context;
    run = assembly_inside(s, run);
    for (int64_t i = run.whole; i < run.whole + run.length && !s->failed; i++)
        if (s->added[i] < s->member) refuse_part(s, i);
    if (!s->failed) lay(s, run.whole, run.length, s->sum + run.whole);
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

/* The pieces of a rank that are parts of the same sum as `of`.  A rank without sums is a group by itself: all of its
 * pieces that are no parts belong to it. */
static void each_of(struct assembling *assembling, const struct actual_piece *of, int rank,
                    void (*f)(struct assembling *))
{
    for (int i = assembling->start[rank]; i < assembling->start[rank + 1] && !assembling->failed; i++) {
        if (!actual_same_sum(assembling->actual, &assembling->pieces.all[i], of)) continue;
        assembling->piece = &assembling->pieces.all[i];
        assembling->taken[i] = true;
        f(assembling);
    }
}

/* These functions do a step of a group for a single piece; each_of calls them. */
static void clear_one(struct assembling *assembling)
{
    for (int i = 0; i < assembling->piece->parts; i++)
        part_each_run_in(&assembling->piece->part[i], assembling->rows, clear_run, assembling);
}

static void add_one(struct assembling *assembling)
{
    const enum error_code e = actual_read_some(assembling->piece, assembling->span, add_piece, assembling,
                                               assembling->err);
    if (!assembling->failed) assembling->failed = e;
}

static void lay_one(struct assembling *assembling)
{
    const enum error_code e = actual_read_some(assembling->piece, assembling->span, lay_piece, assembling,
                                               assembling->err);
    if (!assembling->failed) assembling->failed = e;
}

static void lay_one_sum(struct assembling *assembling)
{
    for (int i = 0; i < assembling->piece->parts; i++)
        part_each_run_in(&assembling->piece->part[i], assembling->rows, lay_sum, assembling);
}

/* The sums need room only if a tensor has partial pieces; later groups use it again. */
static enum error_code make_sum(struct assembling *assembling)
{
    const size_t n = (size_t)assembly_elements(assembling) + 1;
    if (assembling->sum) return OK;
    assembling->sum = malloc(n * sizeof *assembling->sum), assembling->added = malloc(n * sizeof *assembling->added);
    return assembling->sum && assembling->added ? OK
           : fail(assembling->err, ERR_MEMORY, "no memory to add up %s", assembling->name);
}

/* The sum is built in three passes over the group: clear, add member by member, lay through the first member's
 * pieces. */
static void add_group(struct assembling *assembling, const struct actual_piece *of, const int rank[], int ranks)
{
    assembling->failed = make_sum(assembling);
    for (int i = 0; i < ranks; i++) each_of(assembling, of, rank[i], clear_one);
    for (assembling->member = 0; assembling->member < (uint32_t)ranks; assembling->member++)
        each_of(assembling, of, rank[assembling->member], add_one);
    each_of(assembling, of, rank[0], lay_one_sum);
}

/* All rows of a group are laid: report the group, and keep its copies if they are furthest apart. */
static void end_group(struct assembling *assembling, const int *rank, int ranks)
{
    struct copies *all = &assembling->out->copies;
    /* The tensor's report is that of the group whose copies are furthest apart; the number of elements is that of
     * all groups. */
    const int64_t before = all->elements;
    if (assembling->copies->elements > 0 && (before == 0 || !(assembling->copies->apart <= all->apart)))
        *all = *assembling->copies;
    all->elements = before + assembling->copies->elements;
    if (assembling->watch && assembling->watch->end)
        assembling->watch->end(assembling->watch->context, (int)assembling->groups - 1, rank, ranks);
}

/* Put a group's pieces together.  A rank alone is a group of itself. */
static void take_group(struct assembling *assembling, const struct actual_piece *of, int *rank)
{
    const int ranks = actual_members(assembling->actual, of, rank);
    assembling->copies = &assembling->of_group[assembling->groups++];
    if (ranks > assembling->out->parts) assembling->out->parts = ranks;
    if (ranks > 1) add_group(assembling, of, rank, ranks);
    else each_of(assembling, of, rank[0], lay_one);
    if (!assembling->failed && assembling->last_rows) end_group(assembling, rank, ranks);
}

/* Pieces are sorted by rank; start[r] to start[r + 1] are those of rank r. */
static void find_starts(struct assembling *assembling)
{
    int i = 0;
    for (int r = 0; r <= assembling->actual->mesh.devices; r++) {
        while (i < assembling->pieces.count && assembling->pieces.all[i].file->rank < r) i++;
        assembling->start[r] = i;
    }
}

/* A group is taken when its first piece is met, those that are laid over all when the others are. */
static void take_groups(struct assembling *assembling, int *rank)
{
    assembling->rank = rank, assembling->groups = 0;
    memset(assembling->taken, 0, (size_t)assembling->pieces.count * sizeof *assembling->taken);
    /* Groups count from 1 again for each range of rows, so no element has a last group yet. */
    memset(assembling->last, 0, (size_t)assembly_elements(assembling) * sizeof *assembling->last);
    for (int last = 0; last < 2; last++)
        for (int i = 0; i < assembling->pieces.count && !assembling->failed; i++)
            if (!assembling->taken[i] && is_last(assembling, &assembling->pieces.all[i]) == (last == 1))
                take_group(assembling, &assembling->pieces.all[i], rank);
}

/* How many numbers at the front of "adamw/loss" or "adamw/norm" are of steps before the dump begins. */
static int64_t assembly_before(const struct actual *actual, const char *name)
{
    const char *const slash = strchr(name, '/');
    const bool of_steps = slash && (strcmp(slash, "/loss") == 0 || strcmp(slash, "/norm") == 0);
    return of_steps ? actual->begins : 0;
}

/* Numbers of steps before the dump begins are no holes: they are 0. */
static void assembly_fill_before(struct assembling *assembling)
{
    const int64_t before = assembly_before(assembling->actual, assembling->name);
    for (int64_t i = 0; i < assembly_elements(assembling) && assembling->span.first + i < before; i++)
        if (assembling->last[i] == 0) assembling->last[i] = 1, assembling->whole[i] = 0;
}

/* Count the elements of these rows that no rank has; the first of all rows is kept. */
static void count_holes(struct assembling *assembling)
{
    struct assembly *out = assembling->out;
    int64_t missing = 0, hole = 0;
    assembly_fill_before(assembling);
    for (int64_t i = 0; i < assembly_elements(assembling); i++) missing += assembling->last[i] == 0;
    while (missing > 0 && assembling->last[hole] != 0) hole++;
    if (missing > 0 && out->missing == 0) out->hole = assembling->span.first + hole;
    out->missing += missing;
}

static void take_rows(struct assembling *assembling, struct interval rows)
{
    assembling->rows = rows, assembling->span = (struct interval){ rows.first * assembling->dim[1],
                                                                  rows.count * assembling->dim[1] };
}

/* Assemble some rows after the others: all at once for somebody who wants the whole. */
static void take_all(struct assembling *assembling, struct interval rows, int64_t at_once, int *rank)
{
    /* Without `whole` nobody needs all rows at once, and the memory is that of `at_once` rows. */
    find_starts(assembling);
    for (int64_t first = rows.first; !assembling->failed && !assembling->last_rows; first += at_once) {
        const int64_t left = interval_end(rows) - first;
        assembling->last_rows = left <= at_once;
        take_rows(assembling, (struct interval){ first, assembling->last_rows ? left : at_once });
        take_groups(assembling, rank);
        if (!assembling->failed) count_holes(assembling);
    }
}

struct search { int64_t at; bool found; };

static void search_run(void *context, struct run run)
{
    struct search *s = context;
    s->found = s->found || (s->at >= run.whole && s->at < run.whole + run.length);
}

/* Find the first rank that has the element whose copies are furthest apart.  compare_copies knows only the second. */
static void find_first_copy(struct assembling *assembling)
{
    struct search search = { .at = assembling->out->copies.worst };
    for (int i = 0; i < assembling->pieces.count && !search.found; i++) {
        const struct actual_piece *p = &assembling->pieces.all[i];
        for (int k = 0; k < p->parts; k++) part_each_run(&p->part[k], search_run, &search);
        assembling->out->copies.rank[0] = p->file->rank;
    }
}

/* This function makes room for a single tensor.  The lists of groups have a place for each piece: there are never
 * more groups than pieces. */
static enum error_code assembly_make_room(struct assembling *assembling, bool own, struct error *err)
{
    const size_t ranks = (size_t)assembling->actual->mesh.devices, pieces = (size_t)assembling->pieces.count;
    assembling->start = malloc((ranks + 1) * sizeof *assembling->start),
        assembling->taken = calloc(pieces, sizeof *assembling->taken);
    assembling->last = calloc((size_t)assembly_elements(assembling) + 1, sizeof *assembling->last),
        assembling->of_group = calloc(pieces, sizeof *assembling->of_group);
    if (own) assembling->whole = malloc(((size_t)assembly_elements(assembling) + 1) * sizeof *assembling->whole);
    return assembling->start && assembling->taken && assembling->last && assembling->of_group && assembling->whole
               ? OK : fail(err, ERR_MEMORY, "no memory to put %s together", assembling->name);
}

enum error_code assembly_make(struct assembly *out, const struct actual *actual, const char *ours, const int64_t dim[2],
                              double *whole, const struct assembly_watch *watch, struct error *err)
{
    const char *const param = actual->adapters.count > 0 ? adapters_param(ours) : NULL;
    if (param == NULL || !adapters_freeze(&actual->adapters, param) || (watch && (watch->absolute || watch->part)))
        return assembly_put(out, actual, ours, dim, whole, watch, err);
    return assembly_adapt(out, &(struct assembling_weight){
        .actual = actual, .name = ours, .param = param, .dim = dim, .out = whole,
        .rows = watch && watch->rows.count > 0 ? watch->rows : (struct interval){ 0, dim[0] } }, watch, err);
}

enum error_code assembly_put(struct assembly *out, const struct actual *actual, const char *ours, const int64_t dim[2],
                             double *whole, const struct assembly_watch *watch, struct error *err)
{
    struct assembling s = { .out = out, .actual = actual, .name = ours, .dim = dim, .watch = watch, .whole = whole,
                            .err = err };
    const struct interval rows = watch && watch->rows.count > 0 ? watch->rows : (struct interval){ 0, dim[0] };
    /* A row longer than SPAN is put together alone; a caller that wants the whole gets all rows at once. */
    const int64_t some = dim[1] > SPAN ? 1 : dim[1] > 0 ? SPAN / dim[1] : rows.count,
                  at_once = whole || some > rows.count ? rows.count : some;
    *out = (struct assembly){ .missing = rows.count * dim[1] };
    enum error_code e = actual_find(actual, ours, dim, &s.pieces, err);
    /* No rank has a piece: every element is missing, and `any` is false. */
    if (e || s.pieces.count == 0) {
        if (!e) actual_pieces_free(&s.pieces);
        return e;
    }
    int *rank = malloc((size_t)actual->mesh.devices * sizeof *rank);
    take_rows(&s, (struct interval){ rows.first, at_once });
    out->any = true, out->missing = 0;
    s.failed = assembly_make_room(&s, whole == NULL, err);
    if (rank == NULL && !s.failed) s.failed = fail(err, ERR_MEMORY, "no memory to put %s together", ours);
    if (!s.failed) take_all(&s, rows, at_once, rank);
    if (!s.failed && out->copies.elements > 0) find_first_copy(&s);
    free(rank), free(s.start), free(s.taken), free(s.last), free(s.of_group), free(s.sum), free(s.added);
    if (whole == NULL) free(s.whole);
    actual_pieces_free(&s.pieces);
    return s.failed;
}
