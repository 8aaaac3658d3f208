/* interleaved: 1F1B that passes the devices v times, so that a device waits for 1/v of a pass instead of a whole one.
 *
 * Source    D. Narayanan et al., Megatron-LM, arXiv:2104.04473, section 2.2, figure 4.
 * Needs     P >= 1, M >= 1, v >= 1; device r, chunk c holds stage c*P + r
 * Bubble    (P-1)(F+B)/v, where F and B are those of a whole device (v chunks), for M >= P
 * Memory    min(2(P-1-r) + (v-1)G + 1, Mv) chunks on device r, G the size of the first group.  If P divides M, G = P:
 *           Pv+P-1 on the first, 1 + (P-1)/(Pv) of what 1F1B holds
 * Messages  2 M (Pv-1), v times those of 1F1B
 * Called    schemes/registry.c lists the schedule; schedule_make (make.c) calls interleaved_make.  Errors: ERR_PLAN
 *           for sizes out of range, ERR_MEMORY.
 *
 * Microbatches form groups of P, and a group passes all chunks before the next group begins: with P=2, v=2, M=4 a
 * device's forwards are 0.0 1.0 0.1 1.1 2.0 3.0 2.1 3.1 (microbatch.chunk); backwards the same, from the last chunk to
 * the first.  Device r does 2(P-1-r) + (v-1)G forwards, then a forward and a backward in turn (B=2F; small letters:
 * chunk 1):
 *
 *   0  F0-F1-f0-f1-F2-...b0----F3-b1----f2-B0----f3-B1----...b2----...b3----B2----B3----
 *   1  ...F0-F1-f0-b0----f1-b1----F2-B0----F3-B1----f2-b2----f3-b3----B2----B3----......
 *
 * When M is not a multiple of P, there are as many groups as whole ones fit into M, at least one, of nearly equal
 * sizes, the larger ones first: a group of P or more keeps all devices busy.  PyTorch's Interleaved1F1B has such
 * groups, too, of equal sizes only.  With one group forwards and backwards have the order of bfs.
 */
#include "emulated_devices/schemes/pipeline/schedules/generate.h"

struct groups { int number, of_each, larger; };         /* the first `larger` groups have one microbatch more */

/* The number of groups is M / P, at least one.  The remainder makes the first groups larger. */
static struct groups groups_of(const struct schedule_request *request)
{
    const int number = request->micros > request->devices ? request->micros / request->devices : 1;
    return (struct groups){ number, request->micros / number, request->micros % number };
}

static int group_size(struct groups groups, int i) { return groups.of_each + (i < groups.larger); }

/* The kth step of a device's forwards (or, with the order of chunks reversed, backwards). */
static void put_step(struct schedule *schedule, struct groups groups, int r, enum action_kind kind, int k)
{
    int group = 0, first = 0;
    /* Microbatches go in groups of about P: all of a group through chunk 0, then through chunk 1, .. */
    for (; k >= group_size(groups, group) * schedule->chunks; group++) {
        k -= group_size(groups, group) * schedule->chunks;
        first += group_size(groups, group);
    }
    const int size = group_size(groups, group), chunk = kind == FORWARD ? k / size : schedule->chunks - 1 - k / size;
    schedule_put(schedule, r, kind, first + k % size, chunk);
}

/* interleaved_make writes the list of every device: warm-up, then a forward and a backward in turn, then backwards. */
static enum error_code interleaved_make(struct schedule *schedule, const struct schedule_request *request,
                                        struct error *err)
{
    const int P = request->devices, v = request->chunks, total = request->micros * v;
    const struct groups g = groups_of(request);
    if (schedule_begin(schedule, "interleaved", P, request->micros, v, err) != OK) return err->code;
    place_looped(schedule);
    for (int r = 0; r < P; r++) {
        /* These forwards before the first backward are the warm-up of the paper's schedule. */
        const int wish = v == 1 ? P - 1 - r : 2 * (P - 1 - r) + (v - 1) * group_size(g, 0);
        const int ahead = wish < total ? wish : total;
        for (int k = 0; k < ahead; k++) put_step(schedule, g, r, FORWARD, k);
        for (int k = 0; k < total; k++) {
            /* Then forwards and backwards alternate. */
            if (k + ahead < total) put_step(schedule, g, r, FORWARD, k + ahead);
            put_step(schedule, g, r, BACKWARD, k);
        }
    }
    return schedule_finish(schedule, err);
}

const struct schedule_generator schedule_interleaved = {
    .head = { .kind = PIPELINE_SCHEME, .equality = PERMUTES,
              .name = "interleaved", .description = "1f1b, the pipeline passing every device v times",
              .source = "Narayanan et al., arXiv:2104.04473",
              .memory = "min(2(P-1-r)+(v-1)G+1, Mv) chunks, G = P if P divides M",
              .needs = "P >= 1, M >= 1, v >= 1" },
    .bubble = "(P-1)(F+B)/v if M >= P", .make = interleaved_make,
};
