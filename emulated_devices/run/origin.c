/* origin.c -- writes where a result comes from, as JSON or as YAML text.  run/report/report_json.c and
 * run/log.c add JSON, run/between.c writes text into checkpoints.  origin_add_json returns false without memory.
 * origin_text returns NULL then, and writes ERR_MEMORY. */
#include "emulated_devices/run/origin.h"
#include "ref/io/settings.h"
#include "emulated_devices/run/run.h"
#include "ref/machine/cores.h"
#include "ref/machine/system.h"
#include "ref/version.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

static char run_name[16];

/* By chance: counted numbers would need a place that all machines know.  Where the system has no chance to give, the
 * process and its time tell runs apart. */
void origin_name_run(void)
{
    uint32_t drawn = 0;
    FILE *f = run_name[0] ? NULL : fopen("/dev/urandom", "rb");
    if (run_name[0]) return;
    if (f == NULL || fread(&drawn, sizeof drawn, 1, f) != 1)
        drawn = (uint32_t)getpid() * 2654435761u ^ (uint32_t)time(NULL);
    if (f != NULL) fclose(f);
    snprintf(run_name, sizeof run_name, "%08x", (unsigned)drawn);
}

const char *origin_run(void) { return run_name[0] ? run_name : NULL; }

/* The machine of rank 0; its processor is the architecture where the system does not tell. */
struct machine { char host[256], system[256], processor[128]; long cores; };

static struct machine this_machine(void)
{
    struct machine m = { .cores = cores_usable() };
    struct utsname u;
    if (uname(&u) != 0) return m;
    snprintf(m.host, sizeof m.host, "%s", u.nodename);
    snprintf(m.system, sizeof m.system, "%.80s %.160s", u.sysname, u.release);
    if (!system_processor(m.processor, sizeof m.processor))
        snprintf(m.processor, sizeof m.processor, "%.100s", u.machine);
    return m;
}

static bool add_settings(cJSON *root, const char *text)
{
    struct yaml *y;
    cJSON *list = cJSON_AddObjectToObject(root, "settings");
    if (yml_parse(text, strlen(text), "settings", &y, NULL)) return false;
    bool ok = list != NULL;
    for (const struct yaml *s = y->child; s && ok; s = s->next) ok = cJSON_AddStringToObject(list, s->key, s->text);
    yml_free(y);
    return ok;
}

bool origin_add_json(cJSON *root, const struct train_options *options)
{
    const struct machine m = this_machine();
    char seed[24];
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)options->plan.seed);
    cJSON *by = cJSON_AddObjectToObject(root, "written_by"), *words = cJSON_CreateArray();
    bool ok = by && words && (origin_run() == NULL || cJSON_AddStringToObject(by, "run", origin_run())) &&
              cJSON_AddStringToObject(by, "version", ORRERY_VERSION) &&
              cJSON_AddItemToObject(by, "command", words) &&
              cJSON_AddItemToArray(words, cJSON_CreateString("orrery")) &&
              cJSON_AddItemToArray(words, cJSON_CreateString(options->command));
    for (int i = 0; i < options->argc && ok; i++)
        ok = cJSON_AddItemToArray(words, cJSON_CreateString(options->argv[i]));
    return ok && cJSON_AddStringToObject(by, "model", options->plan.model.name) &&
           cJSON_AddStringToObject(by, "seed", seed) && cJSON_AddStringToObject(by, "host", m.host) &&
           cJSON_AddStringToObject(by, "system", m.system) && cJSON_AddStringToObject(by, "processor", m.processor) &&
           cJSON_AddNumberToObject(by, "cores", (double)m.cores) && add_settings(root, options->settings);
}

static void print_line(FILE *to, const char *key, const char *text)
{
    fprintf(to, "  %s: ", key);
    yml_print_text(to, text);
    fputc('\n', to);
}

static void print_origin(FILE *to, const struct train_options *options)
{
    const struct machine m = this_machine();
    fprintf(to, "# Settings of a run: orrery %s --config FILE repeats it.\n%s:\n", options->command,
            SETTINGS_WRITTEN_BY);
    if (origin_run() != NULL) print_line(to, "run", origin_run());
    print_line(to, "version", ORRERY_VERSION);
    fprintf(to, "  command: [orrery, %s", options->command);
    for (int i = 0; i < options->argc; i++) {
        fputs(", ", to);
        yml_print_text(to, options->argv[i]);
    }
    fprintf(to, "]\n");
    print_line(to, "model", options->plan.model.name);
    fprintf(to, "  seed: %llu\n", (unsigned long long)options->plan.seed);
    print_line(to, "host", m.host);
    print_line(to, "system", m.system);
    print_line(to, "processor", m.processor);
    fprintf(to, "  cores: %ld\n%s", m.cores, options->settings);
}

char *origin_text(const struct train_options *options, struct error *err)
{
    char *text = NULL;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);
    if (f) print_origin(f, options);
    if (f && fclose(f) == 0) return text;
    free(text);
    fail(err, ERR_MEMORY, "no memory for the settings of this run");
    return NULL;
}
