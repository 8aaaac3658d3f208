/* pages.c -- keys and values in blocks on a device.  engine.c calls.  The only error is ERR_MEMORY.
 *
 * Source  W. Kwon et al., "Efficient memory management for large language model serving with PagedAttention",
 *         arXiv:2309.06180
 */
#include "emulated_devices/serve/pages.h"
#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/device/arena_list.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/device/kernel.h"
#include <stdlib.h>

static struct device *device_of(const struct pages *pages) { return pages->stage->device; }

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* The layer's second attention, of models with a shortcut, has a number behind all layers. */
static bool has_layer(const struct stage *stage, int64_t layer)
{
    const struct model_config *const c = &stage->plan->model;
    const int64_t first = c->shortcut ? second_block(c, 0) : c->L, own = layer < c->L ? layer : layer - first;
    return (layer < c->L || (c->shortcut && layer >= first && own < c->L)) && own >= stage->first_layer &&
           own < stage->first_layer + stage->layers;
}

/* Each layer has a home for the blocks that leave. */
static enum error_code open_homes(struct pages *pages, int64_t blocks, struct error *err)
{
    const int64_t numbers = blocks * pages->tokens * pages->width;
    uint64_t bytes = 0;
    for (int64_t l = 0; l < pages->layers; l++)
        if (tensor_present(pages->kv[l])) bytes += tier_room((uint64_t)numbers * dtype_size(pages->kv[l].dtype));
    if (blocks == 0 || bytes == 0) return OK;
    const enum error_code e = tier_open(&pages->tier, device_of(pages), NULL, bytes, err);
    for (int64_t l = 0; l < pages->layers && !e; l++)
        if (tensor_present(pages->kv[l])) pages->home[l] = tier_place(&pages->tier, pages->kv[l].dtype, numbers);
    return e;
}

enum error_code pages_open(struct pages *pages, struct comm *comm, const struct stage *stage,
                           const struct serving_limits *limits, struct error *err)
{
    const struct model_config *const c = &stage->plan->model;
    const struct mesh *const mesh = &stage->plan->mesh;
    *pages = (struct pages){ .stage = stage, .parts = mesh->size[CP],
                             .part = mesh_coordinate(mesh, comm->rank, CP),
                             .blocks = limits->blocks, .tokens = limits->block_tokens,
                             .width = 2 * stage->tp->heads.keys.count * c->A,
                             .layers = c->shortcut ? second_block(c, c->L) : c->L };
    pages->kv = calloc((size_t)pages->layers, sizeof *pages->kv);
    pages->home = calloc((size_t)pages->layers, sizeof *pages->home);
    bool ok = pages->kv != NULL && pages->home != NULL;
    for (int64_t l = 0; l < pages->layers && ok; l++) {
        if (!has_layer(stage, l)) continue;
        pages->kv[l] = device_tensor_2d(stage->device, BUFFERS, pages->blocks * pages->tokens, pages->width);
        ok = pages->kv[l].data != NULL;
        if (ok) arena_name(&stage->device->arena, pages->kv[l].data, "the key and value cache");
    }
    enum error_code e = ok ? group_along(&pages->along, comm, mesh, TRAFFIC_ATTENTION, AXIS_BIT(CP), err) : OK;
    if (ok && !e) e = open_homes(pages, limits->host_blocks, err);
    if (ok && !e) return OK;
    pages_close(pages);
    if (e) return e;
    return fail(err, ERR_MEMORY, "no memory for %lld blocks of keys and values", (long long)limits->blocks);
}

void pages_close(struct pages *pages)
{
    for (int64_t l = 0; l < pages->layers && pages->kv; l++)
        if (tensor_present(pages->kv[l])) device_free(device_of(pages), pages->kv[l]);
    if (pages->tier.device) tier_close(&pages->tier);
    free(pages->kv), free(pages->home);
    group_close(&pages->along);
    *pages = (struct pages){ 0 };
}

uint64_t pages_bytes(const struct pages *pages)
{
    uint64_t bytes = 0;
    for (int64_t l = 0; l < pages->layers; l++)
        if (tensor_present(pages->kv[l])) bytes += tensor_bytes(pages->kv[l]);
    return bytes;
}

