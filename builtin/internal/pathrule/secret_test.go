package pathrule

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// tree returns a place with only the given names, by directory; a name with "->" is a link.
func tree(names ...string) Place {
	links, dirs := map[string]string{}, map[string][]string{}
	for _, name := range names {
		name, target, link := strings.Cut(name, "->")
		if link {
			links[name] = target
		}
		i := strings.LastIndexByte(name, '/')
		dirs[name[:max(i, 1)]] = append(dirs[name[:max(i, 1)]], name[i+1:])
	}
	return Place{
		Cwd: "/w", Home: "/home/u", Dirs: []string{"/w"},
		Readlink: func(name string) (string, error) {
			if to, ok := links[name]; ok {
				return to, nil
			}
			if slices.Contains(names, name) || dirs[name] != nil || name == "/w" {
				return "", os.ErrInvalid
			}
			return "", os.ErrNotExist
		},
		ReadDir: func(name string) ([]string, error) {
			if dirs[name] == nil {
				return nil, syscall.ENOTDIR
			}
			return dirs[name], nil
		},
	}
}

func TestSecretNames(t *testing.T) {
	for name, want := range map[string]bool{
		"/w/.env": true, "/w/.env.example": false, "/w/.env.local": true, "/w/.envx": false, "/w/.env-prod": true, "/w/.env_x": true, "/w/prod.env": true, "/w/example.env": false,
		"/w/id_rsa": true, "/w/ID_RSA": true, "/w/id_rsa.bak": true, "/w/id_rsa~": true, "/w/id_rsa~.bak": true, "/w/.netrc.old": true, "/w/.git-credentials.bak": true, "/w/.netrc~": true, "/w/.zshrc.old": false, "/w/id_rsa.txt": false,
		"/w/tls.key": true, "/w/.key": false, "/w/a.keys": false, "/w/ssh_host_rsa_key": true, "/w/ssh_host_rsa": false, "/w/rsa_key": false,
		"/w/deploy_rsa": true, "/w/deploy_rsa.pub": false, "/w/ec2.pem": true, "/w/cert.pem": false, "/w/fullchain.pem": false, "/w/ca-bundle.pem": false, "/w/public.pem": false, "/w/root.crt": false, "/w/rootCA-key.pem": true, "/w/cert_priv.pem": true,
		"/dev/sda": true, "/dev/nvme0n1p1": true, "/dev/mapper/root": true, "/dev/disk/by-id/x": true, "/dev/input/event0": true, "/dev/null": false, "/dev/urandom": false, "/dev/fd/3": false, "/dev/shm/x": false, "/dev": false,
		"/home/u/.cloudflared/x.json": true, "/home/u/.subversion/auth/svn.simple/x": true, "/home/u/.lpass/key": true, "/etc/ppp/chap-secrets": true,
		"/w/terraform.tfstate": true, "/w/terraform.tfstate.backup": true, "/w/prod.auto.tfvars": true, "/w/main.tf": false, "/w/wp-config.php": true, "/w/auth.json": true, "/w/oauth.json": false,
		"/home/u/.nuget/NuGet.Config": true, "/home/u/.config/pip/pip.conf": true, "/home/u/.pip/pip.conf": true, "/home/u/.config/Slack/Cookies": true, "/home/u/.chef/x": true, "/home/u/.muttrc": true,
		"/home/u/.ssh/known_hosts": false, "/home/u/.ssh/config": false, "/home/u/.ssh/authorized_keys": false, "/home/u/.ssh/x.pub": false, "/home/u/.ssh/x": true, "/home/u/.ssh": true,
		"/w/.credentials.json.swp": true, "/w/.secrets.yml.swo": true, "/w/..env.un~": true, "/w/#.env#": true, "/w/.main.go.swp": false, "/w/token.go": false, "/w/token": false, "/w/token.txt": true, "/w/prod.kubeconfig": true,
		"/w/secret.yaml": true, "/w/passwords.txt": true, "/w/deploy_key": true, "/w/deploy_key.pub": false, "/tmp/krb5cc_0": true, "/etc/openvpn/auth.txt": true, "/home/u/.netlify/config.json": true, "/home/u/.curlrc": true,
		"/home/u/.config/fish/config.fish": false, "/home/u/.config/fish/fish_variables": true, "/home/u/.viminfo": true, "/home/u/.jupyter/jupyter_notebook_config.json": true,
		"/home/u/.aws/config": true, "/home/u/.awsx/config": false, "/proc/1/environ": true, "/proc/1/mem": true, "/proc/kcore": true, "/proc/1/status": false,
		"/w/app-firebase-adminsdk-a1-0f.json": true, "/w/client_secret_1.apps.googleusercontent.com.json": true, "/w/prod.auto.tfvars.json": true, "/w/client.json": false, "/w/tokens.json": false, "/w/token.json": true,
		"/w/credentials.csv": true, "/w/users.csv": false, "/w/.vscode/sftp.json": true, "/w/.vscode/settings.json": false, "/w/.idea/dataSources.local.xml": true, "/w/.secrets/db": true, "/home/u/.sops/age/keys.txt": true,
		"/var/lib/docker/containers/0f/config.v2.json": true, "/var/lib/docker/x": false, "/var/lib/kubelet/pods/u/volumes/kubernetes.io~secret/a/b": true, "/etc/netplan/1.yaml": true, "/etc/postfix/sasl_passwd": true,
		"/w/id_rsa.gz": true, "/w/terraform.tfstate.xz": true, "/w/id_rsa.tmp": true, "/w/main.go.gz": false,
		"/etc/wireguard/x": true, "/etc/wireguard/.x": true, "/run/secrets/kubernetes.io/serviceaccount/..data/token": true, "/etc/wireguardx": false, "/dev/mem": true, "/etc/host": false, "/main.go": false, "": false,
	} {
		if got := SecretName(name) != ""; got != want {
			t.Errorf("SecretName(%q) = %v, want %v", name, got, want)
		}
	}
}

