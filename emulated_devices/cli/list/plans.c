/* plans.c -- what plans and their search take by name, for `orrery list`: planners, memory profiles, frameworks.
 * list.c has a row for each part.  Nothing here fails. */
#include "emulated_devices/cli/list/list.h"
#include "emulated_devices/plan/compose.h"
#include "emulated_devices/run/from/from.h"
#include "emulated_devices/search/likes.h"
#include "emulated_devices/search/planner.h"
#include "emulated_devices/train/memory_of/profile.h"
#include <stdio.h>

void list_frameworks(void)
{
    for (int i = 0; frameworks[i]; i++) {
        const struct framework *f = frameworks[i];
        char text[200];
        snprintf(text, sizeof text, "%s %s", f->title, f->release);
        list_entry(f->name, text);
        list_field("from %s", f->source);
    }
}

void list_planners(void)
{
    for (int i = 0; planner_at(i); i++) {
        const struct planner *p = planner_at(i);
        list_entry(p->name, p->description);
        if (p->solve) list_field("by layers; of its plan: %s", p->promise);
        else if (p->most > 0) list_field("plans the %d most promising; of its winner: %s", p->most, p->promise);
        else list_field("plans all; of its winner: %s", p->promise);
        list_field("from %s", p->source);
    }
}

void list_memory(void)
{
    for (int i = 0; memory_profile_at(i); i++) {
        const struct memory_profile *p = memory_profile_at(i);
        list_entry(p->name, p->title);
        list_field("prints %s", p->prints);
        list_field("from %s", p->source);
    }
}

/* The lists of each framework, as options of `orrery search` that limit it likewise. */
void list_likes(void)
{
    for (int i = 0; like_at(i); i++) {
        const struct like *l = like_at(i);
        char text[600];
        size_t used = 0;
        for (enum dimension d = BY_MESH; d < DIMENSION_COUNT; d++)
            if (l->only[d])
                used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %s", used ? " " : "",
                                         plan_space_flag(d), l->only[d]);
        list_entry(l->name, text);
        list_field("from %s", l->source);
    }
}

/* Under each feature, those that it cannot be combined with. */
void list_clashes(void)
{
    const struct clash *c, *before = NULL;
    for (int i = 0; (c = clash_at(i)) != NULL; before = c, i++) {
        char text[400];
        const bool first = before == NULL || before->one != c->one;
        clash_describe(c, text, sizeof text);
        if (first) list_entry(feature_name(c->one), "");
        list_field("%s", text);
    }
}
