/* zeppelin on devices in nodes: output and gradients beside the operation on one device, and messages between nodes
 * that all devices carry: the same bits, and of each card an equal part.
 * ranks: 2 4
 * verify ranks: 1 3 6 8
 */
#include "tests/devices/tokens.h"
#include "emulated_devices/verify/cases/attention.h"
#include "ref/numeric/philox.h"
#include <string.h>

enum { H = 4, K = 2, A = 4, WIDTH = (H + 2 * K) * A, MOST = 1200, PASSES = 2 };

static struct error err;
static struct cluster cluster;

#define MUST(call) ASSERT_ALL((call) == OK, "%s: %s", name, err.text)

/* ---- a text ------------------------------------------------------------------------------------------------------ */

struct text { int64_t tokens; int32_t within[MOST], sees[2 * MOST]; };

static void add_sample(struct text *t, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = t->tokens + i;
        t->within[at] = (int32_t)i, t->sees[2 * at] = (int32_t)t->tokens, t->sees[2 * at + 1] = (int32_t)at + 1;
    }
    t->tokens += n;
}

/* Many short samples and few long ones. */
static void draw(struct text *t, uint64_t seed)
{
    t->tokens = 0;
    for (int i = 0; i < 4 + (int)seed; i++)
        add_sample(t, 1 + (int64_t)(150 * pow(random_uniform(seed, 1, (uint64_t)i), 4)));
}

/* ---- a layer ----------------------------------------------------------------------------------------------------- */

struct layer { struct plan plan; struct attention_layer l; struct intervals own; };

static void open_layer(const char *name, struct layer *x, struct text *t, int node)
{
    MUST(cluster_find(&cluster, CLUSTER_USUAL, &err));
    cluster.levels = 2, cluster.link[0].devices = node, cluster.link[1].devices = 0;
    clock_restart(&device.clock, &cluster, F64);
    MUST(attention_layer_plan(&x->plan, (struct attention_shape){ 1, t->tokens, H, K, A }, F64, "zeppelin",
                              (struct context_split){ 0 }, test_size, &cluster, &err));
    x->plan.within = t->within;
    MUST(attention_layer_open(&x->l, &x->plan, &comm, tensor_2d(t->sees, I32, t->tokens, 2), &err));
    x->own = context_tokens(&x->l.cp);
    fill_own(x->l.call.qkv, x->own, 1), fill_own(x->l.call.d_out, x->own, 2);
}

static void close_layer(struct layer *x) { attention_layer_close(&x->l), intervals_free(&x->own); }

/* @return what this device has sent, as foreseen. */
static struct traffic pass(const char *name, struct layer *x, enum tensor_pass which)
{
    const struct account before = comm.counted.of[TRAFFIC_ATTENTION];
    const struct traffic foreseen = attention_layer_cost(&x->l, which);
    MUST(attention_layer_pass(&x->l, which, &err));
    struct account own = comm.counted.of[TRAFFIC_ATTENTION];
    account_add(&own, before, -1);
    const struct traffic counted = account_total(&own);
    ASSERT_ALL(traffic_equal(&counted, &foreseen, -1), "%s: %llu bytes, foreseen %llu", name,
               (unsigned long long)counted.bytes_sent, (unsigned long long)foreseen.bytes_sent);
    return counted;
}

/* ---- like one device --------------------------------------------------------------------------------------------- */

static void hold_text(uint64_t seed, int node)
{
    static struct text t;
    struct layer x;
    char name[80];
    draw(&t, seed);
    snprintf(name, sizeof name, "nodes of %d, text %d of %d tokens", node, (int)seed, (int)t.tokens);
    open_layer(name, &x, &t, node);
    struct intervals all = intervals_whole(t.tokens);
    const struct tensor qkv = host(t.tokens, WIDTH), d_qkv = host(t.tokens, WIDTH), out = host(t.tokens, H * A),
                        d_out = host(t.tokens, H * A), lse = host(H, t.tokens);
    fill(qkv, all, 1), fill(d_out, all, 2);
    ops_for(F64)->attention_forward(out, lse, qkv, x.l.call.shape);
    ops_for(F64)->attention_backward_input(d_qkv, d_out, out, lse, qkv, x.l.call.shape);
    pass(name, &x, FORWARD_PASS);
    hold(name, "output", x.l.call.out, x.own, out);
    pass(name, &x, INPUT_PASS);
    hold(name, "gradient", x.l.call.d_qkv, x.own, d_qkv);
    const int64_t mean = t.tokens / test_size;
    ASSERT_ALL(intervals_total(&x.own) <= mean + 1, "%s: a device has %d rows", name, (int)intervals_total(&x.own));
    close_layer(&x), intervals_free(&all);
    free(qkv.data), free(d_qkv.data), free(out.data), free(d_out.data), free(lse.data);
}

