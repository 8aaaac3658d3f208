/* What follows from a model's table: which slots share memory, what is kept and what is computed again, the order in
 * which gradients are made and added.  Written down by hand here, for GPT-2, Llama and GPT-J, whose two branches read
 * one norm.
 * tier: check
 */
#include "emulated_devices/model/link/link.h"
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static const struct model_config gpt2 = {
    .S = 8, .D = 12, .H = 3, .K = 3, .A = 4, .F = 48, .L = 2, .V = 20, .family = &family_gpt2,
    .biases = BIASES_BLOCK, .tied = true
};
static const struct model_config llama = { .family = &family_llama, .S = 8, .D = 12, .H = 3, .K = 1, .A = 4, .F = 20,
                                           .L = 2, .V = 20, .norm = NORM_RMS, .positions = POSITIONS_ROTARY,
                                           .mlp = MLP_SWIGLU };

/* Attention and feed-forward side by side, after one norm. */
static const struct model_config gptj = { .S = 8, .D = 12, .H = 3, .K = 3, .A = 4, .F = 48, .L = 2, .V = 20,
                                          .positions = POSITIONS_ROTARY,
                                          .rotary = { .theta = 100, .turned = 2, .neighbours = true }, .parallel = true,
                                          .family = &family_gptj,
                                          .biases = BIASES_FEED | HAS_BIAS(ROLE_HEAD) };

static struct linked l;
static char text[2000];

static void say(const char *word)
{
    const size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, "%s%s", used ? " " : "", word);
}

static const char *name_of(int slot) { return l.slot[slot].name; }

/* The first slot whose value, or gradient, lies in a buffer. */
static const char *in_buffer(int buffer, bool gradient)
{
    for (int s = 0; s < l.slots; s++)
        if ((gradient ? l.slot[s].gradient : l.slot[s].value) == buffer) return name_of(s);
    return "scratch";
}

static const char *kept(void)
{
    text[0] = 0;
    for (int s = 0; s < l.slots; s++)
        if (l.slot[s].value == BUFFER_IN || l.buffer[l.slot[s].value].kept) say(name_of(s));
    return text;
}

static const char *shared(void)
{
    text[0] = 0;
    for (int s = 0; s < l.slots; s++)
        for (int t = 0; t < s; t++) {
            char pair[80];
            if (l.slot[s].value != l.slot[t].value) continue;
            snprintf(pair, sizeof pair, "%s=%s", name_of(s), name_of(t));
            say(pair);
            break;
        }
    return text;
}

/* What a list runs: a node by what it makes. */
static const char *runs(enum list which)
{
    text[0] = 0;
    for (int i = 0; i < l.list[which].count; i++) {
        const struct part_step step = l.list[which].step[i];
        if (step.kind == STEP_BEGIN) say("begin");
        if (step.kind == STEP_MIDDLE) say("middle");
        if (step.kind == STEP_RUN) say(l.node[step.at].out < 0 ? "loss" : name_of(l.node[step.at].out));
    }
    return text;
}

/* The input pass: each node with where it writes, what is added, exchanged and copied, and when a gradient is whole. */
static const char *backward(void)
{
    char word[120];
    text[0] = 0;
    for (int i = 0; i < l.list[LIST_INPUT].count; i++) {
        const struct part_step step = l.list[LIST_INPUT].step[i];
        const struct linked_node *n = &l.node[step.kind == STEP_RUN ? step.at : 0];
        if (step.kind == STEP_RUN)
            snprintf(word, sizeof word, "%s>%s", n->out < 0 ? "loss" : name_of(n->out), in_buffer(n->dx[0], true));
        else if (step.kind == STEP_ADD && step.at == step.before)
            snprintf(word, sizeof word, "+%s", in_buffer(step.at, true));
        else if (step.kind == STEP_ADD)
            snprintf(word, sizeof word, "%s=%s+", in_buffer(step.at, true), in_buffer(step.before, true));
        else if (step.kind == STEP_EXCHANGE || step.kind == STEP_COPY)
            snprintf(word, sizeof word, "%s%s%s", in_buffer(step.at, true), step.kind == STEP_COPY ? "<" : "<=>",
                     in_buffer(step.from, true));
        else if (step.kind == STEP_SHOW_GRADIENT) snprintf(word, sizeof word, "[%s]", name_of(step.at));
        else continue;
        say(word);
    }
    return text;
}

/* seams_alone(NULL), from main on. */
static struct seams alone;

