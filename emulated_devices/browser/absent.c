/* absent.c -- what a page in a browser does not have: files of data and settings, other programs' files, signals, a
 * launcher, LAPACK.
 *
 * These functions stand in front of those of run/, launch/, train/ and ref/ when a plan is linked for a browser; the
 * words of a plan reach no other ones.  What needs a file is ERR_FILE and says that there are none.
 */
#include "emulated_devices/draw/page/page_html.h"
#include "emulated_devices/launch/launch.h"
#include "emulated_devices/launch/stopping.h"
#include "emulated_devices/run/from/from.h"
#include "emulated_devices/run/run.h"
#include "emulated_devices/weather/saved.h"
#include "ref/io/yaml.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum error_code fail_no_files(const char *flag, struct error *err)
{
    return fail(err, ERR_FILE, "%s: a page in a browser reads no files: run the command in a terminal", flag);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

enum error_code train_data_vocabulary(const char *tokenizer, int32_t *vocabulary, struct error *err)
{
    *vocabulary = 0;
    return tokenizer ? fail_no_files("--tokenizer", err) : OK;
}

enum error_code train_data_lengths(struct packing *packing, const struct train_data_source *source, struct error *err)
{
    *packing = (struct packing){ 0 };
    return source->pack ? fail_no_files("--pack", err) : OK;
}

int64_t train_data_position(const struct train_data *data, int64_t step) { return (void)data, step; }

struct data_facts train_data_facts(const struct train_data *data) { return (void)data, (struct data_facts){ "", "" }; }

enum error_code train_take_golden(struct train_options *options, bool chosen, struct error *err)
{
    (void)options, (void)chosen;
    return fail_no_files("--check", err);
}

enum error_code from_expand(struct from **from, int argc, char *const argv[], struct error *err)
{
    *from = NULL;
    for (int i = 0; i < argc; i++)
        if (strncmp(argv[i], "--from", 6) == 0 && (argv[i][6] == '\0' || argv[i][6] == '='))
            return fail_no_files("--from", err);
    return OK;
}

/* Folders of weather models. */
enum error_code weather_saved_open(struct weather_saved *saved, const char *dir, struct error *err)
{
    *saved = (struct weather_saved){ 0 };
    return fail_no_files(dir, err);
}

void weather_saved_close(struct weather_saved *saved) { (void)saved; }

enum error_code weather_saved_check(const struct weather_saved *saved, const struct weather_job *job, const char *dir,
                                    struct error *err)
{
    (void)saved, (void)job;
    return fail_no_files(dir, err);
}

enum error_code weather_saved_read(const struct weather_saved *saved, struct weather_learner *learner,
                                   struct error *err)
{
    (void)saved, (void)learner;
    return fail_no_files("--resume", err);
}

enum error_code weather_saved_whole(const struct weather_saved *saved, const struct weather_learner *learner,
                                    int state, double *out, struct error *err)
{
    (void)saved, (void)learner, (void)state, (void)out;
    return fail_no_files("--resume", err);
}

enum error_code weather_save(struct weather_learner *learner, const char *dir, struct error *err)
{
    (void)learner;
    return fail_no_files(dir, err);
}

enum error_code weather_save_probe(const char *dir, struct error *err) { return fail_no_files(dir, err); }

/* --plan FILE says its name before this. */
enum error_code yml_read(const char *path, struct yaml **root, struct error *err)
{
    *root = NULL;
    return fail_no_files(path, err);
}

void from_free(struct from *from) { (void)from; }
void from_print(FILE *to, const struct from *from) { (void)to, (void)from; }
cJSON *from_json(const struct from *from) { return (void)from, NULL; }

/* A page writes no page. */
const char *const page_texts[] = { NULL };

/* ---- the settings of a run, as its report has them: "key: text" in each line, from settings_print ---------------- */

/* A character of a text in double quotes, as yml_print_text writes them. */
static const char *settings_unquote(const char *at, char **to)
{
    if (*at != '\\') return *(*to)++ = *at, at + 1;
    if (at[1] != 'x' && at[1] != 'u') return *(*to)++ = at[1], at + 2;
    const int digits = at[1] == 'x' ? 2 : 4;
    char hex[5] = "";
    memcpy(hex, at + 2, (size_t)digits);
    const unsigned code = (unsigned)strtoul(hex, NULL, 16);
    if (code < 0x80) *(*to)++ = (char)code;
    else if (code < 0x800) *(*to)++ = (char)(0xC0 | code >> 6), *(*to)++ = (char)(0x80 | (code & 63));
    else *(*to)++ = (char)(0xE0 | code >> 12), *(*to)++ = (char)(0x80 | (code >> 6 & 63)),
         *(*to)++ = (char)(0x80 | (code & 63));
    return at + 2 + digits;
}

static struct yaml *settings_line(const char *line, size_t length)
{
    const char *const colon = memchr(line, ':', length), *const end = line + length;
    struct yaml *const y = colon && end - colon > 2 ? calloc(1, sizeof *y) : NULL;
    if (y == NULL) return NULL;
    const bool quoted = colon[2] == '"';
    y->key = strndup(line, (size_t)(colon - line));
    char *to = y->text = calloc(1, (size_t)(end - colon));
    for (const char *at = colon + 2 + quoted; to && at < end - quoted;) {
        if (quoted) at = settings_unquote(at, &to);
        else *to++ = *at++;
    }
    return y;
}

enum error_code yml_parse(const char *text, size_t length, const char *where, struct yaml **root, struct error *err)
{
    struct yaml **next = NULL;
    *root = calloc(1, sizeof **root);
    if (*root == NULL) return fail(err, ERR_MEMORY, "%s: no memory for its settings", where);
    (*root)->kind = YAML_MAPPING;
    next = &(*root)->child;
    for (const char *line = text, *end; line < text + length; line = end + 1) {
        end = memchr(line, '\n', (size_t)(text + length - line));
        if (end == NULL) end = text + length;
        *next = settings_line(line, (size_t)(end - line));
        if (*next) next = &(*next)->next;
    }
    return OK;
}

/* ---- processes and signals --------------------------------------------------------------------------------------- */

int launcher_rank(void) { return 0; }
bool on_terminal(void) { return false; }
double wait_limit(double usual) { return usual; }
void set_wait_limit(double seconds) { (void)seconds; }
enum error_code set_backend(const char *name, struct error *err) { return (void)name, (void)err, OK; }

int stopping_asked(void) { return 0; }
void stopping_listen(bool speaks) { (void)speaks; }
const char *stopping_name(int signal) { return (void)signal, ""; }

/* ---- LAPACK: only devices with numbers ask for singular vectors -------------------------------------------------- */

void dsyevd_(const char *jobz, const char *uplo, const int *n, double *a, const int *lda, double *w, double *work,
             const int *lwork, int *iwork, const int *liwork, int *info);
void dsyevd_(const char *jobz, const char *uplo, const int *n, double *a, const int *lda, double *w, double *work,
             const int *lwork, int *iwork, const int *liwork, int *info)
{
    (void)jobz, (void)uplo, (void)n, (void)a, (void)lda, (void)w, (void)work, (void)lwork, (void)iwork, (void)liwork;
    *info = -1;                         /* GaLore reports that as an error */
}
