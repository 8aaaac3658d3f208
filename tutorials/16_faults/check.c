/* Lesson 16.  A text: of each of five runs the tensor that is wrong first, the operation, the axis and the cause. */
#include "emulated_devices/course/lesson.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { CASES = 5, FIELD = 100 };
enum field { TENSOR, OPERATION, AXIS, CAUSE, FIELDS };
static const char *const name[FIELDS] = { "tensor", "operation", "axis", "cause" };

/* The words of README.md. */
static const char *const operations[] = { "embedding", "norm", "matrix", "attention", "router", "loss", "gradient-sum",
                                          "gradient-norm", "step", NULL };
static const char *const axes[] = { "dp", "tp", "pp", "micros", "none", NULL };
static const char *const causes[] = {
    "added-on-every-rank", "not-summed", "summed-twice", "divided-twice", "mean-of-means", "labels-shifted",
    "copies-are-counted", "own-part-only", "one-parameter-left-out", "two-uses-are-not-summed", "stale-buffer",
    "other-ranks-piece", NULL
};
static const char *const *const words[FIELDS] = { NULL, operations, axes, causes };

/* ---- what is right ----------------------------------------------------------------------------------------------- */

/* tensor: one of two, where two are wrong first. */
struct truth { const char *tensor, *or, *operation, *axis, *cause; };

static struct truth bias(void) { return (struct truth){ "act/h.1.attn.out", NULL, "matrix", "tp",
                                                        "added-on-every-rank" }; }
static struct truth copies(void) { return (struct truth){ "norm", NULL, "gradient-norm", "tp", "copies-are-counted" }; }
static struct truth tied(void)
{
    return (struct truth){ "grad/wte.weight", NULL, "gradient-sum", "pp", "two-uses-are-not-summed" };
}
static struct truth expert(void)
{
    return (struct truth){ "grad/model.layers.1.mlp.experts.2.gate_up_proj.weight",
                           "grad/model.layers.1.mlp.experts.2.down_proj.weight", "gradient-sum", "dp",
                           "one-parameter-left-out" };
}
static struct truth means(bool micros)
{
    return (struct truth){ "grad/logits", "loss", "loss", micros ? "micros" : "dp", "mean-of-means" };
}

static struct truth truth_of(const struct judge *j, int number)
{
    const bool first = judge_choice(j, "FIRST") == 1, third = judge_choice(j, "THIRD") == 1;
    switch (number) {
    case 1: return first ? copies() : bias();
    case 2: return means(judge_choice(j, "SECOND") == 1);
    case 3: return third ? expert() : tied();
    case 4: return third ? tied() : expert();
    default: return first ? bias() : copies();
    }
}

