/* The plans of zeppelin: zones, balanced work and rows, the fewest moved tokens, and messages by proxies.
 * tier: check
 *
 * Source  Zeppelin, arXiv:2509.21841
 */
#include "tests/devices/planning.h"
#include "emulated_devices/schemes/attention/planned/proxies.h"
#include "emulated_devices/schemes/attention/planned/remap.h"
#include <stdlib.h>
#include <string.h>

static struct context_plan plan_of(const struct context_load *l) { return plan_by("zeppelin", l); }

/* ---- zones ------------------------------------------------------------------------------------------------------- */

/* The devices with blocks of the sample that begins at a token, as bits; the first division of its work. */
static unsigned devices_of(const struct context_plan *p, int64_t first, int64_t count, int *division)
{
    unsigned set = 0;
    *division = p->divisions;
    for (int i = 0; i < p->works; i++) {
        const struct context_work *w = &p->work[i];
        const int64_t token = p->block[w->query].tokens[0].first;
        if (token < first || token >= first + count) continue;
        set |= 1u << w->device;
        if (w->division < *division) *division = w->division;
    }
    return set;
}

/* The drawing in zeppelin.c: rings between nodes, then those inside one, then whole samples. */
static void test_zones(void **state)
{
    const int64_t length[] = { 3, 16, 5, 3 };
    const struct { int64_t first, count; unsigned devices; int division; } want[] = {
        { 3, 16, 15, 0 }, { 19, 5, 3, 4 }, { 0, 3, 4, 6 }, { 24, 3, 8, 6 },
    };
    struct context_load l = load_of(length, 4, 4, 2);
    (void)state;
    l.room = 8;
    struct context_plan p = plan_of(&l);
    for (int i = 0; i < 4; i++) {
        int division;
        const unsigned devices = devices_of(&p, want[i].first, want[i].count, &division);
        if (devices != want[i].devices || division != want[i].division)
            fail_msg("sample of %d tokens at %d: devices %x from division %d on, not %x from %d", (int)want[i].count,
                     (int)want[i].first, devices, division, want[i].devices, want[i].division);
    }
    assert_int_equal(p.proxies, 2);
    context_plan_free(&p);
}

static void hold_refused(struct context_load l, const char *says)
{
    const struct attention_scheme *s;
    struct context_plan p;
    assert_int_equal(attention_scheme_find(&s, "zeppelin", &err), OK);
    const enum error_code e = s->plan(&p, &l, &err);
    if (e != ERR_PLAN || !strstr(err.text, says)) fail_msg("\"%s\" instead of \"%s\"", e ? err.text : "accepted", says);
}

static void test_refused(void **state)
{
    const int64_t length[] = { 33, 4 };
    struct context_load l = load_of(length, 2, 4, 3);
    (void)state;
    hold_refused(l, "zeppelin: 4 devices are not whole nodes of 3");
    l.node = 2, l.room = 8;
    hold_refused(l, "zeppelin: a sample of 33 tokens is longer than all 4 devices hold: 8 each");
    l.room = 9;
    hold_refused(l, "zeppelin: samples of 37 tokens do not fit on 4 devices that hold 9 each");
    l.room = 12;
    struct context_plan p = plan_of(&l);
    context_plan_free(&p);
}

/* ---- balance ----------------------------------------------------------------------------------------------------- */

static double imbalance_of_rows(const struct context_plan *p)
{
    double most = 0;
    for (int d = 0; d < p->devices; d++) most = fmax(most, (double)tokens_on(p, d));
    return most * p->devices / (double)p->tokens;
}

/* The worse of the imbalances of pairs and of tokens if samples lie in a row over all devices, and if each is whole on
 * the device with the least work. */
