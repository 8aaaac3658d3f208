/* settings.c -- what a case sets in a plan beside its model: schemes, optimizer, conventions, speeds.
 *
 * Callers: space.c, which makes plans of choices, and tests.  Errors are those of a schedule by its name: ERR_USAGE,
 * ERR_PLAN, ERR_FILE, ERR_FORMAT.
 */
#include "emulated_devices/verify/cases/case.h"
#include "ref/model/balance.h"
#include <string.h>

enum { MOST_PARTS = 64 };

struct plan case_plan(int dp, int tp, int pp)
{
    struct plan p = {
        .model = { .tied = true, .L = 2 * pp + 1 }, .B = CASE_BATCH, .S = CASE_TOKENS,
        .micros = CASE_BATCH / dp >= 2 ? 2 : 1, .chunks = 1, .ep = 1, .etp = 1, .degree = -1, .dtype = F64, .seed = 7,
        .tensor = tensor_scheme_at(0)->head.name, .attention = attention_scheme_at(0)->head.name,
        .dispatch = expert_scheme_at(0)->head.name,
        .data = { .scheme = data_scheme_at(0)->head.name, .bucket = 1000 },
        .schedule = schedule_generator_at(0)->head.name,
        .allreduce = algorithm_find(ALLREDUCE, NULL)->name, .hyper = { .lr = 0.05 },
    };
    const int size[AXIS_COUNT] = { [DP] = dp, [TP] = tp, [PP] = pp, [CP] = 1, [EP] = 1 };
    /* The name and the sizes are right by construction, so no error is read. */
    (void)optimizer_find(&p.optimizer, "sgd", NULL);
    (void)mesh_make(&p.mesh, size, NULL);
    case_model_at(0)->take(&p);
    return p;
}

void case_take_context(struct plan *plan, int cp, const char *attention)
{
    int size[AXIS_COUNT];
    memcpy(size, plan->mesh.size, sizeof size);
    size[CP] = cp;
    (void)mesh_make(&plan->mesh, size, NULL);
    plan->attention = attention;
}

/* The prediction is right for some tokens; only messages depend on it. */
static const struct affinity *guess(int parts)
{
    /* The tables are static: a plan keeps a pointer to them. */
    static int32_t part[MOST_PARTS + 1][CASE_VOCABULARY];
    static struct affinity all[MOST_PARTS + 1];
    static struct affinity_pair pair[MOST_PARTS + 1][2];
    if (parts > MOST_PARTS) return NULL;
    for (int v = 0; v < CASE_VOCABULARY; v++) part[parts][v] = v * 7 % (parts + 1) - 1;
    for (int i = 0; i < 2; i++) pair[parts][i] = (struct affinity_pair){ 3 * i, 1 + i, (i + 1) % parts };
    all[parts] = (struct affinity){ .V = CASE_VOCABULARY, .parts = parts, .part = part[parts], .pairs = 2,
                                    .pair = pair[parts] };
    return &all[parts];
}

void case_take_experts(struct plan *plan, int ep, const char *dispatch)
{
    const struct expert_scheme *s;
    plan->ep = ep;
    plan->dispatch = dispatch;
    if (!expert_scheme_find(&s, dispatch, NULL) && s->predicts) plan->affinity = guess(ep);
}

/* Four microbatches if the batch allows, so that schedules with the same order of additions can be compared by bits. */
enum error_code case_take_schedule(struct plan *plan, const char *schedule, struct error *err)
{
    static const int micros[] = { 4, 2, 1 }, chunks[] = { 2, 1 };
    const struct schedule_generator *g = schedule_generator(schedule, err);
    if (g == NULL) return err->code;
    plan->schedule = g->head.name;
    for (int m = 0; m < 3; m++)
        for (int c = 0; c < 2; c++) {
            plan->micros = micros[m];
            plan->chunks = g->chunks ? g->chunks : chunks[c];
            if (plan_check(plan, err) == OK) return OK;
        }
    return err->code;
}

/* The gradient of key biases is only rounding noise; with its default eps Adam would turn it into full steps. */
void case_take_low_rank(struct plan *plan, const struct optimizer *optimizer)
{
    plan->optimizer = optimizer;
    plan->hyper = optimizer->usual;
    plan->hyper.clip = 0, plan->hyper.eps = 1e-4;
    plan->hyper.rank = 4, plan->hyper.refresh = 2, plan->hyper.history = 2;
}

/* eps is large enough that the slope's rounding error is small compared with the slope; lr is small enough that three
 * steps do not diverge, whichever model and initial weights a case has. */
void case_take_mezo(struct plan *plan, int sides)
{
    (void)optimizer_find(&plan->optimizer, "mezo", NULL);
    plan->hyper = (struct hyperparameters){ .lr = 0.002, .distance = 0.01 };
    plan->perturb = sides;
}

void case_take_optimizer(struct plan *plan, const struct optimizer *optimizer, int sides)
{
    if (optimizer->low_rank) case_take_low_rank(plan, optimizer);
    else if (optimizer_draws(optimizer)) case_take_mezo(plan, sides);
    else {
        plan->optimizer = optimizer;
        plan->hyper = optimizer->usual;
        plan->hyper.clip = 0, plan->hyper.eps = 1e-4;
    }
}

/* The norm of the first gradients is 2 to 10.  Whether two singular values of a gradient are near each other depends on
 * the weights: cases of low-rank optimizers keep theirs. */
void case_take_profile(struct plan *plan, int profile)
{
    (void)conventions_parse(&plan->hyper.as, profile_names[profile], NULL);
    if (!plan->optimizer->low_rank) plan->model.initial = (int)convention(&plan->hyper.as, INITIAL);
    plan->model.mixture.balance = balance_rule_of(&plan->hyper.as);
    if (!plan->optimizer->forward_only) plan->hyper.weight_decay = 0.1, plan->hyper.clip = 1;
}

void case_take_data(struct plan *plan, const struct data_scheme *scheme)
{
    plan->data.scheme = scheme->head.name;
    plan->data.outer = (struct outer){ .every = scheme->outer.every > 0 ? CASE_LOCAL_STEPS : 0 };
}

int case_steps(const struct plan *plan) { return data_outer(&plan->data).every > 0 ? CASE_STEPS_APART : CASE_STEPS; }

void case_take_speeds(struct plan *plan)
{
    const int P = plan->mesh.size[PP];
    /* Speeds 5 and 2 have no common factor, so layers cannot be divided exactly. */
    for (int d = 0; d < P; d++) plan->speed[d] = d < (P + 1) / 2 ? 5 : 2;
}
