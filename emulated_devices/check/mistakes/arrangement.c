/* arrangement.c -- right numbers in wrong places: transposed, shifted, permuted, another rank's, taken in turns, left
 * from before.
 *
 * A line is a row or a column.  For each line of the result the right line that is nearest to it is found; if these
 * explain the result, their order is described.
 * mistakes.c calls suspect_arrangement for any wrong result.  No error is reported: without memory a hypothesis is
 * left out, or single.failed is set.
 */
#include "emulated_devices/check/mistakes/mistakes.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double MOST_WORK = 3e8;    /* products: beyond, lines are not compared with each other */

/* Lines are rows or columns.  Element e of line i is at i stride + e step. */
struct lines { int64_t count, length, stride, step; const char *name; };

/* This is the squared distance of line i of a to line j of b.  The sum ends once it exceeds `most`: the line cannot
 * be the nearest any more. */
static double distance(const double *a, const double *b, const struct lines *lines, int64_t i, int64_t j, double most)
{
    double sum = 0;
    for (int64_t e = 0; e < lines->length && sum < most; e++) {
        const double d = a[i * lines->stride + e * lines->step] - b[j * lines->stride + e * lines->step];
        sum += d * d;
    }
    return sum;
}

/* Find the right line nearest to line i; itself if no other is nearer. */
static int64_t nearest_line(const struct suspect *suspect, const struct lines *lines, int64_t i)
{
    /* Another line must be nearer by more than a rounding to replace the line's own place. */
    double best = distance(suspect->have, suspect->want, lines, i, i, INFINITY) * (1 - 1e-6);
    int64_t from = i;
    for (int64_t j = 0; j < lines->count; j++) {
        const double d = distance(suspect->have, suspect->want, lines, i, j, best);
        if (d < best) best = d, from = j;
    }
    return from;
}

/* The line that a wrong element is in. */
static int64_t line_of(const struct lines *lines, int64_t at)
{
    return lines->step == 1 ? at / lines->stride : at % lines->step;
}

/* Whether any line with one of the sampled wrong elements has come from elsewhere.  If none has, comparing all lines
 * with each other would find nothing that explains the result. */
static bool any_has_moved(const struct suspect *suspect, const struct lines *lines)
{
    bool moved = suspect->samples == 0;
    for (int k = 0; k < suspect->samples && !moved; k++) {
        const int64_t i = line_of(lines, suspect->sample[k]);
        moved = nearest_line(suspect, lines, i) != i;
    }
    return moved;
}

/* from[i] becomes the right line nearest to line i. */
static void find_lines(const struct suspect *suspect, const struct lines *lines, int64_t *from)
{
    for (int64_t i = 0; i < lines->count; i++) from[i] = nearest_line(suspect, lines, i);
}

/* Whether every line appears exactly once.  used: [n] to work in. */
static bool is_permutation(const int64_t *from, int64_t n, bool *used)
{
    memset(used, 0, (size_t)n * sizeof *used);
    for (int64_t i = 0; i < n; i++) {
        if (used[from[i]]) return false;
        used[from[i]] = true;
    }
    return true;
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

/* Whether groups of A lines, such as heads, have moved as wholes and keep their order inside. */
static bool by_groups(const int64_t *from, int64_t n, int64_t A)
{
    for (int64_t i = 0; i < n; i++)
        if (from[i] % A != i % A || from[i] / A != from[i / A * A] / A) return false;
    return true;
}

/* Whether the lines of each head are interleaved: pairs in place of halves, or with `back` the other way.  Lines
 * that stayed are allowed. */
static bool is_interleaved(const int64_t *from, int64_t n, int64_t A, bool back)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t a = i % A, half = A / 2,
                      pairs = back       ? a / 2 + a % 2 * half
                              : a < half ? 2 * a
                                         : 2 * (a - half) + 1;
        if (from[i] != i - a + pairs && from[i] != i) return false;
    }
    return true;
}

