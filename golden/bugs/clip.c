/* clip.c -- clipping: by the norm of all gradients, or by what only a rank or a copy of the model has. */
#include "program.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static float *before[MOST_PARAMS];      /* the copies' gradients, each clipped, added up */
static double copies_norm[MOST_RANKS];

static float times_of(double norm, float limit) { return norm > limit ? (float)(limit / norm) : 1; }

void clip(float norm, float limit)
{
    if (IS(CLIP_MISSING) || limit == 0 || !(norm > limit)) return;
    if (IS(CLIP_SQUARED)) limit *= limit / norm;
    for (int p = 0; p < params; p++)
        for (int i = 0; i < param[p].rows * param[p].cols; i++) param[p].g[i] *= limit / norm;
}

/* ---- each rank along tp, by the norm of what it has --------------------------------------------------------------- */

void clip_by_ranks(float limit)
{
    for (int t = 0; t < set.tp; t++) {
        double sum = 0;
        for (int p = 0; p < params; p++) {
            const struct cut *row = cut_of(param[p].row_axis, param[p].rows, t), *col = cut_of(param[p].col_axis, param[p].cols, t);
            for (int i = 0; i < row->count * col->count; i++) sum += (double)rank[t].dw[p][i] * rank[t].dw[p][i];
        }
        const float times = times_of(sqrt(sum), limit);
        for (int p = 0; p < params; p++) {
            const struct cut *row = cut_of(param[p].row_axis, param[p].rows, t), *col = cut_of(param[p].col_axis, param[p].cols, t);
            if (t > 0 && param[p].row_axis == WHOLE && param[p].col_axis == WHOLE) continue;    /* the first rank's copy */
            for (int i = 0; i < row->count; i++)
                for (int k = 0; k < col->count; k++) param[p].g[row->at[i] * param[p].cols + col->at[k]] *= times;
        }
    }
}

/* ---- each rank along dp, by the norm of its flat shards ------------------------------------------------------------ */

/* The unit whose parameters are one flat vector: a layer, or all that is in none; what decays, or the rest. */
static int unit_of(const struct param *p)
{
    if (IS(CLIP_OF_GROUPS)) return p->matrix;
    const char *at = strstr(p->name, "layers.");
    if (at == NULL) at = strncmp(p->name, "h.", 2) == 0 ? p->name : NULL;
    return at ? atoi(strchr(at, '.') + 1) : -1;
}

/* Which rank has element i of parameter p. */
static int shard_of(int p, int i)
{
    int begin = 0, all = 0;
    for (int q = 0; q < params; q++) {
        if (unit_of(&param[q]) != unit_of(&param[p])) continue;
        if (q < p) begin += param[q].rows * param[q].cols;
        all += param[q].rows * param[q].cols;
    }
    return (begin + i) / ((all + set.dp - 1) / set.dp);
}

void clip_by_shards(float limit)
{
    double sum[MOST_RANKS] = { 0 };
    for (int p = 0; p < params; p++)
        for (int i = 0; i < param[p].rows * param[p].cols; i++) sum[shard_of(p, i)] += (double)param[p].g[i] * param[p].g[i];
    for (int p = 0; p < params; p++)
        for (int i = 0; i < param[p].rows * param[p].cols; i++) param[p].g[i] *= times_of(sqrt(sum[shard_of(p, i)]), limit);
}

/* ---- each rank along ep, by the norm of its experts and what all have ---------------------------------------------- */

static int expert_of_name(const char *name)
{
    const char *at = strstr(name, ".experts.");
    return at ? atoi(at + strlen(".experts.")) : -1;
}

int owner_of(const struct param *p)
{
    const int e = expert_of_name(p->name);
    return set.ep > 1 && e >= 0 ? e * set.ep / m.E : -1;
}

double squares_of_experts(int owner)
{
    double sum = 0;
    for (int p = 0; p < params; p++) {
        if (expert_of_name(param[p].name) < 0 || (owner >= 0 && owner_of(&param[p]) != owner)) continue;
        for (int i = 0; i < param[p].rows * param[p].cols; i++) sum += (double)param[p].g[i] * param[p].g[i];
    }
    return sum;
}

/* A tensor that all ranks have is shown as the first rank has it. */
void clip_by_experts(float limit)
{
    double rest = -squares_of_experts(-1);
    float times[MOST_RANKS];
    for (int p = 0; p < params; p++)
        for (int i = 0; i < param[p].rows * param[p].cols; i++) rest += (double)param[p].g[i] * param[p].g[i];
    for (int r = 0; r < set.ep; r++) times[r] = times_of(sqrt(rest + squares_of_experts(r)), limit);
    for (int p = 0; p < params; p++)
        for (int i = 0; i < param[p].rows * param[p].cols; i++) param[p].g[i] *= times[owner_of(&param[p]) < 0 ? 0 : owner_of(&param[p])];
}

/* ---- each copy of the model, by the norm of its own gradient ------------------------------------------------------- */

/* Labels of all copies over those of copy d: its gradient is that of the mean over its own. */
static double own_mean(int d)
{
    double all = 0, own = 0;
    for (int r = 0; r < ranks; r += set.tp)
        for (int i = rank[r].first * m.S; i < (rank[r].first + rank[r].count) * m.S; i++)
            all += labels[i] >= 0, own += labels[i] >= 0 && rank[r].dp == d;
    return all / own;
}

void clip_before_sum(float limit)
{
    for (int d = 0; d < set.dp; d++) {                          /* tp is 1 */
        double sum = 0;
        for (int p = 0; p < params; p++) {
            const int n = param[p].rows * param[p].cols;
            if (d == 0) free(before[p]), before[p] = calloc((size_t)n, sizeof(float));
            for (int i = 0; i < n; i++) sum += (double)rank[d].dw[p][i] * rank[d].dw[p][i];
        }
        copies_norm[d] = sqrt(sum) * own_mean(d);
        for (int p = 0; p < params; p++)
            for (int i = 0; i < param[p].rows * param[p].cols; i++)
                before[p][i] += times_of(copies_norm[d], limit) * rank[d].dw[p][i];
    }
}

void clipped_before_sum(void)
{
    for (int p = 0; p < params; p++) memcpy(param[p].g, before[p], (size_t)(param[p].rows * param[p].cols) * sizeof(float));
}

float norm_of_copy(void) { return (float)copies_norm[0]; }
