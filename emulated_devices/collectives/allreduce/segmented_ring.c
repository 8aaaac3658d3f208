/* allreduce, segmented ring: the ring in small pieces, so that adding one piece overlaps with moving the next.
 *
 * Source    the pipelined ring of Open MPI's coll_base_allreduce.c; the ring itself: doi:10.1016/j.jpdc.2008.09.002
 * Needs     any P, any count.
 * Idea      a block is cut into S segments.  Piece i = step*S + segment; piece i can be sent after piece i - S, the
 *           same segment one step earlier, was received and added.  So one piece is sent while another is added.
 * Cost      messages  2(P-1)S S segments of a block (segments.c): for short vectors the same as the ring
 *           bytes     2n - |b(r+1)| - |b(r+2)|,  adds  n - |b(r)|: the same as the ring
 * Memory    two scratch segments.
 * Rounding  as the ring: block b in the order of devices b, b+1, .., b-1.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 *   S = 2      send      0a   0b   1a   1b   2a ..
 *              receive   0a   0b   1a   1b   ..
 *              add            0a   0b   1a  ..
 */
#include "emulated_devices/collectives/algorithm.h"

struct ring { const struct collective *c; int P, r, S, steps; };

static struct ring ring_of(const struct collective *collective, int r, int P)
{
    return (struct ring){ .c = collective, .P = P, .r = r,
                         .S = flow_segments(collective, part_length(collective->count, P, 0)), .steps = P - 1 };
}

/* Address and length of a piece of a block. */
static void *piece(const struct ring *ring, int block, int segment, int64_t *n)
{
    const int64_t length = part_length(ring->c->count, ring->P, block),
                  segmented_ring_start = block_start(ring->c->count, ring->P, imod(block, ring->P));
    *n = part_length(length, ring->S, segment);
    return element(ring->c, ring->c->out, segmented_ring_start + block_start(length, ring->S, segment));
}

/* The block that is sent in a step of 2(P-1); the one before it is received. */
static int sent_in(const struct ring *ring, int step)
{
    return step < ring->steps ? ring->r - step : ring->r + 1 - (step - ring->steps);
}

static void segmented_ring_start(struct exchange *exchange, const struct ring *ring, int i, void *const scratch[2],
                                 struct message message[2])
{
    const int step = i / ring->S, segment = i % ring->S;
    int64_t n;
    /* Pieces alternate between two scratch areas: one is added while the next arrives. */
    void *mine = piece(ring, sent_in(ring, step) - 1, segment, &n);
    message[0] = message_receive(exchange, imod(ring->r - 1, ring->P), step < ring->steps ? scratch[i % 2] : mine,
                                 bytes_of(ring->c, n));
    mine = piece(ring, sent_in(ring, step), segment, &n);
    message[1] = message_send(exchange, imod(ring->r + 1, ring->P), mine, bytes_of(ring->c, n));
}

static enum error_code segmented_ring_finish(struct exchange *exchange, const struct ring *ring, int i,
                                             void *const scratch[2], struct message message[2], struct error *err)
{
    const int step = i / ring->S;
    int64_t n;
    void *mine = piece(ring, sent_in(ring, step) - 1, i % ring->S, &n);
    const enum error_code got = message_wait(exchange->group->comm, message[0], err),
                          gone = message_wait(exchange->group->comm, message[1], got == OK ? err : NULL);
    if (got != OK || gone != OK) return got != OK ? got : gone;
    /* Reduce-scatter adds the piece to the own numbers; the last step of it completes them. */
    if (step < ring->steps) reduce_local(exchange, ring->c->reduction, ring->c->dtype, mine, scratch[i % 2], n);
    if (step == ring->steps - 1) reduce_finish(exchange, ring->c->reduction, ring->c->dtype, mine, n);
    return OK;
}

/* out [count] = sum over members.  Messages of piece i use place i mod 2 of the list. */
static enum error_code segmented_ring_run(struct group *group, const struct collective *collective, struct error *err)
{
    const struct ring g = ring_of(collective, group->rank, group->size);
    const int64_t room = flow_scratch(collective, part_length(collective->count, g.P, 0)),
        pieces = 2 * (int64_t)g.steps * g.S;
    struct exchange x = exchange_begin(group, ALLREDUCE);
    struct message m[2][2];
    void *memory;
    enum error_code code = scratch_agreed(&x, collective, 2 * room, &memory, err);
    if (code != OK) return code;
    void *const scratch[2] = { memory, element(collective, memory, room) };

    int started = 0;
    /* at most two pieces in flight; with S = 1 each needs the one before */
    for (int i = 0; i < pieces && code == OK; i++) {
        while (started < pieces && started <= i + (g.S > 1)) {
            segmented_ring_start(&x, &g, started, scratch, m[started % 2]);
            started++;
        }
        code = segmented_ring_finish(&x, &g, i, scratch, m[i % 2], err);
    }
    exchange_release(&x, memory);
    return code;
}

static int64_t longest_block(int P, const struct collective *collective)
{
    return part_length(collective->count, P, 0);
}

static struct collective_cost segmented_ring_cost(int r, int P, const struct collective *collective)
{
    const struct ring g = ring_of(collective, r, P);
    const uint64_t pieces = 2 * (uint64_t)g.steps * (uint64_t)g.S;
    return (struct collective_cost){
        .messages = pieces, .steps = pieces, .depth = g.S > 1 ? pieces / 2 : pieces,
        .bytes = bytes_of(collective, 2 * collective->count - part_length(collective->count, P, r + 1)
                          - part_length(collective->count, P, r + 2)),
        .additions = (uint64_t)(collective->count - part_length(collective->count, P, r)),
    };
}

const struct algorithm allreduce_segmented_ring = {
    .operation = ALLREDUCE, .name = "segmented_ring",
    .description = "the ring in small pieces: adding overlaps with sending",
    .order = BY_POSITION, .source = "Open MPI coll_base_allreduce.c", .cost_formula = "2(P-1)S a + 2n(P-1)/P b",
    .run = segmented_ring_run, .cost = segmented_ring_cost,
    .pipelined = longest_block,
};
