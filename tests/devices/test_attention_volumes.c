/* What attention schemes send for a layer, and how much each device computes: in closed form, written here once more,
 * against the exact cost functions and the cuts, where everything divides.
 * tier: check
 *
 * The cost functions themselves are held to what was counted, by test_attention.c.
 * Elements that a device sends, D = H A, k = key/value heads after an exchange with h devices, max(K, h):
 *
 *                                     forward                                    backward: as many, and gradients
 *   ulysses       B S (2 H + 2 k) A (P-1)/P^2; with k = H 4 B S D (P-1)/P^2      none
 *   ring          2 B S K A (P-1)/P                                              2 B S K A, over P hops
 *   allgather-kv  the same                                                       2 B S K A (P-1)/P
 *   rsa           the same                                                       4 B S K A (P-1)/P
 *   usp           B S (2 H + 2 k) A (h-1)/(h P) and 2 (C-1) B S k A/P            2 C B S k A/P
 *   loongtrain    as usp                                                         with windows 2 (C + C/w) B S k A/P
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include "emulated_devices/schemes/attention/positions.h"
#include "emulated_devices/verify/cases/attention.h"
#include "ref/numeric/philox.h"
#include <cmocka.h>

enum { S = 96, B = 2, A = 4 };          /* S: a multiple of 2 P for each P below, and of 4 P for most */
static const int sizes[] = { 1, 2, 3, 4, 6, 8 };
#define FOR_SIZES(P) for (int i_ = 0, P; i_ < (int)(sizeof sizes / sizeof *sizes) && (P = sizes[i_], 1); i_++)

/* ---- one device, without the others ------------------------------------------------------------------------------ */

struct stand { struct device device; struct comm comm; struct attention_layer layer; };

static void open_at(struct stand *s, struct attention_shape shape, enum dtype dtype, const char *name,
                    struct context_split split, int P, int rank)
{
    struct plan p;
    struct error err = { .text = "" };
    const enum error_code e = attention_layer_plan(&p, shape, dtype, name, split, P, NULL, &err);
    if (e) print_error("%s on %d devices: %s\n", name, P, err.text);
    assert_int_equal(e, OK);
    assert_int_equal(device_open(&s->device, NULL, dtype, 0, &err), OK);
    assert_int_equal(comm_outline(&s->comm, &s->device, rank, P, &err), OK);
    assert_int_equal(attention_layer_open(&s->layer, &p, &s->comm, tensor_none, &err), OK);
}

static void close_it(struct stand *s)
{
    attention_layer_close(&s->layer), comm_outline_close(&s->comm), device_close(&s->device);
}

/* ---- what is sent ------------------------------------------------------------------------------------------------ */

/* Elements in the model's format, gradients in the wide one, and messages. */
struct volume { int64_t narrow, wide, messages; };

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* All-to-alls of h devices: queries, keys and values, and the output. */
static struct volume exchanges(int64_t H, int64_t K, int P, int h)
{
    return (struct volume){ .narrow = B * S * (2 * H + 2 * larger(K, h)) * A * (h - 1) / (h * P),
                            .messages = 2 * (h - 1) };
}

/* hops of keys and values, and of their gradients, on rings of P/h devices. */
static struct volume hops(int64_t K, int P, int h, int keys, int gradients)
{
    const int64_t block = 2 * B * S * larger(K, h) * A / P;
    return (struct volume){ .narrow = block * keys, .wide = block * gradients, .messages = keys + gradients };
}

static struct volume both(struct volume a, struct volume b)
{
    return (struct volume){ a.narrow + b.narrow, a.wide + b.wide, a.messages + b.messages };
}

static struct volume two_dimensional(int64_t H, int64_t K, int P, int h, int w, bool backward)
{
    const int C = P / h, home = w > 1 && w < C ? C / w : 0;
    return both(exchanges(H, K, P, h), hops(K, P, h, C - 1, backward && C > 1 ? C + home : 0));
}

