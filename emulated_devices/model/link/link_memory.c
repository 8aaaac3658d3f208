/* link_memory.c -- the memory of a part's buffers on a device. */
#include "emulated_devices/model/link/link.h"
#include "emulated_devices/schemes/attention/streams.h"

static int64_t columns(const struct tensor_parallel *tp, enum activation_width w)
{
    switch (w) {
    case WIDTH_QKV:        return tensor_qkv_columns(tp);
    case WIDTH_HEADS:      return tp->heads.queries.count * tp->config->A;
    case WIDTH_UP:         return tensor_up_columns(tp);
    case WIDTH_ACT:        return tp->columns.count;
    case WIDTH_VOCABULARY: return tp->tokens.count;
    case WIDTH_EXPERTS:    return mixture_columns(&tp->config->mixture);
    case WIDTH_CHOICES:    return tp->config->mixture.k;
    case WIDTH_SHARED_UP:  return 2 * tp->shared.count;
    case WIDTH_SHARED_ACT: return tp->shared.count;
    case WIDTH_Q_LATENT:   return tp->config->latent.q;
    case WIDTH_KV_LATENT:  return kv_latent_width(tp->config);
    case WIDTH_KV_NORMED:  return tp->config->latent.kv;
    case WIDTH_EXPANDED:   return tp->heads.queries.count * expanded_width(tp->config);
    case WIDTH_VALUES:     return tp->heads.queries.count * value_width(tp->config);
    case WIDTH_DENSE_UP:   return 2 * tp->dense.count;
    case WIDTH_DENSE_ACT:  return tp->dense.count;
    case WIDTH_GATE:       return 1;
    case WIDTH_BESIDE:     return STREAMS(tp->config) * tp->channels.count;
    case WIDTH_STREAMS:    return STREAMS(tp->config);
    default:               return tp->channels.count;
    }
}

/* Router values are few but sensitive to rounding: they have the wide format, as in the one-device model. */
static bool is_of_routers(enum activation_width w)
{
    return w == WIDTH_EXPERTS || w == WIDTH_CHOICES || w == WIDTH_GATE;
}

/* Whether a buffer has a row for each token, not for each token of each stream. */
static bool is_of_tokens(const struct buffer *b)
{
    return b->statistic == NO_STATISTIC ? width_of_tokens(b->width)
         : b->statistic == INNER_ROW || b->statistic == TWO_INNER_ROWS || b->statistic == STREAM_WEIGHTS;
}

/* What norms of heads norm in a row. */
static int64_t normed_heads_of(const struct tensor_parallel *tp)
{
    return tp->config->normed_together ? 2 : tp->heads.queries.count + tp->heads.keys.count;
}

struct tensor buffer_shape(const struct buffer *b, const struct seams *s, int64_t N)
{
    const struct tensor_parallel *tp = s->tp;
    const int64_t rows = tensor_rows_at(tp, b->rows, is_of_tokens(b) ? stream_tokens(&s->cp, N) : N).count;
    const enum dtype wide = dtype_wide(tp->device->dtype), own = tp->device->dtype;
    switch (b->statistic) {
    case NO_STATISTIC:  return tensor_2d(NULL, is_of_routers(b->width) ? wide : own, rows, columns(tp, b->width));
    case STREAM_WEIGHTS: return tensor_2d(NULL, wide, rows, STREAMS(tp->config));
    case SINK_GRADIENT: return tensor_1d(NULL, tensor_gradient_format(tp), tp->heads.queries.count);
    case PREFIX_GRADIENT: return prefix_shape(&s->cp, tensor_gradient_format(tp));
    case EXPERT_CHOICES: return tensor_2d(NULL, I32, rows, tp->config->mixture.k);
    case EXPERTS_KEPT:  return s->ep.scheme->kept(&s->ep, b->slot, rows);
    case EXPERTS_LEFT:  return s->ep.scheme->left(&s->ep, b->slot, rows);
    case INNER_HEADS:    return tensor_1d(NULL, wide, rows * normed_heads_of(tp));
    case TWO_INNER_ROWS: return tensor_1d(NULL, wide, 2 * rows);
    case ATTENTION_KEPT: return s->cp.scheme->kept(&s->cp, b->slot, rows);
    default:            return tensor_1d(NULL, wide, rows);
    }
}

uint64_t buffer_bytes(const struct buffer *b, const struct seams *s, int64_t N)
{
    return tensor_bytes(buffer_shape(b, s, N));
}

uint64_t linked_keeps(const struct linked *l, const struct seams *s, int64_t N)
{
    uint64_t sum = buffer_bytes(&l->buffer[BUFFER_IN], s, N);
    for (int b = BUFFER_FIRST_OWN; b < l->buffers; b++)
        if (l->buffer[b].kept && l->buffer[b].tag == ACTIVATIONS) sum += buffer_bytes(&l->buffer[b], s, N);
    return sum;
}

uint64_t linked_drops(const struct linked *l, const struct seams *s, int64_t N)
{
    uint64_t sum = 0;
    for (int b = BUFFER_FIRST_OWN; b < l->buffers; b++)
        if (l->buffer[b].dropped) sum += buffer_bytes(&l->buffer[b], s, N);
    return sum;
}
