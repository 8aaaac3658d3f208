/* published_orders.c -- which of two settings is faster, as figures of the Megatron-LM paper show it. */
#include "emulated_devices/cli/bench/published/published.h"
#include <stdio.h>

enum { TOKENS = 2048, VOCABULARY = 51200 };

struct model_of_a_figure { int width, heads, layers; };
static const struct model_of_a_figure of_175B = { 12288, 96, 96 }, of_162B = { 20480, 128, 32 },
                                      of_91B = { 15360, 128, 32 }, of_6B = { 3840, 32, 32 };

struct setting { int devices, batch, micro, tp, pp, chunks; bool scattered; };

/* The first is faster; scripts of the figures are in examples/academic_paper_scripts/sc21 of NVIDIA/Megatron-LM. */
static const struct order { const char *figure; const struct model_of_a_figure *model; struct setting first, other; }
orders[] = {
    { "12: interleaved over not", &of_175B, { 96, 12, 1, 8, 12, 4, true }, { 96, 12, 1, 8, 12, 1, true } },
    { "12: the same, a larger batch", &of_175B, { 96, 60, 1, 8, 12, 4, true }, { 96, 60, 1, 8, 12, 1, true } },
    { "13: tp 8 over 4", &of_162B, { 64, 32, 1, 8, 8, 1, true }, { 64, 32, 1, 4, 16, 1, true } },
    { "13: tp 8 over 16", &of_162B, { 64, 32, 1, 8, 8, 1, true }, { 64, 32, 1, 16, 4, 1, true } },
    { "13: tp 8 over 2", &of_162B, { 64, 128, 1, 8, 8, 1, true }, { 64, 128, 1, 2, 32, 1, true } },
    { "13: tp 8 over 4, a larger batch", &of_162B, { 64, 128, 1, 8, 8, 1, true }, { 64, 128, 1, 4, 16, 1, true } },
    { "13: tp 8 over 16, a larger batch", &of_162B, { 64, 128, 1, 8, 8, 1, true }, { 64, 128, 1, 16, 4, 1, true } },
    { "13: tp 16 over 32", &of_162B, { 64, 128, 1, 16, 4, 1, true }, { 64, 128, 1, 32, 2, 1, true } },
    { "14: pp 2 over 4", &of_6B, { 64, 32, 1, 1, 2, 1, true }, { 64, 32, 1, 1, 4, 1, true } },
    { "14: pp 4 over 8", &of_6B, { 64, 32, 1, 1, 4, 1, true }, { 64, 32, 1, 1, 8, 1, true } },
    { "14: pp 8 over 16", &of_6B, { 64, 32, 1, 1, 8, 1, true }, { 64, 32, 1, 1, 16, 1, true } },
    { "14: pp 2 over 8, a larger batch", &of_6B, { 64, 512, 1, 1, 2, 1, true }, { 64, 512, 1, 1, 8, 1, true } },
    { "14: pp 8 over 32, a larger batch", &of_6B, { 64, 512, 1, 1, 8, 1, true }, { 64, 512, 1, 1, 32, 1, true } },
    { "15: tp 2 over 4", &of_6B, { 64, 512, 1, 2, 1, 1, true }, { 64, 512, 1, 4, 1, 1, true } },
    { "15: tp 4 over 8", &of_6B, { 64, 512, 1, 4, 1, 1, true }, { 64, 512, 1, 8, 1, 1, true } },
    { "15: tp 8 over 16", &of_6B, { 64, 512, 1, 8, 1, 1, true }, { 64, 512, 1, 16, 1, 1, true } },
    { "15: tp 16 over 32", &of_6B, { 64, 512, 1, 16, 1, 1, true }, { 64, 512, 1, 32, 1, 1, true } },
    { "16: microbatches of 2 over 1", &of_91B, { 64, 512, 2, 8, 8, 1, true }, { 64, 512, 1, 8, 8, 1, true } },
    { "16: microbatches of 2 over 8", &of_91B, { 64, 128, 2, 8, 8, 1, true }, { 64, 128, 8, 8, 8, 1, true } },
    { "18: parts of messages over all", &of_175B, { 96, 12, 1, 8, 12, 4, true }, { 96, 12, 1, 8, 12, 4, false } },
};

static enum error_code seconds_of(double *out, const struct order *order, const struct setting *setting,
                                  const struct cluster *cluster, struct error *err)
{
    const struct megatron m = {
        .devices = setting->devices, .batch = setting->batch, .micro = setting->micro, .width = order->model->width,
        .heads = order->model->heads, .layers = order->model->layers, .tokens = TOKENS, .vocabulary = VOCABULARY,
        .tp = setting->tp, .pp = setting->pp, .dp = setting->devices / setting->tp / setting->pp,
            .chunks = setting->chunks, .scattered = setting->scattered,
        .recompute = MEGATRON_FULL,
    };
    struct schedule schedule;
    picoseconds t;
    enum error_code e = megatron_schedule(&schedule, &m, err);
    if (e) return e;
    e = megatron_time(&t, &m, &schedule, cluster, err);
    schedule_free(&schedule);
    *out = (double)t / 1e12;
    return e;
}

enum error_code published_orders(struct published *published, struct error *err)
{
    struct cluster c;
    enum error_code e = cluster_find(&c, "a100-superpod", err);
    if (e) return e;
    published_section(published, "Which setting is faster, by figures of Megatron-LM",
                      "D. Narayanan et al., arXiv:2104.04473, figures 12 to 16 and 18",
                      "other steps, of vTrain (vtrain-cluster.txt)", "1: the first is", false);
    for (size_t i = 0; i < sizeof orders / sizeof *orders && !e; i++) {
        char what[100];
        double first = 0, other = 0;
        e = seconds_of(&first, &orders[i], &orders[i].first, &c, err);
        if (!e) e = seconds_of(&other, &orders[i], &orders[i].other, &c, err);
        snprintf(what, sizeof what, "figure %s: %.2f times", orders[i].figure, other / first);
        if (!e) published_row(published, what, 1, other > first, 0);
    }
    published_end(published);
    return e;
}
