/* Serving: on every mesh and for every model each request's answer is the one that it gets alone on one device, bit by
 * bit, whatever shares its iterations; with small blocks, cut prompts, shared prefixes and preemptions.
 * ranks: 1 2 4
 * verify ranks: 3 6
 */
#include "tests/devices/trained.h"
#include "emulated_devices/serve/engine.h"
#include "ref/numeric/philox.h"
#include "ref/text/generate.h"

enum { REQUESTS = 9, LONGEST = 14 };

struct asked { struct request request[REQUESTS]; int32_t token[REQUESTS][LONGEST], stop[1]; char name[REQUESTS][8]; };

static int64_t drawn(const char *what, int i, int64_t most)
{
    return 1 + (int64_t)(random_uniform(5, random_stream(what), (uint64_t)i) * (double)most);
}

/* Prompts of 1 to 8 tokens, the first four of which are alike in two of three; answers of 1 to 6; greedy and drawn. */
static struct requests make_requests(struct asked *a, const struct plan *p)
{
    *a = (struct asked){ .stop = { 3 } };
    for (int r = 0; r < REQUESTS; r++) {
        struct request *const q = &a->request[r];
        const int64_t count = drawn("prompt", r, 8);
        snprintf(a->name[r], sizeof a->name[r], "%d", r);
        for (int i = 0; i < LONGEST; i++)
            a->token[r][i] = (int32_t)((i < 4 && r % 3 ? drawn("shared", i, p->model.V)
                                        : drawn("token", 100 * r + i, p->model.V)) - 1);
        *q = (struct request){ .name = a->name[r], .prompt = { a->token[r], count, count }, .most = drawn("most", r, 6),
                               .how = { .temperature = r % 2 ? 0.7 : 0, .top_k = r % 4 == 1 ? 5 : 0,
                                        .top_p = r % 4 == 3 ? 0.8 : 1, .seed = 40 + (uint64_t)r },
                               .stop = { a->stop, r % 3 == 0, 1 } };
    }
    return (struct requests){ a->request, REQUESTS };
}

/* Room for the longest request, and a little more: sequences are preempted. */
static const struct serving_limits tight = { .step_tokens = 7, .running = 4, .chunk = 4, .shares = true, .blocks = 5,
                                             .block_tokens = 3 };

/* Replicas that compute prompts alone, and nano-batches, in the plans that follow. */
static int prompt_replicas;
static struct nano_asked nano;

static void serve(const struct plan *p, const struct requests *requests, struct serving_limits limits, bool check,
                  struct serving_record *record)
{
    struct plan checked = *p;
    const struct serving_job job = { .plan = &checked, .requests = requests, .limits = limits, .check = check,
                                     .prompt_replicas = prompt_replicas, .nano = nano };
    struct device device;
    struct comm comm;
    ASSERT_ALL(plan_check(&checked, &err) == OK, "%s", err.text);
    ASSERT_ALL(device_open(&device, NULL, p->dtype, 0, &err) == OK, "%s", err.text);
    ASSERT_ALL(comm_open(&comm, &device, &err) == OK, "%s", err.text);
    const enum error_code e = serve_requests(&comm, &job, record, &err);
    ASSERT_ALL(e == OK, "%s", err.text);
    comm_close(&comm), device_close(&device);
}

static struct plan serving_plan(int dp, int tp, int pp)
{
    struct plan p = case_plan(dp, tp, pp);
    p.optimizer = &no_optimizer, p.hyper = no_optimizer.usual;
    p.B = dp, p.micros = 1, p.S = p.model.S = LONGEST, p.dtype = F32;
    return p;
}

/* The answer of a request alone, token after token, as `orrery sample` has it. */
static bool is_alone(struct transformer *model, const struct request *r, const int32_t *token, int64_t count,
                     char *what, size_t size)
{
    struct token_ids ids = { 0 };
    token_ids_append(&ids, r->prompt.id, r->prompt.count);
    const enum error_code e = generate(model, &ids, r->most, &r->how, r->stop.id, (int)r->stop.count, NULL, NULL, &err);
    bool same = !e && ids.count - r->prompt.count == count;
    snprintf(what, size, "request %s has %d tokens; alone it has %d", r->name, (int)count,
             (int)(ids.count - r->prompt.count));
    for (int64_t i = 0; i < count && same; i++) {
        same = ids.id[r->prompt.count + i] == token[i];
        if (!same) snprintf(what, size, "request %s: token %d is %d; alone it is %d", r->name, (int)i, (int)token[i],
                            (int)ids.id[r->prompt.count + i]);
    }
    token_ids_free(&ids);
    return same;
}

