package pathrule

import (
	"path"
	"slices"
	"strings"
)

// Protected has names that must not be written without approval, whatever the rules say, in addition to the
// built-in ones: files that programs run or trust when they start, credentials, version control and editor
// state, and the system's own directories. Case is ignored.
type Protected struct {
	Files []string // base names, such as "secrets.yaml"
	Dirs  []string // names of directories anywhere in a path, such as ".deploy"
}

// Hit returns why name, as written or with links resolved, is protected, or "". For a name that cannot be resolved Hit
// returns "": check [Place.Abs] first.
func (g Protected) Hit(at Place, name string) string {
	abs := at.Abs(name)
	if why := g.Name(abs); why != "" {
		return why
	}
	real := at.Real(name)
	if real == abs {
		return ""
	}
	if why := g.Name(real); why != "" {
		return why + " (through a symbolic link)"
	}
	return ""
}

// Name returns why the clean absolute path abs is protected by its name alone, or "".
func (g Protected) Name(abs string) string {
	if abs == "" {
		return ""
	}
	lower := strings.ToLower(abs)
	base := path.Base(lower)
	if slices.Contains(protectedFiles, base) || dotenv(base) || slices.ContainsFunc(g.Files, sameName(base)) {
		return abs + " is a protected file"
	}
	for _, dir := range systemDirs {
		if Below(lower, dir) && !slices.Contains(writableDevices, lower) {
			return abs + " belongs to the system"
		}
	}
	if inKitbagDir(lower) {
		return abs + " belongs to this program"
	}
	for seg := range strings.SplitSeq(lower, "/") {
		if slices.Contains(protectedDirs, seg) || slices.ContainsFunc(g.Dirs, sameName(seg)) {
			return abs + " is in a protected directory"
		}
	}
	for _, part := range protectedParts {
		if strings.Contains(lower+"/", part) {
			return abs + " is in a protected directory"
		}
	}
	return ""
}

// Likely returns the paths of protected names that the wildcards in the absolute path glob
// may match: /home/me/.bashrc for /home/me/.b*rc. A wildcard at the start of a name does not match a dot.
func Likely(glob string) []string {
	segs := strings.Split(ShellPattern(strings.ToLower(glob)), "/")
	var out []string
	for i, seg := range segs {
		if !strings.HasPrefix(seg, ".") || !strings.ContainsAny(seg, "*?[") {
			continue
		}
		for _, name := range slices.Concat(protectedFiles, protectedDirs, []string{".env", ".env.local", ".env.production"}) {
			if ok, err := path.Match(seg, name); ok || err != nil { // an invalid pattern may mean anything
				out = append(out, strings.Join(slices.Concat(segs[:i], []string{name}, segs[i+1:]), "/"))
			}
		}
	}
	return out
}

// sameName returns a function that compares names with name, ignoring case.
func sameName(name string) func(string) bool {
	return func(other string) bool { return strings.EqualFold(other, name) }
}

// All names are lower case, for comparison.
//
// A name is listed if a program later runs or trusts the file without being asked to: a start-up file, a hook, a key.
// Files that run only on request, such as a Makefile or package.json, are not listed, nor is .github/workflows: it
// runs on another machine, after a push, which needs approval itself.
var (
	// Files that shells, git, editors, package managers or debuggers run or trust.
	protectedFiles = []string{
		".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile",
		".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login", ".inputrc",
		".xinitrc", ".xprofile", ".xsession", ".xsessionrc", ".pam_environment", ".envrc", "crontab",
		".gitconfig", ".gitmodules", ".gitattributes", ".git-credentials", ".hgrc",
		".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc", ".condarc", ".gemrc", ".terraformrc", ".curlrc", ".wgetrc",
		".vimrc", ".gvimrc", ".ideavimrc", ".exrc", ".lesskey", ".latexmkrc", ".shosts", ".k5login", ".pnpmrc", ".nanorc", ".emacs", ".screenrc", ".tmux.conf",
		".psqlrc", ".sqliterc", ".mailrc", ".forward", ".rhosts", "rust-toolchain", "rust-toolchain.toml", ".pnpmfile.cjs",
		".gdbinit", ".lldbinit", ".irbrc", ".pryrc", ".pdbrc", ".rprofile", ".pythonrc",
		".netrc", ".pgpass", ".my.cnf", ".s3cfg", ".boto", ".vault-token", ".ansible.cfg", ".mcp.json", "kitbag.json", ".devcontainer.json", "authorized_keys", "authorized_keys2",
		"id_rsa", "id_dsa", "id_ecdsa", "id_ed25519",
	}
	protectedDirs = []string{
		".git", ".hg", ".svn", ".bzr", ".jj", ".vscode", ".idea", ".zed", ".devcontainer", ".oh-my-zsh", ".password-store", ".terraform.d", ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".husky", ".direnv", ".vim", ".emacs.d", ".subversion",
	}
	// Directories and files by the end of their path. Each ends with a slash, also a file: Name appends one to the path.
	protectedParts = []string{
		"/.config/git/", "/.config/gh/", "/.config/gcloud/", "/.config/autostart/", "/.config/systemd/",
		"/.config/fish/", "/.config/nvim/", "/.config/pip/", "/.config/environment.d/", "/.config/kitbag/", "/.config/hub/", "/.gem/credentials/", "/.local/bin/",
		"/.local/share/applications/", "/.bundle/config/", "/.pip/", "/.claude/settings.json/", "/.claude/settings.local.json/", "/.cursor/mcp.json/",
		"/.cargo/env/", "/.cargo/config/", "/.cargo/config.toml/", "/.cargo/credentials/", "/.cargo/credentials.toml/",
		"/.m2/settings.xml/", "/.gradle/init.d/", "/.gradle/init.gradle/", "/.gradle/gradle.properties/",
		"/library/launchagents/", "/library/launchdaemons/",
	}
	systemDirs = []string{
		"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/local/bin", "/usr/local/sbin",
		"/boot", "/etc", "/dev", "/proc", "/sys", "/system", "/var/spool/cron", "/var/spool/at", "/private/etc",
	}
	writableDevices = []string{"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/full"}
)