/* The number of places by which all lines have moved round; 0: no single number fits. */
static int64_t common_shift(const int64_t *from, int64_t n)
{
    const int64_t by = (from[0] + n) % n;
    for (int64_t i = 0; i < n; i++)
        if (from[i] != (i + by) % n) return 0;
    return by;
}

/* Runs of lines that stay together: "24 to 47, 0 to 23". */
static int say_runs(const int64_t *from, int64_t n, char *out, size_t size)
{
    int runs = 0;
    size_t used = 0;
    for (int64_t i = 0, to; i < n; i = to, runs++) {
        for (to = i + 1; to < n && from[to] == from[to - 1] + 1;) to++;
        if (used < size)
            used += (size_t)snprintf(out + used, size - used, to == i + 1 ? "%s%lld" : "%s%lld to %lld", i ? ", " : "",
                                     (long long)from[i], (long long)from[to - 1]);
    }
    return runs;
}

/* The list of heads is cut off with "..." if the text has no room. */
static void say_groups(const int64_t *from, int64_t n, int64_t A, char *out, size_t size)
{
    size_t used = 0;
    for (int64_t g = 0; g < n / A && used < size; g++)
        used += (size_t)snprintf(out + used, size - used, "%s%lld", g ? " " : "", (long long)(from[g * A] / A));
    if (used >= size) memcpy(out + size - 4, "...", 4);
}

/* Say what has moved, from the most particular words to the least: a shift by one, heads, interleaved halves,
 * pieces.  At most four runs of lines are listed. */
static void arrangement_say(const struct suspect *suspect, const struct lines *lines, const int64_t *from,
                            bool permuted, char *out, size_t size)
{
    const int64_t n = lines->count, A = suspect->s->context->config->A, shift = common_shift(from, n);
    /* Columns of heads may move head by head; other lines only move one by one. */
    const bool heads = lines->step != 1 && suspect->s->verdict.result.head > 0 && n % A == 0;
    char runs[64];
    const int count = say_runs(from, n, runs, sizeof runs);
    if (shift == 1 || shift == n - 1) snprintf(out, size, "%s are shifted by one", lines->name);
    else if (heads && by_groups(from, n, A)) {
        say_groups(from, n, A, runs, sizeof runs);
        snprintf(out, size, "heads are in other places: %s", runs);
    } else if (permuted && n % A == 0 && A > 2 &&
               (is_interleaved(from, n, A, false) || is_interleaved(from, n, A, true)))
        snprintf(out, size, "%s of each head are interleaved in place of halves, or the other way round", lines->name);
    else if (shift) snprintf(out, size, "pieces have changed places: its %s are %s", lines->name, runs);
    else if (count <= 4)
        snprintf(out, size, "%s: its %s are %s",
                 permuted ? "pieces have changed places" : "a piece is where another belongs", lines->name, runs);
    else snprintf(out, size, permuted ? "%s are in another order" : "%s are where others belong", lines->name);
}

/* ---- hypotheses -------------------------------------------------------------------------------------------------- */

/* Find for each line the right line nearest to it, and offer the result that these lines make.  The work is count^2
 * length products. */
static void try_lines(struct suspect *suspect, const struct lines *lines, double *y)
{
    enum { SHORT = 4 };                 /* such lines agree by chance: only a permutation of all of them counts */
    if (lines->count < 2 || lines->length < 2
        || (double)lines->count * (double)lines->count * (double)lines->length > MOST_WORK
        || !any_has_moved(suspect, lines)) return;
    int64_t *from = malloc((size_t)lines->count * sizeof *from);
    bool *used = malloc((size_t)lines->count * sizeof *used);
    char words[SINGLE_MISTAKE];
    if (from && used) {
        find_lines(suspect, lines, from);
        bool moved = false;
        for (int64_t i = 0; i < lines->count; i++) {
            moved = moved || from[i] != i;
            for (int64_t e = 0; e < lines->length; e++)
                y[i * lines->stride + e * lines->step] = suspect->want[from[i] * lines->stride + e * lines->step];
        }
        const bool permuted = is_permutation(from, lines->count, used);
        /* A line that is nearest by chance is likely if lines are short; then all lines must be used once. */
        if (moved && (permuted || lines->length >= SHORT)) {
            arrangement_say(suspect, lines, from, permuted, words, sizeof words);
            suspect_explained(suspect, y, "%s", words);
        }
    }
    free(from), free(used);
}

