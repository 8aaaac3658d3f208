/* Every mistake of every operation is named: what a program with it would have is made from its row, and held to what
 * is right.  The rows are those of the diagnosis (mistakes.h); golden/bugs has its own programs with mistakes. */
#include "emulated_devices/check/mistakes/mistakes.h"
#include "tests/devices/replaying.h"
#include "tests/tier.h"

enum { MOST_ROWS = 512 };

/* What has come of a row in a pass: in how many results it could be seen, was named, and was named alone. */
struct outcome {
    const struct single_mistake *row;
    enum single_pass_kind pass;
    int seen, named, alone;
    char said[SINGLE_MISTAKE];
};

static struct dump program;
static bool packed;                     /* sequences are two documents: only rows that speak of documents are tried */
static const char *only;                /* the result that is wrong: all of its numbers are off */
static struct outcome outcomes[MOST_ROWS];
static int count;

static struct outcome *outcome_of(const struct single_mistake *row, enum single_pass_kind pass)
{
    for (int i = 0; i < count; i++)
        if (outcomes[i].row == row && outcomes[i].pass == pass) return &outcomes[i];
    assert_true(count < MOST_ROWS);
    outcomes[count] = (struct outcome){ .row = row, .pass = pass };
    return &outcomes[count++];
}

static enum error_code fetch_wrong(void *context, const char *name, struct tensor out, enum single_found *has,
                                   struct error *err)
{
    const enum error_code e = fetch(context, name, out, has, err);
    for (int64_t i = 0; strcmp(name, only) == 0 && i < tensor_count(out); i++)
        tensor_set(out, i, 3 * tensor_get(out, i) + 1 + (double)(i % 7));
    return e;
}

/* The program has what is right, with another summand in place of this term. */
static void take(struct single *s, const struct single_value *right, const struct single_term *t, struct tensor other)
{
    s->verdict.result.wrong = 0;
    for (int64_t i = 0; i < tensor_count(s->verdict.have); i++) {
        const double want = numbers(right->y)[i], have = want - numbers(t->y)[i] + numbers(other)[i];
        numbers(s->verdict.have)[i] = have;
        s->verdict.result.wrong += !(fabs(have - want) <= numbers(right->steps)[i]);
    }
}

static void try_row(struct single *s, const struct single_value *right, const struct single_term *t,
                    const struct single_mistakes *all, const struct single_mistake *row)
{
    const int used = s->memory.used;
    single_read_anew(s);
    const struct tensor other = all->make[t->pass](s, t->node, row);
    if (tensor_present(other) && tensor_count(other) == tensor_count(s->verdict.have)) take(s, right, t, other);
    else s->verdict.result.wrong = 0;
    if (s->verdict.result.wrong > 0) {
        struct outcome *o = outcome_of(row, t->pass);
        mistakes_explainer.explain(s, right, false);
        o->seen++;
        o->alone += strcmp(s->verdict.result.mistake, row->words) == 0;
        if (strstr(s->verdict.result.mistake, row->words)) o->named++;
        else snprintf(o->said, sizeof o->said, "%.60s: %.120s", s->verdict.result.name, s->verdict.result.mistake);
    } else if (row->passes >> t->pass & 1) outcome_of(row, t->pass);
    single_release(s, used);
}

static void explain_rows(struct single *s, const struct single_value *right, bool number)
{
    (void)number;
    for (int t = 0; t < s->verdict.terms; t++) {
        const struct single_mistakes *all = mistakes_of(s->verdict.term[t].node->operation);
        for (const struct single_mistake *row = all && all->make[s->verdict.term[t].pass] ? all->rows : NULL; row &&
             row->words;
             row++)
            if ((row->passes >> s->verdict.term[t].pass & 1) && !strstr(row->words, "document") == !packed)
                try_row(s, right, &s->verdict.term[t], all, row);
    }
    s->verdict.result.mistake[0] = 0;
}

static const struct single_explainer rows_explainer = { .explain = explain_rows, .forget = suspect_forget };

/* Norms start with weights of 1 and without biases: so nobody would see that they are missing. */
static void move_weights(struct transformer *model)
{
    for (int i = 0; i < model->params; i++)
        for (int64_t k = 0; k < tensor_count(model->w[i]); k++)
            tensor_set(model->w[i], k,
                       tensor_get(model->w[i], k) + 0.2 * random_uniform(7, (uint64_t)i, (uint64_t)k) - 0.1);
}

/* One balance loss, as transformers has it: only then parts of the batch have others. */
static void balance_all(struct model_config *c)
{
    c->mixture.balance.over = OVER_BATCH, c->mixture.balance.layers = LAYERS_TOGETHER;
    c->mixture.balance.choices = CHOICES_ALL, c->mixture.z_coefficient = 0;
}