static void block_of(const struct model_config *c, const char *recompute)
{
    assert_int_equal(link_layer(&l, c, &alone, 0, recompute, false, NULL), OK);
}

static void test_gpt2(void **state)
{
    (void)state;
    block_of(&gpt2, NULL);
    assert_string_equal(kept(), "in ln_1 attn.qkv attn.heads attn.out mid ln_2 mlp.up mlp.act");
    assert_string_equal(shared(), "mid=attn.out out=mlp.out");
    assert_string_equal(runs(LIST_FORWARD), "ln_1 attn.qkv attn.heads attn.out mid ln_2 mlp.up mlp.act mlp.out out");
    assert_string_equal(runs(LIST_AGAIN), "");
    assert_string_equal(runs(LIST_WEIGHT), "mlp.out mlp.up ln_2 attn.out attn.qkv ln_1");
    /* The stream's gradient goes from out over mid to in; a branch keeps the memory of the one that it begins with, and
     * the norm's part is added to it in other memory. */
    assert_string_equal(backward(), "mlp.out<=>in [mlp.out] mlp.out>mlp.up [mlp.act] mlp.act>mlp.up [mlp.up] "
                                    "mlp.up>ln_2 [ln_2] ln_2>scratch in=mlp.out+ [mid] "
                                    "attn.out<=>in [attn.out] attn.out>attn.heads [attn.heads] "
                                    "attn.heads>attn.qkv [attn.qkv] attn.qkv>ln_1 [ln_1] "
                                    "ln_1>scratch in=attn.out+ [in]");
}

static void test_llama(void **state)
{
    (void)state;
    block_of(&llama, NULL);
    assert_string_equal(kept(), "in ln_1 attn.qkv attn.rotated attn.heads attn.out mid ln_2 mlp.up mlp.act");
    assert_string_equal(shared(), "attn.rotated=attn.qkv mid=attn.out out=mlp.out");
    assert_string_equal(
        backward(),
        "mlp.out<=>in [mlp.out] mlp.out>mlp.act [mlp.act] mlp.act>mlp.up [mlp.up] mlp.up>ln_2 [ln_2] "
        "ln_2>scratch in=mlp.out+ [mid] "
        "attn.out<=>in [attn.out] attn.out>attn.heads [attn.heads] attn.heads>attn.qkv [attn.rotated] "
        "attn.rotated>attn.qkv [attn.qkv] attn.qkv>ln_1 [ln_1] ln_1>scratch in=attn.out+ [in]");
}

static void test_ends(void **state)
{
    (void)state;
    assert_int_equal(link_layer(&l, &gpt2, &alone, -1, NULL, false, NULL), OK);
    assert_string_equal(kept(), "in");
    assert_string_equal(backward(), "");
    assert_string_equal(runs(LIST_FORWARD), "tokens embedding");
    assert_string_equal(l.slot[2].name, "embedding");             /* what drops nothing is no node of its own */
    assert_string_equal(l.slot[2].other_name, "placed");
    assert_string_equal(runs(LIST_WEIGHT), "tokens embedding");
    assert_false(list_uses_weights(&l, LIST_INPUT));
    assert_int_equal(link_layer(&l, &gpt2, &alone, 2, NULL, false, NULL), OK);
    assert_string_equal(kept(), "in ln_f logits");
    assert_int_equal(l.slot[2].gradient, l.slot[2].value);        /* the logits become their own gradient */
    assert_string_equal(backward(), "loss>logits [logits] logits>ln_f [ln_f] ln_f>in [in]");
    assert_string_equal(runs(LIST_WEIGHT), "logits ln_f");
}

static void test_recomputation(void **state)
{
    (void)state;
    block_of(&gpt2, "selective");
    assert_string_equal(runs(LIST_AGAIN), "attn.heads");
    block_of(&gpt2, "full");
    assert_string_equal(runs(LIST_AGAIN), "ln_1 attn.qkv attn.heads attn.out mid ln_2 mlp.up mlp.act");
    block_of(&llama, "full");
    assert_string_equal(runs(LIST_AGAIN),
                        "ln_1 attn.qkv attn.rotated attn.heads attn.out mid ln_2 mlp.up mlp.act");
    block_of(&gpt2, "1");
    assert_string_equal(runs(LIST_AGAIN), "");
}