static void others(const struct context_load *l, double *in_a_row, double *whole)
{
    double pairs[2][64] = { { 0 } }, tokens[64] = { 0 }, most[2] = { 0 }, full = 0, sum = 0;
    struct interval *const sample = context_samples(l);
    const int P = l->devices;
    for (int i = 0; i < l->samples; i++) {
        int least = 0;
        for (int64_t t = 0; t < sample[i].count; t++) {
            int d = 0;
            while (block_start(l->tokens, P, d + 1) <= sample[i].first + t) d++;
            pairs[0][d] += (double)t + 1;
        }
        for (int d = 1; d < P; d++)
            if (pairs[1][d] < pairs[1][least]) least = d;
        pairs[1][least] += (double)sample[i].count * (double)(sample[i].count + 1) / 2;
        tokens[least] += (double)sample[i].count;
    }
    for (int d = 0; d < P; d++) {
        for (int k = 0; k < 2; k++) most[k] = fmax(most[k], pairs[k][d]);
        full = fmax(full, tokens[d]), sum += pairs[0][d];
    }
    *in_a_row = most[0] * P / sum, *whole = fmax(most[1] * P / sum, full * P / (double)l->tokens);
    free(sample);
}

/* Work in attention and rows outside it are both within a tenth of the mean, and not half as much is sent as on rings
 * of all devices. */
static void test_balance(void **state)
{
    (void)state;
    int64_t length[MOST_LENGTHS];
    for (uint64_t seed = 1; seed <= 20; seed++)
        for (int node = 2; node <= 8; node *= 2) {
            const struct context_load l = load_of(length, lognormal(length, 4096, seed), 8, node);
            struct context_plan p = plan_of(&l);
            double in_a_row, whole;
            int64_t moved = 0;
            others(&l, &in_a_row, &whole);
            for (int i = 0; i < p.moves; i++) moved += context_block_tokens(&p.block[p.move[i].block]);
            if (imbalance(&p) > 1.1 || imbalance_of_rows(&p) > 1.1)
                fail_msg("seed %d, nodes of %d: the busiest device has %.3f times the mean pairs, %.3f times the rows",
                         (int)seed, node, imbalance(&p), imbalance_of_rows(&p));
            if (in_a_row <= 1.1 || whole <= 1.1)
                fail_msg("seed %d: in a row %.3f, whole samples %.3f: nothing to balance", (int)seed, in_a_row, whole);
            if (2 * moved > 7 * l.tokens)
                fail_msg("seed %d, nodes of %d: %lld tokens' keys are moved, %lld on rings of all devices", (int)seed,
                         node, (long long)moved, (long long)(7 * l.tokens));
            context_plan_free(&p);
        }
}

/* ---- rows outside attention -------------------------------------------------------------------------------------- */

struct moving { int64_t from[8][MOST_LENGTHS], to[8][MOST_LENGTHS], moved, between; int node; bool back; };

static void move_run(void *context, const struct remap_run *r)
{
    struct moving *m = context;
    for (int64_t i = 0; i < r->count; i++) {
        int64_t *const in = &m->to[r->inside][r->row_inside + i], *const out = &m->from[r->outside][r->row_outside + i];
        if (m->back) *out = *in;
        else *in = *out;
    }
    if (r->inside != r->outside) m->moved += r->count;
    if (r->inside / m->node != r->outside / m->node) m->between += r->count;
}

static int64_t attended_on(const struct context_plan *p, int device)
{
    struct intervals own = { 0 };
    context_plan_attended(&own, p, device);
    const int64_t n = intervals_total(&own);
    intervals_free(&own);
    return n;
}

