package anthropic

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/internal/loopback"
	"github.com/kitbag-go/kitbag/model/internal/provider"
)

const (
	defaultBaseURL   = "https://api.anthropic.com"
	defaultMaxTokens = 32_000 // within the limits of all models since Claude 4
)

// A Config configures a Model. Model is required. So is Key, except for a server on this machine,
// and with an HTTPClient whose Transport signs the requests.
type Config struct {
	Model   string // the server's name for the model, such as "claude-opus-5-5"
	BaseURL string // without "/v1/messages"; empty means https://api.anthropic.com
	Key     string // sent as x-api-key

	ContextWindow int // in tokens; 0 if unknown

	// MaxTokens limits the answers to requests that have no limit of their own, thinking included.
	// The API requires a limit; 0 means 32,000, or more if the budget for thinking needs it.
	MaxTokens int

	Thinking Thinking // the zero value means the model's default
	Effort   string   // "low" to "max", sent as output_config.effort; empty means the default

	Cache Cache // how long the provider keeps the beginning of a conversation

	// LateTools says whether tools can be added and removed at the end of a conversation (inline
	// tools, a beta feature); see [model.Revealer]. Nil means yes for models on Anthropic's own
	// server that are known to support it.
	LateTools *bool

	// ServerTools are tools that the server runs, in the API's form, such as {"type":
	// "web_search_20250305", "name": "web_search"}. They precede the tools of a request.
	ServerTools []json.RawMessage

	Betas []string // sent as anthropic-beta

	// Extra holds members for every request. They replace what this package sets; null removes a
	// member. The request's own Extra replaces these. A reasoning_effort, the name in chat
	// completions, is sent as output_config.effort.
	Extra map[string]json.RawMessage

	// Header holds further headers. They replace those of this package.
	Header http.Header

	// HTTPClient sends the requests. Its Timeout must be 0. If it has no CheckRedirect, it follows
	// no redirect to another host, where the key would go. Nil means a client with the
	// environment's proxies that keeps many idle connections.
	//
	// If its Transport is not an *http.Transport, no key is required: the Transport may sign the
	// requests.
	HTTPClient *http.Client

	// HeaderTimeout limits the wait for an answer to begin; 0 means 5 minutes. IdleTimeout limits
	// the silence within an answer; 0 means 2 minutes. There is no limit on the total time of a
	// stream.
	HeaderTimeout time.Duration
	IdleTimeout   time.Duration
}

// Thinking configures the model's thinking.
type Thinking struct {
	Mode    ThinkingMode
	Budget  int    // in tokens, at least 1,024; with ThinkingBudget
	Display string // "summarized" or "omitted"; empty means the model's default
}

// ThinkingMode is the kind of thinking.
type ThinkingMode string

// The modes. Which of them can be used depends on the model.
const (
	ThinkingDefault  ThinkingMode = ""         // the model's default
	ThinkingAdaptive ThinkingMode = "adaptive" // the model decides how much; since Claude 4.6
	ThinkingBudget   ThinkingMode = "enabled"  // up to Budget tokens; until Claude 4.6
	ThinkingOff      ThinkingMode = "disabled"
)

// Cache says how long the provider keeps the beginning of a conversation for the next request.
type Cache string

// The values of Cache.
const (
	CacheShort Cache = ""    // five minutes
	CacheHour  Cache = "1h"  // an hour, which costs more to write
	CacheOff   Cache = "off" // no cache breakpoints
)

// FromEnv returns the model that ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY and KITBAG_MODEL name. It
// fails as New does, and its errors name the variables.
func FromEnv() (*Model, error) {
	return New(Config{
		BaseURL: os.Getenv("ANTHROPIC_BASE_URL"),
		Key:     os.Getenv("ANTHROPIC_API_KEY"),
		Model:   os.Getenv("KITBAG_MODEL"),
	})
}

// check returns an error for a setting that the API would refuse in each request.
func (cfg *Config) check() error {
	if err := cfg.Thinking.check(cfg.MaxTokens); err != nil {
		return err
	}
	switch {
	case !slices.Contains([]Cache{CacheShort, CacheHour, CacheOff}, cfg.Cache):
		return fmt.Errorf("Cache %q is unknown; use %q, %q or empty for five minutes",
			cfg.Cache, CacheHour, CacheOff)
	case cfg.HeaderTimeout < 0 || cfg.IdleTimeout < 0:
		return fmt.Errorf("HeaderTimeout is %v and IdleTimeout %v; they must not be negative, "+
			"and 0 means the default", cfg.HeaderTimeout, cfg.IdleTimeout)
	case cfg.MaxTokens < 0:
		return fmt.Errorf("MaxTokens is %d; it must not be negative", cfg.MaxTokens)
	}
	for i, raw := range cfg.ServerTools {
		if !json.Valid(raw) || kindOf(raw) == "" {
			return fmt.Errorf("ServerTools[%d] is not a JSON object with a type: %.60s", i, raw)
		}
		var t struct {
			Control json.RawMessage `json:"cache_control"`
		}
		_ = json.Unmarshal(raw, &t)                    // it is an object
		if t.Control != nil && cfg.Cache != CacheOff { // it would be one breakpoint too many
			return fmt.Errorf("ServerTools[%d] has cache_control; leave it out, or set Cache to %q",
				i, CacheOff)
		}
	}
	return nil
}

