/* slices.c -- one slice of weights and optimizer state after the other is stepped, by the device or by its host.
 *
 * Source   slices through a bounded buffer: ZeRO-Infinity, arXiv:2104.07857; every k-th on the device while the host steps the others:
 *          A. Maurya et al., "Deep Optimizer States: towards scalable training of transformer models using interleaved
 *          offloading", arXiv:2410.21316
 * Order    with stride k, slices k-1, 2k-1, .. are the device's: it reads the next of them, the host steps the k-1 before this one, the
 *          device steps this one and writes it back.  All engines work beside each other; a buffer is read into when the slice that
 *          had it has been written.  In virtual time, with slice q of the device in buffer q mod 3:
 *
 *              filled(q)  = max(reads before, emptied(q-3)) + read         host(j)    = host(j-1) + host step
 *              stepped(q) = max(stepped(q-1), filled(q)) + step            landed(j)  = max(reads before, host(j)) + read of its weights
 *              emptied(q) = max(emptied(q-1), stepped(q)) + write
 *
 *          Weights land only where the device keeps them itself.  The step ends when all of these have.
 * Equals   the step without offloading, bit for bit: host and device have one kernel, and an element's step has no neighbours
 */
#include "emulated_devices/schemes/data/offload.h"
#include "emulated_devices/device/compute.h"
#include "ref/numeric/convert.h"

/* ---- operands ------------------------------------------------------------------------------------------------------------------ */

enum { MOST_OPERANDS = 3 + OPTIMIZER_MAX_STATES };

struct operand { struct tensor *at; enum arena_tag tag; enum tensor_kind kind; bool read, written; };

/* What is stepped, in the order in which it is moved.  A master is the weights themselves in formats that need none. */
static int list_operands(const struct data_parallel *dp, struct operands *o, struct operand out[MOST_OPERANDS])
{
    const bool masters = data_has_masters(dp);
    int n = 0;
    out[n++] = (struct operand){ &o->gradient, GRADIENTS, KIND_GRADIENT, .read = true };
    out[n++] = (struct operand){ &o->master, masters ? OPTIMIZER : PARAMETERS, KIND_MASTER, .read = true, .written = true };
    for (int s = 0; s < dp->optimizer->states; s++)
        out[n++] = (struct operand){ &o->state[s], OPTIMIZER, KIND_STATE, .read = true, .written = true };
    if (masters) out[n++] = (struct operand){ &o->weight, PARAMETERS, KIND_WEIGHT, .written = true };
    return n;
}

/* Where a slice lies. */
static struct operands homes(const struct data_parallel *dp, const struct step_slice *s)
{
    struct operands o = { .gradient = slice(data_own_gradient(dp, s->unit), s->own),
                          .master = slice(data_kept_tensor(dp, s->unit, KIND_MASTER), s->own),
                          .weight = slice(stepped_weights(dp, s->unit), s->own) };
    for (int i = 0; i < dp->optimizer->states; i++) o.state[i] = slice(s->unit->state[i], s->own);
    return o;
}

static int round_of(const struct data_parallel *dp, int slice)
{
    return dp->request.offload_stride > 1 ? slice / dp->request.offload_stride : slice;
}

/* With what lies on the slow tier in the slice's buffer. */
static struct operands on_device(struct stepping *x, int i)
{
    struct operands o = homes(x->dp, &x->dp->slice[i]), *buffer = &x->buffer[round_of(x->dp, i) % OFFLOAD_BUFFERS];
    struct operand at[MOST_OPERANDS], in[MOST_OPERANDS];
    const int n = list_operands(x->dp, &o, at);
    list_operands(x->dp, buffer, in);
    for (int k = 0; k < n; k++)
        if (offloads(&x->dp->request, at[k].tag)) *at[k].at = slice(*in[k].at, (struct interval){ 0, x->dp->slice[i].own.count });
    return o;
}

/* ---- buffers ------------------------------------------------------------------------------------------------------------------- */

