/* adapter.c -- gradients of low-rank adapters, and what the way through A and B does to the rounding of a product.
 *
 * The program computes Y = X W^T + s (X A^T) B^T, where ours is Y = X (W + s B A)^T.  With dW = dY^T X of the whole
 * weight, dA = s B^T dW and dB = s dW A^T (Hu et al., arXiv:2106.09685).  The program never makes dW: it makes dY B and
 * X A^T first, whose sums have other lengths, so bounds are of both ways.
 * walk.c asks for the gradients behind that of the weight; matrix.c widens its products.  Nothing is an error but
 * reading and memory.
 */
#include "emulated_devices/check/dump/adapters.h"
#include "emulated_devices/check/recompute/products.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An adapter of the parameter whose results are made, and its factors. */
struct adapting { const struct adapter *of; int64_t cols; struct tensor A, B; };

/* The adapters are few for each weight; a list of all of them is walked. */
static const struct adapter *adapter_next(const struct single *single, int param, const struct adapter *last)
{
    const struct adapters *const list = single->context->source.adapters;
    const struct param_spec spec = single_spec(single, param);
    for (int i = last ? (int)(last - list->all) + 1 : 0; list && i < list->count; i++)
        if (strcmp(list->all[i].of, spec.name) == 0) return &list->all[i];
    return NULL;
}

static struct adapting adapting_of(struct single *single, const struct adapter *of, int64_t cols)
{
    struct adapting a = { .of = of, .cols = cols };
    a.A = single_input(single, single_name("start/", adapter_name(of, 'A').text), of->rank, cols);
    a.B = single_input(single, single_name("start/", adapter_name(of, 'B').text), of->rows.count, of->rank);
    return a;
}

/* ---- products with the weight ------------------------------------------------------------------------------------ */

/* Compute what adapters add to some rows of a weight, s B A, or its sizes |s| |B| |A|.  tensor_none: the weight has
 * none. */
static struct tensor adapter_added(struct single *single, int param, struct single_block block, int64_t cols,
                                   bool sizes_only)
{
    struct tensor sizes = tensor_none;
    for (const struct adapter *of = NULL; (of = adapter_next(single, param, of)) != NULL && single_going(single);) {
        const struct adapting a = adapting_of(single, of, cols);
        if (!single_going(single)) break;
        if (!tensor_present(sizes)) sizes = single_new(single, block.rows, cols);
        for (int64_t row = 0; row < block.rows && !single->failed; row++) {
            const int64_t at = block.first + row - of->rows.first;
            for (int64_t r = 0; at >= 0 && at < of->rows.count && r < of->rank; r++)
                for (int64_t c = 0; c < cols; c++) {
                    const double x = of->scaling * numbers(a.B)[at * of->rank + r] * numbers(a.A)[r * cols + c];
                    numbers(sizes)[row * cols + c] += sizes_only ? fabs(x) : x;
                }
        }
    }
    return sizes;
}

/* The products with A and with B are sums by themselves, stored, scaled and added: as many roundings. */
enum { ADAPTER_ROUNDINGS = 6 };

struct tensor single_adapter_off(struct single *single, int param, struct single_block block, struct tensor with,
                                 bool for_input)
{
    const struct param_spec spec = single_spec(single, param);
    /* Without A or B the weight is the golden file's, and no product goes through them. */
    const struct single_reading outer = single_read_anew(single);
    const struct tensor sizes = adapter_added(single, param, block, spec.dim[1], true);
    const bool there = tensor_present(sizes) && single_going(single);
    single->reading = outer;
    if (!there) return tensor_none;
    const int64_t n = tensor_rows(with), in = spec.dim[1], out = block.rows;
    const struct tensor off = single_new(single, n, for_input ? in : out), size = single_new(single, n,
                                                                                              tensor_cols(with));
    if (single->failed) return tensor_none;
    for (int64_t i = 0; i < tensor_count(with); i++) numbers(size)[i] = fabs(numbers(with)[i]);
    if (for_input) single->context->ops->linear_backward_input_columns(off, size, 0, sizes, true);
    else single->context->ops->linear_forward_add(off, size, sizes);
    const double u = ADAPTER_ROUNDINGS * single->rounding.store + rounding_of_sum(single->rounding.sum, in + out);
    for (int64_t i = 0; i < tensor_count(off); i++) numbers(off)[i] *= u;
    return off;
}

struct tensor single_adapter_part(struct single *single, const struct single_node *node, bool for_input,
                                  const struct adapter **of)
{
    *of = node->weight < 0 ? NULL : adapter_next(single, node->weight, NULL);
    if (*of == NULL) return tensor_none;
    const struct param_spec spec = single_spec(single, node->weight);
    const struct single_reading outer = single_read_anew(single);
    const struct tensor with = for_input ? single_grad(single, node->out) : single_act(single, node->in[0]);
    const struct tensor added =
        adapter_added(single, node->weight, (struct single_block){ 0, spec.dim[0] }, spec.dim[1], false);
    const bool there = single_going(single) && tensor_present(added);
    single->reading = outer;
    if (!there) return tensor_none;
    const struct tensor part = single_new(single, tensor_rows(with), spec.dim[for_input]);
    if (single->failed) return tensor_none;
    if (for_input) single->context->ops->linear_backward_input_columns(part, with, 0, added, true);
    else single->context->ops->linear_forward_add(part, with, added);
    return part;
}

