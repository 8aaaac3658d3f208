/* algorithm.c -- what algorithms share: blocks of vectors, packed copies, scratch, sums in the order of members.
 *
 * Only files of this folder call this file; algorithm.h declares its functions.  Inputs are a call (struct collective)
 * and an exchange.  A function that can fail returns ERR_MEMORY or ERR_COMM; without memory for small scratch the job
 * ends.
 */
#include "emulated_devices/collectives/algorithm.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

/* Charge the time of a copy: each element is read once and written once, without an operation. */
static void charge_copy(struct exchange *exchange, const struct collective *collective, int64_t elements)
{
    struct op_cost cost = elementwise_cost(elements, 2, 0, collective->dtype);
    cost.running = true;
    device_charge(exchange->group->comm->device, "copy", cost);
}

void copy_elements(struct exchange *exchange, const struct collective *collective, void *dst, const void *src,
                   int64_t elements)
{
    /* A rehearsal only records messages, and its buffers are one byte long. */
    if (dst == src || elements == 0 || exchange->group->comm->rehearsal != NULL) return;
    device_copy(exchange->group->comm->device, dst, src, bytes_of(collective, elements));
    charge_copy(exchange, collective, elements);
}

int64_t block_first(const struct collective *collective, int P, int b)
{
    int64_t first = 0;
    if (collective->counts == NULL) return block_start(collective->count, P, b);
    for (int i = 0; i < b; i++) first += collective->counts[i];
    return first;
}

int64_t block_length(const struct collective *collective, int P, int b)
{
    b = imod(b, P);
    return collective->counts != NULL ? collective->counts[b] : part_length(collective->count, P, b);
}

int64_t block_longest(const struct collective *collective, int P)
{
    int64_t longest = 0;
    for (int b = 0; b < P; b++)
        if (block_length(collective, P, b) > longest) longest = block_length(collective, P, b);
    return longest;
}

bool turns_always(int P, const struct collective *collective)
{
    (void)P, (void)collective;
    return true;
}

bool turns_with_equal_parts(int P, const struct collective *collective) { return collective->count % P == 0; }

bool turns_with_equal_blocks(int P, const struct collective *collective)
{
    if (collective->placement) return false;
    return collective->counts ? P * block_longest(collective, P) == block_total(collective, P)
           : turns_with_equal_parts(P, collective);
}

/* All members turn alike only if every pair of them exchanges equally many elements. */
bool turns_with_equal_counts(int P, const struct collective *collective)
{
    bool equal = true;
    for (int i = 0; i < P; i++) equal = equal && given_to(collective, i) == given_to(collective, 0)
        && taken_from(collective, i) == given_to(collective, 0);
    return equal;
}

int64_t block_total(const struct collective *collective, int P)
{
    return block_first(collective, P, P);
}

/* Agreement needs a round of messages, which would be expensive for small, frequent collectives: where 8 devices share
 * 2 cores, a tenth of an all-reduce of 4 MB.  And with a few megabytes left, an orderly error is not possible anyway.
 * The decision uses only values that all members know. */
enum { AGREE_FROM = 16 << 20 };

/* Whether members agree on their scratch.  The call's bytes are those of the whole vector, or of all blocks. */
static bool worth_agreeing(const struct exchange *exchange, const struct collective *collective)
{
    const int P = exchange->group->size;
    if (exchange->operation == ALLTOALL)
        return collective->counts != NULL || bytes_of(collective, collective->count * P) > AGREE_FROM;
    const int64_t blocks = collective->placement ? collective->placement->blocks : P;
    return bytes_of(collective, collective->counts != NULL ? block_total(collective, (int)blocks)
                    : collective->count) > AGREE_FROM;
}

/* Without agreement, a member without memory ends the job: the others would wait for it. */
static void give_up(const struct exchange *exchange, uint64_t bytes)
{
    fprintf(stderr, "orrery: %s: device %d has no memory for %llu bytes of scratch\n",
            operation_name(exchange->operation), exchange->group->comm->rank, (unsigned long long)bytes);
    comm_abort(exchange->group->comm, error_exit_status(ERR_MEMORY));
}

/* Host memory, and the device scratch that it is counted as. */
struct small { void *scratch; max_align_t room[]; };

