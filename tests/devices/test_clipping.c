/* Steps with gradients that are clipped by other norms than all of theirs: what is said of them. */
#include "tests/devices/step_run.h"

static const char gpt2[] = "golden/gpt2-tied.safetensors";

/* A tensor in which a step's gradients count `times` as often. */
struct scaled { const char *optimizer, *name; double times; const char *words; };

static const struct scaled scaled[] = {
    { "adamw", "adamw/1/exp_avg/wte.weight", 64, "a loss scale of 64 is not divided out" },
    { "adamw", "adamw/1/exp_avg_sq/h.0.ln_1.bias", 4096, "a loss scale of 64 is not divided out" },
    { "adamw", "adamw/1/exp_avg/h.1.mlp.c_fc.weight", 1. / 1024,
      "a loss scale of 1024 is divided out twice, or after clipping" },
    { "adamw", "adamw/1/exp_avg/wpe.weight", 60, "" }, { "adamw", "adamw/1/exp_avg/wpe.weight", 8, "" },
};

/* Of the first step a state is all gradient, so a factor on it is one on the gradient. */
static void loss_scales_are_named(void **state)
{
    struct run r;
    (void)state;
    open_run(&r, gpt2, F32);
    for (size_t i = 0; i < sizeof scaled / sizeof *scaled; i++) {
        const struct scaled *x = &scaled[i];
        const struct tensor *t = record_of(&r, x->name);
        for (int64_t k = 0; k < tensor_count(*t); k++) tensor_set(*t, k, x->times * tensor_get(*t, k));
        check_steps(&r, x->optimizer, NULL);
        if (r.wrong == 0 || strcmp(r.first.name, x->name) != 0) fail_msg("%s: not the first that is wrong", x->name);
        if (x->words[0] ? strcmp(r.first.mistake, x->words) != 0 : strstr(r.first.mistake, "loss scale") != NULL)
            fail_msg("%s times %g: \"%s\"", x->name, x->times, r.first.mistake);
        for (int64_t k = 0; k < tensor_count(*t); k++) tensor_set(*t, k, tensor_get(*t, k) / x->times);
    }
    close_run(&r);
}

/* What each of 3 ranks with a part of the rows has of all gradients of the first step. */
static void norms_of_rows(const struct run *r, double norm[3])
{
    double sum[3] = { 0 };
    for (int i = 0; i < model_param_count(&r->golden.config); i++) {
        char name[RECORD_NAME];
        snprintf(name, sizeof name, "grad/%s", model_param(&r->golden.config, i).name);
        const struct tensor g = *record_of(r, name);
        const int64_t each = (g.dim[0] + 2) / 3, cols = tensor_count(g) / g.dim[0];
        for (int64_t k = 0; k < tensor_count(g); k++) sum[k / cols / each] += pow(tensor_get(g, k), 2);
    }
    for (int k = 0; k < 3; k++) norm[k] = sqrt(sum[k]);
}

static void clipping_by_own_norms_is_named(void **state)
{
    static const char *const states[] = { "adamw/1/exp_avg/h.1.mlp.c_fc.weight",        /* then one before it */
                                          "adamw/1/exp_avg_sq/h.0.attn.c_attn.bias" };
    const char words[] = "each of 3 ranks with a part of the rows clips by the norm of what it has";
    struct run r;
    (void)state;
    open_run(&r, gpt2, F32);
    const struct hyperparameters h = golden_hyperparameters(&r.golden, "adamw");
    const double clip = clip_scale(&h, tensor_get(*record_of(&r, "adamw/norm"), 0));
    for (int i = 0; i < 2; i++) {
        const struct tensor t = *record_of(&r, states[i]);
        const int64_t each = (t.dim[0] + 2) / 3, cols = tensor_count(t) / t.dim[0];
        double norm[3];
        norms_of_rows(&r, norm);
        for (int64_t k = 0; k < tensor_count(t); k++) {
            const double by = clip_scale(&h, norm[k / cols / each]) / clip;
            tensor_set(t, k, tensor_get(t, k) * (i ? by * by : by));
        }
        check_steps(&r, "adamw", NULL);
        if (r.wrong == 0 || strcmp(r.first.name, states[i]) != 0 || strcmp(r.first.mistake, words) != 0)
            fail_msg("%s: %d wrong, the first is %s, \"%s\"", states[i], r.wrong, r.first.name, r.first.mistake);
    }
    close_run(&r);
}

