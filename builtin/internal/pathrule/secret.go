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

// Secret returns why showing the file or directory name would reveal credentials, or "". It checks the path as written
// and with links resolved.
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

// SecretLink is [Place.Secret] for an absolute path without a secret name, but faster: it does not look for links in the
// path of the current directory, if abs is below the current directory.
func (p Place) SecretLink(abs string) string {
	if p.Cwd == "" || !Below(abs, p.Cwd) {
		return p.Secret(abs)
	}
	for end := len(p.Cwd) + 1; end <= len(abs); end++ {
		if end < len(abs) && abs[end] != '/' {
			continue
		}
		if _, err := p.Target(abs[:end]); err == nil {
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

// Glob returns the paths that an absolute pattern of the shell matches, sorted, at most maxGlob, and whether these are
// all matches. Paths without wildcards after the last existing directory need not exist.
func (p Place) Glob(pattern string) (matches []string, all bool) {
	all = true
	matches = []string{"/"}
	for seg := range strings.SplitSeq(strings.Trim(ShellPattern(pattern), "/"), "/") {
		var next []string
		for _, dir := range matches {
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
		matches = next
	}
	return matches, all
}

// SecretBelow returns why showing everything below the directory name would reveal credentials, or "": if the directory
// is a home directory, contains a home directory, or directly contains a secret. It does not search subdirectories.
// Hidden secrets count only if hidden is set.
func (p Place) SecretBelow(name string, hidden bool) string {
	real := p.Real(name)
	if real == "" {
		return ""
	}
	if why := SecretName(real); why != "" {
		return why
	}
	lower := strings.ToLower(real)
	containsHome := path.Dir(lower) == "/home" || p.Home != "" && Below(p.Real(p.Home), real)
	if containsHome || slices.Contains([]string{"/", "/etc", "/home", "/root", "/users", "/proc", "/dev", "/run", "/var/run"}, lower) {
		return "credentials are below " + real
	}
	return p.SecretAmong(real, hidden, nil)
}

// SecretAmong returns why showing the files directly in dir would reveal credentials, or "". Hidden files count
// only if hidden is set. If there are patterns, only names that match one of them count, ignoring case.
func (p Place) SecretAmong(dir string, hidden bool, patterns []string) string {
	names, err := p.unsortedNames(dir)
	if err != nil {
		return ""
	}
	firstWhy, first := "", "" // of the secret that is first in alphabetical order
	byPlace := SecretByPlace(dir)
	for _, name := range names {
		isHidden := strings.HasPrefix(name, ".")
		if isHidden && !hidden || firstWhy != "" && name > first || !NameMatches(name, patterns) {
			continue
		}
		if !isHidden && !byPlace && !secretBase(strings.ToLower(name)) { // faster than SecretName
			continue
		}
		if why := SecretName(strings.TrimSuffix(dir, "/") + "/" + name); why != "" {
			firstWhy, first = why, name
		}
	}
	return firstWhy
}

// SecretByPlace reports whether files directly in dir that are not hidden may be secrets because of the directory, not
// only because of their base names.
func SecretByPlace(dir string) bool {
	dir = strings.ToLower(dir)
	if strings.Contains(dir, "/.") || strings.HasPrefix(dir, "/proc") || Below(dir, "/dev") || inKitbagDir(dir) || Below(kitbagDir(), dir) {
		return true
	}
	for name := range strings.SplitSeq(dir, "/") {
		if secretPlainByHead()["/"+name] != nil {
			return true
		}
	}
	return false
}

// NameMatches reports whether a name matches one of the patterns; nil patterns match any name.
// Case is ignored, as in find -iname.
func NameMatches(name string, patterns []string) bool {
	return patterns == nil || slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(ShellPattern(strings.ToLower(pattern)), strings.ToLower(name))
		return ok || err != nil // an invalid pattern may mean anything
	})
}

// SecretName is [Place.Secret] for a clean absolute path, judged by its name alone. Case is ignored.
func SecretName(abs string) string {
	lower := strings.ToLower(abs)
	base := lower[strings.LastIndexByte(lower, '/')+1:]
	if secretBase(base) || hasSecretPart(lower, base) || inKitbagDir(lower) {
		return abs + " holds credentials"
	}
	return ""
}

// inKitbagDir reports whether a lower-case path is in the directory where kitbag keeps keys, tokens and consents.
func inKitbagDir(lower string) bool {
	dir := kitbagDir()
	return dir != "" && Below(lower, dir)
}

var kitbagDir = sync.OnceValue(findKitbagDir)

// findKitbagDir returns kitbag's directory in lower case, or "" if it is not known.
func findKitbagDir() string {
	base, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return strings.ToLower(path.Join(filepath.ToSlash(base), "kitbag"))
}

// copyExts are the extensions of the names of copies.
var copyExts = []string{".bak", ".old", ".orig", ".save", ".swp", ".swo", ".swn", ".un", ".backup", ".bk", ".copy", ".tmp", ".gz", ".xz", ".bz2", ".zst"}

// secretBase reports whether a file with this base name is a secret in any directory, or a copy of a secret. Editors put
// a dot before the name of a copy, or "#" around the name.
func secretBase(base string) bool {
	original := base
	for strings.HasSuffix(original, "~") || slices.Contains(copyExts, path.Ext(original)) {
		original = original[:strings.LastIndexAny(original, ".~")]
	}
	original = strings.Trim(original, "#")
	return secretOriginal(original) || original != base && strings.HasPrefix(original, ".") && secretOriginal(original[1:])
}

// secretOriginal is secretBase for a name that is not that of a copy.
func secretOriginal(base string) bool {
	if secretFileSet()[base] || dotenv(base) {
		return true
	}
	if stem, ok := strings.CutSuffix(base, ".env"); ok { // prod.env
		return !slices.Contains(envTemplates, stem)
	}
	if i := strings.LastIndexByte(base, '.'); i > 0 && slices.Contains(secretExts, base[i:]) {
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
	return slices.ContainsFunc(keySuffixes, func(suffix string) bool { return strings.HasSuffix(base, suffix) })
}

var secretFileSet = sync.OnceValue(func() map[string]bool {
	set := map[string]bool{}
	for _, name := range secretFiles {
		set[name] = true
	}
	return set
})

// hasSecretPart reports whether a path with this base name is secret because of more than its base name.
func hasSecretPart(lower, base string) bool {
	if dot := strings.Index(lower, "/."); dot >= 0 {
		tree := lower[dot:]
		if hasPart(tree, secretHiddenByHead()) || (strings.Contains(tree, "/.ssh/") || strings.HasSuffix(tree, "/.ssh")) && !publicSSH(base) {
			return true
		}
	}
	switch {
	case strings.HasPrefix(lower, "/proc/"):
		return base == "environ" || base == "mem" || base == "kcore"
	case strings.HasPrefix(lower, "/dev/"):
		device, _, _ := strings.Cut(lower[len("/dev/"):], "/")
		return !slices.Contains(readableDevices, device)
	}
	return hasPart(lower, secretPlainByHead())
}

// hasPart reports whether the clean path name, with a slash added at its end, contains one of the parts from byHead.
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

var secretHiddenByHead, secretPlainByHead = byHead(secretHiddenParts), byHead(secretPlainParts)

// byHead returns a map from the first name in a part, with a slash before it, to the parts that begin with the name.
func byHead(parts []string) func() map[string][]string {
	return sync.OnceValue(func() map[string][]string {
		m := map[string][]string{}
		for _, part := range parts {
			head := part[:1+strings.IndexByte(part[1:], '/')]
			m[head] = append(m[head], part)
		}
		return m
	})
}

// publicSSH reports whether a file in .ssh with this base name has no secret.
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
	if dir := path.Dir(lower); !strings.ContainsAny(dir, "*?[") && hasSecretPart(dir+"/x", "x") { // whatever the base name
		return why
	}
	containsPart := func(part string) bool { return mayContain(segs, part) }
	if slices.ContainsFunc(secretPlainParts, containsPart) {
		return why
	}
	// The other secrets are below a hidden name, which only a pattern with a dot matches.
	if !strings.Contains(lower, "/.") && !strings.Contains(lower, "/[") {
		return ""
	}
	if slices.ContainsFunc(secretHiddenParts, containsPart) || containsPart("/.ssh/") && !publicSSH(base) {
		return why
	}
	return ""
}

// mayContain reports whether a path that the globs match, name by name, may contain part. A vague glob counts only at the
// end of the path, if part is a file: the glob shows all files in its directory.
func mayContain(globs []string, part string) bool {
	trimmed, isDir := strings.CutSuffix(part, "/")
	names := strings.Split(trimmed[1:], "/")
	last := len(names) - 1
	for i := 1; i+last < len(globs); i++ {
		pats := globs[i : i+len(names)]
		matches := globMatches(pats[last], names[last]) || !isDir && mayBegin(pats[last], names[last])
		for j := 0; j < last && matches; j++ {
			matches = globMatches(pats[j], names[j])
		}
		if matches && (!slices.ContainsFunc(pats, vague) || !isDir && i+len(names) == len(globs)) {
			return true
		}
	}
	return false
}

// mayBegin reports whether glob may match a name that begins with head. A head with a file extension is a whole name,
// which other names do not begin with.
func mayBegin(glob, head string) bool {
	wildcard := strings.IndexAny(glob, `*?[\`)
	switch {
	case strings.Contains(head[1:], "."):
		return false
	case wildcard < 0:
		return strings.HasPrefix(glob, head)
	}
	fixed := glob[:wildcard]
	return strings.HasPrefix(fixed, head) || strings.HasPrefix(head, fixed) && (fixed != "" || head[0] != '.')
}

// globMatches is path.Match, but a wildcard at the start of a name does not match a dot.
func globMatches(glob, name string) bool {
	if name[0] == '.' && !strings.HasPrefix(glob, ".") && !strings.HasPrefix(glob, "[.") && !strings.HasPrefix(glob, `\.`) {
		return false
	}
	ok, _ := path.Match(glob, name)
	return ok
}

// MayBeKept reports whether a file of this name, perhaps with wildcards, may hold credentials in some directory, as
// config.json does in .docker. Only source code, documents and the usual files of a project do not.
func MayBeKept(name string) bool {
	base := strings.ToLower(path.Base(name))
	ext := path.Ext(base)
	known := ext != base && slices.Contains(projectExts, ext) // ".go" alone is a hidden file without extension
	return !known && !slices.Contains(projectFiles, base)
}

// MayEndSecret reports whether a secret's path may end with end, perhaps with wildcards, as .docker/config.json ends with
// config.json. Patterns that also match ordinary names do not count.
func MayEndSecret(end string) bool {
	segs := strings.Split(ShellPattern(strings.ToLower(path.Clean(end))), "/")
	last := len(segs) - 1
	if stem := strings.TrimSuffix(segs[last], path.Ext(segs[last])); strings.Trim(stem, "*?") == "" || vague(segs[last]) {
		return false
	}
	return slices.ContainsFunc(secretFilePaths(), func(names []string) bool {
		for i := 0; i <= last && i < len(names); i++ { // from the end
			if seg := segs[last-i]; seg != "" && !NameMatches(names[len(names)-1-i], []string{seg}) {
				return false
			}
		}
		return true
	})
}

// secretFilePaths returns paths of secret files, name by name: those in secretHiddenParts, and well-known files in the
// directories of secretHiddenParts.
var secretFilePaths = sync.OnceValue(func() (paths [][]string) {
	wellKnown := []string{"/.aws/credentials", "/.aws/config", "/.kube/config", "/.config/rclone/rclone.conf", "/.config/gcloud/credentials.db", "/.m2/settings.xml",
		"/.m2/settings-security.xml", "/.cargo/credentials.toml", "/.terraform.d/credentials.tfrc.json", "/.config/helm/registry.json"}
	for _, part := range append(wellKnown, secretHiddenParts...) {
		if !strings.HasSuffix(part, "/") {
			paths = append(paths, strings.Split(part[1:], "/"))
		}
	}
	return paths
})

// MayBeSecret reports whether a pattern for a name, even a broad one, may match the name of a secret.
func MayBeSecret(base string) bool {
	return matchesSample(ShellPattern(strings.ToLower(base)))
}

// matchesSample reports whether a lower-case pattern matches one of secretSamples.
func matchesSample(glob string) bool {
	suffix := glob[strings.LastIndexAny(glob, `*?[]\`)+1:] // of all matching names; excludes most samples fast
	return slices.ContainsFunc(secretSamples, func(name string) bool { return strings.HasSuffix(name, suffix) && globMatches(glob, name) })
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
		if ok, _ := path.Match(glob, name); ok {
			return true
		}
	}
	return false
}

// SecretVariable reports whether the name of an environment variable suggests a secret. Case is ignored.
func SecretVariable(name string) bool {
	up := strings.ToUpper(name)
	if slices.Contains(secretVariables, up) {
		return true
	}
	for word := range strings.SplitSeq(up, "_") {
		if slices.Contains(secretWords, word) {
			return true
		}
	}
	for _, suffix := range []string{"API_KEY", "ACCESS_KEY", "PRIVATE_KEY", "ENCRYPTION_KEY", "SIGNING_KEY", "MASTER_KEY", "DEPLOY_KEY", "SSH_KEY", "AUTH_KEY", "LICENSE_KEY", "PWD_HASH", "TOKEN", "PASSWORD", "SECRET"} {
		if strings.HasSuffix(up, suffix) {
			return true
		}
	}
	return false
}
