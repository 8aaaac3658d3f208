/* op_time.c -- the time of one operation: it is charged to a device without numbers. */
#include "emulated_devices/device/cluster.h"
#include "emulated_devices/schemes/sbp/assign.h"
#include <string.h>

static struct box box_of(const struct sbp_graph *g, const struct sbp_op *op, const struct sbp_mesh *m,
                         const struct rule *r, int operand, int device)
{
    const int t = operand == op->inputs ? op->out : op->in[operand];
    return signature_box(&g->tensor[t].shape, m, operand == op->inputs ? r->out : r->in[operand], device);
}

/* The device that has most of what the operation reads and makes. */
static int fullest(const struct sbp_graph *g, const struct sbp_op *op, const struct sbp_mesh *m, const struct rule *r)
{
    int64_t most = -1;
    int best = 0;
    for (int d = 0; d < sbp_devices(m); d++) {
        int64_t sum = 0;
        for (int k = 0; k <= op->inputs; k++) {
            const int t = k == op->inputs ? op->out : op->in[k];
            sum += box_count(box_of(g, op, m, r, k, d), g->tensor[t].shape.ndim);
        }
        if (sum > most) most = sum, best = d;
    }
    return best;
}

static struct tensor piece(struct device *d, const struct sbp_graph *g, int tensor, struct box b)
{
    const int ndim = g->tensor[tensor].shape.ndim;
    struct tensor t = device_tensor_1d(d, BUFFERS, box_count(b, ndim));
    t.ndim = ndim;
    memcpy(t.dim, b.extent, sizeof t.dim);
    return t;
}

picoseconds sbp_op_time(const struct sbp_graph *g, const struct sbp_op *op, const struct sbp_mesh *m,
                        const struct rule *r)
{
    struct device d;
    struct tensor all[SBP_OPERANDS + 1];
    const int device = fullest(g, op, m, r);
    bool made = true;
    /* The device only counts: its clock advances by the operation's cost, and no number is computed. */
    if (device_open(&d, backend_find("count"), F64, 0, NULL) != OK) return -1;
    clock_restart(&d.clock, m->cluster, F64);
    for (int k = 0; k <= op->inputs; k++) {
        const int t = k == op->inputs ? op->out : op->in[k];
        all[k] = piece(&d, g, t, box_of(g, op, m, r, k, device));
        made = made && all[k].data;
    }
    made = made && op->operator->run(&d, &g->model, all[op->inputs], all);
    const picoseconds time = d.clock.now;
    for (int k = 0; k <= op->inputs; k++) device_free(&d, all[k]);
    device_close(&d);
    return made ? time : -1;
}