/* A flat cut: parameters of a layer, or of all, are laid end to end; norms of a layer may be its last. */
struct flat { const char *file, *state; int ranks; bool by_layer, norms_last; const char *words; };

static const struct flat flats[] = {
    { "golden/gpt2-tied.safetensors", "adamw/1/exp_avg/h.0.attn.c_attn.weight", 3, true, false,
      "each of 3 ranks clips by the norm of its flat shards, of every layer" },
    { "golden/gpt2-tied.safetensors", "adamw/1/exp_avg/h.0.mlp.c_fc.weight", 2, false, false,
      "each of 2 ranks clips by the norm of its flat shard of all parameters" },
    { "golden/llama-grouped.safetensors", "adamw/1/exp_avg/model.layers.1.self_attn.o_proj.weight", 2, true, true,
      "each of 2 ranks clips by the norm of its flat shards, of every layer" },
};

/* The place of a parameter's first element in its unit, and how many the unit has. */
static int64_t flat_begin(const struct model_config *c, const struct flat *f, int param, int64_t *all)
{
    int64_t begin = 0;
    *all = 0;
    const struct param_spec p = model_param(c, param);
    for (int late = 0; late < 2; late++)
        for (int i = 0; i < model_param_count(c); i++) {
            const struct param_spec q = model_param(c, i);
            const bool is_late = f->norms_last && q.role == ROLE_NORM && q.layer >= 0 && q.layer < c->L;
            if (is_late != late || (f->by_layer && (q.layer < 0 || q.layer == c->L ? -1 : q.layer) !=
                                                      (p.layer < 0 || p.layer == c->L ? -1 : p.layer)))
                continue;
            if (i == param) begin = *all;
            *all += q.dim[0] * (q.ndim > 1 ? q.dim[1] : 1);
        }
    return begin;
}

/* What each rank has of a parameter's elements: add them up, by ranks, or clip them. */
static void each_shard(const struct model_config *c, const struct flat *f, int param, struct tensor t, double sum[],
                       const double times[])
{
    int64_t all;
    const int64_t begin = flat_begin(c, f, param, &all), each = (all + f->ranks - 1) / f->ranks;
    for (int64_t k = 0; k < tensor_count(t); k++) {
        const int64_t owner = (begin + k) / each;
        if (sum) sum[owner] += pow(tensor_get(t, k), 2);
        else tensor_set(t, k, tensor_get(t, k) * times[owner]);
    }
}

static void clip_by_flat_shards(const struct run *r, const struct flat *f)
{
    const struct model_config *c = &r->golden.config;
    const struct hyperparameters h = golden_hyperparameters(&r->golden, "adamw");
    const double clip = clip_scale(&h, tensor_get(*record_of(r, "adamw/norm"), 0));
    double sum[8] = { 0 }, times[8];
    for (int i = 0; i < model_param_count(c); i++) {
        char name[RECORD_NAME];
        snprintf(name, sizeof name, "grad/%s", model_param(c, i).name);
        each_shard(c, f, i, *record_of(r, name), sum, NULL);
    }
    for (int k = 0; k < f->ranks; k++) times[k] = clip_scale(&h, sqrt(sum[k])) / clip;
    for (int i = 0; i < model_param_count(c); i++)
        if (strcmp(model_param(c, i).name, strrchr(f->state, '/') + 1) == 0)
            each_shard(c, f, i, *record_of(r, f->state), NULL, times);
}

static void clipping_by_flat_shards_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof flats / sizeof *flats; i++) {
        struct run r;
        open_run(&r, flats[i].file, F32);
        clip_by_flat_shards(&r, &flats[i]);
        check_steps(&r, "adamw", NULL);
        if (r.wrong == 0 || strcmp(r.first.name, flats[i].state) != 0 || strcmp(r.first.mistake, flats[i].words) != 0)
            fail_msg("%s: %d wrong, the first is %s, \"%s\"", flats[i].state, r.wrong, r.first.name, r.first.mistake);
        close_run(&r);
    }
}

/* ---- clipping before copies add up ------------------------------------------------------------------------------- */

/* The gradient of the first of two copies is this part of each element's. */
static double part_of(int64_t k) { return k % 3 == 0 ? 0.9 : 0.2; }
static const double share_of_first = 0.25;

/* "copy/1/grad/wte.weight", "copy/1/share". */
static bool fetch_copy(const struct run *r, const char *name, struct tensor out)
{
    const bool first = strncmp(name, "copy/0", 6) == 0;
    if (strncmp(name, "copy/", 5) != 0) return false;
    const struct tensor *g = record_of(r, name + 7);
    for (int64_t k = 0; k < tensor_count(out); k++)
        tensor_set(out, k, g == NULL ? first ? share_of_first : 1 - share_of_first
                                     : (first ? part_of(k) : 1 - part_of(k)) * tensor_get(*g, k));
    return true;
}

