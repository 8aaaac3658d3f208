/* assembly_adapted.c -- puts a weight with adapters together: the frozen base, and scaling B A of each adapter.
 * assembly.c calls assembly_adapt for every tensor of a dump that has adapters.  Errors are those of assembly_make. */
#include "emulated_devices/check/dump/assembly_put.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Read A or B as it is at the same time as the weight: "adamw/1/weight/" stands before the names of both. */
static enum error_code read_factor(const struct assembling_weight *weight, const struct adapter *adapter, char which,
                                   const int64_t dim[2], double *out, struct assembly *all, struct error *err)
{
    char name[ACTUAL_NAME];
    const int before = (int)(weight->param - weight->name);
    snprintf(name, sizeof name, "%.*s%s", before, weight->name, adapter_name(adapter, which).text);
    return assembly_put(all, weight->actual, name, dim, out, NULL, err);
}

/* Add scaling B A to the rows of the weight that are asked for. */
static void adapted_add_product(const struct assembling_weight *weight, const struct adapter *adapter, const double *A,
                        const double *B)
{
    const int64_t cols = weight->dim[1];
    for (int64_t row = 0; row < weight->rows.count; row++) {
        const int64_t of = weight->rows.first + row - adapter->rows.first;
        for (int64_t r = 0; of >= 0 && of < adapter->rows.count && r < adapter->rank; r++) {
            const double b = adapter->scaling * B[of * adapter->rank + r];
            for (int64_t c = 0; c < cols; c++) weight->out[row * cols + c] += b * A[r * cols + c];
        }
    }
}

/* Add one adapter.  *there becomes false if the dump lacks A or B. */
static enum error_code add_adapter(const struct assembling_weight *weight, const struct adapter *adapter, bool *there,
                                   struct error *err)
{
    const int64_t dim_A[2] = { adapter->rank, weight->dim[1] }, dim_B[2] = { adapter->rows.count, adapter->rank };
    double *const A = malloc((size_t)(dim_A[0] * dim_A[1]) * sizeof *A + 1),
           *const B = malloc((size_t)(dim_B[0] * dim_B[1]) * sizeof *B + 1);
    struct assembly of_A = { 0 }, of_B = { 0 };
    enum error_code e = A && B ? OK : fail(err, ERR_MEMORY, "no memory for the adapter of %s", adapter->of);
    if (!e) e = read_factor(weight, adapter, 'A', dim_A, A, &of_A, err);
    if (!e) e = read_factor(weight, adapter, 'B', dim_B, B, &of_B, err);
    *there = !e && of_A.any && of_B.any && of_A.missing + of_B.missing == 0;
    if (*there) adapted_add_product(weight, adapter, A, B);
    free(A), free(B);
    return e;
}

/* A frozen weight that the dump lacks after a step is the one that the program has begun with. */
enum error_code assembly_adapt(struct assembly *out, const struct assembling_weight *weight,
                               const struct assembly_watch *watch, struct error *err)
{
    char start[ACTUAL_NAME];
    snprintf(start, sizeof start, "start/%s", weight->param);
    const struct adapters *const adapters = &weight->actual->adapters;
    enum error_code e = assembly_put(out, weight->actual, actual_has(weight->actual, weight->name) ? weight->name
                                     : start, weight->dim, weight->out, watch, err);
    for (int i = 0; i < adapters->count && !e && weight->out && out->any && out->missing == 0; i++) {
        bool there = true;
        if (strcmp(adapters->all[i].of, weight->param) != 0) continue;
        e = add_adapter(weight, &adapters->all[i], &there, err);
        if (!there) out->missing = weight->rows.count * weight->dim[1];
    }
    return e;
}

enum error_code assembly_base(struct assembly *out, const struct actual *actual, const char *ours,
                              const int64_t dim[2], double *whole, struct error *err)
{
    return assembly_put(out, actual, ours, dim, whole, NULL, err);
}
