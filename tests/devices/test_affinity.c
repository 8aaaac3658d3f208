/* Speculative dispatch: grouping of tokens and experts, the order of rows that follows, and what is sent because of it.
 * ranks: 1 2 4
 * verify ranks: 3 6 8
 *
 * Rows sent to other devices are counted in a run, and once more from the one-device model's choices and the table.
 * That results do not depend on the table is in the cases of every layout: case_take_experts.
 */
#include "emulated_devices/schemes/experts/affinity_pairs.h"
#include "emulated_devices/schemes/experts/cocluster.h"
#include "emulated_devices/verify/cases/case.h"
#include "ref/io/output.h"
#include "ref/numeric/philox.h"
#include "tests/devices/session.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 64 };

static struct error err;
static uint64_t drawn;
static int64_t below(int64_t n) { return (int64_t)(random_uniform(7, 1, drawn++) * (double)n); }

/* ---- the order of rows ------------------------------------------------------------------------------------------- */

/* Every row is somewhere; those of a block ascend; as many as have room are where their experts are. */
static void check_order(const struct affinity *a, const int32_t *id, int64_t n, const int own[], int devices)
{
    int32_t order[MOST], part_of[MOST + 1];
    int64_t right = 0, most = 0, seen[MOST] = { 0 };
    for (int64_t i = 0; i < n; i++) part_of[i] = affinity_part_at(a, id, MOST, i);
    assert_int_equal(affinity_order(part_of, n, own, devices, order, &err), OK);
    for (int r = 0; r < devices; r++) {
        const struct interval block = block_at(n, devices, r);
        for (int64_t i = block.first; i < interval_end(block); i++) {
            assert_true(i == block.first || order[i] > order[i - 1]);
            seen[order[i]]++;
            right += part_of[order[i]] == own[r];
        }
    }
    for (int part = 0; part < a->parts; part++) {
        int64_t wish = 0, room = 0;
        for (int64_t i = 0; i < n; i++) wish += part_of[i] == part;
        for (int r = 0; r < devices; r++) room += own[r] == part ? block_at(n, devices, r).count : 0;
        most += wish < room ? wish : room;
    }
    for (int64_t i = 0; i < n; i++) assert_int_equal(seen[i], 1);
    assert_int_equal(right, most);
}

static void test_rows_are_where_their_experts_are(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        int32_t part[10], id[MOST];
        int own[8];
        const int parts = 1 + (int)below(6), devices = 1 + (int)below(8);
        const int64_t n = below(MOST);
        struct affinity_pair pair[3] = { { 1, 4, 0 }, { 2, 2, parts - 1 }, { 7, 0, parts / 2 } };
        const struct affinity a = { 10, parts, part, i % 4, pair };
        for (int v = 0; v < 10; v++) part[v] = (int32_t)below(parts + 1) - 1;
        for (int64_t j = 0; j < n; j++) id[j] = (int32_t)below(10);
        for (int r = 0; r < devices; r++) own[r] = (int)below(parts);
        check_order(&a, id, n, own, devices);
    }
}

static void test_a_file_holds_the_table(void **state)
{
    static int32_t part[] = { 3, -1, 0, 2, 2 };
    static struct affinity_pair pair[] = { { 0, 3, 1 }, { 2, 0, 3 }, { 2, 4, 0 } };
    const struct affinity a = { 5, 4, part, 3, pair };
    struct affinity again;
    char path[600];
    (void)state;
    snprintf(path, sizeof path, "%s/orrery_affinity_%ld.json", temporary_folder(), (long)getpid());
    ASSERT_ALL(affinity_write(&a, path, &err) == OK && affinity_read(&again, path, &err) == OK, "%s", err.text);
    remove(path);
    assert_true(again.V == a.V && again.parts == a.parts && memcmp(again.part, part, sizeof part) == 0);
    assert_true(again.pairs == 3 && memcmp(again.pair, pair, sizeof pair) == 0);
    affinity_free(&again);
}

/* ---- pairs of tokens --------------------------------------------------------------------------------------------- */

