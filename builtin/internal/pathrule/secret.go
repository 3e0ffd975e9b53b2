package pathrule

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/kitbag-go/kitbag/internal/lazy"
)

// Secret returns why showing the file name, or files below it, would reveal credentials, or "". It checks the name
// as written and with links resolved.
func (p Place) Secret(name string) string {
	abs, real := p.Abs(name), p.Real(name)
	if why := SecretName(abs); why != "" || abs == real {
		return why
	}
	if why := SecretName(real); why != "" {
		return why + " (through a symbolic link)"
	}
	return ""
}

// SecretLink is [Place.Secret] for an absolute path without a secret name. If the path is below the current
// directory, only links below the current directory are resolved.
func (p Place) SecretLink(abs string) string {
	if p.Cwd == "" || !Below(abs, p.Cwd) {
		return p.Secret(abs)
	}
	for at := len(p.Cwd) + 1; at <= len(abs); at++ {
		if at < len(abs) && abs[at] != '/' {
			continue
		}
		if _, err := p.Target(abs[:at]); err == nil {
			return p.Secret(abs)
		} else if os.IsNotExist(err) {
			return ""
		}
	}
	return ""
}

// brackets matches a backslash escape or a bracket expression. plainBrackets matches a bracket expression that
// [path.Match] reads like a shell, except for the "!".
var (
	brackets      = lazy.Regexp(`\\.|\[([!^]?\]|[^]\\/[]|\\.|\[[:.=][^]/]*[:.=]\]|\[)(\[[:.=][^]/]*[:.=]\]|\\.|[^]\\/])*\]|\[`)
	plainBrackets = lazy.Regexp(`^\[[!^]?((\\.|[^][\\-])(-(\\.|[^][\\-]))?)+\]$`)
)

