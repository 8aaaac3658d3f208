/* attention, streams: devices along cp have different parallel streams of the same tokens.
 *
 * Source   M. Chen et al., "Parallel scaling law for language models", arXiv:2505.10475: streams share the weights, and
 *          meet where they are weighed.  Where their rows lie on devices is ours
 * Group    n devices, n <= P, each with the r-th of n nearly equal ranges of the P streams
 * Layout   up to the final norm: all tokens of q streams; where streams are weighed, in the output matrix and the loss:
 *          all streams of the r-th of n nearly equal ranges of a microbatch's T tokens
 * Sends    nothing in attention.  Forward: an all-to-all of the streams' results, q (T - T/n) D elements of each
 *          device; backward: the same of their gradients
 * Memory   kept: the log-sum-exp of each row and head, in the wide format
 * Equals   permutes: each row is computed as on one device
 *
 * Called by: model/run/run_streams.c (exchanges), plan/context.c and model/link/ (extents), run_attention.c (passes).
 * Errors: ERR_MEMORY without buffers for rows, ERR_COMM of a failed all-to-all; then the step cannot go on.
 */
#include "emulated_devices/schemes/attention/streams.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/attention/whole.h"
#include "ref/model/config.h"

struct interval streams_of(const struct context_parallel *cp, int member)
{
    return cp->scheme->cuts_streams ? block_at(cp->streams, cp->devices, member) : (struct interval){ 0, cp->streams };
}

struct interval stream_tokens_of(const struct context_parallel *cp, int64_t T, int member)
{
    return cp->scheme->cuts_streams ? block_at(T, cp->devices, member) : (struct interval){ 0, T };
}

/* A device has N rows for its q streams together: T = N / q tokens of each. */
static int64_t tokens_of_stream(const struct context_parallel *cp, int64_t N)
{
    return N / streams_of(cp, cp->rank).count;
}

int64_t stream_tokens(const struct context_parallel *cp, int64_t N)
{
    /* A model with one stream weighs nothing, and every row stays a token. */
    return cp->streams > 1 ? stream_tokens_of(cp, tokens_of_stream(cp, N), cp->rank).count : N;
}

struct tensor prefix_shape(const struct context_parallel *cp, enum dtype dtype)
{
    const struct model_config *c = cp->tp->config;
    return tensor_2d(NULL, dtype, streams_of(cp, cp->rank).count * c->streams.prefix, 2 * cp->heads->keys.count * c->A);
}

/* ---- rows of streams for tokens of all --------------------------------------------------------------------------- */

/* Elements that each member has of this device's streams; and that this device has of each member's. */
static void counts_of(const struct context_parallel *cp, int64_t T, int64_t streams[], int64_t tokens[])
{
    const int64_t D = cp->tp->channels.count, q = streams_of(cp, cp->rank).count,
                  own = stream_tokens_of(cp, T, cp->rank).count;
    for (int m = 0; m < cp->devices; m++) {
        streams[m] = q * stream_tokens_of(cp, T, m).count * D;
        tokens[m] = streams_of(cp, m).count * own * D;
    }
}

/* Copy between this device's streams H and the same rows packed member by member. */
static void streams_pack(const struct context_parallel *cp, struct tensor packed, struct tensor H, bool to_packed)
{
    struct device *d = cp->tp->device;
    const int64_t T = tokens_of_stream(cp, tensor_rows(H)), q = streams_of(cp, cp->rank).count;
    const uint64_t row = (uint64_t)tensor_cols(H) * dtype_size(H.dtype);
    char *at = packed.data;
    /* packed = for each member m, for each own stream i: the rows of m's tokens, each [D]. */
    for (int m = 0; m < cp->devices; m++)
        for (int64_t i = 0; i < q; i++) {
            const struct interval tokens = stream_tokens_of(cp, T, m);
            char *const there = (char *)H.data + (uint64_t)(i * T + tokens.first) * row;
            device_copy(d, to_packed ? at : there, to_packed ? there : at, (uint64_t)tokens.count * row);
            at += (uint64_t)tokens.count * row;
        }
    dev_charge(d, "pack streams", H, 2, 0);
}

/* streams: [N,D] of this device's streams; tokens: [P tokens,D] of its tokens, stream by stream.  to_tokens: from the
 * first to the second; else back. */
