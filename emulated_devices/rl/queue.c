/* queue.c -- which rows are ready for which task: bits of what is there and who has had it.  loop.c and flow.c call.
 * Errors: ERR_MEMORY, and ERR_INTERNAL of a caller's mistake. */
#include "emulated_devices/rl/queue.h"
#include <stdlib.h>
#include <string.h>

const char *const queue_column_names[QUEUE_COLUMNS] = { "prompt", "answer", "old", "reference", "value", "reward",
                                                        "advantage" };
const char *const queue_task_names[QUEUE_TASKS] = { "rollout", "reference", "value", "reward", "advantage", "train" };

#define BIT(column) (1u << (column))

void queue_open(struct queue *queue, unsigned tasks)
{
    const unsigned scored = BIT(COLUMN_PROMPT) | BIT(COLUMN_ANSWER) | BIT(COLUMN_OLD)
        | (tasks & BIT(TASK_REFERENCE) ? BIT(COLUMN_REFERENCE) : 0) | (tasks & BIT(TASK_VALUE) ? BIT(COLUMN_VALUE) : 0);
    *queue = (struct queue){ .tasks = tasks, .needs = {
        [TASK_ROLLOUT] = BIT(COLUMN_PROMPT),
        [TASK_REFERENCE] = BIT(COLUMN_PROMPT) | BIT(COLUMN_ANSWER),
        [TASK_VALUE] = BIT(COLUMN_PROMPT) | BIT(COLUMN_ANSWER),
        [TASK_REWARD] = BIT(COLUMN_PROMPT) | BIT(COLUMN_ANSWER),
        [TASK_ADVANTAGE] = scored | BIT(COLUMN_REWARD),
        [TASK_TRAIN] = scored | BIT(COLUMN_ADVANTAGE),
    } };
}

void queue_close(struct queue *queue)
{
    free(queue->made), free(queue->taken);
    *queue = (struct queue){ 0 };
}

enum error_code queue_add(struct queue *queue, int64_t rows, int64_t *first, struct error *err)
{
    const int64_t all = queue->rows + rows;
    *first = queue->rows;
    if (all > queue->room) {
        const size_t room = 2 * (size_t)all;
        unsigned *const made = realloc(queue->made, room * sizeof *made);
        if (made) queue->made = made;
        unsigned *const taken = realloc(queue->taken, room * sizeof *taken);
        if (taken) queue->taken = taken;
        if (made == NULL || taken == NULL) return fail(err, ERR_MEMORY, "no memory for a queue of %zu samples", room);
        queue->room = (int64_t)room;
    }
    memset(queue->made + queue->rows, 0, (size_t)rows * sizeof *queue->made);
    memset(queue->taken + queue->rows, 0, (size_t)rows * sizeof *queue->taken);
    queue->rows = all;
    return OK;
}

enum error_code queue_put(struct queue *queue, int64_t row, enum queue_column column, struct error *err)
{
    if (row < 0 || row >= queue->rows)
        return fail(err, ERR_INTERNAL, "the queue has no sample %lld: it has %lld", (long long)row,
                    (long long)queue->rows);
    if (queue->made[row] & BIT(column))
        return fail(err, ERR_INTERNAL, "sample %lld has its %s already", (long long)row, queue_column_names[column]);
    queue->made[row] |= BIT(column);
    return OK;
}

static bool is_ready(const struct queue *queue, enum queue_task task, int64_t row)
{
    const unsigned needs = queue->needs[task];
    return (queue->made[row] & needs) == needs && !(queue->taken[row] & BIT(task));
}

int64_t queue_ready(const struct queue *queue, enum queue_task task, int64_t first, int64_t before)
{
    int64_t n = 0;
    for (int64_t i = first; i < before && i < queue->rows; i++) n += is_ready(queue, task, i);
    return n;
}

int64_t queue_take(struct queue *queue, enum queue_task task, int64_t before, int64_t most, int64_t *row)
{
    int64_t n = 0;
    for (int64_t i = queue->next[task]; i < queue->rows && i < before && n < most; i++) {
        if (!is_ready(queue, task, i)) continue;
        queue->taken[i] |= BIT(task);
        row[n++] = i;
    }
    while (queue->next[task] < queue->rows && queue->taken[queue->next[task]] & BIT(task)) queue->next[task]++;
    return n;
}

enum error_code queue_check(const struct queue *queue, struct error *err)
{
    for (int64_t i = 0; i < queue->rows; i++)
        for (int t = 0; t < QUEUE_TASKS; t++)
            if (queue->tasks & BIT(t) && !(queue->taken[i] & BIT(t)))
                return fail(err, ERR_INTERNAL, "the task %s has not had sample %lld", queue_task_names[t],
                            (long long)i);
    return OK;
}