/* Each copy has the gradient of its own mean, and its norm. */
static void factors_of_copies(const struct run *r, double times[2])
{
    const struct hyperparameters h = golden_hyperparameters(&r->golden, "adamw");
    double sum[2] = { 0 };
    for (int i = 0; i < model_param_count(&r->golden.config); i++) {
        char name[RECORD_NAME];
        snprintf(name, sizeof name, "grad/%s", model_param(&r->golden.config, i).name);
        const struct tensor g = *record_of(r, name);
        for (int64_t k = 0; k < tensor_count(g); k++)
            sum[0] += pow(part_of(k) * tensor_get(g, k), 2), sum[1] += pow((1 - part_of(k)) * tensor_get(g, k), 2);
    }
    times[0] = clip_scale(&h, sqrt(sum[0]) / share_of_first);
    times[1] = clip_scale(&h, sqrt(sum[1]) / (1 - share_of_first));
}

static void clipping_before_the_sum_of_copies_is_named(void **state)
{
    static const char name[] = "adamw/1/exp_avg/h.0.mlp.c_fc.weight";
    static const char *const words[] = {
        "each of 2 copies clips by the norm of its own gradient, before they are added up",
        "clipped by the norm of copy 1's own gradient, before copies add theirs up",
    };
    (void)state;
    for (int one = 0; one < 2; one++) {
        struct run r;
        open_run(&r, gpt2, F32);
        const struct hyperparameters h = golden_hyperparameters(&r.golden, "adamw");
        const double clip = clip_scale(&h, tensor_get(*record_of(&r, "adamw/norm"), 0));
        const struct tensor t = *record_of(&r, name);
        double times[2];
        factors_of_copies(&r, times);
        for (int64_t k = 0; k < tensor_count(t); k++)
            tensor_set(t, k, tensor_get(t, k) / clip *
                             (one ? times[1] : part_of(k) * times[0] + (1 - part_of(k)) * times[1]));
        r.copies = 2, r.more = fetch_copy;
        check_steps(&r, "adamw", NULL);
        if (r.wrong == 0 || strcmp(r.first.name, name) != 0 || strcmp(r.first.mistake, words[one]) != 0)
            fail_msg("%s: %d wrong, the first is %s, \"%s\"", name, r.wrong, r.first.name, r.first.mistake);
        r.copies = 0;
        check_steps(&r, "adamw", NULL);
        if (r.first.mistake[0] && strstr(r.first.mistake, "cop")) fail_msg("without copies: \"%s\"", r.first.mistake);
        close_run(&r);
    }
}

/* ---- norms of groups --------------------------------------------------------------------------------------------- */

static const char mixture[] = "golden/qwen3moe-step.safetensors";      /* tied; two groups of keys and values */
static const char untied[] = "golden/mixtral-top2.safetensors";

static bool is_all(const struct param_spec *p) { return p->ndim > 0; }
static bool is_expert(const struct param_spec *p) { return p->expert >= 0; }
static bool is_dense(const struct param_spec *p) { return p->expert < 0; }
static bool is_router(const struct param_spec *p) { return p->role == ROLE_ROUTER; }
static bool is_norm(const struct param_spec *p) { return p->role == ROLE_NORM; }
static bool is_embedding(const struct param_spec *p) { return p->role == ROLE_TOKENS; }
static bool is_output(const struct param_spec *p) { return p->role == ROLE_HEAD; }
static bool is_vector(const struct param_spec *p) { return p->ndim < 2; }
static bool is_second_layer(const struct param_spec *p) { return p->layer == 1; }
static bool is_one_expert(const struct param_spec *p) { return p->expert == 2 && p->layer == 1; }

/* Squares of a group count so many times. */
struct group { const char *file; bool (*has)(const struct param_spec *); double times; const char *words; };

