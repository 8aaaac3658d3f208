/* biases.c -- holds corrections of routers to what the choices of the step's pass move them by.
 * passes.c calls biases_judge.  mistakes/router_bias.c says why a correction is wrong. */
#include "emulated_devices/check/report/biases.h"
#include "emulated_devices/check/mistakes/router_bias.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A correction is kept in fp32, and a step rounds it a few times. */
static const double BIAS_BOUND = 0x1p-20;

/* In 16 bits a token near a tie may choose otherwise.  Without logits so much of an expert's share of all choices, and
 * so many more, may be another expert's; with logits only tokens whose logits are equal. */
static const double UNSEEN_SHARE = 0.05;
enum { UNSEEN_CHOICES = 2, EQUAL_CHOICES = 1 };

/* Set how many choices of an expert may be another expert's. */
static double biases_slack(const struct own_pass *pass, const struct bias_move *move, enum dtype format)
{
    if (!dtype_is_narrow(format)) return 0;
    return pass->route ? EQUAL_CHOICES : UNSEEN_CHOICES + UNSEEN_SHARE * (double)(move->N * move->k) / (double)move->E;
}

/* Whether each wrong expert has so nearly its share of choices that a few others would explain its correction. */
static bool biases_is_open(const struct bias_move *move, double slack)
{
    const double share = (double)(move->N * move->k) / (double)move->E;
    for (int64_t e = 0; e < move->E; e++) {
        const double off = fabs(move->have[e] - move->right[e]);
        if (off <= move->near) continue;
        if (fabs(share - move->loads[e]) > slack && !(move->by_share && off <= move->speed * slack / share))
            return false;
    }
    return slack > 0;
}

/* Judge a layer.  @param[in,out] bias  [columns] before the step, then after it. */
static enum error_code biases_judge_layer(const struct golden *golden, const struct actual *actual,
                                          const struct own_pass *pass, struct bias_move *move, struct checked *checked,
                                          enum dtype format, struct error *err)
{
    bool there;
    double most = move->speed;
    enum error_code e = own_tensor_read(actual, checked->name, (int64_t[]){ move->columns, 1 }, move->have, &there,
                                        err);
    if (e || !there) return e;
    for (int64_t i = 0; i < move->E; i++) most = fmax(most, fabs(move->right[i]));
    move->near = BIAS_BOUND * most;
    checked->bound = BIAS_BOUND;
    e = checker_compare(golden, actual, tensor_1d(move->right, F64, move->columns), checked, format, err);
    if (e || checked->finding != DIFFERS) return e;
    if (biases_is_open(move, biases_slack(pass, move, format))) {
        free(checked->on);
        checked->on = NULL, checked->finding = OPEN, checked->bound = INFINITY;
        return OK;
    }
    router_bias_explain(move, checked->why, sizeof checked->why);
    return OK;
}

static struct checked *biases_find(struct check_result *result, const char *name)
{
    for (int i = 0; i < result->count; i++)
        if (strcmp(result->all[i].name, name) == 0) return &result->all[i];
    return NULL;
}

/* Fill what moves a layer's correction in this pass.  The choices of a pass are those of layers with experts alone.
 * layer: among these, from 0. */
static struct bias_move biases_move(const struct golden *golden, const struct actual *actual,
                                    const struct own_pass *pass, int64_t l, int64_t layer, double *room)
{
    const struct mixture_config *x = &golden->config.mixture;
    const int64_t N = golden->B * golden->S, columns = mixture_columns(x);
    return (struct bias_move){ .rule = &x->router, .E = x->E, .zero = x->zero, .columns = columns, .k = x->k, .N = N,
                               .B = golden->B, .S = golden->S, .copies = actual->mesh.size[DP] * actual->mesh.size[EP],
                               .micros = actual_micros(actual) > 0 ? actual_micros(actual) : 1,
                               .speed = x->router.bias_speed, .by_share = x->router.bias_update == BIAS_BY_SHARE,
                               .experts = pass->plain.choice + layer * N * x->k,
                               .loads = pass->plain.model.router_choices + l * columns,
                               .before = pass->bias + l * columns, .right = pass->plain.model.router_bias + l * columns,
                               .have = room };
}

enum error_code biases_judge(const struct golden *golden, const struct actual *actual, const char *optimizer,
                             int64_t step, struct own_pass *pass, enum dtype format, struct check_result *result,
                             double *bias, struct error *err)
{
    const struct model_config *c = &golden->config;
    const int64_t columns = mixture_columns(&c->mixture);
    double *room = malloc((size_t)columns * sizeof *room + 1);
    enum error_code e = room ? OK : fail(err, ERR_MEMORY, "no memory for the corrections of routers");
    bool there;
    transformer_move_biases(&pass->plain.model);
    for (int64_t l = 0, layer = 0; l < c->L && !e; l++) {
        const struct param_spec s = model_router_bias(c, l);
        char name[160];
        if (layer_mlp(c, l) != MLP_MIXTURE) continue;
        struct bias_move move = biases_move(golden, actual, pass, l, layer++, room);
        struct checked *const checked = s.ndim > 0
            ? biases_find(result, own_name(golden, optimizer, step + 1, s.name, name)) : NULL;
        if (checked && checked->finding != MISSING && checked->finding != LEFT_OUT &&
            checked->finding != DECLARED && checked->finding != MISSHAPED)
            e = biases_judge_layer(golden, actual, pass, &move, checked, format, err);
    }
    free(room);
    if (e) return e;
    memcpy(bias, pass->plain.model.router_bias, (size_t)(c->L * columns) * sizeof *bias);
    return own_biases_read(golden, actual, optimizer, step + 1, bias, &there, err);
}
