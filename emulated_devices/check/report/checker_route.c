/* checker_route.c -- whether a program's tokens surely go to the same experts as in a golden file.
 *
 * In 16 bits rounding may send a token to another expert.  All later values then belong to another function, so they
 * cannot be judged.
 * checker.c asks it for each router of a mixture, if the format has 16 bits.  ERR_CHECK of the assembly is no error
 * here: the comparison reports the shape.
 */
#include "emulated_devices/check/report/checker.h"
#include "ref/golden/golden.h"
#include "ref/model/kinds.h"
#include "ref/ops/ops.h"
#include <stdio.h>
#include <stdlib.h>

/* Whether the logits a of the program surely make the choices of the golden logits b.  Logits that leave a choice
 * open count as another choice: the program may have taken the other expert. */
static bool same_choice(const double *a, const double *b, const int64_t dim[2], const struct mixture_config *config,
                        const double *bias, int32_t *chosen, double *weights)
{
    const struct ops *op = ops_for(F64);
    const double *const of[] = { a, b };
    const int64_t k = config->k, n = dim[0] * k;
    for (int i = 0; i < 2; i++)
        op->route_forward(tensor_2d(weights, F64, dim[0], k), tensor_2d(chosen + i * n, I32, dim[0], k),
                          tensor_2d((void *)(uintptr_t)of[i], F64, dim[0], dim[1]), &config->router, bias);
    for (int64_t i = 0; i < n; i++)
        if (chosen[i] != chosen[n + i]) return false;
    for (int64_t row = 0; row < dim[0]; row++)
        if (choice_is_open(a + row * dim[1], dim[1], chosen + row * k, k)) return false;
    return true;
}

enum error_code checker_same_route(const struct golden *golden, const struct actual *actual, int layer, bool *same,
                                   struct error *err)
{
    char name[64];
    snprintf(name, sizeof name, "act/h.%d.router.logits", layer);
    const struct safetensors_entry *entry = safetensors_find(&golden->file, name);
    struct assembly all;
    *same = true;
    if (entry == NULL || entry->ndim != 2) return OK;
    const int64_t dim[2] = { entry->dim[0], entry->dim[1] }, k = golden->config.mixture.k;
    const int64_t columns = mixture_columns(&golden->config.mixture);
    const bool biased = golden->config.mixture.router.biased;
    double *want = malloc((size_t)(2 * entry->count + dim[0] * k) * sizeof *want);
    double *const got = want ? want + entry->count : NULL;
    double *biases = calloc((size_t)(golden->config.L * columns) + 1, sizeof *biases);
    int32_t *chosen = malloc((size_t)(2 * dim[0] * k) * sizeof *chosen);
    enum error_code e = want && biases && chosen ? OK : fail(err, ERR_MEMORY, "no memory to compare %s", name);
    if (!e && biased) e = golden_read_biases(golden, biases, err);
    if (!e) e = golden_read(golden, name, F64, entry->count, want, err);
    /* Elements that no rank has keep the golden number. */
    for (int64_t i = 0; !e && i < entry->count; i++) got[i] = want[i];
    if (!e) e = assembly_make(&all, actual, name, dim, got, NULL, err);
    if (e == ERR_CHECK) e = OK;                         /* another shape: the comparison reports it */
    const double *const bias = biased ? biases + layer * columns : NULL;
    if (!e) *same = same_choice(got, want, dim, &golden->config.mixture, bias, chosen, got + entry->count);
    free(want), free(biases), free(chosen);
    return e;
}
