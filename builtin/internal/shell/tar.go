package shell

import (
	"path"
	"slices"
	"strings"
)

// tarArgs accepts commands that list an archive or show its files, also with letters without a dash.
func tarArgs(_ *walker, c *command, p *parsed) string {
	args := c.args[1:]
	if len(args) == 0 || !args[0].known {
		return "the operation is not literal"
	}
	bundle := strings.TrimPrefix(args[0].text, "-")
	lists := strings.Contains(bundle, "t") && !strings.ContainsAny(bundle, "xO")
	shows := strings.Contains(bundle, "x") && strings.Contains(bundle, "O") && !strings.Contains(bundle, "t")
	if strings.HasPrefix(args[0].text, "--") || strings.Trim(bundle, "txvfzjJaOp") != "" || !lists && !shows ||
		strings.Count(bundle, "f") > 1 || strings.Contains(bundle, "f") && !strings.HasSuffix(bundle, "f") {
		return "the operation is not a plain listing"
	}
	for i, a := range args[1:] {
		if a.option() {
			return "option " + a.raw + " is not known to be read-only"
		}
		if i == 0 && strings.Contains(bundle, "f") {
			if !a.known || strings.Contains(a.text, ":") {
				return "the archive may be on another machine"
			}
			p.ops = append(p.ops, roleArg{arg: a, kind: 'r'})
		} else if shows { // the files of the archive that are shown
			p.ops = append(p.ops, roleArg{arg: a, kind: 'r'})
		}
	}
	return ""
}

// archiveArgs rejects archives that tar fetches through a remote shell.
func archiveArgs(_ *walker, _ *command, p *parsed) string {
	for _, o := range p.given { // tar begins with the first of several archives
		if (o.name == "-f" || o.name == "--file") && (!o.value.known || strings.Contains(o.value.text, ":")) {
			return "the archive may be on another machine"
		}
	}
	return ""
}

// untarArgs finds the archive that tar reads or writes, and the files that tar extracts from it or adds to it.
func untarArgs(_ *walker, c *command, p *parsed) string {
	first := ""
	if len(c.args) > 1 {
		first = c.args[1].text
	}
	file, _ := p.value("-f")
	if v, ok := p.value("--file"); ok {
		file = v
	}
	operands := slices.DeleteFunc(slices.Clone(p.ops), func(op roleArg) bool { return op.ofOption })
	p.ops = slices.DeleteFunc(p.ops, func(op roleArg) bool { return !op.ofOption })
	// In the old syntax, letters without a dash, the values of the letters follow in order.
	if first != "" && first[0] != '-' && len(operands) > 0 {
		operands = operands[1:]
		for i := 0; i < len(first) && len(operands) > 0; i++ {
			if strings.IndexByte("fbCTXgKVNLHIF", first[i]) < 0 { // a letter without a value
				continue
			}
			switch first[i] {
			case 'f':
				file = operands[0].arg
			case 'C', 'I', 'F': // I and F name programs
				name := letters[first[i]]
				p.addOption(name, p.spec.options[name], operands[0].arg)
			}
			operands = operands[1:]
		}
	}
	archive, member := byte('w'), byte('r')
	oldSyntax := first != "" && first[0] != '-'
	if oldSyntax && strings.Contains(first, "x") || p.has("-x", "--extract", "--get") {
		archive, member = 'r', 'w'
	}
	for _, op := range operands {
		p.ops = append(p.ops, roleArg{arg: op.arg, kind: member})
		for _, o := range p.given {
			if (o.name == "-C" || o.name == "--directory") && !path.IsAbs(op.text) {
				inside := below(o.value, op.arg)
				inside.known = o.value.known && op.known
				p.ops = append(p.ops, roleArg{arg: inside, kind: member})
			}
		}
	}
	if file.present() {
		p.ops = append(p.ops, roleArg{arg: file, kind: archive})
	}
	return ""
}
