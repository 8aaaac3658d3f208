/* megatron_yaml.c -- reads the YAML file of Megatron-LM's --yaml-cfg as its arguments.
 *
 * from.c calls the functions of the row through frameworks.c.  The names are those of NVIDIA/Megatron-LM,
 * core_v0.16.1 (55ac7082517c), megatron/training/yaml_arguments.py and examples/gpt3/gpt_config.yaml: the fields of its
 * configs, with underscores, in language_model, in model_parallel, or at the top.  Most are arguments by another
 * spelling; a table has those that are not.  Errors are ERR_FORMAT with the line, and ERR_MEMORY.
 */
#include "emulated_devices/run/from/frameworks.h"
#include "emulated_devices/run/from/megatron_keys.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A field that is the opposite of an argument, or has another name. */
static const struct { const char *field, *argument; bool turned; } renamed[] = {
    { "add_bias_linear", "disable-bias-linear", true }, { "num_moe_experts", "num-experts", false },
    { "layernorm_zero_centered_gamma", "apply-layernorm-1p", false }, { "layernorm_epsilon", "norm-epsilon", false },
    { "virtual_pipeline_model_parallel_size", "num-virtual-stages-per-pipeline-rank", false },
    { "add_position_embedding", "no-position-embedding", true }, { "fp8", "fp8-format", false },
    { "squared_relu", "squared-relu", false },
};

/* Fields that change no plan: hooks, which code computes, and what another field decides. */
static const char *const idle[] = {
    "bias_activation_fusion", "gated_linear_unit", "init_method", "output_layer_init_method", "masked_softmax_fusion",
    "persist_layer_norm", "memory_efficient_layer_norm", "bias_dropout_fusion", "apply_rope_fusion", "fp8_wgrad",
    "bias_swiglu_fusion", "clone_scatter_output_in_embedding", "moe_token_dropping", "perform_initialization",
    "params_dtype", "timers", "gradient_accumulation_fusion", "async_tensor_model_parallel_allreduce",
    "tp_comm_split_ag", "tp_comm_atomic_ag", "tp_comm_split_rs", "tp_comm_atomic_rs", "tp_comm_bulk_wgrad",
    "tp_comm_bulk_dgrad", "finalize_model_grads_func", "pipeline_dtype", "grad_scale_func", "enable_autocast",
    "autocast_dtype", "variable_seq_lengths", "num_microbatches_with_partial_activation_checkpoints",
    "batch_p2p_comm", "batch_p2p_sync", "use_ring_exchange_p2p", "deallocate_pipeline_outputs", "no_sync_func",
    "grad_sync_func", "param_sync_func", "cpu_offloading", "_cpu_offloading_context", "cpu_offloading_weights",
    "cpu_offloading_activations", "barrier_with_L1_time", "use_legacy_models", "spec",
    "check_for_nan_in_loss_and_grad", "encoder_num_layers", "decoder_num_layers", "onnx_safe", "bert_binary_head",
    "align_grad_reduce", "align_param_gather", "scatter_gather_tensors_in_pipeline", "standalone_embedding_stage",
    "manual_gc_eval", "encoder_seq_length", "decoder_seq_length", "enable_one_logger", "group_query_attention",
    "swiglu", "activation_func", NULL
};

static bool megatron_yaml_is_idle(const char *field)
{
    for (int i = 0; idle[i]; i++)
        if (strcmp(field, idle[i]) == 0) return true;
    return false;
}

static bool megatron_yaml_is_true(const char *text) { return strcmp(text, "True") == 0 || strcmp(text, "true") == 0; }

/* A field's name as that of an argument, in memory for free(). */
static char *megatron_yaml_name(const char *field, bool *turned)
{
    *turned = false;
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++)
        if (strcmp(field, renamed[i].field) == 0) {
            *turned = renamed[i].turned;
            return strdup(renamed[i].argument);
        }
    char *const name = strdup(field);
    for (char *c = name; name && *c; c++)
        if (*c == '_') *c = '-';
    return name;
}

static bool megatron_yaml_add(struct yaml ***end, const char *key, const char *text, int line)
{
    struct yaml *const y = calloc(1, sizeof *y);
    if (y == NULL) return false;
    *y = (struct yaml){ .kind = YAML_TEXT, .line = line, .key = strdup(key), .text = strdup(text) };
    **end = y;
    *end = &y->next;
    return y->key && y->text;
}

/* The values of a list, with blanks between. */
static void megatron_yaml_join(const struct yaml *list, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (const struct yaml *y = list->child; y && used < size; y = y->next)
        used += (size_t)snprintf(text + used, size - used, "%s%s", used ? " " : "", y->text ? y->text : "..");
}

/* One field: an argument of the same meaning, or none.  The activation and the groups of heads say two things. */
static bool megatron_yaml_take(const struct yaml *field, struct yaml ***end)
{
    char list[FROM_TEXT];
    bool turned;
    if (field->kind != YAML_TEXT) megatron_yaml_join(field, list, sizeof list);
    else snprintf(list, sizeof list, "%s", field->text);
    if (strcmp(field->key, "activation_func") == 0) {
        const char *const relu = strcmp(list, "squaredrelu") == 0 ? "squared-relu" : "swiglu";
        if (strcmp(list, "swiglu") == 0 || relu[1] == 'q') return megatron_yaml_add(end, relu, "true", field->line);
    }
    if (strcmp(field->key, "num_query_groups") == 0 && strcmp(list, "null") != 0
        && !megatron_yaml_add(end, "group-query-attention", "true", field->line)) return false;
    if (megatron_yaml_is_idle(field->key) || strcmp(list, "null") == 0) {
        char key[FROM_TEXT];
        snprintf(key, sizeof key, "field.%.200s", field->key);
        return megatron_yaml_add(end, key, list, field->line);
    }
    char *const name = megatron_yaml_name(field->key, &turned);
    const char *const text = !turned ? list : megatron_yaml_is_true(list) ? "false" : "true";
    const bool ok = name && megatron_yaml_add(end, name, text, field->line);
    free(name);
    return ok;
}

static enum error_code megatron_yaml_read(const char *text, size_t length, const char *where, struct yaml **root,
                                          struct error *err)
{
    struct yaml *tree = NULL;
    *root = NULL;
    const enum error_code e = yml_parse(text, length, where, &tree, err);
    if (e) return e;
    *root = calloc(1, sizeof **root);
    bool ok = *root != NULL;
    if (ok) (*root)->kind = YAML_MAPPING;
    struct yaml **end = ok ? &(*root)->child : NULL;
    for (const struct yaml *y = tree->child; y && ok; y = y->next) {
        if (y->kind != YAML_MAPPING) ok = megatron_yaml_take(y, &end);
        else for (const struct yaml *x = y->child; x && ok; x = x->next) ok = megatron_yaml_take(x, &end);
    }
    yml_free(tree);
    if (ok) return OK;
    yml_free(*root);
    *root = NULL;
    return fail(err, ERR_MEMORY, "%s: no memory to read it", where);
}

static bool megatron_yaml_is(const char *text)
{
    const char *const at = strstr(text, "language_model:");
    return at && (at == text || at[-1] == '\n');
}

const struct framework framework_megatron_yaml = {
    .name = "megatron-yaml", .title = "Megatron-LM", .release = MEGATRON_RELEASE,
    .source = "NVIDIA/Megatron-LM: megatron/training/yaml_arguments.py", .dashes = "--",
    .is = megatron_yaml_is, .read = megatron_yaml_read, .keys = megatron_keys, .groups = megatron_groups,
    .translate = megatron_translate,
};
