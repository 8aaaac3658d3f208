/* torchtitan.c -- what a TOML file of torchtitan means in words of `orrery plan`.
 *
 * from.c calls the functions of the row through frameworks.c.  The keys, their defaults and the flavors of models are
 * those of pytorch/torchtitan, v0.2.2 (73a0e6979dd1): torchtitan/config/job_config.py, train.py,
 * distributed/parallel_dims.py, activation_checkpoint.py, models/.../__init__.py.  Problems are kept in struct from.
 */
#include "emulated_devices/comm/mesh.h"
#include "emulated_devices/run/from/frameworks.h"
#include "ref/io/toml.h"
#include <string.h>

static const struct framework_key keys[] = {
    { "model.name", "llama3" }, { "model.flavor", "debugmodel" },
    { "optimizer.name", "AdamW" },
    { "training.local_batch_size", "8" }, { "training.global_batch_size", "-1" }, { "training.seq_len", "2048" },
    { "training.max_norm", "1.0" }, { "training.enable_cpu_offload", "false" }, { "training.dtype", "float32" },
    { "training.mixed_precision_param", "bfloat16" },
    { "parallelism.data_parallel_replicate_degree", "1" }, { "parallelism.data_parallel_shard_degree", "-1" },
    { "parallelism.fsdp_reshard_after_forward", "default" }, { "parallelism.tensor_parallel_degree", "1" },
    { "parallelism.enable_async_tensor_parallel", "false" }, { "parallelism.pipeline_parallel_degree", "1" },
    { "parallelism.pipeline_parallel_first_stage_less_layers", "1" },
    { "parallelism.pipeline_parallel_last_stage_less_layers", "1" },
    { "parallelism.pipeline_parallel_layers_per_stage", NULL },
    { "parallelism.pipeline_parallel_schedule", "1F1B" }, { "parallelism.pipeline_parallel_microbatch_size", "1" },
    { "parallelism.context_parallel_degree", "1" }, { "parallelism.context_parallel_load_balancer", "headtail" },
    { "parallelism.context_parallel_rotate_method", "allgather" },
    { "parallelism.expert_parallel_degree", "1" }, { "parallelism.expert_tensor_parallel_degree", "1" },
    { "activation_checkpoint.mode", "selective" }, { "activation_checkpoint.selective_ac_option", "2" },
    { NULL, NULL },
};