static void must_be_alone(const struct plan *p, const struct requests *requests, const struct serving_record *record)
{
    struct transformer model;
    char what[120] = "", plan[300];
    bool same = true;
    describe(p, plan, sizeof plan);
    if (test_rank == 0) {
        same = transformer_open(&model, &p->model, p->dtype, p->seed, &err) == OK;
        for (int64_t i = 0; i < requests->count && same; i++)
            same = is_alone(&model, &requests->at[i], record->token + record->first[i], record->answer[i].tokens, what,
                            sizeof what);
        transformer_close(&model);
    }
    ASSERT_ALL(same, "%s: %s", plan, what);
}

static int64_t preempted, shared, came_back, checked_plans, cut_iterations;
static double gained;                   /* seconds of virtual time by which nano-batches were faster */

/* Engines together take at least as long as the busiest one, and at most as long as one after another. */
static void must_overlap(const struct nano_counts *counts)
{
    double sum = 0, most = 0;
    for (enum overlap_engine e = 0; e < OVERLAP_ENGINES; e++)
        sum += counts->engine[e], most = counts->engine[e] > most ? counts->engine[e] : most;
    for (int i = 0; i < NANO_CLASSES; i++) {
        const bool cuts = counts->cut[i].batches[0] * counts->cut[i].batches[1] > 1;
        cut_iterations += cuts ? counts->iterations[i] : 0;
    }
    gained += sum - counts->passed;
    assert_true(counts->passed >= most * (1 - 1e-9) && counts->passed <= sum * (1 + 1e-9));
}


static void check_served_with(struct plan p, struct serving_limits limits)
{
    struct serving_record record;
    struct asked asked;
    struct verdict all = { .first_wrong = -1 };
    char plan[300];
    if (plan_check(&p, &err) != OK || serving_takes(&p, &limits, &err) != OK) return;
    checked_plans++;
    const struct requests requests = make_requests(&asked, &p);
    serve(&p, &requests, limits, true, &record);
    for (int64_t i = 0; i < requests.count && test_rank == 0; i++)
        verdict_add(&all, &record.answer[i].verdict, requests.at[i].name);
    describe(&p, plan, sizeof plan);
    ASSERT_ALL(all.wrong == 0, "%s: %s", plan, all.why);
    ASSERT_ALL(test_rank > 0 || all.right + all.open == all.tokens, "%s: tokens are not all judged", plan);
    ASSERT_ALL(!p.model.exact || all.open == 0, "%s: exact sums leave %d tokens open", plan, (int)all.open);
    if (p.model.exact) must_be_alone(&p, &requests, &record);
    for (int64_t r = 0; r < record.replicas && test_rank == 0; r++) {
        preempted += record.replica[r].counts.preemptions, shared += record.replica[r].counts.shared_tokens;
        came_back += record.replica[r].counts.ins;
        must_overlap(&record.replica[r].nano);
        if (record.replica[r].free_blocks != limits.blocks || record.replica[r].free_host != limits.host_blocks)
            all.wrong++;
    }
    ASSERT_ALL(all.wrong == 0, "%s: at the end blocks of the cache are not free", plan);
    serving_record_free(&record);
}

static void check_served(struct plan p) { check_served_with(p, tight); }

static struct plan exactly(struct plan p)
{
    p.model.exact = SUMS_EXACT;
    return p;
}

static void test_every_mesh(void **state)
{
    (void)state;
    preempted = shared = 0;
    FOR_MESHES(dp, tp, pp) check_served(exactly(serving_plan(dp, tp, pp)));
    ASSERT_ALL(test_rank > 0 || preempted > 0, "nobody was preempted");
    ASSERT_ALL(test_rank > 0 || shared > 0, "no prefix was shared");
}

static void test_every_model(void **state)
{
    (void)state;
    for (int i = 0; case_model_at(i); i++) {
        if (!tier_takes(i + test_size, 3)) continue;
        struct plan p = serving_plan(test_size == 4 ? 2 : 1, test_size == 4 ? 2 : test_size, 1);
        case_model_at(i)->take(&p);
        p.dtype = F32, p.S = p.model.S = LONGEST;
        p.model.dropout_embedding = p.model.dropout_residual = p.model.dropout_attention = 0;
        p.model.mixture.balance_coefficient = p.model.mixture.z_coefficient = p.model.mixture.sequence_coefficient = 0;
        check_served(p);
        check_served(exactly(p));
    }
}

static void test_formats(void **state)
{
    (void)state;
    static const enum dtype formats[] = { BF16, F16, F64 };
    for (int i = 0; i < 3; i++) {
        struct plan p = serving_plan(1, test_size, 1);
        p.dtype = formats[i];
        check_served(p);
        if (p.dtype != F64) check_served(exactly(p));
    }
}

