package shell

import (
	"strings"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// kubeArgs raises an alarm for secrets.
func kubeArgs(w *walker, c *command, p *parsed) string {
	// An address may be spelled with percent signs.
	if v, ok := p.value("--raw"); ok && (!v.known || strings.Contains(v.text, "%") || strings.Contains(strings.ToLower(v.text), "secret")) {
		w.alarm(Credentials, c.String()+": it shows secrets of the cluster")
	}
	for _, o := range []string{"-o", "--output"} {
		v, _ := p.value(o)
		if format, name, ok := strings.Cut(strings.TrimPrefix(v.text, "="), "="); ok && strings.HasSuffix(format, "-file") {
			file := v
			file.text = name
			p.ops = append(p.ops, roleArg{arg: file, kind: 'r', opt: true}) // errors show the template
		}
	}
	for _, op := range p.ops {
		if op.opt && strings.Contains(op.text, "://") {
			return op.raw + " is on another machine"
		}
	}
	for _, op := range p.ops {
		for name := range strings.SplitSeq(op.text, ",") {
			if i := strings.IndexAny(name, "/."); i >= 0 { // such as secrets.v1.
				name = name[:i]
			}
			name = strings.ToLower(name)
			if (name == "secret" || name == "secrets") && (p.has("-o", "--output") || p.has("--template")) {
				w.alarm(Credentials, c.String()+": it shows secrets of the cluster")
				return ""
			}
		}
	}
	return ""
}

// envFileArgs records that the values of .env are shown, unless only names are.
func envFileArgs(_ *walker, _ *command, p *parsed) string {
	if !p.has("--services", "--volumes", "--images", "--profiles", "-q", "--quiet", "--hash") {
		p.ops = append(p.ops, roleArg{arg: anything("…"), kind: 'r', opt: true})
	}
	return ""
}

// noSecretArgs refuses names of settings that contain a secret.
func noSecretArgs(_ *walker, _ *command, p *parsed) string {
	for _, op := range p.ops {
		name := op.text[strings.LastIndexAny(op.text, ":/.")+1:]
		if !op.known || pathrule.SecretVariable(strings.TrimPrefix(name, "_")) || pathrule.SecretVariable(name) {
			return op.raw + " may hold credentials"
		}
	}
	return ""
}