static const struct framework_group groups[] = {
    { FATE_NOTHING, "names, folders and logs",
      "job.config_file job.dump_folder job.description job.print_config job.save_config_file "
      "profiling.enable_profiling profiling.save_traces_folder profiling.profile_freq profiling.profiler_active "
      "profiling.profiler_warmup profiling.enable_memory_snapshot profiling.save_memory_snapshot_folder "
      "metrics.log_freq metrics.enable_tensorboard metrics.disable_color_printing metrics.save_tb_folder "
      "metrics.save_for_all_ranks metrics.enable_wandb model.print_after_conversion" },
    { FATE_NOTHING, "weights, tokenizer and data",
      "model.hf_assets_path model.tokenizer_path training.dataset training.dataset_path "
      "training.dataloader.num_workers training.dataloader.persistent_workers training.dataloader.pin_memory "
      "training.dataloader.prefetch_factor" },
    { FATE_NOTHING, "length of the run, and rates of learning",
      "training.steps optimizer.lr optimizer.beta1 optimizer.beta2 optimizer.eps optimizer.weight_decay "
      "lr_scheduler.warmup_steps lr_scheduler.total_steps lr_scheduler.decay_ratio lr_scheduler.decay_type "
      "lr_scheduler.min_lr_factor" },
    { FATE_NOTHING, "checkpoints and validation",
      "checkpoint.enable checkpoint.enable_ft_dataloader_checkpoints checkpoint.folder checkpoint.interval "
      "checkpoint.initial_load_path checkpoint.initial_load_model_only checkpoint.initial_load_in_hf "
      "checkpoint.initial_load_in_hf_quantized checkpoint.last_save_model_only checkpoint.last_save_in_hf "
      "checkpoint.export_dtype checkpoint.async_mode checkpoint.keep_latest_k checkpoint.load_step "
      "checkpoint.exclude_from_loading checkpoint.enable_first_step_checkpoint checkpoint.create_seed_checkpoint "
      "checkpoint.load_only validation.enable validation.dataset validation.dataset_path "
      "validation.local_batch_size validation.seq_len validation.freq validation.steps "
      "validation.dataloader.num_workers validation.dataloader.persistent_workers validation.dataloader.pin_memory "
      "validation.dataloader.prefetch_factor" },
    { FATE_NOTHING, "checks and housekeeping",
      "training.gc_freq training.gc_debug comm.init_timeout_seconds comm.train_timeout_seconds comm.trace_buf_size "
      "comm.save_traces_folder comm.save_traces_file_prefix memory_estimation.enable "
      "memory_estimation.disable_fake_mode debug.seed debug.deterministic debug.deterministic_warn_only "
      "debug.moe_force_load_balance activation_checkpoint.early_stop activation_checkpoint.preserve_rng_state "
      "activation_checkpoint.determinism_check activation_checkpoint.debug "
      "activation_checkpoint.visualize_memory_budget_pareto" },
    { FATE_NOTHING, "which code computes the same: a plan's operations are fused as in its device's tables",
      "compile.enable compile.components compile.backend optimizer.implementation "
      "training.mixed_precision_reduce parallelism.pipeline_parallel_expert_parallel_overlap "
      "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns" },
    { FATE_OUTSIDE, "float8 and MX formats: products would be up to twice as fast, and gathered weights half as large; "
                    "the plan computes in the 16-bit format",
      "model.converters" },
    { FATE_NOTHING, "of model.converters alone",
      "quantize.linear.float8.enable_fsdp_float8_all_gather "
      "quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp quantize.linear.float8.recipe_name "
      "quantize.linear.float8.filter_fqns quantize.linear.float8.emulate quantize.grouped_mm.float8.fqns "
      "quantize.linear.mx.mxfp8_dim1_cast_kernel_choice quantize.linear.mx.recipe_name "
      "quantize.linear.mx.filter_fqns quantize.grouped_mm.mx.recipe_name quantize.grouped_mm.mx.fqns" },
    { FATE_OUTSIDE, "the optimizer would step in the backward pass: gradients would be freed sooner",
      "optimizer.early_step_in_backward" },
    { FATE_OUTSIDE, "logits would be gathered whole over tp; the plan keeps them cut",
      "parallelism.disable_loss_parallel" },
    { FATE_OUTSIDE, "stages of its own: the plan spreads layers evenly, in the order of its schedule",
      "parallelism.module_fqns_per_model_part parallelism.pipeline_parallel_schedule_csv" },
    { FATE_OUTSIDE, "rows would go to experts by other kernels; the plan's go by all-to-alls",
      "parallelism.expert_parallel_comm_backend" },
    { FATE_OUTSIDE, "the compiler would choose what is kept; the plan keeps all",
      "activation_checkpoint.memory_budget" },
    { FATE_OUTSIDE, "replicas would come and go, or train apart",
      "fault_tolerance.enable fault_tolerance.semi_sync_method" },
    { FATE_NOTHING, "of fault_tolerance.enable alone",
      "fault_tolerance.process_group fault_tolerance.process_group_timeout_ms fault_tolerance.replica_id "
      "fault_tolerance.group_size fault_tolerance.min_replica_size" },
    { FATE_OUTSIDE, "code of its own may change anything of the run",
      "job.custom_config_module experimental.custom_import experimental.custom_args_module" },
    { FATE_NOTHING, NULL, NULL },
};

/* ---- the model --------------------------------------------------------------------------------------------------- */

/* A flavor: its preset, or the sizes in the order of MODEL_SIZE_LETTERS. */
struct flavor { const char *model, *name, *preset, *family; int64_t number[10]; bool untied; };

