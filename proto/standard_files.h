/* standard_files.h: descriptors 0, 1 and 2 of a program. */
#ifndef PS_STANDARD_FILES_H
#define PS_STANDARD_FILES_H

/* Opens /dev/null in place of each that is closed: else a socket or a file would get its number, what is
 * printed would go there, and libuv aborts when it closes one. First call of main. */
void ps_standard_files_open(void);

#endif
