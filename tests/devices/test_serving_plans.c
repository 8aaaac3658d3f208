/* Plans of serving: a simulation has the engine's iterations, with the engine's times on every mesh; tables are read,
 * written and interpolated; the time of a step is the sum of its parts; a search tries every plan.
 * ranks: 1 2 4
 */
#include "tests/devices/trained.h"
#include "emulated_devices/serve/engine.h"
#include "emulated_devices/serve/plans/search.h"
#include "emulated_devices/serve/plans/trial.h"
#include "emulated_devices/serve/simulation.h"
#include "ref/io/output.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

enum { REQUESTS = 12, LONGEST = 20 };

struct asked { struct request request[REQUESTS]; int32_t token[REQUESTS][LONGEST]; char name[REQUESTS][8]; };

static int64_t drawn(const char *what, int i, int64_t most)
{
    return 1 + (int64_t)(random_uniform(7, random_stream(what), (uint64_t)i) * (double)most);
}

/* Requests that come one after another, while others run. */
static struct requests make_requests(struct asked *a, int64_t V)
{
    for (int r = 0; r < REQUESTS; r++) {
        const int64_t count = drawn("prompt", r, 9);
        snprintf(a->name[r], sizeof a->name[r], "%d", r);
        for (int i = 0; i < LONGEST; i++)
            a->token[r][i] = (int32_t)drawn("token", (r % 3 == 0 ? 0 : 100 * r) + i, V) - 1;
        a->request[r] = (struct request){ .name = a->name[r], .prompt = { a->token[r], count, count },
                                          .most = drawn("most", r, 8), .how = { .temperature = 1, .top_p = 1 },
                                          .arrival = r * INT64_C(9000000) };
    }
    return (struct requests){ a->request, REQUESTS };
}

static const struct serving_limits tight = { .step_tokens = 7, .running = 4, .chunk = 4, .shares = true, .blocks = 7,
                                             .block_tokens = 3 };

static struct cluster toy;

static struct plan serving_plan(int dp, int tp, int pp)
{
    struct plan p = case_plan(dp, tp, pp);
    ASSERT_ALL(cluster_find(&toy, CLUSTER_USUAL, &err) == OK, "%s", err.text);
    p.optimizer = &no_optimizer, p.hyper = no_optimizer.usual, p.cluster = &toy;
    p.B = dp, p.micros = 1, p.S = p.model.S = LONGEST, p.dtype = F32;
    return p;
}

/* ---- iterations -------------------------------------------------------------------------------------------------- */

/* The requests and tokens of a scheduler's iterations so far. */
struct chain { uint64_t composition; int64_t count; };
enum { SCHEDULERS = 8 };

static void follow(void *context, int64_t scheduler, const struct iteration *now, int64_t began, int64_t ended)
{
    struct chain *const chain = (struct chain *)context + scheduler;
    (void)began, (void)ended;
    *chain = (struct chain){ iteration_composition(chain->composition, now), chain->count + 1 };
}

/* The engine with numbers, on the devices of this test.
 * @param[out] chain  [SCHEDULERS] of its iterations, where this device draws. */
static void engine_chain(const struct plan *p, const struct requests *requests, struct chain *chain)
{
    struct plan checked = *p;
    const struct serving_job job = { .plan = &checked, .requests = requests, .limits = tight,
                                     .watch = { chain, follow } };
    struct serving_record record;
    struct device device;
    struct comm comm;
    ASSERT_ALL(plan_check(&checked, &err) == OK, "%s", err.text);
    ASSERT_ALL(device_open(&device, NULL, p->dtype, 0, &err) == OK, "%s", err.text);
    clock_restart(&device.clock, p->cluster, p->dtype);
    ASSERT_ALL(comm_open(&comm, &device, &err) == OK, "%s", err.text);
    ASSERT_ALL(serve_requests(&comm, &job, &record, &err) == OK, "%s", err.text);
    serving_record_free(&record);
    comm_close(&comm), device_close(&device);
}

static const struct trial *replayed;
static int64_t replayed_at[SCHEDULERS];

static int64_t engine_takes(void *context, int64_t replica, const struct iteration *const *part)
{
    (void)context, (void)part;
    return replayed->of[replica].step[replayed_at[replica]++].takes;
}

static int64_t preempted;