/* Forward alone: every buffer that is made is dropped, what enters as well. */
static void test_forward_only(void **state)
{
    int made = 0, dropped = 0;
    (void)state;
    assert_int_equal(link_layer(&l, &llama, &alone, 0, NULL, true, NULL), OK);
    for (int i = 0; i < l.list[LIST_FORWARD].count; i++) {
        made += l.list[LIST_FORWARD].step[i].kind == STEP_MAKE;
        dropped += l.list[LIST_FORWARD].step[i].kind == STEP_DROP;
    }
    assert_true(made > 0);
    assert_int_equal(dropped, made + 1);
    assert_int_equal(l.list[LIST_INPUT].count + l.list[LIST_WEIGHT].count, 0);
}

/* One norm with two readers: the feed-forward's gradient is written, attention's added.
 * Both branches lie where they are summed. */
static void test_gptj(void **state)
{
    (void)state;
    block_of(&gptj, NULL);
    assert_string_equal(kept(), "in ln_1 attn.qkv attn.rotated attn.heads mlp.up mlp.act");
    assert_string_equal(shared(),
                        "attn.rotated=attn.qkv branches=mlp.out out=mlp.out");
    assert_string_equal(
        backward(),
        "attn.out<=>in [attn.out] [mlp.out] mlp.out>mlp.up [mlp.act] mlp.act>mlp.up [mlp.up] mlp.up>ln_1 "
        "attn.out>attn.heads [attn.heads] attn.heads>attn.qkv [attn.rotated] "
        "attn.rotated>attn.qkv [attn.qkv] attn.qkv>scratch +ln_1 [ln_1] ln_1>scratch in=attn.out+ [in]");
    assert_string_equal(runs(LIST_WEIGHT), "mlp.out mlp.up attn.out attn.qkv ln_1");
    block_of(&gptj, "full");
    assert_string_equal(runs(LIST_AGAIN), "ln_1 attn.qkv attn.rotated attn.heads mlp.up mlp.act");
}

/* Each list gives back what it makes, and nothing else: after a whole step a part holds nothing. */
static void test_memory_balances(void **state)
{
    static const char *const choices[] = { NULL, "selective", "full" };
    (void)state;
    for (int c = 0; c < 9; c++)
        for (int layer = -1; layer <= 2; layer++) {
            int held[LINK_BUFFERS] = { 0 };
            assert_int_equal(link_layer(&l,
                                        c < 3   ? &gpt2
                                        : c < 6 ? &llama
                                                : &gptj,
                                        &alone, layer, choices[c % 3], false, NULL),
                             OK);
            for (enum list which = 0; which < LIST_COUNT; which++)
                for (int i = 0; i < l.list[which].count; i++) {
                    const struct part_step step = l.list[which].step[i];
                    if (step.kind == STEP_MAKE) assert_int_equal(held[step.at]++, 0);
                    if (step.kind == STEP_DROP && step.at >= BUFFER_FIRST_OWN) assert_int_equal(held[step.at]--, 1);
                }
            for (int b = BUFFER_FIRST_OWN; b < l.buffers; b++) assert_int_equal(held[b], 0);
        }
}

/* ---- every gradient, by symbols ---------------------------------------------------------------------------------- */

/* A node's pass adds a symbol to a gradient; SYMBOLS is the gradient that enters the part. */
enum { SYMBOLS = LINK_NODES * NODE_INPUTS };
struct sum { bool has[SYMBOLS + 1]; };
static struct sum in_memory[LINK_BUFFERS];

/* The sum that a slot's gradient is by the chain rule: of what all readers' passes give. */
static struct sum gradient_by_rule(int slot)
{
    struct sum sum = { 0 };
    bool read = false;
    for (int v = 0; v < l.nodes; v++)
        for (int k = 0; k < NODE_INPUTS; k++) {
            if (l.node[v].in[k] != slot) continue;
            read = true;
            if (!operation_info(l.node[v].is->op)->passes_on) sum.has[v * NODE_INPUTS + k] = true;
            else {
                const struct sum of_sum = gradient_by_rule(l.node[v].out);
                for (int i = 0; i <= SYMBOLS; i++) sum.has[i] = sum.has[i] || of_sum.has[i];
            }
        }
    sum.has[SYMBOLS] = sum.has[SYMBOLS] || !read;
    return sum;
}

static void assert_gradient(int slot, int buffer)
{
    const struct sum want = gradient_by_rule(slot);
    if (memcmp(&want, &in_memory[buffer], sizeof want) != 0) fail_msg("gradient of %s", name_of(slot));
}

