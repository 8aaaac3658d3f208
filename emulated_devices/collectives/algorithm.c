#include "emulated_devices/collectives/algorithm.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

static void charge_copy(struct exchange *x, const struct collective *c, int64_t elements)
{
    struct op_cost cost = elementwise_cost(elements, 2, 0, c->dtype);
    cost.running = true;
    device_charge(x->group->comm->device, "copy", cost);
}

void copy_elements(struct exchange *x, const struct collective *c, void *dst, const void *src, int64_t elements)
{
    if (dst == src || elements == 0 || x->group->comm->rehearsal != NULL) return;
    device_copy(x->group->comm->device, dst, src, bytes_of(c, elements));
    charge_copy(x, c, elements);
}

int64_t block_first(const struct collective *c, int P, int b)
{
    int64_t first = 0;
    if (c->counts == NULL) return block_start(c->count, P, b);
    for (int i = 0; i < b; i++) first += c->counts[i];
    return first;
}

int64_t block_length(const struct collective *c, int P, int b)
{
    b = imod(b, P);
    return c->counts != NULL ? c->counts[b] : part_length(c->count, P, b);
}

int64_t block_longest(const struct collective *c, int P)
{
    int64_t longest = 0;
    for (int b = 0; b < P; b++)
        if (block_length(c, P, b) > longest) longest = block_length(c, P, b);
    return longest;
}

bool turns_always(int P, const struct collective *c)
{
    (void)P, (void)c;
    return true;
}

bool turns_with_equal_parts(int P, const struct collective *c) { return c->count % P == 0; }

bool turns_with_equal_blocks(int P, const struct collective *c)
{
    if (c->placement) return false;
    return c->counts ? P * block_longest(c, P) == block_total(c, P) : turns_with_equal_parts(P, c);
}

bool turns_with_equal_counts(int P, const struct collective *c)
{
    bool equal = true;
    for (int i = 0; i < P; i++) equal = equal && given_to(c, i) == given_to(c, 0) && taken_from(c, i) == given_to(c, 0);
    return equal;
}

int64_t block_total(const struct collective *c, int P)
{
    return block_first(c, P, P);
}

/* Agreement needs a round of messages, which would be expensive for small, frequent collectives: where 8 devices share
 * 2 cores, a tenth of an all-reduce of 4 MB.  And with a few megabytes left, an orderly error is not possible anyway.
 * The decision uses only values that all members know. */
enum { AGREE_FROM = 16 << 20 };

static bool worth_agreeing(const struct exchange *x, const struct collective *c)
{
    const int P = x->group->size;
    if (x->operation == ALLTOALL) return c->counts != NULL || bytes_of(c, c->count * P) > AGREE_FROM;
    const int64_t blocks = c->placement ? c->placement->blocks : P;
    return bytes_of(c, c->counts != NULL ? block_total(c, (int)blocks) : c->count) > AGREE_FROM;
}

/* Without agreement, a member without memory ends the job: the others would wait for it. */
static void give_up(const struct exchange *x, uint64_t bytes)
{
    fprintf(stderr, "orrery: %s: device %d has no memory for %llu bytes of scratch\n", operation_name(x->operation),
            x->group->comm->rank, (unsigned long long)bytes);
    comm_abort(x->group->comm, error_exit_status(ERR_MEMORY));
}

/* Host memory, and the device scratch that it is counted as. */
struct small { void *scratch; max_align_t room[]; };

void *exchange_small(struct exchange *x, uint64_t bytes)
{
    struct small *small = malloc(sizeof *small + (size_t)bytes);
    void *scratch = exchange_scratch(x, bytes);
    if (small == NULL || scratch == NULL) give_up(x, bytes);
    small->scratch = scratch;
    return small->room;
}

void exchange_small_end(struct exchange *x, void *room)
{
    struct small *small = (struct small *)((char *)room - offsetof(struct small, room));
    exchange_release(x, small->scratch);
    free(small);
}

enum error_code scratch_agreed(struct exchange *x, const struct collective *c, int64_t elements, void **scratch,
                               struct error *err)
{
    enum error_code code = OK;
    *scratch = exchange_scratch(x, bytes_of(c, elements));
    if (*scratch == NULL)
        code = fail(err, ERR_MEMORY, "%s: device %d has no memory for %llu bytes of scratch",
                    operation_name(x->operation), x->group->comm->rank, (unsigned long long)bytes_of(c, elements));
    if (worth_agreeing(x, c) && x->group->comm->rehearsal == NULL) code = group_agree(x->group, code, err);
    else if (code != OK) give_up(x, bytes_of(c, elements));
    if (code != OK) {
        exchange_release(x, *scratch);
        *scratch = NULL;
    }
    return code;
}

int64_t comb_length(const struct collective *c, int P, struct comb k)
{
    int64_t n = 0;
    for (int i = 0; i < k.count; i++) n += block_length(c, P, k.first + i * k.stride);
    return n;
}

void comb_pack(struct exchange *x, const struct collective *c, struct comb k, void *packed, const void *blocks)
{
    const int P = x->group->size;
    int64_t at = 0;
    for (int i = 0; i < k.count; i++) {
        const int b = imod(k.first + i * k.stride, P);
        copy_elements(x, c, element(c, packed, at), const_element(c, blocks, block_first(c, P, b)),
                      block_length(c, P, b));
        at += block_length(c, P, b);
    }
}