/* Engine with numbers, engine without, and simulation: the same tokens of the same requests, one after another. */
static void check_iterations(struct plan p)
{
    struct asked asked;
    char text[300];
    const struct requests requests = make_requests(&asked, p.model.V);
    struct time_profile profile = { 0 };
    struct plan_costs costs = plan_costs_of(&profile, &p.model, p.cluster, p.dtype);
    const int dp = p.mesh.size[DP], tp = p.mesh.size[TP];
    struct trial trial = { .costs = &costs, .plan = { dp, p.mesh.size[PP], { 1, tp }, { 1, tp } } };
    if (plan_check(&p, &err) != OK || serving_takes(&p, &tight, &err) != OK) return;
    describe(&p, text, sizeof text);
    struct chain numbers[SCHEDULERS] = { { 0 } }, own[SCHEDULERS] = { { 0 } };
    engine_chain(&p, &requests, numbers);
    ASSERT_ALL(trial_run(&trial, &p, &requests, &tight, &err) == OK, "%s: %s", text, err.text);
    struct simulated_serving simulated;
    const struct simulation simulation = { .requests = &requests, .replicas = dp, .together = 1, .limits = tight,
                                           .takes = engine_takes, .watch = { own, follow } };
    replayed = &trial, memset(replayed_at, 0, sizeof replayed_at);
    ASSERT_ALL(simulation_run(&simulation, &simulated, &err) == OK, "%s: %s", text, err.text);
    for (int r = 0; r < dp; r++) {
        const struct trial_steps *const steps = &trial.of[r];
        const uint64_t engine = steps->step[steps->count - 1].composition;
        ASSERT_ALL(numbers[r].count == 0 || (numbers[r].count == steps->count && numbers[r].composition == engine),
                   "%s: replica %d has other iterations without numbers than with them", text, r);
        ASSERT_ALL(own[r].count == steps->count && own[r].composition == engine,
                   "%s: replica %d has other iterations in the simulation than in the engine", text, r);
        preempted += simulated.counts[r].preemptions;
    }
    simulated_serving_free(&simulated), trial_free(&trial), profile_free(&profile);
}

static void test_iterations(void **state)
{
    (void)state;
    preempted = 0;
    FOR_MESHES(dp, tp, pp) check_iterations(serving_plan(dp, tp, pp));
    ASSERT_ALL(preempted > 0, "nobody was preempted");
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

#define SECONDS(list, ...) profile_seconds(&profile, list, (double[]){ __VA_ARGS__ })

static void test_between_rows(void **state)
{
    (void)state;
    struct time_profile profile = { 0 };
    static const double rows[][4] = { { 1, 8, 8, 2 }, { 1, 16, 8, 4 }, { 4, 8, 8, 5 }, { 4, 16, 8, 7 } };
    for (size_t i = 0; i < 4; i++)
        ASSERT_ALL(profile_add(&profile, PROFILE_GEMM, rows[3 - i], rows[3 - i][3]), "memory");
    ASSERT_ALL(fabs(SECONDS(PROFILE_GEMM, 1, 8, 8) - 2e-6) < 1e-15, "a row is not itself");
    ASSERT_ALL(fabs(SECONDS(PROFILE_GEMM, 2, 8, 8) - 3e-6) < 1e-15, "between two rows");
    ASSERT_ALL(fabs(SECONDS(PROFILE_GEMM, 2, 12, 8) - 4e-6) < 1e-15, "between four rows");
    ASSERT_ALL(fabs(SECONDS(PROFILE_GEMM, 8, 16, 8) - 14e-6) < 1e-15, "beyond the last row");
    ASSERT_ALL(fabs(SECONDS(PROFILE_GEMM, 1, 2, 2) - 2e-6) < 1e-15, "below the first row");
    const double message[] = { 1, 4, 0 };
    ASSERT_ALL(profile_add(&profile, PROFILE_ALL_REDUCE, message, 9), "memory");
    ASSERT_ALL(SECONDS(PROFILE_ALL_REDUCE, 1, 2, 0) < 0, "a group of two has the time of one of four");
    ASSERT_ALL(SECONDS(PROFILE_SEND, 1, 2, 0) < 0, "a list without rows has a time");
    profile_free(&profile);
}

static void write_text(const char *folder, const char *text)
{
    char path[300];
    snprintf(path, sizeof path, "%s/comm", folder), mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/comm/G", folder), mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/comm/G/all_reduce.csv", folder);
    FILE *const f = fopen(path, "w");
    ASSERT_ALL(f && fputs(text, f) >= 0 && fclose(f) == 0, "%s cannot be written", path);
}

