/* slices.c -- steps weights and optimizer state slice by slice, on the device or on its host.
 *
 * Source   slices in a bounded buffer: ZeRO-Infinity, arXiv:2104.07857; every kth slice on the device while the host
 *          steps the others: A. Maurya et al., "Deep Optimizer States: towards scalable training of transformer models
 *          using interleaved offloading", arXiv:2410.21316
 * Order    with stride k, slices k-1, 2k-1, .. are the device's: it reads its next slice, the host steps the k-1 slices
 *          before this one, the device steps this one and writes it back.  All engines work in parallel; a buffer is
 *          filled again when its last slice has been written.  In virtual time, with slice q of the device in buffer
 *          q mod 3, and slice j of the host:
 *
 *              filled(q)  = max(reads before, emptied(q-3)) + read
 *              stepped(q) = max(stepped(q-1), filled(q)) + step
 *              emptied(q) = max(emptied(q-1), stepped(q)) + write
 *              host(j)    = host(j-1) + host step
 *              landed(j)  = max(reads before, host(j)) + read of its weights
 *
 *          Weights are read from the host (landed) only if the device keeps them itself.  The step ends when all of
 *          these are done.
 * Equals   the step without offloading, bit for bit: host and device use the same kernel, and an element's step does
 *          not depend on other elements
 * Called   data_step calls the stage; bench/offload/ and model/trainer_cost.c ask for predictions.  Errors:
 *          ERR_MEMORY, and those of the slow tier.
 */
#include "emulated_devices/schemes/data/stages/offload.h"
#include "emulated_devices/device/compute.h"
#include <stdlib.h>

/* A slice is a range `own` of the elements of a unit's row that this device steps.  `before` is the number of
 * elements in earlier slices.  `last` marks the last slice of a unit. */
struct step_slice { struct unit *unit; struct interval own; int64_t before; bool last; };

/* The slices of a unit: all but the last are as long as there are; of a large model there are millions. */
struct row_slices { struct unit *unit; int first, count; int64_t elements, before; };

struct slices {
    struct tier *tier;
    int count, rows;
    struct row_slices *row;                     /* [rows] */
    int64_t most, longest;
    struct tensor landing;                      /* on the tier: the weights that the host steps, if the device keeps
                                                 * weights itself */
};

/* The state of a step in progress. */
struct stepping {
    struct data_parallel *dp;
    const struct slices *s;
    struct step step;
    struct operands buffer[OFFLOAD_BUFFERS];    /* on the device: copies of what is on the slow tier */
    struct { int slice; struct operands is; } home[OFFLOAD_BUFFERS];    /* of those asked for last; -1: none */
    picoseconds start;                          /* virtual times: of the step; of reading and of writing back each
                                                 * buffer; of reading all weights that the host has stepped */
    picoseconds filled[OFFLOAD_BUFFERS], emptied[OFFLOAD_BUFFERS], landed;
};

/* ---- the list ---------------------------------------------------------------------------------------------------- */

/* The last one of every `stride` slices is the device's. */
static int stride(const struct data_parallel *dp)
{
    return dp->request.offload_stride > 1 ? dp->request.offload_stride : 1;
}
static bool stepped_by_host(const struct data_parallel *dp, int slice) { return slice % stride(dp) != stride(dp) - 1; }

/* A step with few slices needs fewer buffers. */
static int buffers_of_step(const struct data_parallel *dp, const struct slices *slices)
{
    const int own = slices->count / stride(dp);
    return own < OFFLOAD_BUFFERS ? own : OFFLOAD_BUFFERS;
}

static int buffer_of(const struct data_parallel *dp, int slice) { return slice / stride(dp) % OFFLOAD_BUFFERS; }

/* Each slice has its own place: the host steps the next slice while this one's weights are being copied. */
int64_t landing_elements(const struct data_parallel *dp)
{
    int64_t n = 0;
    for (int u = 0; u < dp->units; u++) n += kept_elements(&dp->unit[u], BY_OPTIMIZER);
    return stride(dp) > 1 && !offloads(&dp->request, PARAMETERS) ? n : 0;
}

