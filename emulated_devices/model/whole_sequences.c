#include "emulated_devices/model/whole_sequences.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/attention/positions.h"
#include "ref/model/config.h"
#include <stdlib.h>
#include <string.h>

static int64_t choices_of_token(const struct context_parallel *cp) { return cp->tp->config->mixture.k; }

/* The all-gather of [rows, k], for a device with `rows` rows. */
static struct collective gathering(const struct context_parallel *cp, int64_t rows, enum dtype dtype, int64_t counts[])
{
    for (int m = 0; m < cp->devices; m++)
        counts[m] = context_sequences(cp, rows) * context_count(cp, m) * choices_of_token(cp);
    return (struct collective){ .counts = counts, .dtype = dtype };
}

void whole_sequences_cost(struct forecast *f, const struct context_parallel *cp, int64_t rows, bool weights)
{
    int64_t counts[MESH_MOST_DEVICES];
    if (cp->devices == 1) return;
    forecast_on(f, cp->group, ALLGATHER, NULL, gathering(cp, rows, I32, counts));
    if (weights)
        forecast_on(f, cp->group, ALLGATHER, NULL, gathering(cp, rows, dtype_wide(cp->tp->device->dtype), counts));
}

/* @return whether there was memory for the list. */
static bool list_places(struct whole_sequences *w, int64_t sequences)
{
    const struct context_parallel *cp = w->cp;
    bool listed = true;
    int64_t at = 0;
    /* Gathered rows lie member by member; place says which row of whole sequences each of them is. */
    for (int m = 0; m < cp->devices; m++) {
        struct intervals tokens = context_tokens_of(cp, m);
        if (m == cp->rank) w->first = at;
        for (int64_t b = 0; b < sequences; b++)
            for (int i = 0; i < tokens.count; i++)
                for (int64_t t = 0; t < tokens.at[i].count; t++)
                    w->place[at++] = (int32_t)(b * cp->S + tokens.at[i].first + t);
        listed = listed && !intervals_lost(&tokens);
        intervals_free(&tokens);
    }
    return listed;
}

/* Rows of `from`, each at its place. */
static void put_integers(const struct whole_sequences *w, struct tensor to, struct tensor from)
{
    const int64_t k = tensor_cols(to);
    struct views v = views_of(w->cp->tp->device);
    int32_t *out = view_write(&v, to).data;
    const int32_t *in = view_read(&v, from).data;
    for (int64_t r = 0; r < tensor_rows(from); r++)
        memcpy(out + w->place[r] * k, in + r * k, (size_t)k * sizeof *out);
    views_end(&v);
}

static enum error_code no_memory(struct error *err)
{
    return fail(err, ERR_MEMORY, "no memory for the choices of whole sequences");
}

/* All-gather a tensor of this device's rows into one of whole sequences. */
static enum error_code gather(const struct whole_sequences *w, struct tensor own, struct tensor whole,
                              struct error *err)
{
    const struct context_parallel *cp = w->cp;
    struct device *d = cp->tp->device;
    int64_t counts[MESH_MOST_DEVICES];
    struct tensor all = whole;
    all.data = device_tensor_in(d, BUFFERS, own.dtype, tensor_count(whole)).data;
    struct collective call = gathering(cp, w->rows, own.dtype, counts);
    call.in = own.data, call.out = all.data;
    const enum error_code e = all.data ? collective_run(cp->group, ALLGATHER, NULL, &call, err) : no_memory(err);
    if (!e && own.dtype == I32) put_integers(w, whole, all);
    else if (!e)                        /* each row of `all` goes to one place */
        dev_gather_backward_input(d, whole, all, tensor_1d(w->place, I32, tensor_rows(all)), 1);
    device_free(d, all);
    return e;
}

enum error_code whole_sequences_open(struct whole_sequences *w, const struct context_parallel *cp,
                                     struct tensor experts, struct tensor weights, struct error *err)
{
    *w = (struct whole_sequences){ .cp = cp, .experts = experts, .weights = weights, .rows = tensor_rows(experts) };
    if (cp->devices == 1) return OK;
    struct device *d = cp->tp->device;
    const int64_t B = context_sequences(cp, w->rows), k = tensor_cols(experts);
    w->place = malloc((size_t)(B * cp->S + 1) * sizeof *w->place);
    w->experts = tensor_2d(device_tensor_in(d, BUFFERS, I32, B * cp->S * k).data, I32, B * cp->S, k);
    if (tensor_present(weights))
        w->weights = tensor_2d(device_tensor_in(d, BUFFERS, weights.dtype, B * cp->S * k).data, weights.dtype,
                               B * cp->S, k);
    if (!w->place || !w->experts.data || (tensor_present(weights) && !w->weights.data) || !list_places(w, B))
        return no_memory(err);
    const enum error_code e = gather(w, experts, w->experts, err);
    return e || !tensor_present(weights) ? e : gather(w, weights, w->weights, err);
}

void whole_sequences_return(const struct whole_sequences *w, struct tensor experts, struct tensor weights)
{
    struct device *d = w->cp->tp->device;
    const int64_t k = tensor_cols(experts);
    if (w->place == NULL) return;
    struct views v = views_of(d);
    int32_t *out = view_write(&v, experts).data;
    const int32_t *in = view_read(&v, w->experts).data;
    for (int64_t r = 0; r < w->rows; r++)
        memcpy(out + r * k, in + w->place[w->first + r] * k, (size_t)k * sizeof *out);
    views_end(&v);
    dev_gather_forward(d, weights, w->weights, tensor_1d(w->place + w->first, I32, w->rows), 1);
}

void whole_sequences_close(struct whole_sequences *w)
{
    if (w->place == NULL) return;
    device_free(w->cp->tp->device, w->experts), device_free(w->cp->tp->device, w->weights);
    free(w->place);
}
