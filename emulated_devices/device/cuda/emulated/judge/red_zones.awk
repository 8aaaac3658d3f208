# Between the compiler and the assembler: 256 bytes behind each variable of a thread, which is what a shared array is.
# Nothing uses them; the symbol keeps its size.  An index that is too large then meets none of the other arrays.
/^\t\.section\t\.tbss|^\t\.section\t\.tdata/ { in_tls = 1; print; next }
/^\t\.(section|text|data|bss)/ { in_tls = 0 }
{ print }
in_tls && /^\t\.zero\t/ { print "\t.zero\t256" }
