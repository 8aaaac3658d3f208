/* Sparse all-gathers and reduce-scatters of random placements: values, guards, bytes and messages by formula.
 * ranks: 1 3 4
 * verify ranks: 2 5 6 7 8
 *
 * Every member draws the same placements, and knows every member's input.  What is counted is compared with sums over
 * the placement that are written here once more, and not taken from the algorithms' cost functions.
 */
#include "emulated_devices/collectives/collective.h"
#include <string.h>

enum { PAD = 32, MOST_P = 8, MOST_BLOCKS = 12, LONGEST = 40 };
static const unsigned char PAD_BYTE = 0x5a;

/* Only the use of a port takes time: the clock counts rounds. */
static const struct cluster ports = { .name = "ports", .levels = 1,
                                      .link = { { .gap = 1000000, .eager = ALWAYS_EAGER } } };
#define DEVICE_FORMAT F64
#define DEVICE_CLUSTER (&ports)
#include "tests/devices/on_devices.h"

struct complaint { char text[500]; };
#define COMPLAIN(...) do { if (bad->text[0] == '\0') snprintf(bad->text, sizeof bad->text, __VA_ARGS__); } while (0)

/* ---- a case ------------------------------------------------------------------------------------------------------ */

struct sparse_case {
    struct block_placement placement;
    int32_t owner[MOST_BLOCKS];
    bool held[MOST_BLOCKS * MOST_P];
    int64_t counts[MOST_BLOCKS];
};

static uint64_t seed;

static int draw(int below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((seed >> 33) % (uint64_t)below);
}

/* chance: in ten, that a member is a target. */
static void draw_case(struct sparse_case *s, uint64_t number, int blocks, int chance)
{
    seed = number;
    *s = (struct sparse_case){ .placement = { .blocks = blocks, .owner = s->owner, .held = s->held } };
    for (int b = 0; b < blocks; b++) {
        s->owner[b] = draw(comm.size);
        s->counts[b] = draw(4) == 0 ? 0 : draw(LONGEST);
        for (int m = 0; m < comm.size; m++) s->held[b * comm.size + m] = draw(10) < chance;
    }
}

static bool holds(const struct sparse_case *s, int b, int m)
{
    return s->owner[b] == m || s->held[b * comm.size + m];
}

static double value(int member, int b, int64_t i) { return (double)((member * 31 + b * 13 + i * 7) % 61 - 30); }

/* ---- what must be sent ------------------------------------------------------------------------------------------- */

struct sums { uint64_t messages, elements; };

/* Of all members: the targets of each block, and the elements for each of them. */
static struct sums over_targets(const struct sparse_case *s)
{
    struct sums sum = { 0 };
    for (int b = 0; b < (int)s->placement.blocks; b++)
        for (int m = 0; m < comm.size; m++)
            if (m != s->owner[b] && holds(s, b, m)) {
                sum.messages += s->counts[b] > 0;
                sum.elements += (uint64_t)s->counts[b];
            }
    return sum;
}

static struct sums of_all(struct sums mine)
{
    struct sums all = { 0 };
    MPI_Request request;
    MPI_Iallreduce(&mine, &all, 2, MPI_UINT64_T, MPI_SUM, harness, &request);
    patience_meet(&request);
    return all;
}

/* ---- one call ---------------------------------------------------------------------------------------------------- */

struct buffer { unsigned char *memory; double *data; int64_t n; };

static struct buffer buffer_make(int64_t n)
{
    const size_t bytes = (size_t)n * sizeof (double);
    struct buffer b = { .memory = malloc(bytes + 2 * PAD), .n = n };
    assert_non_null(b.memory);
    memset(b.memory, PAD_BYTE, bytes + 2 * PAD);
    b.data = (double *)(void *)(b.memory + PAD);
    memset(b.data, 0xff, bytes);
    return b;
}

static bool buffer_intact(struct buffer b)
{
    for (int i = 0; i < PAD; i++)
        if (b.memory[i] != PAD_BYTE || b.memory[PAD + (size_t)b.n * sizeof (double) + (size_t)i] != PAD_BYTE)
            return false;
    return true;
}

