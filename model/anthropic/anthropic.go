// Package anthropic speaks the Messages API of Anthropic's Claude models, over the vendor's SDK: at
// Anthropic itself, on Amazon Bedrock and Google Vertex AI, and at gateways that have the same API.
//
//	m, err := anthropic.New(anthropic.Config{Model: "claude-opus-5-5", Key: key})
//	m, err := anthropic.FromEnv() // ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL, KITBAG_MODEL
//
// A [*Model] is a [model.Model]: it neither retries nor falls back; see package
// model/middleware for that. The retries of the SDK are off.
//
// # Thinking
//
// All blocks of an answer are kept unchanged in an extra of the message and sent back in later requests: thinking
// with its signatures, redacted thinking, citations, and the blocks of server tools, in their order. The API
// refuses thinking if the system prompt, the tools or a message before it has changed. Such thinking is left out.
// All thinking of a message is left out if the message was edited, goes to another model, or was refused by the
// server. Texts and tool calls are always sent back.
//
// # Prompt caching
//
// Up to four cache breakpoints are set: after the tools, after the system prompt, after the summary that a
// compaction left, and at the end of the conversation. Without a summary the fourth one marks the end of the
// previous request, so that a step with many results still finds it in the cache.
//
// # History of other models
//
// Every request is one that the API accepts, whichever model wrote the conversation: user and assistant take turns,
// each tool call has its result at the start of the next message, text is never blank, ids and names have legal
// characters only. Extras for other providers are left out.
//
// A property of a tool with a name that the API refuses, such as "$top", has another name on the wire. Its calls are
// yielded with the tool's own names, when their arguments are complete.
//
// # Tools that are added late
//
// Current models accept changes of the tools at the end of the conversation. The list of tools at its head then stays the
// same when a group opens or closes: a system message in the conversation adds tools with their definitions, and removes
// tools by their names. If the server refuses such a message, the model sends the whole list from then on.
//
// # Bedrock and Vertex
//
// [Config.Options] takes the options of the SDK's packages bedrock and vertex. With them no key is needed.
package anthropic

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/kitbag-go/kitbag/internal/loopback"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/internal/again"
	"github.com/kitbag-go/kitbag/model/internal/provider"
)

const (
	defaultBaseURL   = "https://api.anthropic.com"
	defaultMaxTokens = 32_000 // within the limits of all models since Claude 4
)

