package redact

import "slices"

// Rules returns the built-in rules. They are for credentials with a form of
// their own, which is written down somewhere, and for the places where others
// usually stand: a header, a URL, an environment variable.
//
// None looks at what follows: what comes after the required length belongs to
// the secret as long as it could. Nor at what stands before it, unless the form
// would be found within words.
func Rules() []Rule { return slices.Clone(builtin) }

var builtin = []Rule{
	{"private-key", `-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?:[A-Za-z0-9+/=\\\s:,.]|-[A-Za-z0-9])*(?:-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----)?`,
		"RFC 7468 sections 10 and 11, RFC 4880 section 6.2; without its end too, for output that was cut"},
	{"jwt", `eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`,
		"RFC 7519 section 3.1: base64url of a header and of claims, both JSON objects"},
	{"authorization", `(?i)\b(?:proxy-)?authorization["'\\]*\s*[:=]\s*["'\\]*[a-z]+\s+[a-z0-9._~+/-]{6,}=*`,
		"RFC 9110 section 11.4: scheme and token68"},
	{"bearer", `(?i)\bbearer\s+[a-z0-9._~+/-]{16,}=*`,
		"RFC 6750 section 2.1"},
	{"url-password", `://[^\s/?#:@"'<>\[\]]*:[^\s/?#@"'<>\[\]]{2,}@`,
		"RFC 3986 section 3.2.1: user information with a password"},
	{"env", `(?:PASSWORD|PASSWD|PASSPHRASE|SECRET|TOKEN|API_?KEY|ACCESS_KEY|PRIVATE_KEY|CREDENTIALS?)(?:_[A-Z0-9]+)*=(?:"[^"$\n\[]{4,}"?|'[^'\n\[]{4,}'?|[^\s"'$\[(<{;&|][^\s"';&|]{3,})`,
		"POSIX.1-2017 XBD section 8.1: names of environment variables are in capital letters"},
	{"aws-secret", `(?i)\baws_?(?:secret_?access_?key|session_?token)["'\\]*\s*[:=]\s*["'\\]*[a-z0-9/+=]{30,}`,
		"AWS SDKs and Tools Reference Guide, shared credentials file"},
	{"aws-key-id", `(?:AKIA|ASIA)[A-Z2-7]{16}`,
		"AWS IAM User Guide, IAM identifiers, unique ID prefixes"},
	{"azure-key", `(?i)\b(?:AccountKey|SharedAccessKey|SharedAccessSignature)=[a-z0-9+/%=&.:-]{20,}`,
		"Azure documentation, configure storage connection strings"},
	{"google-key", `AIza[A-Za-z0-9_-]{35}`,
		"Google Cloud documentation, manage API keys"},
	{"google-oauth", `(?:ya29\.[A-Za-z0-9._-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,})`,
		"Google Identity documentation, OAuth 2.0 token size and client secrets"},
	{"github-token", `(?:gh[pousr]_[A-Za-z0-9_]{20,}|github_pat_[A-Za-z0-9_]{22,})`,
		"GitHub documentation, about authentication, token formats"},
	{"gitlab-token", `gl(?:pat|oas|dt|rt|cbt|ptt|ft|imt|agent|soat|ffct|wt)-[A-Za-z0-9_.-]{20,}`,
		"GitLab documentation, token overview, token prefixes"},
	{"openai-key", `\bsk-[A-Za-z0-9_-]{20,}`,
		"OpenAI, Anthropic, OpenRouter and others: API keys begin with sk-"},
	{"huggingface-token", `\bhf_[A-Za-z0-9]{30,}`,
		"Hugging Face Hub documentation, user access tokens"},
	{"slack-token", `(?:xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,})`,
		"Slack API documentation, token types"},
	{"slack-webhook", `hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/_-]{20,}`,
		"Slack API documentation, incoming webhooks: keep the URL secret"},
	{"stripe-key", `(?:[rs]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/=]{20,})`,
		"Stripe documentation, API keys and webhook signatures"},
	{"npm-token", `npm_[A-Za-z0-9]{36,}`,
		"npm documentation, about access tokens"},
	{"pypi-token", `pypi-[A-Za-z0-9_-]{32,}`,
		"PyPI help, API tokens"},
	{"docker-token", `dckr_(?:pat|oat)_[A-Za-z0-9_-]{20,}`,
		"Docker documentation, access tokens"},
	{"digitalocean-token", `do[opr]_v1_[a-f0-9]{64}`,
		"DigitalOcean API documentation, token prefixes"},
	{"sendgrid-key", `\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}`,
		"Twilio SendGrid documentation, API keys"},
	{"vault-token", `hv[bsr]\.[A-Za-z0-9_-]{20,}`,
		"HashiCorp Vault documentation, tokens, token prefixes"},
	{"age-key", `AGE-SECRET-KEY-1[A-Z0-9]{58}`,
		"age specification (C2SP), the X25519 recipient type"},
}
