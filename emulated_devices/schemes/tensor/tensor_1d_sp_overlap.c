/* tensor parallelism, 1d-sp-overlap: as 1d-sp, each gather and each sum cut into the ring's chunks, which travel while
 * others are multiplied.
 *
 * Source   gathers   S. Wang et al., "Overlap communication with dependent computation via decomposition in large deep
 *          learning
 *                    models" (collective matmul), ASPLOS 2023, doi:10.1145/3567955.3567959
 *          sums      S. Pati et al., "T3: transparent tracking & triggering for fine-grained overlap of compute &
 *          collectives",
 *                    arXiv:2401.16677: products staggered so that each device makes first the chunk that has farthest
 *                    to go
 * Group    P devices with the same tokens
 * Layout   as 1d-sp; chunk c is device c's rows, which may be none
 * Sends    the messages, bytes and additions of 1d-sp, were its all-gathers and reduce-scatters rings, each sent as
 *          soon as its chunk is there
 *
 *          P = 3, device r, rows of chunk c in brackets        while it multiplies, there travels
 *          gather   Y[r] = X[r] W;  Y[r-1] = X[r-1] W; ..      X[r] on to r+1, X[r-1] from r-1; ..
 *          sum      X[r-1] W;  X[r-2] W + its sum so far; ..   the sum of chunk r-1 on to r+1, that of r-2 from r-1; ..
 *                   X[r] W comes last, and stays
 *
 * Time     N equal chunks, each g to multiply, c to send and a to add, take to the picosecond
 *          gather   max(N g, g + (N-1) c)
 *          sum      max(N g + a, g + (N-1) (c + a)): additions are done beside the products, on the communication
 *          stream,
 *                   as T3 does them in the memory; it is shared with what the data scheme sends meanwhile
 *          The weights' gradient of a matrix that leads inside takes its chunks of X from a gather of this kind.
 *          A product waits until the one before the last has been added: its buffer is used again.  That costs no time.
 * Memory   as 1d-sp; on their way are two chunks (gather), or four (sum), instead of all N rows.  What a matrix that
 *          leads out gets as its output's gradient is gathered where it lies.
 * Equals   1d-sp, in another order of sums between devices: chunk c of devices c+1, c+2, .., c, as the ring's, where
 *          1d-sp has that of ranks.  Rows are on one device each, so that no copies depend on it.  A chunk's product
 *          has its rows' inner sums in the order of the BLAS for that shape.  On numbers whose sums are exact the bits
 *          are equal.  The weights' gradients of matrices that lead inside, and of the embedding, are sums of chunks r,
 *          r-1, .., r+1.
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/tensor/sequence.h"

/* What is done with the rows of one chunk: with what arrived of them, or so that it can leave. */
struct product {
    struct tensor_parallel *tp;
    void (*run)(const struct product *, struct interval, struct tensor chunk);
    struct tensor Y, X, W, b, ids;      /* those it needs, each with all rows of the microbatch */
};

static struct tensor rows_of(struct tensor t, struct interval at)
{
    const int64_t cols = tensor_cols(t);
    return tensor_2d((char *)t.data + (size_t)(at.first * cols) * dtype_size(t.dtype), t.dtype, at.count, cols);
}

static struct tensor ids_of(struct tensor ids, struct interval at)
{
    return tensor_1d((int32_t *)ids.data + at.first, I32, at.count);
}

static void multiply(const struct product *p, struct interval at, struct tensor chunk)
{
    if (at.count > 0) p->run(p, at, chunk);
}

/* ---- the ring ---------------------------------------------------------------------------------------------------- */

struct ring {
    struct group *group;
    struct exchange exchange;
    int64_t count[MESH_MOST_DEVICES], longest;      /* rows of each chunk */
};

/* It sends what the ring's algorithm does, in another order of time. */
static void expect(const struct ring *g, struct tensor rows)
{
    int64_t counts[MESH_MOST_DEVICES];
    for (int c = 0; c < g->group->size; c++) counts[c] = g->count[c] * tensor_cols(rows);
    const struct collective call = { .counts = counts, .dtype = rows.dtype, .reduction = SUM };
    collective_expect(g->group, g->exchange.operation, "ring", &call);
}

/* rows: some of those that go round. */
static struct ring ring_begin(struct tensor_parallel *tp, enum operation op, int64_t N, struct tensor rows)
{
    struct ring g = { .group = &tp->along[SEQUENCE] };
    g.exchange = exchange_begin(g.group, op);
    tensor_row_counts(tp, SEQUENCE, SEQUENCE, N, g.count);
    for (int c = 0; c < g.group->size; c++)
        if (g.count[c] > g.longest) g.longest = g.count[c];
    expect(&g, rows);
    return g;
}

