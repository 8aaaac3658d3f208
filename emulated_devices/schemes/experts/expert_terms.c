/* expert_terms.c -- products of experts whose terms lie on several devices, with exact sums: terms.c of
 * schemes/tensor/ for one expert after the other, with one message for all.
 *
 * Sends    forward          an all-reduce: maxima of R rows and of D rows of each expert's second matrix; then [R, D]
 *                           of 16 bytes
 *          backward input   maxima of R rows and of D columns of each expert's first matrix; then [R, D] of 16 bytes
 *          backward weight  maxima of R rows, for each of both matrices
 * Errors   ERR_MEMORY without room for sums, and ERR_COMM; the step cannot go on then.
 *
 * model/run/run_experts.c makes the calls where a device computes exactly; all are collective over the group.
 */
#include "emulated_devices/schemes/experts/expert_terms.h"
#include "emulated_devices/device/compute.h"
#include "ref/model/config.h"

/* The largest sizes of rows, then of `each` rows or columns of every expert's matrix. */
struct expert_tops { struct tensor all, rows; int64_t each; };

static struct tensor top_numbers(struct tensor t, int64_t first, int64_t count)
{
    return tensor_1d((char *)t.data + (size_t)first * dtype_size(t.dtype), t.dtype, count);
}

static struct tensor expert_tops_of(const struct expert_terms *terms, const struct expert_tops *tops, int64_t expert)
{
    return top_numbers(tops->all, terms->rows + (expert - terms->experts.first) * tops->each, tops->each);
}

/* Rows beyond those that X has, and experts without rows, have tops of 0. */
static enum error_code expert_tops_begin(const struct expert_terms *terms, struct expert_tops *tops, struct tensor X,
                                  int64_t each, struct error *err)
{
    const int64_t count = terms->rows + terms->experts.count * each;
    const struct tensor all = device_statistics(terms->device, BUFFERS, count, 1);
    *tops = (struct expert_tops){ .all = tensor_1d(all.data, all.dtype, count), .each = each };
    if (all.data == NULL) return fail(err, ERR_MEMORY, "no memory for the largest sizes of %lld rows",
                                      (long long)count);
    device_zero(terms->device, tops->all);
    tops->rows = top_numbers(tops->all, 0, tensor_rows(X));
    dev_row_tops(terms->device, tops->rows, X);
    return OK;
}

static enum error_code expert_tops_agree(const struct expert_terms *terms, const struct expert_tops *tops,
                                         struct error *err)
{
    return allreduce(terms->group, tops->all.data, tensor_count(tops->all), tops->all.dtype, MAX, terms->allreduce,
                     err);
}

/* The experts that have rows here, one after the other: the rows of each. */
static bool next_expert(const struct expert_terms *terms, int64_t *expert, struct interval *rows)
{
    const int64_t end = interval_end(terms->experts);
    *expert = *expert < terms->experts.first ? terms->experts.first : *expert + 1;
    while (*expert < end && terms->counts[*expert] == 0) ++*expert;
    if (*expert < end) *rows = (struct interval){ interval_end(*rows), terms->counts[*expert] };
    return *expert < end;
}

static struct tensor rows_at(struct tensor t, struct interval rows)
{
    return tensor_rows_of(t, rows.first, rows.count);
}

/* Zeroed memory for the sums of all rows, of width D. */
static enum error_code expert_sums_make(const struct expert_terms *terms, struct tensor *sums, int64_t D,
                                        struct error *err)
{
    *sums = device_tensor_in(terms->device, BUFFERS, EXACT, terms->rows * D);
    *sums = tensor_2d(sums->data, EXACT, terms->rows, D);
    if (sums->data == NULL) return fail(err, ERR_MEMORY, "no memory for partial sums of %lld rows of experts",
                                        (long long)terms->rows);
    device_zero(terms->device, *sums);
    return OK;
}

/* Y = the sums of all devices, rounded once; 0 where another device counts them. */
static enum error_code expert_sums_finish(const struct expert_terms *terms, struct tensor Y, struct tensor sums,
                                   struct error *err)
{
    const enum error_code e = allreduce(terms->group, sums.data, tensor_count(sums), EXACT, SUM, terms->allreduce, err);
    if (e) return e;
    if (terms->clears) device_zero(terms->device, Y);
    else dev_round(terms->device, Y, tensor_rows_of(sums, 0, tensor_rows(Y)));
    return OK;
}

static void expert_terms_drop(const struct expert_terms *terms, const struct expert_tops *tops, struct tensor sums)
{
    if (sums.data) device_free(terms->device, sums);
    if (tops->all.data) device_free(terms->device, tops->all);
}

