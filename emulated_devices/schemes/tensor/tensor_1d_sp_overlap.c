/* tensor parallelism, 1d-sp-overlap: as 1d-sp, but each gather and each sum is cut into a ring's chunks, which are sent
 * while other chunks are multiplied.
 *
 * Source   gathers   S. Wang et al., "Overlap communication with dependent computation via decomposition in large deep
 *                    learning models" (collective matmul), ASPLOS 2023, doi:10.1145/3567955.3567959
 *          sums      S. Pati et al., "T3: transparent tracking & triggering for fine-grained overlap of compute &
 *                    collectives", arXiv:2401.16677: each device first computes the chunk with the longest way
 * Group    P devices with the same tokens
 * Layout   as 1d-sp; chunk c is the rows of device c; it may be empty
 * Sends    the messages, bytes and additions of 1d-sp with ring all-gathers and reduce-scatters; each message is sent
 *          as soon as its chunk is ready
 *
 *          P = 3, device r; [c]: rows of chunk c               messages during the products
 *          gather   Y[r] = X[r] W;  Y[r-1] = X[r-1] W; ..      X[r] to r+1, X[r-1] from r-1; ..
 *          sum      X[r-1] W;  X[r-2] W + its sum so far; ..   the sum of chunk r-1 to r+1, that of r-2 from r-1; ..
 *                   X[r] W is last and stays here
 *
 * Time     N equal chunks, each with time g to multiply, c to send and a to add, take, exact to the picosecond,
 *          gather   max(N g, g + (N-1) c)
 *          sum      max(N g + a, g + (N-1) (c + a)): additions run beside the products, on the communication stream (T3
 *                   does them in the memory); the data scheme's messages use the same stream
 *          The weights' gradient of a matrix that leads inside gets its chunks of X from such a gather.  A product
 *          waits until the product before the last has been added, because it reuses its buffer; this costs no time.
 * Memory   as 1d-sp; two chunks (gather) or four (sum) are in flight, instead of all N rows.  The gradient of the
 *          output of a matrix that leads out is gathered in place.
 * Equals   1d-sp with another order of sums between devices: chunk c is summed over devices c+1, c+2, .., c, as by the
 *          ring; 1d-sp sums in the order of ranks.  Each row is on one device, so there are no copies that could
 *          differ.  The BLAS may order the inner sums of a chunk's product differently for its shape.  On numbers whose
 *          sums are exact the bits are equal.  The weights' gradients of matrices that lead inside, and of the
 *          embedding, are sums of chunks r, r-1, .., r+1.
 * Called   schemes/registry.c lists the scheme; model/run/matrix.c calls its products, and tensor.c checks that its
 *          mesh fits.  Errors: ERR_MEMORY and ERR_COMM of a product; ERR_PLAN if the mesh does not fit.
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/device/streams.h"
#include "emulated_devices/schemes/tensor/sequence.h"
#include "emulated_devices/schemes/tensor/terms.h"

/* The product of one chunk: with rows that have arrived, or to compute rows that will be sent. */
struct product {
    struct tensor_parallel *tp;
    void (*run)(const struct product *, struct interval, struct tensor chunk);
    struct tensor Y, X, W, b, ids;      /* those needed, each with all rows of the microbatch */
    struct tops tops;                   /* with exact sums: of all rows, and of W */
};

static struct tensor tops_at(const struct product *product, struct interval at)
{
    const struct tensor t = product->tops.rows;
    return tensor_1d((char *)t.data + (size_t)at.first * dtype_size(t.dtype), t.dtype, at.count);
}

/* The result points into t [N, cols]: rows at.first .. at.first + at.count - 1. */
static struct tensor tensor_1d_sp_overlap_rows_of(struct tensor t, struct interval at)
{
    const int64_t cols = tensor_cols(t);
    return tensor_2d((char *)t.data + (size_t)(at.first * cols) * dtype_size(t.dtype), t.dtype, at.count, cols);
}

static struct tensor ids_of(struct tensor ids, struct interval at)
{
    return tensor_1d((int32_t *)ids.data + at.first, I32, at.count);
}