static const struct group groups[] = {
    { mixture, is_expert, 0, "the norm leaves out the experts" },
    { mixture, is_router, 0, "the norm leaves out the routers" },
    { mixture, is_dense, 0, "the norm leaves out all but the experts" },
    { mixture, is_expert, 2, "the experts count 2 times" },
    { mixture, is_expert, 1. / 4, "the experts' squares are averaged over 4 ranks along ep, not added up" },
    { mixture, is_dense, 3, "what all 3 ranks along ep have counts 3 times" },
    { mixture, is_embedding, 2, "the tied matrix counts twice" },
    { untied, is_one_expert, 0, "the norm leaves out expert 2 of layer 1" },
    { mixture, is_all, 1. / 2, "squares are averaged over 2 ranks, not added up" },
    { mixture, is_all, 3, "all gradients count 3 times" },
    { untied, is_embedding, 0, "the norm leaves out the token embedding" },
    { untied, is_output, 0, "the norm leaves out the output matrix" },
    { untied, is_norm, 0, "the norm leaves out the weights of norms" },
    { untied, is_second_layer, 0, "the norm leaves out layer 1" },
    { gpt2, is_vector, 0, "the norm leaves out all vectors: norms and biases" },
};

/* The norm of a step's gradients, from 0, with a group that counts otherwise. */
static double norm_with(const struct run *r, int step, const struct group *group)
{
    double sum = 0;
    for (int i = 0; i < model_param_count(&r->golden.config); i++) {
        const struct param_spec p = model_param(&r->golden.config, i);
        char name[RECORD_NAME];
        if (step == 0) snprintf(name, sizeof name, "grad/%s", p.name);
        else snprintf(name, sizeof name, "adamw/%d/grad/%s", step + 1, p.name);
        const struct tensor g = *record_of(r, name);
        for (int64_t k = 0; k < tensor_count(g); k++)
            sum += pow(tensor_get(g, k), 2) * (group->has(&p) ? group->times : 1);
    }
    return sqrt(sum);
}

/* The norms of all steps are wrong, and steps clip by the right ones. */
static void norms_of_groups_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        struct run r;
        open_run(&r, groups[i].file, F32);
        const struct tensor norm = *record_of(&r, "adamw/norm");
        for (int k = 0; k < r.golden.steps; k++) tensor_set(norm, k, norm_with(&r, k, &groups[i]));
        check_steps(&r, "adamw", NULL);
        if (strcmp(r.first.name, "adamw/norm") != 0 || strcmp(r.first.mistake, groups[i].words) != 0)
            fail_msg("%s, %s: %d wrong, the first is %s, \"%s\"", groups[i].file, groups[i].words, r.wrong,
                     r.first.name, r.first.mistake);
        close_run(&r);
    }
}

/* All elements of the states of a parameter that the gradient's factor changes. */
static void scale_states(const struct run *r, const char *param, double by, bool first, bool second)
{
    char name[RECORD_NAME];
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "adamw/1/exp_avg%s/%s", i ? "_sq" : "", param);
        const struct tensor t = *record_of(r, name);
        for (int64_t k = 0; (i ? second : first) && k < tensor_count(t); k++)
            tensor_set(t, k, tensor_get(t, k) * (i ? by * by : by));
    }
}

static const char one_param[] = "model.layers.1.self_attn.o_proj.weight";

static void expect_state(struct run *r, const char *words)
{
    char name[RECORD_NAME];
    snprintf(name, sizeof name, "adamw/1/exp_avg/%s", one_param);
    check_steps(r, "adamw", NULL);
    if (r->wrong == 0 || strcmp(r->first.name, name) != 0 || strncmp(r->first.mistake, words, strlen(words)) != 0)
        fail_msg("%s: \"%s\", not \"%s\"", r->first.name, r->first.mistake, words);
}

/* The norm that is shown is right, and the step clips by one that leaves out the experts.  Or both states show a
 * gradient that no norm explains; or one state alone is wrong, by the same factor: then it is beta. */
static void clipping_by_another_norm_is_no_beta(void **state)
{
    struct run r;
    (void)state;
    open_run(&r, untied, F32);
    const struct hyperparameters h = golden_hyperparameters(&r.golden, "adamw");
    const double norm = tensor_get(*record_of(&r, "adamw/norm"), 0), clip = clip_scale(&h, norm),
                 by = clip_scale(&h, norm_with(&r, 0, &groups[0])) / clip;
    assert_true(clip < 1 && by > 1.001);
    scale_states(&r, one_param, by, true, true);
    expect_state(&r, "clipped by another norm: the norm leaves out the experts");
    scale_states(&r, one_param, 1.07 / by, true, true);
    expect_state(&r, "the gradient is 1.0700 of what it must be, as if clipped by a norm of");
    scale_states(&r, one_param, 1 / 1.07, true, true), scale_states(&r, one_param, by, true, false);
    char words[64];
    snprintf(words, sizeof words, "beta is %.4g", 1 - (1 - h.beta1) * by);
    expect_state(&r, words);
    close_run(&r);
}

