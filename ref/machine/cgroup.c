/* cgroup.c -- finds the folder of this process's control group, and walks up from it.
 *
 * cores.c and launch/ call this file.  Functions return false where there is no such group; nothing is an error.
 */
#include "ref/machine/cgroup.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether a list with commas between has a word: "cpu" is in "rw,cpu,cpuacct". */
static bool list_has(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = list; at != NULL; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, word, n) == 0 && (at[n] == ',' || at[n] == '\0')) return true;
    return false;
}

/* A file of /proc below the root. */
static FILE *open_proc(const char *root, const char *name)
{
    char path[CGROUP_PATH];
    const int n = snprintf(path, sizeof path, "%s/proc/self/%s", root, name);
    return n < (int)sizeof path ? fopen(path, "r") : NULL;
}

/* The tree's line in mountinfo: where it is mounted, and which of its groups is the top there. */
static bool find_mount(const char *root, const char *controller, char top[CGROUP_PATH], char at[CGROUP_PATH])
{
    char *line = NULL, type[32], options[512];
    size_t room = 0;
    bool found = false;
    FILE *f = open_proc(root, "mountinfo");
    while (f != NULL && !found && getline(&line, &room, f) >= 0) {
        const char *kind = strstr(line, " - ");         /* after fields whose number varies */
        if (kind == NULL || sscanf(kind, " - %31s %*s %511s", type, options) != 2) continue;
        if (sscanf(line, "%*d %*d %*s %2047s %2047s", top, at) != 2) continue;
        found = controller == NULL ? strcmp(type, "cgroup2") == 0
                                   : strcmp(type, "cgroup") == 0 && list_has(options, controller);
    }
    free(line);
    if (f != NULL) fclose(f);
    return found;
}

/* The process's group in its tree, "/user.slice/a.scope".  A line is NUMBER:CONTROLLERS:PATH. */
static bool find_group(const char *root, const char *controller, char path[CGROUP_PATH])
{
    char *line = NULL;
    size_t room = 0;
    bool found = false;
    FILE *f = open_proc(root, "cgroup");
    while (f != NULL && !found && getline(&line, &room, f) >= 0) {
        char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
        if (group == NULL) continue;
        *group++ = '\0', list++;
        group[strcspn(group, "\n")] = '\0';
        found = controller == NULL ? list[0] == '\0' : list_has(list, controller);
        if (found) found = snprintf(path, CGROUP_PATH, "%s", group) < CGROUP_PATH;
    }
    free(line);
    if (f != NULL) fclose(f);
    return found;
}

/* The part of a group's path below the mounted top; "" if the group is not below it. */
static const char *path_below(const char *group, const char *top)
{
    const size_t n = strcmp(top, "/") == 0 ? 0 : strlen(top);
    if (strncmp(group, top, n) != 0 || strstr(group, "/..") != NULL) return "";
    return group[n] == '/' && group[n + 1] != '\0' ? group + n : "";
}

/* Version 2 has one tree (controller NULL); version 1 has one for each controller. */
bool cgroup_own(struct cgroup *cgroup, const char *root, const char *controller)
{
    char group[CGROUP_PATH], top[CGROUP_PATH], at[CGROUP_PATH];
    if (!find_mount(root, controller, top, at) || !find_group(root, controller, group)) return false;
    const int n = snprintf(cgroup->folder, sizeof cgroup->folder, "%s%s", root, at);
    if (n >= (int)sizeof cgroup->folder) return false;
    cgroup->top = (size_t)n;
    return snprintf(cgroup->folder + n, sizeof cgroup->folder - (size_t)n, "%s", path_below(group, top)) <
           (int)(sizeof cgroup->folder - (size_t)n);
}

/* The folder loses its last part; false at the top of what is mounted. */
bool cgroup_up(struct cgroup *cgroup)
{
    char *last = strrchr(cgroup->folder + cgroup->top, '/');
    if (last == NULL) return false;
    *last = '\0';
    return true;
}
