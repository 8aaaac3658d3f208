/* check.c -- judges lesson 16, a text.  For each of five runs it names the tensor that is wrong first, the
 * operation, the axis and the cause.  No student's code runs here: the student writes faults.txt after looking at
 * runs of golden/bugs.  judge.c runs each check in a process of its own.  A word that is not one of README.md's is
 * named, since a wrong guess is no wrong answer. */
#include "emulated_devices/course/lesson.h"
#include "ref/io/sha256.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { CASES = 5, FIELD = 100 };
enum field { TENSOR, OPERATION, AXIS, CAUSE, FIELDS };
static const char *const name[FIELDS] = { "tensor", "operation", "axis", "cause" };

/* These are the words of README.md; the message names the field whose word is none of them. */
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

/* Keep only checksums of the answers, so that the program does not tell them.  The first digits of sha256sum of 'a
 * axis dp' are compared.  or: of another tensor, where two are wrong first. */
enum { DIGITS = 12 };
struct truth { char letter; const char *of[FIELDS], *or; };
static const struct truth truths[] = {
    { 'a', { "e94712b8d7d5", "c688ee332857", "0496e3a479e9", "6c6d05e01f14" }, NULL },
    { 'b', { "49645b604b58", "ea07e59b1036", "16f29d388640", "9b0d3ce70338" }, NULL },
    { 'c', { "adc2278a1459", "fba06fd24027", "358d9061a6e6", "0456f6caf554" }, NULL },
    { 'd', { "19585d2df939", "62f87c7d853a", "7e6c91f0d057", "ba225b624147" }, "67d498ad8fd2" },
    { 'e', { "3752544df428", "1e6859eb9fdd", "1f88b7d55c16", "80cb4f11c16f" }, "4b997d821dc6" },
    { 'f', { "f7019f2698d0", "b5771007b1c9", "2627279cf8bb", "51514ace2409" }, "12375a0b015e" },
};

/* Six prepared runs, of which the course's variants choose five. */
static const struct truth *truth_of(const struct judge *j, int number)
{
    const bool first = judge_choice(j, "FIRST") == 1, second = judge_choice(j, "SECOND") == 1;
    const bool third = judge_choice(j, "THIRD") == 1;
    switch (number) {
    case 1: return &truths[first ? 1 : 0];
    case 2: return &truths[second ? 4 : 5];
    case 3: return &truths[third ? 3 : 2];
    case 4: return &truths[third ? 2 : 3];
    default: return &truths[first ? 0 : 1];
    }
}

/* The checksum of "letter field answer" decides, in the words of the text. */
static bool is_right(const struct truth *t, enum field f, const char *given)
{
    char text[FIELD + 40];
    snprintf(text, sizeof text, "%c %s %s", t->letter, name[f], given);
    const struct sha256_text sum = sha256_of(text, strlen(text));
    return strncmp(sum.text, t->of[f], DIGITS) == 0 ||
           (f == TENSOR && t->or && strncmp(sum.text, t->or, DIGITS) == 0);
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* These are the answers of one case, and the lines where they stand. */
struct answers { char of[FIELDS][FIELD]; int line[FIELDS], lines; };

/* Cut a line into its first word and the rest, without blanks around it. */
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

/* Find the number of a field, or -1: no field has this name. */
static int field_named(const char *word)
{
    for (int f = 0; f < FIELDS; f++)
        if (strcmp(word, name[f]) == 0) return f;
    return -1;
}

/* Read the answers of one case.  A # starts a comment.  The first line of each field counts; a second one is an
 * error. */
static bool read_case(struct judge *j, int number, struct answers *a)
{
    char wanted[12], word[FIELD], rest[FIELD];
    bool in = false, found = false;
    int line = 1;
    *a = (struct answers){ .lines = 0 };
    snprintf(wanted, sizeof wanted, "%d", number);
    for (const char *at = j->text; *at; line++) {
        const size_t n = strcspn(at, "\n");
        cut(at, strcspn(at, "#\n"), word, rest);
        at += n + (at[n] == '\n');
        const int f = field_named(word);
        /* A line without a word is blank, or a comment. */
        if (word[0] == 0) continue;
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

/* A field without a list of words takes anything. */
static bool is_word(enum field f, const char *given)
{
    for (const char *const *w = words[f]; w && *w; w++)
        if (strcmp(*w, given) == 0) return true;
    return words[f] == NULL;
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

/* Read the case again for each field, so that each check stands alone. */
static void check_field(struct judge *j, int number, enum field f)
{
    struct answers a;
    const struct truth *t = truth_of(j, number);
    if (!read_case(j, number, &a)) return;
    if (a.line[f] == 0) judge_fails(j, "%s: case %d has no line %s", j->lesson->file, number, name[f]);
    else if (a.of[f][0] == 0)
        judge_fails(j, "%s:%d: nothing is said of the %s", j->lesson->file, a.line[f], name[f]);
    else if (!is_word(f, a.of[f]))
        judge_fails(j, "%s:%d: %s is none of the words for the %s", j->lesson->file, a.line[f], a.of[f], name[f]);
    else if (!is_right(t, f, a.of[f]))
        judge_fails(j, "%s:%d: the %s is not %s", j->lesson->file, a.line[f], name[f], a.of[f]);
}

/* A case's tensor or cause; or its place, which has two fields. */
static void try_case(struct judge *j)
{
    const enum field field = j->check->look;
    check_field(j, j->check->what, field);
    if (field == OPERATION && !j->failed) check_field(j, j->check->what, AXIS);
}

/* Every case has these checks. */
#define CHECKS(n, look, think)                                                                                         \
    { n, "tensor-" #n, "the tensor that is wrong first", 2, { try_case, TENSOR, n },                                   \
      { "bash 16_faults/case.sh " #n " records the run and checks it.  Which tensor does the last line begin with?",   \
        "Later tensors are wrong because they were computed from it." } },                                             \
    { n, "place-" #n, "the operation, and the axis along which it goes wrong", 2, { try_case, OPERATION, n },          \
      { "An activation is made by an operation; a gradient of a weight is a sum of parts.", look } },                  \
    { n, "cause-" #n, "the cause", 1, { try_case, CAUSE, n },                                                          \
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