static void expect(struct volume v, struct attention_shape shape, enum dtype dtype, const char *name,
                   struct context_split split, int P, enum tensor_pass pass)
{
    const uint64_t bytes = (uint64_t)v.narrow * dtype_size(dtype) + (uint64_t)v.wide * dtype_size(dtype_wide(dtype));
    for (int rank = 0; rank < P; rank++) {
        static struct stand s;
        open_at(&s, shape, dtype, name, split, P, rank);
        const struct traffic t = attention_layer_cost(&s.layer, pass);
        close_it(&s);
        if (t.bytes_sent != bytes || t.messages_sent != (uint64_t)v.messages)
            fail_msg("%s, %s, %d devices, rank %d, H=%d K=%d h=%d w=%d %s: %llu bytes in %llu messages, must be %llu "
                     "in %lld", name, dtype_name(dtype), P, rank, (int)shape.H, (int)shape.K, split.heads, split.window,
                     pass == FORWARD_PASS ? "forward" : "backward", (unsigned long long)t.bytes_sent,
                     (unsigned long long)t.messages_sent, (unsigned long long)bytes, (long long)v.messages);
    }
}

static const enum dtype formats[] = { F64, BF16 };
/* Multi-head; two queries for each key; fewer key/value heads than most P. */
static const int64_t heads[][2] = { { 24, 24 }, { 48, 24 }, { 24, 2 } };
enum { HEADS = sizeof heads / sizeof *heads };

/* Whether the devices that exchange heads get equal parts of them. */
static bool divides(int64_t K, int h) { return K % h == 0 || h % K == 0; }

static void each(void (*f)(struct attention_shape, enum dtype, int P))
{
    for (int i = 0; i < HEADS; i++)
        for (int t = 0; t < 2; t++)
            FOR_SIZES(P) f((struct attention_shape){ B, S, heads[i][0], heads[i][1], A }, formats[t], P);
}

static void ulysses(struct attention_shape s, enum dtype t, int P)
{
    const struct context_split none = { 0 };
    if (!divides(s.K, P)) return;
    const struct volume v = exchanges(s.H, s.K, P, P);
    if (s.K == s.H) assert_int_equal(v.narrow, 4 * B * S * s.H * A * (P - 1) / (P * P));
    expect(v, s, t, "ulysses", none, P, FORWARD_PASS);
    expect(v, s, t, "ulysses", none, P, INPUT_PASS);
}

static void rings(struct attention_shape s, enum dtype t, int P)
{
    static const char *const names[] = { "ring", "ring-striped", "ring-zigzag", "ring-ptrr" };
    const struct context_split none = { 0 };
    for (int i = 0; i < 4; i++) {
        expect(hops(s.K, P, 1, P - 1, 0), s, t, names[i], none, P, FORWARD_PASS);
        expect(hops(s.K, P, 1, P - 1, P > 1 ? P : 0), s, t, names[i], none, P, INPUT_PASS);
    }
}

static void gathered(struct attention_shape s, enum dtype t, int P)
{
    expect(hops(s.K, P, 1, P - 1, 0), s, t, "allgather-kv", (struct context_split){ 0 }, P, FORWARD_PASS);
    expect(hops(s.K, P, 1, P - 1, P - 1), s, t, "allgather-kv", (struct context_split){ 0 }, P, INPUT_PASS);
}

/* Keys, and values, on rings; backward two all-reduces of all tokens' besides. */
static void stored_scores(struct attention_shape s, enum dtype t, int P)
{
    struct volume v = hops(s.K, P, 1, P - 1, 0);
    v.messages = 2 * (P - 1);
    if (s.K == s.H) assert_int_equal(v.narrow * 4, 8 * (P - 1) * B * s.H * (S / P) * A);
    expect(v, s, t, "rsa", (struct context_split){ 0 }, P, FORWARD_PASS);
    v.wide = 2 * v.narrow, v.messages += 2 * 2 * (P - 1);
    expect(v, s, t, "rsa", (struct context_split){ 0 }, P, INPUT_PASS);
}

static void splits(struct attention_shape s, enum dtype t, int P)
{
    for (int h = 1; h <= P; h++)
        for (int w = 1; P % h == 0 && divides(s.K, h) && w <= P / h; w++) {
            if (P / h % w != 0) continue;
            const struct context_split split = { h, w, .context_first = w % 2 == 0 };
            expect(two_dimensional(s.H, s.K, P, h, w, false), s, t, "loongtrain", split, P, FORWARD_PASS);
            expect(two_dimensional(s.H, s.K, P, h, w, true), s, t, "loongtrain", split, P, INPUT_PASS);
            if (w > 1) continue;
            const struct context_split one = { .heads = h };
            expect(two_dimensional(s.H, s.K, P, h, 1, false), s, t, "usp", one, P, FORWARD_PASS);
            expect(two_dimensional(s.H, s.K, P, h, 1, true), s, t, "usp", one, P, INPUT_PASS);
        }
}