static const struct flavor flavors[] = {
    { "llama3", "debugmodel", NULL, "llama", { 6, 256, 16, 16, 16, 768, 2048, 0, 0, 0 }, false },
    { "llama3", "8B", "llama3-8b", NULL, { 0 }, false },
    { "llama3", "70B", "llama3-70b", NULL, { 0 }, false },
    { "llama3", "405B", "llama3-405b", NULL, { 0 }, false },
    { "qwen3", "0.6B", NULL, "qwen3", { 28, 1024, 16, 8, 128, 3072, 151936, 0, 0, 0 }, false },
    { "qwen3", "1.7B", NULL, "qwen3", { 28, 2048, 16, 8, 128, 6144, 151936, 0, 0, 0 }, false },
    { "qwen3", "4B", NULL, "qwen3", { 36, 2560, 32, 8, 128, 9728, 151936, 0, 0, 0 }, false },
    { "qwen3", "8B", NULL, "qwen3", { 36, 4096, 32, 8, 128, 12288, 151936, 0, 0, 0 }, true },
    { "qwen3", "14B", NULL, "qwen3", { 40, 5120, 40, 8, 128, 17408, 151936, 0, 0, 0 }, true },
    { "qwen3", "32B", NULL, "qwen3", { 64, 5120, 64, 8, 128, 25600, 151936, 0, 0, 0 }, true },
    { "deepseek_v3", "671B", "deepseek-v3", NULL, { 0 }, false },
    { "gpt_oss", "20b", "gpt-oss-20b", NULL, { 0 }, false },
    { "gpt_oss", "120b", "gpt-oss-120b", NULL, { 0 }, false },
    { NULL, NULL, NULL, NULL, { 0 }, false },
};

/* A flavor's name may end in the attention that it has, which changes the mask of documents alone. */
static const struct flavor *torchtitan_flavor(const char *model, const char *name)
{
    for (const struct flavor *f = flavors; f->model; f++) {
        const size_t length = strlen(f->name);
        const bool named = strncmp(name, f->name, length) == 0
                           && (name[length] == '\0' || strcmp(name + length, "_flex") == 0
                               || strcmp(name + length, "_flex_attn") == 0
                               || strcmp(name + length, "_varlen") == 0 || strcmp(name + length, "_varlen_attn") == 0);
        if (named && strcmp(f->model, model) == 0) return f;
    }
    return NULL;
}

static void torchtitan_say_model(struct from *from)
{
    const char *const model = from_value(from, "model.name"), *const name = from_value(from, "model.flavor");
    const struct flavor *const f = model && name ? torchtitan_flavor(model, name) : NULL;
    char word[FROM_TEXT];
    if (from_typed(from, "--model")) {
        from_with(from, "model.name", "the command line says --model instead");
        from_with(from, "model.flavor", "the command line says --model instead");
        return;
    }
    if (f == NULL) {
        from_refuse(from, "model.flavor", "of model %s is no model of a plan yet; add --model NAME",
                    model ? model : "");
        return;
    }
    if (f->preset) snprintf(word, sizeof word, "%s", f->preset);
    else {
        struct from_model m = { .family = f->family };
        memcpy(m.number, f->number, sizeof m.number);
        from_model_word(&m, word, sizeof word);
    }
    from_say(from, "model.flavor", "--model", "%s", word);
    from_with(from, "model.name", "in --model");
    if (f->untied) from_say(from, "model.flavor", "--untied", NULL);
    if (strlen(name) != strlen(f->name))
        from_outside(from, "model.flavor", "attention inside documents: fewer pairs of tokens; the plan's is causal "
                     "over whole sequences");
}

/* ---- the mesh ---------------------------------------------------------------------------------------------------- */

struct torchtitan_mesh { int64_t tp, pp, cp, dp, replicas, shards, chunks; };

static int64_t torchtitan_say_axis(struct from *from, const char *key, const char *flag)
{
    const int64_t size = from_whole(from, key, 1, MESH_MOST_DEVICES);
    if (from_has(from, key)) from_say(from, key, flag, "%lld", (long long)size);
    return from_typed_whole(from, flag, size > 0 ? size : 1);
}

