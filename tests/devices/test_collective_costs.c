/* Costs by formula: the optima that are proven, counts whose bytes no int holds; and a message of that size, sent.
 * tier: check
 * ranks: 1 2
 */
#include "tests/devices/collective_devices.h"
#include <sys/mman.h>
#include <unistd.h>

/* ---- the optima that the literature proves, for the algorithms said to reach them -------------------------------- */

static int rounds_at_least(int P)
{
    int bits = 0;
    while (1 << bits < P) bits++;
    return bits;
}

static void test_optima(void **state)
{
    enum { EACH = 12 };
    static const struct {
        enum operation op;
        const char *name;
        bool fewest_bytes, fewest_steps, powers_only;
    } best[] = {
        { ALLREDUCE, "ring", true, false, false },
        { ALLREDUCE, "bidirectional_ring", true, false, true },
        { ALLREDUCE, "two_shot", true, false, false },
        { ALLREDUCE, "torus_2d", true, false, false },
        { ALLREDUCE, "rabenseifner", true, false, true },
        { ALLREDUCE, "swing", true, false, true },
        { ALLREDUCE, "doubling", false, true, true },
        { REDUCE_SCATTER, "ring", true, false, false },
        { REDUCE_SCATTER, "halving", true, true, true },
        { REDUCE_SCATTER, "pat", true, true, false },
        { REDUCE_SCATTER, "circulant", true, true, false },
        { REDUCE_SCATTER, "two_level", true, false, false },
        { ALLGATHER, "ring", true, false, false },
        { ALLGATHER, "doubling", true, true, true },
        { ALLGATHER, "bruck", true, true, false },
        { ALLGATHER, "circulant", true, true, false },
        { ALLGATHER, "pat", true, true, false },
        { ALLGATHER, "sparbit", true, false, false },
        { ALLTOALL, "pairwise_shift", true, false, false },
        { ALLTOALL, "bruck", false, true, false },
        { BROADCAST, "circulant", false, true, false },
        { BROADCAST, "binomial", false, true, false },
        { REDUCE, "binomial", false, true, false },
        { GATHER, "binomial", false, true, false },
        { SCATTER, "binomial", false, true, false },
        { BARRIER, "dissemination", false, true, false },
        { SCAN, "doubling", false, true, false },
    };
    (void)state;
    for (size_t i = 0; i < sizeof best / sizeof best[0]; i++)
        for (int P = 2; P <= 16; P++) {
            if (best[i].powers_only && (P & (P - 1)) != 0) continue;
            const struct algorithm *a = algorithm_find(best[i].op, best[i].name);
            assert_non_null(a);
            const struct collective c = { .count = best[i].op == ALLTOALL ? EACH : EACH * 2 * P, .dtype = F32 };
            const uint64_t once = 4 * (uint64_t)(best[i].op == ALLTOALL ? EACH : EACH * 2) * (uint64_t)(P - 1);
            for (int r = 0; r < P; r++) {
                const struct collective_cost cost = collective_cost(a, r, P, &c);
                if (best[i].fewest_bytes) assert_int_equal(cost.bytes, best[i].op == ALLREDUCE ? 2 * once : once);
                if (best[i].fewest_steps) assert_int_equal(cost.steps, rounds_at_least(P));
            }
        }
}

/* S segments reach P devices in no less than S-1 + ceil(log2 P) rounds, and each device receives every byte once. */
static void test_circulant_broadcast_is_optimal(void **state)
{
    enum { SEGMENT = 8192 };                                    /* floats */
    const struct algorithm *a = algorithm_find(BROADCAST, "circulant");
    (void)state;
    for (int P = 2; P <= 40; P++)
        for (int S = 1; S <= 21; S += 4) {
            const struct collective c = { .count = (int64_t)S * SEGMENT, .dtype = F32, .root = P / 3 };
            uint64_t bytes = 0;
            for (int r = 0; r < P; r++) {
                const struct collective_cost cost = collective_cost(a, r, P, &c);
                assert_int_equal(cost.steps, S - 1 + rounds_at_least(P));
                assert_true(cost.messages <= cost.steps);
                bytes += cost.bytes;
            }
            assert_int_equal(bytes, 4 * (uint64_t)c.count * (uint64_t)(P - 1));
        }
}

