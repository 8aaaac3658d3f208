/* weights_others.c -- names model folders of other programs, and tensors that a wrapper has renamed.
 *
 * Nothing of these files is read: formats differ by name, and for each there is a program that writes safetensors.  A
 * new format is a row of formats[].  weights.c and config_json.c call these functions.  A folder or tensor of
 * another program is ERR_FORMAT; all else is left to the caller.
 */
#include "ref/model/weights_others.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include "ref/model/weights_codes.h"
#include "ref/model/weights_packed.h"
#include <dirent.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_ROOM = 4096, CURE_ROOM = 320, LONG_DIR = 60 };

/* ---- folders ----------------------------------------------------------------------------------------------------- */

#define TRANSFORMERS "python3 -c 'from transformers import AutoModelForCausalLM as M; M.from_pretrained(\"DIR\""
#define SAVED ").save_pretrained(\"DIR-safetensors\")'"
#define PICKLE "PyTorch's pickle", "load it with torch.load, give tensors the names of transformers, and save them " \
               "with safetensors.torch.save_file"
#define DCP "torch.distributed.checkpoint's format", "convert it: python3 -m torch.distributed.checkpoint." \
            "format_utils dcp_to_torch DIR DIR.pth, and save that as safetensors; torchtitan has " \
            "scripts/checkpoint_conversion/convert_to_hf.py"
#define MEGATRON "Megatron's checkpoint", "convert it: scripts/conversion/convert.sh export of Megatron-Bridge " \
                 "writes a Hugging Face folder"
#define DEEPSPEED "DeepSpeed's checkpoint", "convert it, in the folder above it: python3 zero_to_fp32.py . OUT " \
                  "--safe_serialization"

/* The first row that fits names the folder.  DIR and FILE in a cure are the folder and what was found in it. */
static const struct format { const char *pattern, *what, *cure; } formats[] = {
    { "model-*-of-*.safetensors", "a part of a model", "model.safetensors.index.json, which lists the parts, must lie "
      "beside it" },
    { "pytorch_model*.bin*", "PyTorch's pickle", "convert it: " TRANSFORMERS SAVED },
    { "adapter_model.*", "a LoRA adapter", "merge it: python3 -c 'from peft import AutoPeftModelForCausalLM as M; "
      "M.from_pretrained(\"DIR\").merge_and_unload().save_pretrained(\"DIR-merged\")'" },
    { "consolidated*.safetensors", "a Mistral's own format", "convert it, with transformers 4: python3 -m transformers."
      "models.mistral.convert_mistral_weights_to_hf --input_dir DIR --output_dir DIR-hf" },
    { "consolidated*.pth", "a Llama's own format", "convert it, with transformers 4: python3 -m transformers.models."
      "llama.convert_llama_weights_to_hf --input_dir DIR --output_dir DIR-hf" },
    { "*.gguf", "llama.cpp's format", "convert it: " TRANSFORMERS ", gguf_file=\"FILE\"" SAVED },
    { "zero_pp_rank_*", DEEPSPEED },
    { "mp_rank_*_model_states.pt", DEEPSPEED },
    { "global_step*", "DeepSpeed's checkpoint", "convert it: python3 DIR/zero_to_fp32.py DIR DIR-fp32 "
      "--safe_serialization" },
    { "*.distcp", DCP }, { ".metadata", DCP },
    { "latest_checkpointed_iteration.txt", MEGATRON }, { "mp_rank_*", MEGATRON }, { "iter_[0-9]*", MEGATRON },
    { "tf_model.h5", "TensorFlow's format", "convert it, with transformers 4: " TRANSFORMERS ", from_tf=True" SAVED },
    { "flax_model.msgpack", "Flax's format", "convert it, with transformers 4: " TRANSFORMERS ", from_flax=True"
      SAVED },
    { "*.pt", PICKLE }, { "*.pth", PICKLE }, { "*.ckpt", PICKLE },
};

/* A cure with the folder's and the file's name; a long folder's stays DIR, so that the line is whole. */
static void fill_cure(char *text, size_t size, const char *cure, const char *dir, const char *file)
{
    size_t used = 0;
    while (*cure && used + 1 < size) {
        const bool folder = strncmp(cure, "DIR", 3) == 0 && strlen(dir) <= LONG_DIR,
                   found = strncmp(cure, "FILE", 4) == 0;
        if (folder || found) used += (size_t)snprintf(text + used, size - used, "%s", folder ? dir : file);
        else text[used++] = *cure;
        cure += folder ? 3 : found ? 4 : 1;
        if (used >= size) used = size - 1;
    }
    text[used] = '\0';
}

/* The first name of the folder, in the order of letters, that fits a pattern.  false: none. */
static bool find_file(char file[256], const char *dir, const char *pattern)
{
    DIR *const d = opendir(dir);
    const struct dirent *entry;
    file[0] = '\0';
    while (d && (entry = readdir(d)) != NULL)
        if (fnmatch(pattern, entry->d_name, 0) == 0 && (!file[0] || strcmp(entry->d_name, file) < 0))
            snprintf(file, 256, "%.255s", entry->d_name);
    if (d) closedir(d);
    return file[0] != '\0';
}

enum error_code others_refuse(const char *dir, const char *wanted, struct error *err)
{
    char file[256], cure[CURE_ROOM];
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (!find_file(file, dir, formats[i].pattern)) continue;
        fill_cure(cure, sizeof cure, formats[i].cure, printable_path(dir).text, printable(file).text);
        return fail(err, ERR_FORMAT, "%s: there is no %s; %.60s is %s; %s", printable_path(dir).text, wanted,
                    printable(file).text, formats[i].what, cure);
    }
    return OK;
}

