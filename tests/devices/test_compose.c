/* The table of what cannot be combined: for each row there is a plan that is refused by it and by no other.
 * tier: check
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail
#include "emulated_devices/plan/compose.h"
#include "emulated_devices/verify/cases/case.h"
#include "ref/model/adapters.h"
#include "ref/model/kinds.h"
#include "ref/model/trained.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void split(struct plan *p, enum axis axis, int size)
{
    int of[AXIS_COUNT];
    memcpy(of, p->mesh.size, sizeof of);
    of[axis] = size;
    assert_int_equal(mesh_make(&p->mesh, of, NULL), OK);
    if (axis == PP) p->model.L = 2 * size + 1;
}

static void take_scheme(struct plan *p, const char *name, int dp)
{
    const struct data_scheme *s;
    assert_int_equal(data_scheme_find(&s, name, NULL), OK);
    case_take_data(p, s);
    split(p, DP, dp);
}

static void take_optimizer(struct plan *p, const char *name)
{
    assert_int_equal(optimizer_find(&p->optimizer, name, NULL), OK);
    if (p->optimizer->low_rank) case_take_low_rank(p, p->optimizer);
    if (p->optimizer->forward_only) case_take_mezo(p, 1);
}

static void take_stream(struct plan *p, const char *schedule)
{
    p->schedule = schedule, p->micros = 4, p->update_every = 2;
    split(p, PP, 2);
}

/* A sequence in each microbatch of the plan. */
static void take_batches(struct plan *p)
{
    static int one[64];
    static struct batch_plan b;
    for (int i = 0; i < 64; i++) one[i] = 1;
    b = (struct batch_plan){ .steps = 1, .copies = plan_parts(p), .micros = p->micros, .sequences = one };
    b.most = batch_plan_total(&b, 0);
    p->batches = &b;
}

/* Two stages on one device, a step after each of two microbatches. */
static const char several[] = "orrery schedule 1\nname several\n"
                              "devices 1\nmicros 2\nchunks 2\nplace 0: 0 1\nupdate 1\nversions 1\n"
                              "device 0: F0.0 F0.1 B0.1 B0.0 U0.1 U0.0 F1.0 F1.1 B1.1 B1.0 U1.1 U1.0\n";
static char several_file[4096];

enum { ALL = 1u << PARAMETERS | 1u << GRADIENTS | 1u << OPTIMIZER };

/* Schemes as plug-ins may have them: partial sums round before they are added. */
static struct tensor_scheme rounding;
static struct attention_scheme rounding_ring;
static struct expert_scheme rounding_rows;

static void add_rounding(void)
{
    struct error err;
    const struct tensor_scheme *one;
    const struct attention_scheme *ring;
    const struct expert_scheme *rows;
    assert_int_equal(tensor_scheme_find(&one, "1d", &err), OK);
    rounding = *one, rounding.head.name = "rounding", rounding.exact = false;
    assert_int_equal(scheme_add(&rounding.head, &err), OK);
    assert_int_equal(attention_scheme_find(&ring, "ring", &err), OK);
    rounding_ring = *ring, rounding_ring.head.name = "rounding-ring", rounding_ring.exact = false;
    assert_int_equal(scheme_add(&rounding_ring.head, &err), OK);
    assert_int_equal(expert_scheme_find(&rows, "alltoall", &err), OK);
    rounding_rows = *rows, rounding_rows.head.name = "rounding-rows", rounding_rows.exact = false;
    assert_int_equal(scheme_add(&rounding_rows.head, &err), OK);
}

