/* powers.c -- recursive halving and doubling, and folding any P onto a power of two.
 *
 * The algorithms doubling, halving, rabenseifner, swing and some broadcasts and reduces call this file through
 * algorithm.h.  Functions that send return ERR_COMM; fold_in comes first and fold_out last.
 */
#include "emulated_devices/collectives/algorithm.h"

struct fold fold_of(int rank, int P)
{
    struct fold f = { .core = 1 };
    while (2 * f.core <= P) f.core *= 2;
    f.rest = P - f.core;
    /* The first 2 rest members pair up: the odd one works for both, in the core of a power of two. */
    f.me = rank >= 2 * f.rest ? rank - f.rest : rank % 2 == 1 ? rank / 2 : -1;
    return f;
}

/* Whether a member of the core works for two members. */
static bool stands_for_two(struct fold fold) { return fold.me >= 0 && fold.me < fold.rest; }

enum error_code fold_in(struct exchange *exchange, const struct collective *collective, struct fold fold, void *data,
                        void *scratch, struct error *err)
{
    const int r = exchange->group->rank;
    if (fold.me < 0) return exchange_both(exchange, r + 1, data, bytes_of(collective, collective->count), -1,
                                          NULL, 0, err);
    if (!stands_for_two(fold)) return OK;
    /* Afterwards only the core has numbers to add: each member of it has x of one member, or the sum of two. */
    return add_from(exchange, collective, r - 1, scratch, data, collective->count, err);
}

enum error_code fold_out(struct exchange *exchange, const struct collective *collective, struct fold fold, void *data,
                         struct error *err)
{
    const int r = exchange->group->rank;
    const uint64_t bytes = bytes_of(collective, collective->count);
    if (fold.me < 0) return exchange_both(exchange, -1, NULL, 0, r + 1, data, bytes, err);
    return stands_for_two(fold) ? exchange_both(exchange, r - 1, data, bytes, -1, NULL, 0, err) : OK;
}

/* The finished vector goes back to the members that gave theirs away. */
void fold_cost(struct collective_cost *cost, const struct collective *collective, struct fold fold, int64_t n)
{
    if (fold.me < 0 || stands_for_two(fold)) cost_send(cost, collective, n);
    if (stands_for_two(fold)) cost->additions += (uint64_t)n;
    if (fold.rest > 0) cost->steps += 2;
}

void fold_path(struct collective_cost *cost, const struct collective *collective, struct fold fold, int64_t n)
{
    cost->path = cost->bytes + (stands_for_two(fold) ? bytes_of(collective, n) : 0);
/* Folding costs a message of n elements there and one back, and two steps of the group. */
}

int64_t cut_edge(const struct collective *collective, struct cut cut, int part)
{
    if (cut.P == 0) return block_start(collective->count, cut.f.core, part);
    /* A core member that works for two has the blocks of both. */
    return block_first(collective, cut.P, part < cut.f.rest ? 2 * part : part + cut.f.rest);
}

/* One level: the parts [low, high) are halved; this member keeps the half with its own part, its peer the other. */
struct level { int low, middle, high, peer; bool lower; };

/* The first element of a core member's part.  Blocks of a core member that works for two are side by side. */
static struct level level_of(struct fold fold, int half)
{
    struct level l = { .low = fold.me / (2 * half) * (2 * half) };
    l.middle = l.low + half;
    l.high = l.middle + half;
    l.lower = fold.me < l.middle;
    l.peer = l.lower ? fold.me + half : fold.me - half;
    return l;
}

/* x[part i] = sum over the core of x[part i], on core member i.  Each level halves what a member works on. */
enum error_code halving_reduce_scatter(struct exchange *exchange, const struct collective *collective,
                                       struct cut cut, void *data, void *scratch, struct error *err)
{
    enum error_code code = OK;
    for (int half = cut.f.core / 2; half >= 1 && code == OK; half /= 2) {
        const struct level l = level_of(cut.f, half);
        const int64_t low = cut_edge(collective, cut, l.low), middle = cut_edge(collective, cut, l.middle),
            high = cut_edge(collective, cut, l.high);
        const int64_t keep = l.lower ? low : middle, keeping = l.lower ? middle - low : high - middle;
        const int64_t give = l.lower ? middle : low, giving = l.lower ? high - middle : middle - low;
        const int peer = fold_member(cut.f, l.peer);
        /* The half that is given away is the one that the peer keeps; each adds what it is given. */
        code = send_and_add(exchange, collective, peer, element(collective, data, give), giving, peer, scratch,
                            element(collective, data, keep), keeping, err);
    }
    return code;
}

/* Core member i begins with part i, and doubles what it has in each level. */
enum error_code doubling_allgather(struct exchange *exchange, const struct collective *collective,
                                   struct cut cut, void *data, struct error *err)
{
    enum error_code code = OK;
    /* Levels run the other way round: in each one a member gets as much as it has. */
    for (int half = 1; half < cut.f.core && code == OK; half *= 2) {
        const struct level l = level_of(cut.f, half);
        const int64_t low = cut_edge(collective, cut, l.low), middle = cut_edge(collective, cut, l.middle),
            high = cut_edge(collective, cut, l.high);
        const int64_t have = l.lower ? low : middle, having = l.lower ? middle - low : high - middle;
        const int64_t want = l.lower ? middle : low, wanting = l.lower ? high - middle : middle - low;
        const int peer = fold_member(cut.f, l.peer);
        code = exchange_both(exchange, peer, element(collective, data, have), bytes_of(collective, having), peer,
                             element(collective, data, want), bytes_of(collective, wanting), err);
    }
    return code;
}

/* Both directions cost the same messages; only reduce-scatter adds. */
void halving_cost(struct collective_cost *cost, const struct collective *collective, struct cut cut, bool reduces)
{
    for (int half = 1; half < cut.f.core; half *= 2) {
        cost->steps++;
        if (cut.f.me < 0) continue;
        const struct level l = level_of(cut.f, half);
        const int64_t low = cut_edge(collective, cut, l.low), middle = cut_edge(collective, cut, l.middle),
            high = cut_edge(collective, cut, l.high);
        const int64_t mine = l.lower ? middle - low : high - middle;
        cost_send(cost, collective, reduces ? high - low - mine : mine);
        if (reduces) cost->additions += (uint64_t)mine;
    }
}

/* The largest message is that of the first level, where a member receives half of the vector. */
int64_t halving_scratch(const struct collective *collective, struct cut cut)
{
    if (cut.f.me < 0 || cut.f.core < 2) return 0;
    const struct level l = level_of(cut.f, cut.f.core / 2);
    return l.lower ? cut_edge(collective, cut, l.middle)
           : cut_edge(collective, cut, l.high) - cut_edge(collective, cut, l.middle);
}
