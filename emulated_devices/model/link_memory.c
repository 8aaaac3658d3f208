/* link_memory.c -- how much memory the buffers of a part take on a device. */
#include "emulated_devices/model/link.h"

static int64_t columns(const struct tensor_parallel *tp, enum activation_width w)
{
    switch (w) {
    case WIDTH_QKV:        return tensor_qkv_columns(tp);
    case WIDTH_HEADS:      return tp->heads.queries.count * tp->config->A;
    case WIDTH_UP:         return tensor_up_columns(tp);
    case WIDTH_ACT:        return tp->columns.count;
    case WIDTH_VOCABULARY: return tp->tokens.count;
    case WIDTH_EXPERTS:    return tp->config->mixture.E;
    case WIDTH_CHOICES:    return tp->config->mixture.k;
    default:               return tp->channels.count;
    }
}

/* Few numbers, on which much depends: in the wide format, as the one-device model has them. */
static bool is_of_routers(enum activation_width w) { return w == WIDTH_EXPERTS || w == WIDTH_CHOICES; }

struct tensor buffer_shape(const struct buffer *b, const struct context_parallel *cp, int64_t N)
{
    const struct tensor_parallel *tp = cp->tp;
    const int64_t rows = tensor_rows_at(tp, b->rows, N).count;
    const enum dtype wide = dtype_wide(tp->device->dtype), own = tp->device->dtype;
    const int64_t sorted = rows * tp->config->mixture.k;
    switch (b->statistic) {
    case NO_STATISTIC:  return tensor_2d(NULL, is_of_routers(b->width) ? wide : own, rows, columns(tp, b->width));
    case EXPERT_CHOICES:       return tensor_2d(NULL, I32, rows, tp->config->mixture.k);
    case EXPERT_ORDER:  return tensor_1d(NULL, I32, sorted);
    case EXPERT_COUNTS: return tensor_1d(NULL, I32, tp->config->mixture.E);
    case EXPERT_ROWS:   return tensor_2d(NULL, own, sorted, tp->channels.count);
    case EXPERT_UP:     return tensor_2d(NULL, own, sorted, tensor_up_columns(tp));
    case EXPERT_ACT:    return tensor_2d(NULL, own, sorted, tp->columns.count);
    case TWO_INNER_ROWS: return tensor_1d(NULL, wide, 2 * rows);
    case ATTENTION_KEPT: return cp->scheme->kept(cp, b->slot, rows);
    default:            return tensor_1d(NULL, wide, rows);
    }
}

uint64_t buffer_bytes(const struct buffer *b, const struct context_parallel *cp, int64_t N) { return tensor_bytes(buffer_shape(b, cp, N)); }

uint64_t linked_keeps(const struct linked *l, const struct context_parallel *cp, int64_t N)
{
    uint64_t sum = buffer_bytes(&l->buffer[BUFFER_IN], cp, N);
    for (int b = BUFFER_FIRST_OWN; b < l->buffers; b++)
        if (l->buffer[b].kept && l->buffer[b].tag == ACTIVATIONS) sum += buffer_bytes(&l->buffer[b], cp, N);
    return sum;
}

uint64_t linked_drops(const struct linked *l, const struct context_parallel *cp, int64_t N)
{
    uint64_t sum = 0;
    for (int b = BUFFER_FIRST_OWN; b < l->buffers; b++)
        if (l->buffer[b].dropped) sum += buffer_bytes(&l->buffer[b], cp, N);
    return sum;
}