static const char *matrix_of_expert(const struct run *r, int expert)
{
    static struct param_spec p;
    int i = 0;
    do p = model_param(&r->golden.config, i++);
    while (p.expert != expert || p.role != ROLE_DOWN);
    return p.name;
}

/* Each rank along ep has the experts of its number, in order or in turn, and clips by its own norm.  A dump shows any
 * rank's copy of what all have. */
static void clipping_along_ep_is_named(void **state)
{
    enum { RANKS = 2 };
    static const char words[] = "each of 2 ranks along ep clips by the norm of what it has: its experts, ";
    (void)state;
    for (int turn = 0; turn < 2; turn++)
        for (int shown = 0; shown < RANKS; shown++) {
            struct run r;
            double sum[RANKS] = { 0 };
            open_run(&r, untied, F32);
            const struct hyperparameters h = golden_hyperparameters(&r.golden, "adamw");
            const double clip = clip_scale(&h, tensor_get(*record_of(&r, "adamw/norm"), 0));
            const int E = (int)r.golden.config.mixture.E;
            for (int i = 0; i < model_param_count(&r.golden.config); i++) {
                const struct param_spec p = model_param(&r.golden.config, i);
                char name[RECORD_NAME];
                snprintf(name, sizeof name, "grad/%s", p.name);
                const struct tensor g = *record_of(&r, name);
                const int owner = p.expert < 0 ? -1 : turn ? p.expert % RANKS : p.expert > E / RANKS;
                for (int64_t k = 0; k < tensor_count(g); k++)
                    for (int rank = 0; rank < RANKS; rank++)
                        if (owner < 0 || owner == rank) sum[rank] += pow(tensor_get(g, k), 2);
            }
            /* Expert 3 of 5 is the second rank's in both orders. */
            scale_states(&r, one_param, clip_scale(&h, sqrt(sum[shown])) / clip, true, true);
            expect_state(&r, words);
            scale_states(&r, one_param, clip / clip_scale(&h, sqrt(sum[shown])), true, true);
            scale_states(&r, matrix_of_expert(&r, 3), clip_scale(&h, sqrt(sum[1])) / clip, true, true);
            check_steps(&r, "adamw", NULL);
            if (strstr(r.first.name, "experts.3.") == NULL || strncmp(r.first.mistake, words, strlen(words)) != 0)
                fail_msg("%s: \"%s\"", r.first.name, r.first.mistake);
            close_run(&r);
        }
}

/* ---- work -------------------------------------------------------------------------------------------------------- */

/* How often gradients are read, if the first `wrong` states of the first step have a factor that nothing explains. */
static int gradients_read(struct run *r, int wrong)
{
    for (int i = 0; i < wrong; i++) {
        char name[RECORD_NAME];
        snprintf(name, sizeof name, "adamw/1/exp_avg/%s", model_param(&r->golden.config, i).name);
        const struct tensor t = *record_of(r, name);
        for (int64_t k = 0; k < tensor_count(t); k++) tensor_set(t, k, tensor_get(t, k) * (k % 2 ? 1.07 : 0.9));
    }
    r->gradients = 0;
    check_steps(r, "adamw", NULL);
    return r->gradients;
}

/* The squares of each rank's gradients are added up once in a step, not again for every number of ranks and tensor. */
static void norms_are_added_up_once(void **state)
{
    enum { WRONG = 12 };
    struct run r;
    (void)state;
    open_run(&r, gpt2, F32);
    const int params = model_param_count(&r.golden.config), right = gradients_read(&r, 0),
              wrong = gradients_read(&r, WRONG) - right;
    print_message("%d gradients read; %d more to say what is wrong\n", right, wrong);
    assert_true(r.wrong >= WRONG);
    if (wrong > 2 * params + 8 * r.wrong)
        fail_msg("%d gradients are read for %d wrong tensors of %d", wrong, r.wrong, params);
    close_run(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss_scales_are_named), cmocka_unit_test(clipping_by_own_norms_is_named),
        cmocka_unit_test(clipping_by_flat_shards_is_named),
        cmocka_unit_test(clipping_before_the_sum_of_copies_is_named), cmocka_unit_test(norms_of_groups_are_named),
        cmocka_unit_test(clipping_by_another_norm_is_no_beta), cmocka_unit_test(clipping_along_ep_is_named),
        cmocka_unit_test(norms_are_added_up_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