/* Copies: replicas times shards, -1 shards being all devices that are left, which the file does not know. */
static void torchtitan_say_copies(struct from *from, struct torchtitan_mesh *mesh)
{
    static const char replicate[] = "parallelism.data_parallel_replicate_degree";
    static const char shard[] = "parallelism.data_parallel_shard_degree";
    const int64_t replicas = from_whole(from, replicate, 1, MESH_MOST_DEVICES);
    const int64_t shards = from_is(from, shard, "-1") ? -1 : from_whole(from, shard, 1, MESH_MOST_DEVICES);
    const int64_t typed = from_typed_whole(from, "--dp", 0);
    if (from->failed) return;
    if (shards < 0 && typed == 0) {
        from_refuse(from, shard, "is all devices that are left, and the file does not say on how many it runs; add "
                    "--dp N, replicas times shards");
        return;
    }
    mesh->dp = typed ? typed : replicas * shards;
    mesh->replicas = replicas, mesh->shards = shards < 0 ? mesh->dp / replicas : shards;
    if (mesh->shards * replicas != mesh->dp) {
        from_refuse(from, replicate, "times %s %lld is not --dp %lld", shard, (long long)mesh->shards,
                    (long long)mesh->dp);
        return;
    }
    if (shards < 0) from_with(from, shard, "all of --dp %lld / %lld replicas", (long long)typed, (long long)replicas);
    else from_say(from, shard, "--dp", "%lld", (long long)mesh->dp);
    if (from_has(from, replicate)) from_with(from, replicate, "in --dp");
}

/* FSDP over shards and cp; copies of it over replicas. */
static void torchtitan_say_scheme(struct from *from, const struct torchtitan_mesh *mesh)
{
    static const char keep[] = "parallelism.fsdp_reshard_after_forward", away[] = "training.enable_cpu_offload";
    static const char shard[] = "parallelism.data_parallel_shard_degree";
    const bool cut = mesh->shards * mesh->cp > 1;
    const bool never = from_is(from, keep, "never") || (from_is(from, keep, "default") && mesh->pp > 1);
    /* In a pipeline weights that stay are gathered once a step, and gradients wait for the last microbatch. */
    const bool once = never && mesh->pp > 1;
    if (cut && mesh->replicas > 1) {
        from_say(from, shard, "--data-parallel", once ? "fsdp-once" : "hsdp");
        from_say(from, shard, "--shard-group", "%lld", (long long)(mesh->shards * mesh->cp));
    } else if (cut) from_say(from, shard, "--data-parallel", once ? "fsdp-once" : "fsdp");
    else from_say(from, shard, "--data-parallel", "ddp");
    if (!never && !from_is(from, keep, "always") && !from_is(from, keep, "default"))
        from_refuse(from, keep, "must be default, always or never");
    if (cut && once) from_with(from, keep, "in --data-parallel: weights and whole gradients stay for all microbatches");
    else if (cut && never) from_say(from, keep, "--reshard-after-forward", "no");
    else if (from_has(from, keep))
        from_nothing(from, keep, cut ? "weights are dropped after forward, as by default" : "off");
    if (cut && from_truth(from, away)) from_say(from, away, "--offload", "weights,gradients,optimizer");
    else if (from_has(from, away)) from_nothing(from, away, "off");
}

static void torchtitan_say_tensor(struct from *from, int64_t tp)
{
    static const char hidden[] = "parallelism.enable_async_tensor_parallel";
    const bool overlaps = from_truth(from, hidden) && from_truth(from, "compile.enable");
    if (tp > 1) from_say(from, "parallelism.tensor_parallel_degree", "--tensor", overlaps ? "1d-sp-overlap" : "1d-sp");
    if (!from_has(from, hidden)) return;
    if (tp > 1 && overlaps) from_with(from, hidden, "in --tensor");
    else from_nothing(from, hidden, from_truth(from, hidden) && tp > 1 ? "off: of compile.enable alone" : "off");
}

