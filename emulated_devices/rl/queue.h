/* queue.h -- a queue of samples by columns, between the tasks of reinforcement learning.
 *
 * A row is a sample; columns are what tasks make of it: its answer, log-probabilities, a reward.  A task asks for rows
 * whose columns it needs are all there, and that it has not had; each task gets each row once.  So a task begins with
 * the first rows that are ready, and no task knows of another one.
 *
 * Source  Z. Han et al., "AsyncFlow: an asynchronous streaming RL framework for efficient LLM post-training", 2025,
 *         arXiv:2507.01663 (TransferQueue: its controller's bitmaps of what is produced and consumed)
 *
 * The code is pure: it knows neither devices nor time.  loop.c runs a queue with real samples, flow.c one with times.
 */
#ifndef ORRERY_RL_QUEUE_H
#define ORRERY_RL_QUEUE_H

#include "ref/error.h"
#include <stdbool.h>
#include <stdint.h>

enum queue_column { COLUMN_PROMPT, COLUMN_ANSWER, COLUMN_OLD, COLUMN_REFERENCE, COLUMN_VALUE, COLUMN_REWARD,
                    COLUMN_ADVANTAGE, QUEUE_COLUMNS };

enum queue_task { TASK_ROLLOUT, TASK_REFERENCE, TASK_VALUE, TASK_REWARD, TASK_ADVANTAGE, TASK_TRAIN, QUEUE_TASKS };

struct queue {
    int64_t rows;                       /* of the run so far; they never leave */
    int64_t room;                       /* rows for which there is memory */
    unsigned *made, *taken;             /* [rows] bits of columns that are there, of tasks that have had the row */
    unsigned needs[QUEUE_TASKS];        /* bits of columns that a task needs */
    unsigned tasks;                     /* bits of the tasks of this run */
    int64_t next[QUEUE_TASKS];          /* no row before this one is left for the task */
};

extern const char *const queue_column_names[QUEUE_COLUMNS], *const queue_task_names[QUEUE_TASKS];

/** An empty queue.  @param tasks  bits of those that there are. */
void queue_open(struct queue *, unsigned tasks);
void queue_close(struct queue *);

/** Add rows without columns.  @param[out] first  the number of the first.  @return OK or ERR_MEMORY. */
enum error_code queue_add(struct queue *, int64_t rows, int64_t *first, struct error *);

/** A column of a row is there.  @return OK, or ERR_INTERNAL: it was there already, or there is no such row. */
enum error_code queue_put(struct queue *, int64_t row, enum queue_column, struct error *);

/** Give a task rows that are ready for it, in their order.
 *  @param before  only rows with smaller numbers.  @param[out] row  [most]  @return how many. */
int64_t queue_take(struct queue *, enum queue_task, int64_t before, int64_t most, int64_t *row);

/** How many rows are ready for a task, in a range. */
int64_t queue_ready(const struct queue *, enum queue_task, int64_t first, int64_t before);

/** Whether every task has had every row once.  @return OK, or ERR_INTERNAL naming the first that it lacks. */
enum error_code queue_check(const struct queue *, struct error *);

#endif