enum error_code stepping_open(struct stepping *x, struct data_parallel *dp, struct step step, struct error *err)
{
    *x = (struct stepping){ .dp = dp, .step = step, .start = dp->device->clock.now };
    bool failed = false;
    for (int b = 0; b < buffers_of_step(dp); b++) {
        struct operand in[MOST_OPERANDS];
        for (int k = 0, n = list_operands(dp, &x->buffer[b], in); k < n; k++) {
            if (!offloads(&dp->request, in[k].tag)) continue;
            *in[k].at = device_tensor_in(dp->device, in[k].tag, data_format(dp, in[k].kind), dp->longest_slice);
            failed = failed || in[k].at->data == NULL;
        }
        x->filled[b] = x->emptied[b] = x->start;
    }
    return failed ? fail(err, ERR_MEMORY, "the machine has no memory left for %d slices of the optimizer's state", OFFLOAD_BUFFERS) : OK;
}

void stepping_close(struct stepping *x)
{
    for (int b = 0; b < OFFLOAD_BUFFERS; b++) {
        struct operand in[MOST_OPERANDS];
        for (int k = 0, n = list_operands(x->dp, &x->buffer[b], in); k < n; k++) device_free(x->dp->device, *in[k].at);
    }
}

/* ---- moving -------------------------------------------------------------------------------------------------------------------- */

static enum error_code fetch(struct stepping *x, int i, struct error *err)
{
    struct data_parallel *dp = x->dp;
    const int b = round_of(dp, i) % OFFLOAD_BUFFERS;
    struct operands from = homes(dp, &dp->slice[i]), to = on_device(x, i);
    struct operand home[MOST_OPERANDS], here[MOST_OPERANDS];
    const int n = list_operands(dp, &from, home);
    uint64_t bytes = 0;
    enum error_code e = OK;
    list_operands(dp, &to, here);
    for (int k = 0; k < n; k++)
        if (home[k].read && offloads(&dp->request, home[k].tag)) bytes += tensor_bytes(*home[k].at);
    x->filled[b] = tier_announce(&dp->tier, bytes, x->emptied[b]);
    for (int k = 0; k < n && !e; k++)
        if (home[k].read && offloads(&dp->request, home[k].tag)) e = tier_read(&dp->tier, *here[k].at, *home[k].at, &x->filled[b], err);
    return e;
}

static enum error_code flush(struct stepping *x, int i, struct operands *from, struct error *err)
{
    struct data_parallel *dp = x->dp;
    const int b = round_of(dp, i) % OFFLOAD_BUFFERS;
    struct operands to = homes(dp, &dp->slice[i]);
    struct operand home[MOST_OPERANDS], here[MOST_OPERANDS];
    enum error_code e = OK;
    x->emptied[b] = dp->device->clock.now;
    list_operands(dp, from, here);
    for (int k = 0, n = list_operands(dp, &to, home); k < n && !e; k++) {
        picoseconds when = dp->device->clock.now;
        if (!home[k].written || !offloads(&dp->request, home[k].tag)) continue;
        e = tier_write(&dp->tier, *home[k].at, *here[k].at, &when, err);
        x->emptied[b] = when;
    }
    return e;
}

enum error_code slice_fetch_ahead(struct stepping *x, int i, struct error *err)
{
    const int k = x->dp->request.offload_stride > 1 ? x->dp->request.offload_stride : 1, own = i + k - 1, next = own + k;
    enum error_code e = OK;
    if (!x->dp->request.offload || i % k != 0) return OK;
    if (i == 0 && own < x->dp->slices) e = fetch(x, own, err);
    return e || next >= x->dp->slices ? e : fetch(x, next, err);
}

/* ---- stepping ------------------------------------------------------------------------------------------------------------------ */

struct op_cost slice_step_cost(const struct data_parallel *dp, int64_t n)
{
    const double each = (double)dtype_size(data_format(dp, KIND_MASTER)) * (2 + 2 * dp->optimizer->states)
                        + (has_gradients(dp) ? (double)dtype_size(data_format(dp, KIND_GRADIENT)) : 0);
    return (struct op_cost){ .flops = (double)dp->optimizer->operations * (double)n, .bytes = each * (double)n };
}

struct op_cost slice_round_cost(const struct data_parallel *dp, int64_t n)
{
    return data_has_masters(dp) ? elementwise_cost(n, 2, 1, data_format(dp, KIND_MASTER)) : (struct op_cost){ 0, 0 };
}

