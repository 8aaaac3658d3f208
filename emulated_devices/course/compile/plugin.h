/* plugin.h -- --plugin FILE: compiles plug-ins, and loads them in every process of a job.  cli/main.c calls
 * load_plugins before a command. */
#ifndef ORRERY_COURSE_PLUGIN_H
#define ORRERY_COURSE_PLUGIN_H

#include "ref/error.h"
#include <limits.h>

/**
 * Load the plug-ins of the environment, then those of the words `--plugin FILE`, which are taken out.  Call before
 * anything reads a registry.  Devices that this process starts load the same ones.
 * @return OK; ERR_USAGE, ERR_FILE, ERR_FORMAT as plugin_load, or if FILE does not compile.
 */
enum error_code load_plugins(int *argc, char **argv, struct error *);

/**
 * Compile a plug-in and leave it unloaded: only processes that this one starts load it, as those of --plugin.
 * @param[out] path  of the shared object: the file itself, or a temporary file of this process.
 * @return OK; ERR_USAGE, ERR_FILE, ERR_FORMAT if it does not compile, ERR_MEMORY.
 */
enum error_code plugin_object(const char *word, char path[PATH_MAX], struct error *);

#endif