static enum error_code streams_exchange(const struct context_parallel *cp, struct tensor streams, struct tensor tokens,
                                        bool to_tokens, struct error *err)
{
    int64_t out[MESH_MOST_LISTED], in[MESH_MOST_LISTED];
    struct device *d = cp->tp->device;
    const struct tensor packed = device_tensor_in(d, BUFFERS, streams.dtype, tensor_count(streams));
    if (packed.data == NULL) return fail(err, ERR_MEMORY, "no memory to exchange the rows of streams");
    /* The counts are elements, D for each row, as collectives want them. */
    counts_of(cp, tokens_of_stream(cp, tensor_rows(streams)), out, in);
    /* Rows that come from a member are already in order of streams; only the streams' side needs packing. */
    if (to_tokens) streams_pack(cp, packed, streams, true);
    const enum error_code e = collective_run(cp->group, ALLTOALL, NULL, &(struct collective){
        .in = to_tokens ? packed.data : tokens.data, .out = to_tokens ? tokens.data : packed.data,
        .dtype = streams.dtype, .counts = to_tokens ? out : in, .recvcounts = to_tokens ? in : out }, err);
    /* On the way back, rows come member by member and are put into the order of streams. */
    if (!e && !to_tokens) streams_pack(cp, packed, streams, false);
    device_free(d, packed);
    return e;
}

/* The scheme cuts streams, and more than one device shares them: only then rows are exchanged. */
static bool sends(const struct context_parallel *cp) { return cp->scheme->cuts_streams && cp->devices > 1; }

/* Room for all streams of this device's tokens, given X. */
static enum error_code open_tokens(const struct context_parallel *cp, struct tensor X, struct tensor *t,
                                   struct error *err)
{
    *t = device_tensor_in(cp->tp->device, BUFFERS, X.dtype, tensor_count(X));
    *t = tensor_2d(t->data, t->dtype, tensor_rows(X) * cp->streams, cp->tp->channels.count);
    return t->data ? OK : fail(err, ERR_MEMORY, "no memory for the streams of %lld tokens", (long long)tensor_rows(X));
}

enum error_code streams_beside(const struct context_parallel *cp, struct tensor X, struct tensor H, struct error *err)
{
    struct device *d = cp->tp->device;
    struct tensor all = H;
    enum error_code e = sends(cp) ? open_tokens(cp, X, &all, err) : OK;
    if (e) return e;
    if (sends(cp)) e = streams_exchange(cp, H, all, true, err);
    /* A row X[n,:] has all streams of token n side by side, so a device needs all streams of its tokens. */
    if (!e) dev_streams_beside(d, X, all);
    if (sends(cp)) device_free(d, all);
    return e;
}

enum error_code streams_apart(const struct context_parallel *cp, struct tensor dH, struct tensor dX, struct error *err)
{
    struct device *d = cp->tp->device;
    struct tensor all = dH;
    enum error_code e = sends(cp) ? open_tokens(cp, dX, &all, err) : OK;
    if (e) return e;
    /* The gradients of all streams of the own tokens come first; the all-to-all then takes each home. */
    dev_streams_beside_backward_input(d, all, dX);
    if (sends(cp)) e = streams_exchange(cp, dH, all, false, err), device_free(d, all);
    return e;
}

void streams_cost(struct forecast *forecast, const struct context_parallel *cp, int64_t N, bool beside)
{
    int64_t streams[MESH_MOST_LISTED], tokens[MESH_MOST_LISTED];
    if (!sends(cp)) return;
    counts_of(cp, tokens_of_stream(cp, N), streams, tokens);
    forecast_on(forecast, cp->group, ALLTOALL, NULL,
                (struct collective){ .counts = beside ? streams : tokens, .recvcounts = beside ? tokens : streams,
                                     .dtype = cp->tp->device->dtype });
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

static const char *streams_refuses(const struct context_parallel *cp, const struct model_config *config)
{
    /* A scheme that cuts streams has nothing to cut in a model with one stream. */
    if (STREAMS(config) == 1) return "a model with parallel streams (--streams)";
    return cp->devices <= STREAMS(config) ? NULL : "at most as many devices as parallel streams";
}

const struct attention_scheme attention_scheme_streams = {
    .head = { .kind = ATTENTION_SCHEME, .equality = PERMUTES, .name = "streams",
              .description = "each device has some of a model's parallel streams, with all tokens",
              .source = "ParScale, arXiv:2505.10475",
              .volume = "where streams are weighed: q (T - T/n) D elements of q of P streams, each way",
              .memory = "log-sum-exp: H numbers a token and stream",
              .needs = "a model with P parallel streams, --cp n <= P" },
    .exact = true, .refuses = streams_refuses, .cuts_streams = true, WHOLE_SEQUENCES,
};