/* A token's experts follow from the token before it alone: by itself it says nothing, behind another all. */
static void test_planted_pairs_are_found(void **state)
{
    enum { V = 12, P = 3 };
    struct pair_counts counts = { .V = V, .parts = P };
    int32_t part[V], ids[2];
    double share[V * P];
    struct affinity a = { V, P, part };
    (void)state;
    for (int v = 0; v < V; v++) part[v] = 0;
    for (int i = 0; i < V * P; i++) share[i] = 1.0 / P;
    for (int before = 0; before < V; before++)
        for (int v = 0; v < V; v++)
            for (int n = 0; n < 50; n++)
                assert_int_equal(pair_counts_add(&counts, before, v, (before + v) % P, &err), OK);
    /* Seen once, against all that is known of the token. */
    share[5 * P] = 0.9, share[5 * P + 1] = share[5 * P + 2] = 0.05;
    assert_int_equal(pair_counts_list(&counts, share, &a, &err), OK);
    assert_int_equal(a.pairs, V * V - V * V / P);       /* the others say what the token says */
    for (ids[0] = 0; ids[0] < V; ids[0]++)
        for (ids[1] = 0; ids[1] < V; ids[1]++) {
            assert_int_equal(affinity_part_at(&a, ids, 2, 1), (ids[0] + ids[1]) % P);
            assert_int_equal(affinity_part_at(&a, ids, 1, 1), 0);       /* the first of its sequence */
        }
    free(a.pair), pair_counts_free(&counts);
}

/* A pair that was seen once does not outweigh the counts of its token. */
static void test_rare_pairs_say_what_the_token_says(void **state)
{
    struct pair_counts counts = { .V = 4, .parts = 2 };
    int32_t part[4] = { 0, 0, 0, 0 };
    const double share[8] = { 0.9, 0.1, 0.9, 0.1, 0.9, 0.1, 0.9, 0.1 };
    struct affinity a = { 4, 2, part };
    (void)state;
    assert_int_equal(pair_counts_add(&counts, 1, 2, 1, &err), OK);
    for (int n = 0; n < 100; n++) assert_int_equal(pair_counts_add(&counts, 3, 1, 1, &err), OK);
    assert_int_equal(pair_counts_list(&counts, share, &a, &err), OK);
    assert_int_equal(a.pairs, 1);
    assert_true(a.pair[0].before == 3 && a.pair[0].token == 1 && a.pair[0].part == 1);
    free(a.pair), pair_counts_free(&counts);
}

/* ---- grouping ---------------------------------------------------------------------------------------------------- */

static void check_sizes(const struct clusters *c, int64_t L, int64_t E)
{
    for (int64_t l = 0; l < L; l++)
        for (int p = 0; p < c->parts; p++) {
            int64_t count = 0;
            for (int64_t e = 0; e < E; e++) count += c->of_expert[l * E + e] == p;
            assert_int_equal(count, block_at(E, c->parts, p).count);
        }
}

/* Experts of a group are drawn for each layer; tokens choose only experts of theirs: all choices become local. */
static void test_planted_groups_are_found(void **state)
{
    enum { L = 3, V = 40, E = 8, P = 4 };
    static uint32_t count[L * V * E];
    const struct activations a = { L, V, E, count };
    struct clusters c;
    (void)state;
    for (int64_t l = 0; l < L; l++) {
        int32_t group[E];
        for (int e = 0; e < E; e++) group[e] = e / (E / P);
        for (int e = E - 1; e > 0; e--) {
            const int64_t other = below(e + 1);
            const int32_t was = group[e];
            group[e] = group[other], group[other] = was;
        }
        for (int64_t v = 0; v < V; v++)
            for (int64_t e = 0; e < E; e++) count[(l * V + v) * E + e] = group[e] == v % P ? 100 : 0;
    }
    assert_int_equal(cocluster(&a, P, &c, &err), OK);
    assert_true(clusters_local(&a, &c) == 1);
    assert_true(clusters_imbalance(&a, &c) == 1);
    check_sizes(&c, L, E);
    clusters_free(&c);
}

