/* deepspeed.c -- what a JSON configuration of DeepSpeed means in words of `orrery plan`.  The model is not in such a
 * file: --model of the command line names it.
 *
 * from.c calls the functions of the row through frameworks.c.  The keys and their defaults are those of
 * deepspeedai/DeepSpeed, v0.19.5 (cf44300453eb): deepspeed/runtime/config.py, constants.py, engine.py, zero/config.py,
 * zero/offload_config.py, pipe/engine.py.  Problems are kept in struct from.
 */
#include "emulated_devices/run/from/deepspeed.h"
#include "emulated_devices/comm/mesh.h"
#include "emulated_devices/run/from/frameworks.h"
#include "ref/io/output.h"
#include <stdlib.h>
#include <string.h>

#define ZERO "zero_optimization."
#define CONTROL "\n\r\t\033\b\a\177"

static const struct framework_key keys[] = {
    { "train_batch_size", NULL }, { "train_micro_batch_size_per_gpu", NULL }, { "gradient_accumulation_steps", NULL },
    { "optimizer.type", NULL }, { "gradient_clipping", "1.0" },
    { "fp16.enabled", "false" }, { "bf16.enabled", "false" }, { "bfloat16.enabled", "false" },
    { "bf16.bf16_master_weights_and_grads", "false" }, { "bf16.bf16_optimizer_states", "false" },
    { "fp16.fp16_master_weights_and_grads", "false" }, { "data_types.grad_accum_dtype", NULL },
    { ZERO "stage", "0" }, { ZERO "offload_optimizer.device", "none" }, { ZERO "offload_param.device", "none" },
    { ZERO "offload_optimizer.nvme_path", NULL }, { ZERO "offload_param.nvme_path", NULL },
    { ZERO "cpu_offload", "false" }, { ZERO "reduce_bucket_size", "500000000" },
    { ZERO "zero_quantized_weights", "false" }, { ZERO "zero_quantized_gradients", "false" },
    { ZERO "zero_hpz_partition_size", "1" }, { ZERO "mics_shard_size", "-1" },
    { "tensor_parallel.autotp_size", "0" }, { "sequence_parallel_size", "1" },
    { NULL, NULL },
};

