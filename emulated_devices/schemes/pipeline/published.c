/* published.c -- twelve settings (four models, three numbers of microbatches), six schedules; every printed digit.
 *
 * cli/bench/schedules.c and cli/bench/published/zero_bubble.c print these rates beside ours; test_schedule_tables.c
 * compares both.  A test that differs in a digit shows an error in a schedule or in the timer.
 */
#include "emulated_devices/schemes/pipeline/published.h"
#include "emulated_devices/schemes/pipeline/timing.h"
#include <math.h>
#include <stdlib.h>

const char *const published_schedule_name[PUBLISHED_COLUMNS] = {
#define X(id, name) [id] = name,
    PUBLISHED_SCHEDULES(X)
#undef X
};

/* Sequences of the paper have 1024 tokens in all twelve settings. */
enum { TOKENS = 1024 };

/* Times in the paper are milliseconds with three decimals; this table has whole microseconds.  The columns are model,
 * P and M, then F, I, W and T_comm (table 6).  Chunks, heads and width (table 3) and six rates (table 5) follow. */
const struct published_setting published_settings[PUBLISHED_SETTINGS] = {
    { "1.5B",  8, 24,  18522, 18086,  9337, 601, 3, 24, 2304, { .2431, .1055, .1585, .1083, .1585, .0433 } },
    { "1.5B",  8, 32,  18513, 18086,  9331, 626, 3, 24, 2304, { .1985, .0818, .1242, .0837, .1242, .0039 } },
    { "1.5B",  8, 64,  18546, 18097,  9321, 762, 3, 24, 2304, { .1240, .0443, .0674, .0444, .0674, .0026 } },
    { "6.2B",  8, 24,  29718, 29444, 19927, 527, 4, 32, 4096, { .2347, .0808, .1323, .0698, .1323, .0029 } },
    { "6.2B",  8, 32,  29802, 29428, 19530, 577, 4, 32, 4096, { .1898, .0628, .1045, .0559, .1045, .0022 } },
    { "6.2B",  8, 64,  29935, 29621, 19388, 535, 4, 32, 4096, { .1091, .0320, .0554, .0294, .0554, .0010 } },
    { "14.6B", 16, 48,  11347, 11248, 8132, 377, 3, 40, 5120, { .2552, .1104, .1397, .0672, .1397, .0066 } },
    { "14.6B", 16, 64,  11307, 11254, 8101, 379, 3, 40, 5120, { .2082, .0852, .1088, .0516, .1088, .0054 } },
    { "14.6B", 16, 128, 11325, 11308, 8109, 378, 3, 40, 5120, { .1251, .0445, .0576, .0266, .0576, .0028 } },
    { "28.3B", 32, 96,  10419, 10207, 7715, 408, 2, 48, 6144, { .2646, .1493, .1421, .0641, .1421, .0038 } },
    { "28.3B", 32, 128, 10408, 10204, 7703, 408, 2, 48, 6144, { .2168, .1164, .1106, .0490, .1106, .0029 } },
    { "28.3B", 32, 256, 10402, 10248, 7698, 460, 2, 48, 6144, { .1352, .0624, .0594, .0257, .0594, .0018 } },
};

/* published_request sets the memory of a microbatch, for each token and unit of width, in units of 1/width byte.  A
 * forward keeps 34 + 5 a s / h bytes (V.  Korthikanti et al., arXiv:2205.05198).  W needs 32 of these bytes: the
 * linear layers' inputs and output gradients. */
struct schedule_request published_request(const struct published_setting *setting, enum published_schedule which)
{
    return (struct schedule_request){
        .devices = setting->P, .micros = setting->M, .chunks = which == PUBLISHED_INTERLEAVED ? setting->v : 0,
        .forward = setting->f, .backward_input = setting->i, .backward_weight = setting->w,
            .communication = setting->comm,
        .activation = 34 * setting->width + 5 * setting->heads * TOKENS, .kept_for_weight = 32 * setting->width,
    };
}

/* A chunk of the interleaved schedule takes 1/v of the times, a message the full time.  All times are multiplied by v,
 * so that they are integers. */
static enum error_code time_schedule(const struct published_setting *setting, const struct schedule *schedule,
                                     double *bubble, struct error *err)
{
    struct timing t;
    const struct even_times each = { setting->f, setting->i, setting->w, schedule->chunks * setting->comm, 0 };
    const enum error_code e = schedule_time_evenly(&t, schedule, each, err);
    if (e) return e;
    *bubble = t.bubble;
    timing_free(&t);
    return OK;
}

enum error_code published_bubble(const struct published_setting *setting, enum published_schedule which, double *bubble,
                                 struct error *err)
{
    struct schedule s;
    const struct schedule_request q = published_request(setting, which);
    enum error_code e = schedule_make(&s, published_schedule_name[which], &q, err);
    if (e) return e;
    e = schedule_validate(&s, err);
    if (!e) e = time_schedule(setting, &s, bubble, err);
    schedule_free(&s);
    return e;
}

double published_interleaved_formula(const struct published_setting *setting)
{
    /* cost = M (F + I + W) + (P - 1)(F + I + W) / v + (2 v P - P - 2) T_comm; bubble = 1 - M (F + I + W) / cost. */
    const double work = (double)(setting->f + setting->i + setting->w), v = setting->v;
    const double cost = setting->M * work + (setting->P - 1) * work / v + (2 * v * setting->P - setting->P - 2)
        * (double)setting->comm;
    return 1 - setting->M * work / cost;
}

double published_digits(double bubble) { return floor(bubble * 1e4 + 0.5) / 1e4; }