// check returns an error for a setting that the API would refuse with a limit of maxTokens, which
// may be 0 for the default.
func (t Thinking) check(maxTokens int) error {
	modes := []ThinkingMode{ThinkingDefault, ThinkingAdaptive, ThinkingBudget, ThinkingOff}
	thinks := t.Mode == ThinkingAdaptive || t.Mode == ThinkingBudget
	switch {
	case t.Mode == ThinkingBudget && t.Budget < minBudget:
		return fmt.Errorf("Thinking.Budget is %d; the API requires at least %d tokens",
			t.Budget, minBudget)
	case maxTokens > 0 && t.Budget >= maxTokens:
		return fmt.Errorf("Thinking.Budget is %d; it must be below MaxTokens, which is %d",
			t.Budget, maxTokens)
	case t.Mode != ThinkingBudget && t.Budget != 0:
		return fmt.Errorf("Thinking.Budget is set; it needs the mode %q", ThinkingBudget)
	case !slices.Contains(modes, t.Mode):
		return fmt.Errorf("Thinking.Mode %q is unknown; use %q, %q, %q or empty",
			t.Mode, ThinkingAdaptive, ThinkingBudget, ThinkingOff)
	case t.Display != "" && !thinks:
		return fmt.Errorf("Thinking.Display is set; it needs the mode %q or %q",
			ThinkingAdaptive, ThinkingBudget)
	}
	return nil
}

// complete returns the configuration with its defaults, and the host of the server. It fails as New
// does.
func (cfg Config) complete() (_ Config, host string, err error) {
	if cfg.Model == "" {
		return cfg, "", errors.New("no model; set Config.Model (KITBAG_MODEL) to a name the server " +
			"knows, such as claude-opus-5-5")
	}
	base := strings.TrimSuffix(strings.TrimRight(cmp.Or(cfg.BaseURL, defaultBaseURL), "/"), "/v1")
	u, err := url.Parse(base)
	if err != nil || !isWebURL(u) {
		return cfg, "", fmt.Errorf("base URL %q is not an http or https URL such as %s",
			provider.PublicURL(cfg.BaseURL), defaultBaseURL)
	}
	cfg.Header = provider.CanonicalHeader(cfg.Header)
	if err := cfg.check(); err != nil {
		return cfg, "", err
	}
	if !cfg.hasKey() && !cfg.signs() && !isLocal(u.Hostname()) {
		return cfg, "", fmt.Errorf("no key for %s; set ANTHROPIC_API_KEY, or Config.Key in Go; only a "+
			"server on this machine (ANTHROPIC_BASE_URL) needs none, "+
			"and a Config.HTTPClient whose Transport signs the requests", u.Host)
	}
	cfg.BaseURL = base
	cfg.ServerTools = slices.Clone(cfg.ServerTools)
	for i, raw := range cfg.ServerTools { // without white space at the end; see setBreakpoints
		cfg.ServerTools[i], _ = json.Marshal(raw) // check has found it valid
	}
	minTokens := cfg.Thinking.Budget + defaultMaxTokens/2
	cfg.MaxTokens = cmp.Or(cfg.MaxTokens, max(defaultMaxTokens, minTokens))
	cfg.HeaderTimeout = cmp.Or(cfg.HeaderTimeout, 5*time.Minute)
	cfg.IdleTimeout = cmp.Or(cfg.IdleTimeout, 2*time.Minute)
	cfg.HTTPClient = provider.ClientOr(cfg.HTTPClient)
	return cfg, u.Host, nil
}

func isWebURL(u *url.URL) bool {
	return u.Host != "" &&
		(u.Scheme == "http" || u.Scheme == "https")
}

// isLocal reports whether a host is this machine.
func isLocal(host string) bool {
	return loopback.Host(host) || strings.HasSuffix(host, ".localhost")
}

func (cfg *Config) hasKey() bool {
	return cfg.Key != "" || cfg.Header.Get("X-Api-Key") != "" ||
		cfg.Header.Get("Authorization") != ""
}

// signs reports whether the client may sign the requests.
func (cfg *Config) signs() bool {
	if cfg.HTTPClient == nil || cfg.HTTPClient.Transport == nil {
		return false
	}
	_, plain := cfg.HTTPClient.Transport.(*http.Transport)
	return !plain
}

// keySource names the setting that the key comes from.
func (cfg *Config) keySource() string {
	if !cfg.hasKey() && cfg.signs() {
		return "Config.Key (ANTHROPIC_API_KEY), or the credentials of Config.HTTPClient"
	}
	return provider.KeySource(cfg.Header, "ANTHROPIC", "X-Api-Key", "Authorization")
}