/* Blocks of preempted sequences go to the host and come back; with little room there, some are computed again. */
static void test_swap(void **state)
{
    (void)state;
    preempted = came_back = 0;
    for (int64_t host = 1; host <= 7; host += 3) {
        struct serving_limits limits = tight;
        limits.host_blocks = host, limits.shares = host != 4;
        check_served_with(exactly(serving_plan(1, test_size, 1)), limits);
        check_served_with(exactly(serving_plan(1, 1, test_size)), limits);
        check_served_with(serving_plan(1, test_size, 1), limits);
    }
    ASSERT_ALL(test_rank > 0 || (preempted > 0 && came_back > 0), "%d preemptions, and %d blocks came back",
               (int)preempted, (int)came_back);
}

/* Rows of prompts and answers are dealt along cp, fewer than devices, too. */
static void test_context(void **state)
{
    (void)state;
    if (test_size == 1) return;
    checked_plans = 0;
    for (int cp = 2; cp <= test_size; cp++) {
        if (test_size % cp != 0) continue;
        struct plan p = serving_plan(1, test_size / cp, 1), q = serving_plan(1, 1, test_size / cp);
        case_take_context(&p, cp, "ring"), case_take_context(&q, cp, "ring");
        p.S = q.S = p.model.S = q.model.S = 2 * cp * ((LONGEST + 2 * cp - 1) / (2 * cp));
        check_served(exactly(p)), check_served(exactly(q)), check_served(p);
    }
    ASSERT_ALL(checked_plans > 0, "no plan with cp was served: %s", err.text);
}

/* Replicas share experts by every scheme that needs no more than its name, some with nothing to compute. */
static void test_experts(void **state)
{
    (void)state;
    if (test_size == 1) return;
    checked_plans = 0;
    for (int i = 0; expert_scheme_at(i); i++) {
        struct plan p = serving_plan(test_size, 1, 1);
        if (expert_scheme_at(i)->predicts) continue;
        case_take_qwen3_moe(&p);
        case_take_experts(&p, test_size, expert_scheme_at(i)->head.name);
        p.dtype = F32, p.S = p.model.S = LONGEST;
        p.model.dropout_embedding = p.model.dropout_residual = p.model.dropout_attention = 0;
        p.model.mixture.balance_coefficient = p.model.mixture.z_coefficient = p.model.mixture.sequence_coefficient = 0;
        check_served(exactly(p)), check_served(p);
    }
    ASSERT_ALL(checked_plans >= 8, "%d plans with experts were served: %s", (int)checked_plans, err.text);
}

/* Pages of prompts travel to replicas for answers. */
static void test_apart(void **state)
{
    (void)state;
    struct serving_limits limits = tight;
    limits.host_blocks = 4;
    for (prompt_replicas = 1; prompt_replicas < test_size; prompt_replicas++) {
        check_served_with(exactly(serving_plan(test_size, 1, 1)), limits);
        check_served_with(serving_plan(test_size, 1, 1), limits);
        if (test_size != 4 || prompt_replicas > 1) continue;
        check_served_with(exactly(serving_plan(2, 2, 1)), limits);
        check_served_with(exactly(serving_plan(2, 1, 2)), limits);
    }
    prompt_replicas = 0;
}

/* Each operation on some rows at a time: the bits are those of all rows at once, and it is no slower. */
static void test_nano_batches(void **state)
{
    (void)state;
    struct serving_limits limits = tight;
    cut_iterations = 0, gained = 0, checked_plans = 0;
    limits.host_blocks = 2;
    for (int index = 0; index < 10; index++) {
        static const int batches[] = { 1, 2, 4 };
        nano = (struct nano_asked){ true, { index < 9 ? batches[index % 3] : 0, index < 9 ? batches[index / 3] : 0 } };
        if (!tier_takes(index + test_size, 3) && index != 9) continue;
        check_served_with(exactly(serving_plan(1, test_size, 1)), limits);
        check_served(serving_plan(1, test_size, 1));
    }
    for (int i = 0; case_model_at(i); i++) {
        if (!tier_takes(i + test_size, 6)) continue;
        struct plan p = serving_plan(1, test_size, 1);
        case_model_at(i)->take(&p);
        p.dtype = F32, p.S = p.model.S = LONGEST;
        p.model.dropout_embedding = p.model.dropout_residual = p.model.dropout_attention = 0;
        p.model.mixture.balance_coefficient = p.model.mixture.z_coefficient = p.model.mixture.sequence_coefficient = 0;
        nano = (struct nano_asked){ true, { 4, 2 } };
        check_served(exactly(p));
    }
    nano.cuts = false;
    ASSERT_ALL(checked_plans > 0, "no plan was served in nano-batches: %s", err.text);
    ASSERT_ALL(test_rank > 0 || cut_iterations > 0, "no iteration was cut");
    ASSERT_ALL(test_rank > 0 || test_size == 1 || gained > 0, "nothing was done at the same time");
}