/* add_slices lists the slices of a unit; units that are not on the tier have none. */
static void add_slices(const struct data_parallel *dp, struct slices *slices, struct unit *unit, int64_t before)
{
    const int64_t n = unit_is_away(dp, unit) ? kept_elements(unit, BY_OPTIMIZER) : 0;
    const int count = (int)((n + slices->most - 1) / slices->most);
    if (count == 0) return;
    slices->row[slices->rows++] = (struct row_slices){ unit, slices->count, count, n, before };
    slices->count += count;
    const int64_t longest = n < slices->most ? n : slices->most;
    if (longest > slices->longest) slices->longest = longest;
}

static enum error_code open_slices(struct data_parallel *dp, struct error *err)
{
    struct slices *s = chain_state(dp, &stage_slices);
    int64_t before = 0;
    s->most = dp->request.offload_slice;
    s->landing = tensor_1d(NULL, data_format(dp, KIND_WEIGHT), landing_elements(dp));
    s->row = calloc((size_t)dp->units + 1, sizeof *s->row);
    if (s->row == NULL) return fail(err, ERR_MEMORY, "no memory for a list of slices of the optimizer's state");
    for (int u = 0; u < dp->units; u++) {
        add_slices(dp, s, &dp->unit[u], before);
        before += kept_elements(&dp->unit[u], BY_OPTIMIZER);
    }
    return OK;
}

/* The last slice of a unit may be shorter. */
static struct step_slice slice_of_row(const struct slices *slices, const struct row_slices *row_slices, int i)
{
    const int64_t at = (i - row_slices->first) * slices->most, left = row_slices->elements - at;
    return (struct step_slice){ row_slices->unit, { at, left < slices->most ? left : slices->most },
                               row_slices->before + at, left <= slices->most };
}

static struct step_slice slice_at(const struct slices *slices, int i)
{
    int low = 0, high = slices->rows;                /* rows that begin at or before it: low */
    while (low < high) {
        const int middle = (low + high) / 2;
        if (slices->row[middle].first <= i) low = middle + 1;
        else high = middle;
    }
    return slice_of_row(slices, &slices->row[low - 1], i);
}

/* The tier is open by now: its stage comes earlier in the chain. */
static enum error_code place_landing(struct data_parallel *dp, struct error *err)
{
    struct slices *s = chain_state(dp, &stage_slices);
    (void)err;
    s->tier = chain_state(dp, &stage_tier);
    s->landing = tier_place(s->tier, s->landing.dtype, tensor_count(s->landing));
    return OK;
}

static void close_slices(struct data_parallel *dp)
{
    free(((struct slices *)chain_state(dp, &stage_slices))->row);
}

int data_slices(const struct data_parallel *dp)
{
    const struct slices *s = chain_state(dp, &stage_slices);
    return s ? s->count : 0;
}

/* ---- operands ---------------------------------------------------------------------------------------------------- */

enum { MOST_OPERANDS = 3 + OPTIMIZER_MAX_STATES };

struct operand { struct tensor *at; enum arena_tag tag; enum tensor_kind kind; bool read, written; };

/* List a slice's tensors on the tier, in the order in which they are moved.  In formats without masters the master is
 * the weights. */
static int list_operands(const struct data_parallel *dp, struct operands *operands, struct operand out[MOST_OPERANDS])
{
    const bool masters = data_has_masters(dp);
    struct operand all[MOST_OPERANDS];
    int n = 0, there = 0;
    all[n++] = (struct operand){ &operands->gradient, GRADIENTS, KIND_GRADIENT, .read = true };
    all[n++] =
        (struct operand){ &operands->master, masters ? OPTIMIZER : PARAMETERS, KIND_MASTER, .read = true,
                         .written = true };
    for (int s = 0; s < dp->optimizer->states; s++)
        all[n++] = (struct operand){ &operands->state[s], OPTIMIZER, KIND_STATE, .read = true, .written = true };
    if (masters) all[n++] = (struct operand){ &operands->weight, PARAMETERS, KIND_WEIGHT, .written = true };
    for (int k = 0; k < n; k++)
        if (offloads(&dp->request, all[k].tag)) out[there++] = all[k];
    return there;
}