/* Each sequence is a document of two tokens and one of the rest. */
static void pack_documents(struct golden *g)
{
    g->positions = calloc((size_t)(g->B * g->S), sizeof *g->positions);
    assert_non_null(g->positions);
    for (int64_t i = 0; i < g->B * g->S; i++) g->positions[i] = (int32_t)(i % g->S < 2 ? i % g->S : i % g->S - 2);
}

enum { LONG = 260 };                    /* tokens: bf16 has 256 and 258, but not 257 */

static void allow_long(struct model_config *c) { c->S = LONG; }

/* One sequence repeats the tokens of all batches. */
static void lengthen(struct golden *g)
{
    const int64_t n = g->steps * g->B * g->S;
    g->ids = realloc(g->ids, LONG * sizeof *g->ids), g->labels = realloc(g->labels, LONG * sizeof *g->labels);
    assert_non_null(g->ids), assert_non_null(g->labels);
    for (int64_t i = n; i < LONG; i++) g->ids[i] = g->ids[i % n], g->labels[i] = g->labels[i % n];
    g->B = 1, g->S = LONG;
}

/* A rotation and its gradient, of which positions may be wrong. */
static bool is_rotation(const char *name)
{
    return strcmp(name, "act/h.0.attn.rotated") == 0 || strcmp(name, "grad/h.0.attn.qkv") == 0;
}

/* The batches of all steps are one batch of nine sequences: some rows are of eight parts of it.  Or they are one long
 * sequence, of which only rotations are tried. */
static void try_results(const char *path, bool is_long)
{
    open_changed(&program, path, is_long ? allow_long : strstr(path, "mixtral") ? balance_all : NULL, F32);
    struct golden *g = &program.golden;
    if (is_long) lengthen(g);
    else g->B *= g->steps;
    if (packed) pack_documents(g);
    const struct single_batch batch = { g->ids, g->labels, g->B, g->S, golden_balance_micros(g), g->positions };
    struct single_source source = { .explainer = &rows_explainer, .fetch = fetch_wrong, .found = found,
                                    .parts = parts_of, .context = &program,
                                    .copies = 3 };
    struct error err;
    move_weights(&program.model);
    program.model.packed = g->positions;
    run(&program);
    for (int i = 0; i < program.count; i++) {
        if (is_long && !is_rotation(program.kept[i].name)) continue;
        only = source.only = program.kept[i].name;
        if (replay_check(&g->config, batch, rounding_of(F32, DTYPE_COUNT, 2), source, &err) != OK)
            fail_msg("%s", err.text);
    }
    close_dump(&program);
}

/* In these models other rows make the same: windows are of four tokens, two layers make a loss count twice, the K
 * groups of heads are too few for two ranks. */
static bool has_equals(const char *words)
{
    static const char *const rows[] = {
        "scores are divided by the root of A only, without YaRN's mscale_all_dim",
        "its window is off by one: a token sees one less", "it has the window of other layers, and should have none",
        "wrong head map: in each rank", "the balance loss counts ",
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strncmp(words, rows[i], strlen(rows[i])) == 0) return true;
    return false;
}

static void every_row_is_named(void **state)
{
    static const char *const files[] = {
        "golden/gpt2-tied.safetensors",       "golden/llama-grouped.safetensors",  "golden/mixtral-top2.safetensors",
        "golden/deepseekv2-yarn.safetensors", "golden/gemma2-windows.safetensors", "golden/gemma3-pattern.safetensors",
        "golden/qwen3-narrower.safetensors",  "golden/deepseekv3-groups.safetensors", "golden/gptoss-plain.safetensors",
    };
    int never = 0, unnamed = 0, equal = 0;
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) try_results(files[i], false);
    try_results("golden/llama-wide.safetensors", true);
    packed = true;
    for (int i = 0; i < 2; i++) try_results(files[i], false);
    for (int i = 0; i < count; i++) {
        const struct outcome *o = &outcomes[i];
        if (o->seen == 0) print_message("never wrong: pass %d, %s\n", o->pass, o->row->words);
        else if (o->alone == 0 && !has_equals(o->row->words))
            equal++, print_message("never alone: pass %d, %s\n", o->pass, o->row->words);
        if (o->named < o->seen)
            print_message("%d of %d named: pass %d, %s; else %s\n", o->named, o->seen, o->pass, o->row->words, o->said);
        never += o->seen == 0, unnamed += o->named < o->seen;
    }
    print_message("%d rows and passes\n", count);
    assert_int_equal(never, 0);
    assert_int_equal(unnamed, 0);
    assert_int_equal(equal, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_row_is_named) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
