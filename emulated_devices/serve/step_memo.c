/* step_memo.c -- remembers the times of iterations, and which others follow from them.  engine.c calls.  Pure: no
 * devices.  No function returns an error code. */
#include "emulated_devices/serve/step_memo.h"
#include <stdlib.h>

/* Iterations with so many rows, as far as their times are known. */
struct step_times {
    int64_t rows, asked, room;          /* rows 0: a free place */
    int64_t layers;                     /* that start the kernel */
    int64_t kernel, takes;              /* of the last that was computed and not only tried */
    int64_t before, before_takes;       /* of the one before it */
    int64_t from, from_takes, to, rise; /* with kernels from .. to, times grow `rise` times as kernels do */
    int64_t ahead;                      /* how much longer a kernel is tried next */
    bool line, steep;                   /* whether there is a line, and whether it has no end */
};

bool step_memo_open(struct step_memo *memo)
{
    memo->entry = calloc(STEP_ENTRIES, sizeof *memo->entry);
    return memo->entry != NULL;
}

void step_memo_close(struct step_memo *memo)
{
    free(memo->entry);
    *memo = (struct step_memo){ 0 };
}

enum { STEP_TRIES = 16 };               /* places for a kind of iteration, from its own on */

/* The place of a kind of iteration, or a free one for it.  @return NULL: neither. */
static struct step_times *step_place(const struct step_memo *memo, const struct step_key *key)
{
    const uint64_t mixed = ((uint64_t)key->rows << 20 ^ (uint64_t)key->asked) * 0x9e3779b97f4a7c15u;
    for (int i = 0; i < STEP_TRIES; i++) {
        struct step_times *const t = &memo->entry[((mixed >> 40) + (uint64_t)i) % STEP_ENTRIES];
        if (t->rows == 0 || (t->rows == key->rows && t->asked == key->asked)) return t;
    }
    return NULL;
}

/* The least i with 2^i >= rows. */
static int size_of(int64_t rows)
{
    int i = 0;
    while (i < STEP_SIZES - 1 && (int64_t)1 << i < rows) i++;
    return i;
}

bool step_memo_find(const struct step_memo *memo, const struct step_key *key, int64_t *takes)
{
    const struct step_times *const t = step_place(memo, key);
    if (t == NULL || t->rows == 0 || !t->line || key->kernel < t->from || (!t->steep && key->kernel > t->to))
        return false;
    if (key->room > t->room && key->room > memo->room[size_of(key->rows)]) return false;
    *takes = t->from_takes + t->rise * (key->kernel - t->from);
    return true;
}

static void note_room(struct step_memo *memo, struct step_times *t, const struct step_key *key)
{
    if (key->room > t->room) t->room = key->room;
    for (int i = 0; i < STEP_SIZES && (int64_t)1 << i <= key->rows; i++)
        if (key->room > memo->room[i]) memo->room[i] = key->room;
}

void step_memo_note(struct step_memo *memo, const struct step_key *key, int64_t layers, int64_t takes)
{
    struct step_times *const t = step_place(memo, key);
    if (t == NULL) return;
    if (t->rows == 0) *t = (struct step_times){ .rows = key->rows, .asked = key->asked, .ahead = key->kernel };
    if (t->kernel != key->kernel) t->before = t->kernel, t->before_takes = t->takes;
    t->layers = layers, t->kernel = key->kernel, t->takes = takes;
    note_room(memo, t, key);
}

int64_t step_memo_try(const struct step_memo *memo, const struct step_key *key)
{
    const struct step_times *const t = step_place(memo, key);
    return t == NULL || t->rows == 0 || t->before == 0 || key->kernel <= t->before ? 0 : key->kernel + t->ahead;
}

/* The first two are computed, the third is tried. */
void step_memo_tried(struct step_memo *memo, const struct step_key *key, int64_t takes)
{
    struct step_times *const t = step_place(memo, key);
    const int64_t first = t->kernel - t->before, second = key->kernel - t->kernel;
    const int64_t rise = (t->takes - t->before_takes) / first;
    if (t->takes - t->before_takes != rise * first || takes - t->takes != rise * second) {
        t->ahead = t->ahead / 4 + 1;
        return;
    }
    t->line = true, t->steep = rise == t->layers, t->rise = rise;
    t->from = t->before, t->from_takes = t->before_takes, t->to = key->kernel;
    t->ahead *= 2;
}