/* ---- the host ---------------------------------------------------------------------------------------------------- */

static struct tensor kv_block_at(const struct pages *pages, struct tensor layer, int64_t block)
{
    const int64_t n = pages->tokens * pages->width;
    return tensor_1d((char *)layer.data + (size_t)(block * n) * dtype_size(layer.dtype), layer.dtype, n);
}

enum error_code pages_swap(struct pages *pages, const struct iteration *now, struct error *err)
{
    struct clock *const clock = &device_of(pages)->clock;
    enum error_code e = OK;
    picoseconds end = clock->now;
    /* Blocks that leave are copied first: others may come into their memory. */
    for (int64_t l = 0; l < pages->layers; l++) {
        const struct tensor kv = pages->kv[l], home = pages->home[l];
        if (!tensor_present(kv)) continue;
        for (int64_t i = 0; i < now->outs && !e; i++) {
            const struct block_copy *const copy = &now->out[i];
            picoseconds when = clock->now;
            e = tier_write(&pages->tier, kv_block_at(pages, home, copy->to), kv_block_at(pages, kv, copy->from), &when,
                           err);
            end = when > end ? when : end;
        }
        for (int64_t i = 0; i < now->ins && !e; i++) {
            const struct block_copy *const copy = &now->in[i];
            picoseconds when = clock->now;
            e = tier_read(&pages->tier, kv_block_at(pages, kv, copy->to), kv_block_at(pages, home, copy->from), &when,
                          err);
            end = when > end ? when : end;
        }
    }
    if (end > clock->now) clock_wait(clock, end);
    return e;
}

void pages_gather(const struct pages *pages, int64_t layer, const int64_t *block, int64_t count, struct tensor list)
{
    for (int64_t i = 0; i < count; i++) {
        const struct tensor from = kv_block_at(pages, pages->kv[layer], block[i]), to = kv_block_at(pages, list, i);
        device_copy(device_of(pages), to.data, from.data, tensor_bytes(from));
    }
}

enum error_code pages_put_away(struct pages *pages, int64_t layer, const int64_t *away, int64_t count,
                               struct tensor list, struct error *err)
{
    enum error_code e = OK;
    for (int64_t i = 0; i < count && !e; i++) {
        picoseconds when = device_of(pages)->clock.now;
        const struct tensor home = kv_block_at(pages, pages->home[layer], away[i]);
        e = tier_write(&pages->tier, home, kv_block_at(pages, list, i), &when, err);
        if (when > device_of(pages)->clock.now) clock_wait(&device_of(pages)->clock, when);
    }
    return e;
}

struct tier_traffic pages_swapped(const struct pages *pages, int64_t outs, int64_t ins)
{
    struct tier_traffic all = { 0 };
    for (int64_t l = 0; l < pages->layers; l++) {
        if (!tensor_present(pages->kv[l])) continue;
        const uint64_t bytes = tensor_bytes(kv_block_at(pages, pages->kv[l], 0));
        all.writes += (uint64_t)outs, all.bytes_written += (uint64_t)outs * bytes;
        all.reads += (uint64_t)ins, all.bytes_read += (uint64_t)ins * bytes;
    }
    return all;
}

/* ---- keys and values --------------------------------------------------------------------------------------------- */

/* Where a position of a sequence is in the memory of a layer, in rows. */
static int64_t row_of(const struct pages *pages, const struct sequence *sequence, int64_t position)
{
    return sequence->block[position / pages->tokens] * pages->tokens + position % pages->tokens;
}

static char *pages_row(struct tensor t, int64_t row)
{
    return (char *)t.data + (size_t)(row * tensor_cols(t)) * dtype_size(t.dtype);
}

/* The keys and values of all rows of an iteration, with `offset` bytes before each. */
struct fresh_rows { struct tensor kv; uint64_t pitch, offset; };

