/* ring.c -- lesson 03: the ring.  README.md says what to do, ring.h what each
 * function must do. */
#include "ring.h"

/*SOLUTION*/
enum { DIR = /*RING*/1/*|-1*/, OWN = /*OWNER*/0/*|1*/ };

/* One step of a ring: pass block `give` on, and receive block `take` into
 * `place`. */
static void pass_on(const struct group *g, float *x, int64_t n, int give,
                    float *place, int take)
{
    const struct block out = block_of(n, g->size, mod(give, g->size)), in = block_of(n, g->size, mod(take, g->size));
    exchange_both(g, mod(g->rank + DIR, g->size), x + out.start, sizeof *x * (size_t)out.count,
                  mod(g->rank - DIR, g->size), place, sizeof *x * (size_t)in.count);
}
/*SKELETON
// Functions of your own may be static, such as one for a step of the ring.
*/

void ring_reduce_scatter(const struct group *g, float *x, int64_t n)
{
/*SOLUTION*/
    if (g->size == 1) return;
    float *arrived = allocate(sizeof *x * (size_t)block_of(n, g->size, 0).count);
    for (int step = 0; step < g->size - 1; step++) {
        const int give = g->rank + OWN - DIR * (step + 1), take = give - DIR;
        const struct block mine = block_of(n, g->size, mod(take, g->size));
        pass_on(g, x, n, give, arrived, take);
        add_into(x + mine.start, arrived, mine.count);
    }
    release(arrived);
/*SKELETON
    // your code: W-1 steps; in each, exchange_both, then add_into
*/
}

void ring_all_gather(const struct group *g, float *x, int64_t n)
{
/*SOLUTION*/
    for (int step = 0; step < g->size - 1; step++) {
        const int give = g->rank + OWN - DIR * step, take = give - DIR;
        pass_on(g, x, n, give, x + block_of(n, g->size, mod(take, g->size)).start, take);
    }
/*SKELETON
    // your code: blocks can be received where they belong
*/
}

void ring_all_reduce(const struct group *g, float *x, int64_t n)
{
/*SOLUTION*/
    ring_reduce_scatter(g, x, n);
    ring_all_gather(g, x, n);
/*SKELETON
    // your code
*/
}
