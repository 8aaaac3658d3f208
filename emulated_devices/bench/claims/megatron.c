/* megatron.c -- times of training steps of Megatron-LM, by plan/megatron.h.  quantities.c lists the quantities of
 * this file by name; cli/bench/ asks for them.  ERR_USAGE: the claim's words are wrong; ERR_PLAN: the plan does not
 * fit; ERR_MEMORY. */
#include "emulated_devices/bench/claims/quantity.h"
#include <stdio.h>
#include <string.h>

enum { LARGEST = 1 << 24 };             /* of all sizes */
static const char *const recompute_words[] = { [MEGATRON_KEEPS_ALL] = "none", [MEGATRON_SELECTIVE] = "selective",
                                               [MEGATRON_FULL] = "full", NULL };

#define SIZE(flag, to, must) { flag, "N", OPTION_INT, &(to), .min = 1, .max = LARGEST, .required = must, .help = "" }

static void take_recompute(struct megatron *step, const char *word)
{
    for (int i = 0; recompute_words[i]; i++)
        if (strcmp(recompute_words[i], word) == 0) step->recompute = (enum megatron_recompute)i;
}

enum error_code claim_step(const struct claim *claim, struct claim_step *setting, struct error *err)
{
    struct megatron *step = &setting->step;
    const char *recompute = NULL, *cluster = NULL;
    int card_rate = 0;
    *step = (struct megatron){ .chunks = 1, .vocabulary = 51200, .scattered = true };
    const struct option table[] = {
        SIZE("--devices", step->devices, true), SIZE("--batch", step->batch, true), SIZE("--micro", step->micro, true),
        SIZE("--width", step->width, true), SIZE("--heads", step->heads, true), SIZE("--layers", step->layers, true),
        SIZE("--tokens", step->tokens, true), SIZE("--tp", step->tp, true), SIZE("--dp", step->dp, false),
        SIZE("--pp", step->pp, true), SIZE("--chunks", step->chunks, false),
        { "--recompute", "WHAT", OPTION_CHOICE, &recompute, .choices = recompute_words, .required = true, .help = "" },
        { "--sequence-parallel", "YES", OPTION_BOOL, &step->sequence_parallel, .help = "norms and dropout" },
        { "--cluster", "NAME", OPTION_STRING, &cluster, .required = true, .help = "where it was measured" },
        { "--card-rate", "MB/S", OPTION_INT, &card_rate, .min = 1, .max = 1e9, .help = "of its outermost links" },
        { 0 }
    };
    enum error_code e = claim_take(claim, table, err);
    if (e) return e;
    take_recompute(step, recompute);
    if (step->dp == 0) step->dp = step->devices / step->tp / step->pp;
    e = cluster_find(&setting->cluster, cluster, err);
    if (!e && card_rate > 0) setting->cluster.link[setting->cluster.levels - 1].rate = card_rate;
    return e;
}

/* ---- quantities -------------------------------------------------------------------------------------------------- */

static enum error_code seconds_of(double *out, const struct megatron *step, const struct cluster *cluster,
                                  struct error *err)
{
    struct schedule schedule;
    picoseconds time;
    enum error_code e = megatron_schedule(&schedule, step, err);
    if (e) return e;
    e = megatron_time(&time, step, &schedule, cluster, err);
    schedule_free(&schedule);
    *out = (double)time / 1e12;
    return e;
}

/* The sizes, and what the file says besides. */
static void name_step(struct claim *claim, const struct megatron *step)
{
    char more[CLAIM_TEXT + 4];
    snprintf(more, sizeof more, "%s%s", claim->what[0] ? ", " : "", claim->what);
    snprintf(claim->what, sizeof claim->what, "%.1fB on %d: tp %d pp %d dp %d v %d, %d of %d%.80s",
             megatron_parameters(step) / 1e9, step->devices, step->tp, step->pp, step->dp, step->chunks, step->micro,
             step->batch, more);
}

enum error_code quantity_step_seconds(struct claim *claim, const struct claims_setting *setting, struct error *err)
{
    struct claim_step read;
    (void)setting;
    enum error_code e = claim_step(claim, &read, err);
    if (e) return e;
    name_step(claim, &read.step);
    return seconds_of(&claim->ours, &read.step, &read.cluster, err);
}

enum error_code quantity_step_milliseconds(struct claim *claim, const struct claims_setting *setting, struct error *err)
{
    const enum error_code e = quantity_step_seconds(claim, setting, err);
    claim->ours *= 1e3;
    return e;
}
