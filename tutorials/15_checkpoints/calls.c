/* calls.c -- how the judge of lesson 15 reaches the functions shard_number, file_count, plan_reads, save_checkpoint
 * and shard_count.  Each call takes its arguments from struct call.  tutorials/worker/worker.c finds a function in
 * `callables` by name and runs it.  course/compile/build.c compiles this file with the student's file.  No
 * function returns an error code. */
#include "checkpoints.h"
#include "worker/calls.h"

static struct mesh mesh(const struct call *c, int i) { return (struct mesh){ (int)c->number[i], (int)c->number[i +
                                                                                                               1] }; }

/* Counts of all tensors, then the numbers of all shards. */
static void shards(struct call *c)
{
    const struct tensor *x = c->buffer[0];
    const struct mesh m = mesh(c, 1);
    int64_t *counts = c->buffer[1], *numbers = c->buffer[2], used = 0;
    const int64_t room = (int64_t)(c->bytes[2] / sizeof *numbers);
    for (int i = 0; i < c->number[0]; i++) {
        counts[i] = shard_count(&x[i], &m, c->group[0].rank);
        for (int64_t k = 0; k < counts[i] && used < room; k++)
            numbers[used++] = shard_number(&x[i], &m, c->group[0].rank, k);
    }
}

static void files(struct call *c)
{
    const struct tensor *x = c->buffer[0];
    const struct mesh m = mesh(c, 1);
    for (int i = 0; i < c->number[0]; i++) ((int64_t *)c->buffer[1])[i] = file_count(&x[i], &m, c->group[0].rank);
}

static void reads(struct call *c)
{
    const struct mesh then = mesh(c, 1), now = mesh(c, 3);
    c->result = plan_reads(c->buffer[0], (int)c->number[0], &then, &now, c->group[0].rank, c->buffer[1]);
}

static void save(struct call *c)
{
    struct disk d = { c->buffer[0], (int64_t)(c->bytes[0] / 40), 0, c->given[0] };
    save_checkpoint(&c->group[0], &d, c->number[0], c->number[1]);
    c->result = d.used;
}

const struct callable callables[] = {
    { "shard_number", shards }, { "file_count", files }, { "plan_reads", reads }, { "save_checkpoint", save },
    { "shard_count", shards }, { 0 }
};
