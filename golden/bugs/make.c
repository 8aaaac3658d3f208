/* make.c -- writes a model and batches that `orrery golden make` takes: a Hugging Face folder, and batch.safetensors.
 *
 * Numbers are drawn large enough that attention is far from uniform; norms and biases do not start at 1 and 0.  The
 * sizes are small and have no common factors: 5 sequences of 7 tokens, 6 heads, 3 of keys and values in the Llama.
 * Tokens repeat, and sequences have different numbers of labels.
 */
#include "program.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int kv_heads = 3;                      /* mqa: 1; gqa: 2 */
enum { STEPS = 3, SEQUENCES = 5, TOKENS = 7, LAYERS = 2, HEADS = 6, WIDTH = 24, FEED = 37, WORDS = 61, POSITIONS = 11,
       EXPERTS = 5, CHOICES = 2, NARROW = 19 };

static unsigned long long state;

static double uniform(void)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return ((double)(state >> 11) + 0.5) * 0x1p-53;
}

static double normal(void) { return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform()); }

/* A matrix of a GPT-2 file is [in,out]: drawn numbers do not care. */
static void draw(struct tensors *t, const char *name, int rows, int cols, double mean, double deviation)
{
    const size_t n = (size_t)rows * cols;
    float *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = (float)(mean + deviation * normal());
    tensors_add(t, name, "F32", cols > 1 ? 2 : 1, (int[]){ rows, cols }, x, n * sizeof *x);
    free(x);
}

static const char *in_layer(int l, bool llama, const char *text)
{
    static char name[96];
    snprintf(name, sizeof name, llama ? "model.layers.%d.%s" : "h.%d.%s", l, text);
    return name;
}

static void gpt2(struct tensors *t)
{
    const double d = 1 / sqrt(WIDTH);
    draw(t, "wte.weight", WORDS, WIDTH, 0, 0.3), draw(t, "wpe.weight", POSITIONS, WIDTH, 0, 0.2);
    for (int l = 0; l < LAYERS; l++) {
        draw(t, in_layer(l, false, "ln_1.weight"), WIDTH, 1, 1, 0.3), draw(t, in_layer(l, false, "ln_1.bias"), WIDTH, 1, 0, 0.3);
        draw(t, in_layer(l, false, "attn.c_attn.weight"), WIDTH, 3 * WIDTH, 0, 1.3 * d), draw(t, in_layer(l, false, "attn.c_attn.bias"), 3 * WIDTH, 1, 0, 0.3);
        draw(t, in_layer(l, false, "attn.c_proj.weight"), WIDTH, WIDTH, 0, 0.5 * d), draw(t, in_layer(l, false, "attn.c_proj.bias"), WIDTH, 1, 0, 0.3);
        draw(t, in_layer(l, false, "ln_2.weight"), WIDTH, 1, 1, 0.3), draw(t, in_layer(l, false, "ln_2.bias"), WIDTH, 1, 0, 0.3);
        draw(t, in_layer(l, false, "mlp.c_fc.weight"), WIDTH, FEED, 0, d), draw(t, in_layer(l, false, "mlp.c_fc.bias"), FEED, 1, 0, 0.3);
        draw(t, in_layer(l, false, "mlp.c_proj.weight"), FEED, WIDTH, 0, 0.5 * d), draw(t, in_layer(l, false, "mlp.c_proj.bias"), WIDTH, 1, 0, 0.3);
    }
    draw(t, "ln_f.weight", WIDTH, 1, 1, 0.3), draw(t, "ln_f.bias", WIDTH, 1, 0, 0.3);
}

static void mixture(struct tensors *t, int l)
{
    const double d = 1 / sqrt(WIDTH);
    const int A = WIDTH / HEADS;
    char name[64];
    draw(t, in_layer(l, true, "self_attn.q_norm.weight"), A, 1, 1, 0.3), draw(t, in_layer(l, true, "self_attn.k_norm.weight"), A, 1, 1, 0.3);
    draw(t, in_layer(l, true, "mlp.gate.weight"), EXPERTS, WIDTH, 0, d);
    for (int e = 0; e < EXPERTS; e++) {
        snprintf(name, sizeof name, "mlp.experts.%d.gate_proj.weight", e), draw(t, in_layer(l, true, name), NARROW, WIDTH, 0, d);
        snprintf(name, sizeof name, "mlp.experts.%d.up_proj.weight", e), draw(t, in_layer(l, true, name), NARROW, WIDTH, 0, d);
        snprintf(name, sizeof name, "mlp.experts.%d.down_proj.weight", e), draw(t, in_layer(l, true, name), WIDTH, NARROW, 0, d);
    }
}

