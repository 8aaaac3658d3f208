/* masked_tasks.c -- makes tasks for masked-diffusion models: lists of right answers.  masked_claims.c and tests call.
 * Errors: ERR_USAGE of a name or a size, ERR_MEMORY. */
#include "emulated_devices/bench/serving/masked.h"
#include "ref/numeric/philox.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

const char *const masked_tasks[] = { "copy", "reverse", "sort", "replace-index", "replace-random", "remove-random",
                                     "insert-random", "shuffle", "latin-square", NULL };

enum { MOST_SHUFFLED = 8, MOST_SQUARE = 4 };

/* Room for more answers is twice what there was. */
static bool add_answer(struct masked_task *task, const int8_t *answer)
{
    if ((task->count & (task->count - 1)) == 0) {
        const size_t room = task->count > 0 ? 2 * (size_t)task->count : 1;
        int8_t *const more = realloc(task->answer, room * (size_t)task->length);
        if (more == NULL) return false;
        task->answer = more;
    }
    memcpy(task->answer + task->count++ * task->length, answer, (size_t)task->length);
    return true;
}

/* All orders of items from place `at` on. */
static bool add_orders(struct masked_task *task, int8_t *item, int at)
{
    bool ok = true;
    if (at == task->length) return add_answer(task, item);
    for (int i = at; i < task->length && ok; i++) {
        const int8_t one = item[i], other = item[at];
        item[at] = one, item[i] = other;
        ok = add_orders(task, item, at + 1);
        item[at] = other, item[i] = one;
    }
    return ok;
}

/* All squares whose cells before `at` are filled. */
static bool add_squares(struct masked_task *task, int8_t *cell, int at)
{
    const int n = task->words;
    bool ok = true;
    if (at == task->length) return add_answer(task, cell);
    for (int8_t v = 0; v < n && ok; v++) {
        bool fits = true;
        for (int i = 0; i < at; i++) fits &= cell[i] != v || (i / n != at / n && i % n != at % n);
        if (!fits) continue;
        cell[at] = v;
        ok = add_squares(task, cell, at + 1);
    }
    return ok;
}

/* One answer for each place: an item is replaced by, taken out, or a new one put in.  New ones are token n. */
static bool add_edited(struct masked_task *task, const int8_t *item, int n, const char *name, int only)
{
    bool ok = true;
    const bool removes = strcmp(name, "remove-random") == 0, inserts = strcmp(name, "insert-random") == 0;
    for (int at = 0; at < n + inserts && ok; at++) {
        int8_t answer[MASKED_MOST + 1];
        int k = 0;
        if (only >= 0 && at != only) continue;
        for (int i = 0; i < n; i++) {
            if (i == at && !removes) answer[k++] = (int8_t)n;
            if (i != at || inserts) answer[k++] = item[i];
        }
        if (at == n) answer[k++] = (int8_t)n;
        ok = add_answer(task, answer);
    }
    return ok;
}

/* Items 0 to n - 1 in a drawn order. */
static void draw_items(int8_t *item, int n, uint64_t seed)
{
    for (int i = 0; i < n && i < MASKED_MOST; i++) item[i] = (int8_t)i;
    for (int i = n - 1; i > 0; i--) {
        const int k = (int)(random_uniform(seed, random_stream("items"), (uint64_t)i) * (i + 1));
        const int8_t one = item[i];
        item[i] = item[k], item[k] = one;
    }
}

static bool add_one(struct masked_task *task, int8_t *item, const char *name)
{
    const int n = task->length;
    int8_t answer[MASKED_MOST];
    for (int i = 0; i < n; i++)
        answer[i] = strcmp(name, "sort") == 0 ? (int8_t)i : item[strcmp(name, "reverse") == 0 ? n - 1 - i : i];
    return add_answer(task, answer);
}

enum error_code masked_task_make(struct masked_task *task, const char *name, int n, uint64_t seed, struct error *err)
{
    int8_t item[MASKED_MOST + 1];
    int which = 0;
    while (masked_tasks[which] && strcmp(masked_tasks[which], name) != 0) which++;
    const bool square = strcmp(name, "latin-square") == 0, shuffles = strcmp(name, "shuffle") == 0,
               removes = strcmp(name, "remove-random") == 0, inserts = strcmp(name, "insert-random") == 0,
               replaces = strncmp(name, "replace", 7) == 0;
    if (masked_tasks[which] == NULL) return fail(err, ERR_USAGE, "%s: there is no such task", name);
    const int most = square ? MOST_SQUARE : shuffles ? MOST_SHUFFLED : MASKED_MOST - 1;
    if (n < 2 || n > most) return fail(err, ERR_USAGE, "%s: of %d items; must be 2 to %d", name, n, most);
    *task = (struct masked_task){ .name = masked_tasks[which], .length = square ? n * n : n - removes + inserts,
                                  .words = n + (replaces || inserts) };
    draw_items(item, n, seed);
    const int index = (int)(random_uniform(seed, random_stream("index"), 0) * n);
    const bool ok = square ? add_squares(task, item, 0) : shuffles ? add_orders(task, item, 0)
                    : replaces || removes || inserts
                        ? add_edited(task, item, n, name, strcmp(name, "replace-index") == 0 ? index : -1)
                        : add_one(task, item, name);
    if (ok) return OK;
    masked_task_free(task);
    return fail(err, ERR_MEMORY, "no memory for the answers of %s", name);
}

void masked_task_free(struct masked_task *task)
{
    free(task->answer);
    *task = (struct masked_task){ .answer = NULL };
}
