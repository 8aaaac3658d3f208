/* failures.c -- draws when something of a cluster breaks.  simulate.c calls.  Nothing here fails. */
#include "emulated_devices/cluster/failures.h"
#include "ref/exact/scalars.h"
#include "ref/numeric/philox.h"

static const int counted[FAILURE_KINDS] = { 268, 53, 35, 63 };

struct failure failure_draw(uint64_t seed, int64_t number, int64_t last, double between, int devices, int node)
{
    const uint64_t stream = random_stream("cluster failures"), at = 3 * (uint64_t)number;
    const double gap = -scalar_log(1 - random_uniform(seed, stream, at)) * between / devices;
    const int device = (int)(random_uniform(seed, stream, at + 1) * devices);
    struct failure f = { .at = last + 1 + (int64_t)gap, .first = device, .devices = 1 };
    double left = random_uniform(seed, stream, at + 2) * (268 + 53 + 35 + 63);
    for (int kind = 0; kind < FAILURE_KINDS; kind++) {
        f.kind = (enum failure_kind)kind;
        if ((left -= counted[kind]) < 0) break;
    }
    const int unit = f.kind == FAILURE_NODE ? node : f.kind == FAILURE_NETWORK ? FAILURE_NODES * node : 1;
    f.devices = unit < devices ? unit : devices;
    f.first = device / f.devices * f.devices;
    f.breaks = f.kind == FAILURE_DEVICE || f.kind == FAILURE_NODE;
    return f;
}