/* Elements that a member owns or holds before block b; b = blocks: all of them. */
static int64_t before(const struct sparse_case *s, int member, int b, bool owned)
{
    int64_t n = 0;
    for (int i = 0; i < b; i++)
        if (owned ? s->owner[i] == member : holds(s, i, member)) n += s->counts[i];
    return n;
}

/* Where this member's own block is in the smaller buffer; in place it is part of the larger one. */
static double *own_block(const struct sparse_case *s, int b, struct buffer small, struct buffer large, bool in_place)
{
    return in_place ? large.data + before(s, comm.rank, b, false) : small.data + before(s, comm.rank, b, true);
}

static double *first_own(const struct sparse_case *s, struct buffer small, struct buffer large, bool in_place)
{
    for (int b = 0; b < (int)s->placement.blocks && in_place; b++)
        if (s->owner[b] == comm.rank && s->counts[b] > 0) return own_block(s, b, small, large, true);
    return small.data;
}

static void fill(const struct sparse_case *s, bool gathers, struct buffer small, struct buffer large, bool in_place)
{
    for (int b = 0; b < (int)s->placement.blocks; b++)
        for (int64_t i = 0; i < s->counts[b]; i++) {
            if (!gathers && holds(s, b, comm.rank))
                large.data[before(s, comm.rank, b, false) + i] = value(comm.rank, b, i);
            if (gathers && s->owner[b] == comm.rank)
                own_block(s, b, small, large, in_place)[i] = value(comm.rank, b, i);
        }
}

static double wanted(const struct sparse_case *s, bool gathers, int b, int64_t i)
{
    double sum = 0;
    if (gathers) return value(s->owner[b], b, i);
    for (int m = 0; m < comm.size; m++)
        if (holds(s, b, m)) sum += value(m, b, i);
    return sum;
}

static void check_values(struct complaint *bad, const struct sparse_case *s, bool gathers, struct buffer small,
                         struct buffer large, bool in_place)
{
    for (int b = 0; b < (int)s->placement.blocks; b++) {
        if (gathers ? !holds(s, b, comm.rank) : s->owner[b] != comm.rank) continue;
        const double *got = gathers ? large.data + before(s, comm.rank, b, false)
                                    : own_block(s, b, small, large, in_place);
        for (int64_t i = 0; i < s->counts[b]; i++)
            if (!(got[i] == wanted(s, gathers, b, i)))
                COMPLAIN("block %d of member %d: element %lld is %g, want %g", b, s->owner[b], (long long)i, got[i],
                         wanted(s, gathers, b, i));
    }
    if (!buffer_intact(small) || !buffer_intact(large)) COMPLAIN("wrote outside its buffers");
}

/* A reduction leaves other members' blocks of in as they were. */
static void check_input(struct complaint *bad, const struct sparse_case *s, struct buffer large)
{
    for (int b = 0; b < (int)s->placement.blocks; b++)
        for (int64_t i = 0; i < s->counts[b] && holds(s, b, comm.rank) && s->owner[b] != comm.rank; i++)
            if (!(large.data[before(s, comm.rank, b, false) + i] == value(comm.rank, b, i)))
                COMPLAIN("changed its values of block %d", b);
}

static struct traffic *counted(enum operation op) { return &comm.counted.of[TRAFFIC_OTHER].of[op]; }

static void check_traffic(struct complaint *bad, const struct sparse_case *s, const struct algorithm *a,
                          const struct collective *c, const struct traffic *then)
{
    const struct traffic *now = counted(a->operation);
    const struct collective_cost cost = collective_cost(a, comm.rank, comm.size, c);
    const struct sums mine = { now->messages_sent - then->messages_sent,
                               (now->bytes_sent - then->bytes_sent) / sizeof (double) };
    const uint64_t additions = now->additions - then->additions;
    if (mine.messages != cost.messages || mine.elements * sizeof (double) != cost.bytes || additions != cost.additions)
        COMPLAIN("sent %llu messages and %llu elements and added %llu; cost says %llu, %llu bytes, %llu",
                 (unsigned long long)mine.messages, (unsigned long long)mine.elements, (unsigned long long)additions,
                 (unsigned long long)cost.messages, (unsigned long long)cost.bytes,
                 (unsigned long long)cost.additions);
    const struct sums all = of_all(mine), want = over_targets(s),
                      added = of_all((struct sums){ additions, 0 });
    const uint64_t additions_wanted = a->operation == SPARSE_REDUCE_SCATTER ? want.elements : 0;
    if (all.messages != want.messages || all.elements != want.elements || added.messages != additions_wanted)
        COMPLAIN("all sent %llu messages, %llu elements, and added %llu; the sums over targets are %llu, %llu, %llu",
                 (unsigned long long)all.messages, (unsigned long long)all.elements,
                 (unsigned long long)added.messages, (unsigned long long)want.messages,
                 (unsigned long long)want.elements, (unsigned long long)additions_wanted);
}

