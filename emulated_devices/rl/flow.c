/* flow.c -- events of tasks in virtual time.  report.c and bench/rl/ call.  Errors: ERR_MEMORY, ERR_INTERNAL. */
#include "emulated_devices/rl/flow.h"
#include <math.h>
#include <stdlib.h>

/* Work that ends: of a slot, or of a group. */
struct work { double until; int64_t row, count; bool busy; };

struct stream {
    const struct flow_times *times;     /* the caller's */
    struct queue queue;
    struct work *slot;                  /* [slots] */
    struct work group[FLOW_GROUPS];     /* but for FLOW_DRAW */
    double busy[FLOW_GROUPS];           /* seconds so far */
    double now;
    int64_t next, done;                 /* the next row to draw; updates that have been made */
    int64_t version;                    /* updates whose weights have arrived */
    double *arrives;                    /* [iterations + 1] when each version arrives */
    int64_t *missing;                   /* [prompts] rows of a prompt that are not rewarded */
    int64_t trained;                    /* rows of the current iteration */
    bool updates;                       /* the training group makes an update */
    int64_t *row;                       /* [samples] */
    int stale;
};

static int64_t iteration_of(const struct stream *stream, int64_t row) { return row / stream->times->samples; }

static void begin(struct stream *stream, struct work *work, enum flow_group group, int64_t row, int64_t count,
                  double takes)
{
    *work = (struct work){ stream->now + takes, row, count, true };
    stream->busy[group] += takes;
}

/* Whether any task works. */
static bool works(const struct stream *stream)
{
    bool busy = false;
    for (int s = 0; s < stream->times->slots; s++) busy = busy || stream->slot[s].busy;
    for (int g = FLOW_SCORE; g < FLOW_GROUPS; g++) busy = busy || stream->group[g].busy;
    return busy;
}

static bool flow_draws(const struct stream *stream)
{
    bool busy = false;
    for (int s = 0; s < stream->times->slots; s++) busy = busy || stream->slot[s].busy;
    return busy;
}

/* Slots draw in the order of rows; on shared devices one iteration at a time. */
static void start_draws(struct stream *stream)
{
    const struct flow_times *const t = stream->times;
    for (int s = 0; s < t->slots; s++) {
        const int64_t iteration = iteration_of(stream, stream->next);
        const bool more = stream->next < t->iterations * t->samples;
        if (stream->slot[s].busy || !more || stream->version < iteration - t->staleness) continue;
        if (t->turns && (iteration > stream->done || (works(stream) && !flow_draws(stream)))) continue;
        begin(stream, &stream->slot[s], FLOW_DRAW, stream->next, 1, t->draw[stream->next]);
        stream->next++;
    }
}

static void start_one(struct stream *stream, enum flow_group group, enum queue_task task, double takes)
{
    if (stream->group[group].busy || (stream->times->turns && works(stream))) return;
    if (queue_take(&stream->queue, task, INT64_MAX, 1, stream->row) == 1)
        begin(stream, &stream->group[group], group, stream->row[0], 1, takes);
}

/* Parts of the current iteration alone; then the update. */
static void start_training(struct stream *stream)
{
    const struct flow_times *const t = stream->times;
    const int64_t first = stream->done * t->samples, before = first + t->samples, left = t->samples - stream->trained,
                  part = t->part < left ? t->part : left;
    if (stream->group[FLOW_TRAIN].busy || stream->done == t->iterations || (t->turns && works(stream))) return;
    if (left == 0) {
        stream->updates = true;
        begin(stream, &stream->group[FLOW_TRAIN], FLOW_TRAIN, first, 0, t->update);
    } else if (queue_ready(&stream->queue, TASK_TRAIN, first, before) >= part) {
        const int64_t n = queue_take(&stream->queue, TASK_TRAIN, before, part, stream->row);
        for (int64_t i = 0; i < n; i++) {
            const int64_t behind = stream->done - (iteration_of(stream, stream->row[i]) - t->staleness > 0
                                                   ? iteration_of(stream, stream->row[i]) - t->staleness : 0);
            if (behind > stream->stale) stream->stale = (int)behind;
        }
        begin(stream, &stream->group[FLOW_TRAIN], FLOW_TRAIN, stream->row[0], n, (double)n * t->train);
    }
}

/* A group's rewards are there: so are its advantages. */
static enum error_code rewarded(struct stream *stream, int64_t row, struct error *err)
{
    const int64_t group = stream->times->group, prompt = row / group;
    enum error_code e = queue_put(&stream->queue, row, COLUMN_REWARD, err);
    for (int64_t i = 0; --stream->missing[prompt] == 0 && i < group && !e; i++) {
        e = queue_put(&stream->queue, prompt * group + i, COLUMN_ADVANTAGE, err);
        stream->missing[prompt] = 1;
    }
    return e;
}

