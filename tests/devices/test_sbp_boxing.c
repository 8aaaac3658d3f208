/* Every journey from one signature to another: what arrives is right, and what was sent is what the table says.
 *
 * ranks: 2 4
 * verify ranks: 6
 */
#include "tests/devices/on_devices.h"
#include "emulated_devices/schemes/sbp/boxing.h"
#include <math.h>

static uint64_t bytes_sent(void)
{
    uint64_t sum = 0;
    for (int op = 0; op < CONTROL; op++) sum += comm.counted.of[TRAFFIC_OTHER].of[op].bytes_sent;
    return sum;
}

/* Element i of the whole: small integers, so that sums are exact. */
static double whole_at(int64_t i) { return (double)(i * 37 % 101 - 50); }

/* What one member of a partial sum has of it: different everywhere, the last what is left. */
static double share_at(int64_t i, int place, int places)
{
    const double own = (double)((i + 3 * place) % 7);
    if (place + 1 < places) return own;
    double others = 0;
    for (int p = 0; p + 1 < places; p++) others += (double)((i + 3 * p) % 7);
    return whole_at(i) - others;
}

/* With two partial axes the first axis' shares are split again by the second: only the first place has any. */
static double value_at(const struct sbp_mesh *m, struct signature s, int64_t i)
{
    if (s.on[0].kind == SBP_P && s.on[1].kind == SBP_P)
        return sbp_place(m, comm.rank, 1) == 0 ? share_at(i, sbp_place(m, comm.rank, 0), m->size[0]) : 0;
    for (int k = 0; k < m->axes; k++)
        if (s.on[k].kind == SBP_P) return share_at(i, sbp_place(m, comm.rank, k), m->size[k]);
    return whole_at(i);
}

/* Place in the whole of element i of a box. */
static int64_t index_of(const struct shape *t, struct box b, int64_t i)
{
    int64_t at = 0, stride = 1;
    for (int d = t->ndim - 1; d >= 0; d--) {
        at += (b.start[d] + i % b.extent[d]) * stride;
        i /= b.extent[d];
        stride *= t->dim[d];
    }
    return at;
}

static struct tensor make_piece(const struct shape *t, const struct sbp_mesh *m, struct signature s)
{
    struct tensor piece = piece_make(&device, t, m, s, comm.rank);
    const struct box b = signature_box(t, m, s, comm.rank);
    struct views v = views_of(&device);
    const struct tensor seen = view_write(&v, piece);
    for (int64_t i = 0; i < tensor_count(seen); i++) tensor_set(seen, i, value_at(m, s, index_of(t, b, i)));
    views_end(&v);
    return piece;
}

/* How many elements are not what they must be, after partial sums have been added up. */
static int64_t wrong(struct placement *p, const struct shape *t, struct signature s, struct tensor *piece)
{
    struct error err;
    struct signature whole = s;
    for (int k = 0; k < SBP_AXES; k++) if (whole.on[k].kind == SBP_P) whole.on[k] = (struct sbp)ON_B;
    const struct boxing b = boxing_plan(t, &p->mesh, s, whole);
    int64_t n = boxing_run(p, t, &b, piece, &err) != OK;
    const struct box box = signature_box(t, &p->mesh, whole, comm.rank);
    n += tensor_count(*piece) != box_count(box, t->ndim);
    struct views v = views_of(&device);
    const struct tensor seen = view_read(&v, *piece);
    for (int64_t i = 0; n == 0 && i < tensor_count(seen); i++)
        n += tensor_get(seen, i) != whole_at(index_of(t, box, i));
    views_end(&v);
    return n;
}

static void try_pair(struct placement *p, const struct shape *t, struct signature from, struct signature to)
{
    char a[SBP_TEXT], z[SBP_TEXT];
    struct error err = { 0 };
    const struct boxing b = boxing_plan(t, &p->mesh, from, to);
    struct tensor piece = make_piece(t, &p->mesh, from);
    const uint64_t before = bytes_sent();
    const enum error_code e = boxing_run(p, t, &b, &piece, &err);
    const uint64_t sent = bytes_sent() - before;
    uint64_t want = 0, all = 0;
    for (int i = 0; i < b.steps; i++) {
        want += (uint64_t)boxing_sent(t, &p->mesh, &b.step[i], comm.rank) * sizeof(double);
        for (int d = 0; d < comm.size; d++) all += (uint64_t)boxing_sent(t, &p->mesh, &b.step[i], d);
    }
    signature_text(&p->mesh, from, a), signature_text(&p->mesh, to, z);
    ASSERT_ALL(e == OK, "%s -> %s: %s", a, z, err.text);
    ASSERT_ALL(sent == want, "%s -> %s: sent %llu bytes; boxing_sent says %llu", a, z, (unsigned long long)sent,
               (unsigned long long)want);
    ASSERT_ALL(all == (uint64_t)b.elements, "%s -> %s: the steps' elements are %llu; the plan says %lld", a, z,
               (unsigned long long)all, (long long)b.elements);
    ASSERT_ALL(signature_equal(from, to) == (b.steps == 0), "%s -> %s: %d steps", a, z, b.steps);
    const int64_t bad = wrong(p, t, to, &piece);
    device_free(&device, piece);
    ASSERT_ALL(bad == 0, "%s -> %s: %lld elements are wrong", a, z, (long long)bad);
}