static void test_one_device(void **state)
{
    (void)state;
    for (int node = 1; node <= test_size; node++)
        for (uint64_t seed = 1; seed <= 6 && test_size % node == 0; seed++) hold_text(seed, node);
}

/* ---- proxies ----------------------------------------------------------------------------------------------------- */

enum { EACH = 24 };                     /* tokens of a device, in blocks that nodes of 2, 3 and 4 devices cut evenly */

static void copy_out(struct tensor t, double *to)
{
    struct views v = views_of(&device);
    memcpy(to, view_read(&v, t).data, tensor_bytes(t));
    views_end(&v);
}

/* One sample on a ring of all; what a device sends to other nodes, and in all, in each pass. */
static void run_ring(const char *name, int node, bool straight, uint64_t between[PASSES], uint64_t all[PASSES],
                     double results[])
{
    static struct text t;
    struct layer x;
    t.tokens = 0;
    add_sample(&t, EACH * test_size);
    open_layer(name, &x, &t, node);
    ASSERT_ALL(x.l.placed.proxies == node && x.l.placed.blocks == test_size, "%s: %d blocks, %d proxies", name,
               x.l.placed.blocks, x.l.placed.proxies);
    if (straight) x.l.placed.proxies = 0;
    for (int i = 0; i < PASSES; i++) {
        const struct traffic sent = pass(name, &x, i == 0 ? FORWARD_PASS : INPUT_PASS);
        between[i] = sent.level[1].bytes, all[i] = sent.bytes_sent;
    }
    copy_out(x.l.call.out, results), copy_out(x.l.call.d_qkv, results + EACH * H * A);
    close_layer(&x);
}

static uint64_t sum_of(uint64_t own)
{
    uint64_t all[MESH_MOST_LISTED] = { 0 }, sum = 0;
    assert_int_equal(comm_bring(&comm, &own, sizeof own, all, &err), OK);
    for (int i = 0; i < test_size; i++) sum += all[i];
    return sum;
}

/* Forward each of P-1 steps sends a device's keys between every two nodes; backward also gradients of keys, from each
 * device of another node. */
static void hold_proxies(int node)
{
    static double results[2][EACH * (H * A + WIDTH)];
    uint64_t between[2][PASSES], all[2][PASSES];
    char name[80];
    snprintf(name, sizeof name, "nodes of %d", node);
    run_ring(name, node, false, between[0], all[0], results[0]);
    run_ring(name, node, true, between[1], all[1], results[1]);
    ASSERT_ALL(memcmp(results[0], results[1], sizeof results[0]) == 0, "%s: other bits than straight messages",
               name);
    const uint64_t P = (uint64_t)test_size, G = (uint64_t)node, n = EACH * 2 * K * A * sizeof(double);
    const bool last = comm.rank % node == node - 1;
    const uint64_t straight[PASSES] = { last ? (P - 1) * n : 0, (last ? (P - 1) * n : 0) + (P - G) * n };
    const uint64_t card[PASSES] = { (P - 1) * n / G, (P - 1) * n / G + (P - G) * n };
    for (int i = 0; i < PASSES; i++) {
        const uint64_t crosses = P / G * (P - 1) * n + (i ? P * (P - G) * n : 0);
        const uint64_t inside = (P - P / G) * (P - 1) * n + (i ? P * (G - 1) * n : 0) + crosses * 2 * (G - 1) / G;
        ASSERT_ALL(between[0][i] == card[i], "%s: pass %d: %llu bytes leave a card, not %llu", name, i,
                   (unsigned long long)between[0][i], (unsigned long long)card[i]);
        ASSERT_ALL(between[1][i] == straight[i], "%s: pass %d: %llu bytes leave a card straight, not %llu", name, i,
                   (unsigned long long)between[1][i], (unsigned long long)straight[i]);
        const uint64_t sum = sum_of(all[0][i]);
        ASSERT_ALL(comm.rank > 0 || sum == crosses + inside, "%s: pass %d: all send %llu bytes, not %llu", name, i,
                   (unsigned long long)sum, (unsigned long long)(crosses + inside));
    }
}

static void test_proxies(void **state)
{
    (void)state;
    for (int node = 1; node < test_size; node++)
        if (test_size % node == 0) hold_proxies(node);
}

int main(void)
{
    const struct CMUnitTest tests[] = { ON_DEVICES(test_one_device), ON_DEVICES(test_proxies) };
    return MPI_RUN("zeppelin on devices", tests);
}
