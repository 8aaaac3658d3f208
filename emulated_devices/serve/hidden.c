/* hidden.c -- keeps the model's stream behind its last layer by the blocks of the cache.  proposer.c calls.  Errors:
 * ERR_MEMORY; ERR_INTERNAL of rows that are missing. */
#include "emulated_devices/serve/hidden.h"
#include "emulated_devices/device/arena_list.h"
#include "emulated_devices/device/compute.h"
#include <stdlib.h>
#include <string.h>

enum error_code hidden_open(struct hidden *hidden, struct device *device, const struct serving_limits *limits,
                            int64_t D, struct error *err)
{
    const int64_t rows = limits->blocks * limits->block_tokens;
    *hidden = (struct hidden){ .device = device, .tokens = limits->block_tokens,
                               .kept = tensor_2d(NULL, device->dtype, rows, D) };
    hidden->memory = device_tensor_2d(device, BUFFERS, rows, D);
    hidden->kept.data = calloc(1, tensor_bytes(hidden->kept) + 1);
    if (!tensor_present(hidden->memory) || hidden->kept.data == NULL)
        return fail(err, ERR_MEMORY, "no memory for the stream of %lld tokens", (long long)rows);
    arena_name(&device->arena, hidden->memory.data, "the stream of the cache's tokens");
    return OK;
}

void hidden_close(struct hidden *hidden)
{
    free(hidden->kept.data);
    if (tensor_present(hidden->memory)) device_free(hidden->device, hidden->memory);
    *hidden = (struct hidden){ .tokens = 0 };
}

/* Where the token at a position of a sequence is. */
static char *hidden_place(const struct hidden *hidden, const struct sequence *sequence, int64_t position)
{
    const int64_t row = sequence->block[position / hidden->tokens] * hidden->tokens + position % hidden->tokens;
    return tensor_rows_of(hidden->kept, row, 1).data;
}

enum error_code hidden_keep(struct hidden *hidden, const struct iteration *now, struct tensor stream,
                            struct error *err)
{
    struct device *const d = hidden->device;
    const size_t row = (size_t)tensor_cols(stream) * dtype_size(stream.dtype);
    if (tensor_rows(stream) < now->tokens || tensor_cols(stream) != tensor_cols(hidden->kept))
        return fail(err, ERR_INTERNAL, "of %lld tokens the stream has %lld rows", (long long)now->tokens,
                    (long long)tensor_rows(stream));
    const char *const view = host_read(d, stream.data, tensor_bytes(stream)), *next = view;
    for (int64_t i = 0; i < now->pieces; i++) {
        const struct token_piece *const p = &now->piece[i];
        for (int64_t at = p->first; at < p->first + p->count; at++, next += row)
            memcpy(hidden_place(hidden, p->of, at), next, row);
    }
    host_done(d, view);
    device_charge(d, "keep the stream", elementwise_cost(now->tokens * tensor_cols(stream), 2, 0, stream.dtype));
    return OK;
}

void hidden_of(const struct hidden *hidden, const struct sequence *sequence, int64_t first, int64_t count,
               struct tensor rows)
{
    const size_t row = (size_t)tensor_cols(rows) * dtype_size(rows.dtype);
    for (int64_t i = 0; i < count; i++)
        memcpy(tensor_rows_of(rows, i, 1).data, hidden_place(hidden, sequence, first + i), row);
}
