/* installed.c -- finds a golden file by its name: as the name stands, or in the folder of an installed program.
 * check.c and cli/golden/golden.c call golden_path().  No function returns an error code. */
#include "emulated_devices/cli/installed.h"
#include "ref/machine/system.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *golden_path(const char *path, char *room, size_t size)
{
    char self[PATH_MAX];
    static const char folder[] = "golden/";
    system_program(self, sizeof self);
    char *slash = strrchr(self, '/');
    if (access(path, R_OK) == 0 || slash == NULL) return path;
    *slash = '\0';
    const size_t skip = strncmp(path, folder, sizeof folder - 1) == 0 ? sizeof folder - 1 : 0;
    const char *const inside = strcmp(path, "golden") == 0 ? "" : path + skip;
    static const char *const ending[] = { "", ".safetensors" };
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++)
        if (snprintf(room, size, "%s/../share/orrery/golden/%s%s", self, inside, ending[i]) < (int)size &&
            access(room, R_OK) == 0)
            return room;
    return path;
}
