/* planned.c -- parses the words of a topic that takes a plan.  cli/show/plan.c and cli/show/step.c call.  Without a
 * mesh the plan is --dp 4, without a model it is tiny.  A wrong --svg or --page or too many words are ERR_USAGE; errors
 * of the plan's options are passed on. */
#include "emulated_devices/cli/show/planned.h"
#include <string.h>

enum { WORDS = 120 };

struct words { char *word[WORDS]; int count; };

static void planned_add(struct words *words, const char *word)
{
    if (words->count < WORDS) words->word[words->count++] = (char *)(uintptr_t)word;
}

static bool has_one_of(int argc, char **argv, const char *const *names)
{
    for (; *names; names++)
        for (int i = 0; i < argc; i++)
            if (strcmp(argv[i], *names) == 0) return true;
    return false;
}

enum error_code planned_parse(struct planned *planned, const struct run_kind *kind, const char *name_flag, int argc,
                              char **argv, struct error *err)
{
    static const char *const axes[] = { "--dp", "--tp", "--pp", "--cp", "--ep", "--etp", "--plan", "--help", "--config",
                                        NULL };
    static const char *const models[] = { "--model", "--help", "--config", NULL };
    static struct words w;
    int at = 3;
    *planned = (struct planned){ .svg = NULL };
    w.count = 0;
    if (!has_one_of(argc, argv, axes)) planned_add(&w, "--dp"), planned_add(&w, "4");
    if (!has_one_of(argc, argv, models)) planned_add(&w, "--model"), planned_add(&w, "tiny");
    if (name_flag && at < argc && argv[at][0] != '-') planned_add(&w, name_flag), planned_add(&w, argv[at++]);
    for (; at < argc; at++) {
        const bool page = strcmp(argv[at], "--page") == 0;
        const char **file = page ? &planned->page : &planned->svg;
        if (!page && strcmp(argv[at], "--svg") != 0) planned_add(&w, argv[at]);
        else if (*file) return fail(err, ERR_USAGE, "%s is given twice", argv[at]);
        else if (at + 1 == argc) return fail(err, ERR_USAGE, "%s wants a FILE", argv[at]);
        else *file = argv[++at];
    }
    if (w.count == WORDS) return fail(err, ERR_USAGE, "%s: too many words", kind->command);
    return train_parse(&planned->options, kind, w.count, w.word, err);
}