/* A chunk without rows needs no product. */
static void tensor_1d_sp_overlap_multiply(const struct product *product, struct interval at, struct tensor chunk)
{
    if (at.count > 0) product->run(product, at, chunk);
}

/* ---- the ring ---------------------------------------------------------------------------------------------------- */

struct ring {
    struct group *group;
    struct exchange exchange;
    int64_t count[MESH_MOST_LISTED], longest;      /* rows of each chunk */
};

/* The messages are those of the ring algorithm, sent at other times. */
static void expect(const struct ring *ring, struct tensor rows)
{
    int64_t counts[MESH_MOST_LISTED];
    for (int c = 0; c < ring->group->size; c++) counts[c] = ring->count[c] * tensor_cols(rows);
    const struct collective call = { .counts = counts, .dtype = rows.dtype, .reduction = SUM };
    collective_expect(ring->group, ring->exchange.operation, "ring", &call);
}

/* rows: any of the rows that are sent; only its width and format are used.  A ring is large, so it is filled in place,
 * and only as far as the group has devices. */
static void ring_begin(struct ring *ring, struct tensor_parallel *tp, enum operation op, int64_t N, struct tensor rows)
{
    ring->group = &tp->along[SEQUENCE], ring->longest = 0;
    ring->exchange = exchange_begin(ring->group, op);
    tensor_row_counts(tp, SEQUENCE, SEQUENCE, N, ring->count);
    for (int c = 0; c < ring->group->size; c++)
        if (ring->count[c] > ring->longest) ring->longest = ring->count[c];
    expect(ring, rows);
}

/* The rows of chunk r - steps_back, modulo P. */
static struct interval chunk_rows(const struct ring *ring, int steps_back)
{
    const int P = ring->group->size, chunk = ((ring->group->rank - steps_back) % P + P) % P;
    struct interval at = { .count = ring->count[chunk] };
    for (int c = 0; c < chunk; c++) at.first += ring->count[c];
    return at;
}

static struct message receive_left(struct ring *ring, struct tensor t)
{
    return message_receive(&ring->exchange, (ring->group->rank + ring->group->size - 1) % ring->group->size, t.data,
                           tensor_bytes(t));
}

static struct message send_right(struct ring *ring, struct tensor t)
{
    return message_send(&ring->exchange, (ring->group->rank + 1) % ring->group->size, t.data, tensor_bytes(t));
}

/* A failed message ends the job, because other devices wait for the messages that would follow. */
static void tensor_1d_sp_overlap_arrive(struct ring *ring, struct message message)
{
    struct error err;
    if (message_wait(ring->group->comm, message, &err) != OK) comm_give_up(ring->group->comm, &err);
}

/* open_buffers allocates n buffers [rows, cols].  After an error the rest stay absent, and close_buffers is still
 * right. */
static void open_buffers(struct tensor_parallel *tp, struct tensor *tensor, int n, int64_t rows, struct tensor like,
                         enum error_code *e, struct error *err)
{
    const int64_t cols = tensor_cols(like);
    for (int i = 0; i < n; i++) {
        tensor[i] = tensor_none;
        if (*e) continue;
        tensor[i] = tensor_2d(device_tensor_in(tp->device, BUFFERS, like.dtype, rows * cols).data, like.dtype, rows,
                              cols);
        if (!tensor_present(tensor[i]))
            *e = fail(err, ERR_MEMORY, "no memory for %lld x %lld elements of a chunk", (long long)rows,
                      (long long)cols);
    }
}

static void close_buffers(struct tensor_parallel *tp, struct tensor *tensor, int n)
{
    for (int i = 0; i < n; i++)
        if (tensor_present(tensor[i])) device_free(tp->device, tensor[i]);
}

/* ---- gather and multiply ----------------------------------------------------------------------------------------- */

/* Multiply every chunk of the group's rows, starting with this device's own.
 * own: this device's rows; or a tensor with room for all rows, where the chunks then stay. */