struct kernel { const struct data_parallel *dp; struct step step; struct operands o; int64_t first; };

static void step_stretch(void *context, struct portion s)
{
    struct kernel *x = context;
    const struct optimizer *o = x->dp->optimizer;
    const struct interval here = { s.row - x->first, s.length };
    struct tensor state[OPTIMIZER_MAX_STATES] = { 0 };
    for (int i = 0; i < o->states; i++) state[i] = slice(x->o.state[i], here);
    x->step.weight_decay = s.parameter->spec.decay ? x->dp->hyper->weight_decay : 0;
    if (o->forward_only) {
        step_along(x->dp, s, slice(x->o.master, here), x->step);
        return;
    }
    optimizer_step(o, slice(x->o.master, here), slice(x->o.gradient, here), state, x->step);
}

/* The arithmetic, whoever does it.  Padding is not stepped. */
static void run_kernel(const struct stepping *x, int i, struct operands o)
{
    const struct step_slice *s = &x->dp->slice[i];
    const int64_t first = data_kept(&x->dp->shards, s->unit, KIND_MASTER).first + s->own.first;
    struct views v = views_of(x->dp->device);
    struct kernel kernel = { .dp = x->dp, .step = x->step, .first = first };
    kernel.o.gradient = view_read(&v, o.gradient), kernel.o.master = view_write(&v, o.master);
    for (int k = 0; k < x->dp->optimizer->states; k++) kernel.o.state[k] = view_write(&v, o.state[k]);
    unit_each_stretch(s->unit, (struct interval){ first, s->own.count }, step_stretch, &kernel);
    views_end(&v);
    if (data_has_masters(x->dp)) device_convert(x->dp->device, o.weight, o.master);
}

static enum error_code step_on_device(struct stepping *x, int i, struct error *err)
{
    struct clock *clock = &x->dp->device->clock;
    const int64_t n = x->dp->slice[i].own.count;
    struct operands o = on_device(x, i);
    clock_wait(clock, x->filled[round_of(x->dp, i) % OFFLOAD_BUFFERS]);
    run_kernel(x, i, o);
    device_charge(x->dp->device, "optimizer step", slice_step_cost(x->dp, n));
    if (data_has_masters(x->dp)) device_charge(x->dp->device, "round weights", slice_round_cost(x->dp, n));
    return x->dp->request.offload ? flush(x, i, &o, err) : OK;
}

/* Where everything lies.  Weights that the device keeps go there when the host has rounded them. */
static enum error_code step_on_host(struct stepping *x, int i, struct error *err)
{
    struct data_parallel *dp = x->dp;
    const int64_t n = dp->slice[i].own.count;
    const struct op_cost step = slice_step_cost(dp, n), round = slice_round_cost(dp, n);
    struct operands o = homes(dp, &dp->slice[i]);
    const struct tensor kept = o.weight;
    const bool lands = !offloads(&dp->request, PARAMETERS);
    if (lands) o.weight = slice(dp->landing, (struct interval){ dp->slice[i].before, n });
    run_kernel(x, i, o);
    picoseconds when = clock_host(&dp->device->clock, "optimizer step", x->start,
                                  (struct op_cost){ step.flops + round.flops, step.bytes + round.bytes }, data_format(dp, KIND_MASTER));
    if (!lands) return OK;
    const enum error_code e = tier_read(&dp->tier, kept, o.weight, &when, err);
    x->landed = when;
    return e;
}

enum error_code slice_step(struct stepping *x, int i, struct error *err)
{
    return stepped_by_host(x->dp, i) ? step_on_host(x, i, err) : step_on_device(x, i, err);
}

/* Up to 1 + device/host a larger stride gives the host what it does meanwhile for nothing; beyond, the device waits for it. */
int data_balanced_stride(picoseconds host, picoseconds device)
{
    if (host <= 0) return INT32_MAX;
    const int64_t k = 1 + device / host;                                /* here the device is the slower one, at k + 1 the host */
    return device * (k + 1) <= k * host * k ? (int)k : (int)k + 1;      /* device / k <= k host / (k + 1) */
}