/* A node's pass reads the gradient of its output, and overwrites those of its inputs. */
static void run_by_symbols(int v, int from, int to)
{
    const struct linked_node *n = &l.node[v];
    if (n->out >= 0) assert_gradient(n->out, n->dy);
    for (int k = from; k <= to; k++) {
        if (n->in[k] < 0) continue;
        in_memory[n->dx[k]] = (struct sum){ 0 };
        in_memory[n->dx[k]].has[v * NODE_INPUTS + k] = true;
    }
}

static void step_by_symbols(struct part_step step)
{
    struct sum *at = step.kind == STEP_ADD || step.kind == STEP_EXCHANGE || step.kind == STEP_COPY ? &in_memory[step.at]
                                                                                                   : NULL;
    const struct sum from = in_memory[at ? step.from : 0], before = in_memory[at ? step.before : 0];
    const bool parts = step.kind == STEP_RUN && l.node[step.at].end > 0;
    if (step.kind == STEP_RUN) run_by_symbols(step.at, 0, parts ? 0 : NODE_INPUTS - 1);
    if (step.kind == STEP_BEGIN) run_by_symbols(step.at, 1, 1);
    if (step.kind == STEP_EXCHANGE) in_memory[step.from] = *at;
    if (step.kind == STEP_EXCHANGE || step.kind == STEP_COPY) *at = from;
    if (step.kind == STEP_SHOW_GRADIENT) assert_gradient(step.at, l.slot[step.at].gradient);
    for (int i = 0; i <= SYMBOLS && step.kind == STEP_ADD; i++) {
        assert_false(before.has[i] && from.has[i]);
        at->has[i] = before.has[i] || from.has[i];
    }
}

/* Run both backward lists of a part; its last node's output, or the loss, has the gradient that enters. */
static int backward_by_symbols(void)
{
    int copies = 0;
    memset(in_memory, 0, sizeof in_memory);
    in_memory[BUFFER_GRADIENT].has[SYMBOLS] = true;
    for (int i = 0; i < l.list[LIST_INPUT].count; i++) {
        step_by_symbols(l.list[LIST_INPUT].step[i]);
        copies += l.list[LIST_INPUT].step[i].kind == STEP_COPY;
    }
    if (l.node[0].in[0] == 0) assert_gradient(0, BUFFER_GRADIENT);
    for (int i = 0; i < l.list[LIST_WEIGHT].count; i++) {
        const struct part_step step = l.list[LIST_WEIGHT].step[i];
        if (step.kind == STEP_RUN) assert_gradient(l.node[step.at].out, l.node[step.at].dy);
    }
    return copies;
}

/* Try every preset: on a device alone nothing is copied, with rows of others each matrix back to the stream copies its
 * own rows; with dropout and without, whatever is recomputed. */
static void test_gradients_by_symbols(void **state)
{
    (void)state;
    struct device device;
    assert_int_equal(device_open(&device, NULL, F32, 0, NULL), OK);
    struct model_config c;
    for (int i = 0; *model_presets[i].config.name; i++)
        for (int variant = 0; variant < 8; variant++) {
            const bool drops = variant & 1, rows = variant & 2;
            c = model_presets[i].config;
            c.dropout_residual = c.dropout_embedding = drops ? 0.1 : 0;
            struct tensor_parallel tp = { .config = &c, .device = &device, .S = c.S };
            assert_int_equal(tensor_scheme_find(&tp.scheme, "1d-sp", NULL), OK);
            tensor_share(&tp, rows ? 2 : 1, 0);
            struct seams seams = seams_alone(&tp);
            seams.ep.hides = variant & 4;
            for (int layer = -1; layer <= c.L; layer += layer == 1 && c.L > 4 ? (int)c.L - 2 : 1) {
                assert_int_equal(link_layer(&l, &c, &seams, layer, "selective", false, NULL), OK);
                const int copies = backward_by_symbols();
                if (!rows || layer < 0 || layer == c.L) assert_int_equal(copies, 0);
                for (int v = 0; v < l.nodes && !drops; v++) assert_int_not_equal(l.node[v].is->op, OP_DROPOUT);
            }
        }
    device_close(&device);
}

static void test_refusals(void **state)
{
    static const struct node unknown[] = { { OP_NORM, .out = "a", .in = { "in" } },
                                           { OP_GELU, .out = "b", .in = { "c" } },
                                           { .op = OP_END } };
    static struct node endless[LINK_NODES + 2];
    struct error err;
    (void)state;
    assert_int_equal(link_part(&l, unknown, &gpt2, 0, &alone, RECOMPUTE_NONE, false, &err), ERR_PLAN);
    assert_non_null(strstr(err.text, "reads c, which nobody has made before it"));
    for (int i = 0; i <= LINK_NODES; i++)
        endless[i] = (struct node){ OP_SILU, .out = "a", .in = { "in" } };
    assert_int_equal(link_part(&l, endless, &gpt2, 0, &alone, RECOMPUTE_NONE, false, &err), ERR_PLAN);
    assert_non_null(strstr(err.text, "more than"));
}