/* The best grouping of one layer by trying all; loads are equal, so that the limits do not bind. */
static double best_of_all(const struct activations *a)
{
    double best = 0;
    struct clusters c = { 2, calloc((size_t)a->V, sizeof *c.of_token), calloc((size_t)a->E, sizeof *c.of_expert) };
    assert_true(c.of_token && c.of_expert);
    for (int experts = 0; experts < 1 << a->E; experts++) {
        if (__builtin_popcount((unsigned)experts) * 2 != a->E) continue;
        for (int64_t e = 0; e < a->E; e++) c.of_expert[e] = experts >> e & 1;
        for (int tokens = 0; tokens < 1 << a->V; tokens++) {
            if (__builtin_popcount((unsigned)tokens) * 2 != a->V) continue;
            for (int64_t v = 0; v < a->V; v++) c.of_token[v] = tokens >> v & 1;
            const double local = clusters_local(a, &c);
            if (local > best) best = local;
        }
    }
    clusters_free(&c);
    return best;
}

/* Token v chooses experts by a Latin square, so that tokens, and experts, have as many choices. */
static void test_small_cases_are_near_the_best(void **state)
{
    enum { N = 6 };
    static const uint32_t weight[N] = { 9, 1, 5, 2, 7, 0 };
    uint32_t count[N * N];
    const struct activations a = { 1, N, N, count };
    (void)state;
    for (int i = 0; i < 20; i++) {
        int row[N], column[N];
        struct clusters c;
        for (int j = 0; j < N; j++) row[j] = column[j] = j;
        for (int j = N - 1; j > 0; j--) {
            const int64_t r = below(j + 1), s = below(j + 1);
            const int was = row[j], other = column[j];
            row[j] = row[r], row[r] = was, column[j] = column[s], column[s] = other;
        }
        for (int v = 0; v < N; v++)
            for (int e = 0; e < N; e++) count[v * N + e] = weight[(row[v] + column[e]) % N];
        assert_int_equal(cocluster(&a, 2, &c, &err), OK);
        const double found = clusters_local(&a, &c), best = best_of_all(&a);
        ASSERT_ALL(found >= 0.95 * best, "case %d: %g of the choices are local; %g can be", i, found, best);
        check_sizes(&c, 1, N);
        clusters_free(&c);
    }
}

/* Uneven parts, tokens that are never seen, experts that nobody chooses. */
static void test_uneven_parts(void **state)
{
    enum { L = 2, V = 30, E = 7 };
    static uint32_t count[L * V * E];
    const struct activations a = { L, V, E, count };
    (void)state;
    for (int i = 0; i < L * V * E; i++) count[i] = i / E % V < 25 && i % E != 3 ? (uint32_t)below(50) : 0;
    for (int parts = 1; parts <= 9; parts++) {
        struct clusters c;
        assert_int_equal(cocluster(&a, parts, &c, &err), OK);
        check_sizes(&c, L, E);
        for (int64_t v = 0; v < V; v++) {
            const int least = v < 25 ? 0 : -1, most = v < 25 ? parts - 1 : -1;
            assert_in_range(c.of_token[v] + 1, least + 1, most + 1);
        }
        assert_true(clusters_local(&a, &c) >= 1.0 / parts);
        clusters_free(&c);
    }
}

/* Busy experts want to be together, as the same tokens choose them: the limit keeps them apart. */
static void test_loads_have_a_limit(void **state)
{
    enum { V = 24, E = 12, P = 3 };
    static uint32_t count[V * E];
    const struct activations a = { 1, V, E, count };
    struct clusters c;
    (void)state;
    for (int v = 0; v < V; v++)
        for (int e = 0; e < E; e++) count[v * E + e] = (uint32_t)(below(5) + (e < 4 ? 45 : 30) * (v % P == e / 4));
    assert_int_equal(cocluster(&a, P, &c, &err), OK);
    const double most = clusters_imbalance(&a, &c);
    ASSERT_ALL(most <= 1 + COCLUSTER_SLACK, "the part with most has %.2f of the mean", most);
    clusters_free(&c);
}

