/* trees.c -- the teacher's folder, and the lessons as students' programs have them.  cli/teacher/course.c calls these
 * functions.  ERR_FILE means that a folder or file cannot be written, ERR_MEMORY that there is no memory for a text. */
#include "emulated_devices/course/teacher/teacher.h"
#include "emulated_devices/course/annotated.h"
#include "emulated_devices/course/compile/build.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum error_code write_skeleton(const char *folder, const struct lesson *lesson, const char *name,
                                      struct error *err)
{
    char inside[PATH_MAX];
    path_of(inside, sizeof inside, lesson->folder, name);
    char *text = tutorial_text(inside, err), *left = text ? annotated_strip(text, err) : NULL;
    enum error_code e = left ? tree_write_file(folder, inside, left, err) : err->code;
    free(text), free(left);
    return e;
}

enum error_code write_skeletons(const char *folder, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; lessons[i] && !e; i++) {
        const char *names[LESSON_GIVEN + 3];
        int n = lesson_files(lessons[i], false, names);
        for (int k = 0; k < n && !e; k++) e = write_skeleton(folder, lessons[i], names[k], err);
        n = lesson_in_python(lessons[i]) ? lesson_files(lessons[i], true, names) : 0;
        for (int k = 1; k < n && !e; k++) e = write_skeleton(folder, lessons[i], names[k], err);
    }
    return e;
}

static enum error_code write_mutants(const char *folder, const struct lesson *lesson, bool python, uint64_t variant,
                                     struct error *err)
{
    char inside[PATH_MAX];
    snprintf(inside, sizeof inside, "mutants/%s%s.txt", lesson->folder, python ? "_python" : "");
    char *text = lesson_text(lesson, python ? "mutants_python.txt" : "mutants.txt", true, variant, err);
    enum error_code e = text ? tree_write_file(folder, inside, text, err) : err->code;
    free(text);
    return e;
}

/* Every check with its points and hints. */
static enum error_code write_rubric(const char *folder, struct error *err)
{
    char *text = NULL;
    size_t size;
    int sum = 0;
    FILE *f = open_memstream(&text, &size);
    if (f == NULL) return fail(err, ERR_MEMORY, "no memory for rubric.md");
    fprintf(f, "# Points\n\nThe first check of a part is its gate: if it fails, the others of the part have no "
            "points.\n");
    for (int i = 0; lessons[i]; i++) {
        const struct lesson *l = lessons[i];
        sum += lesson_points(l);
        fprintf(f, "\n## %02d %s: %d points\n\n| part | check | points | holds | hints |\n|---|---|---|---|---|\n",
                lesson_number(l), l->title, lesson_points(l));
        for (const struct check *c = l->check; c->run; c++) {
            fprintf(f, "| %d | %s | %d | %s |", c->part, c->name, c->points, c->title);
            for (int h = 0; h < CHECK_HINTS && c->hint[h]; h++) {
                fprintf(f, " %d. ", h + 1);
                for (const char *at = c->hint[h]; *at; at++) fprintf(f, "%s%c", *at == '|' ? "\\" : "", *at);
            }
            fprintf(f, " |\n");
        }
    }
    fprintf(f, "\nAll lessons: %d points.\n", sum);
    enum error_code e = fclose(f) == 0 ? OK : fail(err, ERR_MEMORY, "no memory for rubric.md");
    if (!e) e = tree_write_file(folder, "rubric.md", text, err);
    free(text);
    return e;
}

/* 32 hexadecimal digits from the system. */
static enum error_code write_secret(const char *folder, struct error *err)
{
    unsigned char bytes[16];
    char text[40];
    FILE *f = fopen("/dev/urandom", "rb");
    const bool well = f && fread(bytes, sizeof bytes, 1, f) == 1;
    if (f) fclose(f);
    if (!well) return fail(err, ERR_FILE, "/dev/urandom cannot be read");
    for (int i = 0; i < 16; i++) snprintf(text + 2 * i, 3, "%02x", (unsigned)bytes[i]);
    strcpy(text + 32, "\n");
    return tree_write_file(folder, "secret", text, err);
}

enum error_code write_teacher_tree(const char *folder, uint64_t variant, struct error *err)
{
    char inside[PATH_MAX];
    enum error_code e = tree_make_folder(folder, "", err);
    if (!e) e = tree_make_folder(folder, "solutions", err);
    if (!e) e = tree_make_folder(folder, "mutants", err);
    path_of(inside, sizeof inside, folder, "solutions");
    for (int i = 0; lessons[i] && !e; i++) e = tree_write_lesson(inside, lessons[i], false, true, variant, err);
    if (!e) e = tree_make_folder(folder, "solutions/python", err);
    path_of(inside, sizeof inside, folder, "solutions/python");
    for (int i = 0; lessons[i] && !e; i++) {
        const bool has = lesson_in_python(lessons[i]);
        if (has) e = tree_write_lesson(inside, lessons[i], true, true, variant, err);
        if (!e) e = write_mutants(folder, lessons[i], false, variant, err);
        if (!e && has) e = write_mutants(folder, lessons[i], true, variant, err);
    }
    if (!e) e = write_rubric(folder, err);
    if (!e) e = write_notebooks(folder, variant, err);
    if (!e) e = write_secret(folder, err);
    if (!e) e = tree_copy_text(folder, "teacher/README.md", "README.md", err);
    if (!e) e = tree_copy_text(folder, "teacher/classroom.yml", "classroom.yml", err);
    return e ? e : tree_write_mark(folder, false, variant, err);
}
