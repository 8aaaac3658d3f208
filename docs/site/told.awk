# told.awk -- how many fields of structs have a text, in Doxygen's XML.  Usage: awk -f docs/site/told.awk build/docs/xml/struct*.xml
/<memberdef kind="variable"/ { is_field = 1; text = "" }
is_field && /<(brief|detailed)description>/ { inside = 1 }
is_field && inside { s = $0; gsub(/<[^>]*>/, "", s); gsub(/[ \t]/, "", s); text = text s }
/<\/(brief|detailed)description>/ { inside = 0 }
/<\/memberdef>/ { if (is_field) { fields++; told += text != "" }; is_field = 0 }
END { print told + 0, fields + 0 }
