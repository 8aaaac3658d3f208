/* notebook.c -- a notebook for each lesson, as nbgrader wants it: a cell with the file to complete, and a cell for each
 * part whose points `orrery grade` says.  trees.c calls write_notebooks.  ERR_FILE means that a notebook cannot be
 * written, ERR_MEMORY that there is no memory for it. */
#include "emulated_devices/course/teacher/teacher.h"
#include "ref/io/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* This Python asks for the points of some checks.  The last line of a cell is what nbgrader takes as its points. */
static const char grader[] =
    "import json, os, subprocess\n"
    "\n"
    "def points(*checks):\n"
    "    \"\"\"The points of these checks of %s, after a run of the grader.\"\"\"\n"
    "    words = ['orrery', 'grade', '%s', '--lessons', '%d', '--variant', '%llu', '--quiet',\n"
    "             '--json', 'results.json']\n"
    "    if os.environ.get('ORRERY_SECRET'):\n"
    "        words += ['--secret', os.environ['ORRERY_SECRET']]\n"
    "    run = subprocess.run(words, capture_output=True, text=True)\n"
    "    if run.returncode not in (0, 3):\n"
    "        raise RuntimeError(run.stderr)\n"
    "    with open('results.json') as file:\n"
    "        tests = [t for t in json.load(file)['tests'] if t.get('max_score') and t['tags'][1] in checks]\n"
    "    for test in tests:\n"
    "        print(test['score'], 'of', test['max_score'], test['name'])\n"
    "        if test['status'] != 'passed':\n"
    "            print(test['output'])\n"
    "    return sum(test['score'] for test in tests)\n";

/* Add a cell.  @param id  nbgrader's name of a locked cell; NULL: a cell that students may change. */
static void add_cell(cJSON *cells, const char *kind, const char *text, const char *id, int points)
{
    cJSON *cell = json_row(cells);
    json_add(cell, "cell_type %s source %s", kind, text);
    cJSON *metadata = cJSON_AddObjectToObject(cell, "metadata");
    if (strcmp(kind, "code") == 0) {
        cJSON_AddNullToObject(cell, "execution_count");
        cJSON_AddArrayToObject(cell, "outputs");
    }
    if (id == NULL) return;
    cJSON *nbgrader = cJSON_AddObjectToObject(metadata, "nbgrader");
    json_add(nbgrader, "grade %hhd grade_id %s locked %hhd schema_version %d solution %hhd task %hhd cell_type %s",
             points > 0, id, true, 3, false, false, kind);
    if (points > 0) json_add(nbgrader, "points %d", points);
}

/* Add the cell of a part: its checks by name, and the sum of their points. */
static void add_part(cJSON *cells, const struct lesson *lesson, int part)
{
    char text[1200] = "points(", id[80];
    int points = 0;
    for (const struct check *c = lesson->check; c->run; c++) {
        const size_t n = strlen(text);
        if (c->part != part) continue;
        snprintf(text + n, sizeof text - n, "%s'%s'", points ? ", " : "", c->name);
        points += c->points;
    }
    if (points == 0) return;
    strncat(text, ")", sizeof text - strlen(text) - 1);
    snprintf(id, sizeof id, "%s-part-%d", lesson->folder, part);
    add_cell(cells, "code", text, id, points);
}

static cJSON *notebook_of(const struct lesson *lesson, const char *skeleton, uint64_t variant)
{
    cJSON *root = cJSON_CreateObject(), *cells = cJSON_AddArrayToObject(root, "cells");
    char text[sizeof grader + 300], id[80], *file = malloc(strlen(skeleton) + strlen(lesson->file) + 40);
    int parts = 0;
    for (const struct check *c = lesson->check; c->run; c++) parts = c->part > parts ? c->part : parts;
    snprintf(text, sizeof text, "# %02d %s\n\nRead `%s/README.md` first.  The next cell writes `%s`: complete it, and "
             "run all cells.", lesson_number(lesson), lesson->title, lesson->folder, lesson->file);
    add_cell(cells, "markdown", text, NULL, 0);
    if (file) sprintf(file, "%%%%writefile %s\n%s", lesson->file, skeleton);
    add_cell(cells, "code", file ? file : "", NULL, 0);
    free(file);
    snprintf(text, sizeof text, grader, lesson->folder, lesson->file, lesson_number(lesson),
             (unsigned long long)variant);
    snprintf(id, sizeof id, "%s-grader", lesson->folder);
    add_cell(cells, "code", text, id, 0);
    for (int part = 1; part <= parts; part++) add_part(cells, lesson, part);
    cJSON *metadata = cJSON_AddObjectToObject(root, "metadata");
    json_add(cJSON_AddObjectToObject(metadata, "kernelspec"), "display_name %s language %s name %s", "Python 3",
             "python", "python3");
    json_add(cJSON_AddObjectToObject(metadata, "language_info"), "name %s", "python");
    return json_add(root, "nbformat %d nbformat_minor %d", 4, 4);
}

enum error_code write_notebooks(const char *folder, uint64_t variant, struct error *err)
{
    enum error_code e = tree_make_folder(folder, "notebooks", err);
    for (int i = 0; lessons[i] && !e; i++) {
        char inside[120];
        char *skeleton = lesson_text(lessons[i], lessons[i]->file, false, variant, err);
        if (skeleton == NULL) return err->code;
        cJSON *root = notebook_of(lessons[i], skeleton, variant);
        char *text = json_text(root, true);
        snprintf(inside, sizeof inside, "notebooks/%s.ipynb", lessons[i]->folder);
        e = text ? tree_write_file(folder, inside, text, err) : fail(err, ERR_MEMORY, "no memory for a notebook");
        cJSON_free(text), cJSON_Delete(root), free(skeleton);
    }
    return e;
}
