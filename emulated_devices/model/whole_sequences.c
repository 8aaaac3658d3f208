/* whole_sequences.c -- gathers the choices of whole sequences along cp, and returns each device's rows.  Only
 * model/run/run_mixture.c opens and closes; model/link/link_cost.c predicts the traffic.  All devices along cp must
 * open together.  Without memory the code is ERR_MEMORY; the caller closes after an error, too. */
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

void whole_sequences_cost(struct forecast *forecast, const struct context_parallel *cp, int64_t rows, bool weights)
{
    int64_t counts[MESH_MOST_LISTED];
    if (cp->devices == 1) return;
    forecast_on(forecast, cp->group, ALLGATHER, NULL, gathering(cp, rows, I32, counts));
    if (weights)
        forecast_on(forecast, cp->group, ALLGATHER, NULL,
                    gathering(cp, rows, dtype_wide(cp->tp->device->dtype), counts));
}

/* @return whether there was memory for the list. */
static bool list_places(struct whole_sequences *whole_sequences, int64_t sequences)
{
    const struct context_parallel *cp = whole_sequences->cp;
    bool listed = true;
    int64_t at = 0;
    /* Gathered rows lie member by member; place says which row of whole sequences each of them is. */
    for (int m = 0; m < cp->devices; m++) {
        struct intervals tokens = context_tokens_of(cp, m);
        if (m == cp->rank) whole_sequences->first = at;
        for (int64_t b = 0; b < sequences; b++)
            for (int i = 0; i < tokens.count; i++)
                for (int64_t t = 0; t < tokens.at[i].count; t++)
                    whole_sequences->place[at++] = (int32_t)(b * cp->S + tokens.at[i].first + t);
        listed = listed && !intervals_lost(&tokens);
        intervals_free(&tokens);
    }
    return listed;
}

/* Rows of `from`, each at its place. */
static void put_integers(const struct whole_sequences *sequences, struct tensor to, struct tensor from)
{
    const int64_t k = tensor_cols(to);
    struct views v = views_of(sequences->cp->tp->device);
    int32_t *out = view_write(&v, to).data;
    const int32_t *in = view_read(&v, from).data;
    for (int64_t r = 0; r < tensor_rows(from); r++)
        memcpy(out + sequences->place[r] * k, in + r * k, (size_t)k * sizeof *out);
    views_end(&v);
}

static enum error_code whole_sequences_no_memory(struct error *err)
{
    return fail(err, ERR_MEMORY, "no memory for the choices of whole sequences");
}

/* All-gather a tensor of this device's rows into one of whole sequences. */
static enum error_code whole_sequences_gather(const struct whole_sequences *sequences, struct tensor own,
                                              struct tensor whole, struct error *err)
{
    const struct context_parallel *cp = sequences->cp;
    struct device *d = cp->tp->device;
    int64_t counts[MESH_MOST_LISTED];
    struct tensor all = whole;
    all.data = device_tensor_in(d, BUFFERS, own.dtype, tensor_count(whole)).data;
    struct collective call = gathering(cp, sequences->rows, own.dtype, counts);
    call.in = own.data, call.out = all.data;
    const enum error_code e = all.data ? collective_run(cp->group, ALLGATHER, NULL, &call, err)
        : whole_sequences_no_memory(err);
    if (!e && own.dtype == I32) put_integers(sequences, whole, all);
    else if (!e)                        /* each row of `all` goes to one place */
        dev_gather_backward_input(d, whole, all, tensor_1d(sequences->place, I32, tensor_rows(all)), 1);
    device_free(d, all);
    return e;
}

enum error_code whole_sequences_open(struct whole_sequences *sequences, const struct context_parallel *cp,
                                     struct tensor experts, struct tensor weights, struct error *err)
{
    *sequences = (struct whole_sequences){ .cp = cp, .experts = experts, .weights = weights,
                                          .rows = tensor_rows(experts) };
    if (cp->devices == 1) return OK;
    struct device *d = cp->tp->device;
    const int64_t B = context_sequences(cp, sequences->rows), k = tensor_cols(experts);
    sequences->place = malloc((size_t)(B * cp->S + 1) * sizeof *sequences->place);
    sequences->experts = tensor_2d(device_tensor_in(d, BUFFERS, I32, B * cp->S * k).data, I32, B * cp->S, k);
    if (tensor_present(weights))
        sequences->weights = tensor_2d(device_tensor_in(d, BUFFERS, weights.dtype, B * cp->S * k).data, weights.dtype,
                                       B * cp->S, k);
    if (!sequences->place || !sequences->experts.data || (tensor_present(weights) && !sequences->weights.data)
        || !list_places(sequences, B)) return whole_sequences_no_memory(err);
    const enum error_code e = whole_sequences_gather(sequences, experts, sequences->experts, err);
    return e || !tensor_present(weights) ? e : whole_sequences_gather(sequences, weights, sequences->weights, err);
}

void whole_sequences_return(const struct whole_sequences *sequences, struct tensor experts, struct tensor weights)
{
    struct device *d = sequences->cp->tp->device;
    const int64_t k = tensor_cols(experts);
    if (sequences->place == NULL) return;
    struct views v = views_of(d);
    int32_t *out = view_write(&v, experts).data;
    const int32_t *in = view_read(&v, sequences->experts).data;
    for (int64_t r = 0; r < sequences->rows; r++)
        memcpy(out + r * k, in + sequences->place[sequences->first + r] * k, (size_t)k * sizeof *out);
    views_end(&v);
    dev_gather_forward(d, weights, sequences->weights,
                       tensor_1d(sequences->place + sequences->first, I32, sequences->rows), 1);
}

void whole_sequences_close(struct whole_sequences *sequences)
{
    if (sequences->place == NULL) return;
    device_free(sequences->cp->tp->device, sequences->experts),
        device_free(sequences->cp->tp->device, sequences->weights);
    free(sequences->place);
}
