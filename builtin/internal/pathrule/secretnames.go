package pathrule

import (
	"slices"
	"strings"
)

// All names are lower case, for comparison; variables are upper case.
var (
	// Base names of files that are secret in any directory.
	secretFiles = []string{
		"id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk", "identity", ".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", ".my.cnf", ".mylogin.cnf",
		".git-credentials", ".envrc", ".htpasswd", ".dockercfg", ".boto", ".s3cfg", ".vault-token", ".databrickscfg", ".terraformrc", ".yarnrc.yml", ".condarc", ".authinfo", ".authinfo.gpg", ".rediscli_auth", ".secrets",
		".sentryclirc", ".msmtprc", ".fetchmailrc", ".mbsyncrc", ".offlineimaprc", ".xauthority", ".iceauthority", ".smbcredentials", "oauth_creds.json", "kaggle.json",
		".bash_history", ".zsh_history", ".zhistory", ".histfile", ".sh_history", ".ash_history", "fish_history", ".python_history", ".node_repl_history", ".psql_history",
		".mysql_history", ".sqlite_history", ".rediscli_history", ".irb_history", ".pry_history", "consolehost_history.txt",
		"shadow", "shadow-", "gshadow", "gshadow-", "sudoers", "master.passwd", "krb5.keytab",
		"credentials.json", "client_secret.json", "client_secrets.json", "service-account.json", "service_account.json", "serviceaccount.json", "application_default_credentials.json",
		"secrets.json", "secrets.yml", "secrets.yaml", "secrets.toml", "secrets.env", "secret.key", "wp-config.php", "rclone.conf", "auth.json", "local.settings.json", ".dev.vars", ".muttrc", ".saml2aws", ".p4tickets", ".cvspass", ".renviron",
		"kubeconfig", "wallet.dat", "login data", "cookies.sqlite", "key4.db", "key3.db", "logins.json", "signons.sqlite", "vault.yml", "vault_pass.txt", ".vault_pass",
		".token", "token.txt", "access_token", "auth_token", "oauth_token", "github_token", "api_key", "api_key.txt", "api_keys.txt", "api-keys.json", "api_keys.json", ".api_key", "apikey", "apikey.txt",
		".secret", "secret.yaml", "secret.yml", "secret.json", "secret.txt", "secrets.txt", "password.txt", "passwords.txt", ".vault-password", ".vault_password", "vault-password.txt", "vault_password.txt", "ansible-vault-pass.txt",
		"deploy_key", "htpasswd", ".dockerconfigjson", "kubeconfig.yaml", "kubeconfig.yml", "cookies.txt", "serviceaccountkey.json", "service-account-key.json", "gcp-key.json", "gcp-credentials.json", "google-credentials.json",
		".curlrc", ".wgetrc", ".prod.vars", ".mongorc.js", ".dbshell", ".viminfo", ".mailrc", "sentry.properties", "cifs-credentials",
		"credentials.csv", "rootkey.csv", "accesskeys.csv", "passwords.csv", "token.json", "token.pickle", "api-key", ".password", "vault-password", "pgpass.conf", "keystore.properties", "k3s.yaml", "kubeconfig.json",
		"sftp-config.json", ".ftpconfig", ".remote-sync.json", "datasources.local.xml", "sasl_passwd", "smbpasswd", "opasswd", "ipsec.secrets", "passwd.client", ".passwd-s3fs", ".lesshst",
		".pg_service.conf", "key.properties", "localsettings.php", "credentials.tfrc.json", "sitemanager.xml", "recentservers.xml", "filezilla.xml", "secring.gpg", "ngrok.yml", ".odbc.ini", ".rclone.conf", "wpa_supplicant.conf",
	}
	// Names and extensions of files that are usual in projects, and do not occur in directories of secrets.
	projectFiles = strings.Fields("readme license changelog contributing makefile dockerfile gemfile rakefile procfile jenkinsfile justfile codeowners authors version " +
		".gitignore .gitattributes .dockerignore .editorconfig .gitmodules .nvmrc .prettierrc .eslintrc go.mod go.sum go.work " +
		"package.json package-lock.json tsconfig.json composer.json deno.json lerna.json nx.json turbo.json cargo.toml cargo.lock pyproject.toml requirements.txt setup.cfg tox.ini pytest.ini " +
		"pubspec.yaml chart.yaml docker-compose.yml docker-compose.yaml compose.yml compose.yaml pnpm-workspace.yaml pnpm-lock.yaml yarn.lock gemfile.lock poetry.lock pom.xml cmakelists.txt")
	projectExts = strings.Fields(".go .md .rst .adoc .rs .py .pyi .js .mjs .cjs .jsx .ts .tsx .mts .vue .svelte .c .h .cc .cpp .cxx .hpp .hh .cs .java .kt .kts .scala .swift .m .mm .rb .php .pl .lua .r .jl .ex .exs " +
		".erl .hs .ml .clj .dart .zig .proto .graphql .html .css .scss .less .svg .sh .bash .sql .tf .mk .cmake .gradle .sbt .bzl .patch .diff")
	// Extensions of files that are keys, or stores of keys.
	secretExts = []string{".key", ".p12", ".pfx", ".jks", ".keystore", ".kdbx", ".kdb", ".ppk", ".keychain", ".keychain-db", ".keytab", ".ovpn", ".agekey", ".p8", ".tfstate", ".tfvars", ".kubeconfig", ".credential", ".1pif"}
	// A .pem file holds a key unless its name contains a text of publicPEM and none of privatePEM. A file with one of
	// keySuffixes holds a key.
	publicPEM   = []string{"cert", "crt", "chain", "bundle", "root", "pub", "issuer", "dhparam", "csr"}
	privatePEM  = []string{"key", "priv"}
	keySuffixes = []string{"_rsa", "_dsa", "_ecdsa", "_ed25519"}
	// All other devices, such as disks, memory and input, are secret.
	readableDevices = strings.Fields("null zero full random urandom stdin stdout stderr tty fd pts ptmx shm console tcp udp")
	// Parts of a path that has a slash added at its end. Each part begins with a hidden name. A part without a slash at
	// its end may match the beginning of a name.
	secretHiddenParts = []string{
		"/.aws/", "/.azure/", "/.kube/", "/.docker/config.json", "/.gnupg/", "/.password-store/", "/.oci/", "/.aliyun/", "/.bluemix/", "/.snowflake/", "/.snowsql/", "/.tsh/", "/.electrum/",
		"/.config/gh/hosts.yml", "/.config/gcloud/", "/.config/rclone/", "/.config/hub/", "/.config/op/", "/.config/git/credentials", "/.config/composer/auth.json", "/.config/containers/auth.json",
		"/.config/helm/registry", "/.config/doctl/", "/.config/hcloud/", "/.config/stripe/", "/.config/configstore/", "/.config/netlify/", "/.config/pypoetry/auth.toml", "/.config/kitbag/",
		"/.config/sops/", "/.config/age/", "/.config/ngrok/", "/.ngrok2/", "/.circleci/cli.yml", "/.gemini/oauth_creds.json", "/.gemini/mcp-oauth-tokens", "/.kaggle/kaggle.json", "/.config/github-copilot/", "/.config/glab-cli/", "/.config/scw/",
		"/.config/linode-cli/", "/.config/msmtp/", "/.config/.wrangler/", "/.wrangler/config/", "/.railway/config.json", "/.supabase/", "/.huggingface/", "/.cache/huggingface/token", "/.cache/huggingface/stored_tokens",
		"/.local/share/com.vercel.cli/", "/.local/share/opencode/auth.json", "/.local/share/atuin/key", "/.dbt/profiles.yml", "/.slack/credentials.json", "/.mc/config.json", "/.vnc/passwd",
		"/.config/google-chrome/", "/.config/chromium/", "/.config/bravesoftware/", "/.config/microsoft-edge/", "/.mozilla/", "/.thunderbird/", "/.var/app/org.mozilla.firefox/",
		"/.local/share/keyrings/", "/.local/share/kwalletd/", "/.local/share/fish/fish_history", "/.cargo/credentials", "/.m2/settings", "/.gem/credentials", "/.terraform.d/credentials", "/.composer/auth.json", "/.codex/auth.json",
		"/.claude/.credentials.json", "/.claude.json/", "/.fly/config.yml", "/.pulumi/credentials.json", "/.gradle/gradle.properties", "/.ivy2/.credentials", "/.sbt/.credentials", "/.bundle/config", "/.heroku/", "/.ansible/vault",
		"/.anthropic/", "/.config/openai/", "/.config/fly/", "/.config/lab/", "/.config/wandb/", "/.vercel/auth.json", "/.pip/pip.conf", "/.config/pip/pip.conf", "/.nuget/nuget.config", "/.chef/", "/.age/", "/.mitmproxy/",
		"/.config/slack/", "/.linode-cli/", "/.purple/accounts.xml", "/.irssi/config", "/.mutt/muttrc", "/.config/opera/", "/.config/vivaldi/", "/.config/1password/", "/.config/bitwarden/", "/.config/keepassxc/", "/.lpass/",
		"/.ethereum/keystore/", "/.config/solana/id.json", "/.near-credentials/", "/.cloudflared/", "/.aws-vault/", "/.okta/", "/.config/pulumi/", "/.argocd/config", "/.config/argocd/config", "/.rancher/", "/.config/tea/",
		"/.config/hut/", "/.jira.d/", "/.twilio-cli/", "/.config/filezilla/", "/.filezilla/", "/.lftp/", "/.local/share/remmina/", "/.local/share/dbeaverdata/", "/.influxdbv2/", "/.subversion/auth/", "/.hex/hex.config",
		"/.config/signal/", "/.config/discord/", "/.config/io.datasette.llm/keys.json", "/.local/share/mkcert/rootca-key.pem", "/.vagrant.d/insecure_private_key",
		"/.netlify/", "/.openai/", "/.cursor/mcp.json", "/.wandb/", "/.nuget/nuget/nuget.config", "/.config/bitwarden cli/", "/.config/firebase/", "/.config/code/user/globalstorage/", "/.jupyter/jupyter_", "/.local/share/jupyter/runtime/",
		"/.stripe/", "/.travis/config.yml", "/.config/jira/", "/.config/glab/", "/.config/helm/repositories.yaml", "/.helm/repository/repositories.yaml", "/.davfs2/secrets", "/.remmina/", "/.ncftp/bookmarks",
		"/.config/evolution/sources/", "/.config/fish/fish_variables", "/.weechat/", "/.getmail/", "/.vscode/sftp.json", "/.sops/age/", "/.config/remmina/", "/.putty/", "/.secrets/", "/.ipython/profile_default/history.sqlite",
		"/.local/state/nvim/shada/", "/.local/share/nvim/shada/",
	}
	// Parts of a path without hidden names.
	secretPlainParts = []string{
		"/library/keychains/", "/library/cookies/", "/library/application support/google/chrome/", "/library/application support/firefox/", "/snap/firefox/", "/run/secrets/", "/etc/ssl/private/",
		"/etc/sudoers.d/", "/etc/letsencrypt/live/", "/etc/letsencrypt/archive/", "/etc/kubernetes/", "/etc/networkmanager/system-connections/", "/etc/wireguard/", "/etc/openvpn/", "/var/spool/cron/", "/etc/mysql/debian.cnf/", "/etc/ppp/chap-secrets/", "/etc/ppp/pap-secrets/", "/etc/wpa_supplicant/", "/etc/rancher/", "/var/lib/jenkins/credentials.xml/",
		"/var/lib/tailscale/", "/var/lib/docker/containers/", "/var/lib/kubelet/", "/var/lib/cloud/", "/run/cloud-init/", "/etc/netplan/", "/etc/cups/printers.conf/",
	}
	// Sample names that a pattern for secrets matches.
	secretSamples = slices.Concat(secretFiles, []string{".env", ".env.local", ".env.production", ".env.development", ".envrc", "prod.env", "key.pem", "private.pem", "terraform.tfstate", "server.key", "tls.key", "store.p12", "store.jks", "x.kdbx"})

	// Environment variables that hold secrets, and words, separated by "_", of the names of such variables.
	secretVariables = []string{"PGPASSWORD", "MYSQL_PWD", "SSHPASS", "GPG_PASSPHRASE", "REDISCLI_AUTH", "DATABASE_URL", "REDIS_URL", "MONGODB_URI", "MONGO_URL", "SENTRY_DSN", "SLACK_WEBHOOK_URL", "NETRC", "_AUTH"}
	secretWords     = []string{"SECRET", "SECRETS", "TOKEN", "TOKENS", "PASSWORD", "PASSWD", "PASSPHRASE", "PASS", "CREDENTIALS", "CREDENTIAL", "CREDS", "APIKEY", "APITOKEN", "AUTH", "JWT", "COOKIE"}
)
