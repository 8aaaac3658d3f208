/* What the tensor schemes' transfers take: predicted from the cost functions, and by the clock of a layer that is
 * really computed.
 * ranks: 4 8 9
 *
 * On a machine where computing takes no time, links between all devices are alike and a byte takes a whole number of
 * picoseconds, a layer takes what its collectives take.  Devices of 1d, 1d-sp, 1d-sp-keep and 3d come to each of them
 * together: then it is their sum, to the picosecond.  Under the other schemes it is no more than the sum: SUMMA's roots
 * go on while others wait for what they sent, and 1d-sp-overlap sends while it multiplies.
 */
#include "ref/model/kinds.h"
#include "tests/devices/on_devices.h"
#include <string.h>
#include "emulated_devices/model/link/link_cost.h"
#include "emulated_devices/verify/cases/layer.h"
#include "ref/model/families/families.h"

enum { B = 8 };
static const struct model_config even = { .name = "even",
                                          .S = 9, .D = 72, .H = 72, .K = 72, .A = 1, .F = 288, .L = 1, .V = 72,
                                          .family = &family_gpt2, .biases = BIASES_BLOCK, .eps = 1e-5,
                                          .init_std = 0.02 };
static struct error err;

static picoseconds largest(picoseconds mine)
{
    double x = (double)mine;
    ASSERT_ALL(allreduce(comm.everyone, &x, 1, F64, MAX, NULL, &err) == OK, "%s", err.text);
    return (picoseconds)x;
}

/* The time of one pass, and what is predicted.  @return false if the scheme does not take this many devices. */
static bool time_layer(const struct cluster *machine, const char *scheme, picoseconds *took, picoseconds *said)
{
    struct plan plan;
    struct trainer t;
    if (layer_plan(&plan, &even, B, F64, scheme, comm.size, machine, &err) != OK) return false;
    ASSERT_ALL(layer_open(&t, &plan, &comm, &err) == OK, "%s: %s", scheme, err.text);
    clock_restart(&device.clock, machine, F64);
    comm_barrier(&comm);
    ASSERT_ALL(layer_pass(&t, &err) == OK, "%s: %s", scheme, err.text);
    *took = largest(device.clock.now);
    *said = largest(block_time(&t.tensor, B * even.S));
    trainer_close(&t);
    return true;
}

static bool comes_together(const char *scheme)
{
    static const char *const names[] = { "1d", "1d-sp", "1d-sp-keep", "3d" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(scheme, names[i]) == 0) return true;
    return false;
}

static void check(picoseconds latency, picoseconds gap)
{
    const struct cluster machine = {
        .name = "test",
        .levels = 1,
        .link = { { .level = "node", .latency = latency, .gap = gap, .rate = 500000, .eager = ALWAYS_EAGER } }
    };
    int checked = 0;
    for (int i = 0; tensor_scheme_at(i); i++) {
        const char *name = tensor_scheme_at(i)->head.name;
        picoseconds took, said;
        if (!time_layer(&machine, name, &took, &said)) continue;
        ASSERT_ALL(comes_together(name) ? took == said : took > 0 && took <= said, "%s: took %lld ps, predicted %s%lld",
                   name, (long long)took, comes_together(name) ? "" : "at most ", (long long)said);
        checked++;
    }
    assert_true(checked == 6);                          /* four of 1d; 2d and 2.5d, or 2.5d and 3d */
}

static void test_bytes(void **state) { (void)state; check(0, 0); }
static void test_latency_and_ports(void **state) { (void)state; check(10000, 100); }

int main(void)
{
    const struct CMUnitTest tests[] = { ON_DEVICES(test_bytes), ON_DEVICES(test_latency_and_ports) };
    return MPI_RUN("tensor time", tests);
}
