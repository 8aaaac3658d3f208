/* published_memory.c -- published memory of weights, gradients, optimizer state and activations, by the formulas that
 * counted memory is compared with. */
#include "emulated_devices/cli/bench/published/published.h"
#include "emulated_devices/model/link/layer_memory.h"
#include "emulated_devices/train/dry_run/plan_memory.h"
#include "emulated_devices/collectives/collective.h"
#include <stdio.h>
#include <string.h>

/* ---- ZeRO -------------------------------------------------------------------------------------------------------- */

enum { STAGES_OF_ZERO = 3, ZERO_SIZES = 3, ZERO_COUNTS = 6 };
static const char *const zero_name[STAGES_OF_ZERO] = { "zero1", "zero2", "zero3" };
static const double zero_billions[ZERO_SIZES] = { 7.5, 128, 1000 };
static const int zero_devices[ZERO_COUNTS] = { 1, 4, 16, 64, 256, 1024 };

/* The same numbers with one more digit than printed would not be the paper's: these are its own. */
static const double zero_gigabytes[ZERO_COUNTS][ZERO_SIZES][STAGES_OF_ZERO] = {
    { { 120, 120, 120 }, { 2048, 2048, 2048 }, { 16000, 16000, 16000 } },
    { { 52.5, 41.3, 30 }, { 896, 704, 512 }, { 7000, 5500, 4000 } },
    { { 35.6, 21.6, 7.5 }, { 608, 368, 128 }, { 4750, 2875, 1000 } },
    { { 31.4, 16.6, 1.88 }, { 536, 284, 32 }, { 4187, 2218, 250 } },
    { { 30.4, 15.4, 0.47 }, { 518, 263, 8 }, { 4046, 2054, 62.5 } },
    { { 30.1, 15.1, 0.12 }, { 513, 257, 2 }, { 4011, 2013, 15.6 } },
};

/* Bytes of a parameter on each of n devices, in 16 bits with Adam: of a large model, so that padding does not show.
 * Our gradients are summed in 32 bits, the paper's in 16: half of ours. */
static enum error_code bytes_of_a_parameter(double *out, const char *scheme, int n, struct error *err)
{
    struct plan p = {
        .micros = 1, .chunks = 1, .ep = 1, .etp = 1, .degree = -1, .dtype = F16, .data.scheme = scheme,
        .tensor = tensor_scheme_at(0)->head.name, .attention = attention_scheme_at(0)->head.name,
        .dispatch = expert_scheme_at(0)->head.name, .schedule = schedule_generator_at(0)->head.name,
        .allreduce = algorithm_find(ALLREDUCE, NULL)->name, .optimizer = optimizers[0],
    };
    const int size[AXIS_COUNT] = { [DP] = n, [TP] = 1, [PP] = 1, [CP] = 1, [EP] = 1 };
    struct plan_memory m;
    int64_t batch;
    double parameters = 0;
    enum error_code e = model_config_preset(&p.model, &batch, "gpt3-175b", err);
    if (e) return e;
    p.B = n, p.S = p.model.S, p.hyper = p.optimizer->usual;
    e = mesh_make(&p.mesh, size, err);
    if (!e) e = plan_check(&p, err);
    if (!e) e = plan_memory(&p, 0, 0, &m, err);
    if (e) return e;
    for (int i = 0; i < model_param_count(&p.model); i++) {
        const struct param_spec s = model_param(&p.model, i);
        parameters += (double)(s.dim[0] * (s.ndim > 1 ? s.dim[1] : 1));
    }
    *out = ((double)(m.peak.tag[PARAMETERS] + m.peak.tag[OPTIMIZER]) + (double)m.peak.tag[GRADIENTS] / 2) / parameters;
    return OK;
}

