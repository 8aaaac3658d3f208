/* 1d-sp-overlap: while a chunk is multiplied the next one travels, to the picosecond.
 * tier: check
 * ranks: 1 2 4
 * verify ranks: 5
 *
 * One pair of matrices, on a machine where a multiplication or addition takes 1 ps and a byte a whole number of them,
 * so that for N equal chunks the time of a product g, of a transfer c and of an addition a are exact integers.  Once
 * with g > c, once with g < c, and c with and without a latency; eager and rendezvous.  What comes out is 1d-sp's, bit
 * for bit, since the numbers are small integers.
 */
#include "tests/mpi_cmocka.h"
#include "ref/model/config.h"
#include <math.h>
#include "emulated_devices/schemes/tensor/tensor.h"

enum { ROWS = 6, D = 10, SHARE = 4 };                   /* rows of a chunk; width; a device's part of F */
enum { MOST = 8 };

static struct device device;
static struct comm comm;
static struct group group;
static struct error err;
static struct model_config config;
static struct tensor_parallel tp;

static void open_on(picoseconds latency, int64_t rate, uint64_t eager)
{
    const struct cluster machine = { .name = "test", .flop_rate = { [F64] = 1000000 }, .levels = 1,
                                     .link = { { .level = "node", .latency = latency, .rate = rate,
                                                 .eager = eager } } };
    assert_int_equal(device_open(&device, NULL, F64, 0, &err), OK);
    clock_open(&device.clock, &machine, F64);
    assert_int_equal(comm_open(&comm, &device, &err), OK);
    assert_int_equal(group_world(&group, &comm, &err), OK);
    config = (struct model_config){
        .S = 1, .D = D, .H = group.size, .K = group.size, .A = 1, .F = SHARE * group.size, .L = 1, .V = group.size
    };
    tp = (struct tensor_parallel){ .config = &config, .device = &device, .S = 1 };
}

static void take_scheme(const char *name)
{
    assert_int_equal(tensor_scheme_find(&tp.scheme, name, &err), OK);
    assert_int_equal(tensor_open(&tp, &group, &err), OK);
}

static void close_all(void)
{
    tensor_close(&tp);
    group_close(&group);
    comm_close(&comm);
    device_close(&device);
}

/* Small integers that differ by device, so that a chunk in the wrong place shows. */
static struct tensor filled(double *data, int64_t rows, int64_t cols, int seed)
{
    for (int64_t i = 0; i < rows * cols; i++) data[i] = (double)((i * 7 + group.rank * 13 + seed) % 17 - 8);
    return tensor_2d(data, F64, rows, cols);
}

static struct tensor poisoned(double *data, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows * cols; i++) data[i] = NAN;
    return tensor_2d(data, F64, rows, cols);
}

enum pass { FORWARD_IN, FORWARD_OUT, BACKWARD_IN, BACKWARD_OUT, WEIGHT_IN, PASSES };
static const char *const pass_name[] = { "forward in", "forward out", "backward in", "backward out", "weight in" };
static bool gathers(enum pass p) { return p == FORWARD_IN || p == BACKWARD_OUT || p == WEIGHT_IN; }

