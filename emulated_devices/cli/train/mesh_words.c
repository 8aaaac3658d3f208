/* mesh_words.c -- reads the words of a mesh.  cli/reshard.c and elastic_words.c call.  What is no flag of a mesh is
 * ERR_USAGE by name. */
#include "emulated_devices/cli/train/mesh_words.h"
#include "ref/io/options.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* These flags say who computes what, and not what is computed. */
static const char *const flags[] = {
    "--dp", "--tp", "--pp", "--cp", "--ep", "--etp", "--zero", "--data-parallel", "--shards", "--shard-group",
    "--tensor", "--attention", "--head-parallel", "--ring-window", "--context-first", "--dispatch", "--schedule",
    "--chunks", "--stage-layers", "--micro", "--recompute", "--tiles", "--bucket", "--allreduce", "--reduce-scatter",
    "--encoders", "--bridge-chunks",
};
enum { FLAGS = sizeof flags / sizeof *flags };

static bool is_of_mesh(const char *word)
{
    const size_t n = strcspn(word, "=");
    for (int i = 0; i < FLAGS; i++)
        if (strlen(flags[i]) == n && strncmp(flags[i], word, n) == 0) return true;
    return false;
}

enum error_code mesh_text_read(struct mesh_text *to, const char *text, const char *who, struct error *err)
{
    *to = (struct mesh_text){ .count = 0 };
    if (strlen(text) >= sizeof to->text) return fail(err, ERR_USAGE, "%s: too many words", who);
    strcpy(to->text, text);
    for (char *rest = NULL, *word = strtok_r(to->text, " \t\r", &rest); word; word = strtok_r(NULL, " \t\r", &rest)) {
        if (to->count == MESH_WORDS_MOST) return fail(err, ERR_USAGE, "%s: too many words", who);
        if (strncmp(word, "--", 2) == 0 && !is_of_mesh(word))
            return fail(err, ERR_USAGE, "%s: %.*s says nothing of a mesh; it may say --dp, --tp, --pp, --cp, --ep, "
                        "--zero and other words of who computes what, for the rest is the job's", who,
                        (int)strcspn(word, "="), printable(word).text);
        if (to->count == 0 && strncmp(word, "--", 2) != 0)
            return fail(err, ERR_USAGE, "%s: %s: a mesh is said as flags, such as --dp 2 --tp 4", who,
                        printable(word).text);
        to->word[to->count++] = word;
    }
    return OK;
}
