/* attention, allgather-kv: every device gathers the keys and values of whole sequences, and attends with its queries.
 *
 * Source   "The Llama 3 herd of models", arXiv:2407.21783, section 3.3.2
 * Group    P devices; device r has chunks r and 2P-1-r of 2P of every sequence's S tokens, so that all have the same
 *          work under a causal mask.  P need not divide S
 * Layout   n tokens of all heads; during a pass also keys and values of all S tokens, in P blocks by owner
 *
 *          P = 3, device r
 *          forward    all-gather         K, V of devices 0, 1, 2
 *                     compute            Q[r] K[r], V[r] merged with Q[r] K[r-1], V[r-1], then with Q[r] K[r-2], V[r-2]
 *          backward   all-gather         K, V again
 *                     compute            dQ[r], and what Q[r] adds to dK, dV of devices 0, 1, 2
 *                     reduce-scatter     dK[r], dV[r]
 *
 * Sends    forward   all-gather of 2 n K A elements of each device
 *          backward  the same, and reduce-scatter of 2 n K A elements for each device in the wide format
 *          each to or from P-1 others.  Keys are few if queries share them, which is why Llama 3 chose this; nothing is
 *          sent while devices compute
 *          With exact sums no more is sent forward; the reduce-scatter has EXACT sums
 * Memory   kept: the log-sum-exp.  Forward: keys and values of B S tokens, one result to merge.  Backward: keys and
 *          values of B S tokens, and as many of their gradients in the wide format: ring.c has two blocks of n instead
 * Equals   reassociates: results are merged in the order r, r-1, .., and have the bits of ring-zigzag; gradients of
 *          keys are summed over devices in the order of ranks, in the wide format
 *
 * Called by: model/run/run_attention.c (passes), link_cost.c (cost).  Errors: ERR_MEMORY if keys and values of B S
 * tokens do not fit, ERR_COMM of a failed collective.
 */
#include "emulated_devices/schemes/attention/blocks.h"
#include "emulated_devices/schemes/attention/rings/ring.h"

/* ---- the two collectives ----------------------------------------------------------------------------------------- */

/* Count the numbers of each member's block of keys and values: B n 2 K A, in the order of ranks. */
static void counts_of(const struct context_parallel *cp, int64_t B, int64_t counts[])
{
    for (int m = 0; m < cp->devices; m++) counts[m] = B * context_count(cp, m) * cp_keys_width(cp);
}

static void allgather_kv_cost(struct forecast *forecast, const struct context_parallel *cp, enum tensor_pass pass,
                              int64_t rows)
{
    int64_t counts[MESH_MOST_LISTED];
    const enum dtype own = cp->tp->device->dtype;
    if (cp->devices == 1 || pass == WEIGHT_PASS) return;
    /* The cost function has only rows, so B is found from this device's share. */
    counts_of(cp, context_sequences(cp, rows), counts);
    forecast_on(forecast, cp->group, ALLGATHER, NULL, (struct collective){ .counts = counts, .dtype = own });
    if (pass == INPUT_PASS)
        forecast_on(forecast, cp->group, REDUCE_SCATTER, NULL,
                    (struct collective){ .counts = counts, .dtype = cp->tp->device->sums });
}

/* Return the rows of one member in a tensor that has all members' blocks, in the order of ranks. */
static struct tensor allgather_kv_block_of(const struct cp_pass *cp_pass, struct tensor all, int member)
{
    return tensor_rows_of(all, cp_pass->B * cp_pass->at.start[member],
                          cp_pass->B * positions_count(&cp_pass->at, member));
}

/* Collective over the cp group: afterwards `all` [B S, 2 K A] has every member's keys and values. */
static enum error_code allgather_kv_gather(struct cp_pass *cp_pass, struct tensor all, struct error *err)
{
    int64_t counts[MESH_MOST_LISTED];
    const struct tensor mine = allgather_kv_block_of(cp_pass, all, cp_pass->cp->rank);
    counts_of(cp_pass->cp, cp_pass->B, counts);
    /* The member's own place in the gathered tensor is also what it sends. */
    cp_copy_keys(cp_pass, mine, cp_pass->call->qkv);
    return collective_run(cp_pass->cp->group, ALLGATHER, NULL, &(struct collective){
        .in = mine.data, .out = all.data, .counts = counts, .dtype = all.dtype }, err);
}

/* This device's block of `all` becomes the sum of all members' blocks for it. */
static enum error_code allgather_kv_scatter(struct cp_pass *cp_pass, struct tensor all, struct error *err)
{
    int64_t counts[MESH_MOST_LISTED];
    counts_of(cp_pass->cp, cp_pass->B, counts);
    return collective_run(cp_pass->cp->group, REDUCE_SCATTER, NULL, &(struct collective){
        .in = all.data, .out = allgather_kv_block_of(cp_pass, all, cp_pass->cp->rank).data, .counts = counts,
        .dtype = all.dtype,
        .reduction = SUM }, err);
}

