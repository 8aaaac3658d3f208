/* version.h -- the version of this program, of its JSON and of what is installed.  Files of cli/, run/, draw/ and
 * library/ include this file, and so does ref/io/document.c; the Makefile reads the version. */
#ifndef ORRERY_VERSION_H
#define ORRERY_VERSION_H

#define ORRERY_VERSION "0.1"
#define ORRERY_DATE "2026-11-26"        /* of this version, for the man page */

/** The version of the JSON reports: it grows when a field changes its meaning or goes.  New fields do not change it. */
enum { JSON_SCHEMA = 2 };

#endif
