# Between the compiler and the assembler: 256 bytes behind each variable, and behind each variable of a thread, which is what a
# shared array is.  Nothing uses them; the symbol keeps its size.  An index that is too large then meets no other array.
function close_zone() { if (open) print "\t.zero\t256"; open = 0 }
/^\t\.(zero|skip|space|byte|value|short|hword|word|long|int|quad|octa|2byte|4byte|8byte|xword|ascii|asciz|string|float|double)/ { print; next }
{ close_zone() }
/^\t\.type\t.*[@%](gnu_unique_)?object/ { split($2, part, ","); object = part[1] ~ /^\.L/ ? "" : part[1] }
# A static variable without a value.
/^\t\.local\t/ { own = $2; next }
/^\t\.comm\t/ {
    split($2, part, ",")
    if (part[1] == own) {
        printf "\t.pushsection .bss\n\t.balign %s\n\t.type\t%s, %%object\n\t.size\t%s, %s\n%s:\n\t.zero\t%s\n\t.zero\t256\n\t.popsection\n",
               part[3], own, own, part[2], own, part[2]
        own = ""
        next
    }
}
own != "" { print "\t.local\t" own; own = "" }
{ print }
object != "" && $0 == object ":" { open = 1; object = "" }
END { close_zone() }