/* ---- what is sent ------------------------------------------------------------------------------------------------ */

static struct plan tensor_plan(const char *tensor, const struct affinity *a)
{
    struct plan p = case_plan(1, test_size, 1);
    case_take_mixtral(&p);
    p.model.mixture.capacity_factor = 0, p.model.mixture.sequence_coefficient = 0;
    p.ep = test_size, p.dispatch = "speculative", p.affinity = a, p.micros = 1;
    if (test_size > 1) p.tensor = tensor;
    ASSERT_ALL(plan_check(&p, &err) == OK, "%s", err.text);
    return p;
}

static void fill(const void *context, int64_t step, int64_t first, int64_t count, int32_t *ids, int32_t *labels,
                 int32_t *within)
{
    const struct plan *p = context;
    (void)step, (void)within;
    for (int64_t i = 0; i < count * p->S; i++) {
        const uint64_t at = (uint64_t)(first * p->S + i);
        ids[i] = (int32_t)(random_uniform(3, 1, at) * (double)p->model.V);
        labels[i] = (int32_t)(random_uniform(3, 2, at) * (double)p->model.V);
    }
}

static int32_t part_of_expert(const struct plan *p, int64_t expert)
{
    int32_t part = 0;
    while (expert >= interval_end(block_at(p->model.mixture.E, plan_ep(p), part))) part++;
    return part;
}

/* Choices of tokens behind others, by part. */
static uint32_t behind[MOST][MOST][8];

/* Rows that go to other devices in all layers, by the one-device model's choices; in `seen`, what tokens chose, in
 * `behind` what they chose behind others. */
static int64_t rows_by_choices(const struct plan *p, struct activations *seen)
{
    const int64_t N = p->B * p->S, k = p->model.mixture.k;
    int32_t *const ids = malloc((size_t)(4 * N) * sizeof *ids), *const order = ids + 2 * N, *const part = ids + 3 * N;
    struct transformer m;
    int own[MESH_MOST_LISTED];
    int64_t rows = 0;
    double loss;
    assert_non_null(ids);
    fill(p, 0, 0, p->B, ids, ids + N, NULL);
    assert_int_equal(transformer_open(&m, &p->model, F64, p->seed, &err), OK);
    assert_int_equal(transformer_forward(&m, ids, ids + N, p->B, p->S, &loss, &err), OK);
    for (int r = 0; r < test_size; r++) own[r] = r;
    for (int64_t i = 0; i < N; i++) part[i] = affinity_part_at(p->affinity, ids, p->S, i);
    assert_int_equal(affinity_order(part, N, own, test_size, order, &err), OK);
    for (int r = 0; r < test_size; r++)
        for (int64_t l = 0; l < p->model.L; l++)
            for (int64_t i = block_start(N, test_size, r); i < block_start(N, test_size, r + 1); i++)
                for (int64_t c = 0; c < k; c++) {
                    const int64_t expert = ((const int32_t *)m.block[l].experts.data)[order[i] * k + c];
                    rows += part_of_expert(p, expert) != r;
                    seen->count[(l * seen->V + ids[order[i]]) * seen->E + expert]++;
                    if (order[i] % p->S > 0)
                        behind[ids[order[i] - 1]][ids[order[i]]][part_of_expert(p, expert)]++;
                }
    transformer_close(&m), free(ids);
    return rows;
}

/* The same, of a run. */
static int64_t rows_of_run(struct plan *p)
{
    struct session s;
    double rows = 0;
    session_open(&s, p, (struct batch_source){ fill, p });
    session_gradients(&s);
    for (int l = 0; l < p->model.L; l++) {
        const struct expert_routing *r = &s.trainer.stage[0].micro[0].routing[l + 1];
        for (int m = 0; m < test_size && r->hops > 0; m++) rows += m == test_rank ? 0 : (double)r->hop[0].sent[m];
    }
    ASSERT_ALL(allreduce(&s.trainer.world, &rows, 1, F64, SUM, NULL, &err) == OK, "%s", err.text);
    session_close(&s);
    return (int64_t)rows;
}

