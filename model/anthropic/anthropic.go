// Package anthropic speaks the Messages API of Anthropic's Claude models: at Anthropic itself,
// on Amazon Bedrock and Google Vertex AI, and at gateways that have the same API.
//
//	m, err := anthropic.New(anthropic.Config{Model: "claude-opus-5-5", Key: key})
//	m, err := anthropic.FromEnv() // ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL, KITBAG_MODEL
//
// A [*Model] is a [model.Model]: it neither retries nor falls back; see package
// model/middleware for that.
//
// # Thinking
//
// All blocks of an answer are kept unchanged in an extra of the message and sent back in later
// requests: thinking with its signatures, redacted thinking, citations, and the blocks of server
// tools, in their order. The API refuses thinking if the system prompt, the tools or a message
// before it has changed. Such thinking is left out. All thinking of a message is left out if the
// message was edited, goes to another model, or was refused by the server. Texts and tool calls are
// always sent back.
//
// # Prompt caching
//
// Up to four cache breakpoints are set: after the tools, after the system prompt, after the summary
// that a compaction left, and at the end of the conversation. Without a summary the fourth one
// marks the end of the previous request, so that a step with many results still finds it in the
// cache.
//
// # History of other models
//
// Every request is one that the API accepts, whichever model wrote the conversation: user and
// assistant take turns, each tool call has its result at the start of the next message, text is
// never blank, ids and names have legal characters only. Extras for other providers are left out.
//
// A property of a tool with a name that the API refuses, such as "$top", has another name on the
// wire. Its calls are yielded with the tool's own names, when their arguments are complete.
//
// # Tools that are added late
//
// Current models accept changes of the tools at the end of the conversation. The list of tools at
// its head then stays the same when a group opens or closes: a system message in the conversation
// adds tools with their definitions, and removes tools by their names. If the server refuses such a
// message, the model sends the whole list from then on.
//
// # Bedrock and Vertex
//
// The clouds have the same requests and answers in envelopes of their own, and credentials of their
// own. A Transport of [Config.HTTPClient] can translate and sign the requests; no key is needed
// then. The directory examples/anthropicclouds has such a Transport for each of the two clouds.
package anthropic

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"

	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/internal/again"
	"github.com/kitbag-go/kitbag/model/internal/provider"
)

// A Model is a Claude model. It is safe for concurrent use.
type Model struct {
	cfg     Config // with its defaults
	header  http.Header
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

// New returns a model. It fails on a missing model name, on an invalid base URL or setting, and on
// a missing key, unless the server is on this machine, a header holds a key, or the client may sign
// the requests. It does not contact the server.
func New(cfg Config) (*Model, error) {
	cfg, host, err := cfg.complete()
	if err != nil {
		return nil, fmt.Errorf("anthropic: %w", err)
	}
	m := &Model{cfg: cfg, header: newHeader(&cfg)}
	m.origin = host + " " + cfg.Model // only the same model can read its thinking
	if cfg.LateTools != nil {
		m.reveals = *cfg.LateTools
	} else {
		m.reveals = cfg.BaseURL == defaultBaseURL && takesLateTools(cfg.Model)
	}
	return m, nil
}

// Name returns the name of the model, as the server knows it.
func (m *Model) Name() string { return m.cfg.Model }

// Server returns the host of Config.BaseURL, and its port.
func (m *Model) Server() (host string, port int) { return provider.Server(m.cfg.BaseURL) }

// ContextWindow returns Config.ContextWindow.
func (m *Model) ContextWindow() int { return m.cfg.ContextWindow }

// Generate sends the request and streams the answer. The first delta of a tool call has its id and
// its name. Each range over the sequence sends the request again. An error ends the sequence: a
// [*model.Error], or one that wraps the error of ctx.
func (m *Model) Generate(ctx context.Context, req *model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		if err := m.generate(ctx, req, yield); err != nil && !errors.Is(err, errStopped) {
			yield(nil, err)
		}
	}
}

// generate sends the request, again if it is refused and can be sent in another form, and continues
// an answer that the server pauses.
func (m *Model) generate(
	ctx context.Context, req *model.Request, yield func(model.Chunk, error) bool,
) error {
	for try := 1; ; try++ {
		b, err := m.encode(req)
		if err != nil {
			return &model.Error{Kind: model.KindInvalidRequest, Message: err.Error(), Err: err}
		}
		a := &answer{yield: yield, origin: m.origin, prefix: b.prefix,
			names: b.names, renames: b.renames, conversation: req.Messages}
		err = m.ask(ctx, b, a)
		for err == nil && a.paused() {
			next := *b
			next.turns = append(slices.Clip(b.turns), turn{roleAssistant, a.soFar()})
			a.resume()
			err = m.ask(ctx, &next, a)
		}
		if err == nil || len(a.blocks) > 0 || !m.refused.learn(b, req.Messages, err) {
			provider.Remedy(err, "ANTHROPIC", m.cfg.keySource(), m.cfg.BaseURL, m.cfg.Model)
			return err
		}
		again.Notify(ctx, try, 0, err)
	}
}