/* Each device gets its tokens of attention, in their order, and gives them back. */
static void hold_moving(const struct context_plan *p, struct moving *m)
{
    memset(m->from, 255, sizeof m->from), memset(m->to, 255, sizeof m->to);
    m->back = false, m->moved = m->between = 0;
    for (int d = 0; d < p->devices; d++) {
        struct intervals own = { 0 };
        int64_t n = 0;
        context_plan_tokens(&own, p, d);
        for (int i = 0; i < own.count; i++)
            for (int64_t k = 0; k < own.at[i].count; k++) m->from[d][n++] = own.at[i].first + k;
        intervals_free(&own);
    }
    static int64_t before[8][MOST_LENGTHS];
    memcpy(before, m->from, sizeof before);
    remap_each(p, move_run, m);
    for (int d = 0; d < p->devices; d++) {
        int64_t n = 0;
        for (int b = 0; b < p->blocks; b++)
            for (int i = 0; i < 2 && p->block[b].home == d; i++)
                for (int64_t k = 0; k < p->block[b].tokens[i].count; k++)
                    if (m->to[d][n++] != p->block[b].tokens[i].first + k)
                        fail_msg("row %lld of device %d in attention is token %lld", (long long)n - 1, d,
                                 (long long)m->to[d][n - 1]);
    }
    memset(m->from, 255, sizeof m->from);
    m->back = true;
    const int64_t moved = m->moved, between = m->between;
    remap_each(p, move_run, m);
    if (memcmp(before, m->from, sizeof before) != 0) fail_msg("rows that come back are not those that left");
    m->moved = moved, m->between = between;
}

static void test_rows(void **state)
{
    static struct moving m;
    int64_t length[MOST_LENGTHS], all = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++)
        for (int node = 2; node <= 8; node *= 2) {
            const struct context_load l = load_of(length, lognormal(length, 2048, seed), 8, node);
            struct context_plan p = plan_of(&l);
            const int64_t mean = l.tokens / 8;
            int64_t least = 0, between = 0;
            for (int k = 0; k < 8; k += node) {
                int64_t over = 0;
                for (int d = k; d < k + node; d++) {
                    const int64_t n = attended_on(&p, d);
                    least += n > mean ? n - mean : 0, over += n - mean;
                }
                between += over > 0 ? over : 0;
            }
            m.node = node;
            if (p.rows > 0) hold_moving(&p, &m);
            else m.moved = m.between = 0;
            if (m.moved != least || m.between != between)
                fail_msg("seed %d, nodes of %d: %lld tokens are moved, %lld between nodes; at least %lld and %lld",
                         (int)seed, node, (long long)m.moved, (long long)m.between, (long long)least,
                         (long long)between);
            all += m.moved;
            context_plan_free(&p);
        }
    assert_true(all > 0);
}

/* ---- proxies ----------------------------------------------------------------------------------------------------- */

enum { NODE = 4, COUNT = 12 };

/* Numbers of a message of n, where each device has them: after each stage. */
static void test_proxies(void **state)
{
    (void)state;
    for (int from = 0; from < 2 * NODE; from++)
        for (int to = 0; to < 2 * NODE; to++)
            for (int n = 1; n <= COUNT && from != to; n++) {
                const bool other = from / NODE != to / NODE;
                int has[2 * NODE] = { 0 }, card[2 * NODE] = { 0 }, inside = 0;
                has[from] = (1 << n) - 1;
                for (enum proxy_stage stage = PROXY_DISPATCH; stage < PROXY_STAGES; stage++)
                    for (int i = 0; i < proxy_parts(NODE, from, to); i++) {
                        const struct proxy_hop h = proxy_hop(NODE, from, to, n, stage, i);
                        const int part = ((1 << h.part.count) - 1) << h.part.first;
                        if ((has[h.from] & part) != part)
                            fail_msg("device %d sends what it does not have, at stage %d", h.from, (int)stage);
                        has[h.to] |= part;
                        const bool leaves = h.from / NODE != h.to / NODE;
                        if (leaves) card[h.from] += (int)h.part.count;
                        else if (h.from != h.to) inside += (int)h.part.count;
                    }
                assert_int_equal(has[to], (1 << n) - 1);
                for (int d = 0; d < 2 * NODE; d++) assert_true(card[d] <= (other ? (n + NODE - 1) / NODE : 0));
                if (n % NODE == 0) assert_int_equal(inside, other ? 2 * n * (NODE - 1) / NODE : n);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_zones), cmocka_unit_test(test_refused),
                                        cmocka_unit_test(test_balance), cmocka_unit_test(test_rows),
                                        cmocka_unit_test(test_proxies) };
    return cmocka_run_group_tests_name("zeppelin", tests, NULL, NULL);
}
