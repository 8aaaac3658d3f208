/* data.c -- lesson 05: data parallelism.  README.md says what to do, data.h
 * what each function must do. */
#include "data.h"

int make_buckets(const int64_t *count, int parameters, int64_t most,
                 int *bucket)
{
/*SOLUTION*/
    int number = 0;
    int64_t filled = 0;
    for (int i = parameters - 1; i >= 0; i--) {
        const int closed = filled > 0 && /*CLOSE*/filled + count[i] > most/*|filled >= most*/;
        if (closed) number++, filled = 0;
        bucket[i] = number;
        filled += count[i];
    }
    return parameters > 0 ? number + 1 : 0;
/*SKELETON
    // your code: from the last parameter to the first
    return 0;
*/
}

/*SOLUTION*/
/* The gradients of parameters first .. last are computed: sum them while the
 * others are. */
static void reduce_bucket(const struct group *g, struct model *m, int first,
                          int last)
{
    const int64_t from = place_of(m, first), count = place_of(m, last) + m->count[last] - from;
    stream_begin();
    all_reduce(g, m->gradient + from, count);
    stream_end();
}
/*SKELETON
// a function of your own, for one bucket, must be static
*/

void data_gradients(const struct group *g, struct model *m, int64_t most)
{
/*SOLUTION*/
    const int64_t n = place_of(m, m->parameters);
    int *bucket = allocate(sizeof *bucket * (size_t)m->parameters), last = m->parameters - 1;
    make_buckets(m->count, m->parameters, most, bucket);
    for (int i = m->parameters - 1; i >= 0; i--) {
        backward(m, i);
        /*MEAN*//*|for (int64_t k = 0; k < m->count[i]; k++) m->gradient[place_of(m, i) + k] /= (float)g->size;*/
        if (i > 0 && bucket[i - 1] == bucket[i]) continue;
        reduce_bucket(g, m, i, last);
        last = i - 1;
    }
    stream_join();
    /*MEAN*/for (int64_t k = 0; k < n; k++) m->gradient[k] /= (float)g->size;/*|(void)n;*/
    release(bucket);
/*SKELETON
    // your code: backward(m, i) for each parameter; where can a bucket be reduced?
*/
}

void data_train(const struct group *g, struct model *m, int64_t most, int steps,
                float rate)
{
/*SOLUTION*/
    const int64_t n = place_of(m, m->parameters);
    broadcast(g, /*ROOT*/0/*|g->size - 1*/, m->weights, n);
    for (int step = 0; step < steps; step++) {
        data_gradients(g, m, most);
        for (int64_t k = 0; k < n; k++) m->weights[k] -= rate * m->gradient[k];
    }
/*SKELETON
    // your code: the same start for all, then the steps
*/
}
