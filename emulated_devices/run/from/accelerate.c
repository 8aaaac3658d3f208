/* accelerate.c -- what a YAML configuration of Hugging Face accelerate means in words of `orrery plan`.  Model, batch
 * and lengths are not in such a file: --model, --batch and --seq of the command line say them.
 *
 * from.c calls the functions of the row through frameworks.c.  The keys and their defaults are those of
 * huggingface/accelerate, v1.14.0 (beb0672aa844): commands/config/config_args.py, cluster.py, utils/dataclasses.py,
 * parallelism_config.py.  Problems are kept in struct from.
 */
#include "emulated_devices/comm/mesh.h"
#include "emulated_devices/run/from/deepspeed.h"
#include "emulated_devices/run/from/frameworks.h"
#include <stdlib.h>
#include <string.h>

#define FSDP "fsdp_config.fsdp_"
#define DEEP "deepspeed_config."
#define PARALLEL "parallelism_config.parallelism_config_"
#define MEGATRON "megatron_lm_config.megatron_lm_"

static const struct framework_key keys[] = {
    { "distributed_type", NULL }, { "num_processes", NULL }, { "num_machines", "1" }, { "mixed_precision", "no" },
    { FSDP "version", "1" }, { FSDP "sharding_strategy", "FULL_SHARD" }, { FSDP "reshard_after_forward", "true" },
    { FSDP "offload_params", "false" }, { FSDP "activation_checkpointing", "false" },
    { DEEP "zero_stage", "2" }, { DEEP "offload_optimizer_device", "none" }, { DEEP "offload_param_device", "none" },
    { DEEP "offload_optimizer_nvme_path", NULL }, { DEEP "offload_param_nvme_path", NULL },
    { DEEP "gradient_accumulation_steps", "1" }, { DEEP "gradient_clipping", NULL },
    { DEEP "deepspeed_config_file", NULL },
    { PARALLEL "dp_replicate_size", "1" }, { PARALLEL "dp_shard_size", "1" }, { PARALLEL "tp_size", "1" },
    { PARALLEL "cp_size", "1" },
    { PARALLEL "cp_comm_strategy", "allgather" }, { PARALLEL "sp_size", "1" },
    { MEGATRON "tp_degree", "1" }, { MEGATRON "pp_degree", "1" }, { MEGATRON "num_micro_batches", "1" },
    { MEGATRON "sequence_parallelism", "false" }, { MEGATRON "recompute_activations", "false" },
    { MEGATRON "use_distributed_optimizer", "false" }, { MEGATRON "gradient_clipping", "1.0" },
    { NULL, NULL },
};

static const struct framework_group groups[] = {
    { FATE_NOTHING, "of the launcher",
      "compute_environment debug use_cpu machine_rank gpu_ids main_process_ip main_process_port rdzv_backend "
      "same_network main_training_function enable_cpu_affinity mpirun_config.* tpu_name tpu_zone tpu_use_cluster "
      "tpu_use_sudo command_file commands tpu_vm tpu_env downcast_bf16 "
      DEEP "deepspeed_hostfile " DEEP "deepspeed_inclusion_filter " DEEP "deepspeed_exclusion_filter "
      DEEP "deepspeed_multinode_launcher fsdp_config deepspeed_config megatron_lm_config fp8_config" },
    { FATE_NOTHING, "how weights are loaded and saved",
      FSDP "state_dict_type " FSDP "sync_module_states " FSDP "cpu_ram_efficient_loading " FSDP "use_orig_params "
      DEEP "zero3_init_flag " DEEP "zero3_save_16bit_model" },
    { FATE_NOTHING, "the plan wraps each layer, and gathers the next one while one computes",
      FSDP "auto_wrap_policy " FSDP "transformer_layer_cls_to_wrap " FSDP "backward_prefetch " FSDP "forward_prefetch "
      DEEP "deepspeed_moe_layer_cls_names " PARALLEL "cp_backend " PARALLEL "sp_backend" },
    { FATE_OUTSIDE, "units of other sizes than a layer would be gathered at once", FSDP "min_num_params" },
    { FATE_OUTSIDE, "some modules would stay whole on every device", FSDP "ignored_modules" },
    { FATE_OUTSIDE, "fp8: products would be up to twice as fast; the plan computes in the format of --dtype",
      "fp8_config.*" },
    { FATE_OUTSIDE, "a compiler would fuse operations, and choose what is kept", "dynamo_config.* dynamo_backend" },
    { FATE_NOTHING, NULL, NULL },
};

struct accelerate_mesh { int64_t devices, nodes, tp, pp, cp, dp; };

static bool accelerate_type_is(struct from *from, const char *type) { return from_is(from, "distributed_type", type); }

