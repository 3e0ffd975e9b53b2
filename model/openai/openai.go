// Package openai calls models behind an OpenAI-compatible endpoint, by chat completions or the Responses API: OpenAI
// itself, hosted vendors, gateways, and local servers such as Ollama, llama.cpp and vLLM.
//
//	m, err := openai.New(openai.Config{Model: "gpt-5", Key: key})
//	m, err := openai.New(openai.Config{Model: "qwen3", BaseURL: "http://localhost:11434/v1"})
//	m, err := openai.FromEnv() // OPENAI_BASE_URL, OPENAI_API_KEY, KITBAG_MODEL
//
// A [*Model] is a [model.Model]. Package model/middleware retries after failures and falls back to other models.
//
// # Differences between servers
//
// This package accepts what servers really send. Tool-call deltas may interleave, lack an index, or reuse one for a new
// call. Ids that are empty or used twice, in one answer or in the conversation, are replaced. A stream may have
// comments, event names and broken lines, or end without [DONE]; a stream that is cut off is an error, never a short
// answer. An answer may not be a stream at all. Errors of every form become a [*model.Error].
//
// Every request satisfies strict servers too: the result of each tool call directly follows the message with the
// call, in call order; content is never null or empty; arguments are always an object. Files in tool results follow
// in a user message after the results. A character in a tool name that the API refuses, such as the dot of MCP, is
// sent as "_"; the answer has the tool's own name again.
//
// Reasoning text is yielded as thinking, and sent back only where the server requires it: OpenRouter's
// reasoning_details, reasoning_content with tool calls, and Gemini's extra_content. Such extras record the endpoint
// they came from and are not sent to another one.
//
// # The Responses API
//
// OpenAI's current models support tools together with reasoning only in the Responses API. It is the default for them,
// and [Config.API] selects it for other servers. If API is empty, other servers are called by chat completions, or by
// the Responses API if they lack chat completions. The server stores nothing (store is false): reasoning is received
// encrypted, kept as an extra of the message, and sent back in its original order with the calls and texts. If the
// message was edited, or goes to another model or to chat completions, the reasoning is left out. If the server rejects
// reasoning because it is too old, the request is sent again without reasoning, which counts as a retry. Items of the
// server's own tools, which [Config.Extra] can add, are sent back unchanged. A reasoning_effort in an Extra is sent as
// reasoning.effort.
//
// If the server supports it, a tool that was added during a conversation ([model.Reveal]) is sent where it was added:
// the list of tools remains the same, and so the server's prompt cache remains valid. See [Config.LateTools].
//
// # Relation to go-openai
//
// Requests are those that github.com/sashabaranov/go-openai would send: this package uses go-openai's types for tools,
// calls, choices and formats, and a test compares the requests of both packages. They are sent by net/http, since
// go-openai's client encodes the whole conversation for each call, rejects some models by name, and cannot send
// vendors' additions. This package reads the answer itself, because go-openai's reader hides error events and cut-off
// streams, loses Retry-After, and drops members that must go back.
//
// # Caching
//
// A message is encoded once. The model keeps an encoded conversation as long as the caller keeps the conversation's last
// message, up to 64 MiB in total, and a request that continues the conversation encodes only the new messages.
// Therefore a message must not be changed after it was sent. A tool list is encoded once for each [model.Request.Digest].
package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/internal/provider"
)

const defaultBaseURL = "https://api.openai.com/v1"