static void llama(struct tensors *t, bool moe)
{
    const double d = 1 / sqrt(WIDTH);
    const int A = WIDTH / HEADS;
    draw(t, "model.embed_tokens.weight", WORDS, WIDTH, 0, 0.3);
    for (int l = 0; l < LAYERS; l++) {
        draw(t, in_layer(l, true, "input_layernorm.weight"), WIDTH, 1, 1, 0.3);
        draw(t, in_layer(l, true, "self_attn.q_proj.weight"), WIDTH, WIDTH, 0, 1.3 * d);
        draw(t, in_layer(l, true, "self_attn.k_proj.weight"), kv_heads * A, WIDTH, 0, 1.3 * d);
        draw(t, in_layer(l, true, "self_attn.v_proj.weight"), kv_heads * A, WIDTH, 0, d);
        draw(t, in_layer(l, true, "self_attn.o_proj.weight"), WIDTH, WIDTH, 0, 0.5 * d);
        draw(t, in_layer(l, true, "post_attention_layernorm.weight"), WIDTH, 1, 1, 0.3);
        if (moe) {
            mixture(t, l);
            continue;
        }
        draw(t, in_layer(l, true, "mlp.gate_proj.weight"), FEED, WIDTH, 0, d), draw(t, in_layer(l, true, "mlp.up_proj.weight"), FEED, WIDTH, 0, d);
        draw(t, in_layer(l, true, "mlp.down_proj.weight"), WIDTH, FEED, 0, 0.5 * d);
    }
    draw(t, "model.norm.weight", WIDTH, 1, 1, 0.3), draw(t, "lm_head.weight", WORDS, WIDTH, 0, 2 * d);
}

static void write_config(const char *path, bool is_llama, bool is_moe)
{
    FILE *f = fopen(path, "w");
    if (f == NULL) fprintf(stderr, "buggy: cannot write %s\n", path), exit(1);
    if (is_moe)
        fprintf(f, "{\"model_type\":\"qwen3_moe\",\"architectures\":[\"Qwen3MoeForCausalLM\"],\"hidden_act\":\"silu\",\"hidden_size\":%d,"
                "\"num_hidden_layers\":%d,\"num_attention_heads\":%d,\"num_key_value_heads\":%d,\"head_dim\":%d,\"intermediate_size\":%d,"
                "\"vocab_size\":%d,\"max_position_embeddings\":%d,\"rms_norm_eps\":1e-5,\"rope_theta\":50.0,\"attention_dropout\":0,"
                "\"tie_word_embeddings\":false,\"moe_intermediate_size\":%d,\"num_experts\":%d,\"num_experts_per_tok\":%d,"
                "\"norm_topk_prob\":true,\"decoder_sparse_step\":1,\"mlp_only_layers\":[],\"output_router_logits\":true,"
                "\"router_aux_loss_coef\":0.05}\n",
                WIDTH, LAYERS, HEADS, kv_heads, WIDTH / HEADS, FEED, WORDS, POSITIONS, NARROW, EXPERTS, CHOICES);
    else if (is_llama)
        fprintf(f, "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"hidden_act\":\"silu\",\"hidden_size\":%d,"
                "\"num_hidden_layers\":%d,\"num_attention_heads\":%d,\"num_key_value_heads\":%d,\"intermediate_size\":%d,"
                "\"vocab_size\":%d,\"max_position_embeddings\":%d,\"rms_norm_eps\":1e-5,\"rope_theta\":50.0,"
                "\"attention_dropout\":0,\"tie_word_embeddings\":false}\n",
                WIDTH, LAYERS, HEADS, kv_heads, FEED, WORDS, POSITIONS);
    else
        fprintf(f, "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"activation_function\":\"gelu_new\",\"n_embd\":%d,"
                "\"n_layer\":%d,\"n_head\":%d,\"n_inner\":%d,\"vocab_size\":%d,\"n_positions\":%d,\"layer_norm_epsilon\":1e-5,"
                "\"attn_pdrop\":0,\"embd_pdrop\":0,\"resid_pdrop\":0,\"tie_word_embeddings\":true}\n",
                WIDTH, LAYERS, HEADS, FEED, WORDS, POSITIONS);
    fclose(f);
}

static void write_batches(const char *path)
{
    enum { COUNT = STEPS * SEQUENCES * TOKENS };
    static int tokens[COUNT], next[COUNT];
    for (int i = 0; i < COUNT; i++) tokens[i] = (int)(uniform() * WORDS * uniform());       /* small ones repeat */
    for (int i = 0; i < COUNT; i++) {
        const int s = i % TOKENS, b = i / TOKENS % SEQUENCES;
        next[i] = s + 1 < TOKENS ? tokens[i + 1] : (int)(uniform() * WORDS);
        if (s < b) next[i] = -100;                                                          /* sequence b lacks b */
    }
    struct tensors *t = tensors_new();
    const int dim[] = { STEPS, SEQUENCES, TOKENS };
    tensors_add(t, "ids", "I32", 3, dim, tokens, sizeof tokens), tensors_add(t, "labels", "I32", 3, dim, next, sizeof next);
    tensors_write(t, path, "");
}

void model_write(const char *family, const char *folder)
{
    const bool is_moe = strcmp(family, "moe") == 0, is_mqa = strcmp(family, "mqa") == 0, is_gqa = strcmp(family, "gqa") == 0,
               is_llama = is_moe || is_mqa || is_gqa || strcmp(family, "llama") == 0;
    char path[1024];
    struct tensors *t = tensors_new();
    kv_heads = is_mqa ? 1 : is_gqa ? 2 : 3;
    state = is_moe ? 11 : is_llama ? 7 : 3;
    mkdir(folder, 0777);
    if (is_llama) llama(t, is_moe);
    else gpt2(t);
    snprintf(path, sizeof path, "%s/model.safetensors", folder), tensors_write(t, path, "\"format\":\"pt\"");
    snprintf(path, sizeof path, "%s/config.json", folder), write_config(path, is_llama, is_moe);
    snprintf(path, sizeof path, "%s/batch.safetensors", folder), write_batches(path);
}