void comb_unpack(struct exchange *x, const struct collective *c, struct comb k, void *blocks, const void *packed)
{
    const int P = x->group->size;
    int64_t at = 0;
    for (int i = 0; i < k.count; i++) {
        const int b = imod(k.first + i * k.stride, P);
        copy_elements(x, c, element(c, blocks, block_first(c, P, b)), const_element(c, packed, at),
                      block_length(c, P, b));
        at += block_length(c, P, b);
    }
}

void comb_reduce(struct exchange *x, const struct collective *c, struct comb k, void *blocks, const void *packed)
{
    const int P = x->group->size;
    int64_t at = 0;
    for (int i = 0; i < k.count; i++) {
        const int b = imod(k.first + i * k.stride, P);
        reduce_local(x, c->reduction, c->dtype, element(c, blocks, block_first(c, P, b)), const_element(c, packed, at),
                     block_length(c, P, b));
        at += block_length(c, P, b);
    }
}

enum error_code wait_all(struct exchange *x, struct message *m, int number, struct error *err)
{
    enum error_code code = OK;
    messages_meet(x->group->comm, m, number, true);
    for (int i = 0; i < number; i++) {
        const enum error_code one = message_wait(x->group->comm, m[i], code == OK ? err : NULL);
        if (code == OK) code = one;
    }
    return code;
}

/* The numbers only, each where it is.  `sum` is nobody's part. */
static void add_where_they_are(struct exchange *x, const struct collective *c, int me, int P, struct message *m,
                               const void *own, void *sum, int64_t n)
{
    struct comm *comm = x->group->comm;
    messages_meet(comm, m, 2 * P - 2, false);
    for (int i = 0; i < P;) {
        const void *part[REDUCE_MOST] = { sum };
        /* After the first round the sum so far is the first part. */
        int parts = i > 0;
        for (; parts < REDUCE_MOST && i < P; parts++, i++) {
            /* m[2k - 2] is the receive from the member k places before this one. */
            part[parts] = i == me ? own : message_look(comm, m[2 * imod(me - i, P) - 2]);
            if (part[parts] == NULL) return;            /* waiting will say why */
        }
        reduce_numbers_of(x, c->reduction, c->dtype, sum, part, parts, n);
    }
}

/* Others go on when they are told that their numbers were read: before this device waits for any of them. */
static enum error_code wait_receives_first(struct exchange *x, struct message *m, int pairs, struct error *err)
{
    enum error_code code = OK;
    for (int i = 0; i < 2 * pairs; i++) {
        const int at = i < pairs ? 2 * i : 2 * (i - pairs) + 1;
        if (i == pairs) messages_meet(x->group->comm, m, 2 * pairs, true);
        const enum error_code one = message_wait(x->group->comm, m[at], code == OK ? err : NULL);
        m[at].slot = -1;                                /* it is no longer this message's */
        if (code == OK) code = one;
    }
    return code;
}

enum error_code add_in_order(struct exchange *x, const struct collective *c, int me, int P, struct message *m,
                             const void *own, void *blocks, void *to, int64_t n, struct error *err)
{
    /* The sum is written to its place at once, unless the own numbers lie there. */
    const bool there = messages_can_be_looked_at(x->group->comm), direct = there && own != to;
    if (there) add_where_they_are(x, c, me, P, m, own, direct ? to : blocks, n);
    const enum error_code code = there ? wait_receives_first(x, m, P - 1, err) : wait_all(x, m, 2 * P - 2, err);
    if (code != OK) return code;
    if (!there) copy_elements(x, c, element(c, blocks, n * me), own, n);
    else if (n > 0) charge_copy(x, c, n);
    for (int i = 1; i < P; i++) {
        if (there) reduce_counted(x, c->dtype, blocks, element(c, blocks, n * i), n);
        else reduce_local(x, c->reduction, c->dtype, blocks, element(c, blocks, n * i), n);
    }
    if (!direct) copy_elements(x, c, to, blocks, n);
    else if (n > 0) charge_copy(x, c, n);
    return OK;
}

const void *algorithm_given(const struct collective *c, int d)
{
    int64_t first = c->counts == NULL ? d * c->count : 0;
    for (int i = 0; i < d && c->counts != NULL; i++) first += c->counts[i];
    return const_element(c, c->in, first);
}

void *algorithm_taken(const struct collective *c, int s)
{
    int64_t first = c->recvcounts == NULL ? s * c->count : 0;
    for (int i = 0; i < s && c->recvcounts != NULL; i++) first += c->recvcounts[i];
    return element(c, c->out, first);
}

void keep_own(struct exchange *x, const struct collective *c)
{
    const int r = x->group->rank;
    copy_elements(x, c, algorithm_taken(c, r), algorithm_given(c, r), given_to(c, r));
}

int64_t longest_to_keep(const struct collective *c, int rank, int P)
{
    int64_t longest = 0;
    for (int d = 0; d < P && c->in == c->out; d++)
        if (d != rank && given_to(c, d) > longest) longest = given_to(c, d);
    return longest;
}

const void *algorithm_kept(struct exchange *x, const struct collective *c, int d, void *keep)
{
    if (c->in != c->out) return algorithm_given(c, d);
    copy_elements(x, c, keep, algorithm_given(c, d), given_to(c, d));
    return keep;
}

const char *needs_equal_counts(int P, const struct collective *c)
{
    (void)P;
    return c->counts == NULL ? NULL : "equal counts";
}
