/* attention.c -- a number of an attention scheme over that of another one, counted in jobs of devices.  quantities.c
 * lists the quantity of this file by name; cli/bench/ asks for them.  ERR_PLAN says which scheme does not accept the
 * devices; other errors are those of a job. */
#include "emulated_devices/bench/claims/quantity.h"
#include "emulated_devices/bench/schemes/attention.h"
#include <stdio.h>
#include <string.h>

/* The two schemes of a claim. */
struct pair {
    struct attention_job first, other;
    const char *count;
};

static const struct { const char *word; int count; } counts[] = {
    { "time", COUNT_TIME }, { "forward", COUNT_FORWARD }, { "bytes", COUNT_BYTES },
};

static enum error_code take_pair(const struct claim *claim, struct pair *pair, struct error *err)
{
    static const char *const words[] = { "time", "forward", "bytes", NULL };
    struct attention_job *first = &pair->first, *other = &pair->other;
    int sequence = 0, over_sequence = 0, heads = 0, kv_heads = 0, head_width = 0;
    const char *own = NULL;
    *pair = (struct pair){ .count = NULL };
    const struct option table[] = {
        { "--scheme", "NAME", OPTION_STRING, &first->scheme, .required = true, .help = "" },
        { "--devices", "N", OPTION_INT, &first->P, .min = 1, .max = BENCH_ATTENTION_DEVICES, .required = true,
          .help = "" },
        { "--node", "N", OPTION_INT, &first->node, .min = 0, .max = 4096, .required = true, .help = "" },
        { "--seq", "S", OPTION_INT, &sequence, .min = 1, .max = 1 << 20, .required = true, .help = "" },
        { "--head-parallel", "N", OPTION_INT, &first->split.heads, .min = 1, .max = 4096, .help = "" },
        { "--ring-window", "W", OPTION_INT, &first->split.window, .min = 1, .max = 4096, .help = "" },
        { "--over", "NAME", OPTION_STRING, &other->scheme, .required = true, .help = "" },
        { "--over-devices", "N", OPTION_INT, &other->P, .min = 1, .max = BENCH_ATTENTION_DEVICES, .required = true,
          .help = "" },
        { "--over-seq", "S", OPTION_INT, &over_sequence, .min = 1, .max = 1 << 20, .required = true, .help = "" },
        { "--heads", "H", OPTION_INT, &heads, .min = 1, .max = 1024, .required = true, .help = "" },
        { "--kv-heads", "K", OPTION_INT, &kv_heads, .min = 1, .max = 1024, .required = true, .help = "" },
        { "--head-width", "A", OPTION_INT, &head_width, .min = 2, .max = 1024, .required = true, .help = "" },
        { "--count", "WHAT", OPTION_CHOICE, &pair->count, .choices = words, .required = true, .help = "" },
        { "--cluster", "NAME", OPTION_STRING, &first->cluster, .required = true, .help = "" },
        { "--on", "NAME", OPTION_STRING, &own, .help = "" },
        { 0 }
    };
    const enum error_code e = claim_take(claim, table, err);
    first->B = other->B = 1, first->H = other->H = heads, first->K = other->K = kv_heads;
    first->A = other->A = head_width, first->S = sequence, other->S = over_sequence;
    first->dtype = other->dtype = BF16;
    if (own) first->cluster = own;
    other->node = first->node, other->cluster = first->cluster;
    return e;
}

static enum error_code attention_run_claim(const struct attention_job *job, const struct claims_setting *setting,
                                           int count, double *number, struct error *err)
{
    static struct attention_rows rows;
    const enum error_code e = attention_job_run(&rows, job, setting->program, setting->status, err);
    if (!e && *setting->status == 0 && rows.used == 0)
        return fail(err, ERR_PLAN, "%s does not accept %d devices", job->scheme, job->P);
    if (!e && *setting->status == 0) *number = rows.row[0].count[count];
    return e;
}

enum error_code quantity_attention_ratio(struct claim *claim, const struct claims_setting *setting, struct error *err)
{
    struct pair pair;
    double first = 0, other = 0;
    int count = COUNT_TIME;
    enum error_code e = take_pair(claim, &pair, err);
    if (e) return e;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (strcmp(counts[i].word, pair.count) == 0) count = counts[i].count;
    const struct attention_job *job = &pair.first;
    const char *const on = claim_word(claim, "--on");
    snprintf(claim->what, sizeof claim->what, "%s, %s: P %d, node %d, S %d, K %d: %s%s%s", job->scheme,
             pair.other.scheme, job->P, job->node, (int)job->S, (int)job->K, pair.count, on[0] ? ", " : "", on);
    e = attention_run_claim(job, setting, count, &first, err);
    if (!e && *setting->status == 0) e = attention_run_claim(&pair.other, setting, count, &other, err);
    claim->ours = other / first;
    return e;
}