// A Config configures a Model. Model is required, and so is Key unless the server is local.
type Config struct {
	Model   string // the server's name for the model
	BaseURL string // without "/chat/completions" or "/responses"; empty means https://api.openai.com/v1
	Key     string // sent as a bearer token

	// API is the protocol. Empty means APIResponses for OpenAI's own server, except for its models from before 2025,
	// and for all other servers APIChat, or APIResponses if the server lacks chat completions.
	API API

	// LateTools says whether tools can be added during a conversation, which needs the Responses API
	// (additional_tools); see [model.Revealer]. Nil means yes for OpenAI's own server and its models
	// from gpt-5.4 on that are known to support it.
	LateTools *bool

	Organization string // sent as OpenAI-Organization; empty means none

	ContextWindow int // in tokens; 0 if unknown

	// NoStream asks for answers that are not streamed, for servers that cannot stream, or cannot stream with tools.
	NoStream bool

	// Extra has members for every request, such as "reasoning_effort". They override what this package sets; null
	// removes a member, such as "stream_options" for a server that refuses it. The request's own Extra overrides
	// these.
	Extra map[string]json.RawMessage

	// Header has additional headers for gateways, such as "api-key" for Azure. They override the headers that this
	// package sets. Case does not matter.
	Header http.Header

	// HTTPClient sends the requests. Its Timeout must be 0. If it has no CheckRedirect, it follows no redirect to
	// another host, where the key would go. Nil means a client with the environment's proxies that keeps many idle
	// connections.
	HTTPClient *http.Client

	// HeaderTimeout limits the wait for an answer to begin; 0 means 5 minutes. IdleTimeout limits the silence within
	// an answer; 0 means 2 minutes. There is no limit on the whole answer: a stream may take as long as it needs.
	HeaderTimeout time.Duration
	IdleTimeout   time.Duration
}

// A Model is a model behind an endpoint. It is safe for concurrent use.
type Model struct {
	cfg         Config      // with its defaults set
	keepsHeader bool        // cfg.HTTPClient does not modify a request's header
	lateTools   bool        // Config.LateTools or its default
	noLateTools atomic.Bool // the server has refused tools that were added during a conversation

	protocols [2]*protocol             // that the server may support; the second is nil if the first is known to be supported
	protocol  atomic.Pointer[protocol] // the protocol in use
	proven    atomic.Bool              // the server is known to support the protocol in use
}

// A protocol has what differs between chat completions and the Responses API.
type protocol struct {
	responses bool          // the Responses API, not chat completions
	request   *http.Request // without a body; copied for each exchange
	endpoint  string        // whose extras can be sent back: a host, for the Responses API also a model
	tools     toolCache
	history   history
}

var (
	_ model.Model    = (*Model)(nil)
	_ model.Named    = (*Model)(nil)
	_ model.Windowed = (*Model)(nil)
	_ model.Revealer = (*Model)(nil)
)

// New returns a model. It fails on a missing model name, on an invalid base URL or negative timeout, and on a missing key unless
// the server is local or a header has a key. Local is a loopback or private address, "localhost", a name without dots, or
// one ending in ".local" or ".internal". New does not contact the server.
func New(cfg Config) (*Model, error) {
	if cfg.Model == "" {
		return nil, errors.New("openai: no model; set Config.Model (KITBAG_MODEL) to a name the server knows, such as gpt-5")
	}
	cfg.BaseURL = strings.TrimRight(cmp.Or(cfg.BaseURL, defaultBaseURL), "/")
	u, err := url.Parse(cfg.BaseURL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("openai: base URL %q is not an http or https URL such as %s", provider.PublicURL(cfg.BaseURL), defaultBaseURL)
	}
	if cfg.HeaderTimeout < 0 || cfg.IdleTimeout < 0 {
		return nil, fmt.Errorf("openai: HeaderTimeout is %v and IdleTimeout %v; they must not be negative, and 0 means the default", cfg.HeaderTimeout, cfg.IdleTimeout)
	}
	cfg.Header = provider.CanonicalHeader(cfg.Header)
	if cfg.Key == "" && cfg.Header.Get("Authorization") == "" && cfg.Header.Get("Api-Key") == "" && !isLocal(u.Hostname()) {
		return nil, fmt.Errorf("openai: no key for %s; set OPENAI_API_KEY, or Config.Key in Go; only a local server (OPENAI_BASE_URL) needs none", u.Host)
	}
	cfg.HeaderTimeout = cmp.Or(cfg.HeaderTimeout, 5*time.Minute)
	cfg.IdleTimeout = cmp.Or(cfg.IdleTimeout, 2*time.Minute)
	cfg.HTTPClient = provider.ClientOr(cfg.HTTPClient)
	m := &Model{cfg: cfg, keepsHeader: keepsHeader(cfg.HTTPClient)}
	return m, m.chooseProtocol(u.Host)
}