/* The kept tensors of a slice: it is filled, stepped and written back, so they are asked for several times. */
static struct operands homes(struct stepping *stepping, int i)
{
    const int b = buffer_of(stepping->dp, i);
    if (stepping->home[b].slice != i) {
        const struct step_slice s = slice_at(stepping->s, i);
        stepping->home[b].is = unit_operands(stepping->dp, s.unit, s.own);
        stepping->home[b].slice = i;
    }
    return stepping->home[b].is;
}

/* The tensors of a slice, with the buffer's copies of those on the slow tier. */
static struct operands on_device(struct stepping *stepping, int i)
{
    struct operands o = homes(stepping, i);
    struct operand at[MOST_OPERANDS], in[MOST_OPERANDS];
    const int n = list_operands(stepping->dp, &o, at);
    const int64_t length = slice_at(stepping->s, i).own.count;
    list_operands(stepping->dp, &stepping->buffer[buffer_of(stepping->dp, i)], in);
    for (int k = 0; k < n; k++) *at[k].at = slice(*in[k].at, (struct interval){ 0, length });
    return o;
}

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

/* open_buffers allocates the buffers with room for the longest slice.  Memory exists only during the step. */
static enum error_code open_buffers(struct stepping *stepping, struct error *err)
{
    struct data_parallel *dp = stepping->dp;
    bool failed = false;
    for (int b = 0; b < buffers_of_step(dp, stepping->s); b++) {
        struct operand in[MOST_OPERANDS];
        for (int k = 0, n = list_operands(dp, &stepping->buffer[b], in); k < n; k++) {
            *in[k].at = device_tensor_in(dp->device, in[k].tag, data_format(dp, in[k].kind), stepping->s->longest);
            failed = failed || in[k].at->data == NULL;
        }
        stepping->filled[b] = stepping->emptied[b] = stepping->start;
    }
    return failed ? fail(err, ERR_MEMORY, "the machine has no memory left for %d slices of the optimizer's state",
                         OFFLOAD_BUFFERS)
                  : OK;
}

static void close_buffers(struct stepping *stepping)
{
    for (int b = 0; b < OFFLOAD_BUFFERS; b++) {
        struct operand in[MOST_OPERANDS];
        for (int k = 0, n = list_operands(stepping->dp, &stepping->buffer[b], in); k < n; k++)
            device_free(stepping->dp->device, *in[k].at);
    }
}

/* ---- moving ------------------------------------------------------------------------------------------------------ */

/* slices_fill starts the copies of slice i to its buffer, once the buffer is empty.  `filled` is the time of their
 * end. */
static enum error_code slices_fill(struct stepping *stepping, int i, struct error *err)
{
    const int b = buffer_of(stepping->dp, i);
    struct operands from = homes(stepping, i), to = on_device(stepping, i);
    struct operand home[MOST_OPERANDS], here[MOST_OPERANDS];
    const int n = list_operands(stepping->dp, &from, home);
    picoseconds there = stepping->emptied[b];
    enum error_code e = OK;
    list_operands(stepping->dp, &to, here);
    /* The drive is asked for all operands before the first is copied. */
    for (int k = 0; k < n; k++)
        if (home[k].read) there = tier_announce(stepping->s->tier, *home[k].at, there);
    stepping->filled[b] = there;
    for (int k = 0; k < n && !e; k++)
        if (home[k].read) e = tier_read(stepping->s->tier, *here[k].at, *home[k].at, &stepping->filled[b], err);
    return e;
}

