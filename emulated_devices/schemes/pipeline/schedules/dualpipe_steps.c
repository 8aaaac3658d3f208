/* dualpipe_steps.c -- the eight steps of DualPipe, on two streams.
 *
 * Source    DeepSeek-AI, DeepSeek-V3 Technical Report, arXiv:2412.19437, section 3.2.1, figure 5; the published program
 *           (github.com/deepseek-ai/DualPipe, dualpipe.py) defines the number of each.
 * Called    dualpipe.c and dualpipev.c call dualpipe_steps().  The only error is ERR_MEMORY.  With h the distance to
 *           the nearer end, H the number of devices between an end and the turn, n microbatches in each stream:
 *
 *   1  2(H-h-1)         F0
 *   2  h+1              F0 F1
 *   3  H-h-1            I1 W F1
 *   4  n - 2H + h + 1   F0 B1 F1 B0         F0 with B1, and F1 with B0, overlap on the authors' hardware
 *   5  H-h-1            B1 F1 B0
 *   6  h+1              B1 B0               in the second half I instead of B
 *   7  H-h-1            W I0
 *   8  h+1              W
 *
 * W takes the weight gradient that has waited longest.
 */
#include "emulated_devices/schemes/pipeline/schedules/dualpipe.h"
#include <assert.h>
#include <stdlib.h>

/* This call puts the next forward of a stream.  Microbatches beyond M are counted, but schedule_put leaves their
 * actions out. */
static void dualpipe_steps_forward(struct dual *dual, int stream)
{
    schedule_put(dual->s, dual->device, FORWARD, dual->first[stream] + dual->stride * dual->forwards[stream]++,
                 dual->chunk[stream]);
}

/* This call puts the next backward of a stream; with weights_later only I is put, and W waits in the queue. */
static void dualpipe_steps_backward(struct dual *dual, int stream, bool weights_later)
{
    const int micro = dual->first[stream] + dual->stride * dual->backwards[stream]++;
    schedule_put(dual->s, dual->device, weights_later ? BACKWARD_INPUT : BACKWARD, micro, dual->chunk[stream]);
    if (weights_later) dual->waiting[dual->waits++] = 2 * micro + stream;
}

/* A forward of one stream, and beside it a backward of the other, if both microbatches exist. */
static void pair(struct dual *dual, int stream)
{
    const int *n = &dual->s->count[dual->device], before = *n;
    dualpipe_steps_forward(dual, stream);
    const bool both = *n > before;
    dualpipe_steps_backward(dual, !stream, false);
    if (!dual->pairs || !both || *n < before + 2) return;
    dual->s->actions[dual->device][*n - 1].beside = dual->s->pairs = true;
}

/* weights puts the W that has waited longest. */
static void weights(struct dual *dual)
{
    assert(dual->waited < dual->waits);
    const int w = dual->waiting[dual->waited++];
    schedule_put(dual->s, dual->device, BACKWARD_WEIGHT, w / 2, dual->chunk[w % 2]);
}

enum error_code dualpipe_steps(struct dual *dual, int half, int depth, int n, struct error *err)
{
    const int out = depth - half - 1, in = half + 1;
    dual->waiting = malloc(2 * (size_t)n * sizeof *dual->waiting);
    if (dual->waiting == NULL) return fail(err, ERR_MEMORY, "schedule %s: no memory to plan it", dual->s->name);
    /* The warm-up has forwards of the near direction, then of both. */
    for (int i = 0; i < 2 * out; i++) dualpipe_steps_forward(dual, 0);
    for (int i = 0; i < in; i++) dualpipe_steps_forward(dual, 0), dualpipe_steps_forward(dual, 1);
    for (int i = 0; i < out; i++)
        dualpipe_steps_backward(dual, 1, true), weights(dual), dualpipe_steps_forward(dual, 1);
    /* In the steady state a forward of one direction runs beside a backward of the other. */
    for (int i = 0; i < n - 2 * depth + in; i++)
        pair(dual, 0), pair(dual, 1);
    /* In the cool-down forwards run out, and backwards go on. */
    for (int i = 0; i < out; i++) dualpipe_steps_backward(dual, 1, false), pair(dual, 1);
    for (int i = 0; i < in; i++) {
        dualpipe_steps_backward(dual, 1, 2 * i >= in);            /* the last `in` of these 2 * in backwards delay W */
        dualpipe_steps_backward(dual, 0, 2 * i + 1 >= in);
    }
    for (int i = 0; i < out; i++) weights(dual), dualpipe_steps_backward(dual, 0, true);
    for (int i = 0; i < in; i++) weights(dual);
    assert(dual->waited == dual->waits);
    free(dual->waiting);
    dual->waiting = NULL;
    return OK;
}