void *exchange_small(struct exchange *exchange, uint64_t bytes)
{
    struct small *small = malloc(sizeof *small + (size_t)bytes);
    void *scratch = exchange_scratch(exchange, bytes);
    if (small == NULL || scratch == NULL) give_up(exchange, bytes);
    small->scratch = scratch;
    /* The release function needs the scratch again, so its pointer stands before the room. */
    return small->room;
}

void exchange_small_end(struct exchange *exchange, void *room)
{
    struct small *small = (struct small *)((char *)room - offsetof(struct small, room));
    exchange_release(exchange, small->scratch);
    free(small);
}

/* Every member gets its scratch, or every member gets ERR_MEMORY.  The caller releases the scratch with
 * exchange_release. */
enum error_code scratch_agreed(struct exchange *exchange, const struct collective *collective, int64_t elements,
                               void **scratch, struct error *err)
{
    enum error_code code = OK;
    /* Each member asks for what it needs itself, which may be nothing. */
    *scratch = exchange_scratch(exchange, bytes_of(collective, elements));
    if (*scratch == NULL)
        code = fail(err, ERR_MEMORY, "%s: device %d has no memory for %llu bytes of scratch",
                    operation_name(exchange->operation), exchange->group->comm->rank,
                    (unsigned long long)bytes_of(collective, elements));
    if (worth_agreeing(exchange, collective) && exchange->group->comm->rehearsal == NULL)
        code = group_agree(exchange->group, code, err);
    else if (code != OK) give_up(exchange, bytes_of(collective, elements));
    if (code != OK) {
        exchange_release(exchange, *scratch);
        *scratch = NULL;
    }
    return code;
}

int64_t comb_length(const struct collective *collective, int P, struct comb comb)
{
    int64_t n = 0;
    for (int i = 0; i < comb.count; i++) n += block_length(collective, P, comb.first + i * comb.stride);
    return n;
}

/* Packed elements lie in the order of the comb's blocks, which may wrap round from P - 1 to 0. */
void comb_pack(struct exchange *exchange, const struct collective *collective, struct comb comb, void *packed,
               const void *blocks)
{
    const int P = exchange->group->size;
    int64_t at = 0;
    for (int i = 0; i < comb.count; i++) {
        const int b = imod(comb.first + i * comb.stride, P);
        copy_elements(exchange, collective, element(collective, packed, at),
                      const_element(collective, blocks, block_first(collective, P, b)), block_length(collective, P, b));
        at += block_length(collective, P, b);
    }
}

void comb_unpack(struct exchange *exchange, const struct collective *collective, struct comb comb, void *blocks,
                 const void *packed)
{
    const int P = exchange->group->size;
    int64_t at = 0;
    for (int i = 0; i < comb.count; i++) {
        const int b = imod(comb.first + i * comb.stride, P);
        copy_elements(exchange, collective, element(collective, blocks, block_first(collective, P, b)),
                      const_element(collective, packed, at), block_length(collective, P, b));
        at += block_length(collective, P, b);
    }
}

/* The sum runs over blocks that lie apart on one side and packed on the other. */
void comb_reduce(struct exchange *exchange, const struct collective *collective, struct comb comb, void *blocks,
                 const void *packed)
{
    const int P = exchange->group->size;
    int64_t at = 0;
    for (int i = 0; i < comb.count; i++) {
        const int b = imod(comb.first + i * comb.stride, P);
        reduce_local(exchange, collective->reduction, collective->dtype,
                     element(collective, blocks, block_first(collective, P, b)), const_element(collective, packed, at),
                     block_length(collective, P, b));
        at += block_length(collective, P, b);
    }
}

enum error_code wait_all(struct exchange *exchange, struct message *message, int number, struct error *err)
{
    enum error_code code = OK;
    /* One sleep for all messages is cheaper than one for each. */
    messages_meet(exchange->group->comm, message, number, true);
    for (int i = 0; i < number; i++) {
        const enum error_code one = message_wait(exchange->group->comm, message[i], code == OK ? err : NULL);
        /* Every message is waited for, also after an error, because MPI still uses its buffer.  The first error
         * counts. */
        if (code == OK) code = one;
    }
    return code;
}

