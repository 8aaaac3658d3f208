#include "emulated_devices/collectives/algorithm.h"
#include <string.h>

void copy_elements(struct exchange *x, const struct collective *c, void *dst, const void *src, int64_t elements)
{
    if (dst == src || elements == 0) return;
    memmove(dst, src, bytes_of(c, elements));
    clock_compute(&x->group->comm->device->clock, elementwise_cost(elements, 2, 0, c->dtype));
}

int64_t block_first(const struct collective *c, int P, int b)
{
    int64_t first = 0;
    if (c->counts == NULL) return block_start(c->count, P, b);
    for (int i = 0; i < b; i++) first += c->counts[i];
    return first;
}

int64_t block_length(const struct collective *c, int P, int b)
{
    b = imod(b, P);
    return c->counts != NULL ? c->counts[b] : part_length(c->count, P, b);
}

int64_t block_longest(const struct collective *c, int P)
{
    int64_t longest = 0;
    for (int b = 0; b < P; b++)
        if (block_length(c, P, b) > longest) longest = block_length(c, P, b);
    return longest;
}

int64_t block_total(const struct collective *c, int P)
{
    return block_first(c, P, P);
}

enum error_code scratch_agreed(struct exchange *x, const struct collective *c, int64_t elements, void **scratch, struct error *err)
{
    enum error_code local = OK;
    *scratch = exchange_scratch(x, bytes_of(c, elements));
    if (*scratch == NULL)
        local = fail(err, ERR_MEMORY, "%s: device %d has no memory for %llu bytes of scratch", operation_name(x->operation),
                     x->group->comm->rank, (unsigned long long)bytes_of(c, elements));
    const enum error_code code = group_agree(x->group, local, err);
    if (code != OK) {
        exchange_release(x, *scratch);
        *scratch = NULL;
    }
    return code;
}