static enum error_code gather_products(struct product product, int64_t N, struct tensor own, struct error *err)
{
    if (N == 0) return OK;                              /* an empty microbatch: collectives send no message either */
    struct ring g;
    ring_begin(&g, product.tp, ALLGATHER, N, own);
    const int P = g.group->size;
    const bool stays = tensor_rows(own) == N && P > 1;
    struct tensor buffer[2], next = tensor_none, here = tensor_own_rows(product.tp, own, N);
    enum error_code e = OK;
    open_buffers(product.tp, buffer, stays || P == 1 ? 0 : 2, g.longest, own, &e, err);
    for (int step = 0; step < P && e == OK; step++, here = next) {
        const bool last = step == P - 1;
        struct message in = { -1 }, out = { -1 };
        if (!last) {
            /* While chunk r - step is multiplied, the next one comes from the left, and this one goes on to the
             * right. */
            const struct interval coming = chunk_rows(&g, step + 1);
            next = stays ? tensor_1d_sp_overlap_rows_of(own, coming)
                : tensor_1d_sp_overlap_rows_of(buffer[step % 2], (struct interval){ .count = coming.count });
            in = receive_left(&g, next);
            out = send_right(&g, here);
        }
        tensor_1d_sp_overlap_multiply(&product, chunk_rows(&g, step), here);
        if (!last) tensor_1d_sp_overlap_arrive(&g, in), tensor_1d_sp_overlap_arrive(&g, out);
    }
    if (!stays && P > 1) close_buffers(product.tp, buffer, 2);
    return e;
}

/* ---- multiply and sum -------------------------------------------------------------------------------------------- */

/* Two buffers each for this device's products and for sums in flight, used in turn. */
enum { TURNS = 2, PARTS = 0, SUMS = PARTS + TURNS, SUM_BUFFERS = SUMS + TURNS };

/* own = this device's rows of the sum of all devices' products. */
static enum error_code sum_products(struct product product, int64_t N, struct tensor own, struct error *err)
{
    if (N == 0) return OK;
    struct ring g;
    ring_begin(&g, product.tp, REDUCE_SCATTER, N, own);
    const int P = g.group->size;
    struct clock *clock = &product.tp->device->clock;
    const enum stream stream = sending_stream(clock, SENDS_SUMS);
    struct tensor buffer[SUM_BUFFERS], sum = tensor_none, next = tensor_none;
    struct message in = { -1 }, out = { -1 };
    picoseconds added[TURNS] = { 0 };                   /* when the product in each buffer was added */
    enum error_code e = OK;
    if (P == 1) return tensor_1d_sp_overlap_multiply(&product, chunk_rows(&g, 0), own), OK;
    open_buffers(product.tp, buffer, SUM_BUFFERS, g.longest, own, &e, err);
    for (int step = 0; step < P && e == OK; step++, sum = next) {
        /* Step s computes the product for the rows of device r - s - 1; the own rows come last. */
        const struct interval at = chunk_rows(&g, step + 1), then = chunk_rows(&g, step + 2);
        if (step == 0) sum = tensor_1d_sp_overlap_rows_of(buffer[SUMS], (struct interval){ .count = at.count });
        const struct tensor part =
            step == 0 ? sum : tensor_1d_sp_overlap_rows_of(buffer[PARTS + step % TURNS],
                                                           (struct interval){ .count = at.count });
        /* The buffer's last product must have been added before a new one overwrites it. */
        clock_wait(clock, added[step % TURNS]);
        tensor_1d_sp_overlap_multiply(&product, at, part);
        clock_begin(clock, stream);
        if (step > 0) {
            tensor_1d_sp_overlap_arrive(&g, in);
            /* The partial sum that has come gets this device's product of the same rows. */
            reduce_local(&g.exchange, SUM, own.dtype, sum.data, part.data, tensor_count(part));
            added[step % TURNS] = clock->now;
            tensor_1d_sp_overlap_arrive(&g, out);
        }
        if (step < P - 1) {
            /* The last sum that comes is of the own rows: it arrives in the result. */
            next = step == P - 2 ? own
                                 : tensor_1d_sp_overlap_rows_of(buffer[SUMS + (step + 1) % TURNS],
                                                                (struct interval){ .count = then.count });
            in = receive_left(&g, next);
            out = send_right(&g, sum);
        }
        clock_end(clock);
    }
    clock_join(clock, stream);
    close_buffers(product.tp, buffer, SUM_BUFFERS);
    return e;
}