/* For each pair of the batch the part that it chose most. */
static int64_t list_behind(int64_t V, struct affinity_pair *pair)
{
    int64_t n = 0;
    for (int32_t before = 0; before < V; before++)
        for (int32_t v = 0; v < V; v++) {
            int32_t best = 0;
            for (int32_t r = 1; r < test_size; r++)
                if (behind[before][v][r] > behind[before][v][best]) best = r;
            if (behind[before][v][best] > 0) pair[n++] = (struct affinity_pair){ before, v, best };
        }
    return n;
}

/* Tables of groups that were found, of nothing, of the worst device for each token, and of pairs beside the first. */
static void test_rows_sent_follow_the_table(void **state)
{
    static int32_t part[3][MOST];
    static uint32_t count[9 * MOST * 8];
    static const char *const tensors[] = { "1d", "1d-sp" };
    static struct affinity_pair pair[MOST * MOST];
    struct affinity a[4];
    int64_t sent[4];
    (void)state;
    struct plan p = tensor_plan("1d", NULL);
    memset(behind, 0, sizeof behind);
    struct activations seen = { p.model.L, p.model.V, p.model.mixture.E, count };
    for (int i = 0; i < 3; i++) {
        a[i] = (struct affinity){ p.model.V, test_size, part[i] };
        for (int64_t v = 0; v < p.model.V; v++) part[i][v] = -1;
    }
    p.affinity = &a[0];
    (void)rows_by_choices(&p, &seen);
    for (int64_t v = 0; v < p.model.V; v++) {           /* the part with most choices, and that with fewest */
        int64_t of[MESH_MOST_LISTED] = { 0 };
        for (int64_t l = 0; l < seen.L; l++)
            for (int64_t e = 0; e < seen.E; e++) of[part_of_expert(&p, e)] += count[(l * seen.V + v) * seen.E + e];
        part[1][v] = part[2][v] = 0;
        for (int r = 1; r < test_size; r++) {
            if (of[r] > of[part[1][v]]) part[1][v] = r;
            if (of[r] < of[part[2][v]]) part[2][v] = r;
        }
    }
    a[3] = a[1], a[3].pair = pair, a[3].pairs = list_behind(p.model.V, pair);
    assert_true(a[3].pairs > 0);
    for (int t = 0; t < 2; t++) {
        for (int i = 0; i < 4; i++) {
            p = tensor_plan(tensors[t], &a[i]);
            const int64_t formula = rows_by_choices(&p, &seen);
            sent[i] = rows_of_run(&p);
            ASSERT_ALL(sent[i] == formula, "%s, table %d: %lld rows go to other devices; by the choices %lld",
                       tensors[t], i, (long long)sent[i], (long long)formula);
        }
        /* Where devices have no room for all rows that want to be there, a better table may send a few more. */
        ASSERT_ALL(test_size == 1 || (sent[3] < sent[0] && sent[3] != sent[1]),
                   "%s: %lld rows are sent with pairs, %lld without, %lld without a table", tensors[t],
                   (long long)sent[3], (long long)sent[1], (long long)sent[0]);
        ASSERT_ALL(test_size == 1 || (sent[1] < sent[0] && sent[0] < sent[2]), "%s: %lld rows are sent with a good "
                   "table, %lld without one, %lld with the worst", tensors[t], (long long)sent[1], (long long)sent[0],
                   (long long)sent[2]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { MPI_TEST(test_rows_are_where_their_experts_are),
                                        MPI_TEST(test_a_file_holds_the_table),
                                        MPI_TEST(test_planted_pairs_are_found),
                                        MPI_TEST(test_rare_pairs_say_what_the_token_says),
                                        MPI_TEST(test_planted_groups_are_found),
                                        MPI_TEST(test_small_cases_are_near_the_best), MPI_TEST(test_uneven_parts),
                                        MPI_TEST(test_loads_have_a_limit),
                                        MPI_TEST(test_rows_sent_follow_the_table) };
    return MPI_RUN("affinity", tests);
}