/* Keys of a part that the distributed type does not use have no effect. */
static void accelerate_pass(struct from *from, const char *part, const char *type)
{
    const size_t length = strlen(part);
    if (accelerate_type_is(from, type)) return;
    for (const struct framework_key *k = keys; k->key; k++)
        if (strncmp(k->key, part, length) == 0 && from_has(from, k->key))
            from_nothing(from, k->key, "of distributed_type %s alone", type);
}

/* ---- the mesh ---------------------------------------------------------------------------------------------------- */

static int64_t accelerate_axis(struct from *from, const char *key, const char *flag)
{
    const int64_t size = from_whole(from, key, 1, MESH_MOST_DEVICES);
    if (size > 1) from_say(from, key, flag, "%lld", (long long)size);
    else if (from_has(from, key)) from_nothing(from, key, "off");
    return from_typed_whole(from, flag, size > 0 ? size : 1);
}

static void accelerate_say_context(struct from *from, int64_t cp, int64_t sp)
{
    static const char way[] = PARALLEL "cp_comm_strategy";
    if (cp > 1) from_say(from, way, "--attention", from_is(from, way, "alltoall") ? "ring-zigzag" : "allgather-kv");
    else if (from_has(from, way)) from_nothing(from, way, "off");
    if (sp > 1) from_say(from, PARALLEL "sp_size", "--attention", "ulysses");
}

/* Copies and shards of parallelism_config must be the devices that are left. */
static void accelerate_check_copies(struct from *from, const struct accelerate_mesh *mesh)
{
    static const char replicas[] = PARALLEL "dp_replicate_size", shards[] = PARALLEL "dp_shard_size";
    const int64_t copies = from_whole(from, replicas, 1, MESH_MOST_DEVICES), parts = from_whole(from, shards, 1,
                                                                                              MESH_MOST_DEVICES);
    if (!from_has(from, replicas) && !from_has(from, shards)) return;
    if (!from->failed && copies * parts != mesh->dp)
        from_refuse(from, shards, "times %s %lld is not --dp %lld, of num_processes", replicas, (long long)copies,
                    (long long)mesh->dp);
    if (from_has(from, replicas)) from_with(from, replicas, "in --dp");
    if (from_has(from, shards)) from_with(from, shards, "in --dp");
}

static struct accelerate_mesh accelerate_say_mesh(struct from *from)
{
    struct accelerate_mesh m = { .tp = 1, .pp = 1, .cp = 1, .dp = 1 };
    if (accelerate_type_is(from, "MEGATRON_LM")) {
        m.tp = accelerate_axis(from, MEGATRON "tp_degree", "--tp");
        m.pp = accelerate_axis(from, MEGATRON "pp_degree", "--pp");
    } else m.tp = accelerate_axis(from, PARALLEL "tp_size", "--tp");
    const int64_t sp = from_whole(from, PARALLEL "sp_size", 1, MESH_MOST_DEVICES);
    if (sp > 1 && from_whole(from, PARALLEL "cp_size", 1, MESH_MOST_DEVICES) > 1)
        from_refuse(from, PARALLEL "cp_size", "and " PARALLEL "sp_size %lld: give one of them", (long long)sp);
    m.cp = accelerate_axis(from, sp > 1 ? PARALLEL "sp_size" : PARALLEL "cp_size", "--cp");
    if (sp > 1 && from_has(from, PARALLEL "cp_size")) from_nothing(from, PARALLEL "cp_size", "off");
    if (sp <= 1 && from_has(from, PARALLEL "sp_size")) from_nothing(from, PARALLEL "sp_size", "off");
    accelerate_say_context(from, sp > 1 ? 1 : m.cp, sp);
    m.nodes = from_whole(from, "num_machines", 1, 65536);
    m.devices = from_is(from, "num_processes", "-1") ? 0 : from_whole(from, "num_processes", 1, 1 << 20);
    m.dp = from_copies(from, m.devices, m.tp * m.pp * m.cp, "num_processes", "the sizes of tp, pp and cp");
    if (from_has(from, "num_processes")) from_say(from, "num_processes", "--dp", "%lld", (long long)m.dp);
    if (from_has(from, "num_machines")) from_with(from, "num_machines", "num_processes is of all machines");
    accelerate_check_copies(from, &m);
    return m;
}

/* ---- the distributed types --------------------------------------------------------------------------------------- */

/* The strategies of FSDP 1, by name or by number from 1 on. */
static const struct { const char *name, *scheme; bool keeps; } strategies[] = {
    { "FULL_SHARD", "fsdp", false }, { "SHARD_GRAD_OP", "fsdp", true }, { "NO_SHARD", "ddp", false },
    { "HYBRID_SHARD", "hsdp", false }, { "HYBRID_SHARD_ZERO2", "hsdp", true },
};