static void torchtitan_say_context(struct from *from, const struct torchtitan_mesh *mesh)
{
    static const char way[] = "parallelism.context_parallel_rotate_method",
                      balance[] = "parallelism.context_parallel_load_balancer";
    if (mesh->cp == 1) {
        if (from_has(from, way)) from_nothing(from, way, "off");
        if (from_has(from, balance)) from_nothing(from, balance, "off");
        return;
    }
    const bool gathers = from_is(from, way, "allgather"), zigzag = from_is(from, balance, "headtail");
    if (!gathers && !from_is(from, way, "alltoall")) from_refuse(from, way, "must be allgather or alltoall");
    from_say(from, way, "--attention", gathers ? "allgather-kv" : zigzag ? "ring-zigzag" : "ring");
    if (from_is(from, balance, "ptrr")) from_outside(from, balance, "blocks of tokens would be dealt by their masks");
    else if (zigzag) from_with(from, balance, "in --attention");
    else if (from_has(from, balance)) from_assume(from, balance, "tokens in a row: devices have unequal work");
}

static void torchtitan_say_experts(struct from *from, const struct torchtitan_mesh *mesh)
{
    const int64_t tp = mesh->tp, stage = mesh->tp * mesh->cp * mesh->shards;
    static const char groups_of[] = "parallelism.expert_parallel_degree",
                      parts[] = "parallelism.expert_tensor_parallel_degree";
    const int64_t ep = from_whole(from, groups_of, 1, MESH_MOST_DEVICES), etp = from_whole(from, parts, 1,
                                                                                          MESH_MOST_DEVICES);
    if (!from->failed && ep > 1 && etp != 1 && etp != tp)
        from_refuse(from, parts, "must be 1 or parallelism.tensor_parallel_degree %lld", (long long)tp);
    if (!from->failed && ep > 1 && stage % (ep * etp) != 0)
        from_refuse(from, groups_of, "times %s %lld does not divide the %lld devices that share the shards of a stage",
                    parts, (long long)etp, (long long)stage);
    if (ep > 1) from_say(from, groups_of, "--ep", "%lld", (long long)ep);
    else if (from_has(from, groups_of)) from_nothing(from, groups_of, "off");
    if (ep > 1 && etp > 1) from_say(from, parts, "--etp", "%lld", (long long)etp);
    else if (from_has(from, parts)) from_nothing(from, parts, "off");
}

/* ---- the pipeline ------------------------------------------------------------------------------------------------ */

static const struct { const char *theirs, *ours; int stages; } schedules[] = {
    { "1F1B", "1f1b", 1 }, { "GPipe", "gpipe", 1 }, { "Interleaved1F1B", "interleaved", 2 },
    { "LoopedBFS", "bfs", 2 }, { "ZBVZeroBubble", "zb-v", 2 }, { "DualPipeV", "dualpipev", 2 },
};

static void torchtitan_say_stages(struct from *from, struct torchtitan_mesh *mesh, int usual, const char *schedule)
{
    static const char each[] = "parallelism.pipeline_parallel_layers_per_stage";
    static const char less[] = "parallelism.pipeline_parallel_first_stage_less_layers",
                      last[] = "parallelism.pipeline_parallel_last_stage_less_layers";
    mesh->chunks = usual;
    if (from_value(from, each))
        from_assume(from, each, "%d stages on a device, as by default: the plan spreads its layers evenly", usual);
    if (usual > 1 && strcmp(schedule, "zb-v") != 0 && strcmp(schedule, "dualpipev") != 0)
        from_say(from, "parallelism.pipeline_parallel_schedule", "--chunks", "%d", usual);
    if (from_whole(from, less, 0, 1024) || from_whole(from, last, 0, 1024))
        from_outside(from, less, "the first and the last stage would have fewer layers; the plan spreads them evenly");
    if (from_has(from, last)) from_with(from, last, "as the first stage's");
}

