/* published_zero_bubble.c -- bubbles of pipeline schedules (schemes/pipeline/published.h). */
#include "emulated_devices/cli/bench/published/published.h"
#include "emulated_devices/schemes/pipeline/published.h"
#include <stdio.h>

static enum error_code bubble_of(double *out, const struct published_setting *setting, enum published_schedule which,
                                 struct error *err)
{
    if (which == PUBLISHED_INTERLEAVED) *out = published_interleaved_formula(setting);
    return which == PUBLISHED_INTERLEAVED ? OK : published_bubble(setting, which, out, err);
}

enum error_code published_zero_bubble(struct published *published, struct error *err)
{
    enum error_code e = OK;
    published_section(published,
                      "Bubbles of pipelines: schedules through the timer, interleaved by the paper's formula",
                      "P. Qi et al., arXiv:2401.10241, table 5, from the times of table 6", "nothing",
                      "share of a step, four digits", false);
    for (int i = 0; i < PUBLISHED_SETTINGS && !e; i++)
        for (int which = 0; which < PUBLISHED_COLUMNS && !e; which++) {
            const struct published_setting *s = &published_settings[i];
            char what[80];
            double ours = 0;
            e = bubble_of(&ours, s, (enum published_schedule)which, err);
            snprintf(what, sizeof what, "%s, P %d, M %d: %s", s->model, s->P, s->M, published_schedule_name[which]);
            if (!e) published_row(published, what, s->bubble[which], published_digits(ours), 4);
        }
    published_end(published);
    return e;
}
