/* memory.c -- memory of weights, gradients, optimizer state and activations, by the formulas that counted memory is
 * compared with.  quantities.c lists the quantities of this file by name; cli/bench/ asks for them.  ERR_USAGE: the
 * claim's words are wrong; ERR_PLAN: the plan does not fit; ERR_MEMORY. */
#include "emulated_devices/bench/claims/quantity.h"
#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/model/link/layer_memory.h"
#include "emulated_devices/train/dry_run/plan_memory.h"
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"

/* ---- ZeRO -------------------------------------------------------------------------------------------------------- */

/* Bytes of a parameter on each of n devices, in 16 bits with Adam: of a large model, so that padding does not show.
 * Our gradients are summed in 32 bits, the paper's in 16: half of ours. */
static enum error_code bytes_of_a_parameter(double *out, const char *scheme, int n, struct error *err)
{
    struct plan plan = {
        .micros = 1, .chunks = 1, .ep = 1, .etp = 1, .degree = -1, .dtype = F16,
        .data = { .scheme = scheme, .bucket = 25 << 20 },
        .tensor = tensor_scheme_at(0)->head.name, .attention = attention_scheme_at(0)->head.name,
        .dispatch = expert_scheme_at(0)->head.name, .schedule = schedule_generator_at(0)->head.name,
        .allreduce = algorithm_find(ALLREDUCE, NULL)->name, .optimizer = optimizers[0],
    };
    const int size[AXIS_COUNT] = { [DP] = n, [TP] = 1, [PP] = 1, [CP] = 1, [EP] = 1 };
    struct plan_memory memory;
    int64_t batch;
    double parameters = 0;
    enum error_code e = model_config_preset(&plan.model, &batch, "gpt3-175b", err);
    if (e) return e;
    plan.B = n, plan.S = plan.model.S, plan.hyper = plan.optimizer->usual;
    e = mesh_make(&plan.mesh, size, err);
    if (!e) e = plan_check(&plan, err);
    if (!e) e = plan_memory(&plan, 0, 0, &memory, err);
    if (e) return e;
    for (int i = 0; i < model_param_count(&plan.model); i++) {
        const struct param_spec param = model_param(&plan.model, i);
        parameters += (double)(param.dim[0] * (param.ndim > 1 ? param.dim[1] : 1));
    }
    const uint64_t *const tag = memory.peak.tag;
    *out = ((double)(tag[PARAMETERS] + tag[OPTIMIZER]) + (double)tag[GRADIENTS] / 2) / parameters;
    return OK;
}

enum error_code quantity_zero_memory(struct claim *claim, const struct claims_setting *setting, struct error *err)
{
    const char *scheme = NULL;
    int devices = 0;
    double billions = 0, each = 0;
    (void)setting;
    const struct option table[] = {
        { "--data", "NAME", OPTION_STRING, &scheme, .required = true, .help = "the scheme" },
        { "--dp", "N", OPTION_INT, &devices, .min = 1, .max = 65536, .required = true, .help = "devices" },
        { "--billions", "N", OPTION_DOUBLE, &billions, .min = 1e-3, .max = 1e6, .required = true, .help = "model" },
        { 0 }
    };
    enum error_code e = claim_take(claim, table, err);
    if (!e) e = bytes_of_a_parameter(&each, scheme, devices, err);
    claim->ours = each * billions;
    return e;
}

/* ---- activations ------------------------------------------------------------------------------------------------- */

static enum error_code layer_bytes(double *out, int heads, int width, int tp_size, const char *tensor,
                                   const char *recompute, struct error *err)
{
    struct model_config model = {
        .name = "16 bits", .S = 2048, .D = width, .H = heads, .K = heads, .A = width / heads, .F = 4 * width, .L = 1,
        .V = 51200, .family = &family_gpt2, .biases = BIASES_BLOCK,
        .dropout_embedding = 0.1, .dropout_residual = 0.1, .dropout_attention = 0.1,
    };
    struct layer_memory_term term[LAYER_MEMORY_TERMS];
    struct device device;
    enum error_code e = device_open(&device, NULL, BF16, 0, err);
    if (e) return e;
    struct tensor_parallel tp = { .config = &model, .device = &device, .S = model.S };
    e = tensor_scheme_find(&tp.scheme, tensor, err);
    if (!e) {
        tensor_share(&tp, tp_size, 0);
        e = layer_memory(&tp, model.S, recompute, term, err);
    }
    *out = 0;
    for (int i = 0; i < LAYER_MEMORY_TERMS && !e; i++) *out += term[i].paper;
    device_close(&device);
    return e;
}

enum error_code quantity_activations(struct claim *claim, const struct claims_setting *setting, struct error *err)
{
    const char *tensor = NULL, *recompute = "none";
    int heads = 0, width = 0, tp = 1;
    double all = 0, bytes = 0;
    (void)setting;
    const struct option table[] = {
        { "--heads", "H", OPTION_INT, &heads, .min = 1, .max = 65536, .required = true, .help = "heads" },
        { "--width", "D", OPTION_INT, &width, .min = 1, .max = 1 << 20, .required = true, .help = "width" },
        { "--tp", "N", OPTION_INT, &tp, .min = 1, .max = 4096, .help = "devices" },
        { "--tensor", "NAME", OPTION_STRING, &tensor, .required = true, .help = "the scheme" },
        { "--recompute", "WHAT", OPTION_STRING, &recompute, .help = "what backward computes again" },
        { 0 }
    };
    enum error_code e = claim_take(claim, table, err);
    if (!e) e = layer_bytes(&all, heads, width, tp, "1d", "none", err);
    if (!e) e = layer_bytes(&bytes, heads, width, tp, tensor, recompute, err);
    claim->ours = 100 * bytes / all;
    return e;
}
