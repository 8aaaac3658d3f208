/* interleaved: 1F1B that passes the devices v times, so that a device waits for 1/v of a pass instead of a whole one.
 *
 * Source    D. Narayanan et al., Megatron-LM, arXiv:2104.04473, section 2.2, figure 4.
 * Needs     P >= 1, M >= 1, v >= 1; device r, chunk c holds stage c*P + r
 * Bubble    (P-1)(F+B)/v, where F and B are those of a whole device (v chunks), when M is a multiple of P.
 *           Otherwise the time is at most that of the next multiple of P
 * Memory    min(2(P-1-r) + (v-1)P + 1, Mv) chunks on device r: Pv+P-1 on the first, 1 + (P-1)/(Pv) of what 1F1B holds
 * Messages  2 M (Pv-1), v times those of 1F1B
 *
 * Microbatches form groups of P, and a group passes all chunks before the next group begins: with P=2, v=2, M=4 a
 * device's forwards are 0.0 1.0 0.1 1.1 2.0 3.0 2.1 3.1 (microbatch.chunk); backwards the same, from the last chunk to
 * the first.  Device r does 2(P-1-r) + (v-1)P forwards, then a forward and a backward in turn (B=2F; small letters:
 * chunk 1):
 *
 *   0  F0-F1-f0-f1-F2-...b0----F3-b1----f2-B0----f3-B1----...b2----...b3----B2----B3----
 *   1  ...F0-F1-f0-b0----f1-b1----F2-B0----F3-B1----f2-b2----f3-b3----B2----B3----......
 *
 * When M is not a multiple of P, this is the schedule of the next multiple without the missing microbatches: removing a
 * microbatch from a valid schedule leaves a valid schedule.
 */
#include "emulated_devices/schemes/pipeline/generate.h"

/* The kth step of a device's forwards (or, with the order of chunks reversed, backwards). */
static void put_step(struct schedule *s, int r, enum action_kind kind, int k)
{
    const int P = s->devices, v = s->chunks;
    const int group = k / (P * v), within = k % (P * v);
    const int chunk = kind == FORWARD ? within / P : v - 1 - within / P;
    schedule_put(s, r, kind, group * P + within % P, chunk);
}

static enum error_code make(struct schedule *s, const struct schedule_request *q, struct error *err)
{
    const int P = q->devices, v = q->chunks;
    if (schedule_begin(s, "interleaved", P, q->micros, v, err) != OK) return err->code;
    place_looped(s);
    const int total = (q->micros + P - 1) / P * P * v;
    for (int r = 0; r < P; r++) {
        const int wish = v == 1 ? P - 1 - r : 2 * (P - 1 - r) + (v - 1) * P;
        const int ahead = wish < total ? wish : total;
        for (int k = 0; k < ahead; k++) put_step(s, r, FORWARD, k);
        for (int k = 0; k < total; k++) {
            if (k + ahead < total) put_step(s, r, FORWARD, k + ahead);
            put_step(s, r, BACKWARD, k);
        }
    }
    return schedule_finish(s, err);
}

const struct schedule_generator schedule_interleaved = {
    .head = { .kind = PIPELINE_SCHEME, .equality = PERMUTES,
              .name = "interleaved", .description = "1f1b, the pipeline passing every device v times",
              .source = "Narayanan et al., arXiv:2104.04473", .memory = "min(2(P-1-r)+(v-1)P+1, Mv) chunks",
              .needs = "P >= 1, M >= 1 (best a multiple of P), v >= 1" },
    .bubble = "(P-1)(F+B)/v if P divides M", .make = make,
};
