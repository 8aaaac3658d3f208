/* powers.c -- recursive halving and doubling, and folding any P onto a power of two. */
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
static bool stands_for_two(struct fold f) { return f.me >= 0 && f.me < f.rest; }

enum error_code fold_in(struct exchange *x, const struct collective *c, struct fold f, void *data, void *scratch,
                        struct error *err)
{
    const int r = x->group->rank;
    if (f.me < 0) return exchange_both(x, r + 1, data, bytes_of(c, c->count), -1, NULL, 0, err);
    if (!stands_for_two(f)) return OK;
    return add_from(x, c, r - 1, scratch, data, c->count, err);
}

enum error_code fold_out(struct exchange *x, const struct collective *c, struct fold f, void *data, struct error *err)
{
    const int r = x->group->rank;
    const uint64_t bytes = bytes_of(c, c->count);
    if (f.me < 0) return exchange_both(x, -1, NULL, 0, r + 1, data, bytes, err);
    return stands_for_two(f) ? exchange_both(x, r - 1, data, bytes, -1, NULL, 0, err) : OK;
}

void fold_cost(struct collective_cost *cost, const struct collective *c, struct fold f, int64_t n)
{
    if (f.me < 0 || stands_for_two(f)) cost_send(cost, c, n);
    if (stands_for_two(f)) cost->additions += (uint64_t)n;
    if (f.rest > 0) cost->steps += 2;
}

void fold_path(struct collective_cost *cost, const struct collective *c, struct fold f, int64_t n)
{
    cost->path = cost->bytes + (stands_for_two(f) ? bytes_of(c, n) : 0);
}

int64_t cut_edge(const struct collective *c, struct cut k, int part)
{
    if (k.P == 0) return block_start(c->count, k.f.core, part);
    /* A core member that works for two has the blocks of both. */
    return block_first(c, k.P, part < k.f.rest ? 2 * part : part + k.f.rest);
}

/* One level: the parts [low, high) are halved; this member keeps the half with its own part, its peer the other. */
struct level { int low, middle, high, peer; bool lower; };

static struct level level_of(struct fold f, int half)
{
    struct level l = { .low = f.me / (2 * half) * (2 * half) };
    l.middle = l.low + half;
    l.high = l.middle + half;
    l.lower = f.me < l.middle;
    l.peer = l.lower ? f.me + half : f.me - half;
    return l;
}

enum error_code halving_reduce_scatter(struct exchange *x, const struct collective *c, struct cut k, void *data,
                                       void *scratch, struct error *err)
{
    enum error_code code = OK;
    for (int half = k.f.core / 2; half >= 1 && code == OK; half /= 2) {
        const struct level l = level_of(k.f, half);
        const int64_t low = cut_edge(c, k, l.low), middle = cut_edge(c, k, l.middle), high = cut_edge(c, k, l.high);
        const int64_t keep = l.lower ? low : middle, keeping = l.lower ? middle - low : high - middle;
        const int64_t give = l.lower ? middle : low, giving = l.lower ? high - middle : middle - low;
        const int peer = fold_member(k.f, l.peer);
        /* The half that is given away is the one that the peer keeps; each adds what it is given. */
        code = send_and_add(x, c, peer, element(c, data, give), giving, peer, scratch, element(c, data, keep), keeping,
                            err);
    }
    return code;
}

enum error_code doubling_allgather(struct exchange *x, const struct collective *c, struct cut k, void *data,
                                   struct error *err)
{
    enum error_code code = OK;
    /* Levels run the other way round: in each one a member gets as much as it has. */
    for (int half = 1; half < k.f.core && code == OK; half *= 2) {
        const struct level l = level_of(k.f, half);
        const int64_t low = cut_edge(c, k, l.low), middle = cut_edge(c, k, l.middle), high = cut_edge(c, k, l.high);
        const int64_t have = l.lower ? low : middle, having = l.lower ? middle - low : high - middle;
        const int64_t want = l.lower ? middle : low, wanting = l.lower ? high - middle : middle - low;
        const int peer = fold_member(k.f, l.peer);
        code = exchange_both(x, peer, element(c, data, have), bytes_of(c, having), peer, element(c, data, want),
                             bytes_of(c, wanting), err);
    }
    return code;
}

void halving_cost(struct collective_cost *cost, const struct collective *c, struct cut k, bool reduces)
{
    for (int half = 1; half < k.f.core; half *= 2) {
        cost->steps++;
        if (k.f.me < 0) continue;
        const struct level l = level_of(k.f, half);
        const int64_t low = cut_edge(c, k, l.low), middle = cut_edge(c, k, l.middle), high = cut_edge(c, k, l.high);
        const int64_t mine = l.lower ? middle - low : high - middle;
        cost_send(cost, c, reduces ? high - low - mine : mine);
        if (reduces) cost->additions += (uint64_t)mine;
    }
}

int64_t halving_scratch(const struct collective *c, struct cut k)
{
    if (k.f.me < 0 || k.f.core < 2) return 0;
    const struct level l = level_of(k.f, k.f.core / 2);
    return l.lower ? cut_edge(c, k, l.middle) : cut_edge(c, k, l.high) - cut_edge(c, k, l.middle);
}