/* Result of one pass.  @return how many elements it has. */
static int64_t run_pass(enum pass pass, double *result, picoseconds *took)
{
    static double inner[MOST * ROWS * SHARE], stream[MOST * ROWS * D], weight[D * SHARE];
    const int64_t N = (int64_t)group.size * ROWS;
    const struct tensor_scheme *s = tp.scheme;
    const struct tensor W_in = filled(weight, SHARE, D, 3), W_out = tensor_2d(weight, F64, D, SHARE);
    const struct tensor in = filled(inner, N, SHARE, 5), own = filled(stream, ROWS, D, 8);
    enum error_code e = OK;
    int64_t n = pass == FORWARD_IN || pass == BACKWARD_OUT ? N * SHARE : pass == WEIGHT_IN ? D * SHARE : ROWS * D;
    clock_reset(&device.clock);
    comm_barrier(&comm);
    if (pass == FORWARD_IN)
        e = s->linear_forward(&tp, ROLE_UP, N, poisoned(result, N, SHARE), own, W_in, tensor_none, &err);
    if (pass == FORWARD_OUT)
        e = s->linear_forward(&tp, ROLE_DOWN, N, poisoned(result, ROWS, D), in, W_out, tensor_none, &err);
    if (pass == BACKWARD_IN) e = s->linear_backward_input(&tp, ROLE_UP, N, poisoned(result, ROWS, D), in, W_in, &err);
    if (pass == BACKWARD_OUT) {                         /* the gradient lies where there is room for all of it */
        static double all[MOST * ROWS * D];
        struct tensor room = poisoned(all, N, D);
        memcpy(tensor_own_rows(&tp, room, N).data, own.data, tensor_bytes(own));
        e = s->linear_backward_input(&tp, ROLE_DOWN, N, poisoned(result, N, SHARE), room, W_out, &err);
        for (int64_t i = 0; i < N * D && e == OK; i++)  /* and is all there afterwards, for the weights */
            if (!(all[i] == all[i])) e = ERR_CHECK;
    }
    if (pass == WEIGHT_IN)
        e = s->linear_backward_weight(&tp, ROLE_UP, N, filled(result, SHARE, D, 2), tensor_none, in, own, &err);
    *took = device.clock.now;
    ASSERT_ALL(e == OK, "%s: %s", pass_name[pass], err.text);
    return n;
}

static picoseconds later(picoseconds a, picoseconds b) { return a > b ? a : b; }

static void check_machine(picoseconds latency, int64_t rate, uint64_t eager)
{
    static double got[MOST * ROWS * D], want[MOST * ROWS * D];
    const picoseconds g = 2 * ROWS * D * SHARE, c = latency + ROWS * D * 8 * 1000000 / rate;
    picoseconds took, apart;
    for (enum pass p = 0; p < PASSES; p++) {
        open_on(latency, rate, eager);
        const int N = group.size;
        const picoseconds a = gathers(p) || N == 1 ? 0 : ROWS * D;
        take_scheme("1d-sp-overlap");
        const int64_t n = run_pass(p, got, &took);
        close_all();
        const picoseconds formula = later(N * g + a, g + (N - 1) * (c + a));
        ASSERT_ALL(took == formula, "%s, g=%lld c=%lld a=%lld: took %lld ps, formula %lld", pass_name[p], (long long)g,
                   (long long)c, (long long)a, (long long)took, (long long)formula);
        open_on(latency, rate, eager);
        take_scheme("1d-sp");
        run_pass(p, want, &apart);
        close_all();
        /* Around a ring, chunk after chunk; sums come directly from everybody at once, and wait for one latency. */
        const picoseconds travel = (N - 1) * (c + a) - (gathers(p) || N == 1 ? 0 : (N - 2) * latency);
        ASSERT_ALL(apart == N * g + travel, "%s, 1d-sp: took %lld ps, not %lld", pass_name[p], (long long)apart,
                   (long long)(N * g + travel));
        ASSERT_ALL(memcmp(got, want, sizeof *got * (size_t)n) == 0, "%s: not 1d-sp's", pass_name[p]);
    }
}

static void test_products_hide_transfers(void **state)  /* g = 480, c = 120 or 320 */
{
    (void)state;
    check_machine(0, 4000000, ALWAYS_EAGER);
    check_machine(200, 4000000, ALWAYS_EAGER);
}

static void test_transfers_hide_products(void **state)  /* c = 960 or 1960 */
{
    (void)state;
    check_machine(0, 500000, ALWAYS_EAGER);
    check_machine(1000, 500000, ALWAYS_EAGER);
}

static void test_rendezvous(void **state)
{
    (void)state;
    check_machine(200, 4000000, 0);
    check_machine(1000, 500000, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_products_hide_transfers), MPI_TEST(test_transfers_hide_products), MPI_TEST(test_rendezvous),
    };
    return MPI_RUN("overlap", tests);
}
