/* dualpipe_steps.c -- the eight steps of DualPipe, on two streams.
 *
 * Source    DeepSeek-AI, DeepSeek-V3 Technical Report, arXiv:2412.19437, section 3.2.1, figure 5; the published program
 *           (github.com/deepseek-ai/DualPipe, dualpipe.py) defines the number of each.
 * With h the distance to the nearer end, H the number of devices between an end and the turn, n microbatches in each
 * stream:
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

static void forward(struct dual *u, int stream)
{
    schedule_put(u->s, u->device, FORWARD, u->first[stream] + u->stride * u->forwards[stream]++, u->chunk[stream]);
}

static void backward(struct dual *u, int stream, bool weights_later)
{
    const int micro = u->first[stream] + u->stride * u->backwards[stream]++;
    schedule_put(u->s, u->device, weights_later ? BACKWARD_INPUT : BACKWARD, micro, u->chunk[stream]);
    if (weights_later) u->waiting[u->waits++] = 2 * micro + stream;
}

/* A forward of one stream, and beside it a backward of the other, if both microbatches exist. */
static void pair(struct dual *u, int stream)
{
    const int *n = &u->s->count[u->device], before = *n;
    forward(u, stream);
    const bool both = *n > before;
    backward(u, !stream, false);
    if (!u->pairs || !both || *n < before + 2) return;
    u->s->actions[u->device][*n - 1].beside = u->s->pairs = true;
}

static void weights(struct dual *u)
{
    assert(u->waited < u->waits);
    const int w = u->waiting[u->waited++];
    schedule_put(u->s, u->device, BACKWARD_WEIGHT, w / 2, u->chunk[w % 2]);
}

enum error_code dualpipe_steps(struct dual *u, int half, int depth, int n, struct error *err)
{
    const int out = depth - half - 1, in = half + 1;
    u->waiting = malloc(2 * (size_t)n * sizeof *u->waiting);
    if (u->waiting == NULL) return fail(err, ERR_MEMORY, "schedule %s: no memory to plan it", u->s->name);
    /* The warm-up has forwards of the near direction, then of both. */
    for (int i = 0; i < 2 * out; i++) forward(u, 0);
    for (int i = 0; i < in; i++) forward(u, 0), forward(u, 1);
    for (int i = 0; i < out; i++) backward(u, 1, true), weights(u), forward(u, 1);
    /* In the steady state a forward of one direction runs beside a backward of the other. */
    for (int i = 0; i < n - 2 * depth + in; i++)
        pair(u, 0), pair(u, 1);
    /* In the cool-down forwards run out, and backwards go on. */
    for (int i = 0; i < out; i++) backward(u, 1, false), pair(u, 1);
    for (int i = 0; i < in; i++) {
        backward(u, 1, 2 * i >= in);            /* the last `in` of these 2 * in backwards delay W */
        backward(u, 0, 2 * i + 1 >= in);
    }
    for (int i = 0; i < out; i++) weights(u), backward(u, 0, true);
    for (int i = 0; i < in; i++) weights(u);
    assert(u->waited == u->waits);
    free(u->waiting);
    u->waiting = NULL;
    return OK;
}
