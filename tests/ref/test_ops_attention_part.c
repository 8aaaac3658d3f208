/* Attention with masks, merged from parts of its queries and keys, and in steps with stored scores: compared with loops
 * in long double.
 * tier: check
 *
 * A sequence is cut in each way that devices cut it: in a row, every Pth token, two chunks each, at random.
 */
#include "tests/ref/attention_naive.h"

/* ---- masks ------------------------------------------------------------------------------------------------------- */

static void see(int64_t row, int64_t range, int64_t first, int64_t end)
{
    int32_t *at = (int32_t *)a.mask.data + row * tensor_cols(a.mask) + 2 * range;
    at[0] = (int32_t)first, at[1] = (int32_t)end;
}

static int64_t most(int64_t x, int64_t y) { return x > y ? x : y; }

/* Every query sees every key; the last `window` keys; keys of its sample, where each sequence has its own samples; a
 * few first keys and the last ones; blocks drawn at random, for some queries none.  The last three are masks with a
 * sliding window besides, which ends inside a tile of keys, or between samples. */
enum mask { CAUSAL, FULL, WINDOW, PACKED, SINKS, BLOCKS, SLIDING, SLIDING_PACKED, SLIDING_BLOCKS, MASKS };
static const char *const mask_name[] = { "causal", "full", "window", "packed", "sinks", "blocks", "sliding",
                                         "sliding, packed", "sliding, blocks" };
static const enum mask mask_of[MASKS] = { CAUSAL, FULL, WINDOW, PACKED, SINKS, BLOCKS, CAUSAL, PACKED, BLOCKS };

static void mask_row(enum mask m, int64_t row, int64_t ranges)
{
    const int64_t q = row % a.S, window = 5, block = 4, sample = 3 + row / a.S;
    if (m == FULL) see(row, 0, 0, a.S);
    if (m == WINDOW) see(row, 0, most(0, q + 1 - window), q + 1);
    if (m == PACKED) see(row, 0, q / sample * sample, q + 1);
    if (m == SINKS) see(row, 0, 0, q < 2 ? q + 1 : 2), see(row, 1, most(2, q + 1 - window), most(2, q + 1));
    for (int64_t i = 0; m == BLOCKS && i < ranges; i++) {
        const bool drawn = random_uniform(9, (uint64_t)(q / block), (uint64_t)i) < 0.4;
        see(row, i, i * block, drawn ? i * block + block : i * block);
    }
}

static void take_mask(enum mask m, int64_t B)
{
    const int64_t rows = m == PACKED ? B * a.S : a.S, ranges = m == BLOCKS ? (a.S + 3) / 4 : m == SINKS ? 2 : 1;
    if (m == CAUSAL) return;
    a.mask = matrix(I32, rows, 2 * ranges);
    for (int64_t row = 0; row < rows; row++) mask_row(m, row, ranges);
}

static void setup_masked(const struct ops *op, int64_t B, struct attention shape, enum mask m)
{
    char name[sizeof case_name];
    merges = 0;
    if (m >= SLIDING) shape.window = shape.S > 100 ? 70 : 4;
    setup(op, B, shape, 1);
    take_mask(mask_of[m], B);
    snprintf(name, sizeof name, "%.150s, %s", case_name, mask_name[m]);
    CASE("%s", name);
}

static void test_masks(void **state)
{
    (void)state;
    FOR_FORMATS(t, op)
        for (enum mask m = CAUSAL; m < MASKS; m++)
            for (int large = 0; large < 2; large++) {
                setup_masked(op, large ? 1 : 3, (struct attention){ .S = large ? 134 : 13, .H = 4, .K = 2, .A = 3,
                             .scale = 0.7, .drop = { .p = large ? 0 : 0.3, .seed = 3 } }, m);
                op->attention_forward(O, lse, QKV, a);
                op->attention_backward_input(dQKV, dO, O, lse, QKV, a);
                check_all(large ? 1 : 3);
                check_guards_and_free();
            }
}

