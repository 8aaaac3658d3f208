/* Wrong all-reduces: a chain there and back, with one mistake for each number.  tests/cli/test_verify_plugin.sh
 * compiles the file with -DWRONG=N, and wants the law beside N to be broken.  Without a number the chain is right.
 *
 *  1 reductions   adds, whatever the reduction is
 *  2 reductions   forgets the division of an average
 *  3 formats      one member's bf16 numbers are ones
 *  4 guards       writes behind `out`
 *  5 guards       writes before `out`
 *  6 input        flips a bit of `in`
 *  7 sizes        loses the last number of a long vector
 *  8 repeats      adds one in its 40th call
 *  9 steps        states 2 P steps
 * 10 scratch      keeps its scratch
 * 11 scratch      takes three times the scratch
 * 12 order        says that it adds in the order of ranks, and adds from the last
 * 13 costs        states an addition too many
 * 14 costs        states a message too many
 * 15 ends         follows a null pointer
 * 16 ends         waits for a message that nobody sends
 * 17 ends         computes for ever
 * 18 ends         takes memory without end
 * 19 quiet        prints to standard output
 * 20 quiet        prints to standard error
 * 21 nans         takes a NaN for 0
 * 22 alike        the first member adds again, in another order
 * 23 rounding     adds in bf16
 * 24 accepts      refuses with an empty text
 * 25 accepts      refuses every second time
 * 26 accepts      fails for 13 elements
 * 27 turns        says that all members do the same
 * 28 ends         ends the program
 * 29 complete     has no cost function
 * 30 complete     has the name of another algorithm
 * 31 values       loses the last number of three
 * 32 reductions   takes a product for a maximum
 * 33 formats      adds fp16 in halves
 * 34 costs        states bytes for fp32 in every format
 * 35 values       is wrong on 7 devices
 * 36 order        says that it adds nothing
 * 37 guards       writes where its scratch has ended
 * 38 values       sends what it had before it added
 * 39 accepts      refuses everything
 * 40 quiet        prints without end
 * 41 ends         frees its scratch twice
 * 42 values       is wrong where `in` is `out`
 * 43 formats      forgets the second half of fp64
 * 44 input        clears `in` when it is done
 * 45 repeats      remembers the longest vector so far
 * 46 ends         sleeps for ever
 */
#include "emulated_devices/schemes/plugin.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifndef WRONG
#define WRONG 0
#endif

/* @return the reduction that the chain computes. */
static enum reduction reduction_of(const struct collective *c)
{
    return WRONG == 1 || (WRONG == 32 && c->reduction == PRODUCT) ? (WRONG == 32 ? MAX : SUM) : c->reduction;
}

/* Mistakes that are made before the first message. */
static enum error_code begin_wrong(struct exchange *x, const struct collective *c, struct error *err)
{
    const int r = x->group->rank;
    if (WRONG == 15 && r == 1) *(volatile int *)0 = 1;
    if (WRONG == 16 && r == 0) return exchange_both(x, -1, NULL, 0, x->group->size - 1, c->out, 1, err);
    for (volatile int i = 0; WRONG == 17; i++) continue;
    for (volatile char *p; WRONG == 18;)
        if ((p = malloc(1 << 24)) != NULL) memset((char *)(uintptr_t)p, 1, 1 << 24);
    while (WRONG == 46) pause();
    if (WRONG == 19) printf("so far %d\n", r);
    if (WRONG == 20) fprintf(stderr, "so far %d\n", r);
    while (WRONG == 40) printf("so far %d\n", r), fflush(stdout);
    if (WRONG == 28) exit(0);
    if (WRONG == 26 && c->count == 13) return fail(err, ERR_USAGE, "13 are too many");
    return OK;
}

/* The sum of what this member has and what came. */
static void add(struct exchange *x, const struct collective *c, void *scratch)
{
    float *const out = c->out, *const from = scratch;
    if (WRONG == 21 && c->dtype == F32)
        for (int64_t i = 0; i < c->count; i++)
            from[i] = isnan(from[i]) ? 0 : from[i], out[i] = isnan(out[i]) ? 0 : out[i];
    if (WRONG == 33 && c->dtype == F16) reduce_local(x, SUM, F16, scratch, scratch, c->count);
    reduce_local(x, reduction_of(c), c->dtype, c->out, scratch,
                 WRONG == 43 && c->dtype == F64 ? c->count / 2 : c->count);
    if (WRONG == 23 && c->dtype == F32)
        for (int64_t i = 0; i < c->count; i++) {
            uint32_t bits;
            memcpy(&bits, &out[i], 4);
            bits &= 0xffff0000u;
            memcpy(&out[i], &bits, 4);
        }
}

