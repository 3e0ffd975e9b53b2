package shell

import (
	"slices"
	"strings"
)

// fedByXargs returns the command that xargs runs, rest, with the words that xargs appends, or with -I inserts. They
// are unknown, so that "ls | xargs rm" is judged as "rm <anything>".
func (w *walker) fedByXargs(p *parsed, rest []arg) []arg {
	out, from := slices.Clone(rest), w.in.input
	if v, ok := p.value("-d"); ok && v.text != `\n` || p.has("-a", "--arg-file", "--delimiter") {
		from = anywhere
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
	// In some versions a later one of these options overrides -I.
	if !slices.ContainsFunc(marks, func(mark arg) bool { return mark.text != "" }) || p.has("-J", "-L", "-l", "-n", "--max-lines", "--max-args") {
		appended := anything("…")
		appended.from = from
		if (w.inputClass() >= names || p.has("-0", "--null") && findsBelow(w.in.fed)) && !p.has("-d", "--delimiter", "-E", "-e", "--eof", "-a", "--arg-file") {
			appended.noDash = true
		}
		out = append(out, appended)
	}
	unclear := p.has("-J") || len(marks) > 2 // it is unknown which mark counts, or the mark becomes several words
	for _, mark := range marks[:min(len(marks), 3)] {
		for i, a := range out {
			switch {
			case !mark.known || unclear:
				out[i] = anything(a.raw)
				out[i].mark(from)
			case mark.text != "" && strings.Contains(a.text, mark.text):
				out[i] = arg{text: strings.ReplaceAll(a.text, mark.text, hole), raw: a.raw, field: true,
					noDash: !strings.HasPrefix(a.text, mark.text) && !strings.HasPrefix(a.text, "-") && !strings.HasPrefix(a.text, hole)}
				if strings.Contains(a.text, hole) { // the order of the holes is unknown here
					from = anywhere
				}
				out[i].mark(from)
			}
		}
	}
	return out
}
