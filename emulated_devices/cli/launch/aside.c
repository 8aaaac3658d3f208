/* aside.c -- one command of this program that another one needs the results of. */
#include "emulated_devices/cli/cli.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The last line that it had to say. */
static void last_line(const char *path, char *text, size_t room)
{
    char line[400];
    FILE *in = fopen(path, "r");
    while (in && fgets(line, sizeof line, in)) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0]) snprintf(text, room, "%s", strncmp(line, "orrery: ", 8) == 0 ? line + 8 : line);
    }
    if (in) fclose(in);
}

enum error_code run_aside(const char *const *words, struct error *err)
{
    static const char *said;                            /* one file for all */
    if (said == NULL && (said = temporary_file(err)) == NULL) return err->code;
    const pid_t child = fork();
    int how = 0;
    if (child == 0) {
        if (freopen("/dev/null", "w", stdout) == NULL || freopen(said, "w", stderr) == NULL) _exit(1);
        execvp(words[0], (char *const *)(uintptr_t)words);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &how, 0) != child || !WIFEXITED(how) || WEXITSTATUS(how) != 0) {
        char why[400] = "failed";
        last_line(said, why, sizeof why);
        return fail(err, ERR_COMM, "orrery %s: %s", words[1], printable(why).text);
    }
    return OK;
}