static enum error_code zero_table(struct published *published, struct error *err)
{
    enum error_code e = OK;
    published_section(published, "Memory of weights, gradients (here in 16 bits) and optimizer state with ZeRO",
                      "S. Rajbhandari et al., arXiv:1910.02054, table 1", "nothing", "GB of a device", false);
    for (int n = 0; n < ZERO_COUNTS && !e; n++)
        for (int stage = 0; stage < STAGES_OF_ZERO && !e; stage++) {
            double each = 0;
            e = bytes_of_a_parameter(&each, zero_name[stage], zero_devices[n], err);
            for (int i = 0; i < ZERO_SIZES && !e; i++) {
                char what[80];
                snprintf(what, sizeof what, "%gB on %d: %s", zero_billions[i], zero_devices[n], zero_name[stage]);
                published_row(published, what, zero_gigabytes[n][i][stage], each * zero_billions[i], 2);
            }
        }
    published_end(published);
    return e;
}

/* ---- activations ------------------------------------------------------------------------------------------------- */

enum { ACTIVATION_MODELS = 4, WAYS = 5 };
static const struct activation_model { const char *name; int heads, width; double percent[WAYS]; }
activation_models[ACTIVATION_MODELS] = {
    { "22B", 64, 6144, { 100, 66.84, 49.42, 16.18, 7.64 } },
    { "175B", 96, 12288, { 100, 62.04, 56.53, 18.49, 8.71 } },
    { "530B", 128, 20480, { 100, 58.31, 62.04, 20.27, 9.42 } },
    { "1T", 160, 25600, { 100, 58.31, 62.04, 20.27, 9.42 } },
};
static const struct { const char *name, *tensor, *recompute; } ways[WAYS] = {
    { "tensor", "1d", "none" }, { "tensor, sequence", "1d-sp", "none" }, { "tensor, selective", "1d", "selective" },
    { "tensor, sequence, selective", "1d-sp", "selective" }, { "tensor, full", "1d", "full" },
};

static enum error_code layer_bytes(double *out, int heads, int width, int way, struct error *err)
{
    struct model_config model = {
        .name = "16 bits", .S = 2048, .D = width, .H = heads, .K = heads, .A = width / heads, .F = 4 * width, .L = 1,
        .V = 51200, .biases = BIASES_GPT2,
        .dropout_embedding = 0.1, .dropout_residual = 0.1, .dropout_attention = 0.1,
    };
    struct layer_memory_term term[LAYER_MEMORY_TERMS];
    struct device d;
    enum error_code e = device_open(&d, NULL, BF16, 0, err);
    if (e) return e;
    struct tensor_parallel tp = { .config = &model, .device = &d, .S = model.S };
    e = tensor_scheme_find(&tp.scheme, ways[way].tensor, err);
    if (!e) {
        tensor_share(&tp, 8, 0);
        e = layer_memory(&tp, model.S, ways[way].recompute, term, err);
    }
    *out = 0;
    for (int i = 0; i < LAYER_MEMORY_TERMS && !e; i++) *out += term[i].paper;
    device_close(&d);
    return e;
}

static enum error_code activations(struct published *published, struct error *err)
{
    enum error_code e = OK;
    published_section(published, "Memory of a layer's activations, by recomputation and sequence parallelism, tp 8",
                      "V. Korthikanti et al., arXiv:2205.05198, figure 7", "nothing",
                      "per cent of tensor parallelism alone", false);
    for (int i = 0; i < ACTIVATION_MODELS && !e; i++) {
        double all = 0, bytes = 0;
        e = layer_bytes(&all, activation_models[i].heads, activation_models[i].width, 0, err);
        for (int way = 0; way < WAYS && !e; way++) {
            char what[80];
            e = layer_bytes(&bytes, activation_models[i].heads, activation_models[i].width, way, err);
            snprintf(what, sizeof what, "%s: %s", activation_models[i].name, ways[way].name);
            if (!e) published_row(published, what, activation_models[i].percent[way], 100 * bytes / all, 2);
        }
    }
    published_end(published);
    return e;
}

enum error_code published_memory(struct published *published, struct error *err)
{
    const enum error_code e = zero_table(published, err);
    return e ? e : activations(published, err);
}