/* Chunk r - steps_back: modulo P. */
static struct interval chunk_rows(const struct ring *g, int steps_back)
{
    const int P = g->group->size, chunk = ((g->group->rank - steps_back) % P + P) % P;
    struct interval at = { .count = g->count[chunk] };
    for (int c = 0; c < chunk; c++) at.first += g->count[c];
    return at;
}

static struct message receive_left(struct ring *g, struct tensor t)
{
    return message_receive(&g->exchange, (g->group->rank + g->group->size - 1) % g->group->size, t.data,
                           tensor_bytes(t));
}

static struct message send_right(struct ring *g, struct tensor t)
{
    return message_send(&g->exchange, (g->group->rank + 1) % g->group->size, t.data, tensor_bytes(t));
}

/* Others wait for what would follow: a message that goes wrong ends the job. */
static void arrive(struct ring *g, struct message m)
{
    struct error err;
    if (message_wait(g->group->comm, m, &err) != OK) comm_give_up(g->group->comm, &err);
}

static void open_buffers(struct tensor_parallel *tp, struct tensor *t, int n, int64_t rows, int64_t cols,
                         enum error_code *e, struct error *err)
{
    for (int i = 0; i < n; i++) {
        t[i] = tensor_none;
        if (*e == OK) *e = tensor_buffer(tp, &t[i], rows, cols, err);
    }
}

static void close_buffers(struct tensor_parallel *tp, struct tensor *t, int n)
{
    for (int i = 0; i < n; i++)
        if (tensor_present(t[i])) device_free(tp->device, t[i]);
}

/* ---- gather and multiply ----------------------------------------------------------------------------------------- */

/* Multiply every chunk of the group's rows, beginning with the own ones.
 * own: this device's rows; or, where there is room for all of them, all: then the chunks stay there. */
static enum error_code gather_products(struct product p, int64_t N, struct tensor own, struct error *err)
{
    struct ring g = ring_begin(p.tp, ALLGATHER, N, own);
    const int P = g.group->size;
    const bool stays = tensor_rows(own) == N && P > 1;
    struct tensor buffer[2], next = tensor_none, here = tensor_own_rows(p.tp, own, N);
    enum error_code e = OK;
    open_buffers(p.tp, buffer, stays || P == 1 ? 0 : 2, g.longest, tensor_cols(own), &e, err);
    for (int step = 0; step < P && e == OK; step++, here = next) {
        const bool last = step == P - 1;
        struct message in = { -1 }, out = { -1 };
        if (!last) {
            const struct interval coming = chunk_rows(&g, step + 1);
            next = stays ? rows_of(own, coming) : rows_of(buffer[step % 2], (struct interval){ .count = coming.count });
            in = receive_left(&g, next);
            out = send_right(&g, here);
        }
        multiply(&p, chunk_rows(&g, step), here);
        if (!last) arrive(&g, in), arrive(&g, out);
    }
    if (!stays && P > 1) close_buffers(p.tp, buffer, 2);
    return e;
}

/* ---- multiply and sum -------------------------------------------------------------------------------------------- */

/* This device's products, and sums that come and go; each by turns. */
enum { TURNS = 2, PARTS = 0, SUMS = PARTS + TURNS, SUM_BUFFERS = SUMS + TURNS };

/* own = this device's rows of the sum of everybody's products. */
static enum error_code sum_products(struct product p, int64_t N, struct tensor own, struct error *err)
{
    struct ring g = ring_begin(p.tp, REDUCE_SCATTER, N, own);
    const int P = g.group->size;
    struct clock *clock = &p.tp->device->clock;
    struct tensor buffer[SUM_BUFFERS], sum = tensor_none, next = tensor_none;
    struct message in = { -1 }, out = { -1 };
    picoseconds added[TURNS] = { 0 };                   /* when the product in a buffer has been */
    enum error_code e = OK;
    if (P == 1) return multiply(&p, chunk_rows(&g, 0), own), OK;
    open_buffers(p.tp, buffer, SUM_BUFFERS, g.longest, tensor_cols(own), &e, err);
    for (int step = 0; step < P && e == OK; step++, sum = next) {
        const struct interval at = chunk_rows(&g, step + 1), then = chunk_rows(&g, step + 2);
        if (step == 0) sum = rows_of(buffer[SUMS], (struct interval){ .count = at.count });
        const struct tensor part =
            step == 0 ? sum : rows_of(buffer[PARTS + step % TURNS], (struct interval){ .count = at.count });
        clock_wait(clock, added[step % TURNS]);
        multiply(&p, at, part);
        clock_begin(clock, COMMUNICATION);
        if (step > 0) {
            arrive(&g, in);
            reduce_local(&g.exchange, SUM, own.dtype, sum.data, part.data, tensor_count(part));
            added[step % TURNS] = clock->now;
            arrive(&g, out);
        }
        if (step < P - 1) {
            next = step == P - 2 ? own
                                 : rows_of(buffer[SUMS + (step + 1) % TURNS], (struct interval){ .count = then.count });
            in = receive_left(&g, next);
            out = send_right(&g, sum);
        }
        clock_end(clock);
    }
    clock_join(clock, COMMUNICATION);
    close_buffers(p.tp, buffer, SUM_BUFFERS);
    return e;
}