/* @return the virtual time that this member needs. */
static picoseconds run_case(const struct algorithm *a, struct sparse_case *s, bool in_place)
{
    const bool gathers = a->operation == SPARSE_ALLGATHER;
    const int blocks = (int)s->placement.blocks;
    struct complaint bad_here = { "" }, *bad = &bad_here;
    struct error err = { .text = "" };
    struct buffer small = buffer_make(before(s, comm.rank, blocks, true)),
                  large = buffer_make(before(s, comm.rank, blocks, false));
    double *own = first_own(s, small, large, in_place);
    const struct collective c = { .in = gathers ? own : large.data, .out = gathers ? large.data : own,
                                  .counts = s->counts, .placement = &s->placement, .dtype = F64, .reduction = SUM };
    fill(s, gathers, small, large, in_place);
    const struct traffic then = *counted(a->operation);
    const uint64_t held = device.arena.now.total;
    clock_reset(&device.clock);
    const enum error_code code = collective_run(comm.everyone, a->operation, a->name, &c, &err);
    const picoseconds time = device.clock.now;
    if (code != OK) COMPLAIN("%s", err.text);
    check_values(bad, s, gathers, small, large, in_place);
    if (!gathers) check_input(bad, s, large);
    check_traffic(bad, s, a, &c, &then);
    if (device.arena.now.total != held) COMPLAIN("kept scratch");
    ASSERT_ALL(bad->text[0] == '\0', "%s %s%s, %d blocks: member %d: %s", operation_name(a->operation), a->name,
               in_place ? ", in place" : "", blocks, comm.rank, bad->text);
    free(small.memory), free(large.memory);
    return time;
}

/* ---- cases ------------------------------------------------------------------------------------------------------- */

static bool is_sparse(const struct algorithm *a)
{
    return a->operation == SPARSE_ALLGATHER || a->operation == SPARSE_REDUCE_SCATTER;
}

static void test_random_placements(void **state)
{
    (void)state;
    for (int i = 0; algorithms[i] != NULL; i++)
        for (int n = 0; n < 40 && is_sparse(algorithms[i]); n++) {
            struct sparse_case s;
            draw_case(&s, (uint64_t)n * 7 + 1, n % (MOST_BLOCKS + 1), n % 11);
            run_case(algorithms[i], &s, n % 2 == 1);
            run_case(algorithms[i], &s, n % 2 == 0);
        }
}

/* No targets: nothing is sent.  No elements: nor then. */
static void test_empty_sets(void **state)
{
    (void)state;
    for (int i = 0; algorithms[i] != NULL; i++) {
        struct sparse_case s;
        if (!is_sparse(algorithms[i])) continue;
        draw_case(&s, 5, MOST_BLOCKS, 0);
        run_case(algorithms[i], &s, false), run_case(algorithms[i], &s, true);
        draw_case(&s, 6, MOST_BLOCKS, 10);
        memset(s.counts, 0, sizeof s.counts);
        run_case(algorithms[i], &s, false);
        const uint64_t before_all = counted(algorithms[i]->operation)->messages_sent;
        run_case(algorithms[i], &s, true);
        ASSERT_ALL(counted(algorithms[i]->operation)->messages_sent == before_all, "sent blocks without elements");
    }
}

