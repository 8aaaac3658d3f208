/* published_steps.c -- published times of training steps of Megatron-LM, beside those of plan/megatron.h. */
#include "emulated_devices/cli/bench/published/published.h"
#include <stdio.h>

enum { CARD = 12500 };                  /* 10^6 bytes a second: 4 cards of 200 Gb/s for 8 devices */
const struct measured_on vtrain_node = { "vtrain-node.txt", "a100-node", 0, MEGATRON_KEEPS_ALL };
const struct measured_on vtrain_cluster = { "vtrain-cluster.txt", "a100-superpod", CARD, MEGATRON_FULL };
static const struct measured_on selene_2021 = { "megatron-2021.txt", "a100-superpod", 0, MEGATRON_FULL };
static const struct measured_on selene_2022 = { "recomputation-2022.txt", "a100-superpod", 0, MEGATRON_FULL };

static enum error_code read_beside(struct measured_list *list, struct cluster *cluster,
                                   const struct published *published,
                                   const struct measured_on *on, bool chunked, int numbers, struct error *err)
{
    char path[1000];
    const enum error_code e = measured_cluster(cluster, on, err);
    snprintf(path, sizeof path, "%s/%s", published->folder, on->file);
    return e ? e : measured_read(list, path, chunked, numbers, err);
}

static enum error_code seconds_of(double *out, const struct megatron *megatron, const struct cluster *cluster,
                                  struct error *err)
{
    struct schedule s;
    picoseconds t;
    enum error_code e = megatron_schedule(&s, megatron, err);
    if (e) return e;
    e = megatron_time(&t, megatron, &s, cluster, err);
    schedule_free(&s);
    *out = (double)t / 1e12;
    return e;
}

static const char *steps_name_of(const struct megatron *megatron)
{
    static char name[160];
    snprintf(name, sizeof name, "%.1fB on %d: tp %d pp %d dp %d v %d, %d of %d", megatron_parameters(megatron) / 1e9,
             megatron->devices, megatron->tp, megatron->pp, megatron->dp, megatron->chunks, megatron->micro,
                 megatron->batch);
    return name;
}

/* ---- Megatron-LM, 2021 ------------------------------------------------------------------------------------------- */

static enum error_code of_2021(struct published *published, struct error *err)
{
    struct measured_list l;
    struct cluster c;
    enum error_code e = read_beside(&l, &c, published, &selene_2021, true, 1, err);
    if (e) return e;
    published_section(published, "Megatron-LM on up to 3072 A100", "D. Narayanan et al., arXiv:2104.04473, table 1",
                      "other steps, of vTrain (vtrain-cluster.txt)", "Tflop/s of a GPU", false);
    for (int i = 0; i < l.count && !e; i++) {
        struct megatron m = l.row[i].step;
        double seconds = 0;
        m.recompute = MEGATRON_FULL;
        e = seconds_of(&seconds, &m, &c, err);
        if (!e)
            published_row(published, steps_name_of(&m), l.row[i].number[0],
                          megatron_flops(&m) / seconds / m.devices / 1e12, 1);
    }
    measured_free(&l);
    published_end(published);
    return e;
}

/* ---- less recomputation, 2022 ------------------------------------------------------------------------------------ */

static enum error_code of_2022(struct published *published, struct error *err)
{
    struct measured_list l;
    struct cluster c;
    enum error_code e = read_beside(&l, &c, published, &selene_2022, true, 2, err);
    if (e) return e;
    published_section(published, "Less recomputation: eight steps (Calculon: 3.65 % on average, at most 8.87 %)",
                      "V. Korthikanti et al., arXiv:2205.05198, table 5; M. Isaev et al., SC 2023",
                      "other steps, of vTrain (vtrain-cluster.txt)", "seconds", false);
    for (int i = 0; i < 2 * l.count && !e; i++) {
        struct megatron m = l.row[i / 2].step;
        char what[200];
        double seconds = 0;
        m.recompute = i % 2 ? MEGATRON_SELECTIVE : MEGATRON_FULL, m.sequence_parallel = i % 2;
        e = seconds_of(&seconds, &m, &c, err);
        snprintf(what, sizeof what, "%s, %s", steps_name_of(&m), i % 2 ? "selective" : "full");
        if (!e) published_row(published, what, l.row[i / 2].number[i % 2], seconds, 2);
    }
    measured_free(&l);
    published_end(published);
    return e;
}

/* ---- vTrain ------------------------------------------------------------------------------------------------------ */

static enum error_code measured_rows(struct published *published, const struct measured_list *list,
                                     const struct cluster *cluster,
                                     enum megatron_recompute recompute, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < list->count && !e; i++) {
        struct megatron m = list->row[i].step;
        double seconds = 0;
        m.recompute = recompute;
        e = seconds_of(&seconds, &m, cluster, err);
        if (!e) published_row(published, steps_name_of(&m), list->row[i].number[0], 1e3 * seconds, 1);
    }
    published_end(published);
    return e;
}

#define VTRAIN "J. Bang et al., vTrain, arXiv:2312.12391"

static enum error_code of_vtrain(struct published *published, const struct measured_on *on, const char *title,
                                 struct error *err)
{
    struct measured_list l;
    struct cluster c;
    enum error_code e = read_beside(&l, &c, published, on, false, 1, err);
    if (e) return e;
    published_section(published, title, VTRAIN ": every second of its measured steps",
                      "these same rows: a fit, not a test", "milliseconds", true);
    e = measured_rows(published, &l, &c, on->recompute, err);
    measured_free(&l);
    return e;
}

/* Steps of up to 8 devices are taken as those of a node. */
static enum error_code of_a_file(struct published *published, struct error *err)
{
    struct measured_list l;
    struct cluster c;
    enum error_code e = measured_read(&l, published->measured, false, 1, err);
    if (e) return e;
    bool node = true;
    for (int i = 0; i < l.count; i++) node = node && l.row[i].step.devices <= 8;
    const struct measured_on *on = node ? &vtrain_node : &vtrain_cluster;
    e = measured_cluster(&c, on, err);
    published_section(published, "Measured steps of your own", published->measured, on->file, "milliseconds", true);
    if (!e) e = measured_rows(published, &l, &c, on->recompute, err);
    measured_free(&l);
    return e;
}

enum error_code published_steps(struct published *published, struct error *err)
{
    if (published->measured) return of_a_file(published, err);
    enum error_code e = of_2021(published, err);
    if (!e) e = of_2022(published, err);
    if (!e) e = of_vtrain(published, &vtrain_node, "GPT models on one node of A100", err);
    return e ? e : of_vtrain(published, &vtrain_cluster, "GPT models on up to 512 A100", err);
}