static void updated(struct stream *stream)
{
    stream->updates = false, stream->trained = 0;
    stream->arrives[++stream->done] = stream->now + stream->times->move;
}

static enum error_code end_work(struct stream *stream, enum flow_group group, struct work *work, struct error *err)
{
    enum error_code e = OK;
    work->busy = false;
    if (group == FLOW_DRAW) {
        e = queue_put(&stream->queue, work->row, COLUMN_ANSWER, err);
        if (!e) e = queue_put(&stream->queue, work->row, COLUMN_OLD, err);
    } else if (group == FLOW_SCORE) e = queue_put(&stream->queue, work->row, COLUMN_REFERENCE, err);
    else if (group == FLOW_REWARD) e = rewarded(stream, work->row, err);
    else if (stream->updates) updated(stream);
    else stream->trained += work->count;
    return e;
}

/* The time of the next event. */
static double next_time(const struct stream *stream)
{
    double next = INFINITY;
    for (int s = 0; s < stream->times->slots; s++)
        if (stream->slot[s].busy && stream->slot[s].until < next) next = stream->slot[s].until;
    for (int g = FLOW_SCORE; g < FLOW_GROUPS; g++)
        if (stream->group[g].busy && stream->group[g].until < next) next = stream->group[g].until;
    for (int64_t v = stream->version + 1; v <= stream->done; v++)
        if (stream->arrives[v] < next) next = stream->arrives[v];
    return next;
}

static enum error_code step(struct stream *stream, struct error *err)
{
    enum error_code e = OK;
    start_training(stream);
    start_one(stream, FLOW_SCORE, TASK_REFERENCE, stream->times->score);
    start_one(stream, FLOW_REWARD, TASK_REWARD, stream->times->reward);
    start_draws(stream);
    stream->now = next_time(stream);
    if (isinf(stream->now))
        return fail(err, ERR_INTERNAL, "after %lld updates every task waits for another", (long long)stream->done);
    for (int s = 0; s < stream->times->slots && !e; s++)
        if (stream->slot[s].busy && stream->slot[s].until <= stream->now)
            e = end_work(stream, FLOW_DRAW, &stream->slot[s], err);
    for (int g = FLOW_SCORE; g < FLOW_GROUPS && !e; g++)
        if (stream->group[g].busy && stream->group[g].until <= stream->now)
            e = end_work(stream, (enum flow_group)g, &stream->group[g], err);
    while (stream->version < stream->done && stream->arrives[stream->version + 1] <= stream->now) stream->version++;
    return e;
}

static enum error_code stream_open(struct stream *stream, const struct flow_times *times, struct error *err)
{
    const int64_t rows = times->iterations * times->samples;
    int64_t first;
    *stream = (struct stream){ .times = times };
    queue_open(&stream->queue, 1u << TASK_REFERENCE | 1u << TASK_REWARD | 1u << TASK_TRAIN);
    stream->slot = calloc((size_t)times->slots, sizeof *stream->slot);
    stream->arrives = calloc((size_t)times->iterations + 2, sizeof *stream->arrives);
    stream->missing = calloc((size_t)(rows / times->group) + 1, sizeof *stream->missing);
    stream->row = calloc((size_t)times->samples + 1, sizeof *stream->row);
    if (!stream->slot || !stream->arrives || !stream->missing || !stream->row)
        return fail(err, ERR_MEMORY, "no memory for the times of %lld samples", (long long)rows);
    for (int64_t p = 0; p < rows / times->group; p++) stream->missing[p] = times->group;
    enum error_code e = queue_add(&stream->queue, rows, &first, err);
    for (int64_t i = 0; i < rows && !e; i++) e = queue_put(&stream->queue, i, COLUMN_PROMPT, err);
    return e;
}

enum error_code flow_run(const struct flow_times *times, struct flow *flow, struct error *err)
{
    struct stream stream;
    enum error_code e = stream_open(&stream, times, err);
    while (!e && stream.done < times->iterations) e = step(&stream, err);
    if (!e) e = queue_check(&stream.queue, err);
    *flow = (struct flow){ .seconds = stream.now, .most_stale = stream.stale };
    for (int g = 0; g < FLOW_GROUPS && !e; g++)
        flow->idle[g] = 1 - stream.busy[g] / (stream.now * (g == FLOW_DRAW ? times->slots : 1));
    queue_close(&stream.queue);
    free(stream.slot), free(stream.arrives), free(stream.missing), free(stream.row);
    return e;
}