static void test_ulysses(void **state) { (void)state; each(ulysses); }
static void test_rings(void **state) { (void)state; each(rings); }
static void test_gathered(void **state) { (void)state; each(gathered); }
static void test_stored_scores(void **state) { (void)state; each(stored_scores); }
static void test_two_dimensions(void **state) { (void)state; each(splits); }

/* Twice the devices with twice the tokens: not constant, as the paper says, but (2P-1)/(2P) over (P-1)/P. */
static void test_ulysses_with_both_doubled(void **state)
{
    (void)state;
    for (int P = 2; P <= 4; P++)
        for (enum tensor_pass pass = FORWARD_PASS; pass <= INPUT_PASS; pass++) {
            uint64_t bytes[2];
            for (int twice = 0; twice < 2; twice++) {
                static struct stand s;
                open_at(&s, (struct attention_shape){ B, S << twice, 24, 24, A }, F32, "ulysses",
                        (struct context_split){ 0 }, P << twice, 1);
                bytes[twice] = attention_layer_cost(&s.layer, pass).bytes_sent;
                close_it(&s);
            }
            assert_int_equal(bytes[1] * 2 * (uint64_t)(P - 1), bytes[0] * (uint64_t)(2 * P - 1));
        }
}

/* ---- work -------------------------------------------------------------------------------------------------------- */

/* Of each device: pairs of its queries with the keys of each member that they see. */
static void pairs_of(const char *name, int P, int64_t pairs[8][8])
{
    static struct stand s;
    struct positions at;
    struct error err;
    open_at(&s, (struct attention_shape){ 1, S, 24, 24, A }, F32, name, (struct context_split){ 0 }, P, 0);
    assert_int_equal(positions_open(&at, &s.layer.cp, &err), OK);
    int64_t all = 0;
    for (int q = 0; q < P; q++)
        for (int k = 0; k < P; k++)
            all += pairs[q][k] = (int64_t)positions_pairs(&at, s.layer.call.shape, 1, q, k);
    positions_close(&at), close_it(&s);
    assert_int_equal(all, S * (S + 1) / 2);
}

static int64_t work_of(int64_t pairs[8][8], int P, int device)
{
    int64_t sum = 0;
    for (int k = 0; k < P; k++) sum += pairs[device][k];
    return sum;
}

/* In a row: 2, 6, 10, 14 squares of S/2P tokens, of which those on the diagonal count half. */
static void test_work_in_a_row(void **state)
{
    (void)state;
    FOR_SIZES(P) {
        int64_t pairs[8][8];
        const int64_t side = S / (2 * P);
        pairs_of("ring", P, pairs);
        for (int r = 0; r < P; r++)
            assert_int_equal(work_of(pairs, P, r) - side, (4 * r + 2) * side * side);
    }
}

static void test_work_is_even(void **state)
{
    static const char *const names[] = { "ring-zigzag", "allgather-kv", "ring-ptrr" };
    (void)state;
    FOR_SIZES(P)
        for (int i = 0; i < 3; i++) {
            int64_t pairs[8][8];
            pairs_of(names[i], P, pairs);
            for (int r = 0; r < P; r++)
                if (work_of(pairs, P, r) * P != S * (S + 1) / 2)
                    fail_msg("%s: device %d of %d computes %lld pairs, must be a part of %d in %d", names[i], r, P,
                             (long long)work_of(pairs, P, r), P, S * (S + 1) / 2);
        }
}

/* At every step nearly the same: n (n+1)/2 with keys of devices up to its own, else n (n-1)/2. */
static void test_work_of_stripes(void **state)
{
    (void)state;
    FOR_SIZES(P) {
        int64_t pairs[8][8];
        const int64_t n = S / P;
        pairs_of("ring-striped", P, pairs);
        for (int q = 0; q < P; q++) {
            for (int k = 0; k < P; k++) assert_int_equal(pairs[q][k], n * (k <= q ? n + 1 : n - 1) / 2);
            assert_int_equal(work_of(pairs, P, q), n * (q + 1) + P * n * (n - 1) / 2);
        }
    }
}

