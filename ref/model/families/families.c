/* families.c -- lists the families of models, and finds the table of nodes of a model.  Files of ref/model/, model/,
 * check/, cli/ and other rooms call these functions.  No function returns an error code. */
#include "ref/model/families/families.h"
#include "ref/model/config.h"
#include <stdio.h>
#include <string.h>

const struct family *const families[] = {
#define FAMILY(name) &family_##name,
#include "ref/model/families/families.def"
#undef FAMILY
    NULL
};

struct families_text families_text(void)
{
    struct families_text all = { "" };
    for (int f = 0; families[f]; f++) {
        const char *before = f == 0 ? "" : families[f + 1] ? ", " : " and ";
        const size_t used = strlen(all.text);
        snprintf(all.text + used, sizeof all.text - used, "%s%s", before, families[f]->name);
    }
    return all;
}

bool model_set_streams(struct model_config *config, int64_t P)
{
    const bool several = P > 1;
    if (config->family->streamed == NULL) return !several;
    if (several != family_allows(config->family, HAS_STREAMS)) config->family = config->family->streamed;
    config->streams.P = P;
    if (!several) config->streams = (struct streams_config){ 0 };
    return true;
}

const struct program *model_program(const struct model_config *config)
{
    const struct program *p = config->family->program;
    while (!model_has(config, p->with)) p++;
    return p;
}
