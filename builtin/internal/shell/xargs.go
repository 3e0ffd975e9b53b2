package shell

import (
	"slices"
	"strings"
)

// xargsCommand returns the command that xargs runs: rest with the words that xargs appends, or with -I inserts in place
// of a mark such as {}. These words are unknown, so that "ls | xargs rm" is judged as "rm <anything>".
func (w *walker) xargsCommand(p *parsed, rest []arg) []arg {
	out, from := slices.Clone(rest), w.in.input
	if v, ok := p.value("-d"); ok && v.text != `\n` || p.has("-a", "--arg-file", "--delimiter") {
		from = anywhere // parts of lines, or lines of a file
	} else if p.has("-0", "--null") && from >= firstOrigin {
		from = w.origin(origin{args: []arg{{text: hole, from: from}}, whole: true})
	}
	var marks []arg
	for _, o := range p.given {
		switch o.name {
		case "-I", "-J":
			marks = append(marks, o.value)
		case "-i", "--replace":
			if o.value.text == "" {
				o.value = literal("{}")
			}
			marks = append(marks, o.value)
		}
	}
	// In some versions -L, -l or -n after -I turns off the insertion.
	if !slices.ContainsFunc(marks, func(mark arg) bool { return mark.text != "" }) || p.has("-J", "-L", "-l", "-n", "--max-lines", "--max-args") {
		noDash := (w.inputClass() >= names || p.has("-0", "--null") && findsBelow(w.in.fed)) && !p.has("-d", "--delimiter", "-E", "-e", "--eof", "-a", "--arg-file")
		out = append(out, arg{text: hole, raw: "…", from: from, noDash: noDash})
	}
	// -J inserts several words. With an unknown mark, or more than two, any word may be replaced.
	if p.has("-J") || len(marks) > 2 || slices.ContainsFunc(marks, func(mark arg) bool { return !mark.known }) {
		for i := range out {
			out[i] = arg{text: hole, raw: out[i].raw, from: anywhere}
		}
		return out
	}
	for _, mark := range marks {
		for i, a := range out {
			if mark.text == "" || !strings.Contains(a.text, mark.text) {
				continue
			}
			text := strings.ReplaceAll(a.text, mark.text, hole)
			out[i] = arg{text: text, raw: a.raw, field: true, noDash: text[0] != hole[0] && text[0] != '-'}
			if strings.Contains(a.text, hole) { // which hole is the first one is unknown
				from = anywhere
			}
			out[i].mark(from)
		}
	}
	return out
}
