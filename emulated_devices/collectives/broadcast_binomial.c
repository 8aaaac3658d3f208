/* broadcast, binomial tree: everybody who has the vector sends it on, so those who have it double.
 *
 * Source    R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH",
 *           Int. J. High Perform. Comput. Appl. 19(1), 2005, doi:10.1177/1094342005051521
 * Needs     any P, any count, any root.
 * Idea      count devices from the root: v = r - root mod P.  Device v receives from v without its lowest set bit, then
 *           sends to v + bit for every bit below that one, the largest first (the root: every bit below P).
 * Cost      steps  ceil(log2 P), the fewest possible
 *           bytes  n for each child: n ceil(log2 P) at the root, none at half of the devices
 * Memory    none.
 * Rounding  permutes: bits are equal.
 *
 * P = 6, root 0; the number is the step in which a device receives:
 *
 *   0 --1--> 4 --2--> ( 6 is not there )
 *   |        '-----3--> 5
 *   |-----2--> 2 --3--> 3
 *   '-----------3--> 1
 */
#include "emulated_devices/collectives/algorithm.h"

/* The bit that joins v to its parent: the lowest one set; for the root the first that reaches beyond the group. */
static int parent_bit(int v, int P)
{
    int bit = 1;
    while (bit < P && !(v & bit)) bit <<= 1;
    return bit;
}

static enum error_code run(struct group *g, const struct collective *c, struct error *err)
{
    const int P = g->size, v = imod(g->rank - c->root, P), up = parent_bit(v, P);
    const uint64_t bytes = bytes_of(c, c->count);
    struct exchange x = exchange_begin(g, BROADCAST);
    enum error_code code = OK;

    if (v != 0) code = exchange_both(&x, -1, NULL, 0, imod(v - up + c->root, P), c->out, bytes, err);
    for (int bit = up >> 1; bit > 0 && code == OK; bit >>= 1)
        if (v + bit < P) code = exchange_both(&x, imod(v + bit + c->root, P), c->out, bytes, -1, NULL, 0, err);
    return code;
}

static struct collective_cost cost(int r, int P, const struct collective *c)
{
    const int v = imod(r - c->root, P);
    uint64_t children = 0, steps = 0;
    for (int bit = parent_bit(v, P) >> 1; bit > 0; bit >>= 1) children += v + bit < P;
    for (int bit = 1; bit < P; bit <<= 1) steps++;
    return (struct collective_cost){ .messages = children, .bytes = children * bytes_of(c, c->count), .steps = steps };
}

const struct algorithm broadcast_binomial = {
    .operation = BROADCAST, .name = "binomial", .description = "everybody who has it sends it on: the fewest steps",
    .source = "Thakur, Rabenseifner and Gropp 2005, doi:10.1177/1094342005051521",
    .cost_formula = "ceil(log2 P) (a + n b)", .run = run, .cost = cost,
};