static const struct framework_group groups[] = {
    { FATE_NOTHING, "rates of learning",
      "optimizer.params.* optimizer.legacy_fusion scheduler.type scheduler.params.* zero_allow_untested_optimizer "
      "zero_force_ds_cpu_optimizer" },
    { FATE_NOTHING, "scales of losses",
      "fp16.loss_scale fp16.auto_cast fp16.initial_scale_power fp16.loss_scale_window fp16.hysteresis "
      "fp16.consecutive_hysteresis fp16.min_loss_scale bf16.check_overflow bf16.immediate_grad_update "
      "prescale_gradients gradient_predivide_factor" },
    { FATE_NOTHING, "logs, checks and checkpoints",
      "steps_per_print wall_clock_breakdown memory_breakdown dump_state log_level tensorboard.* wandb.* csv_monitor.* "
      "comet.* monitor_config.* comms_logger.* flops_profiler.* checkpoint.* elasticity.* autotuning.* nebula.* "
      "dataloader_drop_last vocabulary_size managed_gradient_accumulation "
      ZERO "load_from_fp32_weights " ZERO "elastic_checkpoint " ZERO "ignore_unused_parameters "
      ZERO "log_trace_cache_warnings " ZERO "enable_sanity_checks " ZERO "override_module_apply "
      ZERO "pipeline_loading_checkpoint " ZERO "stage3_gather_16bit_weights_on_model_save "
      ZERO "stage3_gather_fp16_weights_on_model_save " ZERO "gather_16bit_weights_on_model_save "
      ZERO "save_muon_momentum_buffer_in_memory " ZERO "legacy_stage1" },
    { FATE_NOTHING, "how a stage moves what it moves: the plan's moves each bucket, or each layer, once",
      ZERO "contiguous_gradients " ZERO "reduce_scatter " ZERO "allgather_partitions " ZERO "allgather_bucket_size "
      ZERO "use_multi_rank_bucket_allreduce " ZERO "round_robin_gradients " ZERO "sub_group_size "
      ZERO "memory_efficient_linear " ZERO "stage3_use_all_reduce_for_fetch_params " ZERO "allgather_sequential "
      ZERO "stage3_allgather_sequential disable_allgather aio.* " ZERO "cpu_offload_use_pin_memory "
      ZERO "offload_optimizer.pin_memory " ZERO "offload_param.pin_memory " ZERO "offload_optimizer.buffer_count "
      ZERO "offload_param.buffer_count " ZERO "offload_optimizer.fast_init " ZERO "offload_param.buffer_size "
      ZERO "offload_optimizer.pipeline_read " ZERO "offload_optimizer.pipeline_write "
      ZERO "offload_optimizer.pipeline tensor_parallel.tp.* tensor_parallel.preset_model "
      "tensor_parallel.tp_overlap_comm" },
    { FATE_OUTSIDE, "the plan's stages 1 to 3 always overlap reductions with the backward pass", ZERO "overlap_comm" },
    { FATE_OUTSIDE, "the plan gathers the weights of one layer ahead, and drops them after use: other limits would "
                    "keep more weights, and gather less",
      ZERO "stage3_prefetch_bucket_size " ZERO "prefetch_bucket_size " ZERO "stage3_param_persistence_threshold "
      ZERO "param_persistence_threshold " ZERO "stage3_model_persistence_threshold " ZERO "model_persistence_threshold "
      ZERO "stage3_max_live_parameters " ZERO "max_live_parameters " ZERO "stage3_max_reuse_distance "
      ZERO "max_reuse_distance " ZERO "stage3_module_granularity_threshold " ZERO "module_granularity_threshold" },
    { FATE_OUTSIDE, "a part of what is offloaded would stay: the plan moves all of it",
      ZERO "offload_optimizer.ratio " ZERO "offload_param.max_in_cpu" },
    { FATE_OUTSIDE, "messages would have another format: the plan's gradients travel as they are kept",
      "communication_data_type seq_parallel_communication_data_type " ZERO "zero_quantized_nontrainable_weights "
      ZERO "zeropp_loco_param.* " ZERO "mics_hierarchical_params_gather" },
    { FATE_OUTSIDE, "these keys set how layers are recomputed, not which: the model's code says that; add --recompute "
                    "full if it does",
      "activation_checkpointing.*" },
    { FATE_OUTSIDE, "only a part of the model, of its tokens or of its attention would be computed",
      "sparse_attention.* progressive_layer_drop.* data_efficiency.* curriculum_learning.* compression_training.* "
      "sparse_gradients eigenvalue.enabled" },
    { FATE_NOTHING, "of eigenvalue.enabled alone", "eigenvalue.*" },
    { FATE_OUTSIDE, "numbers would be cast as autocast does: the plan's products are in the format of --dtype",
      "amp.* torch_autocast.* data_types.param_dtype data_types.buffer_dtype" },
    { FATE_OUTSIDE, "the host would step apart from the device", ZERO "zenflow.*" },
    { FATE_OUTSIDE, "the calling program says how the pipeline is cut: add --pp N", "pipeline.*" },
    { FATE_OUTSIDE, "the calling program says where experts are: add --ep N", "use_data_before_expert_parallelism" },
    { FATE_OUTSIDE, "the compiler would choose when to gather and what to keep", "compile.*" },
    { FATE_NOTHING, NULL, NULL },
};

/* ---- ZeRO -------------------------------------------------------------------------------------------------------- */

/* A device of the slow tier.  @return whether it is one. */
static bool deepspeed_is_away(struct from *from, const char *key)
{
    const char *const where = from_value(from, key);
    if (where == NULL || strcmp(where, "none") == 0) return false;
    if (strcmp(where, "cpu") != 0 && strcmp(where, "nvme") != 0) from_refuse(from, key, "must be none, cpu or nvme");
    return !from->failed;
}

/* Where it lies: the first folder that the file names, if the tier is a drive. */
static void deepspeed_say_tier(struct from *from, const struct deepspeed_keys *keys_)
{
    const bool drive = from_is(from, keys_->optimizer_to, "nvme") || from_is(from, keys_->weights_to, "nvme");
    const char *const paths[] = { keys_->optimizer_path, keys_->weights_path };
    bool said = false;
    for (int i = 0; i < 2; i++) {
        const char *const path = from_value(from, paths[i]);
        if (!from_has(from, paths[i])) continue;
        if (!drive) from_nothing(from, paths[i], "of device nvme alone");
        else if (path && strpbrk(path, CONTROL)) from_refuse(from, paths[i], "must be a plain path");
        else if (!said && path) from_say(from, paths[i], "--offload-to", "%.200s", path);
        else from_with(from, paths[i], "in --offload-to");
        said = said || (drive && path);
    }
    if (drive && !said) from_refuse(from, keys_->optimizer_to, "needs a path, nvme_path");
}

