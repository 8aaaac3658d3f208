/* link_memory.c -- the memory of a part's buffers on a device.  bench/schemes/tensor_predict.c, model/away.c,
 * layer_memory.c and model/run/run.c call these functions.  No function returns an error code. */
#include "emulated_devices/model/link/link.h"
#include "emulated_devices/schemes/attention/streams.h"
#include "ref/model/config.h"

static int64_t link_memory_columns(const struct tensor_parallel *tp, enum activation_width width)
{
    switch (width) {
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
static bool is_of_routers(enum activation_width width)
{
    return width == WIDTH_EXPERTS || width == WIDTH_CHOICES || width == WIDTH_GATE;
}

/* Whether a buffer has a row for each token, not for each token of each stream. */
static bool is_of_tokens(const struct buffer *buffer)
{
    return buffer->statistic == NO_STATISTIC ? width_of_tokens(buffer->width)
         : buffer->statistic == INNER_ROW || buffer->statistic == TWO_INNER_ROWS || buffer->statistic == STREAM_WEIGHTS;
}

/* Return what norms of heads norm in a row. */
static int64_t normed_heads_of(const struct tensor_parallel *tp)
{
    return tp->config->normed_together ? 2 : tp->heads.queries.count + tp->heads.keys.count;
}

struct tensor buffer_shape(const struct buffer *buffer, const struct seams *seams, int64_t N)
{
    const struct tensor_parallel *tp = seams->tp;
    const int64_t rows = tensor_rows_at(tp, buffer->rows,
                                        is_of_tokens(buffer) ? stream_tokens(&seams->cp, N) : N).count;
    const enum dtype wide = dtype_wide(tp->device->dtype), own = tp->device->dtype;
    switch (buffer->statistic) {
    case NO_STATISTIC:  return tensor_2d(NULL, is_of_routers(buffer->width) ? wide : own, rows,
                                         link_memory_columns(tp, buffer->width));
    case STREAM_WEIGHTS: return tensor_2d(NULL, wide, rows, STREAMS(tp->config));
    case SINK_GRADIENT: return tensor_1d(NULL, tensor_gradient_format(tp), tp->heads.queries.count);
    case PREFIX_GRADIENT: return prefix_shape(&seams->cp, tensor_gradient_format(tp));
    case EXPERT_CHOICES: return tensor_2d(NULL, I32, rows, tp->config->mixture.k);
    case EXPERTS_KEPT:  return seams->ep.scheme->kept(&seams->ep, buffer->slot, rows);
    case EXPERTS_LEFT:  return seams->ep.scheme->left(&seams->ep, buffer->slot, rows);
    case INNER_HEADS:    return tensor_1d(NULL, wide, rows * normed_heads_of(tp));
    case TWO_INNER_ROWS: return tensor_1d(NULL, tp->device->exact ? F64 : wide, 2 * rows);
    case ATTENTION_KEPT: return seams->cp.scheme->kept(&seams->cp, buffer->slot, rows);
    default:            return tensor_1d(NULL, wide, rows);
    }
}

uint64_t buffer_bytes(const struct buffer *buffer, const struct seams *seams, int64_t N)
{
    return tensor_bytes(buffer_shape(buffer, seams, N));
}

uint64_t linked_keeps(const struct linked *linked, const struct seams *seams, int64_t N)
{
    uint64_t sum = buffer_bytes(&linked->buffer[BUFFER_IN], seams, N);
    for (int b = BUFFER_FIRST_OWN; b < linked->buffers; b++)
        if (linked->buffer[b].kept && linked->buffer[b].tag == ACTIVATIONS)
            sum += buffer_bytes(&linked->buffer[b], seams, N);
    return sum;
}

uint64_t linked_drops(const struct linked *linked, const struct seams *seams, int64_t N)
{
    uint64_t sum = 0;
    for (int b = BUFFER_FIRST_OWN; b < linked->buffers; b++)
        if (linked->buffer[b].dropped) sum += buffer_bytes(&linked->buffer[b], seams, N);
    return sum;
}
