/* The command line: every kind of value, every error with its exact message, and the help.
 * tier: check
 */
#include "ref/io/options.h"
#include "tests/ref/scratch.h"
#include <math.h>

static int dp, steps;
static uint64_t seed, memory, tokens;
static double lr, shift;
static bool quiet, check, lr_given;
static const char *dtype, *schedule, *file, *second;

static const char *const dtypes[] = { "fp32", "fp64", NULL };
static const char *const schedules[] = { "gpipe", "1f1b", "interleaved", "zero_bubble", NULL };

static const struct option table[] = {
    { .kind = OPTION_HEADING, .help = "Mesh" },
    { "--dp", "N", OPTION_INT, &dp, .min = 1, .max = 4096, .help = "copies of the model" },
    { "--schedule", "NAME", OPTION_CHOICE, &schedule, .choices = schedules, .help = "order of the microbatches" },
    { .kind = OPTION_HEADING, .help = "Training" },
    { "--steps", "N", OPTION_INT, &steps, .min = 0, .max = INFINITY, .help = "optimizer steps" },
    { "--lr", "RATE", OPTION_DOUBLE, &lr, .min = 0, .max = 1, .given = &lr_given, .help = "learning rate" },
    { "--shift", "X", OPTION_DOUBLE, &shift, .help = "any number" },
    { "--seed", "N", OPTION_UINT64, &seed, .help = "of all random numbers" },
    { "--memory", "SIZE", OPTION_SIZE, &memory, .min = 1024, .max = 0x1p40, .help = "of a device" },
    { "--tokens", "T", OPTION_COUNT, &tokens, .min = 1, .max = 1e18, .help = "of a training" },
    { "--dtype", "NAME", OPTION_CHOICE, &dtype, .choices = dtypes, .help = "number format" },
    { "--check", "WORD", OPTION_BOOL, &check, .help = "compare with one device" },
    { "--quiet", NULL, OPTION_SWITCH, &quiet, .help = "print only the result" },
    { "FILE", NULL, OPTION_STRING, &file, .required = true, .help = "the text to train on" },
    { "SECOND", NULL, OPTION_STRING, &second, .help = "more text" },
    { 0 }
};

static void defaults(void)
{
    dp = 1, steps = 10, seed = 1, memory = 64 << 20, lr = 1e-3, shift = 0;
    quiet = check = lr_given = false;
    dtype = "fp32", schedule = "1f1b", file = second = NULL;
}

enum { MOST_WORDS = 20 };

static enum error_code parse(const char *line, bool *help, struct error *err)
{
    static char buffer[300];                            /* destinations point into it */
    char *argv[MOST_WORDS];
    int argc = 0;
    snprintf(buffer, sizeof buffer, "%s", line);
    for (char *w = strtok(buffer, " "); w != NULL && argc < MOST_WORDS; w = strtok(NULL, " ")) argv[argc++] = w;
    defaults();
    return options_parse("train", argc, argv, table, help, err);
}

static void reads_every_kind(void **state)
{
    (void)state;
    struct error err;
    bool help;
    assert_int_equal(parse("--dp 4 text --steps=7 --lr 0.5 --seed=18446744073709551615 --memory 1.5G --dtype=fp64 "
                           "--check yes --quiet", &help, &err), OK);
    assert_false(help);
    assert_int_equal(dp, 4);
    assert_int_equal(steps, 7);
    assert_true(lr == 0.5 && lr_given);
    assert_true(seed == UINT64_MAX);
    assert_true(memory == UINT64_C(3) << 29);
    assert_string_equal(dtype, "fp64");
    assert_true(check && quiet);
    assert_string_equal(file, "text");
    assert_null(second);
}

static void leaves_defaults(void **state)
{
    (void)state;
    struct error err;
    bool help;
    assert_int_equal(parse("a b", &help, &err), OK);
    assert_int_equal(dp, 1);
    assert_string_equal(schedule, "1f1b");
    assert_false(lr_given);
    assert_string_equal(second, "b");
}

static void takes_odd_but_clear_words(void **state)
{
    (void)state;
    struct error err;
    bool help;
    assert_int_equal(parse("-", &help, &err), OK);      /* the standard input, by custom */
    assert_string_equal(file, "-");
    assert_int_equal(parse("-- --dp", &help, &err), OK);
    assert_string_equal(file, "--dp");
    assert_int_equal(parse("a --memory=64k --check=off --tokens 15.6T", &help, &err), OK);
    assert_true(memory == 65536 && !check && tokens == 15600000000000);
}

static void help_wins(void **state)
{
    (void)state;
    struct error err;
    bool help;
    assert_int_equal(parse("--dp 9 --nonsense --help", &help, &err), OK);
    assert_true(help);
    assert_int_equal(dp, 1);
    assert_int_equal(parse("--nonsense -h", &help, &err), OK);
    assert_true(help);
    assert_int_equal(parse("-- -h", &help, &err), OK);
    assert_false(help);
}