static void try_transposed(struct suspect *suspect, double *y)
{
    if (suspect->rows != suspect->cols || suspect->rows < 2) return;
    /* y [D, D] = want^T. */
    for (int64_t i = 0; i < suspect->count; i++)
        y[i] = suspect->want[i % suspect->cols * suspect->cols + i / suspect->cols];
    suspect_explained(suspect, y, "transposed");
}

/* Elements that have moved round by so many places. */
struct rotation { const struct suspect *suspect; int64_t by; };

static double rotated_at(const void *context, int64_t i)
{
    const struct rotation *rotation = context;
    return rotation->suspect->want[(i + rotation->by) % rotation->suspect->count];
}

/* The elements of a vector have moved round by some places: halves exchanged, or shards in another order. */
static void try_vector(struct suspect *suspect, double *y)
{
    const int64_t n = suspect->count;
    if (suspect->rows > 1 || n < 4) return;
    /* All n - 1 rotations are tried; longer vectors are left out. */
    for (int64_t by = 1; by < n && n <= 4096; by++) {
        if (!suspect_made(suspect, rotated_at, &(struct rotation){ suspect, by }, y)) continue;
        if (suspect_explained(suspect, y, by == 1 || by == n - 1 ? "elements are shifted by one"
                                                           : "pieces have changed places: it begins with element %lld",
                              (long long)by))
            return;
    }
}

/* Each copy of the model has the rows of the next copy, or of the copy before.  With two copies both directions are
 * the same.  A tile does not have the rows of all copies. */
static void try_turns(struct suspect *suspect, double *y)
{
    const struct single *s = suspect->s;
    const struct batch_cuts cuts = suspect_cuts(s);
    const struct batch_cut *const cut = cuts_of_ranks(&cuts);
    const int64_t S = s->cursor.batch.S;
    if (cut == NULL || suspect->rows != s->cursor.N || single_is_tile(s)) return;
    for (int by = 1; by >= (cut->parts > 2 ? -1 : 1); by -= 2) {
        /* The hypothesis gives row r the right row of the same place in the other copy's part. */
        for (int64_t r = 0; r < suspect->rows; r++) {
            const int64_t from = cut_turned(&cuts, cut, by, (int)(r / S)) * S + r % S;
            memcpy(y + r * suspect->cols, suspect->want + from * suspect->cols, (size_t)suspect->cols * sizeof *y);
        }
        if (suspect_explained(suspect, y, "copies take turns: each of %d has the rows of the %s", cut->parts,
                              by > 0 ? "next" : "one before"))
            return;
    }
}

/* Three or more flat shards have moved round by one: each stands where the next, or the shard before, belongs.
 * @return whether this explains the result. */
static bool try_turned_shards(struct suspect *suspect, int64_t parts, double *y)
{
    const int64_t n = suspect->count / parts;
    /* by is 1, then parts - 1: one place forwards, and one back. */
    for (int64_t by = 1; parts > 2 && by < parts; by += parts - 2) {
        memcpy(y, suspect->want, (size_t)suspect->count * sizeof *y);
        for (int64_t a = 0; a < parts; a++)
            memcpy(y + a * n, suspect->want + (a + by) % parts * n, (size_t)n * sizeof *y);
        if (suspect_explained(suspect, y, "copies take turns: of %lld flat shards each is where the %s belongs",
                              (long long)parts, by == 1 ? "one before" : "next"))
            return true;
    }
    return false;
}

/* Shard b stands where shard a belongs; `both`: and a where b belongs. */
struct exchange { const struct suspect *suspect; int64_t n, a, b; bool both; };

