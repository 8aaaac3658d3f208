/* take_sections.c -- gives a run's plan the sections of --plan, a file or its text.
 * take.c calls train_take_sections() when all that the sections share is known.  Errors: ERR_FILE, ERR_FORMAT naming
 * file, line and key, ERR_USAGE for flags that the file replaces. */
#include "emulated_devices/plan/sections_file.h"
#include "emulated_devices/run/words/words.h"
#include "ref/io/options.h"
#include "ref/io/output.h"

/* The file says what these flags say for a plan of one mesh. */
static enum error_code refuse_flags(const struct train_words *words, struct error *err)
{
    static const char *const flags[] = { "--dp", "--tp", "--pp", "--cp", "--ep", "--etp", "--placement",
                                        "--stage-layers" };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (options_given(words->argc, words->argv, flags[i]))
            return fail(err, ERR_USAGE, "%s: the sections of --plan %s have devices of their own", flags[i],
                        sections_are_text(words->plan) ? "its text" : printable_path(words->plan).text);
    return OK;
}

enum error_code train_take_sections(struct train_options *options, const struct train_words *words, struct error *err)
{
    enum error_code e = refuse_flags(words, err);
    if (e) return e;
    e = sections_read(&options->sections, &options->plan, words->plan, &options->plan_file, err);
    /* A wrong text is a wrong word. */
    if (e == ERR_FORMAT && sections_are_text(words->plan)) e = err->code = ERR_USAGE;
    options->plan.sections = e ? NULL : &options->sections;
    return fail_about(err, e, "--plan");
}
