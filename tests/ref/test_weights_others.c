/* Model folders of other programs, tensors that a wrapper has renamed, and weights that are codes: one line says what
 * is there, and the command or the step that makes of it what is read. */
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include "ref/model/weights.h"
#include "tests/ref/scratch.h"

static const struct model_config llama = { .name = "llama", .family = &family_llama, .S = 5, .D = 12, .H = 3, .K = 1,
                                           .A = 4, .F = 7, .L = 1, .V = 11, .norm = NORM_RMS,
                                           .positions = POSITIONS_ROTARY, .mlp = MLP_SWIGLU,
                                           .rotary = { .theta = 100 }, .eps = 1e-5, .init_std = 0.3 };

#define CONFIG                                                                                                         \
    "{\"model_type\": \"llama\", \"vocab_size\": 11, \"hidden_size\": 12, \"intermediate_size\": 7, "                  \
    "\"num_hidden_layers\": 1, \"num_attention_heads\": 3, \"num_key_value_heads\": 1, "                               \
    "\"max_position_embeddings\": 5, \"rope_theta\": 100, \"rms_norm_eps\": 1e-5"

/* A new folder with these empty files; a name that ends with / is a folder in it. */
static const char *folder_of(const char *name, const char *const files[3])
{
    static char dir[300];
    snprintf(dir, sizeof dir, "%s", scratch(name));
    assert_int_equal(mkdir(dir, 0700), 0);
    for (int i = 0; i < 3 && files[i]; i++) {
        char path[700];
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        if (path[strlen(path) - 1] == '/') assert_int_equal(mkdir(path, 0700), 0);
        else put_text(path, "");
    }
    return dir;
}

static void each_format_has_its_line(void **state)
{
    (void)state;
    static const struct { const char *files[3], *says; } of[] = {
        { { "pytorch_model.bin" }, "pytorch_model.bin is PyTorch's pickle; convert it: python3 -c 'from transformers" },
        { { "pytorch_model-00002-of-00002.bin", "pytorch_model.bin.index.json" },
          "pytorch_model-00002-of-00002.bin is PyTorch's pickle; convert it: python3 -c" },
        { { "model-00001-of-00002.safetensors" },
          "is a part of a model; model.safetensors.index.json, which lists the parts, must lie beside it" },
        { { "adapter_config.json", "adapter_model.safetensors" }, "is a LoRA adapter; merge it: python3 -c" },
        { { "consolidated.00.pth", "params.json" }, "a Llama's own format; convert it, with transformers 4: " },
        { { "consolidated.safetensors", "params.json" }, "a Mistral's own format; convert it, with transformers 4" },
        { { "m-q4.gguf" }, "llama.cpp's format; convert it: |gguf_file=\"m-q4.gguf\").save_pretrained(\"" },
        { { ".metadata", "__0_0.distcp" }, "__0_0.distcp is torch.distributed.checkpoint's format; |dcp_to_torch" },
        { { ".metadata" }, ".metadata is torch.distributed.checkpoint's format" },
        { { "latest_checkpointed_iteration.txt", "iter_0000100/" }, "is Megatron's checkpoint; convert it: scripts/" },
        { { "mp_rank_00/" }, "mp_rank_00 is Megatron's checkpoint" },
        { { "latest", "global_step100/", "zero_to_fp32.py" }, "global_step100 is DeepSpeed's |zero_to_fp32" },
        { { "mp_rank_00_model_states.pt" }, "DeepSpeed's checkpoint; convert it, in the folder above it" },
        { { "tf_model.h5" }, "TensorFlow's format; convert it, with transformers 4: |from_tf=True).save_pretrained" },
        { { "flax_model.msgpack" }, "Flax's format; |from_flax=True" },
        { { "model.pt" }, "model.pt is PyTorch's pickle; load it with torch.load" },
    };
    char name[32];
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct weights w;
        struct model_config c;
        struct error err = { OK, "" };
        snprintf(name, sizeof name, "format-%zu", i);
        const char *const dir = folder_of(name, of[i].files);
        if (weights_open(&w, dir, &err) != ERR_FORMAT) fail_msg("%s is opened: %s", of[i].files[0], err.text);
        assert_says(of[i].files[0], err.text, "there is no model.safetensors");
        assert_says(of[i].files[0], err.text, of[i].says);
        if (model_config_read_folder(&c, dir, &err) != ERR_FORMAT)
            fail_msg("%s has a config: %s", of[i].files[0], err.text);
        assert_says(of[i].files[0], err.text, "there is no config.json");
        assert_says(of[i].files[0], err.text, of[i].says);
        assert_true(strlen(err.text) < sizeof err.text - 1);
    }
}

static void unknown_files_say_what_is_missing(void **state)
{
    (void)state;
    struct weights w;
    struct model_config c;
    struct error err = { OK, "" };
    const char *const dir = folder_of("unknown", (const char *const[3]){ "notes.txt", "generation_config.json" });
    assert_int_equal(weights_open(&w, dir, &err), ERR_FILE);
    assert_says("weights", err.text, "model.safetensors: cannot be opened");
    assert_int_equal(model_config_read_folder(&c, dir, &err), ERR_FILE);
    assert_says("config", err.text, "config.json: cannot be opened");
}