/* Make a plan have a feature, with as little else as can be. */
static void take(struct plan *p, enum feature f)
{
    const struct block_format codes = { 8, 100 };
    switch (f) {
    case HAS_cp: case_take_context(p, 2, "ring"); break;
    case HAS_tp: case HAS_tp_uneven: split(p, TP, 2); break;
    case HAS_tp_moves_weights: split(p, TP, 2), p->tensor = "1d-sp-overlap"; break;
    case HAS_tp_copies_keys: case_take_llama(p), split(p, TP, 4); break;
    case HAS_tp_copies_biases: case_take_qwen2(p), p->model.K = 1, split(p, TP, 4); break;
    case HAS_tp_cuts_columns: split(p, TP, 4), p->tensor = "2d"; break;
    case HAS_tp_keeps_inputs: split(p, TP, 2), p->tensor = "1d-sp-keep"; break;
    case HAS_norms_after: case_take_olmo2(p); break;
    case HAS_tp_cuts_rows: split(p, TP, 2), p->tensor = "1d-sp"; break;
    case HAS_tp_cuts_sequences: split(p, TP, 4), p->tensor = "2d"; break;
    case HAS_context_plan: p->attention = "hdp"; break;
    case HAS_plans_steps: case_take_context(p, 2, "hdp"), p->micros = 2; break;
    case HAS_split_cp: p->split.heads = 1; break;
    case HAS_ring_window: p->split.window = 1; break;
    case HAS_one_dimension: case HAS_one_ring: p->attention = "whole"; break;
    case HAS_streams: case_take_streams(p); break;
    case HAS_windows: case_take_windows(p); break;
    case HAS_sinks: case HAS_biased_experts:
        case_take_gpt_oss(p);
        p->model.windows = (struct windows){ 0 };
        p->model.mixture.balance_coefficient = p->model.mixture.z_coefficient = 0;
        break;
    case HAS_stored_scores: case_take_context(p, 2, "rsa"); break;
    case HAS_long_rotary: case_take_phi3(p); break;
    case HAS_packed: p->packed = true; break;
    case HAS_mask: p->model.mask = (struct attention_mask){ ATTENTION_LAMBDA, { 2, 3 } }; break;
    case HAS_sections: p->layers = (struct interval){ 0, p->model.L }; break;
    case HAS_exact:
        p->model.exact = SUMS_EXACT;
        if (p->dtype == F64) p->dtype = F32;
        break;
    case HAS_fp64: p->dtype = F64; break;
    case HAS_wide_vocabulary: p->model.V = 600000; break;
    case HAS_many_tokens: p->B = 1 << 24; break;
    case HAS_adds_by_layout: split(p, TP, 2), p->tensor = rounding.head.name; break;
    case HAS_cuts_attention: case_take_context(p, 2, rounding_ring.head.name); break;
    case HAS_adds_choices: take(p, HAS_mixture), p->etp = 2, p->dispatch = rounding_rows.head.name; break;
    case HAS_balance_of_microbatch:
        case_take_mixtral(p);
        p->model.mixture.balance.over = OVER_MICROBATCH;
        break;
    case HAS_loss_by_rule: p->model.loss.smoothing = 0.125; break;
    case HAS_tiles: p->data.tiles = 3; break;
    case HAS_quantized_weights: p->data.quantise_weights = codes; break;
    case HAS_quantized_gradients: p->data.quantise_gradients = codes; break;
    case HAS_offload: case HAS_offload_state_alone: p->data.offload = 1u << OPTIMIZER; break;
    case HAS_offload_experts: take(p, HAS_mixture), p->data.offload = ALL, p->data.offload_experts = true; break;
    case HAS_no_mixture: p->model = case_plan(1, 1, 1).model; break;
    case HAS_offload_activations: p->offload_activations = true; break;
    case HAS_few_layers: p->model.L = 2; break;
    case HAS_offload_weights: p->data.offload = 1u << PARAMETERS; break;
    case HAS_offload_gradients: p->data.offload = 1u << GRADIENTS; break;
    case HAS_host_steps: p->data.offload_stride = 3, p->data.offload = p->data.offload ? p->data.offload : ALL; break;
    case HAS_offload_to_folder: p->data.offload_to = "."; break;
    case HAS_step_needs_gradients: p->dtype = BF16, p->data.offload = 1u << OPTIMIZER; break;
    case HAS_step_needs_weights: p->data.offload = 1u << OPTIMIZER | 1u << GRADIENTS; break;
    case HAS_keep_gathered: p->data.keep = true; break;
    case HAS_reduce_scatter: p->data.reduce_scatter = "ring"; break;
    case HAS_scattered_by_place: take_scheme(p, "zero2", 3), p->data.reduce_scatter = "ring"; break;
    case HAS_reduced_by_place: split(p, DP, 3), p->allreduce = "ring"; break;
    case HAS_reduced_by_nodes: p->allreduce = "auto"; break;
    case HAS_weights_shared: take_scheme(p, "zero3", 2); break;
    case HAS_state_shared: case HAS_state_shared_further: take_scheme(p, "zero1", 2); break;
    case HAS_weights_late: take_scheme(p, "zero1-overlap", 2); break;
    case HAS_gathers_once: take_scheme(p, "fsdp-once", 2); break;
    case HAS_allreduces_whole: split(p, DP, 2); break;
    case HAS_apart: take_scheme(p, "diloco", p->mesh.size[DP] > 2 ? p->mesh.size[DP] : 2); break;
    case HAS_apart_in_two_stages: take_scheme(p, "diloco", 3), split(p, PP, 2); break;
    case HAS_averages: take_scheme(p, "local-sgd", 2); break;
    case HAS_outer_momentum: p->data.outer.momentum = 0.5; break;
    case HAS_outer_numbers: p->data.outer.lr = 0.5; break;
    case HAS_two_versions: case HAS_mid_stream: case HAS_several_steps: take_stream(p, "pipedream-2bw"); break;
    case HAS_batches: take_batches(p); break;
    case HAS_several_stages:
        p->schedule = several_file, p->chunks = 2, p->micros = 2, p->update_every = 0;
        split(p, PP, 1);
        break;
    case HAS_chosen_experts:
        take(p, HAS_mixture);
        p->data.chosen = true, p->optimizer = &no_optimizer, p->hyper = no_optimizer.usual;
        break;
    case HAS_trains: take_optimizer(p, "sgd"); break;
    case HAS_moves_experts:
        if (p->model.mlp != MLP_MIXTURE) take(p, HAS_mixture);
        p->dispatch = "tutel";
        break;
    case HAS_experts_in_shards:
        take_scheme(p, "zero3", 1), split(p, TP, 2), take(p, HAS_experts_apart);
        break;
    case HAS_low_rank: take_optimizer(p, "galore"); break;
    case HAS_forward_only: case HAS_draws: take_optimizer(p, "mezo"); break;
    case HAS_stateless: take_optimizer(p, "sgd"); break;
    case HAS_both_sides: p->perturb = 2, split(p, DP, 2); break;
    case HAS_clip: p->hyper.clip = 1; break;
    case HAS_recompute: p->recompute = "full"; break;
    case HAS_loss_scale: p->loss_scale = 1024; break;
    case HAS_needs_loss_scale: p->dtype = F16; break;
    case HAS_freezes: p->model.trains = 1u << CLASS_NORMS; break;
    case HAS_adapters:
        p->model.adapters = (struct adapters_config){ 2, 1, LOW_ON_ATTENTION }, p->model.trains = 1u << CLASS_ADAPTERS;
        break;
    case HAS_narrow: p->dtype = BF16; break;
    case HAS_narrow_gradients: p->dtype = BF16, p->data.narrow_gradients = true; break;
    case HAS_skips_stages: p->schedule = "skippipe", split(p, PP, 4); break;
    case HAS_experts_apart: case HAS_experts_predicted:
        take(p, HAS_mixture);
        p->dispatch = f == HAS_experts_apart ? "alltoall" : "speculative";
        break;
    case HAS_mixture: case HAS_balance_of_batch: case HAS_balance_of_sequence: case HAS_by_sequence:
    case HAS_biased_router: case HAS_experts_here: {
        const char *schedule = p->schedule;
        case_take_mixtral(p);
        p->model.mixture.balance.over = f == HAS_balance_of_batch ? OVER_BATCH : OVER_SEQUENCE;
        if (f != HAS_balance_of_batch && f != HAS_balance_of_sequence) p->model.mixture.balance_coefficient = 0;
        p->model.mixture.router.biased = f == HAS_biased_router;
        if (f == HAS_by_sequence) p->model.mixture.sequence_coefficient = 0.1, p->dispatch = "alltoall";
        p->schedule = schedule;
        break;
    }
    default: break;                     /* the plain plan has it: ddp on one device, 1f1b, sgd in fp64 */
    }
}