/* flush starts the write of a stepped slice back to the tier; `emptied` is the time of its end. */
static enum error_code flush(struct stepping *stepping, int i, struct operands *from, struct error *err)
{
    const int b = buffer_of(stepping->dp, i);
    struct operands to = homes(stepping, i);
    struct operand home[MOST_OPERANDS], here[MOST_OPERANDS];
    enum error_code e = OK;
    /* The buffer is free again when the last of its tensors is written back. */
    stepping->emptied[b] = stepping->dp->device->clock.now;
    list_operands(stepping->dp, from, here);
    for (int k = 0, n = list_operands(stepping->dp, &to, home); k < n && !e; k++) {
        picoseconds when = stepping->dp->device->clock.now;
        if (!home[k].written) continue;
        e = tier_write(stepping->s->tier, *home[k].at, *here[k].at, &when, err);
        stepping->emptied[b] = when;
    }
    return e;
}

/* Read the next slices of the device while slices from this one on are stepped. */
static enum error_code fill_ahead(struct stepping *stepping, int i, struct error *err)
{
    const int k = stride(stepping->dp), own = i + k - 1, next = own + k;
    enum error_code e = OK;
    if (i % k != 0) return OK;
    if (i == 0 && own < stepping->s->count) e = slices_fill(stepping, own, err);
    return e || next >= stepping->s->count ? e : slices_fill(stepping, next, err);
}

/* ---- stepping ---------------------------------------------------------------------------------------------------- */

/* step_on_device waits for slice i in its buffer, steps the slice there, and writes the slice back. */
static enum error_code step_on_device(struct stepping *stepping, int i, struct error *err)
{
    struct clock *clock = &stepping->dp->device->clock;
    const struct step_slice s = slice_at(stepping->s, i);
    struct operands o = on_device(stepping, i);
    clock_wait(clock, stepping->filled[buffer_of(stepping->dp, i)]);
    step_operands(stepping->dp, s.unit, s.own, &o, stepping->step);
    device_charge(stepping->dp->device, "optimizer step", step_cost(stepping->dp, s.own.count));
    if (data_has_masters(stepping->dp))
        device_charge(stepping->dp->device, "round weights", round_cost(stepping->dp, s.own.count));
    return flush(stepping, i, &o, err);
}

/* The host steps the kept tensors in place.  If the device keeps the weights, they are sent to it after rounding. */
static enum error_code step_on_host(struct stepping *stepping, int i, struct error *err)
{
    const struct step_slice s = slice_at(stepping->s, i);
    const struct op_cost step = step_cost(stepping->dp, s.own.count), round = round_cost(stepping->dp, s.own.count);
    const struct op_cost both = { .flops = step.flops + round.flops, .bytes = step.bytes + round.bytes };
    struct operands o = homes(stepping, i);
    const struct tensor kept = o.weight;
    const bool lands = tensor_count(stepping->s->landing) > 0;
    if (lands) o.weight = slice(stepping->s->landing, (struct interval){ s.before, s.own.count });
    step_operands(stepping->dp, s.unit, s.own, &o, stepping->step);
    picoseconds when =
        clock_host(&stepping->dp->device->clock, "optimizer step", stepping->start, both,
                   data_format(stepping->dp, KIND_MASTER));
    if (!lands) return OK;
    const enum error_code e = tier_read(stepping->s->tier, kept, o.weight, &when, err);
    stepping->landed = when;
    return e;
}

/* step_one steps slice i, on host or device.  After a unit's last slice its weights are shared. */
static enum error_code step_one(struct stepping *stepping, int i, bool share, struct error *err)
{
    const struct step_slice s = slice_at(stepping->s, i);
    enum error_code e = fill_ahead(stepping, i, err);
    if (!e) e = stepped_by_host(stepping->dp, i) ? step_on_host(stepping, i, err) : step_on_device(stepping, i, err);
    if (e || !s.last || !share) return e;
    const struct shards *over = &s.unit->over->shards;
    /* Weights that are shared now must have come back from the host. */
    if (over->optimizer > over->weights) clock_wait(&stepping->dp->device->clock, stepping->landed);
    return share_weights(stepping->dp, s.unit, err);
}

/* The next step begins when all copies are done. */
static enum error_code step_slices(struct data_parallel *dp, struct step step, bool share, struct error *err)
{
    struct slices *s = chain_state(dp, &stage_slices);
    struct stepping x = { .dp = dp, .s = s, .step = step, .start = dp->device->clock.now };
    for (int b = 0; b < OFFLOAD_BUFFERS; b++) x.home[b].slice = -1;
    enum error_code e = open_buffers(&x, err);
    for (int i = 0; i < s->count && !e; i++) e = step_one(&x, i, share, err);
    close_buffers(&x);
    join_tier(dp);
    return e;
}

