/* published.c -- the bubble rate of a schedule in a printed setting.  bench/claims/bubble.c and cli/bench/schedules.c
 * call these functions.  Errors are those of a schedule: ERR_PLAN, ERR_MEMORY. */
#include "emulated_devices/schemes/pipeline/published.h"
#include "emulated_devices/schemes/pipeline/timing.h"
#include <math.h>
#include <string.h>

/* Sequences of the paper have 1024 tokens in all twelve settings. */
enum { TOKENS = 1024 };

/* Memory of a microbatch for each token and unit of width (V. Korthikanti et al., arXiv:2205.05198): a forward keeps
 * 34 + 5 a s / h bytes; W needs 32 of them, the linear layers' inputs and output gradients.  In units of 1/width
 * byte. */
struct schedule_request published_request(const struct published_setting *setting, const char *schedule)
{
    return (struct schedule_request){
        .devices = setting->P, .micros = setting->M, .chunks = strcmp(schedule, "interleaved") == 0 ? setting->v : 0,
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

enum error_code published_bubble(const struct published_setting *setting, const char *schedule, double *bubble,
                                 struct error *err)
{
    struct schedule s;
    const struct schedule_request q = published_request(setting, schedule);
    enum error_code e = schedule_make(&s, schedule, &q, err);
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