/* ---- the products ------------------------------------------------------------------------------------------------ */

static void forward_of_chunk(const struct product *p, struct interval at, struct tensor chunk)
{
    dev_linear_forward(p->tp->device, rows_of(p->Y, at), chunk, p->W, p->b);
}

static void forward_to_chunk(const struct product *p, struct interval at, struct tensor chunk)
{
    dev_linear_forward(p->tp->device, chunk, rows_of(p->X, at), p->W, p->b);
}

static enum error_code linear_forward(struct tensor_parallel *tp, enum param_role role, int64_t N, struct tensor Y,
                                      struct tensor X, struct tensor W, struct tensor b, struct error *err)
{
    if (leads_inside(role))
        return gather_products((struct product){ tp, forward_of_chunk, .Y = Y, .W = W, .b = b }, N, X, err);
    return sum_products((struct product){ tp, forward_to_chunk, .X = X, .W = W, .b = tp->rank == 0 ? b : tensor_none },
                        N, Y, err);
}

static void backward_of_chunk(const struct product *p, struct interval at, struct tensor chunk)
{
    dev_linear_backward_input(p->tp->device, rows_of(p->X, at), chunk, p->W);
}

static void backward_to_chunk(const struct product *p, struct interval at, struct tensor chunk)
{
    dev_linear_backward_input(p->tp->device, chunk, rows_of(p->Y, at), p->W);
}

static enum error_code linear_backward_input(struct tensor_parallel *tp, enum param_role role, int64_t N,
                                             struct tensor dX, struct tensor dY, struct tensor W, struct error *err)
{
    if (!leads_inside(role))
        return gather_products((struct product){ tp, backward_of_chunk, .X = dX, .W = W }, N, dY, err);
    return sum_products((struct product){ tp, backward_to_chunk, .Y = dY, .W = W }, N, dX, err);
}

static void weight_of_chunk(const struct product *p, struct interval at, struct tensor chunk)
{
    dev_linear_backward_weight(p->tp->device, p->W, p->b, rows_of(p->Y, at), chunk);
}

/* Of a matrix that leads out, both X and dY are whole already. */
static enum error_code linear_backward_weight(struct tensor_parallel *tp, enum param_role role, int64_t N,
                                              struct tensor dW, struct tensor db, struct tensor dY, struct tensor X,
                                              struct error *err)
{
    if (leads_inside(role))
        return gather_products((struct product){ tp, weight_of_chunk, .Y = dY, .W = dW, .b = db }, N, X, err);
    dev_linear_backward_weight(tp->device, dW, db, dY, X);
    return OK;
}

static void look_up_chunk(const struct product *p, struct interval at, struct tensor chunk)
{
    dev_embedding_forward(p->tp->device, chunk, ids_of(p->ids, at), p->W, p->tp->tokens.first, false);
}

static enum error_code embedding_forward(struct tensor_parallel *tp, struct tensor Y, struct tensor ids,
                                         struct tensor W, struct error *err)
{
    return sum_products((struct product){ tp, look_up_chunk, .W = W, .ids = ids }, tensor_count(ids), Y, err);
}

static void give_back_chunk(const struct product *p, struct interval at, struct tensor chunk)
{
    dev_embedding_backward_weight(p->tp->device, p->W, chunk, ids_of(p->ids, at), p->tp->tokens.first);
}

static enum error_code embedding_backward_weight(struct tensor_parallel *tp, struct tensor dW, struct tensor dY,
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
    .rings = true, SEQUENCE_SCHEME, .linear_forward = linear_forward, .linear_backward_input = linear_backward_input,
    .linear_backward_weight = linear_backward_weight, .embedding_forward = embedding_forward,
    .embedding_backward_weight = embedding_backward_weight,
};
