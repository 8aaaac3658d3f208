/* difference.c -- puts some rows of both dumps together at a time and compares them element by element.  pairs.c calls
 * difference_make.  Pieces that do not fit are a finding, not an error: `why` has the words. */
#include "emulated_devices/check/report/difference.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIFFERENCE_SPAN = 1 << 18 };     /* elements of each dump at a time, at least a row */

bool difference_is_none(const struct difference *difference)
{
    return difference->why[0] == '\0' && difference->different == 0 && !difference->copies[0] &&
           !difference->copies[1];
}

double difference_distance(const struct difference *difference)
{
    const double size = fmax(difference->norm[0], difference->norm[1]);
    if (difference->different == 0) return 0;
    return size > 0 ? difference->apart / size : NAN;
}

/* The bits of a number decide, so -0 is not 0, and a NaN is itself. */
static bool is_same(double a, double b) { return memcmp(&a, &b, sizeof a) == 0; }

/* Compare some elements, of which the first is element `at` of the whole.  Norms are squares until the end. */
static void difference_add(struct difference *difference, const double *a, const double *b, int64_t at, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const double d = a[i] - b[i];
        difference->norm[0] += a[i] * a[i], difference->norm[1] += b[i] * b[i];
        if (is_same(a[i], b[i])) continue;
        difference->apart += d * d;
        if (difference->different++ > 0) continue;
        difference->first = at + i, difference->value[0] = a[i], difference->value[1] = b[i];
    }
}

/* Note that a dump does not have the tensor whole; the first reason stays. */
static void note_why(struct difference *difference, int which, const char *why)
{
    if (difference->why[0]) return;
    snprintf(difference->why, sizeof difference->why, "%.299s", why);
    difference->lacking = which;
}

/* Put some rows of one dump together. */
static enum error_code read_rows(struct difference *difference, int which, const struct actual *actual,
                                 const char *name, const int64_t dim[2], struct interval rows, double *out,
                                 struct error *err)
{
    const struct assembly_watch watch = { .rows = rows };
    struct assembly all;
    char why[200];
    const enum error_code e = assembly_make(&all, actual, name, dim, out, &watch, err);
    if (e == ERR_CHECK) note_why(difference, which, err->text);
    if (e) return e == ERR_CHECK ? OK : e;
    if (all.copies.elements > 0) difference->copies[which] = true;
    if (all.missing == 0) return OK;
    snprintf(why, sizeof why, "elements of %.96s are on no rank, the first in row %lld, column %lld", name,
             (long long)(all.hole / dim[1]), (long long)(all.hole % dim[1]));
    note_why(difference, which, why);
    return OK;
}

struct element_search { int64_t at; bool found; };

static void element_run(void *context, struct run run)
{
    struct element_search *s = context;
    s->found = s->found || (s->at >= run.whole && s->at < run.whole + run.length);
}

/* Name the first rank and piece that have an element. */
static enum error_code find_holder(const struct actual *actual, const char *name, const int64_t dim[2], int64_t at,
                                   char *out, size_t size, struct error *err)
{
    struct actual_pieces pieces;
    struct element_search search = { .at = at };
    char rank[96];
    const enum error_code e = actual_find(actual, name, dim, &pieces, err);
    if (e) return e == ERR_CHECK ? OK : e;
    for (int i = 0; i < pieces.count && !search.found; i++) {
        const struct actual_piece *p = &pieces.all[i];
        for (int k = 0; k < p->parts; k++) part_each_run(&p->part[k], element_run, &search);
        if (search.found && actual->ranks > 1)
            snprintf(out, size, "%s, %s", assembly_rank(actual, p->file->rank, rank, sizeof rank),
                     actual_describe(p).text);
        else if (search.found) snprintf(out, size, "%s", actual_describe(p).text);
    }
    actual_pieces_free(&pieces);
    return OK;
}

/* Read and compare range after range; a dump that is not whole ends the comparison. */
static enum error_code difference_rows(struct difference *difference, const struct actual *const dump[2],
                                    const char *name, const int64_t dim[2], int64_t at_once, double *const of[2],
                                    struct error *err)
{
    enum error_code e = OK;
    for (int64_t first = 0; first < dim[0] && !e && difference->why[0] == '\0'; first += at_once) {
        const struct interval rows = { first, dim[0] - first < at_once ? dim[0] - first : at_once };
        for (int k = 0; k < 2 && !e; k++) e = read_rows(difference, k, dump[k], name, dim, rows, of[k], err);
        if (!e && difference->why[0] == '\0')
            difference_add(difference, of[0], of[1], first * dim[1], rows.count * dim[1]);
    }
    return e;
}

enum error_code difference_make(struct difference *difference, const struct actual *const dump[2], const char *name,
                                const int64_t dim[2], struct error *err)
{
    const int64_t some = dim[1] > 0 && dim[1] < DIFFERENCE_SPAN ? DIFFERENCE_SPAN / dim[1] : 1,
                  at_once = some < dim[0] ? some : dim[0];
    *difference = (struct difference){ .elements = dim[0] * dim[1] };
    double *const a = malloc((size_t)(at_once * dim[1]) * sizeof *a + 1),
           *const b = malloc((size_t)(at_once * dim[1]) * sizeof *b + 1);
    enum error_code e = a && b ? OK : fail(err, ERR_MEMORY, "no memory to compare %s", name);
    if (!e) e = difference_rows(difference, dump, name, dim, at_once, (double *[2]){ a, b }, err);
    free(a), free(b);
    for (int k = 0; k < 2; k++) difference->norm[k] = sqrt(difference->norm[k]);
    difference->apart = sqrt(difference->apart);
    for (int k = 0; k < 2 && !e && difference->different > 0; k++)
        e = find_holder(dump[k], name, dim, difference->first, difference->holder[k], sizeof *difference->holder, err);
    return e;
}