static const struct { const char *line, *message; } mistakes[] = {
    { "f --stepz 3", "--stepz is not a flag of train; did you mean --steps?" },
    { "f --stpes=3", "--stpes is not a flag of train; did you mean --steps?" },
    { "f -steps 3", "-steps is not a flag of train; did you mean --steps?" },
    { "f --learning-rate 1", "--learning-rate is not a flag of train; see orrery train --help" },
    { "f --d 1", "--d is not a flag of train; see orrery train --help" },
    { "f --dp", "--dp needs a value: --dp N" },
    { "f --dp --quiet", "--dp needs a value: --dp N" },
    { "f --dp two", "--dp two: must be a whole number from 1 to 4096" },
    { "f --dp 0", "--dp 0: must be a whole number from 1 to 4096" },
    { "f --dp -1", "--dp -1: must be a whole number from 1 to 4096" },
    { "f --dp 4097", "--dp 4097: must be a whole number from 1 to 4096" },
    { "f --dp 2.5", "--dp 2.5: must be a whole number from 1 to 4096" },
    { "f --dp 99999999999999999999", "--dp 99999999999999999999: must be a whole number from 1 to 4096" },
    { "f --dp=", "--dp : must be a whole number from 1 to 4096" },
    { "f --steps -1", "--steps -1: must be a whole number from 0 to 2147483647" },
    { "f --steps 3000000000", "--steps 3000000000: must be a whole number from 0 to 2147483647" },
    { "f --seed -1", "--seed -1: must be a whole number from 0 to 18446744073709551615" },
    { "f --seed 18446744073709551616",
      "--seed 18446744073709551616: must be a whole number from 0 to 18446744073709551615" },
    { "f --lr nan", "--lr nan: must be a number from 0 to 1" },
    { "f --lr 1e-3x", "--lr 1e-3x: must be a number from 0 to 1" },
    { "f --lr 2", "--lr 2: must be a number from 0 to 1" },
    { "f --shift nan", "--shift nan: must be a number" },
    { "f --shift=-inf", "--shift -inf: must be a number" },
    { "f --memory 64Q", "--memory 64Q: must be a size such as 512, 64K, 1.5GiB or 80GB from 1KiB to 1TiB" },
    { "f --tokens 15TB", "--tokens 15TB: must be a count such as 4096, 300B or 15T from 1 to 1e+18" },
    { "f --tokens 0", "--tokens 0: must be a count such as 4096, 300B or 15T from 1 to 1e+18" },
    { "f --memory 1", "--memory 1: must be a size such as 512, 64K, 1.5GiB or 80GB from 1KiB to 1TiB" },
    { "f --dtype fp23", "--dtype fp23: there is no such choice; did you mean fp32?" },
    { "f --dtype posit", "--dtype posit: must be one of fp32, fp64" },
    { "f --schedule zerobubble", "--schedule zerobubble: there is no such choice; did you mean zero_bubble?" },
    { "f --check maybe", "--check maybe: must be yes or no" },
    { "f --quiet=yes", "--quiet takes no value, not yes" },
    { "f --dp 1 --dp=1", "--dp is given twice" },
    { "f --quiet --quiet", "--quiet is given twice" },
    { "f g h", "h: train takes no such argument; see orrery train --help" },
    { "--dp 2", "train needs FILE: the text to train on" },
};

static void names_every_mistake(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        struct error err = { OK, "" };
        bool help;
        const enum error_code e = parse(mistakes[i].line, &help, &err);
        if (e != ERR_USAGE || strcmp(err.text, mistakes[i].message) != 0)
            fail_msg("%s: code %d \"%s\", want \"%s\"", mistakes[i].line, e, err.text, mistakes[i].message);
    }
}

static void finds_near_names(void **state)
{
    (void)state;
    static const char *const names[] = { "ring", "tree", NULL, "recursive_doubling", "rabenseifner", "dp" };
    static const struct { const char *word, *near; } cases[] = {
        { "ring", "ring" }, { "rnig", "ring" }, { "rings", "ring" }, { "pd", "dp" }, { "treee", "tree" },
        { "tere", "tree" },
        { "recursive-doubling", "recursive_doubling" }, { "recursivedoubling", "recursive_doubling" },
        { "rabenseifer", "rabenseifner" }, { "bruck", NULL }, { "x", NULL }, { "", NULL }, { "--", NULL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *got = nearest_name(cases[i].word, names, 6);
        if (got != cases[i].near && (got == NULL || cases[i].near == NULL || strcmp(got, cases[i].near) != 0))
            fail_msg("near %s: got %s, want %s", cases[i].word, got ? got : "none",
                     cases[i].near ? cases[i].near : "none");
    }
    char longer[5000];
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_null(nearest_name(longer, names, 6));
}

static void helps_in_columns(void **state)
{
    (void)state;
    static const char *const many[] = { "one_long_name_after", "another_long_name", "and_a_third_long_name", "the_last",
                                        NULL };
    static const char *choice = "the_last";
    static const struct option wide[] = {
        { "--a-flag-that-is-rather-long", "ARGUMENT", OPTION_CHOICE, &choice, .choices = many, .help = "what it does" },
        { 0 }
    };
    FILE *f = fopen(scratch("help"), "w");
    size_t n;
    assert_non_null(f);
    defaults();
    options_print_help(f, table);
    options_print_help(f, wide);
    fclose(f);
    char *text = get_file(scratch("help"), &n);
    assert_non_null(strstr(text, "Mesh:\n  --dp N                      copies of the model [1]\n"));
    assert_non_null(strstr(text, "\n\nTraining:\n  --steps N                   optimizer steps [10]\n"));
    assert_non_null(strstr(text, "  --dtype NAME                number format; one of fp32, fp64 [fp32]\n"));
    assert_non_null(strstr(text, "  --memory SIZE               of a device [64MiB]\n"));
    assert_non_null(strstr(text, "  --quiet                     print only the result\n"));
    assert_non_null(strstr(text, "  FILE                        the text to train on (required)\n"));
    assert_non_null(strstr(text, "\n                              and_a_third_long_name, the_last [the_last]\n"));
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1)
        assert_in_range(strcspn(line, "\n"), 0, 100);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_kind),
        cmocka_unit_test(leaves_defaults),
        cmocka_unit_test(takes_odd_but_clear_words),
        cmocka_unit_test(help_wins),
        cmocka_unit_test(names_every_mistake),
        cmocka_unit_test(finds_near_names),
        cmocka_unit_test(helps_in_columns),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