/* Mistakes that are made after the last message. */
static void end_wrong(const struct group *g, const struct collective *c, bool apart)
{
    static int calls;
    static int64_t longest;
    const int r = g->rank;
    const int64_t n = c->count;
    float *const out = c->out;
    const bool narrow = c->dtype == F32 && n > 0;
    calls++;
    if (WRONG == 3 && c->dtype == BF16 && r == 1)
        for (int64_t i = 0; i < n; i++) ((uint16_t *)c->out)[i] = 0x3f80;
    if (WRONG == 4 && narrow && r == 0) out[n] = 7;
    if (WRONG == 5 && narrow && r == 0) out[-1] = 7;
    if (WRONG == 7 && narrow && n > 100000) out[n - 1] = 0;
    if (WRONG == 8 && narrow && calls == 40) out[0] += 1;
    if (WRONG == 22 && narrow && r == 0) out[n / 2] = nextafterf(out[n / 2], 1e30f) - 0;
    if (WRONG == 31 && narrow && n % 4 == 1 && n > 4) out[n - 1] += 1;
    if (WRONG == 35 && narrow && g->size == 7) out[0] += 1;
    if (WRONG == 42 && narrow && !apart) out[0] += 1;
    if (WRONG == 45 && narrow && n < longest && longest < 1000) out[0] += 1;
    if (n > longest) longest = n;
}

static enum error_code run(struct group *g, const struct collective *c, struct error *err)
{
    const int P = g->size, r = g->rank;
    const int64_t n = c->count;
    struct exchange x = exchange_begin(g, ALLREDUCE);
    void *scratch;
    enum error_code code = begin_wrong(&x, c, err);
    if (code) return code;
    code = scratch_agreed(&x, c, WRONG == 11 ? 3 * n : n, &scratch, err);
    if (code == OK && WRONG == 37 && n > 0) ((char *)scratch)[bytes_of(c, n)] = 1;
    if (code == OK && WRONG == 38 && r > 0) code = exchange_both(&x, r - 1, c->out, bytes_of(c, n), -1, NULL, 0, err);
    if (code == OK && r + 1 < P) {
        code = exchange_both(&x, -1, NULL, 0, r + 1, scratch, bytes_of(c, n), err);
        if (code == OK) add(&x, c, scratch);
    }
    if (code == OK && WRONG != 38 && r > 0) code = exchange_both(&x, r - 1, c->out, bytes_of(c, n), -1, NULL, 0, err);
    if (code == OK && r == 0 && WRONG != 2) reduce_finish(&x, c->reduction, c->dtype, c->out, n);
    if (code == OK && r > 0) code = exchange_both(&x, -1, NULL, 0, r - 1, c->out, bytes_of(c, n), err);
    if (code == OK && r + 1 < P) code = exchange_both(&x, r + 1, c->out, bytes_of(c, n), -1, NULL, 0, err);
    if (WRONG != 10 || n < 100) exchange_release(&x, scratch);
    if (WRONG == 41 && n > 100) exchange_release(&x, scratch);
    end_wrong(g, c, true);
    return code;
}

/* The chain with reads_in: `in` is still there, so that a mistake can change it. */
static enum error_code run_from_in(struct group *g, const struct collective *c, struct error *err)
{
    struct exchange x = exchange_begin(g, ALLREDUCE);
    struct collective here = *c;
    const bool apart = c->in != c->out;
    copy_elements(&x, c, c->out, c->in, c->count);
    here.in = here.out;
    const enum error_code code = run(g, &here, err);
    if (WRONG == 6 && apart && c->count > 0 && g->rank == 1) ((char *)(uintptr_t)c->in)[0] ^= 1;
    if (WRONG == 44 && apart && c->count > 0) memset((char *)(uintptr_t)c->in, 0, bytes_of(c, c->count));
    if (WRONG == 42) end_wrong(g, c, apart);
    return code;
}

static struct collective_cost cost(int r, int P, const struct collective *c)
{
    const uint64_t m = (uint64_t)(r > 0) + (r + 1 < P), n = (uint64_t)c->count;
    return (struct collective_cost){
        .messages = m + (WRONG == 14),
        .bytes = WRONG == 34 ? m * 4 * n : m * bytes_of(c, c->count),
        .additions = r + 1 < P ? n + (WRONG == 13) : 0,
        .steps = 2 * (uint64_t)(WRONG == 9 ? P : P - 1),
    };
}

static bool turns(int P, const struct collective *c)
{
    (void)P, (void)c;
    return true;
}

static const char *refuses(int P, const struct collective *c)
{
    static int asked;
    (void)c;
    if (WRONG == 24) return P % 2 ? "" : NULL;
    return WRONG == 39 || ++asked % 2 ? "another call" : NULL;
}

static const struct algorithm allreduce_chain = {
    .operation = ALLREDUCE, .name = WRONG == 30 ? "ring" : "chain", .description = "a chain there and back",
    .order = WRONG == 12 ? BY_RANK : WRONG == 36 ? ADDS_NOTHING : BY_TREE, .source = "own",
    .cost_formula = "2(P-1) (a + n b)", .reads_in = WRONG == 6 || WRONG == 44 || WRONG == 42,
    .turns = WRONG == 27 ? turns : NULL,
    .refuses = WRONG == 24 || WRONG == 25 || WRONG == 39 ? refuses : NULL,
    .run = WRONG == 6 || WRONG == 44 || WRONG == 42 ? run_from_in : run, .cost = WRONG == 29 ? NULL : cost,
};

PLUGIN(PLUGIN_ALGORITHM(allreduce_chain));
