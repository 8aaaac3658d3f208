/* bubble.c -- computes the bubbles of pipeline schedules that papers printed (schemes/pipeline/published.h).
 * quantities.c lists the quantity of this file by name; cli/bench/ asks for them.  ERR_PLAN: a schedule does not take
 * the setting; ERR_USAGE: the claim's words are wrong; ERR_MEMORY. */
#include "emulated_devices/bench/claims/quantity.h"

enum error_code claim_bubble(const struct claim *claim, struct published_setting *setting, const char **schedule,
                             bool *formula, struct error *err)
{
    static const double LONGEST = 1e9;
    uint64_t forward = 0, backward_input = 0, backward_weight = 0, communication = 0;
    *setting = (struct published_setting){ .v = 1 };
    *schedule = NULL, *formula = false;
    const struct option table[] = {
        { "--pp", "P", OPTION_INT, &setting->P, .min = 1, .max = 4096, .required = true, .help = "devices" },
        { "--micro", "M", OPTION_INT, &setting->M, .min = 1, .max = 65536, .required = true, .help = "microbatches" },
        { "--F", "US", OPTION_UINT64, &forward, .min = 1, .max = LONGEST, .required = true, .help = "forward" },
        { "--I", "US", OPTION_UINT64, &backward_input, .min = 1, .max = LONGEST, .required = true, .help = "input" },
        { "--W", "US", OPTION_UINT64, &backward_weight, .min = 1, .max = LONGEST, .required = true, .help = "weights" },
        { "--comm", "US", OPTION_UINT64, &communication, .max = LONGEST, .required = true, .help = "a message" },
        { "--chunks", "V", OPTION_INT, &setting->v, .min = 1, .max = 64, .help = "of the interleaved schedule" },
        { "--heads", "H", OPTION_INT, &setting->heads, .min = 1, .max = 65536, .required = true, .help = "heads" },
        { "--width", "D", OPTION_INT, &setting->width, .min = 1, .max = 1 << 20, .required = true, .help = "width" },
        { "--schedule", "NAME", OPTION_STRING, schedule, .required = true, .help = "its name" },
        { "--by", "WAY", OPTION_CHOICE, &(const char *){ NULL }, .choices = (const char *const[]){ "formula", NULL },
          .given = formula, .help = "by the closed form that was printed" },
        { 0 }
    };
    const enum error_code e = claim_take(claim, table, err);
    setting->f = (int64_t)forward, setting->i = (int64_t)backward_input, setting->w = (int64_t)backward_weight;
    setting->comm = (int64_t)communication;
    return e;
}

enum error_code quantity_bubble(struct claim *claim, const struct claims_setting *setting, struct error *err)
{
    struct published_setting published;
    const char *schedule;
    bool formula;
    (void)setting;
    enum error_code e = claim_bubble(claim, &published, &schedule, &formula, err);
    if (!e && formula) claim->ours = published_interleaved_formula(&published);
    else if (!e) e = published_bubble(&published, schedule, &claim->ours, err);
    if (!e) claim->ours = published_digits(claim->ours);
    return e;
}