/* Add numbers where the senders have them, without counting or charging.  `sum` is none of the parts. */
static void add_where_they_are(struct exchange *exchange, const struct collective *collective, int me, int P,
                               struct message *message, const void *own, void *sum, int64_t n)
{
    struct comm *comm = exchange->group->comm;
    messages_meet(comm, message, 2 * P - 2, false);
    for (int i = 0; i < P;) {
        const void *part[REDUCE_MOST] = { sum };
        /* After the first round the sum so far is the first part. */
        int parts = i > 0;
        for (; parts < REDUCE_MOST && i < P; parts++, i++) {
            /* m[2k - 2] is the receive from the member k places before this one. */
            part[parts] = i == me ? own : message_look(comm, message[2 * imod(me - i, P) - 2]);
            if (part[parts] == NULL) return;            /* waiting will say why */
        }
        reduce_numbers_of(exchange, collective->reduction, collective->dtype, sum, part, parts, n);
    }
}

/* Others go on when they are told that their numbers were read: before this device waits for any of them. */
static enum error_code wait_receives_first(struct exchange *exchange, struct message *message, int pairs,
                                           struct error *err)
{
    enum error_code code = OK;
    for (int i = 0; i < 2 * pairs; i++) {
        const int at = i < pairs ? 2 * i : 2 * (i - pairs) + 1;
        if (i == pairs) messages_meet(exchange->group->comm, message, 2 * pairs, true);
        const enum error_code one = message_wait(exchange->group->comm, message[at], code == OK ? err : NULL);
        message[at].slot = -1;                                /* it is no longer this message's */
        if (code == OK) code = one;
    }
    return code;
}

/* to[i] = x0[i] + x1[i] + .. + x(P-1)[i], whatever the order in which messages arrive. */
enum error_code add_in_order(struct exchange *exchange, const struct collective *collective, int me, int P,
                             struct message *message,
                             const void *own, void *blocks, void *to, int64_t n, struct error *err)
{
    /* The sum is written to its place at once, unless the own numbers lie there. */
    const bool there = messages_can_be_looked_at(exchange->group->comm), direct = there && own != to;
    if (there) add_where_they_are(exchange, collective, me, P, message, own, direct ? to : blocks, n);
    const enum error_code code = there ? wait_receives_first(exchange, message, P - 1, err)
        : wait_all(exchange, message, 2 * P - 2, err);
    if (code != OK) return code;
    /* Copies and sums are charged in the same way on both paths, so that the clock does not depend on the transport. */
    if (!there) copy_elements(exchange, collective, element(collective, blocks, n * me), own, n);
    else if (n > 0) charge_copy(exchange, collective, n);
    for (int i = 1; i < P; i++) {
        if (there) reduce_counted(exchange, collective->dtype, blocks, element(collective, blocks, n * i), n);
        else reduce_local(exchange, collective->reduction, collective->dtype, blocks,
                          element(collective, blocks, n * i), n);
    }
    if (!direct) copy_elements(exchange, collective, to, blocks, n);
    else if (n > 0) charge_copy(exchange, collective, n);
    return OK;
}

/* Without counts, all blocks of an all-to-all have `count` elements; with counts, a block begins after those before. */
const void *algorithm_given(const struct collective *collective, int d)
{
    int64_t first = collective->counts == NULL ? d * collective->count : 0;
    for (int i = 0; i < d && collective->counts != NULL; i++) first += collective->counts[i];
    return const_element(collective, collective->in, first);
}

void *algorithm_taken(const struct collective *collective, int s)
{
    int64_t first = collective->recvcounts == NULL ? s * collective->count : 0;
    for (int i = 0; i < s && collective->recvcounts != NULL; i++) first += collective->recvcounts[i];
    return element(collective, collective->out, first);
}

void keep_own(struct exchange *exchange, const struct collective *collective)
{
    const int r = exchange->group->rank;
    copy_elements(exchange, collective, algorithm_taken(collective, r), algorithm_given(collective, r),
                  given_to(collective, r));
}

/* Only blocks for others are overwritten before they are sent; a member's own block stays where it is. */
int64_t longest_to_keep(const struct collective *collective, int rank, int P)
{
    int64_t longest = 0;
    for (int d = 0; d < P && collective->in == collective->out; d++)
        if (d != rank && given_to(collective, d) > longest) longest = given_to(collective, d);
    return longest;
}

const void *algorithm_kept(struct exchange *exchange, const struct collective *collective, int d, void *keep)
{
    if (collective->in != collective->out) return algorithm_given(collective, d);
    copy_elements(exchange, collective, keep, algorithm_given(collective, d), given_to(collective, d));
    return keep;
}

const char *needs_equal_counts(int P, const struct collective *collective)
{
    (void)P;
    return collective->counts == NULL ? NULL : "equal counts";
}
