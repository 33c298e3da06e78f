# make_texts.sh LANGUAGE N: the first N of Debian's fortunes in that language, parts between lines of a single "%", as JSON
# objects {"text": …}, a line each.
dpkg -L "fortunes-$1" | grep -E '/fortunes/[^.]*$' | while read -r file; do
    [ ! -f "$file" ] || cat "$file" && echo %
done | awk -v at_most="$2" '
    /^%%?$/ {
        if (text ~ /\\/) text = ""
        gsub(/^[ \t\n]+|[ \t\n]+$/, "", text)
        gsub(/"/, "\\\"", text)
        gsub(/\t/, "\\t", text)
        gsub(/\n/, "\\n", text)
        if (text != "" && text !~ /[\001-\037]/ && count++ < at_most) print "{\"text\": \"" text "\"}"
        text = ""
        next
    }
    {text = text $0 "\n"}'