/* Where devices wait for messages, iterations that are searched end earlier than those that are not cut. */
static void test_nano_batches_end_earlier(void **state)
{
    (void)state;
    struct plan p = serving_plan(1, test_size, 1);
    struct serving_limits wide = tight;
    struct asked asked;
    struct serving_record record;
    int64_t end[2] = { 0, 0 }, batch;
    if (test_size == 1) return;
    /* A model whose rows take longer than the start of a message. */
    ASSERT_ALL(model_config_preset(&p.model, &batch, "llama-tiny", &err) == OK, "%s", err.text);
    p.model.S = LONGEST, p.model.dropout_embedding = p.model.dropout_residual = p.model.dropout_attention = 0;
    wide.blocks = 60, wide.step_tokens = 64, wide.running = REQUESTS, wide.chunk = 0;
    const struct requests requests = make_requests(&asked, &p);
    for (int i = 0; i < 2; i++) {
        nano.cuts = i == 1, nano.batches[0] = nano.batches[1] = 0;
        serve(&p, &requests, wide, false, &record);
        if (test_rank == 0) end[i] = record.replica[0].end;
        serving_record_free(&record);
    }
    nano.cuts = false;
    ASSERT_ALL(test_rank > 0 || end[1] < end[0], "in nano-batches the last token comes at %lld ps, and at %lld without",
               (long long)end[1], (long long)end[0]);
}

/* Neither the other requests nor their order changes an answer: each has the same tokens alone in the trace. */
static void test_any_company(void **state)
{
    (void)state;
    struct plan p = exactly(serving_plan(1, test_size, 1));
    struct asked asked;
    struct serving_record all, own;
    bool same = true;
    const struct requests requests = make_requests(&asked, &p);
    serve(&p, &requests, tight, false, &all);
    for (int i = 0; i < REQUESTS; i += 2) {
        struct serving_limits wide = tight;
        wide.blocks = 40, wide.step_tokens = 64, wide.chunk = 0, wide.shares = false;
        const struct requests one = { &asked.request[i], 1 };
        serve(&p, &one, wide, false, &own);
        if (test_rank == 0)
            same &= own.answer[0].tokens == all.answer[i].tokens &&
                    memcmp(own.token, all.token + all.first[i],
                           (size_t)own.answer[0].tokens * sizeof *own.token) == 0;
        serving_record_free(&own);
    }
    ASSERT_ALL(same, "an answer depends on the requests beside it");
    serving_record_free(&all);
}

/* The memory of a device's cache is that of the formula: 2 layers heads width bytes tokens. */
static void test_cache_bytes(void **state)
{
    (void)state;
    struct plan p = serving_plan(1, test_size, 1);
    struct asked asked;
    struct serving_record record;
    const struct requests requests = make_requests(&asked, &p);
    serve(&p, &requests, tight, false, &record);
    const int64_t heads = plan_tensor_share(&p, 0).heads.keys.count;
    const uint64_t bytes = (uint64_t)(2 * p.model.L * heads * p.model.A * 4 * tight.blocks * tight.block_tokens);
    ASSERT_ALL(test_rank > 0 || record.replica[0].cache_bytes == bytes, "the cache has %llu bytes; the formula %llu",
               (unsigned long long)record.replica[0].cache_bytes, (unsigned long long)bytes);
    serving_record_free(&record);
}

static void test_refused(void **state)
{
    (void)state;
    struct asked asked;
    struct plan p = serving_plan(1, 1, test_size);
    const struct requests requests = make_requests(&asked, &p);
    struct serving_limits small = tight;
    small.blocks = 1;
    ASSERT_ALL(serving_fits(&requests, &small, &err) == ERR_USAGE &&
               strstr(err.text, "--cache-blocks 1: have room for 3"), "%s", err.text);
    p.model.mixture.capacity_factor = 1;
    ASSERT_ALL(serving_takes(&p, &tight, &err) == ERR_PLAN && strstr(err.text, "--model"), "%s", err.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_every_mesh), MPI_TEST(test_every_model), MPI_TEST(test_formats), MPI_TEST(test_any_company),
        MPI_TEST(test_cache_bytes), MPI_TEST(test_refused), MPI_TEST(test_swap), MPI_TEST(test_context),
        MPI_TEST(test_experts), MPI_TEST(test_apart), MPI_TEST(test_nano_batches),
        MPI_TEST(test_nano_batches_end_earlier),
    };
    return MPI_RUN("serve", tests);
}
