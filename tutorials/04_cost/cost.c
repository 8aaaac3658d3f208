/* cost.c -- lesson 04: reading a cost.  README.md says what to do, cost.h what
 * each function must return. */
#include "cost.h"

double half_round_trip(const struct group *g, int64_t bytes)
{
/*SOLUTION*/
    if (g->rank > 1) return 0;
    void *data = allocate((size_t)bytes);
    const int64_t begun = time_now();
    if (g->rank == 0) {
        memset(data, 0, (size_t)bytes);
        message_wait(message_send(g, 1, data, (size_t)bytes));
        message_wait(message_receive(g, 1, data, (size_t)bytes));
    } else {
        message_wait(message_receive(g, 0, data, (size_t)bytes));
        message_wait(message_send(g, 0, data, (size_t)bytes));
    }
    const int64_t ended = time_now();
    release(data);
    return g->rank == 0 ? (double)(ended - begun) / 2 : 0;
/*SKELETON
    // your code: time_now() is in course.h
    return 0;
*/
}

void fit(const struct group *g, double *alpha, double *beta)
{
/*SOLUTION*/
    const double small = half_round_trip(g, 0), large = half_round_trip(g, 1000000);
    *alpha = small;
    *beta = (large - small) / 1000000;
/*SKELETON
    // your code: two unknowns take two measurements
    *alpha = *beta = 0;
*/
}

double ring_time(int W, double bytes, double alpha, double beta)
{
/*SOLUTION*/
    return 2 * (W - 1) * (alpha + bytes / W * beta);
/*SKELETON
    // your code
    return 0;
*/
}

/*SOLUTION*/
static int log2_of(int W)
{
    int steps = 0;
    while (1 << steps < W) steps++;
    return steps;
}
/*SKELETON*/
double other_time(int W, double bytes, double alpha, double beta)
{
/*SOLUTION*/
    return /*OTHER*/1/*|2*/ * log2_of(W) * (alpha + bytes * beta);
/*SKELETON
    // your code
    return 0;
*/
}

int64_t crossover(int W, double alpha, double beta)
{
/*SOLUTION*/
    const double steps = other_time(W, 0, 1, 0);
    const double latencies = 2 * (W - 1) - steps, saved = steps - 2.0 * (W - 1) / W;
    if (saved <= 0) return -1;
    const double equal = latencies * alpha / (saved * beta);
    return equal < 0 ? 1 : (int64_t)floor(equal) + 1;
/*SKELETON
    // your code: for which number of bytes are both equal?
    return 0;
*/
}