// ShellPattern converts a pattern of the shell to one of [path.Match]. Brackets that only the shell supports,
// such as [[:alpha:]] and []a], become "?", which matches more; an unclosed bracket matches itself.
func ShellPattern(glob string) string {
	if !strings.Contains(glob, "[") {
		return glob
	}
	return brackets().ReplaceAllStringFunc(glob, func(m string) string {
		switch {
		case m == "[" || m == "[!]" || m == "[^]":
			return `\` + m
		case m[0] == '\\':
			return m
		case plainBrackets().MatchString(m):
			return strings.Replace(m, "[!", "[^", 1)
		}
		return "?"
	})
}

// maxGlob is how many names a pattern expands to at most.
const maxGlob = 4000

// Glob returns the existing names that an absolute pattern of the shell matches, sorted, at most maxGlob, and
// whether these are all matches.
func (p Place) Glob(pattern string) (matches []string, all bool) {
	all = true
	list := []string{"/"}
	pattern = ShellPattern(pattern)
	for seg := range strings.SplitSeq(strings.Trim(pattern, "/"), "/") {
		var next []string
		for _, dir := range list {
			if !strings.ContainsAny(seg, "*?[") {
				next = append(next, path.Join(dir, seg))
				continue
			}
			names, _ := p.Names(dir)
			for _, name := range names {
				switch {
				case !globMatches(seg, name):
				case len(next) < maxGlob:
					next = append(next, path.Join(dir, name))
				default:
					all = false
				}
			}
		}
		list = next
	}
	return list, all
}

// SecretBelow returns why showing everything below the directory name would reveal credentials, or "". There is a
// reason if the directory is a home directory, contains one, or directly contains a secret; hidden secrets count only
// if hidden is set. It does not search deeper.
func (p Place) SecretBelow(name string, hidden bool) string {
	real := p.Real(name)
	if real == "" {
		return ""
	}
	if why := SecretName(real); why != "" {
		return why
	}
	home := p.Home != "" && Below(p.Real(p.Home), real)
	if home || slices.Contains([]string{"/", "/etc", "/home", "/root", "/users", "/proc", "/dev", "/run", "/var/run"}, strings.ToLower(real)) || path.Dir(strings.ToLower(real)) == "/home" {
		return "credentials are below " + real
	}
	return p.SecretAmong(real, hidden, nil)
}

// SecretAmong returns why showing the files directly in dir would reveal credentials, or "". Hidden files count
// only if hidden is set. If there are patterns, only names that match one of them count, ignoring case.
func (p Place) SecretAmong(dir string, hidden bool, patterns []string) string {
	names, err := p.names(dir)
	if err != nil {
		return ""
	}
	why, secret := "", ""           // the first secret in alphabetical order
	ordinary := !SecretByPlace(dir) // then only the base name of a file that is not hidden counts
	for _, n := range names {
		if !hidden && strings.HasPrefix(n, ".") || why != "" && n > secret || !NameMatches(n, patterns) {
			continue
		}
		if ordinary && n[0] != '.' && !secretBase(strings.ToLower(n)) {
			continue
		}
		if found := SecretName(strings.TrimSuffix(dir, "/") + "/" + n); found != "" {
			why, secret = found, n
		}
	}
	return why
}

// SecretByPlace reports whether files directly in dir may be secrets because of the directory, even if they are not
// hidden.
func SecretByPlace(dir string) bool {
	dir = strings.ToLower(dir)
	if strings.Contains(dir, "/.") || strings.HasPrefix(dir, "/proc") || Below(dir, "/dev") || inOwnDir(dir) || Below(ownDir(), dir) {
		return true
	}
	for part := range strings.SplitSeq(dir, "/") {
		if secretPlaceSet()["/"+part] != nil {
			return true
		}
	}
	return false
}

// NameMatches reports whether a name matches one of the patterns; nil patterns match any name.
// Case is ignored, as in find -iname.
func NameMatches(name string, patterns []string) bool {
	return patterns == nil || slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(ShellPattern(strings.ToLower(p)), strings.ToLower(name))
		return ok || err != nil
	})
}

// SecretName is [Place.Secret] for a clean absolute path, judged by its name alone. Case is ignored.
func SecretName(abs string) string {
	lower := strings.ToLower(abs)
	base := lower[strings.LastIndexByte(lower, '/')+1:]
	if secretBase(base) || secretTail(lower, base) || inOwnDir(lower) {
		return abs + " holds credentials"
	}
	return ""
}

// inOwnDir reports whether a lower-case path is in the directory where this program keeps keys, tokens and consents.
func inOwnDir(lower string) bool {
	dir := ownDir()
	return dir != "" && Below(lower, dir)
}

var ownDir = sync.OnceValue(findOwnDir)

// findOwnDir returns this program's directory in lower case, or "" if it is not known.
func findOwnDir() string {
	base, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return strings.ToLower(path.Join(filepath.ToSlash(base), "kitbag"))
}

// copyKinds are the extensions of the names of copies.
var copyKinds = []string{".bak", ".old", ".orig", ".save", ".swp", ".swo", ".swn", ".un", ".backup", ".bk", ".copy", ".tmp", ".gz", ".xz", ".bz2", ".zst"}

// secretBase reports whether a file, or the one that it is a copy of, is a secret in any directory. Editors put a dot
// before the name of a copy, or "#" around it.
func secretBase(base string) bool {
	name := base
	for strings.HasSuffix(base, "~") || slices.Contains(copyKinds, path.Ext(base)) {
		base = base[:strings.LastIndexAny(base, ".~")]
	}
	base = strings.Trim(base, "#")
	return secretOriginal(base) || base != name && strings.HasPrefix(base, ".") && secretOriginal(base[1:])
}

func secretOriginal(base string) bool {
	if secretFileSet()[base] || dotenv(base) {
		return true
	}
	if stem, ok := strings.CutSuffix(base, ".env"); ok { // prod.env
		return !slices.Contains(envTemplates, stem)
	}
	if i := strings.LastIndexByte(base, '.'); i > 0 && slices.Contains(secretKinds, base[i:]) {
		return true
	}
	if stem, ok := strings.CutSuffix(base, ".pem"); ok {
		inStem := func(part string) bool { return strings.Contains(stem, part) }
		return slices.ContainsFunc(privatePEM, inStem) || !slices.ContainsFunc(publicPEM, inStem)
	}
	if strings.HasPrefix(base, "krb5cc_") {
		return true
	}
	if stem, ok := strings.CutSuffix(base, ".json"); ok {
		return strings.HasPrefix(stem, "client_secret") || strings.HasSuffix(stem, ".tfvars") || strings.Contains(stem, "firebase-adminsdk")
	}
	if strings.HasPrefix(base, "ssh_host_") {
		return strings.HasSuffix(base, "_key")
	}
	return slices.ContainsFunc(keyTails, func(tail string) bool { return strings.HasSuffix(base, tail) })
}

var secretFileSet = sync.OnceValue(func() map[string]bool {
	set := map[string]bool{}
	for _, name := range secretFiles {
		set[name] = true
	}
	return set
})

// secretTail reports whether a path is in a directory of secrets.
func secretTail(lower, base string) bool {
	dot := strings.Index(lower, "/.")
	switch {
	case dot >= 0:
		tree := lower[dot:]
		return hasPart(tree, secretTailSet()) || (strings.Contains(tree, "/.ssh/") || strings.HasSuffix(tree, "/.ssh")) && !publicSSH(base)
	case strings.HasPrefix(lower, "/proc/"):
		return base == "environ" || base == "mem" || base == "kcore"
	case strings.HasPrefix(lower, "/dev/"):
		device, _, _ := strings.Cut(lower[len("/dev/"):], "/")
		return !slices.Contains(readableDevices, device)
	}
	return hasPart(lower, secretPlaceSet())
}

// hasPart reports whether the clean path name, with a slash added at its end, contains one of parts.
func hasPart(name string, parts map[string][]string) bool {
	for i := 0; i < len(name); {
		end := strings.IndexByte(name[i+1:], '/') + i + 1
		if end == i {
			end = len(name)
		}
		for _, part := range parts[name[i:end]] {
			if strings.HasPrefix(name[i:]+"/", part) {
				return true
			}
		}
		i = end
	}
	return false
}

var secretTailSet, secretPlaceSet = byHead(secretTails), byHead(secretPlaces)

// byHead returns parts of a path by the text before their second slash.
func byHead(parts []string) func() map[string][]string {
	return sync.OnceValue(func() map[string][]string {
		set := map[string][]string{}
		for _, part := range parts {
			head := part[:1+strings.IndexByte(part[1:], '/')]
			set[head] = append(set[head], part)
		}
		return set
	})
}

// publicSSH reports whether a file in .ssh is public.
func publicSSH(base string) bool {
	return strings.HasSuffix(base, ".pub") || strings.HasPrefix(base, "known_hosts") || strings.HasPrefix(base, "authorized_keys") || base == "config"
}

// dotenv reports whether base is a file of settings and secrets such as ".env.production". Templates of such
// files do not count.
func dotenv(base string) bool {
	tail, ok := strings.CutPrefix(base, ".env")
	return ok && (tail == "" || strings.ContainsAny(tail[:1], "._-") && !slices.Contains(envTemplates, tail[1:]))
}

var envTemplates = []string{"example", "sample", "template", "dist", "defaults", "schema", "tmpl", "test.example", "local.example", "d.ts"}

// SecretGlob returns why the absolute path glob may match a secret, or "". A wildcard at the
// start of a name does not match a dot. A glob that matches names of all kinds, such as "*",
// is not reported: callers should list its matches if they can.
func SecretGlob(glob string) string {
	lower := ShellPattern(strings.ToLower(path.Clean(glob)))
	segs := strings.Split(lower, "/")
	base := segs[len(segs)-1]
	why := glob + " may match a file that holds credentials"
	if matchesSample(base) && !vague(base) {
		return why
	}
	if strings.HasPrefix(lower, "/proc/") && slices.ContainsFunc([]string{"environ", "mem", "kcore"}, func(name string) bool { return globMatches(base, name) }) {
		return why
	}
	if !strings.ContainsAny(path.Dir(lower), "*?[") {
		sample := path.Dir(lower) + "/x"
		if secretTail(sample, "x") {
			return why
		}
	}
	if slices.ContainsFunc(secretPlaces, func(place string) bool { return mayContain(segs, place) }) {
		return why
	}
	// The other secrets are below a hidden name, which only a pattern with a dot matches.
	if !strings.Contains(lower, "/.") && !strings.Contains(lower, "/[") {
		return ""
	}
	if slices.ContainsFunc(secretTails, func(tail string) bool { return mayContain(segs, tail) }) || mayContain(segs, "/.ssh/") && !publicSSH(base) {
		return why
	}
	return ""
}

// mayContain reports whether the globs match the names in part, anywhere in the path, with something more specific
// than "*", or at its end.
func mayContain(globs []string, part string) bool {
	want, whole := strings.CutSuffix(part, "/")
	names := strings.Split(want[1:], "/")
	last := len(names) - 1
	for i := 1; i+last < len(globs); i++ {
		have := globs[i : i+len(names)]
		if !matchAll(have[:last], names[:last]) || !globMatches(have[last], names[last]) && (whole || !mayBegin(have[last], names[last])) {
			continue
		}
		// Showing a whole directory that contains the secret counts too.
		if !slices.ContainsFunc(have, vague) || !whole && i+len(names) == len(globs) {
			return true
		}
	}
	return false
}

// mayBegin reports whether a pattern may match a name that begins with head. A head with a file extension is a
// whole name.
func mayBegin(glob, head string) bool {
	i := strings.IndexAny(glob, `*?[\`)
	switch {
	case strings.Contains(head[1:], "."):
		return false
	case i < 0:
		return strings.HasPrefix(glob, head)
	}
	return strings.HasPrefix(glob[:i], head) || strings.HasPrefix(head, glob[:i]) && (i > 0 || head[0] != '.')
}

func matchAll(globs, names []string) bool {
	for i, g := range globs {
		if !globMatches(g, names[i]) {
			return false
		}
	}
	return true
}

func globMatches(glob, name string) bool {
	if name[0] == '.' && !strings.HasPrefix(glob, ".") && !strings.HasPrefix(glob, "[.") && !strings.HasPrefix(glob, `\.`) {
		return false
	}
	ok, _ := path.Match(glob, name)
	return ok
}

// MayBeKept reports whether a file of this name, or one that the pattern matches, may hold credentials in some
// directory, such as config.json in .docker. Only source code, documents and the usual files of a project do not.
func MayBeKept(name string) bool {
	base := strings.ToLower(path.Base(name))
	kind := path.Ext(base)
	return !slices.Contains(projectFiles, base) && (kind == base || strings.ContainsAny(kind, `*?[{\`) || !slices.Contains(projectKinds, kind))
}

// MayEndSecret reports whether end, perhaps with wildcards, may be the end of a secret's path, as config.json is of
// .docker/config.json. Patterns that also match ordinary names do not count.
func MayEndSecret(end string) bool {
	segs := strings.Split(ShellPattern(strings.ToLower(path.Clean(end))), "/")
	last := len(segs) - 1
	if stem := strings.TrimSuffix(segs[last], path.Ext(segs[last])); strings.Trim(stem, "*?") == "" || vague(segs[last]) {
		return false
	}
	return slices.ContainsFunc(secretEnds(), func(names []string) bool {
		for i := 0; i <= last && i < len(names); i++ {
			if have := segs[last-i]; have != "" && !NameMatches(names[len(names)-1-i], []string{have}) {
				return false
			}
		}
		return true
	})
}

// secretEnds are the names, directory by directory, of the files of secretTails, and of well-known files in its
// directories.
var secretEnds = sync.OnceValue(func() (ends [][]string) {
	usual := []string{"/.aws/credentials", "/.aws/config", "/.kube/config", "/.config/rclone/rclone.conf", "/.config/gcloud/credentials.db", "/.m2/settings.xml",
		"/.m2/settings-security.xml", "/.cargo/credentials.toml", "/.terraform.d/credentials.tfrc.json", "/.config/helm/registry.json"}
	for _, part := range append(usual, secretTails...) {
		if !strings.HasSuffix(part, "/") {
			ends = append(ends, strings.Split(part[1:], "/"))
		}
	}
	return ends
})

// MayBeSecret reports whether a pattern for a name, even a broad one, may match the name of a secret.
func MayBeSecret(base string) bool {
	return matchesSample(ShellPattern(strings.ToLower(base)))
}

func matchesSample(lower string) bool {
	tail := lower[strings.LastIndexAny(lower, `*?[]\`)+1:] // the suffix of all matching names
	return slices.ContainsFunc(secretSamples, func(name string) bool { return strings.HasSuffix(name, tail) && globMatches(lower, name) })
}

// MayFindSecret is MayBeSecret for the patterns of find, where a wildcard at the start of a name also matches a dot.
func MayFindSecret(base string) bool {
	return slices.ContainsFunc(secretSamples, func(name string) bool { return NameMatches(name, []string{base}) })
}

// vague reports whether a pattern also matches ordinary names.
func vague(glob string) bool {
	if !strings.ContainsAny(glob, "*?[") {
		return false
	}
	for _, name := range []string{"main.go", "readme.md", "package.json", "makefile", "a", "index.test.ts", "config.yaml", "x.yml", "cargo.toml", "notes.txt", "data.csv", "x.cfg", "x.conf", "x.ini", "x.lock", "x.sql"} {
		if ok, err := path.Match(glob, name); ok && err == nil {
			return true
		}
	}
	return false
}

// SecretVariable reports whether the name of an environment variable suggests a secret. Case
// is ignored.
func SecretVariable(name string) bool {
	up := strings.ToUpper(name)
	if slices.Contains(secretVariables, up) {
		return true
	}
	for part := range strings.SplitSeq(up, "_") {
		if slices.Contains(secretParts, part) {
			return true
		}
	}
	for _, tail := range []string{"API_KEY", "ACCESS_KEY", "PRIVATE_KEY", "ENCRYPTION_KEY", "SIGNING_KEY", "MASTER_KEY", "DEPLOY_KEY", "SSH_KEY", "AUTH_KEY", "LICENSE_KEY", "TOKEN", "PASSWORD", "SECRET"} {
		if strings.HasSuffix(up, tail) {
			return true
		}
	}
	return false
}