static bool is_right(const struct truth *t, enum field f, const char *given)
{
    const char *const want[FIELDS] = { t->tensor, t->operation, t->axis, t->cause };
    return strcmp(given, want[f]) == 0 || (f == TENSOR && t->or && strcmp(given, t->or) == 0);
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

struct answers { char of[FIELDS][FIELD]; int line[FIELDS], lines; };

/* A line's first word, and what follows, without blanks around it. */
static void cut(const char *at, size_t n, char word[FIELD], char rest[FIELD])
{
    while (n > 0 && isspace((unsigned char)at[n - 1])) n--;
    while (n > 0 && isspace((unsigned char)*at)) at++, n--;
    size_t w = 0;
    while (w < n && !isspace((unsigned char)at[w])) w++;
    snprintf(word, FIELD, "%.*s", (int)(w < FIELD ? w : FIELD - 1), at);
    while (w < n && isspace((unsigned char)at[w])) w++;
    snprintf(rest, FIELD, "%.*s", (int)(n - w < FIELD ? n - w : FIELD - 1), at + w);
}

static int field_named(const char *word)
{
    for (int f = 0; f < FIELDS; f++)
        if (strcmp(word, name[f]) == 0) return f;
    return -1;
}

/* The answers of one case. */
static bool read_case(struct judge *j, int number, struct answers *a)
{
    char wanted[12], word[FIELD], rest[FIELD];
    bool in = false, found = false;
    int line = 1;
    *a = (struct answers){ .lines = 0 };
    snprintf(wanted, sizeof wanted, "%d", number);
    for (const char *at = j->text; *at; line++) {
        const size_t n = strcspn(at, "\n");
        cut(at, n, word, rest);
        at += n + (at[n] == '\n');
        const int f = field_named(word);
        if (word[0] == 0 || word[0] == '#') continue;
        if (strcmp(word, "case") == 0) {
            in = strcmp(rest, wanted) == 0;
            if (in && found) return judge_fails(j, "%s:%d: case %d is there twice", j->lesson->file, line, number);
            found |= in;
        } else if (f < 0)
            return judge_fails(j, "%s:%d: a line begins with case, tensor, operation, axis or cause, not with %.40s",
                               j->lesson->file, line, word);
        else if (in && a->line[f] > 0)
            return judge_fails(j, "%s:%d: case %d has two lines %s", j->lesson->file, line, number, name[f]);
        else if (in) snprintf(a->of[f], FIELD, "%s", rest), a->line[f] = line;
    }
    return found ? true : judge_fails(j, "%s: there is no line \"case %d\"", j->lesson->file, number);
}

static bool is_word(enum field f, const char *given)
{
    for (const char *const *w = words[f]; w && *w; w++)
        if (strcmp(*w, given) == 0) return true;
    return words[f] == NULL;
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static void check_field(struct judge *j, int number, enum field f)
{
    struct answers a;
    const struct truth t = truth_of(j, number);
    if (!read_case(j, number, &a)) return;
    if (a.line[f] == 0) judge_fails(j, "%s: case %d has no line %s", j->lesson->file, number, name[f]);
    else if (a.of[f][0] == 0)
        judge_fails(j, "%s:%d: nothing is said of the %s", j->lesson->file, a.line[f], name[f]);
    else if (!is_word(f, a.of[f]))
        judge_fails(j, "%s:%d: %s is none of the words for the %s", j->lesson->file, a.line[f], a.of[f], name[f]);
    else if (!is_right(&t, f, a.of[f]))
        judge_fails(j, "%s:%d: the %s is not %s", j->lesson->file, a.line[f], name[f], a.of[f]);
}

#define CASE(n)                                                                                                        \
    static void tensor_##n(struct judge *j) { check_field(j, n, TENSOR); }                                             \
    static void place_##n(struct judge *j)                                                                             \
    {                                                                                                                  \
        check_field(j, n, OPERATION);                                                                                  \
        if (!j->failed) check_field(j, n, AXIS);                                                                       \
    }                                                                                                                  \
    static void cause_##n(struct judge *j) { check_field(j, n, CAUSE); }
CASE(1)
CASE(2)
CASE(3)
CASE(4)
CASE(5)

#define CHECKS(n, look, think)                                                                                         \
    { n, "tensor-" #n, "the tensor that is wrong first", 2, tensor_##n,                                                \
      { "bash 16_faults/case.sh " #n " records the run and checks it.  Which tensor does the last line begin with?",   \
        "Later tensors are wrong because they were computed from it." } },                                             \
    { n, "place-" #n, "the operation, and the axis along which it goes wrong", 2, place_##n,                           \
      { "An activation is made by an operation; a gradient of a weight is a sum of parts.", look } },                  \
    { n, "cause-" #n, "the cause", 1, cause_##n,                                                                       \
      { "Read what the check says of the tensor, then look for it in golden/bugs/: what gives such numbers?", think } }

extern const struct lesson lesson_16_faults;
const struct lesson lesson_16_faults = {
    .folder = "16_faults", .title = "Finding what others did wrong", .file = "faults.txt", .functions = NULL,
    .given = { "case.sh" },
    .vary = { { "FIRST", 2 }, { "SECOND", 2 }, { "THIRD", 2 } },
    .check = {
        CHECKS(1, "Which axis has more than one rank?  case.sh says it.", "How large is the error, as a multiple of "
               "what?"),
        CHECKS(2, "Which numbers are divided by a number of labels, and where is that number known?",
               "Lesson 06: two parts of a batch with different numbers of labels."),
        CHECKS(3, "Which devices have a part of this gradient, and which of them talked to each other?",
               "Is the whole tensor wrong on all devices, or one among many that are alike?"),
        CHECKS(4, "Which devices have a part of this gradient, and which of them talked to each other?",
               "Is the whole tensor wrong on all devices, or one among many that are alike?"),
        CHECKS(5, "Which axis has more than one rank?  case.sh says it.", "How large is the error, as a multiple of "
               "what?"),
    },
};