/* Where row r is: rows of a part follow each other, and parts do. */
static const char *fresh_row(const struct pages *pages, const struct fresh_rows *fresh, int64_t row)
{
    const int64_t n = pages->now->tokens, parts = pages->parts;
    int64_t at = row / parts;
    for (int64_t p = 0; p < row % parts; p++) at += (n - p + parts - 1) / parts;
    return (const char *)fresh->kv.data + (uint64_t)at * fresh->pitch + fresh->offset;
}

static void keep_piece(const struct pages *pages, struct tensor kv, const struct token_piece *piece, int64_t row,
                       const struct fresh_rows *fresh)
{
    const uint64_t width = (uint64_t)pages->width * dtype_size(kv.dtype);
    for (int64_t i = 0, n; i < piece->count; i += n) {
        const int64_t at = piece->first + i, left = pages->tokens - at % pages->tokens;
        n = pages->parts > 1 ? 1 : piece->count - i < left ? piece->count - i : left;
        device_copy_rows(device_of(pages), pages_row(kv, row_of(pages, piece->of, at)), width,
                         fresh_row(pages, fresh, row + i), fresh->pitch, width, n);
    }
}

/* The keys and values of a sequence's first tokens, side by side. */
static struct tensor bring_blocks(const struct pages *pages, struct tensor kv, const struct sequence *sequence,
                                  int64_t tokens, struct tensor room)
{
    const struct tensor whole = tensor_rows_of(room, 0, tokens);
    for (int64_t at = 0, n; at < tokens; at += n) {
        n = tokens - at < pages->tokens ? tokens - at : pages->tokens;
        device_copy(device_of(pages), pages_row(whole, at), pages_row(kv, row_of(pages, sequence, at)),
                    (uint64_t)(n * pages->width) * dtype_size(kv.dtype));
    }
    return whole;
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* The rows of a piece that this device computes: count of them from `from` on among its own, the first at position
 * `first`, each `parts` positions behind the one before. */
struct own_rows { int64_t from, first, count, parts; };

static struct own_rows own_rows_of(const struct pages *pages, const struct token_piece *piece, int64_t row)
{
    const int64_t parts = pages->parts, skip = (pages->part - row % parts + parts) % parts;
    const int64_t count = piece->count > skip ? (piece->count - skip + parts - 1) / parts : 0;
    return (struct own_rows){ (row + skip) / parts, piece->first + skip, count, parts };
}

static int64_t keys_of(const struct own_rows *own) { return own->first + (own->count - 1) * own->parts + 1; }

/* Pairs of a query of these rows and a key that it sees. */
static double pairs_of(const struct own_rows *own, int64_t window)
{
    double pairs = 0;
    for (int64_t i = 0; i < own->count; i++) {
        const int64_t keys = own->first + i * own->parts + 1;
        pairs += (double)(window > 0 && window < keys ? window : keys);
    }
    return pairs;
}

static void add_cost(struct op_cost *sum, double *all, const struct own_rows *own, const struct attention *shape,
                     enum dtype dtype)
{
    const int64_t keys = keys_of(own);
    const double pairs = pairs_of(own, shape->window);
    const struct op_cost one = attention_part_forward_cost(pairs, own->count, keys, *shape, dtype);
    sum->flops += one.flops, sum->bytes += one.bytes, sum->depth = one.depth;
    if (keys > sum->columns) sum->columns = keys;
    sum->seen += pairs, *all += (double)own->count * (double)keys;
}

/* One kernel computes all pieces of a layer. */
static struct op_cost cost_of_pieces(const struct pages *pages, struct attention shape)
{
    const struct iteration *const now = pages->now;
    struct op_cost cost = { .flops = 0 };
    double all = 0;
    for (int64_t i = 0, row = 0; i < now->pieces; row += now->piece[i++].count) {
        const struct own_rows own = own_rows_of(pages, &now->piece[i], row);
        shape.S = keys_of(&own);
        if (own.count > 0) add_cost(&cost, &all, &own, &shape, device_of(pages)->dtype);
    }
    cost.seen = all > 0 ? cost.seen / all : 0;
    return cost;
}

/* A layer's cost is that of an earlier one, if there was one alike in this iteration. */
static struct op_cost charge_of(struct pages *pages, const struct attention *shape)
{
    struct attention_charge *free = NULL;
    for (int i = CHARGES - 1; i >= 0; i--) {
        struct attention_charge *const c = &pages->charge[i];
        if (!c->known) free = c;
        else if (c->window == shape->window && c->H == shape->H && c->K == shape->K && c->A == shape->A)
            return c->cost;
    }
    const struct op_cost cost = cost_of_pieces(pages, *shape);
    if (free)
        *free = (struct attention_charge){ true, shape->window, shape->H, shape->K, shape->A, cost };
    return cost;
}

/* Room for the keys of the longest sequence, in whole blocks, so that few sizes of memory come and go. */
static int64_t longest_of(const struct pages *pages)
{
    const struct iteration *const now = pages->now;
    int64_t most = 1;
    for (int64_t i = 0; i < now->pieces; i++)
        if (now->piece[i].first + now->piece[i].count > most) most = now->piece[i].first + now->piece[i].count;
    return (most + pages->tokens - 1) / pages->tokens * pages->tokens;
}

/* Keys and values are the last columns of the rows that attention reads.  With cp each device brings those of its rows
 * to the others: all have the whole cache. */
static enum error_code share_rows(struct pages *pages, struct tensor qkv, struct fresh_rows *fresh, struct error *err)
{
    struct device *const d = device_of(pages);
    const int64_t n = pages->now->tokens, parts = pages->parts;
    const size_t each = dtype_size(qkv.dtype);
    const uint64_t width = (uint64_t)pages->width * each, pitch = (uint64_t)tensor_cols(qkv) * each;
    *fresh = (struct fresh_rows){ .kv = qkv, .pitch = pitch, .offset = pitch - width };
    if (parts == 1 || n == 0) return OK;
    const int64_t own = (n - pages->part + parts - 1) / parts;
    int64_t *const counts = malloc((size_t)parts * sizeof *counts);
    const struct tensor mine = device_tensor_2d(d, BUFFERS, own + 1, pages->width),
                        all = device_tensor_2d(d, BUFFERS, n, pages->width);
    enum error_code e = counts && mine.data && all.data ? OK
                        : fail(err, ERR_MEMORY, "no memory for the keys of %lld rows", (long long)n);
    for (int64_t p = 0; p < parts && !e; p++) counts[p] = (n - p + parts - 1) / parts * pages->width;
    if (!e) {
        device_copy_rows(d, mine.data, width, (const char *)qkv.data + fresh->offset, pitch, width, own);
        e = collective_run(&pages->along, ALLGATHER, NULL,
                           &(struct collective){ .in = mine.data, .out = all.data, .counts = counts,
                                                 .dtype = qkv.dtype }, err);
    }
    if (mine.data) device_free(d, mine);
    free(counts);
    *fresh = (struct fresh_rows){ .kv = all, .pitch = width };
    return e;
}

/* A device without rows of a request has one that nobody reads: that row sees itself. */
static void attend_alone(struct pages *pages, const struct answering_attention *call, struct tensor room)
{
    struct device *const d = device_of(pages);
    const uint64_t width = (uint64_t)pages->width * dtype_size(room.dtype),
                   pitch = (uint64_t)tensor_cols(call->qkv) * dtype_size(room.dtype);
    struct attention shape = call->shape;
    device_copy(d, room.data, (const char *)call->qkv.data + pitch - width, width);
    shape.S = 1, shape.pairs = 1;
    dev_attention_piece(d, call->out, call->lse, call->qkv, tensor_rows_of(room, 0, 1),
                        pages->stage->micro[0].positions, shape);
}

static void attend_pieces(struct pages *pages, const struct answering_attention *call, struct tensor kv,
                          struct tensor room)
{
    struct device *const d = device_of(pages);
    const struct iteration *const now = pages->now;
    const struct tensor positions = pages->stage->micro[0].positions;
    for (int64_t i = 0, row = 0; i < now->pieces; row += now->piece[i++].count) {
        const struct own_rows own = own_rows_of(pages, &now->piece[i], row);
        if (own.count == 0) continue;
        const struct tensor whole = bring_blocks(pages, kv, now->piece[i].of, keys_of(&own), room);
        struct attention shape = call->shape;
        shape.S = keys_of(&own), shape.pairs = pairs_of(&own, shape.window);
        dev_attention_piece(d, tensor_rows_of(call->out, own.from, own.count),
                            tensor_rows_of(call->lse, own.from, own.count),
                            tensor_rows_of(call->qkv, own.from, own.count), whole,
                            tensor_1d((int32_t *)positions.data + own.from, I32, own.count), shape);
    }
}

void pages_begin(struct pages *pages, const struct iteration *now)
{
    pages->now = now;
    for (int i = 0; i < CHARGES; i++) pages->charge[i].known = false;
    pages->charges = 0;
}

/* Layers that see equally far, with as many heads. */
static bool shapes_are_alike(const struct attention *a, const struct attention *b)
{
    return a->window == b->window && a->H == b->H && a->K == b->K && a->A == b->A;
}

static void note_shape(struct pages *pages, const struct attention *shape)
{
    pages->mixed |= pages->charges > 0 && !shapes_are_alike(&pages->shape, shape);
    pages->shape = *shape, pages->charges++;
}

void pages_stretch(struct pages *pages, double times)
{
    struct op_cost cost = charge_of(pages, &pages->shape);
    cost.flops *= times, cost.bytes *= times;
    pages->charge[0].cost = cost;
}

bool pages_time(struct pages *pages, picoseconds *kernel, int64_t *room)
{
    const struct clock *const clock = &device_of(pages)->clock;
    if (pages->mixed || pages->shape.H == 0) return false;
    const struct op_cost cost = charge_of(pages, &pages->shape);
    *kernel = kernel_time(&clock->cluster, clock->dtype, "attention forward", cost);
    *room = longest_of(pages);
    return clock->starts.pace == 0 || kernel_starts(&clock->cluster, "attention forward", cost) == 1;
}

/* Keep the keys and values of the iteration's rows, and attend.  Without numbers nothing is copied or computed. */
static void compute_pieces(struct pages *pages, const struct answering_attention *call, const struct fresh_rows *fresh,
                           struct tensor room)
{
    const struct iteration *const now = pages->now;
    const struct tensor kv = pages->kv[call->layer];
    /* All keys are there before any query reads: a sequence may share blocks that another one has just filled. */
    for (int64_t i = 0, row = 0; i < now->pieces; row += now->piece[i++].count)
        keep_piece(pages, kv, &now->piece[i], row, fresh);
    if (now->tokens > pages->part) attend_pieces(pages, call, kv, room);
    else attend_alone(pages, call, room);
}

static struct op_cost cost_of_rows(struct pages *pages, struct attention shape)
{
    if (pages->now->tokens > pages->part) return charge_of(pages, &shape);
    shape.S = 1, shape.pairs = 1;
    return attention_part_forward_cost(1, 1, 1, shape, device_of(pages)->dtype);
}

enum error_code pages_attend(struct pages *pages, const struct answering_attention *call, struct error *err)
{
    struct device *const d = device_of(pages);
    struct fresh_rows fresh;
    const struct tensor room = device_tensor_2d(d, BUFFERS, longest_of(pages), pages->width);
    if (room.data == NULL) return fail(err, ERR_MEMORY, "no memory for the keys of a sequence");
    const enum error_code e = share_rows(pages, call->qkv, &fresh, err);
    note_shape(pages, &call->shape);
    if (!e) {
        if (d->backend->has_numbers) compute_pieces(pages, call, &fresh, room);
        dev_charge(d, "copy keys and values",
                   tensor_2d(NULL, pages->kv[call->layer].dtype, pages->now->tokens, pages->width), 2, 0);
        device_charge(d, "attention forward", cost_of_rows(pages, call->shape));
    }
    if (fresh.kv.data && fresh.kv.data != call->qkv.data) device_free(d, fresh.kv);
    device_free(d, room);
    return e;
}