/* Where there must be something for a feature to be about. */
enum { ON_ZERO3 = 1, ON_ZERO1 = 2, ON_GROUPS = 4, WITH_MOMENTUM = 8, IN_FP16 = 16, SURROUNDINGS = 32 };

static struct plan surroundings(unsigned which)
{
    struct plan p = case_plan(1, 1, 1);
    if (which & ON_ZERO3) take_scheme(&p, "zero3", 2);
    if (which & ON_ZERO1) take_scheme(&p, "zero1", 2);
    if (which & ON_GROUPS) split(&p, DP, 4), p.data.group = 2;
    if (which & WITH_MOMENTUM) take_optimizer(&p, "momentum");
    if (which & IN_FP16) p.dtype = F16;
    return p;
}

/* Whether a plan is refused, by this row and by no other. */
static bool refused_alone(struct plan *p, const struct clash *row, struct error *err)
{
    const int place = (int)(row - clash_at(0));
    struct schedule s;
    struct shards shards;
    if (data_shards(&shards, &p->data, p->mesh.size[DP], 0, NULL) != OK) return false;
    if (plan_schedule(p, &s, NULL) != OK) return false;
    p->stages = s.stages, p->chunks = s.chunks, p->updates = (s.micros + s.update_every - 1) / s.update_every;
    const struct facts f = { p, &shards, &s };
    const bool alone = clash_of(&f, 0) == row && clash_of(&f, place + 1) == NULL;
    schedule_free(&s);
    return alone && plan_check(p, err) == ERR_PLAN;
}

