/* error_memory.h -- which memory was full, for the line of an error.  device/cuda/memory.c calls
 * error_names_memory(), and ref/error.c adds the text to a line.  No function returns an error code. */
#ifndef ORRERY_ERROR_MEMORY_H
#define ORRERY_ERROR_MEMORY_H

/**
 * Say which memory was full, where it is not the host's: the next line of ERR_MEMORY names it at its end, once.
 * @param what  such as "GPU 0, NVIDIA H200: 12K of 139.8G free"; copied.
 */
void error_names_memory(const char *what);

#endif
