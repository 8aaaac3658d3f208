/* film_settle.c -- orders a film by time, counts the devices' shares, and samples what is more than a page can have.
 * film_json.c calls film_settle.  No function reports an error: without memory the film has failed. */
#include "emulated_devices/draw/page/film.h"
#include <stdlib.h>
#include <string.h>

static int in_order(int64_t a, int64_t b) { return a < b ? -1 : a > b; }

/* Ties keep one order, so that a film has the same bytes on every run. */
static int pass_order(const void *x, const void *y)
{
    const struct film_pass *a = x, *b = y;
    int order = in_order(a->start, b->start);
    if (order == 0) order = in_order(a->device, b->device);
    if (order == 0) order = in_order(a->lane, b->lane);
    return order ? order : in_order(a->end, b->end);
}

static int message_order(const void *x, const void *y)
{
    const struct film_message *a = x, *b = y;
    int order = in_order(a->start, b->start);
    if (order == 0) order = in_order(a->from, b->from);
    if (order == 0) order = in_order(a->to, b->to);
    if (order == 0) order = in_order(a->end, b->end);
    return order ? order : in_order(a->bytes, b->bytes);
}

static int memory_order(const void *x, const void *y)
{
    const struct film_memory *a = x, *b = y;
    const int order = in_order(a->device, b->device);
    return order ? order : in_order(a->at, b->at);
}

/* The caller tells one cell of a time, a device and a column. */
static int cell_order(const void *x, const void *y)
{
    const struct film_cell *a = x, *b = y;
    int order = in_order(a->at, b->at);
    if (order == 0) order = in_order(a->device, b->device);
    if (order == 0) order = in_order(a->column, b->column);
    return order ? order : in_order(a->state, b->state);
}

static int longer_first(const void *x, const void *y) { return in_order(*(const int64_t *)y, *(const int64_t *)x); }

/* @return so that `most` of the values at least are not below it; *ties: how many that are equal to it are kept. */
static int64_t threshold_of(int64_t *value, int count, int most, int *ties)
{
    qsort(value, (size_t)count, sizeof *value, longer_first);
    const int64_t least = value[most - 1];
    *ties = 0;
    for (int i = 0; i < most; i++) *ties += value[i] == least;
    return least;
}

/* Device by device and lane by lane. */
static int lane_order(const void *x, const void *y)
{
    const struct film_pass *a = x, *b = y;
    int order = in_order(a->device, b->device);
    if (order == 0) order = in_order(a->lane, b->lane);
    return order ? order : pass_order(x, y);
}

static bool same_work(const struct film_pass *a, const struct film_pass *b, bool layers)
{
    return a->device == b->device && a->lane == b->lane && a->kind == b->kind && a->micro >= 0 &&
           a->micro == b->micro && (!layers || a->layer == b->layer);
}

/* Neighbours of a lane that are of one microbatch become one pass; what is of none stays apart.
 * @param layers  only those of one layer do. */
static void merge_passes(struct film *film, bool layers)
{
    int kept = 0;
    if (film->passes <= FILM_MOST_PASSES) return;
    qsort(film->pass, (size_t)film->passes, sizeof *film->pass, lane_order);
    for (int i = 0; i < film->passes; i++) {
        const struct film_pass *const p = &film->pass[i];
        struct film_pass *const last = kept > 0 ? &film->pass[kept - 1] : NULL;
        if (last == NULL || !same_work(last, p, layers)) {
            film->pass[kept++] = *p;
            continue;
        }
        last->end = p->end > last->end ? p->end : last->end;
        if (last->detail != p->detail) last->detail = -1;
        if (last->layer != p->layer) last->layer = -2;
    }
    if (kept < film->passes)
        film_note(film, "passes of one microbatch%s are drawn as one, with the waits between them: %d of %d",
                  layers ? " and layer" : "", kept, film->passes);
    film->passes = kept;
    qsort(film->pass, (size_t)film->passes, sizeof *film->pass, pass_order);
}