/* Exact sums are added in a buffer; the result is rounded when the last part has come. */
static enum error_code sum_exactly(struct product product, int64_t N, struct tensor own, enum error_code agreed,
                                   struct error *err)
{
    struct tensor sum = tensor_none;
    enum error_code e = agreed;
    if (!e) open_buffers(product.tp, &sum, 1, tensor_rows(own), tensor_2d(NULL, EXACT, 0, tensor_cols(own)), &e, err);
    if (!e) e = sum_products(product, N, sum, err);
    if (!e) dev_round(product.tp->device, own, sum);
    device_free(product.tp->device, sum), tops_drop(product.tp, &product.tops);
    return e;
}

/* ---- the products ------------------------------------------------------------------------------------------------ */

static void forward_of_chunk(const struct product *product, struct interval at, struct tensor chunk)
{
    dev_linear_forward(product->tp->device, tensor_1d_sp_overlap_rows_of(product->Y, at), chunk,
                       product->W, product->b);
}

static void forward_to_chunk(const struct product *product, struct interval at, struct tensor chunk)
{
    dev_linear_forward(product->tp->device, chunk, tensor_1d_sp_overlap_rows_of(product->X, at),
                       product->W, product->b);
}

static void exact_forward_to_chunk(const struct product *product, struct interval at, struct tensor chunk)
{
    dev_linear_forward_part(product->tp->device, chunk, tensor_1d_sp_overlap_rows_of(product->X, at),
                            tops_at(product, at), product->W, product->tops.others, product->b);
}

static enum error_code tensor_1d_sp_overlap_linear_forward(struct tensor_parallel *tp, enum param_role role, int64_t N,
                                                           struct tensor Y,
                                                           struct tensor X, struct tensor W, struct tensor b,
                                                           struct error *err)
{
    if (leads_inside(role))
        return gather_products((struct product){ tp, forward_of_chunk, .Y = Y, .W = W, .b = b }, N, X, err);
    if (tp->device->exact) {
        struct product p = { tp, exact_forward_to_chunk, .X = X, .W = W, .b = tp->rank == 0 ? b : tensor_none };
        const enum error_code e = tops_of_forward(tp, SEQUENCE, &p.tops, X, W, err);
        return sum_exactly(p, N, Y, e, err);
    }
    return sum_products((struct product){ tp, forward_to_chunk, .X = X, .W = W, .b = tp->rank == 0 ? b : tensor_none },
                        N, Y, err);
}

static void backward_of_chunk(const struct product *product, struct interval at, struct tensor chunk)
{
    dev_linear_backward_input(product->tp->device, tensor_1d_sp_overlap_rows_of(product->X, at), chunk, product->W);
}

static void backward_to_chunk(const struct product *product, struct interval at, struct tensor chunk)
{
    dev_linear_backward_input(product->tp->device, chunk, tensor_1d_sp_overlap_rows_of(product->Y, at), product->W);
}

static void exact_backward_to_chunk(const struct product *product, struct interval at, struct tensor chunk)
{
    dev_linear_backward_input_part(product->tp->device, chunk, tensor_1d_sp_overlap_rows_of(product->Y, at),
                                   tops_at(product, at), product->W, product->tops.others);
}

static enum error_code tensor_1d_sp_overlap_linear_backward_input(struct tensor_parallel *tp,
                                                                  enum param_role role, int64_t N,
                                                                  struct tensor dX, struct tensor dY, struct tensor W,
                                                                  struct error *err)
{
    if (!leads_inside(role))
        return gather_products((struct product){ tp, backward_of_chunk, .X = dX, .W = W }, N, dY, err);
    if (tp->device->exact) {
        struct product p = { tp, exact_backward_to_chunk, .Y = dY, .W = W };
        const enum error_code e = tops_of_input(tp, SEQUENCE, &p.tops, dY, W, err);
        return sum_exactly(p, N, dX, e, err);
    }
    return sum_products((struct product){ tp, backward_to_chunk, .Y = dY, .W = W }, N, dX, err);
}