static void deepspeed_say_offload(struct from *from, const struct deepspeed_keys *keys_, int stage)
{
    const bool state = deepspeed_is_away(from, keys_->optimizer_to);
    const bool weights = deepspeed_is_away(from, keys_->weights_to);
    if (weights && stage != 3) from_refuse(from, keys_->weights_to, "needs %s 3, which is %d", keys_->stage, stage);
    if (state && stage == 0) from_refuse(from, keys_->optimizer_to, "needs %s 1, 2 or 3, which is 0", keys_->stage);
    if (from->failed) return;
    if (from_has(from, keys_->optimizer_to) && !state) from_nothing(from, keys_->optimizer_to, "off");
    if (from_has(from, keys_->weights_to) && !weights) from_nothing(from, keys_->weights_to, "off");
    if (state) {
        from_say(from, keys_->optimizer_to, "--offload", "%sgradients,optimizer", weights ? "weights," : "");
        from_assume(from, keys_->optimizer_to, "the device steps, slice by slice; DeepSpeed's optimizer would step on "
                    "the host");
        if (weights) from_with(from, keys_->weights_to, "in --offload");
    } else if (weights) from_say(from, keys_->weights_to, "--offload", "weights");
    deepspeed_say_tier(from, keys_);
}

int deepspeed_say_zero(struct from *from, const struct deepspeed_keys *keys_)
{
    const int stage = (int)from_whole(from, keys_->stage, 0, 3);
    const int64_t pp = from_typed_whole(from, "--pp", 1);
    if (stage >= 2 && pp > 1)
        from_refuse(from, keys_->stage, "and --pp %lld: DeepSpeed's pipeline takes stages 0 and 1 alone",
                    (long long)pp);
    const char *const parts = ZERO "zero_hpz_partition_size", *const shards = ZERO "mics_shard_size";
    const int64_t group = from_has(from, parts) ? from_whole(from, parts, 1, MESH_MOST_DEVICES) : 1;
    const int64_t mics = from_has(from, shards) && !from_is(from, shards, "-1") ? from_whole(from, shards, 1,
                                                                                   MESH_MOST_DEVICES) : 0;
    if (group > 1 && mics) from_refuse(from, parts, "and %s %lld: give one of them", shards, (long long)mics);
    if ((group > 1 || mics) && stage != 3) from_refuse(from, group > 1 ? parts : shards, "needs %s 3", keys_->stage);
    if (group > 1 || mics) {
        from_say(from, group > 1 ? parts : shards, "--data-parallel", group > 1 ? "hpz" : "mics");
        from_say(from, group > 1 ? parts : shards, "--shard-group", "%lld", (long long)(group > 1 ? group : mics));
        from_with(from, keys_->stage, "in --data-parallel");
    } else from_say(from, keys_->stage, "--zero", "%d", stage);
    if (from_has(from, parts) && group == 1) from_nothing(from, parts, "off");
    if (from_has(from, shards) && mics == 0) from_nothing(from, shards, "off");
    deepspeed_say_offload(from, keys_, stage);
    return stage;
}

static void deepspeed_say_quantized(struct from *from, int stage)
{
    static const char weights[] = ZERO "zero_quantized_weights", gradients[] = ZERO "zero_quantized_gradients";
    const char *const key[] = { weights, gradients };
    for (int i = 0; i < 2; i++) {
        if (!from_has(from, key[i])) continue;
        if (!from_truth(from, key[i])) from_nothing(from, key[i], "off");
        else if (stage != 3) from_refuse(from, key[i], "needs " ZERO "stage 3");
        else if (i == 0) from_say(from, weights, "--quantize-weights", "int8");
        else from_say(from, gradients, "--quantize-gradients", "int4");
    }
}

/* Bytes of a bucket, which the file has in elements. */
static void deepspeed_say_buckets(struct from *from, int stage, bool halves, int64_t dp)
{
    static const char key[] = ZERO "reduce_bucket_size";
    const int64_t elements = from_whole(from, key, 1, (int64_t)1 << 40);
    if (from->failed) return;
    if ((stage == 1 || stage == 2) && dp > 1)
        from_say(from, key, "--bucket", "%lld", (long long)elements * (halves ? 2 : 4));
    else if (from_has(from, key))
        from_nothing(from, key, stage == 3 ? "the plan's stage 3 reduces layer by layer"
                                           : "of stages 1 and 2, and of several copies");
}

/* ---- the step ---------------------------------------------------------------------------------------------------- */