/* Pairs counted one by one: a range of each query, drawn, which need not ascend with the queries; of two sequences. */
static int64_t counted(const struct positions *at, const int32_t *sees, int64_t window, int q, int k)
{
    int64_t pairs = 0;
    for (int b = 0; b < B; b++)
        for (int64_t i = at->start[q]; i < at->start[q + 1]; i++)
            for (int64_t j = at->start[k]; j < at->start[k + 1]; j++) {
                const int32_t query = at->host[i], key = at->host[j], *range = sees + 2 * (b * S + query);
                pairs += key >= range[0] && key < range[1] && (window == 0 || key > query - window);
            }
    return pairs;
}

/* Samples of some tokens: each token sees those before it, the whole sample, or the last four, and a few see what is
 * drawn for them alone. */
static void draw_runs(int32_t *sees)
{
    for (int first = 0, count; first < B * S; first += count) {
        const int here = first % (int)S, left = (int)S - here, kind = first / 3 % 3;
        count = 2 + (int)(random_uniform(1, 4, (uint64_t)first) * 15);
        count = count < left ? count : left;
        for (int i = 0; i < count; i++) {
            const int32_t query = (int32_t)(here + i), begin = query > here + 3 ? query - 3 : here;
            if (random_uniform(1, 5, (uint64_t)(first + i)) < 0.1) continue;
            sees[2 * (first + i)] = kind == 2 ? begin : here;
            sees[2 * (first + i) + 1] = kind == 1 ? here + count : query + 1;
        }
    }
}

static void check_drawn(const char *name, int P, int64_t window, bool runs)
{
    static struct stand s;
    static int32_t sees[2 * B * S];
    struct positions at;
    struct error err;
    open_at(&s, (struct attention_shape){ B, S, 24, 24, A }, F32, name, (struct context_split){ 0 }, P, 0);
    assert_int_equal(positions_open(&at, &s.layer.cp, &err), OK);
    for (int i = 0; i < B * S; i++) {
        sees[2 * i] = (int32_t)(random_uniform(1, 2, (uint64_t)i) * S);
        sees[2 * i + 1] = sees[2 * i] + (int32_t)(random_uniform(1, 3, (uint64_t)i) * (S + 1 - sees[2 * i]));
    }
    struct attention a = s.layer.call.shape;
    if (runs) draw_runs(sees);
    a.mask = tensor_2d(sees, I32, B * S, 2), a.window = window;
    for (int q = 0; q < P; q++)
        for (int k = 0; k < P; k++) {
            const int64_t is = (int64_t)positions_pairs(&at, a, B, q, k), must = counted(&at, sees, window, q, k);
            if (is != must)
                fail_msg("%s, window %lld: queries of device %d of %d and keys of %d: %lld pairs, must be %lld", name,
                         (long long)window, q, P, k, (long long)is, (long long)must);
        }
    positions_close(&at), close_it(&s);
}

static void test_pairs_of_drawn_masks(void **state)
{
    static const char *const names[] = { "ring", "ring-zigzag", "ring-striped" };
    (void)state;
    FOR_SIZES(P)
        for (int i = 0; i < 3; i++)
            for (int runs = 0; runs < 2; runs++)
                check_drawn(names[i], P, 0, runs), check_drawn(names[i], P, 5, runs), check_drawn(names[i], P, 17, runs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ulysses), cmocka_unit_test(test_rings), cmocka_unit_test(test_gathered),
        cmocka_unit_test(test_stored_scores),
        cmocka_unit_test(test_two_dimensions), cmocka_unit_test(test_ulysses_with_both_doubled),
        cmocka_unit_test(test_work_in_a_row), cmocka_unit_test(test_work_is_even),
        cmocka_unit_test(test_work_of_stripes), cmocka_unit_test(test_pairs_of_drawn_masks),
    };
    return cmocka_run_group_tests_name("attention volumes", tests, NULL, NULL);
}