static bool refused_by(const struct clash *row, struct error *err)
{
    for (unsigned i = 0; i < SURROUNDINGS; i++)
        for (int order = 0; order < 2; order++) {
            struct plan p = surroundings(i);
            take(&p, order ? row->other : row->one);
            take(&p, order ? row->one : row->other);
            if (refused_alone(&p, row, err)) return true;
        }
    return false;
}

static void test_each_row_refuses_a_plan_that_no_other_row_refuses(void **state)
{
    const struct clash *row;
    int unreached = 0;
    (void)state;
    const char *folder = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    snprintf(several_file, sizeof several_file, "%.4000s/orrery-compose-%ld", folder, (long)getpid());
    FILE *file = fopen(several_file, "w");
    assert_non_null(file);
    fputs(several, file);
    fclose(file);
    for (int i = 0; (row = clash_at(i)) != NULL; i++) {
        struct error err = { .code = OK };
        char text[400];
        clash_describe(row, text, sizeof text);
        if (refused_by(row, &err) && strncmp(err.text, "--", 2) == 0) continue;
        printf("no plan is refused by this row alone: %s; %s\n", feature_name(row->one), text);
        unreached++;
    }
    unlink(several_file);
    assert_int_equal(unreached, 0);
}

static void test_no_pair_is_there_twice(void **state)
{
    const struct clash *a, *b;
    (void)state;
    for (int i = 0; (a = clash_at(i)) != NULL; i++)
        for (int j = 0; j < i && (b = clash_at(j)) != NULL; j++)
            assert_false((a->one == b->one && a->other == b->other) || (a->one == b->other && a->other == b->one));
}

/* Flag and value, the other's, and what would do. */
static void test_a_refusal_names_both_flags(void **state)
{
    struct plan p = surroundings(ON_ZERO3);
    struct error err;
    (void)state;
    take(&p, HAS_tiles), take(&p, HAS_tp_moves_weights);
    assert_int_equal(plan_check(&p, &err), ERR_PLAN);
    assert_non_null(strstr(err.text, "--tiles 3: --tensor 1d-sp-overlap uses a matrix several times"));
    assert_non_null(strstr(err.text, "; use --tensor 1d, 1d-sp or 1d-sp-keep"));
}

/* A plan made by hand can have a bucket of 0 bytes, which the command line cannot say: the plan is refused. */
static void test_a_bucket_has_bytes(void **state)
{
    struct error err;
    struct plan p = case_plan(2, 1, 1);
    (void)state;
    p.data.bucket = 0;
    assert_int_equal(plan_check(&p, &err), ERR_PLAN);
    assert_string_equal(err.text, "--bucket 0: a bucket has at least 1 byte; 25M is usual");
    p.data.bucket = 1;
    assert_int_equal(plan_check(&p, &err), OK);
}

int main(void)
{
    add_rounding();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_row_refuses_a_plan_that_no_other_row_refuses),
        cmocka_unit_test(test_no_pair_is_there_twice),
        cmocka_unit_test(test_a_refusal_names_both_flags),
        cmocka_unit_test(test_a_bucket_has_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