static picoseconds slowest(picoseconds mine)
{
    int64_t all = 0, one = mine;
    MPI_Request request;
    MPI_Iallreduce(&one, &all, 1, MPI_INT64_T, MPI_MAX, harness, &request);
    patience_meet(&request);
    return all;
}

/* One block to all: P-1 messages through the owner's port, or log P one after another. */
static void test_rounds_of_one_block(void **state)
{
    int log = 0;
    (void)state;
    while (1 << log < comm.size) log++;
    for (int i = 0; algorithms[i] != NULL; i++) {
        struct sparse_case s;
        if (!is_sparse(algorithms[i])) continue;
        draw_case(&s, 3, 1, 10);
        s.counts[0] = LONGEST;
        const int64_t rounds = slowest(run_case(algorithms[i], &s, false)) / ports.link[0].gap,
                      want = strcmp(algorithms[i]->name, "flat") == 0 ? comm.size - 1 : log;
        ASSERT_ALL(rounds == want, "%s %s of one block: %lld rounds, want %lld",
                   operation_name(algorithms[i]->operation), algorithms[i]->name, (long long)rounds, (long long)want);
    }
}

/* The flat reduction adds in the order of ranks: its bits do not depend on the owner. */
static void test_owner_does_not_change_bits(void **state)
{
    bool held[MOST_P];
    double in = comm.rank % 2 ? 1e-16 * (comm.rank + 1) : 1.0 / (comm.rank + 3), out[MOST_P] = { 0 }, all[MOST_P];
    struct error err;
    MPI_Request request;
    (void)state;
    memset(held, true, sizeof held);
    for (int32_t owner = 0; owner < comm.size; owner++) {
        const struct block_placement one = { .blocks = 1, .owner = &owner, .held = held };
        const struct collective c = { .in = &in, .out = &out[owner], .count = 1, .placement = &one, .dtype = F64,
                                      .reduction = SUM };
        const enum error_code code = collective_run(comm.everyone, SPARSE_REDUCE_SCATTER, "flat", &c, &err);
        ASSERT_ALL(code == OK, "%s", err.text);
    }
    MPI_Iallreduce(out, all, MOST_P, MPI_DOUBLE, MPI_SUM, harness, &request);
    patience_meet(&request);
    for (int m = 1; m < comm.size; m++)
        ASSERT_ALL(memcmp(&all[m], &all[0], sizeof *all) == 0, "owner %d has %.17g, owner 0 %.17g", m, all[m], all[0]);
}

/* ---- wrong calls ------------------------------------------------------------------------------------------------- */

static void expect_refusal(struct collective c, const char *text)
{
    struct error err = { .text = "" };
    const enum error_code code = collective_run(comm.everyone, SPARSE_ALLGATHER, NULL, &c, &err);
    ASSERT_ALL(code == ERR_USAGE && strstr(err.text, text), "got code %d, \"%s\"; want \"%s\"", (int)code, err.text,
               text);
}

static void test_wrong_calls(void **state)
{
    int32_t owner[2] = { 0, comm.size };
    bool held[2 * MOST_P] = { false };
    int64_t counts[2] = { 1, -1 };
    double x[4] = { 0 }, y[4];
    struct block_placement p = { .blocks = 2, .owner = owner, .held = held };
    struct collective c = { .in = x, .out = y, .counts = counts, .placement = &p, .dtype = F64 };
    (void)state;
    comm.checks_calls = true;
    expect_refusal(c, "sparse-allgather: owner ");
    owner[1] = 0;
    expect_refusal(c, "counts[1] = -1 is negative");
    counts[1] = 1;
    if (comm.rank == 0) c.out = x + 1;
    expect_refusal(c, "in place is in at the first own block of out");
    c.out = y;
    if (comm.size == 1) return;
    held[comm.size + comm.size - 1] = comm.rank == 0;
    expect_refusal(c, "placement (by hash)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_DEVICES(test_random_placements), ON_DEVICES(test_empty_sets), ON_DEVICES(test_rounds_of_one_block),
        ON_DEVICES(test_owner_does_not_change_bits), ON_DEVICES(test_wrong_calls),
    };
    return MPI_RUN("sparse_collectives", tests);
}