static void torchtitan_say_pipeline(struct from *from, struct torchtitan_mesh *mesh)
{
    static const char key[] = "parallelism.pipeline_parallel_schedule";
    static const char *const others[] = {
        key, "parallelism.pipeline_parallel_layers_per_stage", "parallelism.pipeline_parallel_first_stage_less_layers",
        "parallelism.pipeline_parallel_last_stage_less_layers", "parallelism.pipeline_parallel_microbatch_size",
    };
    mesh->chunks = 1;
    if (mesh->pp == 1) {
        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
            if (from_has(from, others[i])) from_nothing(from, others[i], "off: one stage");
        return;
    }
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
        if (!from_is(from, key, schedules[i].theirs)) continue;
        from_say(from, key, "--schedule", "%s", schedules[i].ours);
        torchtitan_say_stages(from, mesh, schedules[i].stages, schedules[i].ours);
        return;
    }
    from_refuse(from, key, "is no schedule of a plan; it has 1F1B, GPipe, Interleaved1F1B, LoopedBFS, ZBVZeroBubble "
                "and DualPipeV, and --schedule names others");
}

/* ---- the step ---------------------------------------------------------------------------------------------------- */

static void torchtitan_say_batch(struct from *from, const struct torchtitan_mesh *mesh)
{
    static const char local[] = "training.local_batch_size", global[] = "training.global_batch_size";
    static const char part[] = "parallelism.pipeline_parallel_microbatch_size";
    const int64_t each = from_whole(from, local, 1, INT32_MAX), micro = from_whole(from, part, 1, INT32_MAX);
    const bool whole = from_is(from, global, "-1");
    const int64_t all = whole ? each * mesh->dp : from_whole(from, global, 1, 1000000000);
    from_say(from, "training.seq_len", "--seq", "%lld", (long long)from_whole(from, "training.seq_len", 1, 1000000000));
    if (from->failed) return;
    if (mesh->pp == 1) from_batch(from, global, local, all, each, mesh->dp);
    else {
        if (each % micro != 0) from_refuse(from, local, "cannot be divided by %s %lld", part, (long long)micro);
        from_batch(from, global, part, all, micro, mesh->dp);
        from_with(from, local, "in --micro");
        if (!whole && all > each * mesh->dp)
            from_assume(from, global, "the pipeline goes on between its parts; torchtitan would drain it");
    }
}

/* FSDP casts fp32 shards to the 16-bit format; without FSDP nothing is cast unless there is one axis alone. */
static void torchtitan_say_formats(struct from *from, const struct torchtitan_mesh *mesh)
{
    static const char mixed[] = "training.mixed_precision_param", kind[] = "training.dtype";
    const bool cut = mesh->shards * mesh->cp > 1, alone = mesh->tp == 1 && mesh->pp == 1;
    const bool casts = from_is(from, mixed, "bfloat16") && (cut || alone);
    if (from_is(from, kind, "bfloat16")) {
        from_say(from, kind, "--dtype", "bf16");
        from_outside(from, kind, "weights, gradients and state would all be bf16, without fp32 masters: the plan's "
                     "take 10 bytes a weight more");
        if (from_has(from, mixed)) from_with(from, mixed, "in --dtype");
        return;
    }
    if (!from_is(from, kind, "float32")) from_refuse(from, kind, "must be float32 or bfloat16");
    if (casts) {
        from_say(from, mixed, "--dtype", "bf16");
        from_assume(from, mixed, "a device keeps a bf16 copy of its part of the weights; FSDP2 casts it when it is "
                    "gathered: 2 bytes a weight less");
    } else from_say(from, mixed, "--dtype", "fp32");
    if (from_has(from, kind)) from_with(from, kind, "in --dtype: fp32 masters");
}