static void weight_of_chunk(const struct product *product, struct interval at, struct tensor chunk)
{
    dev_linear_backward_weight(product->tp->device, product->W, product->b,
                               tensor_1d_sp_overlap_rows_of(product->Y, at), chunk);
}

static void exact_weight_of_chunk(const struct product *product, struct interval at, struct tensor chunk)
{
    dev_linear_backward_weight_part(product->tp->device, product->W, product->b,
                                    tensor_1d_sp_overlap_rows_of(product->Y, at), tops_at(product, at), chunk,
                                    tensor_none);
}

/* With exact sums: the rows of dY whose columns are cut have tops on which the devices agree. */
static enum error_code exact_weight(struct tensor_parallel *tp, enum param_role role, int64_t N, struct tensor dW,
                                    struct tensor db, struct tensor dY, struct tensor X, struct error *err)
{
    struct product p = { tp, exact_weight_of_chunk, .Y = dY, .W = dW, .b = db };
    if (!leads_inside(role)) return terms_backward_weight(tp, SEQUENCE, false, dW, db, dY, X, err);
    enum error_code e = terms_row_tops(tp, SEQUENCE, &p.tops.rows, dY, err);
    if (!e) e = gather_products(p, N, X, err);
    device_free(tp->device, p.tops.rows);
    return e;
}

/* For a matrix that leads out, X and dY already have all rows. */
static enum error_code tensor_1d_sp_overlap_linear_backward_weight(struct tensor_parallel *tp,
                                                                   enum param_role role, int64_t N,
                                                                   struct tensor dW, struct tensor db, struct tensor dY,
                                                                   struct tensor X,
                                                                   struct error *err)
{
    if (tp->device->exact) return exact_weight(tp, role, N, dW, db, dY, X, err);
    if (leads_inside(role))
        return gather_products((struct product){ tp, weight_of_chunk, .Y = dY, .W = dW, .b = db }, N, X, err);
    dev_linear_backward_weight(tp->device, dW, db, dY, X);
    return OK;
}

static void look_up_chunk(const struct product *product, struct interval at, struct tensor chunk)
{
    dev_embedding_forward(product->tp->device, chunk, ids_of(product->ids, at), product->W,
                          product->tp->tokens.first, false);
}

static enum error_code tensor_1d_sp_overlap_embedding_forward(struct tensor_parallel *tp, struct tensor Y,
                                                              struct tensor ids, struct tensor W, struct error *err)
{
    return sum_products((struct product){ tp, look_up_chunk, .W = W, .ids = ids }, tensor_count(ids), Y, err);
}

static void give_back_chunk(const struct product *product, struct interval at, struct tensor chunk)
{
    dev_embedding_backward_weight(product->tp->device, product->W, chunk, ids_of(product->ids, at),
                                  product->tp->tokens.first);
}

static enum error_code tensor_1d_sp_overlap_embedding_backward_weight(struct tensor_parallel *tp, struct tensor dW,
                                                                      struct tensor dY,
                                                                      struct tensor ids, struct error *err)
{
    return gather_products((struct product){ tp, give_back_chunk, .W = dW, .ids = ids }, tensor_count(ids), dY, err);
}

const struct tensor_scheme tensor_scheme_1d_sp_overlap = {
    .head = { .kind = TENSOR_SCHEME, .equality = REASSOCIATES,
              .name = "1d-sp-overlap",
              .description = "1d-sp in chunks that travel while others are multiplied: collective matmul, staggered "
                             "sums",
              .source = "Wang et al., doi:10.1145/3567955.3567959; T3, arXiv:2401.16677", .volume = "as 1d-sp",
              .memory = "as 1d-sp; on their way 2 or 4 of P chunks of N/P rows" },
    .rings = true, .exact = true, SEQUENCE_SCHEME, .linear_forward = tensor_1d_sp_overlap_linear_forward,
        .linear_backward_input = tensor_1d_sp_overlap_linear_backward_input,
    .linear_backward_weight = tensor_1d_sp_overlap_linear_backward_weight,
        .embedding_forward = tensor_1d_sp_overlap_embedding_forward,
    .embedding_backward_weight = tensor_1d_sp_overlap_embedding_backward_weight,
};