/* ---- counts whose bytes no int holds ----------------------------------------------------------------------------- */

/* Where everything divides, K times the elements are K times the bytes and additions;
 * terabytes cost nothing in arithmetic. */
static void test_costs_of_large_counts(void **state)
{
    (void)state;
    for (int i = 0; algorithms[i] != NULL; i++)
        for (int P = 2; P <= 16; P++) {
            const struct algorithm *a = algorithms[i];
            const struct cluster m = nodes_of(2);
            const int64_t few = 2 * 720720, K = 1 << 12;    /* all of 1 .. 16 divide half of it */
            struct collective small = { .count = few, .dtype = F64, .nodes = nodes_on(&m, NULL, P) }, large = small;
            large.count = few * K;
            if (a->operation == BARRIER || algorithm_refuses(a, P, &small) != NULL) continue;
            /* other segments go other ways */
            if (a->operation == BROADCAST && strcmp(a->name, "circulant") == 0) continue;
            for (int r = 0; r < P; r++) {
                const struct collective_cost one = collective_cost(a, r, P, &small),
                                             many = collective_cost(a, r, P, &large);
                /* no segments */
                if (strstr(a->cost_formula, "S") == NULL) assert_int_equal(many.messages, one.messages);
                if (many.bytes != K * one.bytes || many.additions != K * one.additions)
                    print_error("%s %s, P=%d, member %d\n", operation_name(a->operation), a->name, P, r);
                assert_int_equal(many.bytes, (uint64_t)K * one.bytes);
                assert_int_equal(many.additions, (uint64_t)K * one.additions);
            }
        }
}

/* So many bytes of address space on one and the same piece of a file. */
static unsigned char *repeated_mapping(FILE *piece, size_t piece_bytes, size_t bytes)
{
    unsigned char *all = mmap(NULL, bytes, PROT_NONE, MAP_SHARED, fileno(piece), 0);
    for (size_t at = 0; all != MAP_FAILED && at < bytes; at += piece_bytes)
        if (mmap(all + at, bytes - at < piece_bytes ? bytes - at : piece_bytes, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_FIXED, fileno(piece), 0) == MAP_FAILED)
            return NULL;
    return all == MAP_FAILED ? NULL : all;
}

/* More than 2^31 bytes in one message, really sent: from and to memory in which one piece lies behind every part. */
static void test_a_message_beyond_int(void **state)
{
    const size_t piece = 1 << 24, bytes = ((size_t)1 << 31) + piece + 4096;
    struct error err = { .code = OK, .text = "" };
    FILE *file = tmpfile();
    (void)state;
    if (group.size != 2) skip();
    const bool room = file != NULL && ftruncate(fileno(file), (off_t)piece) == 0;
    unsigned char *x = room ? repeated_mapping(file, piece, bytes) : NULL;
    ASSERT_ALL(x != NULL, "%zu bytes cannot be mapped", bytes);
    for (size_t i = 0; i < piece; i++) x[i] = group.rank == 1 ? (unsigned char)(i * 7 + (i >> 8)) : 0;
    const struct collective c = { .in = x, .out = x, .count = (int64_t)bytes, .dtype = U8, .root = 1 };
    const uint64_t before = comm.counted.of[TRAFFIC_OTHER].of[BROADCAST].bytes_sent;
    const enum error_code code = collective_run(&group, BROADCAST, "binomial", &c, &err);
    size_t wrong = 0;
    for (size_t i = 0; i < piece; i++) wrong += x[i] != (unsigned char)(i * 7 + (i >> 8));
    ASSERT_ALL(code == OK && wrong == 0, "%zu bytes: %s; %zu of them differ", bytes, err.text, wrong);
    ASSERT_ALL(comm.counted.of[TRAFFIC_OTHER].of[BROADCAST].bytes_sent - before == (group.rank == 1 ? bytes : 0),
               "counted %llu bytes",
               (unsigned long long)(comm.counted.of[TRAFFIC_OTHER].of[BROADCAST].bytes_sent - before));
    munmap(x, bytes);
    fclose(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_DEVICES(test_optima),
        ON_DEVICES(test_circulant_broadcast_is_optimal),
        ON_DEVICES(test_costs_of_large_counts),
        ON_DEVICES(test_a_message_beyond_int),
    };
    return MPI_RUN("costs of collectives", tests);
}
