/* memory_report.c -- the memory of a plan as a framework's program has it, as text and JSON.  run/plan.c and
 * plan_report.c call.  ERR_CHECK alone can come up: a device needs more than it has. */
#include "emulated_devices/run/report/memory_report.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include "ref/io/terminal.h"

static const struct memory_of *memory_fullest(const struct train_record *record)
{
    return &record->plan->memory[record->plan->fullest_of];
}

/* The first device of the class that needs most. */
static int memory_device(const struct train_record *record)
{
    return record->device[record->plan->fullest_of].rank;
}

static void memory_report_held(FILE *out, const struct memory_of *memory)
{
    const struct figure_scale scale = size_scale(memory->allocated);
    char when[160];
    say(out, 8, "        most is allocated in %s, in %s:", doing_describe(&memory->doing, when, sizeof when),
        scale.name);
    for (int kind = 0; kind < MEMORY_KIND_COUNT; kind++)
        if (memory->held[kind] > 0)
            fprintf(out, "        %9s  %s\n", scale_format(&scale, (double)memory->held[kind]).text,
                    memory_kind_name((enum memory_kind)kind));
}

static void memory_report_fit(const struct train_record *record, uint64_t has)
{
    const uint64_t needs = memory_of_total(memory_fullest(record));
    char margin[80];
    if (has == 0) return;
    if (needs > has) snprintf(margin, sizeof margin, "%s too much", size_format(needs - has).text);
    else snprintf(margin, sizeof margin, "%s to spare", size_format(has - needs).text);
    say(record->out, 8, "        %s: %s of %s, %s", needs <= has ? "fits" : "does NOT fit", size_format(needs).text,
        memory_format(has).text, margin);
}

void memory_report(const struct train_record *record, uint64_t has)
{
    const struct memory_of *m = memory_fullest(record);
    const struct memory_profile *p = record->plan->profile;
    say(record->out, 8, "memory  as %s has it, device %d: %s allocated, %s reserved", p->name,
        memory_device(record), size_format(m->allocated).text, size_format(m->reserved).text);
    say(record->out, 8, "        (%s)", p->title);
    say(record->out, 8, "        its programs print: %s", p->prints);
    say(record->out, 8, "        with %s for CUDA's context and %s for NCCL: %s in all", size_format(m->context).text,
        size_format(m->nccl).text, size_format(memory_of_total(m)).text);
    memory_report_fit(record, has);
    memory_report_held(record->out, m);
}

void memory_report_json(cJSON *to, const struct train_record *record)
{
    if (record->plan->profile == NULL) return;
    const struct memory_of *m = memory_fullest(record);
    char when[160];
    cJSON *o = cJSON_AddObjectToObject(to, "memory_of"), *held;
    json_add(o, "profile %s device %d allocated %g reserved %g context %g nccl %g total %g",
             record->plan->profile->name, memory_device(record), (double)m->allocated, (double)m->reserved,
             (double)m->context, (double)m->nccl, (double)memory_of_total(m));
    json_add(o, "when %s", doing_describe(&m->doing, when, sizeof when));
    held = cJSON_AddObjectToObject(o, "held");
    for (int kind = 0; kind < MEMORY_KIND_COUNT; kind++)
        cJSON_AddNumberToObject(held, memory_kind_name((enum memory_kind)kind), (double)m->held[kind]);
}

enum error_code memory_report_check(const struct train_record *record, uint64_t has, struct error *err)
{
    const uint64_t needs = memory_of_total(memory_fullest(record));
    if (has == 0 || needs <= has) return OK;
    return fail(err, ERR_CHECK, "--memory %s: device %d needs %s as %s has it, %s more", size_word(has).text,
                memory_device(record), size_format(needs).text, record->plan->profile->name,
                size_format(needs - has).text);
}