/* Every nth layer, counted from 1, as a list of layers. */
static void torchtitan_say_layers(struct from *from, int64_t n, const char *key)
{
    char list[FROM_TEXT] = "", word[FROM_TEXT] = "";
    size_t used = 0;
    for (int i = 0; i < from->words; i++)
        if (strcmp(from->word[i].flag, "--model") == 0)
            snprintf(word, sizeof word, "%s", from->word[i].text + strlen("--model="));
    const char *const typed = from_typed(from, "--model");
    if (n == 1) {
        from_say(from, key, "--recompute", "full");
        return;
    }
    const int64_t layers = model_preset_layers(typed ? typed : word);
    if (layers == 0) {
        from_assume(from, key, "no layer is recomputed: how many layers --model has is not known here");
        return;
    }
    for (int64_t l = n - 1; l < layers && used < sizeof list; l += n)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%lld", used ? "," : "", (long long)l);
    if (used >= sizeof list) from_refuse(from, key, "there are too many layers to list");
    else from_say(from, key, "--recompute", "%s", used ? list : "none");
}

static void torchtitan_say_recompute(struct from *from)
{
    static const char mode[] = "activation_checkpoint.mode", option[] = "activation_checkpoint.selective_ac_option";
    const bool selective = from_is(from, mode, "selective");
    if (!selective && from_has(from, option)) from_nothing(from, option, "of mode \"selective\" alone");
    if (from_is(from, mode, "full")) from_say(from, mode, "--recompute", "full");
    else if (from_is(from, mode, "none")) from_nothing(from, mode, "off");
    else if (from_is(from, mode, "memory_budget"))
        from_outside(from, mode, "the compiler would choose what is kept; the plan keeps all");
    else if (!selective) from_refuse(from, mode, "must be none, selective, full or memory_budget");
    else if (from_is(from, option, "op")) {
        from_say(from, option, "--recompute", "selective++");
        from_assume(from, option, "all but attention is computed again; torchtitan also keeps every second matrix "
                    "product");
        from_with(from, mode, "in --recompute");
    } else {
        torchtitan_say_layers(from, from_whole(from, option, 1, 1024), option);
        from_with(from, mode, "in --recompute");
    }
}

static void torchtitan_translate(struct from *from)
{
    struct torchtitan_mesh m = { .dp = 1 };
    torchtitan_say_model(from);
    m.tp = torchtitan_say_axis(from, "parallelism.tensor_parallel_degree", "--tp");
    m.pp = torchtitan_say_axis(from, "parallelism.pipeline_parallel_degree", "--pp");
    m.cp = torchtitan_say_axis(from, "parallelism.context_parallel_degree", "--cp");
    if (!from->failed) torchtitan_say_copies(from, &m);
    if (from->failed) return;
    torchtitan_say_scheme(from, &m);
    torchtitan_say_tensor(from, m.tp);
    torchtitan_say_context(from, &m);
    torchtitan_say_experts(from, &m);
    torchtitan_say_pipeline(from, &m);
    torchtitan_say_batch(from, &m);
    torchtitan_say_formats(from, &m);
    if (from_is(from, "optimizer.name", "AdamW")) from_say(from, "optimizer.name", "--optimizer", "adamw");
    else if (from_is(from, "optimizer.name", "Adam"))
        from_assume(from, "optimizer.name", "--optimizer adamw: its state and its time are the same");
    else from_refuse(from, "optimizer.name", "must be AdamW or Adam");
    from_say(from, "optimizer.name", "--as", "torch");
    from_say(from, "training.max_norm", "--clip", "%g", from_real(from, "training.max_norm", 0, 1e30));
    torchtitan_say_recompute(from);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* A line that begins with one of torchtitan's tables. */
static bool torchtitan_is(const char *text)
{
    static const char *const tables[] = { "[job]", "[model]", "[training]", "[parallelism]", "[optimizer]",
                                          "[activation_checkpoint]", NULL };
    for (int i = 0; tables[i]; i++)
        for (const char *at = strstr(text, tables[i]); at; at = strstr(at + 1, tables[i]))
            if (at == text || at[-1] == '\n') return true;
    return false;
}

const struct framework framework_torchtitan = {
    .name = "torchtitan", .title = "torchtitan", .release = "v0.2.2 (73a0e6979dd1)",
    .source = "pytorch/torchtitan: torchtitan/config/job_config.py", .dashes = "",
    .is = torchtitan_is, .read = toml_parse, .keys = keys, .groups = groups, .translate = torchtitan_translate,
};