static void sample_passes(struct film *film)
{
    merge_passes(film, true), merge_passes(film, false);
    const int all = film->passes;
    int ties, kept = 0;
    if (all <= FILM_MOST_PASSES) return;
    int64_t *const takes = malloc(sizeof *takes * (size_t)all);
    film->failed = film->failed || takes == NULL;
    if (takes == NULL) return;
    for (int i = 0; i < all; i++) takes[i] = film->pass[i].end - film->pass[i].start;
    const int64_t least = threshold_of(takes, all, FILM_MOST_PASSES, &ties);
    for (int i = 0; i < all; i++) {
        const int64_t length = film->pass[i].end - film->pass[i].start;
        if (length > least || (length == least && ties-- > 0)) film->pass[kept++] = film->pass[i];
    }
    film->passes = kept;
    film_note(film, "the shortest %d of %d passes are not drawn", all - kept, all);
    free(takes);
}

static void sample_messages(struct film *film)
{
    const int all = film->messages;
    int ties, kept = 0;
    if (all <= FILM_MOST_MESSAGES) return;
    int64_t *const bytes = malloc(sizeof *bytes * (size_t)all);
    film->failed = film->failed || bytes == NULL;
    if (bytes == NULL) return;
    for (int i = 0; i < all; i++) bytes[i] = film->message[i].bytes;
    const int64_t least = threshold_of(bytes, all, FILM_MOST_MESSAGES, &ties);
    for (int i = 0; i < all; i++) {
        const int64_t length = film->message[i].bytes;
        if (length > least || (length == least && ties-- > 0)) film->message[kept++] = film->message[i];
    }
    film->messages = kept;
    film_note(film, "the smallest %d of %d messages are not drawn", all - kept, all);
    free(bytes);
}

static int64_t memory_total(const struct film_memory *memory)
{
    int64_t total = 0;
    for (int k = 0; k < FILM_MEMORIES; k++) total += memory->bytes[k];
    return total;
}

/* The fullest sample of each part of the time stays, so a peak is never lost. */
static void sample_memory(struct film *film)
{
    const int all = film->memories, parts = FILM_MOST_MEMORY / (film->devices > 0 ? film->devices : 1);
    int kept = 0;
    if (all <= FILM_MOST_MEMORY) return;
    for (int i = 0; i < all; i++) {
        const struct film_memory *const m = &film->memory[i];
        struct film_memory *const last = kept > 0 ? &film->memory[kept - 1] : NULL;
        const int part = parts > 0 ? (int)((double)m->at / (double)(film->end + 1) * parts) : 0;
        const bool same = last && last->device == m->device &&
                          (int)((double)last->at / (double)(film->end + 1) * parts) == part;
        if (!same) film->memory[kept++] = *m;
        else if (memory_total(m) > memory_total(last)) *last = *m;
    }
    film->memories = kept;
    film_note(film, "of %d samples of memory, the fullest of each moment are drawn: %d", all, kept);
}

static void sample_cells(struct film *film)
{
    if (film->cells <= FILM_MOST_CELLS) return;
    film_note(film, "blocks are drawn until %d of %d changes", FILM_MOST_CELLS, film->cells);
    for (int i = FILM_MOST_CELLS; i < film->cells; i++) free(film->cell[i].text);
    film->cells = FILM_MOST_CELLS;
}

/* Before something is left out, so that the shares are of all. */
static void count_shares(struct film *film)
{
    if (film->share || film->devices == 0 || film->failed) return;
    int64_t (*const share)[FILM_SHARES] = calloc((size_t)film->devices, sizeof *share);
    film->failed = film->failed || share == NULL;
    for (int d = 0; d < film->devices && share; d++) film->failed = !film_shares(film, d, share[d]) || film->failed;
    film->share = share;
}

void film_settle(struct film *film)
{
    if (film->failed) return;
    count_shares(film);
    if (film->passes) qsort(film->pass, (size_t)film->passes, sizeof *film->pass, pass_order);
    if (film->messages) qsort(film->message, (size_t)film->messages, sizeof *film->message, message_order);
    if (film->memories) qsort(film->memory, (size_t)film->memories, sizeof *film->memory, memory_order);
    if (film->cells) qsort(film->cell, (size_t)film->cells, sizeof *film->cell, cell_order);
    for (int i = 0; i < film->messages && !film->counted; i++) film->sent[0]++, film->sent[1] += film->message[i].bytes;
    film->counted = true;
    sample_passes(film), sample_messages(film), sample_memory(film), sample_cells(film);
}