static int weight_of(const struct model_config *c, const struct node *n, int layer)
{
    return program_weight(c, n, layer);
}

static int bias_of(const struct model_config *c, const struct node *n, int layer)
{
    return program_bias(c, n, layer);
}

static void test_parameters(void **state)
{
    const struct program *p = model_program(&llama);
    (void)state;
    for (const struct node *n = p->block; n->op != OP_END; n++) {
        const int i = weight_of(&llama, n, 1);
        assert_true((i >= 0) == (n->param != NO_PARAM && n->op != OP_HEAD_NORM));
        if (i >= 0) assert_int_equal(model_param(&llama, i).layer, 1);
        assert_int_equal(bias_of(&llama, n, 1), -1);
    }
    assert_int_equal(weight_of(&gpt2, &model_program(&gpt2)->loss[1], 2), PARAM_WTE);      /* tied */
    assert_int_equal(bias_of(&gpt2, &model_program(&gpt2)->block[1], 0), param_of_block(&gpt2, 0, QKV_B));
    assert_int_equal(weight_of(&gpt2, &model_program(&gpt2)->embedding[1], -1), param_positions(&gpt2));
    /* the output matrix's */
    assert_int_equal(bias_of(&gptj, &model_program(&gptj)->loss[1], 2), model_param_count(&gptj) - 1);
    assert_int_equal(bias_of(&gptj, &model_program(&gptj)->block[1], 0), -1);
}

/* A mixture on a shortcut sends rows before the first dense blocks, computes before attention, and waits for results
 * where they are added; backward in reverse.  In recomputation, and if it must wait, it runs at once. */
static void test_shortcut(void **state)
{
    (void)state;
    struct model_config c = llama;
    c.family = &family_scmoe, c.mlp = MLP_MIXTURE, c.shortcut = true;
    c.mixture = (struct mixture_config){ .E = 4, .k = 2, .router.scale = 1 };
    static const char first[] = "ln_1 attn.qkv attn.rotated attn.heads attn.out mid ln_2 router.logits "
                                "router.weights",
                      dense[] = "dense.up dense.act dense.out half second.ln_1 second.attn.qkv",
                      second[] = "second.attn.rotated second.attn.heads second.attn.out second.mid "
                                 "second.ln_2 second.dense.up second.dense.act second.dense.out "
                                 "dense.sum";
    char want[1000];
    for (int hides = 0; hides < 2; hides++) {
        alone.ep.hides = hides;
        block_of(&c, "full");
        snprintf(want, sizeof want, "%s %s %s%s %s %sout", first, hides ? "begin" : "mlp.out", dense,
                 hides ? " middle" : "", second, hides ? "mlp.out " : "");
        assert_string_equal(runs(LIST_FORWARD), want);
        assert_null(strstr(runs(LIST_AGAIN), "begin"));
        assert_string_equal(strstr(runs(LIST_INPUT), "second.ln_2"), hides
            ? "second.ln_2 second.attn.out second.attn.heads second.attn.rotated middle "
              "second.attn.qkv second.ln_1 dense.out dense.act dense.up mlp.out router.weights "
              "router.logits ln_2 attn.out attn.heads attn.rotated attn.qkv ln_1"
            : "second.ln_2 second.attn.out second.attn.heads second.attn.rotated second.attn.qkv "
              "second.ln_1 dense.out dense.act dense.up mlp.out router.weights router.logits ln_2 "
              "attn.out attn.heads attn.rotated attn.qkv ln_1");
        if (hides) assert_memory_equal(runs(LIST_INPUT), "begin second.dense.out", 22);
    }
    alone.ep.hides = false;
}

int main(void)
{
    alone = seams_alone(NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2), cmocka_unit_test(test_llama), cmocka_unit_test(test_ends),
            cmocka_unit_test(test_recomputation),
        cmocka_unit_test(test_forward_only), cmocka_unit_test(test_gptj), cmocka_unit_test(test_memory_balances),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_parameters), cmocka_unit_test(test_shortcut),
        cmocka_unit_test(test_gradients_by_symbols),
    };
    return cmocka_run_group_tests_name("link", tests, NULL, NULL);
}