func TestSecretBehindLinks(t *testing.T) {
	at := tree("/w/key->/home/u/.ssh/id_work", "/w/a->/home/u/.ssh", "/w/b->src", "/w/src", "/w/src/deep", "/w/src/deep/k->/home/u/.aws/credentials", "/out->/home/u/.aws")
	for name, want := range map[string]bool{
		"/w/key": true, "/w/a/x": true, "/w/a/x.pub": false, "/w/b/main.go": false, "/w/src/deep/k": true, "/w/src/deep/l": false, "/w/new/a/b": false, "/out/x": true, "/w": false,
	} {
		if got := at.Secret(name) != ""; got != want {
			t.Errorf("Secret(%q) = %v, want %v", name, got, want)
		}
		if got := at.SecretLink(name) != ""; got != want {
			t.Errorf("SecretLink(%q) = %v, want %v", name, got, want)
		}
	}
	at.Cwd = ""
	if at.SecretLink("/w/key") == "" {
		t.Error("SecretLink sees no link if the current directory is unknown")
	}
}

func TestSecretBelow(t *testing.T) {
	at := tree("/w/plain/main.go", "/w/env/.env", "/w/env/a", "/w/keys/b", "/w/keys/tls.key", "/w/loop->loop")
	for _, row := range []struct {
		name       string
		shown, all bool // without and with hidden names
	}{
		{"/w/plain", false, false}, {"/w/env", false, true}, {"/w/keys", true, true}, {"/w/plain/main.go", false, false}, {"/w/none", false, false}, {"/w/loop", false, false},
		{"/", true, true}, {"/home", true, true}, {"/home/u", true, true}, {"/home/other", true, true}, {"/home/other/src", false, false}, {"/home/u/src", false, false},
		{"/root", true, true}, {"/proc", true, true}, {"/srv", false, false}, {"/home/u/.ssh", true, true},
	} {
		if got := at.SecretBelow(row.name, false) != ""; got != row.shown {
			t.Errorf("SecretBelow(%q, false) = %v", row.name, got)
		}
		if got := at.SecretBelow(row.name, true) != ""; got != row.all {
			t.Errorf("SecretBelow(%q, true) = %v", row.name, got)
		}
	}
	at.Home = "/srv/people/u"
	if at.SecretBelow("/srv", false) == "" || at.SecretBelow("/srv/people/u/src", false) != "" {
		t.Error("SecretBelow is not relative to the home directory")
	}
}

func TestGlobAndNames(t *testing.T) {
	at := tree("/w/b.go", "/w/a.go", "/w/.hid", "/w/sub", "/w/sub/c.go", "/w/x[1]")
	for pattern, want := range map[string]string{
		"/w/*.go": "/w/a.go /w/b.go", "/w/*": "/w/a.go /w/b.go /w/sub /w/x[1]", "/w/.*": "/w/.hid", "/w/*/c.*": "/w/sub/c.go", "/w/none": "/w/none", "/w/n*": "", "/w/[": "", "/w/[.]hid": "/w/.hid",
	} {
		names, all := at.Glob(pattern)
		if got := strings.Join(names, " "); got != want || !all {
			t.Errorf("Glob(%q) = %q, want %q", pattern, got, want)
		}
	}
	for name, want := range map[string]bool{"/w/a.go": true, "/w/none": false, "/w/sub": true} {
		if at.Exists(name) != want {
			t.Errorf("Exists(%q) = %v", name, !want)
		}
	}
	for name, want := range map[string]bool{"/w/a": true, "/w": true, "/wx": false, "/": false} {
		trusting := at
		trusting.Trusted = []string{"/w"}
		if trusting.BelowAny(trusting.Real(name), trusting.Trusted) != want || at.BelowAny(at.Real(name), at.Trusted) {
			t.Errorf("%q below a trusted directory: not %v, or true without trusted directories", name, want)
		}
	}
}

func TestNamesOfDirectory(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b", ".a", "c"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if names, err := (Place{}).Names(dir); err != nil || strings.Join(names, " ") != ".a b c" {
		t.Errorf("Names = %q, %v", names, err)
	}
}

