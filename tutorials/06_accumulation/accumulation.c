/* accumulation.c -- lesson 06: microbatches with different numbers of labels.
 * README.md says what to do. */
#include "accumulation.h"

double mean_loss(const double *loss, const int64_t *labels, int micros)
{
/*SOLUTION*/
    double sum = 0, all = 0;
    for (int m = 0; m < micros; m++) {
        if (labels[m] == 0) continue;
        sum += loss[m] * (double)labels[m];
        all += (double)labels[m];
    }
    return all > 0 ? sum / all : 0;
/*SKELETON
    // your code
    return -1;
*/
}

float batch_gradient(const struct group *g, const struct batch *b,
                     float *gradient)
{
/*SOLUTION*/
    const int64_t n = b->n;
    float *mean = allocate(sizeof *mean * (size_t)n);
    for (int64_t k = 0; k < n + 2; k++) gradient[k] = 0;
    for (int i = 0; i < b->micros; i++) {
        const int m = /*ORDER*/i/*|b->micros - 1 - i*/;
        const float loss = micro_backward(b, m, mean), labels = (float)b->labels[m];
        if (labels == 0) continue;
        for (int64_t k = 0; k < n; k++) gradient[k] += mean[k] * labels;
        gradient[n] += loss * labels;
        gradient[n + 1] += labels;
    }
    release(mean);
    all_reduce(g, gradient, n + 2);
    const float all = gradient[n + 1];
    if (all == 0) return 0;
    for (int64_t k = 0; k < n; k++) gradient[k] /= all;
    return gradient[n] / all;
/*SKELETON
    // your code: micro_backward for each microbatch, and one all_reduce for everything
    return -1;
*/
}

double clip(float *gradient, int64_t n, double most)
{
/*SOLUTION*/
    double squares = 0;
    for (int64_t k = 0; k < n; k++) squares += (double)gradient[k] * gradient[k];
    const double norm = sqrt(squares), factor = most / /*EPS*/norm/*|(norm + 1e-6)*/;
    if (/*EPS*/norm > most/*|factor < 1*/)
        for (int64_t k = 0; k < n; k++) gradient[k] *= (float)factor;
    return norm;
/*SKELETON
    // your code
    return -1;
*/
}
