/* zb-v: zero bubble with the memory of 1F1B: each device holds one stage on the way down and one on the way up a V.
 *
 * Source    P. Qi et al., arXiv:2401.10241, section 6, figure 8.
 * Needs     P >= 1, M >= 1; stages d and 2P-1-d on device d
 * Bubble    0 if F = I = W and M >= 2P (a device's own time, first start to last end, as in zb-h2)
 * Memory    min(2P, 2M) chunks on every device, as much as 1F1B's P microbatches of two chunks on its first
 * Messages  4 M (P-1): none at the bottom of the V
 * Called    schemes/registry.c lists the schedule; schedule_make (make.c) calls zb_v_make.  Errors: ERR_PLAN for
 *           sizes out of range, ERR_MEMORY.
 *
 * A microbatch passes down the devices and back up, and so does its gradient.  The first device also has the last
 * stage, so it gets its first gradient early.  P=3, M=6 (second line: microbatches):
 *
 *   0  FFFFFfiwfiwfiwFIWfiwIWfiwIWfiwIWIWIW..
 *      012340001112225003331144422555334455..
 *   1  .FFFfFfiwfiwFIWfiwFIWfiwIWfiwIiIWIWwW.
 *      .012031002114003225114332254435435455.
 *   2  ..FfFfFfiwFIWfiwFIWfiwFIWfiwIiIiIWwwWW
 *      ..001122003003114114225225333445534545
 *
 * With fewer than 2P-1 microbatches it is the schedule of 2P-1 without the missing ones.
 */
#include "emulated_devices/schemes/pipeline/schedules/generate.h"

struct counts { int f[2], i[2], w[2]; };

static void zb_v_forward(struct schedule *schedule, int r, struct counts *counts, int chunk)
{
    schedule_put(schedule, r, FORWARD, counts->f[chunk]++, chunk);
}
static void zb_v_input(struct schedule *schedule, int r, struct counts *counts, int chunk)
{
    schedule_put(schedule, r, BACKWARD_INPUT, counts->i[chunk]++, chunk);
}
static void zb_v_weight(struct schedule *schedule, int r, struct counts *counts, int chunk)
{
    schedule_put(schedule, r, BACKWARD_WEIGHT, counts->w[chunk]++, chunk);
}

/* device writes the list of device r for M microbatches, of which the last may not exist. */
static void device(struct schedule *schedule, int r, int M)
{
    const int P = schedule->devices;
    struct counts n = { { 0 }, { 0 }, { 0 } };
    /* Forwards go down the V, until the first microbatch is back at this device's second stage. */
    for (int k = 0; k < 2 * (P - r) - 1; k++) zb_v_forward(schedule, r, &n, 0);
    for (int k = 0; k < r; k++) zb_v_forward(schedule, r, &n, 1), zb_v_forward(schedule, r, &n, 0);
    for (int k = 0; k < P - r; k++)
        zb_v_forward(schedule, r, &n, 1), zb_v_input(schedule, r, &n, 1), zb_v_weight(schedule, r, &n, 1);
    /* In the steady state F, I and W of both stages take turns. */
    while (n.f[1] < M) {
        if (n.f[0] < M) zb_v_forward(schedule, r, &n, 0);
        zb_v_input(schedule, r, &n, 0), zb_v_weight(schedule, r, &n, 0);
        zb_v_forward(schedule, r, &n, 1);
        zb_v_input(schedule, r, &n, 1), zb_v_weight(schedule, r, &n, 1);
    }
    /* The cool-down puts input gradients first, because other devices wait for these. */
    for (int k = 0; k < r; k++) zb_v_input(schedule, r, &n, 0), zb_v_input(schedule, r, &n, 1);
    for (int k = 0; k < P - r; k++) zb_v_input(schedule, r, &n, 0), zb_v_weight(schedule, r, &n, 0);
    /* Now follow the weight gradients that were put off. */
    while (n.w[1] < n.i[1]) zb_v_weight(schedule, r, &n, 1);
    while (n.w[0] < n.i[0]) zb_v_weight(schedule, r, &n, 0);
}

static enum error_code zb_v_make(struct schedule *schedule, const struct schedule_request *request, struct error *err)
{
    const int P = request->devices, M = request->micros < 2 * P - 1 ? 2 * P - 1 : request->micros;
    if (schedule_begin(schedule, "zb-v", P, request->micros, 2, err) != OK) return err->code;
    place_v(schedule);
    for (int r = 0; r < P; r++) device(schedule, r, M);
    return schedule_finish(schedule, err);
}

const struct schedule_generator schedule_zb_v = {
    .head = { .kind = PIPELINE_SCHEME, .equality = PERMUTES,
              .name = "zb-v", .description = "zero bubble with the memory of 1f1b: each device at both legs of a V",
              .source = "Qi et al., arXiv:2401.10241, section 6", .memory = "min(2P, 2M) chunks",
              .needs = "P >= 1, M >= 1 (best at least 2P-1)" },
    .bubble = "0 if F = I = W", .chunks = 2, .make = zb_v_make,
};