func TestNameMatches(t *testing.T) {
	for _, row := range []struct {
		name     string
		patterns []string
		want     bool
	}{
		{"a.go", nil, true}, {"a.go", []string{}, false}, {"a.go", []string{"*.md", "*.GO"}, true}, {"A.md", []string{"a.*"}, true}, {"a.go", []string{"*.md"}, false}, {"a.go", []string{"[a-"}, false},
	} {
		if got := NameMatches(row.name, row.patterns); got != row.want {
			t.Errorf("NameMatches(%q, %q) = %v", row.name, row.patterns, got)
		}
	}
}

func TestSecretByPlace(t *testing.T) {
	for dir, want := range map[string]bool{
		"/w/src": false, "/home/u": false, "/home/u/.docker": true, "/proc/1": true, "/run/secrets": true, "/etc/SSL/private": true, kitbagDir() + "/keys": true,
	} {
		if got := SecretByPlace(dir); got != want {
			t.Errorf("SecretByPlace(%q) = %v", dir, got)
		}
	}
}

func TestSecretGlob(t *testing.T) {
	for _, row := range []struct {
		glob        string
		secret, may bool // may is MayBeSecret of its last name
	}{
		{"/w/.env*", true, true}, {"/w/id_*", true, true}, {"/w/*.key", true, true}, {"/w/*.go", false, false}, {"/w/*", false, true}, {"/w/*.json", false, true}, {"/w/cred*", true, true},
		{"/proc/*/environ", true, false}, {"/proc/1/env*", true, false}, {"/proc/1/stat*", false, false}, {"/w/environ", false, false},
		{"/home/u/.ssh/*", true, true}, {"/home/u/.s*/id_rsa", true, true}, {"/home/u/.s*/x", true, false}, {"/home/u/.ss*/x.pub", false, false}, {"/home/*/.aws/x", true, false}, {"/home/u/.a[w]s/x", true, false},
		{"/home/u/.cargo/cred*", true, true}, {"/home/u/.c[a]rgo/cred*", true, true}, {"/home/u/.c[a]rgo/conf*", false, false}, {"/home/u/.*", true, true}, {"/etc/wireguard/y*", true, false}, {"/w/src/m*", false, true},
		{"/home/u/.do[c]ker/config.json", true, false}, {"/etc/wire*/x", true, false}, {"/e[t]c/wireguard/x", true, false}, {"/etc/*/x", false, false}, {"/run/s*crets/db", true, false},
		{"/home/u/.config/helm/reg*.json", true, false}, {"/home/u/.config/helm/plug*.yaml", false, false}, {"/home/u/.config/helm/registry.*", true, false}, {"/home/u/.m2/set*.xml", true, false}, {"/home/u/.m[2]/settings.xml", true, false}, {"/home/u/.cargo/c*.toml", true, false},
		{"/proc/*/me[m]", true, false}, {"/proc/kc*", true, false}, {"/home/u/.do[c]ker/x", false, false},
	} {
		if got := SecretGlob(row.glob) != ""; got != row.secret {
			t.Errorf("SecretGlob(%q) = %v", row.glob, got)
		}
		if got := MayBeSecret(row.glob[strings.LastIndexByte(row.glob, '/')+1:]); got != row.may {
			t.Errorf("MayBeSecret of %q = %v", row.glob, got)
		}
	}
}

func TestSecretVariables(t *testing.T) {
	for name, want := range map[string]bool{
		"PGPASSWORD": true, "pgpassword": true, "GH_TOKEN": true, "MY_API_KEY": true, "STRIPE_SECRET": true, "NPM_AUTH": true, "PATH": false, "HOME": false, "KEYBOARD": false, "TOKENIZER": false, "MONKEY": false, "DATABASE_URL": true, "XTOKEN": true, "ADMIN_PWD_HASH": true,
	} {
		if got := SecretVariable(name); got != want {
			t.Errorf("SecretVariable(%q) = %v", name, got)
		}
	}
}

// TestSecretAmong compares what a directory shows with the names of its files one by one.
func TestSecretAmong(t *testing.T) {
	names := []string{"a", ".env", "prod.env", "ENV", "id_rsa", "mem", "environ", "keychains", "cookies", "kubernetes", "sudoers.d", "secrets", ".ssh", ".aws", "config.json", "credentials", "work_key", "kitbag", "Server.KEY", "private", "Keychains", "live"}
	own := kitbagDir()
	for _, dir := range []string{"/", "/home/u", "/home/u/.ssh", "/home/u/.docker", "/home/u/.config", "/proc", "/proc/1", "/etc", "/etc/ssl", "/etc/letsencrypt", "/Users/u/Library", "/library", "/run", "/dev", "/snap", "/tmp", filepath.Dir(own), own, own + "/keys"} {
		for _, name := range names {
			at := Place{ReadDir: func(string) ([]string, error) { return []string{"zz", name}, nil }}
			want := SecretName(strings.TrimSuffix(dir, "/") + "/" + name)
			if got := at.SecretAmong(dir, true, nil); got != want {
				t.Errorf("%s in %s: %q, want %q", name, dir, got, want)
			}
		}
	}
}
