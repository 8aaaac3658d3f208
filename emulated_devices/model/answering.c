/* answering.c -- gives a stage the tokens of an iteration.  serve/engine.c calls.  The only error is ERR_MEMORY. */
#include "emulated_devices/model/answering.h"
#include "emulated_devices/model/stage.h"
#include <stdlib.h>
#include <string.h>

enum error_code answering_take(struct stage *stage, const int32_t *id, const int32_t *position, int64_t rows,
                               struct error *err)
{
    struct microbatch *const micro = &stage->micro[0];
    int32_t *const ints = malloc((size_t)(2 * rows + 1) * sizeof *ints);
    if (ints == NULL) return fail(err, ERR_MEMORY, "no memory for %lld tokens of requests", (long long)rows);
    memcpy(ints, id, (size_t)rows * sizeof *id);
    memcpy(ints + rows, position, (size_t)rows * sizeof *position);
    /* The first of a microbatch's integers is the memory of all of them. */
    free(micro->ids.data);
    micro->ids = tensor_1d(ints, I32, rows);
    micro->positions = tensor_1d(ints + rows, I32, rows);
    micro->labels = tensor_none;
    intervals_free(&micro->rows), intervals_free(&micro->tokens);
    intervals_add(&micro->rows, (struct interval){ 0, rows });
    micro->N = rows;
    return intervals_lost(&micro->rows) ? fail(err, ERR_MEMORY, "no memory for a list of rows") : OK;
}