/* ---- prediction -------------------------------------------------------------------------------------------------- */

/* The bytes of the buffers on the device. */
static struct model_state buffers(const struct data_parallel *dp, const struct slices *slices)
{
    struct operands o;
    struct operand there[MOST_OPERANDS];
    struct model_state sum = { 0 };
    const uint64_t n = dp->stepped ? (uint64_t)(buffers_of_step(dp, slices) * slices->longest) : 0;
    for (int k = 0, operands = list_operands(dp, &o, there); k < operands; k++)
        *model_state_of(&sum, there[k].tag) += n * dtype_size(data_format(dp, there[k].kind));
    return sum;
}

uint64_t data_step_buffers(const struct data_parallel *dp)
{
    const struct slices *s = chain_state(dp, &stage_slices);
    const struct model_state sum = s ? buffers(dp, s) : (struct model_state){ 0 };
    return sum.weights + sum.gradients + sum.optimizer;
}

static void slices_passing(const struct data_parallel *dp, struct model_state *sum)
{
    const struct model_state there = buffers(dp, chain_state(dp, &stage_slices));
    if (there.weights > sum->weights) sum->weights = there.weights;
    if (there.gradients > sum->gradients) sum->gradients = there.gradients;
    if (there.optimizer > sum->optimizer) sum->optimizer = there.optimizer;
}

/* Add the moves of some slices of n elements each in one step of the optimizer: those of the host, of the device. */
static void slice_moves(const struct data_parallel *dp, const struct slices *slices, int host, int device, int64_t n,
                        struct tier_traffic *traffic)
{
    struct operands o;
    struct operand there[MOST_OPERANDS];
    if (tensor_count(slices->landing) > 0) add_reads(traffic, host, n, data_format(dp, KIND_WEIGHT));
    for (int k = 0, operands = list_operands(dp, &o, there); k < operands; k++) {
        if (there[k].read) add_reads(traffic, device, n, data_format(dp, there[k].kind));
        if (there[k].written) add_writes(traffic, device, n, data_format(dp, there[k].kind));
    }
}

/* The slices of a unit are divided between host and device by their numbers in the whole list. */
static void update_moves(const struct data_parallel *dp, struct tier_traffic *traffic)
{
    const struct slices *s = chain_state(dp, &stage_slices);
    for (int i = 0; i < s->rows; i++) {
        const int first = s->row[i].first, last = first + s->row[i].count - 1;
        const int device = last / stride(dp) - first / stride(dp);              /* of all before the last one */
        const bool host = stepped_by_host(dp, last);
        slice_moves(dp, s, last - first - device, device, s->most, traffic);
        slice_moves(dp, s, host, !host, slice_of_row(s, &s->row[i], last).own.count, traffic);
    }
}

static void slices_moves(const struct data_parallel *dp, struct tier_traffic *traffic)
{
    for (int i = 0; i < dp->updates; i++) update_moves(dp, traffic);
}

static bool slices_takes_part(const struct data_parallel *dp) { return dp->request.offload != 0; }

const struct data_stage stage_slices = {
    .name = "slices", .of_the_step = true, .takes_part = slices_takes_part,
    .state = sizeof (struct slices), .outline = open_slices,
    .fill = place_landing, .close = close_slices, .step = step_slices,
    .passing = slices_passing, .moves = slices_moves, .update_moves = update_moves,
};

/* Up to a stride of 1 + device/host the host's slices take no extra time; beyond it, the device waits for the host. */
int data_balanced_stride(picoseconds host, picoseconds device)
{
    if (host <= 0) return INT32_MAX;
    const int64_t k = 1 + device / host;                      /* at k the device is the slower one, at k + 1 the host */
    return device * (k + 1) <= k * host * k ? (int)k : (int)k + 1;      /* device / k <= k host / (k + 1) */
}
