/* probes_rows.c -- keeps the rows that this device computes of a mixture's experts, for dumps.
 *
 * The trainer calls probes_see_sorted through the probe that probes.c opens; probes.c forgets the rows of the step
 * before.  verify/dump/dump_experts.c reads them.  Without memory sorted_room is -1, which becomes ERR_MEMORY there.
 */
#include "emulated_devices/verify/reference/probes_rows.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One more entry; NULL without memory, which sorted_room then says. */
static struct kept_rows *probes_more_rows(struct probes *probes)
{
    if (probes->sorted_room < 0) return NULL;
    if (probes->sorted_count == probes->sorted_room) {
        const int room = probes->sorted_room ? 2 * probes->sorted_room : 64;
        struct kept_rows *more = realloc(probes->sorted, (size_t)room * sizeof *more);
        probes->sorted_room = more ? room : -1;
        if (more == NULL) return NULL;
        probes->sorted = more;
    }
    struct kept_rows *kept = &probes->sorted[probes->sorted_count++];
    *kept = (struct kept_rows){ .layer = 0 };
    return kept;
}

/* Copy the numbers, and say of each row whose it is. */
static bool probes_keep_rows(struct probes *probes, struct kept_rows *kept, const struct sorted_rows *rows)
{
    const int64_t n = tensor_rows(rows->t), E = probes->trainer->plan.model.mixture.E;
    const int devices = rows->summed && rows->summed->size > 1 ? rows->summed->size : 0;
    struct views v = views_of(probes->trainer->comm->device);
    kept->t = tensor_2d(malloc(tensor_bytes(rows->t) + 1), rows->t.dtype, n, tensor_cols(rows->t));
    if (kept->t.data) memcpy(kept->t.data, view_read(&v, rows->t).data, tensor_bytes(rows->t));
    views_end(&v);
    kept->expert = malloc((size_t)(n + 1) * sizeof *kept->expert);
    kept->row = malloc((size_t)(n + 1) * sizeof *kept->row);
    kept->device = malloc((size_t)(devices + 1) * sizeof *kept->device);
    if (!kept->t.data || !kept->expert || !kept->row || !kept->device) return false;
    for (int64_t e = 0, i = 0; e < E; e++)
        for (int64_t end = i + rows->counts[e]; i < end; i++) kept->expert[i] = (int32_t)e;
    memcpy(kept->row, rows->row, (size_t)n * sizeof *kept->row);
    for (int i = 0; i < devices; i++) kept->device[i] = rows->summed->member[i];
    kept->devices = devices;
    return true;
}

/* The trainer calls this with rows of experts. */
void probes_see_sorted(void *context, const struct sorted_rows *rows)
{
    struct probes *p = context;
    struct kept_rows *kept = tensor_rows(rows->t) > 0 ? probes_more_rows(p) : NULL;
    if (kept == NULL) return;
    snprintf(kept->name, sizeof kept->name, "%s", rows->name);
    kept->layer = rows->layer, kept->micro = rows->micro, kept->gradient = rows->gradient;
    kept->columns = rows->columns;
    if (!probes_keep_rows(p, kept, rows)) p->sorted_room = -1;
}

void probes_forget_rows(struct probes *probes)
{
    for (int i = 0; i < probes->sorted_count; i++) {
        const struct kept_rows *const kept = &probes->sorted[i];
        free(kept->t.data), free(kept->expert), free(kept->row), free(kept->device);
    }
    free(probes->sorted);
    probes->sorted = NULL, probes->sorted_count = probes->sorted_room = 0;
}
