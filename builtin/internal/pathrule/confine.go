package pathrule

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Secrets returns the existing paths of credentials with well-known names, below the home directories and at
// fixed paths.
func Secrets(homes []string) []string {
	var out []string
	add := func(name string) {
		if _, err := os.Lstat(name); err == nil {
			out = append(out, name)
		}
	}
	for _, home := range homes {
		entries, _ := os.ReadDir(home)
		for _, e := range entries {
			if name := path.Join(home, e.Name()); e.Name() == ".ssh" || SecretName(name) != "" {
				out = append(out, name)
			}
		}
		for _, part := range secretHiddenParts {
			switch {
			case strings.Count(part, "/") == 2 && strings.HasSuffix(part, "/"): // directly in home, found above
			case strings.HasSuffix(part, "/"), strings.Contains(path.Base(part), "."): // a whole name
				add(path.Join(home, part))
			default: // the beginning of a name
				names, _ := filepath.Glob(path.Join(home, part) + "*")
				out = append(out, names...)
			}
		}
	}
	for _, name := range movedSecrets() {
		add(name)
	}
	for _, part := range secretPlainParts {
		add(path.Clean(part))
	}
	for _, name := range []string{"shadow", "shadow-", "gshadow", "gshadow-", "sudoers", "krb5.keytab"} {
		add("/etc/" + name)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// movedDirs are variables that move a directory out of the home directory, with its usual path in the home directory.
// movedFiles are variables that name files or directories with credentials.
var (
	movedDirs = map[string]string{
		"CARGO_HOME": "/.cargo/", "CLAUDE_CONFIG_DIR": "/.claude/", "CODEX_HOME": "/.codex/", "COMPOSER_HOME": "/.composer/", "DOCKER_CONFIG": "/.docker/", "GH_CONFIG_DIR": "/.config/gh/",
		"GRADLE_USER_HOME": "/.gradle/", "HF_HOME": "/.cache/huggingface/", "XDG_CACHE_HOME": "/.cache/", "XDG_CONFIG_HOME": "/.config/", "XDG_DATA_HOME": "/.local/share/",
	}
	movedFiles = []string{
		"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AZURE_CONFIG_DIR", "CLOUDSDK_CONFIG", "GNUPGHOME", "GOOGLE_APPLICATION_CREDENTIALS", "HISTFILE", "KUBECONFIG", "NETRC", "NPM_CONFIG_USERCONFIG",
		"PASSWORD_STORE_DIR", "PGPASSFILE", "SOPS_AGE_KEY_FILE", "XAUTHORITY",
	}
)

// movedSecrets returns the paths of credentials to which environment variables refer.
func movedSecrets() []string {
	var out []string
	for variable, usual := range movedDirs {
		dir := os.Getenv(variable)
		if !filepath.IsAbs(dir) {
			continue
		}
		for _, part := range secretHiddenParts {
			if rest, ok := strings.CutPrefix(part, usual); ok {
				names, _ := filepath.Glob(globEscapes.Replace(dir) + "/" + strings.TrimSuffix(rest, "/") + "*")
				out = append(out, names...)
			}
		}
	}
	for _, variable := range movedFiles {
		for _, name := range filepath.SplitList(os.Getenv(variable)) {
			if name = path.Clean(name); filepath.IsAbs(name) && name != "/" { // hiding "/" would hide every file
				out = append(out, name)
			}
		}
	}
	return out
}

var globEscapes = strings.NewReplacer("*", `\*`, "?", `\?`, "[", `\[`, `\`, `\\`)

// ReadOnly reports whether commands must not change the file or directory rel of a working directory because of its
// name. In a version control directory they must not change only ControlPaths.
func (g Protected) ReadOnly(rel string) bool {
	return ControlPaths[strings.ToLower(path.Base(rel))] == nil && g.Name(inProject(rel)) != ""
}

// inProject makes rel an absolute path, below a directory about which there are no rules.
func inProject(rel string) string { return "/w/" + rel }

// ControlPaths are, for each version control directory, the paths in the directory that version control runs or trusts.
var ControlPaths = map[string][]string{
	".git": {"commondir", "config", "config.worktree", "hooks", "info/attributes"},
	".hg":  {"hgrc"},
	".svn": {"config"},
	".bzr": {"branch/branch.conf"},
	".jj":  {"repo/config.toml"},
}

// ProtectedNames returns the names of files and directories that are protected anywhere, sorted, without version control
// directories.
func ProtectedNames() []string {
	names := slices.Concat(protectedFiles, protectedDirs, []string{".env"})
	names = slices.DeleteFunc(names, func(name string) bool { return ControlPaths[name] != nil })
	slices.Sort(names)
	return names
}

// projectSettings are files that often hold credentials in a home directory. In a project they are settings that the
// project's tools must read.
var projectSettings = []string{".npmrc", ".yarnrc.yml", ".envrc", ".condarc", ".pypirc", ".terraformrc", ".dev.vars", "local.settings.json", "wp-config.php", "auth.json"}

// HoldsCredentials reports whether the name of the file rel of a working directory says that it holds credentials which
// the project's tools need not read. Credentials in directories for tests are public and do not count.
func HoldsCredentials(rel string) bool {
	base := strings.ToLower(path.Base(rel))
	if ext := path.Ext(base); slices.Contains(projectSettings, base) || ext == ".tfstate" || ext == ".tfvars" {
		return false // Terraform must read its state and variables
	}
	for seg := range strings.SplitSeq(path.Dir(rel), "/") {
		switch seg {
		case "testdata", "test", "tests", "fixtures", "__fixtures__", "__tests__", "spec":
			return false
		}
	}
	return SecretName(inProject(rel)) != ""
}