// A Config configures a Model. Model is required, and so is Key, except with Options or for a server on this machine.
type Config struct {
	Model   string // the server's name for the model, such as "claude-opus-5-5"
	BaseURL string // without "/v1/messages"; empty means https://api.anthropic.com
	Key     string // sent as x-api-key

	ContextWindow int // in tokens; 0 if unknown

	// MaxTokens limits the answers to requests that have no limit of their own, thinking included.
	// The API requires a limit; 0 means 32,000, or more if the budget for thinking needs it.
	MaxTokens int

	Thinking Thinking // the zero value means the model's default
	Effort   string   // "low" to "max", sent as output_config.effort; empty means the model's default

	Cache Cache // how long the provider keeps the beginning of a conversation

	// LateTools says whether tools can be added and removed at the end of a conversation (inline tools, a beta
	// feature); see [model.Revealer]. Nil means yes for models on Anthropic's own server that are known to support
	// it.
	LateTools *bool

	// ServerTools are tools that the server runs, in the API's form, such as {"type": "web_search_20250305",
	// "name": "web_search"}. They precede the tools of a request.
	ServerTools []json.RawMessage

	Betas []string // sent as anthropic-beta

	// Extra holds members for every request. They replace what this package sets; null removes a member. The
	// request's own Extra replaces these. A reasoning_effort, the name in chat completions, is sent as
	// output_config.effort.
	Extra map[string]json.RawMessage

	// Header holds further headers. They replace those of this package.
	Header http.Header

	// Options are applied after the options that this package sets; see the examples.
	Options []option.RequestOption

	// HTTPClient sends the requests, usually an *http.Client, whose Timeout must be 0; nil means
	// a client with proxies from the environment and many idle connections.
	HTTPClient option.HTTPClient

	// HeaderTimeout limits the wait for an answer to begin; 0 means 5 minutes. IdleTimeout limits the silence within an
	// answer; 0 means 2 minutes. There is no limit on the total time of a stream.
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
	ThinkingAdaptive ThinkingMode = "adaptive" // the model decides how much; models since Claude 4.6
	ThinkingBudget   ThinkingMode = "enabled"  // up to Budget tokens; models until Claude 4.6
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

// A Model is a Claude model. It is safe for concurrent use.
type Model struct {
	cfg     Config
	client  sdk.Client
	origin  string // host and model, recorded in extras
	reveals bool   // see Config.LateTools
	refused refusals
	tools   provider.ToolCache[toolList]
}

var (
	_ model.Model    = (*Model)(nil)
	_ model.Named    = (*Model)(nil)
	_ model.Served   = (*Model)(nil)
	_ model.Windowed = (*Model)(nil)
	_ model.Revealer = (*Model)(nil)
)

// New returns a model. It fails on a missing model name, on an invalid base URL or setting, and on a missing key
// unless the server is on this machine, a header holds one, or Options are given. It does not contact the server.
func New(cfg Config) (*Model, error) {
	if cfg.Model == "" {
		return nil, errors.New("anthropic: no model; set Config.Model (KITBAG_MODEL) to a name the server knows, such as claude-opus-5-5")
	}
	base := strings.TrimSuffix(strings.TrimRight(cmp.Or(cfg.BaseURL, defaultBaseURL), "/"), "/v1")
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("anthropic: base URL %q is not an http or https URL such as %s", provider.PublicURL(cfg.BaseURL), defaultBaseURL)
	}
	cfg.Header = provider.CanonicalHeader(cfg.Header)
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("anthropic: %w", err)
	}
	if cfg.Key == "" && cfg.Header.Get("X-Api-Key") == "" && cfg.Header.Get("Authorization") == "" && len(cfg.Options) == 0 && !isLocal(u.Hostname()) {
		return nil, fmt.Errorf("anthropic: no key for %s; set ANTHROPIC_API_KEY, or Config.Key in Go; only a server on this machine (ANTHROPIC_BASE_URL) needs none", u.Host)
	}
	cfg.BaseURL = base
	cfg.ServerTools = slices.Clone(cfg.ServerTools)
	for i, raw := range cfg.ServerTools { // without white space at the end; see setBreakpoints
		cfg.ServerTools[i], _ = json.Marshal(raw) // check has found it valid
	}
	cfg.MaxTokens = cmp.Or(cfg.MaxTokens, max(defaultMaxTokens, cfg.Thinking.Budget+defaultMaxTokens/2))
	cfg.HeaderTimeout = cmp.Or(cfg.HeaderTimeout, 5*time.Minute)
	cfg.IdleTimeout = cmp.Or(cfg.IdleTimeout, 2*time.Minute)
	m := &Model{cfg: cfg, client: newClient(&cfg), origin: u.Host + " " + cfg.Model} // only the same model can read its thinking
	if cfg.LateTools != nil {
		m.reveals = *cfg.LateTools
	} else {
		m.reveals = len(cfg.Options) == 0 && base == defaultBaseURL && takesLateTools(cfg.Model)
	}
	return m, nil
}

