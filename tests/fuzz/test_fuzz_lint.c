/* A text of C from anybody: it is followed for a limited time, and each finding has its line and a sentence.
 * tier: check
 */
#include "emulated_devices/course/lint/lint.h"
#include "tests/fuzz/fuzz.h"
#include <ctype.h>

static void hold(const struct lint_finding *finding, int lines)
{
    must(finding->kind[0] && finding->text[0], "a finding without a kind or a sentence");
    must(finding->line >= 0 && finding->line <= lines, "line %d of %d", finding->line, lines);
    must(finding->devices <= LINT_DEVICES, "%d devices", finding->devices);
    for (const char *at = finding->text; *at; at++) must(!iscntrl((unsigned char)*at), "it says byte %d", *at);
}

static void try(const uint8_t *data, size_t size)
{
    static struct lint_report report;
    static const int devices[] = { 2, 3 };
    struct error err = { 0 };
    int lines = 1;
    for (size_t i = 0; i < size; i++) lines += data[i] == '\n';
    if (lint_text((const char *)data, size, devices, 2, &report, &err) != OK) {
        must(err.text[0], "refused without a reason");
        return;
    }
    must(report.findings >= 0 && report.findings <= LINT_MOST && report.notes <= LINT_MOST, "too many findings");
    must(report.judged <= report.functions, "%d of %d functions judged", report.judged, report.functions);
    for (int i = 0; i < report.findings; i++) hold(&report.finding[i], lines);
    for (int i = 0; i < report.notes; i++) hold(&report.note[i], lines);
}

FUZZ_TARGET("lint")
