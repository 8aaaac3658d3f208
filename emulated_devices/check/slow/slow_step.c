/* slow_step.c -- judges one step of all devices: the matrix of delays, and the pace of operations.
 * slow.c calls for each step.  Nothing fails; without messages or operations there is nothing slow. */
#include "emulated_devices/check/slow/slow.h"
#include <stdlib.h>
#include <string.h>

/* ---- ratios ------------------------------------------------------------------------------------------------------ */

static int by_size(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The lower median of the numbers that are there, at least 100; the list is changed. */
static int64_t slow_median(int64_t *list, int n)
{
    if (n == 0) return 100;
    qsort(list, (size_t)n, sizeof *list, by_size);
    const int64_t median = list[(n - 1) / 2];
    return median > 100 ? median : 100;
}

enum { PERCENT_MOST = 1000000000 };     /* a time that is longer counts as this */

static int64_t percent_of(picoseconds time, picoseconds usual)
{
    const double percent = usual > 0 ? 100.0 * (double)time / (double)usual + 0.5 : -1;
    return percent < PERCENT_MOST ? (int64_t)percent : PERCENT_MOST;
}

/* ---- the matrix -------------------------------------------------------------------------------------------------- */

/* This is a step's matrix: which cells are hot, and which of these are explained already. */
struct matrix {
    int size;
    int64_t *ratio;                     /* [size, size]; explained cells are 0 */
    int64_t median;
};

static int64_t *at(const struct matrix *matrix, int from, int to) { return &matrix->ratio[from * matrix->size + to]; }

static bool is_hot(const struct matrix *matrix, int64_t ratio) { return ratio * 100 >= matrix->median * SLOW_DELAY; }

/* A row or a column: cells with messages, and the hot ones of them; explained cells count as neither. */
struct line { int cells, hot; int64_t sum; };

static struct line line_of(const struct matrix *matrix, int device, bool sends)
{
    struct line line = { 0 };
    for (int other = 0; other < matrix->size; other++) {
        const int64_t ratio = *at(matrix, sends ? device : other, sends ? other : device);
        if (ratio <= 0) continue;
        line.cells++;
        if (is_hot(matrix, ratio)) line.hot++, line.sum += ratio;
    }
    return line;
}

static void matrix_explain(const struct matrix *matrix, int device, bool sends)
{
    for (int other = 0; other < matrix->size; other++) {
        int64_t *const ratio = at(matrix, sends ? device : other, sends ? other : device);
        if (is_hot(matrix, *ratio)) *ratio = 0;
    }
}

static void add(struct slow_finding *of, int most, int *count, struct slow_finding finding)
{
    if (*count < most) of[(*count)++] = finding;
}

/* Whole rows first, then whole columns, of at least two cells: each is one card.  What is left is a link.  Where the
 * pair sends and receives nothing else, nobody can tell. */
static void judge_matrix(const struct matrix *matrix, struct slow_finding *of, int most, int *count)
{
    struct slow_finding f = { .class = SLOW_COMMUNICATION, .other = -1, .others = matrix->median, .waiting = -1 };
    for (int sends = 1; sends >= 0; sends--)
        for (int d = 0; d < matrix->size; d++) {
            const struct line line = line_of(matrix, d, sends == 1);
            if (line.cells < 2 || line.hot < line.cells) continue;
            f.part = sends ? PART_SENDER : PART_RECEIVER, f.device = d, f.peers = line.cells;
            f.percent = line.sum / line.cells;
            add(of, most, count, f);
            matrix_explain(matrix, d, sends == 1);
        }
    for (int from = 0; from < matrix->size; from++)
        for (int to = 0; to < matrix->size; to++) {
            const int64_t ratio = *at(matrix, from, to);
            if (ratio <= 0 || !is_hot(matrix, ratio)) continue;
            const int beside = line_of(matrix, from, true).cells - 1, into = line_of(matrix, to, false).cells - 1;
            f.part = beside > 0 && into > 0 ? PART_LINK : PART_UNKNOWN;
            f.device = from, f.other = to, f.percent = ratio, f.peers = beside < into ? beside : into;
            add(of, most, count, f);
        }
}

/* The cells of all receivers in a step.  @return the median of those with messages. */
static int64_t matrix_fill(const struct records *records, uint64_t step, int64_t *ratio, int64_t *list)
{
    int n = 0;
    for (int to = 0; to < records->size; to++) {
        const struct record_cell *const cell = records_cells(&records->of[to], step);
        for (int from = 0; from < records->size; from++) {
            const int64_t r = cell[from].messages > 0 ? percent_of(cell[from].carried, cell[from].usual) : -1;
            ratio[from * records->size + to] = r;
            if (r > 0) list[n++] = r;
        }
    }
    return slow_median(list, n);
}

/* ---- outside ----------------------------------------------------------------------------------------------------- */

/* How long the others are in calls, at least and at most. */
static void others_wait(const struct records *records, uint64_t step, struct slow_finding *finding)
{
    finding->least = INT64_MAX, finding->most = 0;
    for (int d = 0; d < records->size; d++) {
        const picoseconds waits = records_step(&records->of[d], step)->in_calls;
        if (d == finding->device) finding->waits = waits;
        else {
            finding->least = waits < finding->least ? waits : finding->least;
            finding->most = waits > finding->most ? waits : finding->most;
        }
    }
}

static void judge_pace(const struct records *records, uint64_t step, int64_t *list, struct slow_finding *of, int most,
                       int *count)
{
    int n = 0;
    for (int d = 0; d < records->size; d++) {
        const struct step_record *const s = records_step(&records->of[d], step);
        if (s->usual > 0) list[n++] = percent_of(s->worked, s->usual);
    }
    const int64_t median = slow_median(list, n);
    for (int d = 0; d < records->size; d++) {
        const struct step_record *const s = records_step(&records->of[d], step);
        const int64_t pace = percent_of(s->worked, s->usual);
        if (pace * 100 < median * SLOW_PACE) continue;
        struct slow_finding f = { .class = SLOW_OUTSIDE, .part = PART_DEVICE, .device = d, .other = -1, .percent = pace,
                                  .others = median, .waiting = -1 };
        others_wait(records, step, &f);
        add(of, most, count, f);
    }
}

int slow_step(const struct records *records, uint64_t step, int64_t *ratio, struct slow_finding *of, int most)
{
    int count = 0;
    int64_t *const list = ratio + (size_t)records->size * (size_t)records->size;
    const struct matrix matrix = { records->size, ratio, matrix_fill(records, step, ratio, list) };
    judge_matrix(&matrix, of, most, &count);
    judge_pace(records, step, list, of, most, &count);
    return count;
}

void slow_matrix(const struct records *records, int64_t *ratio)
{
    uint64_t first, end;
    records_steps(records, &first, &end);
    for (int to = 0; to < records->size; to++)
        for (int from = 0; from < records->size; from++) {
            picoseconds carried = 0, usual = 0;
            for (uint64_t s = first; s < end; s++) {
                const struct record_cell *const cell = &records_cells(&records->of[to], s)[from];
                carried += cell->carried, usual += cell->usual;
            }
            ratio[from * records->size + to] = percent_of(carried, usual);
        }
}
