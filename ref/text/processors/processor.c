/* processor.c -- the list of processors, and how tokens go through them.  tokenizer.c calls these functions; a bool
 * says whether there was memory. */
#include "ref/text/processors/processor.h"

static const struct step_kind *const kinds[] = {
#define PROCESSOR(symbol) &processor_##symbol.step,
#include "ref/text/kinds.def"
    NULL
};

const struct step_room processor_room = { "post_processor", "processors", kinds };

enum error_code processors_check(const struct steps *steps, struct step_reading *reading)
{
    reading->part = processor_room.key, reading->kind = "Sequence";
    for (int i = 1; i < steps->count; i++) {
        const struct processor_kind *kind = (const struct processor_kind *)steps->step[i].kind;
        for (int before = 0; before < i; before++)
            if (kind->added && steps->step[before].kind == &processor_template.step)
                return step_refuse(reading, "a processor that adds tokens behind TemplateProcessing");
    }
    return OK;
}

bool processors_apply(const struct steps *steps, bool special, struct token_ids *ids, struct token_ids *spare)
{
    for (int i = 0; i < steps->count; i++) {
        const struct processor_kind *kind = (const struct processor_kind *)steps->step[i].kind;
        const struct token_ids before = *ids;
        spare->count = 0;
        if (!kind->apply(steps->step[i].state, &before, special, spare)) return false;
        *ids = *spare, *spare = before;
    }
    return true;
}

int64_t processors_added(const struct steps *steps)
{
    int64_t added = 0;
    for (int i = 0; i < steps->count; i++) {
        const struct processor_kind *kind = (const struct processor_kind *)steps->step[i].kind;
        if (kind->added) added += kind->added(steps->step[i].state);
    }
    return added;
}