/* @return whether gradients have 16 bits. */
static bool deepspeed_say_formats(struct from *from)
{
    static const char half[] = "fp16.enabled", sums[] = "data_types.grad_accum_dtype";
    static const char *const low[] = { "bf16.bf16_master_weights_and_grads", "bf16.bf16_optimizer_states",
                                       "fp16.fp16_master_weights_and_grads" };
    const char *const brain = from_has(from, "bfloat16.enabled") ? "bfloat16.enabled" : "bf16.enabled";
    const bool is_brain = from_truth(from, brain), is_half = from_truth(from, half);
    if (is_brain && is_half) from_refuse(from, half, "and %s: give one of them", brain);
    if (is_brain) from_say(from, brain, "--dtype", "bf16");
    else if (from_has(from, brain)) from_nothing(from, brain, "off");
    if (is_half) from_say(from, half, "--dtype", "fp16");
    else if (from_has(from, half)) from_nothing(from, half, "off");
    if (from_has(from, "bfloat16.enabled") && from_has(from, "bf16.enabled"))
        from_nothing(from, "bf16.enabled", "bfloat16.enabled says it, too");
    for (int i = 0; i < 3; i++) {
        if (from_truth(from, low[i]))
            from_outside(from, low[i], "masters or state would have 16 bits; the plan's have 32: 2 to 8 bytes a weight "
                         "more");
        else if (from_has(from, low[i])) from_nothing(from, low[i], "off");
    }
    const bool whole = from_is(from, sums, "fp32") || !(is_brain || is_half);
    if (!whole) from_say(from, sums, "--grad-dtype", is_brain ? "bf16" : "fp16");
    else if (from_has(from, sums)) from_with(from, sums, "the plan's default");
    return !whole;
}

static void deepspeed_say_optimizer(struct from *from)
{
    static const char key[] = "optimizer.type";
    static const char *const adams[] = { "Adam", "AdamW", "adam", "adamw", "FusedAdam", "DeepSpeedCPUAdam" };
    const char *const type = from_value(from, key);
    bool adam = type == NULL;
    for (size_t i = 0; i < sizeof adams / sizeof *adams && type; i++) adam = adam || strcmp(type, adams[i]) == 0;
    if (adam) from_say(from, key, "--optimizer", "adamw");
    else if (strcmp(type, "SGD") == 0 || strcmp(type, "sgd") == 0) from_say(from, key, "--optimizer", "momentum");
    else from_refuse(from, key, "is no optimizer of a plan; --optimizer names one, and the file must not");
    from_say(from, key, "--as", "deepspeed");
    from_say(from, "gradient_clipping", "--clip", "%g", from_real(from, "gradient_clipping", 0, 1e30));
}

/* As DeepSpeed derives one of the three numbers from the others and the copies. */
static void deepspeed_say_batch(struct from *from, int64_t cp)
{
    static const char all[] = "train_batch_size", each[] = "train_micro_batch_size_per_gpu",
                      times[] = "gradient_accumulation_steps";
    int64_t batch = from_whole(from, all, 1, 1000000000), micro = from_whole(from, each, 1, 1000000000);
    int64_t steps = from_whole(from, times, 1, 1000000), dp = from_typed_whole(from, "--dp", 0);
    if (from->failed) return;
    if (batch == 0 && micro == 0) {
        from_assume(from, each, "1 sequence: neither %s nor %s says it", all, each);
        micro = 1;
    }
    if (dp == 0 && batch && micro && steps && batch % (micro * steps) == 0) {
        dp = batch / (micro * steps);
        from_say(from, all, "--dp", "%lld", (long long)dp);
    } else if (dp == 0 && batch && micro && steps) {
        from_refuse(from, all, "cannot be divided by %s %lld times %s %lld", each, (long long)micro, times,
                    (long long)steps);
        return;
    }
    if (dp == 0) {
        from_copies(from, 0, cp, "the launcher says it", "sequence_parallel_size");
        return;
    }
    if (steps == 0) steps = batch && micro && batch % (micro * dp) == 0 ? batch / (micro * dp) : 1;
    if (micro == 0) micro = batch % (dp * steps) == 0 ? batch / (dp * steps) : 0;
    if (micro > 0 && (batch == 0 || batch == micro * steps * dp)) {
        from_batch(from, all, each, micro * steps * dp, micro, dp);
        if (from_has(from, times)) from_with(from, times, "in --micro");
    } else
        from_refuse(from, all, "is not %s %lld times %s %lld times %lld copies", each, (long long)micro, times,
                    (long long)steps, (long long)dp);
}