static void accelerate_say_strategy(struct from *from, const struct accelerate_mesh *mesh)
{
    static const char key[] = FSDP "sharding_strategy";
    const char *const value = from_value(from, key);
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        const char number[] = { (char)('1' + i), '\0' };
        if (value == NULL || (strcmp(value, strategies[i].name) != 0 && strcmp(value, number) != 0)) continue;
        from_say(from, key, "--data-parallel", "%s", strategies[i].scheme);
        if (strategies[i].scheme[0] == 'h' && mesh->devices == 0)
            from_refuse(from, key, "shares inside a machine, and num_processes does not say how many devices one has");
        if (strategies[i].scheme[0] == 'h')
            from_say(from, key, "--shard-group", "%lld", (long long)(mesh->devices / (mesh->nodes ? mesh->nodes : 1)
                                                                     / (mesh->tp * mesh->pp)));
        if (strategies[i].keeps) from_say(from, key, "--reshard-after-forward", "no");
        return;
    }
    from_refuse(from, key, "is no strategy of FSDP");
}

/* FSDP 2 has shards over dp_shard and cp; parallelism_config says how many replicas there are. */
static void accelerate_say_shards(struct from *from, const struct accelerate_mesh *mesh)
{
    static const char keep[] = FSDP "reshard_after_forward";
    const int64_t replicas = from_whole(from, PARALLEL "dp_replicate_size", 1, MESH_MOST_DEVICES);
    if (replicas > 1) {
        from_say(from, PARALLEL "dp_replicate_size", "--data-parallel", "hsdp");
        from_say(from, PARALLEL "dp_replicate_size", "--shard-group", "%lld",
                 (long long)(mesh->dp / replicas * mesh->cp));
        from_with(from, FSDP "version", "in --data-parallel");
    } else from_say(from, FSDP "version", "--data-parallel", "fsdp");
    if (!from_truth(from, keep)) from_say(from, keep, "--reshard-after-forward", "no");
    else if (from_has(from, keep)) from_with(from, keep, "the plan's default");
}

static void accelerate_say_fsdp(struct from *from, const struct accelerate_mesh *mesh)
{
    static const char away[] = FSDP "offload_params", again[] = FSDP "activation_checkpointing";
    if (from_whole(from, FSDP "version", 1, 2) == 2) {
        accelerate_say_shards(from, mesh);
        if (from_has(from, FSDP "sharding_strategy"))
            from_nothing(from, FSDP "sharding_strategy", "of FSDP version 1 alone");
    } else {
        accelerate_say_strategy(from, mesh);
        if (from_has(from, FSDP "version")) from_with(from, FSDP "version", "in --data-parallel");
        if (from_has(from, FSDP "reshard_after_forward"))
            from_nothing(from, FSDP "reshard_after_forward", "of FSDP version 2 alone");
    }
    if (from_truth(from, away)) from_say(from, away, "--offload", "weights,gradients,optimizer");
    else if (from_has(from, away)) from_nothing(from, away, "off");
    if (from_truth(from, again)) from_say(from, again, "--recompute", "full");
    else if (from_has(from, again)) from_nothing(from, again, "off");
}

static void accelerate_say_megatron(struct from *from, const struct accelerate_mesh *mesh)
{
    static const char cut[] = MEGATRON "sequence_parallelism", again[] = MEGATRON "recompute_activations";
    static const char shared[] = MEGATRON "use_distributed_optimizer", clip[] = MEGATRON "gradient_clipping";
    if (from_truth(from, cut) && mesh->tp > 1) from_say(from, cut, "--tensor", "1d-sp");
    else if (from_has(from, cut)) from_nothing(from, cut, "off");
    if (from_truth(from, again)) from_say(from, again, "--recompute", "selective");
    else if (from_has(from, again)) from_nothing(from, again, "off");
    from_say(from, shared, "--zero", "%d", from_truth(from, shared) ? 1 : 0);
    from_say(from, clip, "--clip", "%g", from_real(from, clip, 0, 1e30));
}

static void accelerate_say_deepspeed(struct from *from)
{
    static const struct deepspeed_keys names = {
        .stage = DEEP "zero_stage", .optimizer_to = DEEP "offload_optimizer_device",
        .weights_to = DEEP "offload_param_device", .optimizer_path = DEEP "offload_optimizer_nvme_path",
        .weights_path = DEEP "offload_param_nvme_path",
    };
    static const char clip[] = DEEP "gradient_clipping";
    if (from_has(from, DEEP "deepspeed_config_file"))
        from_refuse(from, DEEP "deepspeed_config_file", "says what is trained how; give --from "
                    "deepspeed:FILE, and --dp N");
    deepspeed_say_zero(from, &names);
    if (from_value(from, clip)) from_say(from, clip, "--clip", "%g", from_real(from, clip, 0, 1e30));
    else if (from_has(from, clip)) from_nothing(from, clip, "off");
}

