/* allreduce, recursive multiplying: recursive doubling with several partners per step.
 *
 * Source    M. Ruefenacht, M. Bull, S. Booth, "Generalisation of recursive doubling for AllReduce: now with
 *           simulation", Parallel Computing 69, 2017, doi:10.1016/j.parco.2017.08.004
 * Needs     any P: it is factored into 4s where possible, else primes; there is no remainder.
 * Idea      P = f1 f2 ..  In a step with factor f, the f devices that differ only in that digit of their number
 *           exchange their vectors.  More messages, fewer dependent steps: good if several sends at once cost little
 *           more than one.
 * Cost      sum of (f-1) messages of n elements each way, one after another on one port; adds the same times n
 * Memory    f n elements of scratch for the largest factor.
 * Rounding  all devices of a step add in the same order of members: the same bits on all devices.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 12 = 4 * 3:   0 1 2 3 | 4 5 6 7 | 8 9 10 11     step 1: within each four
 *                   0 4 8 | 1 5 9 | 2 6 10 | 3 7 11   step 2: devices with the same place in their four
 */
#include "emulated_devices/collectives/algorithm.h"

static int next_factor(int P)
{
    if (P % 4 == 0) return 4;
    for (int f = 2; f * f <= P; f++) if (P % f == 0) return f;
    return P;
}

/* The members that differ from r in the digit with this weight. */
static struct row multiplying_row_of(int r, int weight, int factor)
{
    const int digit = r / weight % factor;
    return (struct row){ .size = factor, .me = digit, .first = r - digit * weight, .stride = weight };
}

static int largest_factor(int P)
{
    int largest = 1;
    for (int left = P; left > 1; left /= next_factor(left))
        if (next_factor(left) > largest) largest = next_factor(left);
    return largest;
}

/* out [count] = sum over members, by the digits of their numbers. */
static enum error_code multiplying_run(struct group *group, const struct collective *collective, struct error *err)
{
    struct exchange x = exchange_begin(group, ALLREDUCE);
    void *scratch;
    enum error_code code = scratch_agreed(&x, collective, largest_factor(group->size) * collective->count,
                                          &scratch, err);
    for (int weight = 1, f; weight < group->size && code == OK; weight *= f) {
        /* Members that differ in this digit exchange their vectors; each adds all f in order. */
        f = next_factor(group->size / weight);
        code = everybody_adds(&x, collective, multiplying_row_of(group->rank, weight, f), collective->out,
                              collective->count, scratch, err);
    }
    if (code == OK) reduce_finish(&x, collective->reduction, collective->dtype, collective->out, collective->count);
    exchange_release(&x, scratch);
    return code;
}

static struct collective_cost multiplying_cost(int r, int P, const struct collective *collective)
{
    struct collective_cost cost = { 0 };
    for (int weight = 1, f; weight < P; weight *= f) {
        f = next_factor(P / weight);
        everybody_cost(&cost, collective, multiplying_row_of(r, weight, f), collective->count);
    }
    return cost;
}

const struct algorithm allreduce_multiplying = {
    .operation = ALLREDUCE, .name = "multiplying", .description = "doubling with up to three partners at once",
    .order = BY_TREE, .vectors = A_VECTOR_EACH,
    .source = "Ruefenacht, Bull and Booth 2017, doi:10.1016/j.parco.2017.08.004",
    .cost_formula = "sum (f-1) (a + n b), P = product of f", .run = multiplying_run, .cost = multiplying_cost,
};