static void try_all_pairs(const struct sbp_mesh *m, const struct shape *t)
{
    struct placement p;
    struct error err = { 0 };
    struct signature all[SBP_MOST_SIGNATURES];
    const int n = signature_all(t, m, all);
    ASSERT_ALL(placement_open(&p, &comm, m, &err) == OK, "%s", err.text);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) try_pair(&p, t, all[i], all[j]);
    placement_close(&p);
}

static void test_every_pair_on_a_line(void **state)
{
    (void)state;
    const struct sbp_mesh line = { .axes = 1, .size = { comm.size } };
    try_all_pairs(&line, &(struct shape){ 2, { 12, 24 }, 1 });
    try_all_pairs(&line, &(struct shape){ 2, { 13, 7 }, 1 });
    try_all_pairs(&line, &(struct shape){ 3, { 20, 1, 9 }, 3 });
    try_all_pairs(&line, &(struct shape){ 1, { 11 }, 1 });
}

static void test_every_pair_on_a_rectangle(void **state)
{
    (void)state;
    const struct sbp_mesh rectangle = { .axes = 2, .size = { 2, comm.size / 2 } },
                          other = { .axes = 2, .size = { comm.size / 2, 2 } };
    if (comm.size == 2) return;
    try_all_pairs(&rectangle, &(struct shape){ 2, { 12, 24 }, 1 });
    try_all_pairs(&other, &(struct shape){ 2, { 13, 8 }, 1 });
}

/* The published table, on the line. */
static void test_table(void **state)
{
    (void)state;
    const int p = comm.size;
    const struct sbp_mesh line = { .axes = 1, .size = { p } };
    const struct shape t = { 2, { 12, 24 }, 1 };
    const int64_t M = 12 * 24;
    const struct signature b = { { ON_B } }, partial = { { ON_P } }, s0 = { { ON_S(0) } }, s1 = { { ON_S(1) } };
    const struct { struct signature from, to; int64_t want; } row[] = {
        { s0, s0, 0 }, { s0, s1, M * (p - 1) / p }, { s1, s0, M * (p - 1) / p }, { s0, b, M * (p - 1) },
        { s0, partial, 0 },
        { b, s1, 0 }, { b, b, 0 }, { b, partial, 0 }, { partial, s0, M * (p - 1) }, { partial, s1, M * (p - 1) },
        { partial, b, 2 * M * (p - 1) }, { partial, partial, 0 },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const struct boxing plan = boxing_plan(&t, &line, row[i].from, row[i].to);
        assert_int_equal(plan.elements, row[i].want);
        assert_true(plan.steps <= 1);
    }
}

/* The case that the system the table comes from gets wrong. */
static void test_parts_of_parts(void **state)
{
    (void)state;
    const struct sbp_mesh m = { .axes = 2, .size = { 2, 2 } };
    const struct shape t = { 1, { 64 }, 1 };
    const struct boxing b =
        boxing_plan(&t, &m, (struct signature){ { ON_B, ON_S(0) } }, (struct signature){ { ON_S(0), ON_S(0) } });
    assert_int_equal(b.elements, 64 / 2);
    assert_int_equal(b.steps, 1);
}

/* Local. */
static void test_no_detour_is_shorter(void **state)
{
    (void)state;
    const struct sbp_mesh m = { .axes = 2, .size = { 2, 3 } };
    const struct shape shapes[] = { { 2, { 13, 8 }, 1 }, { 3, { 20, 6, 7 }, 3 } };
    struct signature all[SBP_MOST_SIGNATURES];
    int64_t cost[SBP_MOST_SIGNATURES][SBP_MOST_SIGNATURES];
    for (int t = 0; t < 2 && comm.size == 2; t++) {
        const int n = signature_all(&shapes[t], &m, all);
        for (int i = 0; i < n * n; i++)
            cost[i / n][i % n] = boxing_plan(&shapes[t], &m, all[i / n], all[i % n]).elements;
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++)
                for (int k = 0; k < n; k++) {
                    char from[SBP_TEXT], to[SBP_TEXT], by[SBP_TEXT];
                    if (cost[i][j] <= cost[i][k] + cost[k][j]) continue;
                    ASSERT_ALL(false, "%s to %s sends %lld elements, by way of %s %lld",
                               signature_text(&m, all[i], from), signature_text(&m, all[j], to), (long long)cost[i][j],
                               signature_text(&m, all[k], by), (long long)(cost[i][k] + cost[k][j]));
                }
    }
}

static void test_words(void **state)
{
    (void)state;
    const struct sbp_mesh m = { .axes = 2, .size = { 2, 2 } }, line = { .axes = 1, .size = { 2 } };
    struct signature s;
    struct error err;
    char text[SBP_TEXT];
    assert_int_equal(signature_parse(&m, "(S(1), P)", &s, &err), OK);
    assert_string_equal(signature_text(&m, s, text), "(S(1), P)");
    assert_int_equal(signature_parse(&line, "S(1)", &s, &err), OK);
    const char *bad[] = { "", "S", "S(9)", "S(1", "Q", "(B, B)", "BB" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(signature_parse(&line, bad[i], &s, &err), ERR_USAGE);
    assert_int_equal(signature_parse(&m, "(B, B", &s, &err), ERR_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_DEVICES(test_every_pair_on_a_line), ON_DEVICES(test_every_pair_on_a_rectangle), ON_DEVICES(test_table),
        ON_DEVICES(test_parts_of_parts), ON_DEVICES(test_no_detour_is_shorter), ON_DEVICES(test_words),
    };
    return MPI_RUN("journeys between signatures", tests);
}