/* ---- the step ---------------------------------------------------------------------------------------------------- */

static void accelerate_say_formats(struct from *from)
{
    static const char key[] = "mixed_precision";
    const bool deep = accelerate_type_is(from, "DEEPSPEED"), megatron = accelerate_type_is(from, "MEGATRON_LM");
    const bool brain = from_is(from, key, "bf16"), half = from_is(from, key, "fp16");
    if (from_is(from, key, "fp8")) {
        from_say(from, key, "--dtype", "bf16");
        from_outside(from, key, "fp8: products would be up to twice as fast; the plan computes in bf16");
        return;
    }
    if (!brain && !half) {
        if (!from_is(from, key, "no") && from_value(from, key)) from_refuse(from, key, "must be no, fp16, bf16 or fp8");
        else if (from_has(from, key)) from_say(from, key, "--dtype", "fp32");
        return;
    }
    from_say(from, key, "--dtype", brain ? "bf16" : "fp16");
    if (deep) from_say(from, key, "--grad-dtype", brain ? "bf16" : "fp16");
    else if (!megatron)
        from_assume(from, key, "a device keeps a 16-bit copy of its weights; PyTorch casts fp32 ones when they are "
                    "used: 2 bytes a weight less");
}

/* The training script says the batch; without --batch each microbatch of a copy is one sequence. */
static void accelerate_say_batch(struct from *from, int64_t dp)
{
    const bool megatron = accelerate_type_is(from, "MEGATRON_LM"), deep = accelerate_type_is(from, "DEEPSPEED");
    const char *const times = megatron ? MEGATRON "num_micro_batches" : DEEP "gradient_accumulation_steps";
    const int64_t micros = megatron || deep ? from_whole(from, times, 1, 1000000) : 1;
    if (from->failed) return;
    if (from_typed(from, "--batch") == NULL)
        from_assume(from, "num_processes", "one sequence for each microbatch of each copy, so --batch %lld: the "
                    "training script says the batch", (long long)(dp * micros));
    from_say(from, "num_processes", "--batch", "%lld", (long long)(dp * micros));
    from_say(from, megatron || deep ? times : "num_processes", "--micro", "%lld", (long long)micros);
}

static void accelerate_translate(struct from *from)
{
    const bool sharded = accelerate_type_is(from, "FSDP"), deep = accelerate_type_is(from, "DEEPSPEED");
    const bool megatron = accelerate_type_is(from, "MEGATRON_LM");
    from_need_model(from);
    if (!sharded && !deep && !megatron && !accelerate_type_is(from, "MULTI_GPU") && !accelerate_type_is(from, "NO"))
        from_refuse(from, "distributed_type", "must be NO, MULTI_GPU, FSDP, DEEPSPEED or MEGATRON_LM");
    accelerate_pass(from, FSDP, "FSDP");
    accelerate_pass(from, DEEP, "DEEPSPEED");
    accelerate_pass(from, MEGATRON, "MEGATRON_LM");
    const struct accelerate_mesh m = accelerate_say_mesh(from);
    if (from->failed) return;
    if (sharded) accelerate_say_fsdp(from, &m);
    else if (deep) accelerate_say_deepspeed(from);
    else if (megatron) accelerate_say_megatron(from, &m);
    else from_say(from, "distributed_type", "--data-parallel", "ddp");
    if (sharded || deep || megatron) from_with(from, "distributed_type", "in --data-parallel");
    accelerate_say_batch(from, m.dp);
    accelerate_say_formats(from);
    from_say(from, "distributed_type", "--as", deep ? "deepspeed" : megatron ? "megatron" : "torch");
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static bool accelerate_is(const char *text)
{
    static const char *const names[] = { "distributed_type:", "compute_environment:", "num_processes:", NULL };
    for (int i = 0; names[i]; i++) {
        const char *const at = strstr(text, names[i]);
        if (at && (at == text || at[-1] == '\n')) return true;
    }
    return false;
}

const struct framework framework_accelerate = {
    .name = "accelerate", .title = "accelerate", .release = "v1.14.0 (beb0672aa844)",
    .source = "huggingface/accelerate: src/accelerate/commands/config/config_args.py", .dashes = "",
    .is = accelerate_is, .read = yml_parse, .keys = keys, .groups = groups, .translate = accelerate_translate,
};