// chooseProtocol sets the protocols that the server may support, and the protocol of the first request.
func (m *Model) chooseProtocol(host string) error {
	responses, known, err := usesResponses(m.cfg.API, host, m.cfg.Model)
	if err != nil {
		return err
	}
	m.lateTools = responses && supportsLateTools(host, m.cfg.Model)
	if m.cfg.LateTools != nil {
		m.lateTools = *m.cfg.LateTools
	}
	if m.lateTools && !responses {
		return fmt.Errorf("openai: Config.LateTools needs the Responses API; set Config.API (KITBAG_API) to %s", APIResponses)
	}
	if m.protocols[0], err = m.newProtocol(host, responses); err == nil && !known {
		m.protocols[1], err = m.newProtocol(host, !responses)
	}
	m.protocol.Store(m.protocols[0])
	m.proven.Store(known)
	return err
}

func (m *Model) newProtocol(host string, responses bool) (*protocol, error) {
	p := &protocol{responses: responses, endpoint: host, tools: toolCache{responses: responses}, history: history{responses: responses, limit: maxHistory}}
	path := "/chat/completions"
	if responses { // only the model that encrypted the reasoning can read it
		path, p.endpoint = "/responses", host+" "+m.cfg.Model
	}
	var err error
	if p.request, err = newRequest(&m.cfg, path); err != nil {
		return nil, fmt.Errorf("openai: %w", err)
	}
	return p, nil
}

// FromEnv returns the model that OPENAI_BASE_URL, OPENAI_API_KEY, KITBAG_MODEL and
// KITBAG_API configure. It fails as New does.
func FromEnv() (*Model, error) {
	return New(Config{BaseURL: os.Getenv("OPENAI_BASE_URL"), Key: os.Getenv("OPENAI_API_KEY"), Model: os.Getenv("KITBAG_MODEL"), API: API(os.Getenv("KITBAG_API"))})
}

// isLocal reports whether a host is likely to be local. Local servers often need no key.
func isLocal(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.IsLoopback() || ip.IsPrivate() || ip.IsLinkLocalUnicast()
	}
	return !strings.Contains(host, ".") || strings.HasSuffix(host, ".local") || strings.HasSuffix(host, ".internal") ||
		strings.HasSuffix(host, ".localhost")
}

// Name returns the name of the model, as the server knows it.
func (m *Model) Name() string { return m.cfg.Model }

// Server returns the host of Config.BaseURL, and its port.
func (m *Model) Server() (host string, port int) { return provider.Server(m.cfg.BaseURL) }

// ContextWindow returns Config.ContextWindow.
func (m *Model) ContextWindow() int { return m.cfg.ContextWindow }

// Generate sends the request and streams the answer. The first delta of a tool call has the call's id and name. Each
// range over the sequence sends the request again. An error ends the sequence: a [*model.Error], or an error that wraps
// ctx.Err().
func (m *Model) Generate(ctx context.Context, req *model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		p := m.protocol.Load()
		refused, err := m.ask(ctx, p, req, yield)
		if refused && err != nil {
			err = m.askAgain(ctx, p, req, err, yield)
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// ask sends the request by the protocol p and yields the answer. If the server responds with an error status, refused
// is true.
func (m *Model) ask(ctx context.Context, p *protocol, req *model.Request, yield func(model.Chunk, error) bool) (refused bool, err error) {
	body, tools, err := m.encode(p, req)
	if err != nil {
		return false, &model.Error{Kind: model.KindInvalidRequest, Message: err.Error(), Err: err}
	}
	r := &response{answer: answer{endpoint: p.endpoint, tools: tools, conversation: req.Messages, yield: yield}}
	var answerParser parser = r
	if !p.responses {
		answerParser = &r.answer
	}
	x := new(provider.Exchange)
	x.Start(ctx, provider.Limits{Header: m.cfg.HeaderTimeout, Idle: m.cfg.IdleTimeout})
	defer x.Close()
	resp, err := m.do(x.Ctx, p, body)
	if err == nil {
		err = x.Begin(resp)
	}
	if err != nil {
		e, ok := errors.AsType[*model.Error](err)
		return ok && e.Status != 0, x.Explain(err, req.Messages)
	}
	if !m.proven.Load() {
		m.adopt(p)
	}
	if err := read(x, answerParser); err != nil && !errors.Is(err, errStopped) {
		err = x.Explain(err, req.Messages)
		m.remedy(p, err)
		return false, err
	}
	return false, nil
}