/* ---- codes ------------------------------------------------------------------------------------------------------- */

static bool is_text(const cJSON *object, const char *key, const char *text)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsString(v) && strcmp(v->valuestring, text) == 0;
}

/* e4m3 with a factor for each block of 128 x 128, as DeepSeek releases weights; activations are not rounded here. */
static bool are_blocks(const cJSON *codes)
{
    const cJSON *block = cJSON_GetObjectItemCaseSensitive(codes, "weight_block_size"), *one;
    bool fits = cJSON_GetArraySize(block) == 2;
    cJSON_ArrayForEach(one, block) fits = fits && cJSON_IsNumber(one) && one->valuedouble == CODES_BLOCK;
    return fits && is_text(codes, "quant_method", "fp8") &&
           (!json_has(codes, "fmt") || is_text(codes, "fmt", "e4m3"));
}

/* How transformers makes numbers of a method's codes. */
static const char *numbers_of(const char *method)
{
    if (strcmp(method, "mxfp4") == 0) return "from_pretrained(DIR, quantization_config=Mxfp4Config(dequantize=True))";
    if (strcmp(method, "fp8") == 0)
        return "from_pretrained(DIR, quantization_config=FineGrainedFP8Config(dequantize=True))";
    return "from_pretrained(DIR).dequantize()";
}

static enum error_code refuse_codes(const cJSON *root, const char *path, struct packed_form *packed,
                                    struct error *err)
{
    struct packed_form form;
    char unread[60];
    const bool of_mlx = json_has(root, "quantization");
    const char *const key = of_mlx ? "quantization" : "quantization_config";
    const cJSON *const codes = cJSON_GetObjectItemCaseSensitive(root, key),
                *const named = cJSON_GetObjectItemCaseSensitive(codes, "quant_method");
    const char *const method = cJSON_IsString(named) ? named->valuestring : of_mlx ? "mlx" : "?";
    if (!json_has(root, key) || are_blocks(codes)) return OK;
    if (!of_mlx && packed_form_of(codes, &form, unread, sizeof unread)) return *packed = form, OK;
    if (!of_mlx && unread[0] != '\0')
        return fail(err, ERR_FORMAT, "%s: %s: integers of \"%.40s\" are read, but not with %s: load the model "
                    "dequantised with transformers, %s, and save it", path, key, printable(method).text,
                    printable(unread).text, numbers_of(method));
    return fail(err, ERR_FORMAT, "%s: %s says that the weights are codes, of \"%.40s\"; Orrery reads numbers, and fp8, "
                "e4m3 in blocks of %d x %d: load the model dequantised with transformers, %s, and save it", path, key,
                printable(method).text, CODES_BLOCK, CODES_BLOCK, numbers_of(method));
}

enum error_code others_refuse_codes(const char *dir, struct packed_form *packed, struct error *err)
{
    char path[PATH_ROOM];
    cJSON *root;
    snprintf(path, sizeof path, "%s/config.json", dir);
    if (access(path, F_OK) != 0) return OK;
    enum error_code e = json_read(path, &root, err);
    if (e) return e;
    e = refuse_codes(root, printable_path(path).text, packed, err);
    cJSON_Delete(root);
    return e;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* The cure says how a model is saved without the part. */
static const struct wrapper wrappers[] = {
    { "base_model.model.", "peft adds it", "save model.merge_and_unload() in place of the wrapped model" },
    { "_orig_mod.", "torch.compile adds it", "save model._orig_mod in place of the compiled model" },
    { "_fsdp_wrapped_module.", "FSDP adds it", "take a full state_dict from FSDP, which leaves it out" },
    { "_checkpoint_wrapped_module.", "checkpoint_wrapper adds it", "take it out of the names before they are saved" },
    { "_forward_module.", "a Lightning strategy adds it", "take it out of the names before they are saved" },
    { "module.", "DistributedDataParallel adds it", "save model.module in place of the wrapped model" },
    { "model.", "an object that holds the model adds it", "save the model that it holds" },
    { "language_model.", "a model with images adds it", "save its language model alone" },
};

/* A name without any occurrence of a part.  false: the part is not in it. */
static bool without(char *to, size_t size, const char *name, const char *part)
{
    const size_t n = strlen(part);
    size_t used = 0;
    bool any = false;
    while (*name && used + 1 < size) {
        const bool here = strncmp(name, part, n) == 0;
        any = any || here;
        if (here) name += n;
        else to[used++] = *name++;
    }
    to[used] = '\0';
    return any;
}

/* Whether an entry is the tensor inside this wrapper; the model's own prefix counts once. */
static bool is_wrapped(const struct wrapper *wrapper, const char *entry, const char *name)
{
    char bare[1024];
    const size_t n = strlen(wrapper->part), m = strlen(name), of_entry = strlen(entry);
    if (strcmp(wrapper->part, "model.") == 0)
        return of_entry == n + m && strncmp(entry, "model.", n) == 0 && strcmp(entry + n, name) == 0;
    if (!without(bare, sizeof bare, entry, wrapper->part)) return false;
    if (strcmp(bare, name) == 0) return true;
    /* peft keeps the matrix beside the adapter's two as base_layer. */
    char merged[1024];
    return without(merged, sizeof merged, bare, "base_layer.") && strcmp(merged, name) == 0;
}

const struct wrapper *others_wrapper(const char *entry, const char *name)
{
    for (size_t w = 0; w < sizeof wrappers / sizeof *wrappers; w++)
        if (is_wrapped(&wrappers[w], entry, name)) return &wrappers[w];
    return NULL;
}