static double exchanged_at(const void *context, int64_t i)
{
    const struct exchange *x = context;
    const double *want = x->suspect->want;
    if (i / x->n == x->a) return want[i + (x->b - x->a) * x->n];
    return x->both && i / x->n == x->b ? want[i + (x->a - x->b) * x->n] : want[i];
}

/* @return whether this explains the result. */
static bool try_exchange(struct suspect *suspect, const struct exchange *exchange, int64_t parts, double *y)
{
    static const char *const words[] = {
        "another rank's piece: of %lld flat shards, %lld is where %lld belongs",
        "another rank's piece: of %lld flat shards, %lld and %lld have changed places",
    };
    return suspect_made(suspect, exchanged_at, exchange, y) &&
           suspect_explained(suspect, y, words[exchange->both], (long long)parts,
                             (long long)(exchange->both ? exchange->a : exchange->b),
                             (long long)(exchange->both ? exchange->b : exchange->a));
}

/* The flat tensor is cut into 2 to 8 shards: one shard stands in the place of another, or two have changed places. */
static void try_shards(struct suspect *suspect, double *y)
{
    for (int64_t parts = 2; parts <= 8; parts++) {
        const int64_t n = suspect->count / parts;
        if (suspect->count < 16 || try_turned_shards(suspect, parts, y)) return;
        for (int64_t a = 0; a < parts; a++)
            for (int64_t b = 0; b < parts; b++) {
                if (a == b) continue;
                if (try_exchange(suspect, &(struct exchange){ suspect, n, a, b, false }, parts, y)) return;
                /* An exchange is symmetric, so the pair (b, a) is left out. */
                if (a < b && try_exchange(suspect, &(struct exchange){ suspect, n, a, b, true }, parts, y)) return;
            }
    }
}

/* Rows repeat rows of the program's own result before them: a buffer has not been filled anew.  `by` is a multiple
 * of a sequence. */
static void try_left_over(struct suspect *suspect, double *y)
{
    const int64_t S = suspect->s->cursor.batch.S, n = suspect->cols * (int64_t)sizeof *y;
    if (S < 1 || suspect->rows != suspect->s->cursor.N) return;
    for (int64_t by = S; by < suspect->rows; by += S) {
        int64_t repeated = 0, first = suspect->rows, last = 0;
        /* A row that repeats the program's row `by` before it, though the right rows differ, keeps the program's
         * numbers. */
        memcpy(y, suspect->want, (size_t)suspect->count * sizeof *y);
        for (int64_t r = by; r < suspect->rows; r++)
            if (memcmp(suspect->have + r * suspect->cols, suspect->have + (r - by) * suspect->cols, (size_t)n) == 0 &&
                memcmp(suspect->want + r * suspect->cols, suspect->want + (r - by) * suspect->cols, (size_t)n) != 0) {
                memcpy(y + r * suspect->cols, suspect->have + r * suspect->cols, (size_t)n);
                repeated++, first = r < first ? r : first, last = r;
            }
        if (repeated > 0 && suspect_explained(suspect, y, "stale: rows %lld to %lld repeat those %lld before them",
                                              (long long)(suspect->s->cursor.first + first),
                                              (long long)(suspect->s->cursor.first + last), (long long)by))
            return;
    }
}

void suspect_arrangement(struct suspect *suspect)
{
    const struct tensor t = single_new(suspect->s, suspect->rows, suspect->cols);
    if (suspect->s->failed) return;
    /* The order goes from particular to general.  Copies that take turns also look like rows in another order. */
    try_left_over(suspect, numbers(t));
    if (suspect->words[0] == 0) try_turns(suspect, numbers(t));
    if (suspect->words[0]) return;
    try_transposed(suspect, numbers(t)), try_vector(suspect, numbers(t));
    try_lines(suspect, &(struct lines){ suspect->cols, suspect->rows, 1, suspect->cols, "columns" }, numbers(t));
    try_lines(suspect, &(struct lines){ suspect->rows, suspect->cols, suspect->cols, 1, "rows" }, numbers(t));
    if (suspect->words[0] == 0) try_shards(suspect, numbers(t));
}
