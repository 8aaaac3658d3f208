/* sanitizers.c -- linked into sanitizer builds only.
 *
 * MPICH unloads its communication modules when it finishes; LeakSanitizer then reports what they still held as leaks of
 * "<unknown module>", which no suppression can name.  Keeping them loaded leaves a report about our own code alone.
 */
int dlclose(void *handle);

int dlclose(void *handle)
{
    (void)handle;
    return 0;
}