/* Open a buffer [B S, 2 K A], which holds the keys and values of all members, or their gradients. */
static enum error_code open_all(struct cp_pass *cp_pass, struct tensor *all, enum dtype dtype, struct error *err)
{
    return cp_open(cp_pass, all, 1, dtype, cp_pass->B * cp_pass->cp->S, cp_keys_width(cp_pass->cp), err);
}

/* ---- the two passes ---------------------------------------------------------------------------------------------- */

/* Buffers are opened, keys gathered, and blocks merged.  After an error the caller closes what was opened. */
static enum error_code allgather_kv_run_forward(struct cp_pass *cp_pass, struct block_results *results,
                                                struct tensor *keys, struct error *err)
{
    enum error_code e = open_all(cp_pass, keys, cp_pass->own, err);
    if (!e) e = block_results_open(cp_pass, results, err);
    if (!e) e = allgather_kv_gather(cp_pass, *keys, err);
    if (e) return e;
    /* With exact sums the tops come first; no keys travel for them, since all are here. */
    for (int i = 0; i < cp_pass->cp->devices && cp_pass->device->exact; i++) {
        const int owner = cp_before(cp_pass->cp, i);
        block_raise_tops(cp_pass, results, allgather_kv_block_of(cp_pass, *keys, owner), 0, owner);
    }
    /* The own block comes first, since it sets the result; later ones are merged into it. */
    for (int i = 0; i < cp_pass->cp->devices; i++) {
        const int owner = cp_before(cp_pass->cp, i);
        block_attend(cp_pass, results, allgather_kv_block_of(cp_pass, *keys, owner), owner);
    }
    block_results_finish(cp_pass, results);
    return OK;
}

static enum error_code allgather_kv_forward(struct attention_call *call, struct error *err)
{
    struct cp_pass g;
    struct block_results r = { 0 };
    struct tensor keys = tensor_none;
    enum error_code e = cp_prepare(&g, call, err);
    /* A device without sequences in a microbatch has no keys: no member has any, and nobody gathers. */
    if (e || g.B == 0) return e;
    e = allgather_kv_run_forward(&g, &r, &keys, err);
    cp_close(&g, &keys, 1), block_results_close(&g, &r);
    cp_end(&g);
    return e;
}

/* Gather the keys of all members, add this device's shares to d_keys [B S, 2 K A], and scatter their sums. */
static enum error_code run_backward(struct cp_pass *cp_pass, struct block_gradients *gradients, struct tensor *keys,
                                    struct tensor *d_keys, struct error *err)
{
    enum error_code e = open_all(cp_pass, keys, cp_pass->own, err);
    if (!e) e = open_all(cp_pass, d_keys, cp_pass->sums, err);
    if (!e) e = block_gradients_open(cp_pass, gradients, err);
    if (!e) e = allgather_kv_gather(cp_pass, *keys, err);
    if (e) return e;
    /* d_keys [B S, 2 K A] are this device's shares for the keys of all members. */
    device_zero(cp_pass->device, *d_keys);
    for (int m = 0; m < cp_pass->cp->devices; m++)
        block_add_share(cp_pass, gradients, allgather_kv_block_of(cp_pass, *d_keys, m),
                        allgather_kv_block_of(cp_pass, *keys, m), m);
    e = allgather_kv_scatter(cp_pass, *d_keys, err);
    if (e) return e;
    /* After the reduce-scatter the own block has the whole gradient of the own keys and values. */
    cp_copy_keys(cp_pass, gradients->all, allgather_kv_block_of(cp_pass, *d_keys, cp_pass->cp->rank));
    block_gradients_finish(cp_pass, gradients);
    return OK;
}

static enum error_code allgather_kv_backward_input(struct attention_call *call, struct error *err)
{
    struct cp_pass g;
    struct block_gradients s = { 0 };
    struct tensor keys = tensor_none, d_keys = tensor_none;
    enum error_code e = cp_prepare(&g, call, err);
    if (e || g.B == 0) return e;
    e = run_backward(&g, &s, &keys, &d_keys, err);
    cp_close(&g, &keys, 1), cp_close(&g, &d_keys, 1), block_gradients_close(&g, &s);
    cp_end(&g);
    return e;
}

const struct attention_scheme attention_scheme_allgather_kv = {
    .head = { .kind = ATTENTION_SCHEME, .equality = REASSOCIATES, .name = "allgather-kv",
              .description = "keys and values of all tokens are gathered; a sequence is cut as by ring-zigzag",
              .source = "Llama 3, arXiv:2407.21783",
              .volume = "2 n K A (P-1) elements a layer forward, n = B S/P; backward as many twice, once of gradients",
              .memory = "log-sum-exp: H numbers a token; in a pass keys and values of B S tokens, and their gradients",
              .needs = "P <= S" },
    .exact = true, .refuses = ring_attention_refuses, .cut = ring_zigzag_cut, .slots = 1, .kept = ring_attention_kept,
    .reads_input = true, .reads_output = true, .forward = allgather_kv_forward,
        .backward_input = allgather_kv_backward_input, .cost = allgather_kv_cost,
};
