package redact

import (
	"fmt"
	"slices"
	"sync"
)

// Rules returns the built-in rules. They find credentials of a documented form, and
// others where they usually appear: in a header, a URL, an environment variable.
//
// A match extends as far as the secret's characters do. A rule requires a word
// boundary before the secret only if its form also occurs within words. At the end
// of a text a part of a secret is enough, since the text may have been cut off.
func Rules() []Rule { return slices.Clone(builtin()) }

// token returns the pattern for a prefix that is followed by at least n
// characters of a class, or at the end of the text by at least 8.
func token(prefix, class string, n int) string {
	return fmt.Sprintf(`%s(?:%s{%d,}|%s{8,}\z)`, prefix, class, n, class)
}

var builtin = sync.OnceValue(func() []Rule {
	return []Rule{
		{"private-key", `-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?:[A-Za-z0-9+/=\\\s:,._]|-[A-Za-z0-9+/=]|(?:Version|Comment|MessageID|Hash|Charset): [^\n\\]*)*(?:-?-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----)?`,
			"RFC 7468 sections 10 and 11, RFC 4880 section 6.2; without its end too, for output that was cut; as grep and diff show it"},
		{"jwt", `eyJ[A-Za-z0-9_-]{8,}\.(?:eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*|[A-Za-z0-9_-]*\z)`,
			"RFC 7519 section 3.1: base64url of a header and of claims, both JSON objects"},
		{"authorization", `(?i)\b(?:proxy-)?authorization["'\\]*\s*[:=]\s*["'\\]*[a-z]+\s+[a-z0-9._~+/-]{6,}=*`,
			"RFC 9110 section 11.4: scheme and token68"},
		{"bearer", `(?i)\bbearer\s+[a-z0-9._~+/-]{16,}=*`,
			"RFC 6750 section 2.1"},
		{"url-password", `://[^\s/?#:@"'<>\[\]]*:[^\s/?#"'<>\[\]]{2,}@`,
			"RFC 3986 section 3.2.1: user information with a password, in which programs accept an @"},
		{"env", `(?:PASSWORD|PASSWD|PASSPHRASE|SECRET|TOKEN|API_?KEY|ACCESS_KEY|PRIVATE_KEY|CREDENTIALS?)(?:_[A-Z0-9]+)*=(?:"[^"$\n\[]{4,}"?|'[^'\n\[]{4,}'?|[^\s"'$\[(<{;&|][^\s"';&|]{3,})`,
			"POSIX.1-2017 XBD section 8.1: names of environment variables are in capital letters"},
		{"aws-secret", `(?i)\b(?:aws_?)?(?:secret_?access_?key|session_?token)["'\\]*\s*[:=]\s*["'\\]*[a-z0-9/+=]{30,}`,
			"AWS SDKs and Tools Reference Guide, shared credentials file; AWS STS API Reference, Credentials, which the AWS CLI prints"},
		{"aws-key-id", `(?:AKIA|ASIA)[A-Z2-7]{16}`,
			"AWS IAM User Guide, IAM identifiers, unique ID prefixes"},
		{"azure-key", `(?i)\b(?:AccountKey|SharedAccessKey|SharedAccessSignature)=[a-z0-9+/%=&.:-]{20,}`,
			"Azure documentation, configure storage connection strings"},
		{"google-key", token(`AIza`, `[A-Za-z0-9_-]`, 35),
			"Google Cloud documentation, manage API keys"},
		{"google-oauth", token(`(?:ya29\.|GOCSPX-)`, `[A-Za-z0-9._-]`, 20),
			"Google Identity documentation, OAuth 2.0 token size and client secrets"},
		{"github-token", token(`(?:gh[pousr]_|github_pat_)`, `[A-Za-z0-9_]`, 20),
			"GitHub documentation, about authentication, token formats"},
		{"gitlab-token", token(`gl(?:pat|oas|dt|rt|cbt|ptt|ft|imt|agent|soat|ffct|wt)-`, `[A-Za-z0-9_.-]`, 20),
			"GitLab documentation, token overview, token prefixes"},
		{"openai-key", token(`\bsk-`, `[A-Za-z0-9_-]`, 20),
			"OpenAI, Anthropic, OpenRouter and others: API keys begin with sk-"},
		{"huggingface-token", token(`\bhf_`, `[A-Za-z0-9]`, 30),
			"Hugging Face Hub documentation, user access tokens"},
		{"slack-token", token(`(?:xox[a-z](?:\.xox[a-z])?|xapp)-`, `[A-Za-z0-9-]`, 10),
			"Slack API documentation, token types"},
		{"slack-webhook", token(`hooks\.slack\.com/(?:services|workflows|triggers)/`, `[A-Za-z0-9/_-]`, 20),
			"Slack API documentation, incoming webhooks: keep the URL secret"},
		{"stripe-key", token(`(?:[rs]k_(?:live|test)|whsec)_`, `[A-Za-z0-9+/=]`, 16),
			"Stripe documentation, API keys and webhook signatures"},
		{"npm-token", token(`npm_`, `[A-Za-z0-9]`, 36),
			"npm documentation, about access tokens"},
		{"pypi-token", token(`pypi-`, `[A-Za-z0-9_-]`, 32),
			"PyPI help, API tokens"},
		{"docker-token", token(`dckr_(?:pat|oat)_`, `[A-Za-z0-9_-]`, 20),
			"Docker documentation, access tokens"},
		{"digitalocean-token", token(`do[opr]_v1_`, `[a-f0-9]`, 64),
			"DigitalOcean API documentation, token prefixes"},
		{"sendgrid-key", `\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}`,
			"Twilio SendGrid documentation, API keys"},
		{"vault-token", token(`hv[bsr]\.`, `[A-Za-z0-9_-]`, 20),
			"HashiCorp Vault documentation, tokens, token prefixes"},
		{"age-key", token(`AGE-SECRET-KEY-1`, `[A-Z0-9]`, 58),
			"age specification (C2SP), the X25519 recipient type"},
	}
})