/* What attention costs counts the pairs that the naive loop sees. */
static void test_pairs(void **state)
{
    (void)state;
    for (enum mask m = CAUSAL; m < MASKS; m++)
        for (int64_t window = 0; window <= 14; window++) {
            int64_t pairs = 0;
            setup_masked(ops_for(F64), 3, (struct attention){ .S = 13, .H = 4, .K = 2, .A = 3, .scale = 0.7 }, m);
            a.window = window;
            for (int64_t i = 0; i < 3 * 13 * 13; i++) pairs += sees(i / 13 / 13, i / 13 % 13, i % 13);
            CASE("%s, window %d", mask_name[m], (int)window);
            assert_int_equal(attention_pairs(3 * 13, a), pairs);
            check_guards_and_free();
        }
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

enum cut { IN_A_ROW, STRIPED, ZIGZAG, AT_RANDOM, CUTS };
static const char *const cut_name[] = { "in a row", "striped", "zigzag", "at random" };

static int64_t owner(enum cut cut, int64_t token, int64_t P)
{
    const int64_t chunk = token * 2 * P / a.S;
    if (cut == IN_A_ROW) return token * P / a.S;
    if (cut == STRIPED) return token % P;
    if (cut == ZIGZAG) return chunk < P ? chunk : 2 * P - 1 - chunk;
    return (int64_t)((double)P * random_uniform(5, 6, (uint64_t)token));
}

static struct tensor positions_of(enum cut cut, int64_t P, int64_t part)
{
    int64_t n = 0;
    for (int64_t s = 0; s < a.S; s++) n += owner(cut, s, P) == part;
    struct tensor at = vector(I32, n);
    for (int64_t s = 0, i = 0; s < a.S; s++)
        if (owner(cut, s, P) == part) ((int32_t *)at.data)[i++] = (int32_t)s;
    return at;
}

/* Copy a part's rows, some columns of the tensor of whole sequences, into a tensor of its own, or back. */
static void move_rows(struct tensor whole, int64_t first, struct tensor part, struct tensor at, bool back)
{
    const int64_t n = tensor_count(at), cols = tensor_cols(part);
    for (int64_t row = 0; row < tensor_rows(part); row++)
        for (int64_t c = 0; c < cols; c++) {
            const int64_t w = (row / n * a.S + id_at(at, row % n)) * tensor_cols(whole) + first + c;
            if (back) tensor_set(whole, w, tensor_get(part, row * cols + c));
            else tensor_set(part, row * cols + c, tensor_get(whole, w));
        }
}

static struct tensor part_rows(struct tensor whole, int64_t first, int64_t columns, int64_t B, struct tensor at)
{
    const struct tensor part = matrix(whole.dtype, B * tensor_count(at), columns);
    move_rows(whole, first, part, at, false);
    return part;
}

static void store_lse(struct tensor part, struct tensor at)
{
    const int64_t n = tensor_count(at);
    for (int64_t i = 0; i < tensor_count(part); i++)
        tensor_set(lse, i / n * a.S + id_at(at, i % n), tensor_get(part, i));
}

/* Forward and backward of the queries of one part with the keys of each; its gradients go into those of all. */
static void run_queries(const struct ops *op, int64_t B, enum cut cut, int64_t P, int64_t part,
                        const struct tensor KV[], const struct tensor dKV[])
{
    const int64_t q = a.H * a.A;
    const struct tensor at = positions_of(cut, P, part), Q = part_rows(QKV, 0, q, B, at);
    const int64_t n = tensor_count(at);
    if (n == 0) return;
    const struct tensor o = matrix(op->dtype, B * n, q), o2 = matrix(op->dtype, B * n, q);
    const struct tensor l = matrix(op->dtype, B * a.H, n), l2 = matrix(op->dtype, B * a.H, n),
                        delta = matrix(op->dtype, B * a.H, n);
    const struct tensor d_o = part_rows(dO, 0, q, B, at), dq = fill_with(matrix(op->dtype, B * n, q), 0);
    for (int64_t k = 0; k < P; k++) {
        const bool first = k == 0;
        struct attention shape = a;
        if (k != P / 2) shape.sinks = tensor_none;      /* any one part has them */
        op->attention_part_forward(first ? o : o2, first ? l : l2, Q, KV[k], at, positions_of(cut, P, k), shape);
        if (!first) op->attention_merge(o, l, o2, l2, a);
    }
    op->attention_delta(delta, d_o, o, a);
    if (tensor_present(a.sinks)) op->attention_sinks_backward(dsinks, d_o, o, l, a);
    for (int64_t k = 0; k < P; k++)
        op->attention_part_backward(dq, dKV[k], d_o, delta, l, Q, KV[k], at, positions_of(cut, P, k), a);
    move_rows(O, 0, o, at, true), move_rows(dQKV, 0, dq, at, true), store_lse(l, at);
}

static void run_parts(const struct ops *op, int64_t B, enum cut cut, int64_t P)
{
    const int64_t q = a.H * a.A, kv = 2 * a.K * a.A;
    struct tensor KV[4], dKV[4];
    for (int64_t k = 0; k < P; k++) {
        const struct tensor at = positions_of(cut, P, k);
        KV[k] = part_rows(QKV, q, kv, B, at);
        dKV[k] = fill_with(matrix(op->dtype, tensor_rows(KV[k]), kv), 0);
    }
    for (int64_t part = 0; part < P; part++) run_queries(op, B, cut, P, part, KV, dKV);
    for (int64_t k = 0; k < P; k++) move_rows(dQKV, q, dKV[k], positions_of(cut, P, k), true);
    merges = (int)P - 1;
}

static void test_parts(void **state)
{
    (void)state;
    FOR_FORMATS(t, op)
        for (enum mask m = CAUSAL; m < MASKS; m++)
            for (enum cut cut = IN_A_ROW; cut < CUTS; cut++) {
                const int64_t P = 1 + ((int64_t)cut + (int64_t)m) % 4;
                setup_masked(op, 2, (struct attention){ .S = 11, .H = 4, .K = 2, .A = 3, .scale = 0.7,
                             .cap = cut == ZIGZAG ? 0 : 1.2, .drop = { .p = cut % 2 ? 0.3 : 0, .seed = 3 } }, m);
                if (cut % 3 == 1) setup_sinks();
                CASE("%s %s in %d, %s", dtype_name(t), mask_name[m], (int)P, cut_name[cut]);
                run_parts(op, 2, cut, P);
                check_all(2);
                check_guards_and_free();
            }
}

/* ---- stored scores ----------------------------------------------------------------------------------------------- */

static void add_to(struct tensor sum, struct tensor part)
{
    for (int64_t i = 0; i < tensor_count(part); i++) tensor_set(sum, i, tensor_get(sum, i) + tensor_get(part, i));
}

/* Forward and backward of the queries of one part with whole rows of scores.  keys: the positions of each
 * part; R: keys and values of each; dR: what their gradients have added up to. */
enum { KEYS, VALUES };
static void run_rows(const struct ops *op, int64_t B, int64_t P, int64_t part, struct tensor keys[],
                     struct tensor R[][4], struct tensor dR[])
{
    const int64_t q = a.H * a.A;
    const struct tensor at = keys[part], Q = part_rows(QKV, 0, q, B, at), d_o = part_rows(dO, 0, q, B, at);
    const struct tensor X = matrix(op->dtype, B * a.H * tensor_count(at), a.S), dX = copy_of(X),
                        o = fill_with(matrix(op->dtype, tensor_rows(Q), q), 0), dq = copy_of(o),
                        more = matrix(op->dtype, B * a.S, a.K * a.A), sums = vector(op->dtype, tensor_rows(X));
    struct attention of[2] = { a, a };
    of[KEYS].drop.p = 0, of[VALUES].scale = 1, of[VALUES].cap = 0;
    for (int64_t k = 0; k < P; k++)
        op->attention_scores(X, id_at(keys[k], 0), Q, R[KEYS][k], at, of[KEYS]);
    op->attention_softmax(X, a.cap > 0 ? sums : tensor_none, at, a);
    for (int64_t k = 0; k < P; k++) {
        op->attention_scores_times(o, X, id_at(keys[k], 0), R[VALUES][k], at, of[VALUES]);
        op->attention_scores(dX, id_at(keys[k], 0), d_o, R[VALUES][k], at, of[VALUES]);
    }
    op->attention_scores_transposed(more, X, d_o, at, of[VALUES]), add_to(dR[VALUES], more);
    op->attention_softmax_backward(dX, X, sums, a);
    for (int64_t k = 0; k < P; k++)
        op->attention_scores_times(dq, dX, id_at(keys[k], 0), R[KEYS][k], at, of[KEYS]);
    op->attention_scores_transposed(more, dX, Q, at, of[KEYS]), add_to(dR[KEYS], more);
    move_rows(O, 0, o, at, true), move_rows(dQKV, 0, dq, at, true);
}

static void run_stored(const struct ops *op, int64_t B, int64_t P)
{
    const int64_t q = a.H * a.A, width = a.K * a.A;
    const struct tensor all = positions_of(IN_A_ROW, 1, 0);
    struct tensor keys[4], R[2][4], dR[2];
    for (int which = KEYS; which <= VALUES; which++) {
        dR[which] = fill_with(matrix(op->dtype, B * a.S, width), 0);
        for (int64_t k = 0; k < P; k++) {
            keys[k] = positions_of(IN_A_ROW, P, k);
            R[which][k] = part_rows(QKV, q + which * width, width, B, keys[k]);
        }
    }
    for (int64_t part = 0; part < P; part++) run_rows(op, B, P, part, keys, R, dR);
    for (int which = KEYS; which <= VALUES; which++) move_rows(dQKV, q + which * width, dR[which], all, true);
    lse = tensor_none;
}

static void test_stored_scores(void **state)
{
    (void)state;
    FOR_FORMATS(t, op)
        for (enum mask m = CAUSAL; m < MASKS; m++)
            for (int64_t P = 1; P <= 3; P++) {
                const bool large = P == 2;
                setup_masked(op, large ? 1 : 2, (struct attention){ .S = large ? 134 : 11, .H = 4, .K = 2, .A = 3,
                             .scale = 0.7, .cap = P == 1 ? 0 : 1.2, .drop = { .p = P == 3 ? 0 : 0.3, .seed = 3 } }, m);
                CASE("%s %s, stored scores in %d", dtype_name(t), mask_name[m], (int)P);
                run_stored(op, large ? 1 : 2, P);
                check_all(large ? 1 : 2);
                check_guards_and_free();
            }
}

/* More than a tile of tokens each, so that tiles are skipped, seen in part, and seen in whole. */
static void test_many_tiles(void **state)
{
    (void)state;
    FOR_FORMATS(t, op)
        for (enum cut cut = IN_A_ROW; cut < CUTS; cut++) {
            setup_masked(op, 1, (struct attention){ .S = 280, .H = 1, .K = 1, .A = 2, .scale = 1 }, CAUSAL);
            CASE("%s 280 tokens in 2, %s", dtype_name(t), cut_name[cut]);
            run_parts(op, 1, cut, 2);
            check_all(1);
            check_guards_and_free();
        }
}

/* Scores of 10^4: each merge is a choice between its sides. */
static void test_large_scores(void **state)
{
    (void)state;
    FOR_FORMATS(t, op) {
        setup_masked(op, 1, (struct attention){ .S = 40, .H = 1, .K = 1, .A = 1, .scale = 1 }, CAUSAL);
        for (int64_t s = 0; s < a.S; s++) {
            tensor_set(QKV, 3 * s, 100);
            tensor_set(QKV, 3 * s + 1, (double)s * 100);
        }
        CASE("%s scores of 10^4", dtype_name(t));
        run_parts(op, 1, STRIPED, 3);
        for (int64_t s = 0; s < a.S; s++) {
            expect_near("O", O, s, at(QKV, 3 * s + 2));
            expect_near("lse", lse, s, exact((long double)s * 10000));
            expect_near("dQ", dQKV, 3 * s, exact(0));
        }
        check_guards_and_free();
    }
}

/* A result that saw no key leaves the other one's bits, on either side. */
static void test_merge_with_nothing(void **state)
{
    (void)state;
    FOR_FORMATS(t, op) {
        a = (struct attention){ .S = 5, .H = 2, .K = 1, .A = 3 };
        CASE("%s merge with nothing", dtype_name(t));
        const struct tensor o = fill(matrix(t, 5, 6), 1, "o"), l = fill(matrix(t, 2, 5), 9, "l");
        const struct tensor nothing = fill_with(matrix(t, 5, 6), 0), blind = fill_with(matrix(t, 2, 5), -INFINITY);
        const struct tensor o1 = copy_of(o), l1 = copy_of(l);
        op->attention_merge(o1, l1, nothing, blind, a);
        expect_same_bits("O", o1, o), expect_same_bits("lse", l1, l);
        op->attention_merge(nothing, blind, o, l, a);
        expect_same_bits("O", nothing, o), expect_same_bits("lse", blind, l);
        check_guards_and_free();
    }
}

/* Several sequences as one, with keys that see their own: the same, and the same numbers are dropped. */
static void test_several_as_one(void **state)
{
    (void)state;
    enum { B = 3, S = 7 };
    FOR_FORMATS(t, op) {
        setup_masked(op, B, (struct attention){ .S = S, .H = 2, .K = 1, .A = 2, .scale = 0.7,
                     .drop = { .p = 0.4, .seed = 3, .row0 = 2, .cols = 5, .col0 = 1 } }, CAUSAL);
        CASE("%s several sequences as one", dtype_name(t));
        struct attention one = a;
        one.S = B * S, one.each = S, one.mask = matrix(I32, B * S, 2);
        const struct tensor at = vector(I32, B * S), o = matrix(t, B * S, a.H * a.A), l = matrix(t, a.H, B * S);
        for (int32_t i = 0; i < B * S; i++) {
            ((int32_t *)at.data)[i] = i;
            ((int32_t *)one.mask.data)[2 * i] = i - i % S, ((int32_t *)one.mask.data)[2 * i + 1] = i + 1;
        }
        op->attention_forward(O, lse, QKV, a);
        op->attention_part_forward(o, l, QKV, QKV, at, at, one);
        const double eps = t == F64 ? 1e-14 : 1e-5;
        for (int64_t i = 0; i < tensor_count(O); i++)
            if (!(fabs(tensor_get(o, i) - tensor_get(O, i)) <= eps))
                fail_msg("%s: O[%lld] is %g, of sequences on their own %g", case_name, (long long)i, tensor_get(o, i),
                         tensor_get(O, i));
        check_guards_and_free();
    }
}

/* No queries, no keys, no sequences. */
static void test_empty(void **state)
{
    (void)state;
    FOR_FORMATS(t, op) {
        setup_masked(op, 1, (struct attention){ .S = 4, .H = 1, .K = 1, .A = 2, .scale = 1 }, CAUSAL);
        CASE("%s empty parts", dtype_name(t));
        const struct tensor none = vector(I32, 0), all = positions_of(IN_A_ROW, 1, 0), Q = part_rows(QKV, 0, 2, 1, all);
        op->attention_part_forward(O, lse, Q, matrix(t, 0, 4), all, none, a);
        expect_same_bits("O", O, fill_with(copy_of(O), 0));
        expect_same_bits("lse", lse, fill_with(copy_of(lse), -INFINITY));
        op->attention_part_forward(matrix(t, 0, 2), matrix(t, 1, 0), matrix(t, 0, 2), part_rows(QKV, 2, 4, 1, all),
                                   none, all, a);
        const struct tensor dKV = fill_with(matrix(t, 4, 4), 3), same = copy_of(dKV);
        op->attention_part_backward(matrix(t, 0, 2), dKV, matrix(t, 0, 2), matrix(t, 1, 0), matrix(t, 1, 0),
                                    matrix(t, 0, 2), part_rows(QKV, 2, 4, 1, all), none, all, a);
        expect_same_bits("dKV", dKV, same);
        check_guards_and_free();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks), cmocka_unit_test(test_pairs), cmocka_unit_test(test_parts),
        cmocka_unit_test(test_stored_scores), cmocka_unit_test(test_many_tiles),
        cmocka_unit_test(test_large_scores), cmocka_unit_test(test_merge_with_nothing),
        cmocka_unit_test(test_several_as_one), cmocka_unit_test(test_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