static void deepspeed_translate(struct from *from)
{
    static const struct deepspeed_keys names = {
        .stage = ZERO "stage", .optimizer_to = ZERO "offload_optimizer.device",
        .weights_to = ZERO "offload_param.device",
        .optimizer_path = ZERO "offload_optimizer.nvme_path", .weights_path = ZERO "offload_param.nvme_path",
    };
    static const char tp[] = "tensor_parallel.autotp_size", cp[] = "sequence_parallel_size", old[] = ZERO "cpu_offload";
    from_need_model(from);
    const int64_t parts = from_whole(from, tp, 0, MESH_MOST_DEVICES);
    const int64_t tokens = from_whole(from, cp, 1, MESH_MOST_DEVICES);
    if (parts > 1) from_say(from, tp, "--tp", "%lld", (long long)parts);
    else if (from_has(from, tp)) from_nothing(from, tp, "off");
    if (tokens > 1) {
        from_say(from, cp, "--cp", "%lld", (long long)tokens);
        from_say(from, cp, "--attention", "ulysses");
    } else if (from_has(from, cp)) from_nothing(from, cp, "off");
    if (from_truth(from, old)) from_refuse(from, old, "is the old word for offload_optimizer; say that");
    else if (from_has(from, old)) from_nothing(from, old, "off");
    deepspeed_say_batch(from, tokens);
    if (from->failed) return;
    const int stage = deepspeed_say_zero(from, &names);
    deepspeed_say_quantized(from, stage);
    const bool halves = deepspeed_say_formats(from);
    deepspeed_say_buckets(from, stage, halves, from_typed_whole(from, "--dp", 2));
    deepspeed_say_optimizer(from);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* A value of JSON as text: numbers as they are read back. */
static char *deepspeed_text(const cJSON *value)
{
    if (cJSON_IsString(value)) return strdup(value->valuestring);
    char *const printed = json_text(value, false), *const text = printed ? strdup(printed) : NULL;
    cJSON_free(printed);
    return text;
}

/* Objects become mappings, lists and values texts; an object without members is left out. */
static enum error_code deepspeed_tree(const cJSON *object, struct yaml *parent, int depth, const char *where,
                                      struct error *err)
{
    struct yaml **end = &parent->child;
    const cJSON *x;
    if (depth == YAML_DEPTH) return fail(err, ERR_FORMAT, "%s: it is nested too deeply", where);
    cJSON_ArrayForEach(x, object) {
        struct yaml *const y = calloc(1, sizeof *y);
        if (y == NULL) return fail(err, ERR_MEMORY, "%s: no memory to read it", where);
        *end = y, end = &y->next;
        y->kind = cJSON_IsObject(x) ? YAML_MAPPING : YAML_TEXT;
        y->key = strdup(x->string);
        if (!cJSON_IsObject(x)) y->text = deepspeed_text(x);
        if (y->key == NULL || (y->kind == YAML_TEXT && y->text == NULL))
            return fail(err, ERR_MEMORY, "%s: no memory to read it", where);
        const enum error_code e = cJSON_IsObject(x) ? deepspeed_tree(x, y, depth + 1, where, err) : OK;
        if (e) return e;
    }
    return OK;
}

static enum error_code deepspeed_read(const char *text, size_t length, const char *where, struct yaml **root,
                                      struct error *err)
{
    cJSON *json;
    *root = NULL;
    enum error_code e = json_parse(text, length, where, &json, err);
    if (!e && !cJSON_IsObject(json)) e = fail(err, ERR_FORMAT, "%s: is no object of JSON", where);
    if (!e) *root = calloc(1, sizeof **root);
    if (!e && *root == NULL) e = fail(err, ERR_MEMORY, "%s: no memory to read it", where);
    if (!e) {
        (*root)->kind = YAML_MAPPING;
        e = deepspeed_tree(json, *root, 0, where, err);
    }
    cJSON_Delete(json);
    if (e) yml_free(*root), *root = NULL;
    return e;
}

static bool deepspeed_is(const char *text) { return text[strspn(text, " \t\r\n")] == '{'; }

const struct framework framework_deepspeed = {
    .name = "deepspeed", .title = "DeepSpeed", .release = "v0.19.5 (cf44300453eb)",
    .source = "deepspeedai/DeepSpeed: deepspeed/runtime/config.py, zero/config.py", .dashes = "", .left = "auto",
    .is = deepspeed_is, .read = deepspeed_read, .keys = keys, .groups = groups, .translate = deepspeed_translate,
};