/* ---- gradients of A and B ---------------------------------------------------------------------------------------- */

/* Make dA = s B^T dW, or dB = s dW A^T, from dW and its bounds.  dW: the gradient of the whole weight. */
static struct single_value factor_gradient(struct single *single, const struct adapting *a, char which,
                                            struct single_value dW)
{
    const int64_t rank = a->of->rank, rows = a->of->rows.count, cols = a->cols;
    const struct single_value v = single_value_new(single, which == 'A' ? rank : rows, which == 'A' ? cols : rank);
    /* A bound of dW is that of a sum over tokens; the program's sums over rows, or columns, are on the way. */
    const int64_t other = which == 'A' ? rows : cols;
    const double longer = 1 + rounding_of_sum(single->rounding.sum, other) /
                              rounding_of_sum(single->rounding.sum, single->cursor.N),
                 absolute = 1 / rounding_of_sum(single->rounding.sum, single->cursor.N);
    for (int64_t o = 0; o < rows && !single->failed; o++)
        for (int64_t i = 0; i < cols; i++)
            for (int64_t r = 0; r < rank; r++) {
                const int64_t of = (a->of->rows.first + o) * cols + i, to = which == 'A' ? r * cols + i : o * rank + r;
                const double factor = a->of->scaling * (which == 'A' ? numbers(a->B)[o * rank + r]
                                                                     : numbers(a->A)[r * cols + i]),
                             once = numbers(dW.fused)[of] * longer;
                numbers(v.y)[to] += factor * numbers(dW.y)[of];
                numbers(v.fused)[to] += fabs(factor) * once;
                numbers(v.steps)[to] += fabs(factor) * (fmax(once, numbers(dW.steps)[of]) + ADAPTER_ROUNDINGS *
                                                        single->rounding.store * absolute * numbers(dW.fused)[of]);
            }
    for (int64_t i = 0; i < tensor_count(v.y) && !single->failed; i++)
        numbers(v.fused)[i] += ADAPTER_ROUNDINGS * single->rounding.sum * fabs(numbers(v.y)[i]),
            numbers(v.steps)[i] += ADAPTER_ROUNDINGS * single->rounding.store * fabs(numbers(v.y)[i]);
    return v;
}

static void check_gradient_of(struct single *single, const struct adapter *of, char which, int v, int param)
{
    static const char *const words[] = { "the backward pass of an adapter for A", "the backward pass of an adapter "
                                         "for B" };
    const struct param_spec spec = single_spec(single, param);
    const struct single_name name = single_name("grad/", adapter_name(of, which).text);
    const int64_t rows = which == 'A' ? of->rank : of->rows.count, cols = which == 'A' ? spec.dim[1] : of->rank;
    if (!single_wanted(single, name) || !single_begin(single, name, words[which == 'B'], rows, cols)) return;
    const struct adapting a = adapting_of(single, of, spec.dim[1]);
    const struct single_value dW = single_going(single) ? single_gradient_of_param(single, v, param)
                                                        : single_stop(single);
    single->verdict.terms = 0;          /* the summands are those of dW */
    single_end(single, dW.status == SINGLE_DONE && single_going(single) ? factor_gradient(single, &a, which, dW)
               : dW.status == SINGLE_DONE ? single_stop(single) : dW);
}

void single_check_adapters(struct single *single, int v, int param)
{
    for (const struct adapter *of = NULL; (of = adapter_next(single, param, of)) != NULL && !single->failed;)
        for (const char *which = "BA"; *which && !single->failed; which++)
            check_gradient_of(single, of, *which, v, param);
}

/* ---- what is stepped --------------------------------------------------------------------------------------------- */

/* Add the parameter that A or B of an adapter is. */
static void stepped_add(struct single_params *stepped, const struct adapter *of, char which, int64_t in)
{
    struct param_spec *const spec = &stepped->spec[stepped->count++];
    *spec = (struct param_spec){ .expert = -1, .ndim = 2, .decay = true,
                                 .dim = { which == 'A' ? of->rank : of->rows.count, which == 'A' ? in : of->rank } };
    snprintf(spec->name, sizeof spec->name, "%s", adapter_name(of, which).text);
}

enum error_code single_params_adapted(struct single_params *stepped, const struct single_params *all,
                                      const struct adapters *adapters, struct error *err)
{
    const size_t most = (size_t)(2 * adapters->count + all->count) + 1;
    *stepped = (struct single_params){ .spec = malloc(most * sizeof *stepped->spec),
                                       .by_name = malloc(most * sizeof *stepped->by_name) };
    if (stepped->spec == NULL || stepped->by_name == NULL) {
        single_params_free(stepped);
        return fail(err, ERR_MEMORY, "no memory for the parameters of %d adapters", adapters->count);
    }
    for (int i = 0; i < all->count; i++)
        if (!adapters_freeze(adapters, all->spec[i].name)) stepped->spec[stepped->count++] = all->spec[i];
    for (int i = 0; i < 2 * adapters->count; i++) {
        const struct adapter *const a = &adapters->all[i / 2];
        const int of = single_params_find(all, a->of);
        if (of >= 0) stepped_add(stepped, a, i % 2 ? 'B' : 'A', all->spec[of].dim[1]);
    }
    single_params_sort(stepped);
    return OK;
}
