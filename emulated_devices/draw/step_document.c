/* step_document.c -- the passes of a step for programs: `--json` of `orrery show data` and `memory`.
 *
 * cli/show/step.c calls; without an open document nothing is done.  No function returns an error code.
 */
#include "emulated_devices/draw/step.h"
#include "ref/io/document.h"
#include "ref/io/json.h"

/* Name the part of the model that a pass is about; reductions and updates have none. */
static void step_document_add_part(cJSON *row, const struct step_drawing *drawing, int part)
{
    const int64_t L = drawing->plan->model.L;
    if (part < 0) return;
    json_add(row, "part %s", part == 0 ? "embedding" : part > L ? "loss" : "layer");
    if (part > 0 && part <= L) json_add(row, "layer %d", part - 1);
}

/* Add the bytes that the device held, by kind of memory and in all. */
static void add_held(cJSON *row, const struct arena_use *held)
{
    cJSON *o = cJSON_AddObjectToObject(row, "held");
    for (enum arena_tag tag = 0; tag < ARENA_TAG_COUNT; tag++)
        cJSON_AddNumberToObject(o, arena_tag_name(tag), (double)held->tag[tag]);
    json_add(o, "total %g", (double)held->total);
}

void step_document(const struct step_drawing *drawing)
{
    const struct step_record *r = drawing->record;
    /* The table has a row for each line of the drawing, with times in microseconds. */
    if (!document_table("passes")) return;
    for (int i = 0; i < r->lines; i++) {
        const struct step_line *l = &r->line[i];
        cJSON *row = json_add(document_row(), "pass %s", step_pass_name(l->pass));
        step_document_add_part(row, drawing, l->part);
        json_add(row, "start_us %g end_us %g bytes_sent %g messages_sent %g", 1e-6 * (double)l->start,
                 1e-6 * (double)l->end, (double)l->bytes, (double)l->messages);
        add_held(row, &l->held);
    }
    json_add(document_data(), "device %d devices %d step_us %g", drawing->device, drawing->plan->mesh.devices,
             1e-6 * (double)r->end);
}