// check returns an error for a setting that the API would refuse in each request.
func (cfg *Config) check() error {
	switch t := cfg.Thinking; {
	case t.Mode == ThinkingBudget && t.Budget < minBudget:
		return fmt.Errorf("Thinking.Budget is %d; the API requires at least %d tokens", t.Budget, minBudget)
	case cfg.MaxTokens > 0 && t.Budget >= cfg.MaxTokens:
		return fmt.Errorf("Thinking.Budget is %d; it must be below MaxTokens, which is %d", t.Budget, cfg.MaxTokens)
	case t.Mode != ThinkingBudget && t.Budget != 0:
		return fmt.Errorf("Thinking.Budget is set; it needs the mode %q", ThinkingBudget)
	case t.Mode != ThinkingDefault && t.Mode != ThinkingAdaptive && t.Mode != ThinkingBudget && t.Mode != ThinkingOff:
		return fmt.Errorf("Thinking.Mode %q is unknown; use %q, %q, %q or empty", t.Mode, ThinkingAdaptive, ThinkingBudget, ThinkingOff)
	case t.Display != "" && t.Mode != ThinkingAdaptive && t.Mode != ThinkingBudget:
		return fmt.Errorf("Thinking.Display is set; it needs the mode %q or %q", ThinkingAdaptive, ThinkingBudget)
	case cfg.Cache != CacheShort && cfg.Cache != CacheHour && cfg.Cache != CacheOff:
		return fmt.Errorf("Cache %q is unknown; use %q, %q or empty for five minutes", cfg.Cache, CacheHour, CacheOff)
	case cfg.HeaderTimeout < 0 || cfg.IdleTimeout < 0:
		return fmt.Errorf("HeaderTimeout is %v and IdleTimeout %v; they must not be negative, and 0 means the default", cfg.HeaderTimeout, cfg.IdleTimeout)
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
		if _ = json.Unmarshal(raw, &t); t.Control != nil && cfg.Cache != CacheOff { // it would be one breakpoint too many
			return fmt.Errorf("ServerTools[%d] has cache_control; leave it out, or set Cache to %q", i, CacheOff)
		}
	}
	return nil
}

// FromEnv returns the model that ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY and KITBAG_MODEL name. It fails as
// New does, and its errors name the variables.
func FromEnv() (*Model, error) {
	return New(Config{BaseURL: os.Getenv("ANTHROPIC_BASE_URL"), Key: os.Getenv("ANTHROPIC_API_KEY"), Model: os.Getenv("KITBAG_MODEL")})
}

func (m *Model) keySource() string {
	if len(m.cfg.Options) > 0 {
		return "the credentials in Config.Options"
	}
	return provider.KeySource(m.cfg.Header, "ANTHROPIC", "X-Api-Key", "Authorization")
}

// isLocal reports whether a host is this machine.
func isLocal(host string) bool { return loopback.Host(host) || strings.HasSuffix(host, ".localhost") }

// Name returns the name of the model, as the server knows it.
func (m *Model) Name() string { return m.cfg.Model }

// Server returns the host of Config.BaseURL, and its port.
func (m *Model) Server() (host string, port int) { return provider.Server(m.cfg.BaseURL) }

// ContextWindow returns Config.ContextWindow.
func (m *Model) ContextWindow() int { return m.cfg.ContextWindow }

// Generate sends the request and streams the answer. The first delta of a tool
// call has its id and its name. Each range over the sequence sends the request
// again. An error ends the sequence: a [*model.Error], or one that wraps the error of ctx.
func (m *Model) Generate(ctx context.Context, req *model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		if err := m.generate(ctx, req, yield); err != nil && !errors.Is(err, errStopped) {
			yield(nil, err)
		}
	}
}

// generate sends the request, again if it is refused and can be sent in another form, and continues an answer that
// the server pauses.
func (m *Model) generate(ctx context.Context, req *model.Request, yield func(model.Chunk, error) bool) error {
	for try := 1; ; try++ {
		b, err := m.encode(req)
		if err != nil {
			return &model.Error{Kind: model.KindInvalidRequest, Message: err.Error(), Err: err}
		}
		a := &answer{origin: m.origin, prefix: b.prefix, names: b.names, renames: b.renames, conversation: req.Messages, yield: yield}
		err = m.ask(ctx, b, a)
		for err == nil && a.paused() {
			next := *b
			next.turns = append(slices.Clip(b.turns), turn{roleAssistant, a.soFar()})
			a.resume()
			err = m.ask(ctx, &next, a)
		}
		if err == nil || len(a.blocks) > 0 || !m.refused.learn(b, req.Messages, err) {
			provider.Remedy(err, "ANTHROPIC", m.keySource(), m.cfg.BaseURL, m.cfg.Model)
			return err
		}
		again.Notify(ctx, try, 0, err)
	}
}
