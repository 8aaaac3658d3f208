/* utilization.c -- model FLOP utilization of a plan, by a dry run on all its devices.  quantities.c lists the
 * quantity of this file by name; cli/bench/ asks for them.  ERR_USAGE: the claim's words are wrong; ERR_PLAN: the
 * plan does not fit; ERR_MEMORY. */
#include "emulated_devices/bench/claims/quantity.h"
#include "emulated_devices/train/dry_run/dry_run.h"

/* The words of such a claim.  The time of kernels is that of the cluster's table. */
struct words {
    const char *model, *tensor, *attention, *schedule, *data, *cluster;
    int tp, pp, dp, cp, chunks, tokens, sequence;
};

static enum error_code take_words(const struct claim *claim, struct words *words, struct error *err)
{
    *words = (struct words){ .attention = attention_scheme_at(0)->head.name, .cp = 1 };
    const struct option table[] = {
        { "--model", "NAME", OPTION_STRING, &words->model, .required = true, .help = "a preset" },
        { "--tensor", "NAME", OPTION_STRING, &words->tensor, .required = true, .help = "the scheme" },
        { "--attention", "NAME", OPTION_STRING, &words->attention, .help = "the scheme along cp" },
        { "--schedule", "NAME", OPTION_STRING, &words->schedule, .required = true, .help = "of the pipeline" },
        { "--data", "NAME", OPTION_STRING, &words->data, .required = true, .help = "the scheme along dp" },
        { "--cluster", "NAME", OPTION_STRING, &words->cluster, .required = true, .help = "devices and links" },
        { "--tp", "N", OPTION_INT, &words->tp, .min = 1, .max = 4096, .required = true, .help = "" },
        { "--pp", "N", OPTION_INT, &words->pp, .min = 1, .max = 4096, .required = true, .help = "" },
        { "--dp", "N", OPTION_INT, &words->dp, .min = 1, .max = 4096, .required = true, .help = "" },
        { "--cp", "N", OPTION_INT, &words->cp, .min = 1, .max = 4096, .help = "" },
        { "--chunks", "V", OPTION_INT, &words->chunks, .min = 1, .max = 64, .required = true, .help = "of a stage" },
        { "--tokens", "N", OPTION_INT, &words->tokens, .min = 1, .max = 1 << 28, .required = true, .help = "a step" },
        { "--seq", "S", OPTION_INT, &words->sequence, .min = 1, .max = 1 << 20, .required = true, .help = "tokens" },
        { 0 }
    };
    return claim_take(claim, table, err);
}

static enum error_code plan_of(struct plan *plan, const struct words *words, const struct cluster *cluster,
                               struct error *err)
{
    const int size[AXIS_COUNT] = { [PP] = words->pp, [DP] = words->dp, [CP] = words->cp, [EP] = 1, [TP] = words->tp };
    const int sequences = words->tokens / words->sequence;
    int64_t usual;
    *plan = (struct plan){
        .micros = sequences / words->dp, .chunks = words->chunks, .dtype = BF16, .cluster = cluster, .degree = -1,
        .data = { .scheme = words->data, .bucket = 25 << 20, .offload_slice = 1 << 16 },
        .tensor = words->tensor, .attention = words->attention,
        .dispatch = expert_scheme_at(0)->head.name, .schedule = words->schedule,
        .optimizer = optimizers[0], .hyper = optimizers[0]->usual, .B = sequences, .S = words->sequence,
    };
    enum error_code e = model_config_preset(&plan->model, &usual, words->model, err);
    if (!e && plan->model.S < words->sequence) plan->model.S = words->sequence;     /* trained on longer ones later */
    if (!e) e = mesh_make(&plan->mesh, size, err);
    return e ? e : plan_check(plan, err);
}

static enum error_code note_time(struct trainer *trainer, void *step, struct error *err)
{
    (void)err;
    const picoseconds now = trainer->device->clock.now;
    if (now > *(picoseconds *)step) *(picoseconds *)step = now;
    return OK;
}

/* Operations of the model, with attention counted by half, in per cent of what the devices could do in a step. */
enum error_code quantity_utilization(struct claim *claim, const struct claims_setting *setting, struct error *err)
{
    struct words words;
    struct cluster cluster;
    struct plan plan;
    struct dry_run run;
    picoseconds step = 0;
    (void)setting;
    enum error_code e = take_words(claim, &words, err);
    if (!e) e = cluster_find(&cluster, words.cluster, err);
    if (!e) e = plan_of(&plan, &words, &cluster, err);
    if (!e) e = dry_run(&plan, 1, false, NULL, NULL, note_time, &step, &run, err);
    if (e) return e;
    claim->ours = 100 * model_step_flops(&plan.model, plan.B, plan.S) / (1e-12 * (double)step) /
                  (1e6 * (double)cluster.flop_rate[BF16] * plan.mesh.devices);
    return OK;
}