enum error_code expert_terms_forward(const struct expert_terms *terms, const struct expert_matrix *list,
                                     struct tensor Y, struct tensor X, struct error *err)
{
    struct device *const d = terms->device;
    struct expert_tops tops;
    struct tensor sums = tensor_none;
    enum error_code e = expert_tops_begin(terms, &tops, X, tensor_cols(Y), err);
    struct interval rows = { 0 };
    for (int64_t x = -1; !e && next_expert(terms, &x, &rows);)
        dev_row_tops(d, expert_tops_of(terms, &tops, x), list[x].W);
    if (!e) e = expert_tops_agree(terms, &tops, err);
    if (!e) e = expert_sums_make(terms, &sums, tensor_cols(Y), err);
    rows = (struct interval){ 0 };
    /* sums [R, D] = the terms of this device's columns of X and of each matrix. */
    for (int64_t x = -1; !e && next_expert(terms, &x, &rows);)
        dev_linear_forward_part(d, rows_at(sums, rows), rows_at(X, rows),
                                top_numbers(tops.rows, rows.first, rows.count), list[x].W,
                                expert_tops_of(terms, &tops, x), list[x].b);
    if (!e) e = expert_sums_finish(terms, Y, sums, err);
    expert_terms_drop(terms, &tops, sums);
    return e;
}

enum error_code expert_terms_input(const struct expert_terms *terms, const struct expert_matrix *list,
                                   struct tensor dX, struct tensor dY, struct error *err)
{
    struct device *const d = terms->device;
    struct expert_tops tops;
    struct tensor sums = tensor_none;
    enum error_code e = expert_tops_begin(terms, &tops, dY, tensor_cols(dX), err);
    struct interval rows = { 0 };
    for (int64_t x = -1; !e && next_expert(terms, &x, &rows);)
        dev_column_tops(d, expert_tops_of(terms, &tops, x), list[x].W);
    if (!e) e = expert_tops_agree(terms, &tops, err);
    if (!e) e = expert_sums_make(terms, &sums, tensor_cols(dX), err);
    rows = (struct interval){ 0 };
    /* sums [R, D] = the terms of this device's columns of dY and rows of each matrix. */
    for (int64_t x = -1; !e && next_expert(terms, &x, &rows);)
        dev_linear_backward_input_part(d, rows_at(sums, rows), rows_at(dY, rows),
                                       top_numbers(tops.rows, rows.first, rows.count), list[x].W,
                                       expert_tops_of(terms, &tops, x));
    if (!e) e = expert_sums_finish(terms, dX, sums, err);
    expert_terms_drop(terms, &tops, sums);
    return e;
}

enum error_code expert_terms_weight(const struct expert_terms *terms, const struct expert_matrix *list, bool cuts_dY,
                                    struct tensor dY, struct tensor X, struct error *err)
{
    struct expert_tops tops;
    enum error_code e = expert_tops_begin(terms, &tops, cuts_dY ? dY : X, 0, err);
    struct interval rows = { 0 };
    if (!e) e = expert_tops_agree(terms, &tops, err);
    for (int64_t x = -1; !e && next_expert(terms, &x, &rows);) {
        const struct tensor top = top_numbers(tops.rows, rows.first, rows.count);
        dev_linear_backward_weight_part(terms->device, list[x].W, list[x].b, rows_at(dY, rows),
                                        cuts_dY ? top : tensor_none, rows_at(X, rows), cuts_dY ? tensor_none : top);
    }
    expert_terms_drop(terms, &tops, tensor_none);
    return e;
}

void forecast_expert_terms(struct forecast *forecast, const struct group *group, int64_t experts, int64_t rows,
                           enum tensor_pass pass)
{
    const struct tensor_parallel *const tp = forecast->tp;
    const int64_t D = tp->config->D, matrices = pass == WEIGHT_PASS ? 0 : experts * D;
    const struct collective tops = { .count = rows + matrices, .dtype = dtype_wide(tp->device->dtype),
                                     .reduction = MAX },
                            sums = { .count = rows * D, .dtype = EXACT };
    if (!tp->device->exact || group->size == 1) return;
    forecast_on(forecast, group, ALLREDUCE, tp->allreduce, tops);
    /* Backward for the weights agrees on the rows of both matrices' operands, and adds nothing. */
    forecast_on(forecast, group, ALLREDUCE, tp->allreduce, pass == WEIGHT_PASS ? tops : sums);
}
