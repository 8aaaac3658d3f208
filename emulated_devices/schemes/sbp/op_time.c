/* op_time.c -- the time of one operation: it is charged to a device without numbers.
 *
 * assign.c asks for the time of each operation by each rule, if the mesh has a cluster.  Nothing is computed; the
 * result is -1 without memory.  No function returns an error code.
 */
#include "emulated_devices/device/cluster.h"
#include "emulated_devices/schemes/sbp/assign.h"
#include <string.h>

/* Return the part of an operand, or of the result, that a device has by a rule. */
static struct box box_of(const struct sbp_graph *sbp_graph, const struct sbp_op *op, const struct sbp_mesh *sbp_mesh,
                         const struct rule *rule, int operand, int device)
{
    const int t = operand == op->inputs ? op->out : op->in[operand];
    return signature_box(&sbp_graph->tensor[t].shape, sbp_mesh,
                         operand == op->inputs ? rule->out : rule->in[operand], device);
}

/* The device that has most of what the operation reads and makes. */
static int op_time_fullest(const struct sbp_graph *sbp_graph, const struct sbp_op *op, const struct sbp_mesh *sbp_mesh,
                           const struct rule *rule)
{
    int64_t most = -1;
    int best = 0;
    for (int d = 0; d < sbp_devices(sbp_mesh); d++) {
        int64_t sum = 0;
        for (int k = 0; k <= op->inputs; k++) {
            const int t = k == op->inputs ? op->out : op->in[k];
            sum += box_count(box_of(sbp_graph, op, sbp_mesh, rule, k, d), sbp_graph->tensor[t].shape.ndim);
        }
        if (sum > most) most = sum, best = d;
    }
    return best;
}

/* Make a tensor of the counting device with the shape of a part. */
static struct tensor piece(struct device *device, const struct sbp_graph *sbp_graph, int tensor, struct box box)
{
    const int ndim = sbp_graph->tensor[tensor].shape.ndim;
    struct tensor t = device_tensor_1d(device, BUFFERS, box_count(box, ndim));
    t.ndim = ndim;
    memcpy(t.dim, box.extent, sizeof t.dim);
    return t;
}

picoseconds sbp_op_time(const struct sbp_graph *sbp_graph, const struct sbp_op *op, const struct sbp_mesh *sbp_mesh,
                        const struct rule *rule)
{
    struct device d;
    struct tensor all[SBP_OPERANDS + 1];
    const int device = op_time_fullest(sbp_graph, op, sbp_mesh, rule);
    bool made = true;
    /* The device only counts: its clock advances by the operation's cost, and no number is computed. */
    if (device_open(&d, backend_find("count"), F64, 0, NULL) != OK) return -1;
    clock_restart(&d.clock, sbp_mesh->cluster, F64);
    for (int k = 0; k <= op->inputs; k++) {
        const int t = k == op->inputs ? op->out : op->in[k];
        all[k] = piece(&d, sbp_graph, t, box_of(sbp_graph, op, sbp_mesh, rule, k, device));
        made = made && all[k].data;
    }
    /* The operator charges the device's clock as it would in a run. */
    made = made && op->operator->run(&d, &sbp_graph->model, all[op->inputs], all);
    const picoseconds time = d.clock.now;
    for (int k = 0; k <= op->inputs; k++) device_free(&d, all[k]);
    device_close(&d);
    return made ? time : -1;
}