static void a_pointer_of_git_lfs_is_named(void **state)
{
    (void)state;
    struct weights w;
    struct error err = { OK, "" };
    char path[400];
    const char *const dir = folder_of("lfs", (const char *const[3]){ NULL });
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    put_text(path, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 17\n");
    assert_int_equal(weights_open(&w, dir, &err), ERR_FORMAT);
    assert_says("lfs", err.text, "is a pointer of Git LFS, of 65 bytes, in place of the file: git lfs pull");
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

enum { ROOM = 256, MOST = 32 };

/* Write the model's file again, with `part` before each name, or with "base_layer." before its last word, too. */
static void rename_tensors(const char *from, const char *to, const char *part, bool layered)
{
    struct safetensors st;
    struct safetensors_writer w;
    struct safetensors_entry entry[MOST];
    char name[MOST][ROOM];
    struct error err = { OK, "" };
    if (safetensors_open(&st, from, &err) != OK) fail_msg("%s", err.text);
    assert_true(st.count <= MOST);
    for (int i = 0; i < st.count; i++) {
        const char *const last = strrchr(st.entry[i].name, '.');
        entry[i] = st.entry[i];
        if (layered && strstr(st.entry[i].name, "q_proj"))
            snprintf(name[i], ROOM, "%s%.*s.base_layer%s", part, (int)(last - st.entry[i].name), st.entry[i].name,
                     last);
        else snprintf(name[i], ROOM, "%s%s", part, st.entry[i].name);
        entry[i].name = name[i];
    }
    if (safetensors_create(&w, to, entry, st.count, NULL, 0, &err) != OK) fail_msg("%s", err.text);
    for (int i = 0; i < st.count; i++) {
        double x[1000];
        assert_true(st.entry[i].count <= 1000);
        assert_int_equal(safetensors_read(&st, &st.entry[i], F64, x, &err), OK);
        assert_int_equal(safetensors_write(&w, i, x, &err), OK);
    }
    assert_int_equal(safetensors_commit(&w, &err), OK);
    safetensors_close(&st);
}

static void wrapped_names_are_named(void **state)
{
    (void)state;
    static const struct { const char *part, *says; bool layered; } of[] = {
        { "_orig_mod.", "has \"_orig_mod.\" in its name, for model.|torch.compile adds it: save model._orig", false },
        { "module.", "has \"module.\" in its name|DistributedDataParallel adds it: save model.module", false },
        { "model.", "has \"model.\" in its name|an object that holds the model adds it", false },
        { "base_model.model.", "has \"base_model.model.\" in its name|peft adds it: save model.merge_and_", true },
        { "_fsdp_wrapped_module.", "has \"_fsdp_wrapped_module.\" in its name|FSDP adds it", false },
        { "language_model.", "has \"language_model.\" in its name|a model with images adds it", false },
        { "another.", "there is no tensor model.", false },
    };
    struct transformer m;
    struct error err = { OK, "" };
    char from[400], dir[300], to[400], name[32];
    if (transformer_open(&m, &llama, F64, 1, &err) != OK) fail_msg("%s", err.text);
    snprintf(dir, sizeof dir, "%s", folder_of("own-names", (const char *const[3]){ NULL }));
    if (weights_save(&m, dir, &err) != OK) fail_msg("%s", err.text);
    if (weights_load(&m, dir, &err) != OK) fail_msg("%s", err.text);
    snprintf(from, sizeof from, "%s/model.safetensors", dir);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        snprintf(name, sizeof name, "names-%zu", i);
        const char *const wrapped = folder_of(name, (const char *const[3]){ NULL });
        snprintf(to, sizeof to, "%s/model.safetensors", wrapped);
        rename_tensors(from, to, of[i].part, of[i].layered);
        if (weights_load(&m, wrapped, &err) != ERR_FORMAT) fail_msg("%s: %s", of[i].part, err.text);
        assert_says(of[i].part, err.text, of[i].says);
    }
    transformer_close(&m);
}

/* ---- codes ------------------------------------------------------------------------------------------------------- */

/* A plan needs shapes alone, so the config is read; weights are not. */
static void codes_are_refused_with_the_weights(void **state)
{
    (void)state;
    static const struct { const char *more, *says; } of[] = {
        { "\"quantization_config\": {\"quant_method\": \"mxfp4\"}",
          "the weights are codes, of \"mxfp4\"; Orrery reads numbers, and fp8|Mxfp4Config(dequantize=True)" },
        { "\"quantization_config\": {\"quant_method\": \"fp8\"}", "of \"fp8\"|FineGrainedFP8Config(dequantize=True)" },
        { "\"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [64, 128]}", "of \"fp8\"" },
        { "\"quantization_config\": {\"quant_method\": \"fp8\", \"fmt\": \"e5m2\", \"weight_block_size\": [128, 128]}",
          "of \"fp8\"" },
        { "\"quantization_config\": {\"bits\": 4}", "of \"?\"; |from_pretrained(DIR).dequantize(), and save it" },
        { "\"quantization_config\": 3", "quantization_config says that the weights are codes, of \"?\"" },
        { "\"quantization\": {\"group_size\": 64, \"bits\": 4}", "quantization says that |are codes, of \"mlx\"" },
    };
    char path[400], text[1000], name[32];
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct weights w;
        struct model_config c;
        struct error err = { OK, "" };
        snprintf(name, sizeof name, "codes-%zu", i);
        const char *const dir = folder_of(name, (const char *const[3]){ NULL });
        snprintf(path, sizeof path, "%s/config.json", dir);
        snprintf(text, sizeof text, CONFIG ", %s}", of[i].more);
        put_text(path, text);
        if (model_config_read_folder(&c, dir, &err) != OK) fail_msg("%s: %s", of[i].more, err.text);
        if (weights_open(&w, dir, &err) != ERR_FORMAT) fail_msg("%s: %s", of[i].more, err.text);
        assert_says(of[i].more, err.text, of[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_format_has_its_line), cmocka_unit_test(unknown_files_say_what_is_missing),
        cmocka_unit_test(a_pointer_of_git_lfs_is_named), cmocka_unit_test(wrapped_names_are_named),
        cmocka_unit_test(codes_are_refused_with_the_weights),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
