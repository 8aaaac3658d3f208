/* installed.h -- what an installed program finds in PREFIX/share/orrery, wherever that is now.  check.c and
 * cli/golden/golden.c call these functions.  No function returns an error code. */
#ifndef ORRERY_CLI_INSTALLED_H
#define ORRERY_CLI_INSTALLED_H

#include <stddef.h>

/**
 * A path of the source tree's folder golden/, which is where it says, or else in the share/orrery of this program; also
 * the name of a golden file alone: "gpt2-tied".
 * @param path       "golden", "golden/published", "golden/gpt2-tied.safetensors", "gpt2-tied".
 * @param[out] room  for the installed one.
 * @return path if it is there, or nothing installed has that name.
 */
const char *golden_path(const char *path, char *room, size_t size);

#endif