/* As the repository has them: other columns and other formats are passed over. */
static void test_files(void **state)
{
    (void)state;
    struct time_profile profile = { 0 }, again = { 0 };
    char folder[200];
    snprintf(folder, sizeof folder, "%s/plans%d-XXXXXX", temporary_folder(), test_rank);
    ASSERT_ALL(mkdtemp(folder) != NULL, "no folder");
    write_text(folder, "gpu,num_nodes,num_gpus_per_node,dtype,size(kb),time(us),more\r\nG,1,8,half,0,14.0,1\r\n"
                       "G,1,8,float,0,99.0,1\nG,1,8,half,4,18.0,1\n");
    ASSERT_ALL(profile_read(&profile, folder, "G", BF16, &err) == OK, "%s", err.text);
    ASSERT_ALL(fabs(SECONDS(PROFILE_ALL_REDUCE, 1, 8, 2) - 16e-6) < 1e-15, "rows of another format count");
    ASSERT_ALL(profile_write(&profile, folder, "H", BF16, &err) == OK, "%s", err.text);
    ASSERT_ALL(profile_read(&again, folder, "H", BF16, &err) == OK, "%s", err.text);
    ASSERT_ALL(again.list[PROFILE_ALL_REDUCE].rows == 2 &&
               memcmp(again.list[PROFILE_ALL_REDUCE].row, profile.list[PROFILE_ALL_REDUCE].row,
                      2 * sizeof(struct profile_row)) == 0, "rows are others after they were written");
    static const struct { const char *text, *says; } wrong[] = {
        { "gpu,num_nodes,dtype,size(kb),time(us)\n", "there is no column num_gpus_per_node" },
        { "num_nodes,num_gpus_per_node,dtype,size(kb),time(us)\n1,8,half,x,1\n", ":2: size(kb): x; must be a number" },
        { "num_nodes,num_gpus_per_node,dtype,size(kb),time(us)\n1,8,half\n", ":2: has no size(kb)" },
        { "num_nodes,num_gpus_per_node,dtype,size(kb),time(us)\n1,8,float,1,1\n", "has no row with dtype half" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        write_text(folder, wrong[i].text);
        ASSERT_ALL(profile_read(&profile, folder, "G", BF16, &err) == ERR_FORMAT && strstr(err.text, wrong[i].says),
                   "instead of \"%s\": %s", wrong[i].says, err.text);
    }
    ASSERT_ALL(profile_read(&profile, folder, "none", BF16, &err) == ERR_FILE, "a folder that is not there");
    ASSERT_ALL(profile_read(&profile, folder, "G", F64, &err) == ERR_FORMAT, "tables have no fp64");
    profile_free(&profile), profile_free(&again);
}

/* ---- costs ------------------------------------------------------------------------------------------------------- */

static void add(struct time_profile *profile, enum profile_list list, double a, double b, double c, double d, double us)
{
    ASSERT_ALL(profile_add(profile, list, (double[]){ a, b, c, d }, us), "memory");
}

/* Every product takes 1 us, attention 10, single queries 19 and 1 for each key; each message what its kind says. */
static void test_step_by_hand(void **state)
{
    (void)state;
    struct plan p = serving_plan(1, 1, 1);
    struct time_profile profile = { 0 };
    const struct model_config *const c = &p.model;
    struct plan_costs costs = plan_costs_of(&profile, c, &toy, F32);
    static const double us[] = { 100, 200, 400, 800, 1600 };
    for (int corner = 0; corner < 8; corner++)
        add(&profile, PROFILE_GEMM, corner & 1 ? 64 : 1, corner & 2 ? 1e6 : 1, corner & 4 ? 1e6 : 1, 0, 1);
    for (int corner = 0; corner < 4; corner++) {
        const double one = corner & 1 ? 64 : 1, other = corner & 2 ? 64 : 1;
        add(&profile, PROFILE_ATTENTION, (double)c->A, one, 1, other, 10);
        add(&profile, PROFILE_DECODE, (double)c->A, one, 1, other, 19 + other);
    }
    for (int l = 0; l < 5; l++)
        for (int n = 2; n <= 4; n *= 2) {
            double key[2];
            group_columns(&toy, n, key);
            add(&profile, (enum profile_list)l, key[0], key[1], 0, 0, us[l]);
            add(&profile, (enum profile_list)l, key[0], key[1], 1e9, 0, us[l]);
        }
    struct sequence s = { .prompt = 6, .count = 6 };
    struct token_piece whole = { &s, 0, 4, true, 0 }, one = { &s, 5, 1, true, 0 };
    const struct iteration prompt = { .piece = &whole, .pieces = 1, .tokens = 4, .samples = 1 },
                           answer = { .piece = &one, .pieces = 1, .tokens = 1, .samples = 1 };
    int attention = 0;
    for (int i = 0; i < costs.matrices; i++) attention += costs.matrix[i].attention;
    const double L = (double)c->L, a = attention, f = costs.matrices - attention;
    const struct iteration *part[2] = { &prompt, NULL };
    /* A group of one sends nothing: of two cells of one device each there is the all-gather to a group of two alone. */
    const struct { struct serving_plan plan; double layer, rest; } cases[] = {
        { { 1, 1, { 1, 1 }, { 1, 1 } }, a + f + 10, 1 },
        { { 1, 1, { 1, 2 }, { 1, 2 } }, a + f + 10 + 2 * 100, 1 },
        { { 1, 1, { 2, 1 }, { 1, 2 } }, a + f + 10 + 200 + 400, 1 },
        { { 1, 1, { 1, 2 }, { 2, 1 } }, a + f + 10 + 400 + 200, 1 },
        { { 1, 2, { 1, 1 }, { 1, 1 } }, a + f + 10, 1 + 1600 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct step_cost cost = step_cost_of(&costs, &cases[i].plan, part);
        ASSERT_ALL(costs.missing[0] == '\0', "case %d: %s", (int)i, costs.missing);
        ASSERT_ALL(fabs(1e6 * cost.tables - (L * cases[i].layer + cases[i].rest)) < 1e-6 * L * 1000,
                   "case %d: %g us; it must be %g", (int)i, 1e6 * cost.tables, L * cases[i].layer + cases[i].rest);
    }
    part[0] = &answer;
    const struct step_cost single = step_cost_of(&costs, &cases[0].plan, part);
    ASSERT_ALL(fabs(1e6 * single.tables - (L * (a + f + 25) + 1)) < 1e-6,
               "a query beside 6 keys takes another time than its table's");
    ASSERT_ALL(fabs(single.busy - single.tables) < 1e-12, "one device is busy for another time than it takes");
    costs.calibration = (struct calibration){ .factor = 2, .rest = 1e-6, .floor = 1 };
    ASSERT_ALL(step_cost_of(&costs, &cases[0].plan, part).seconds == 1, "the floor does not hold");
    profile_free(&profile);
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

static void test_search(void **state)
{
    (void)state;
    struct plan p = serving_plan(1, 1, 1);
    struct asked asked;
    struct time_profile profile = { 0 };
    struct plan_answer answer;
    int64_t batch;
    ASSERT_ALL(model_config_preset(&p.model, &batch, "llama-tiny", &err) == OK, "%s", err.text);
    p.S = p.model.S = LONGEST;
    const struct requests requests = make_requests(&asked, p.model.V);
    struct plan_question q = { .base = &p, .requests = &requests, .limits = tight, .devices = 4, .goal = GOAL_LATENCY,
                               .waits_percent = 40, .profile = &profile };
    ASSERT_ALL(plans_search(&q, &answer, &err) == OK, "%s", err.text);
    for (int64_t i = 1; i < answer.outcomes; i++)
        ASSERT_ALL(answer.outcome[i - 1].latency <= answer.outcome[i].latency, "plan %d is better than that before it",
                   (int)i);
    for (int64_t i = 0; i < answer.outcomes; i++) {
        const struct serving_plan *const o = &answer.outcome[i].plan;
        ASSERT_ALL(o->replicas * o->stages * plan_stage_size(o) == 4 && o->feedforward.cells * o->feedforward.devices ==
                   plan_stage_size(o), "plan %d has other than 4 devices", (int)i);
    }
    ASSERT_ALL(answer.outcomes > 3 && answer.check.outcome >= 0 && answer.check.differ == 0 &&
               answer.check.iterations > 0, "no plan was run by the engine");
    plan_answer_free(&answer);
    q.goal = GOAL_ENERGY;
    ASSERT_ALL(plans_search(&q, &answer, &err) == ERR_USAGE && strstr(err.text, "does not state the watts"), "%s",
               err.text);
    toy.costs.watts = 100;
    ASSERT_ALL(plans_search(&q, &answer, &err) == OK, "%s", err.text);
    for (int64_t i = 0; i < answer.outcomes; i++) {
        const struct plan_outcome *const o = &answer.outcome[i];
        ASSERT_ALL(o->joules > 100 * 0.4 * 4 * o->seconds && o->joules < 100 * 4 * o->seconds,
                   "plan %d draws %g J in %g s", (int)i, o->joules, o->seconds);
    }
    plan_answer_free(&answer), profile_free(&profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_iterations), MPI_TEST(test_between_rows), MPI_TEST(test_files), MPI_TEST(test_step_by_hand),
        MPI_TEST(test_search),
    };
    return MPI_RUN("plans of serving", tests);
}
