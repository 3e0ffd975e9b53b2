package mcpgateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/kitbag-go/kitbag/internal/lazy"
	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/tool"
)

// notInNames is what model APIs do not take in the name of a tool or a field.
var notInNames = lazy.Regexp(`[^A-Za-z0-9_.-]`)

// groupName makes a name for a group of what a person or a server wrote.
func groupName(s string) string {
	return notInNames().ReplaceAllString(s[:min(len(s), maxGroupName)], "_")
}

// prefixOf is what the names of a server's tools begin with.
func prefixOf(server string) string { return strings.ReplaceAll(groupName(server), ".", "_") + "__" }

// An upstream is a server behind the gateway.
type upstream struct {
	client  *mcpclient.Client
	name    string // as configured
	group   string // of what is in no other group
	prefix  string
	labeled bool   // its own groups are used
	apart   *apart // sessions have a process of their own; nil if they share one
	listed  func() // called when a server that labels its tools was listed, but not asked for its groups yet

	known  func() // called when the server is first known to have prompts or resources
	looked atomic.Bool

	limit int // bytes of a result

	strays strays

	audience *audience

	mu        sync.Mutex
	questions map[string]int    // open ones, by credential
	own       map[string]string // its own groups, by its names for them
	offers    map[mcpserver.OfferKind]offerList

	prompts    []mcpclient.Prompt // what rawPrompts was made of
	rawPrompts []json.RawMessage

	failed map[mcpserver.OfferKind]failure // to list prompts or resources; "" is of all kinds
	labels []mcpclient.Group               // as told last; nil before
	raw    []tool.Tool                     // what clean was made of
	clean  []tool.Tool
}

func newUpstream(cfg mcpclient.Server, labeled, perSession bool, listed, known func()) (*upstream, error) {
	cfg.Options.Prefix = prefixOf(cfg.Name)
	if cfg.Options.Limits.Result == 0 {
		cfg.Options.Limits.Result = maxResult
	}
	if cfg.Options.Limits.Samples == 0 {
		cfg.Options.Limits.Samples = math.MaxInt // the host decides about each
	}
	u := &upstream{name: cfg.Name, group: groupName(cfg.Name), prefix: cfg.Options.Prefix, labeled: labeled, listed: listed, known: known, limit: cfg.Options.Limits.Result, questions: map[string]int{},
		audience: &audience{users: map[*mcpserver.Logger]bool{}, busy: map[string]int{}, strays: map[string]bool{}}}
	ask, sample := u.elicit, u.sample
	if perSession || cfg.Options.Stateless {
		// Whose question it is there can be no doubt.
		ask, sample = mcpclient.ElicitCaller, mcpclient.SampleCaller
	}
	if cfg.Options.Elicitation == nil {
		cfg.Options.Elicitation = ask
	}
	if cfg.Options.Sampling == nil {
		cfg.Options.Sampling = sample
	}
	if perSession {
		u.apart = &apart{cfg: cfg, share: maxApart, clients: map[context.Context]*mcpclient.Client{}, users: map[string]int{}}
	}
	if cfg.Options.Log == nil {
		cfg.Options.Log = u.audience.hear
	}
	var err error
	if u.client, err = mcpclient.New(cfg.Name, cfg.Transport, &cfg.Options); err != nil {
		return nil, err
	}
	u.audience.client = u.client
	return u, nil
}

// tools returns the server's tools with clean words. They stay the same values
// while the server's list stays the same.
func (u *upstream) tools(ctx context.Context) ([]tool.Tool, error) {
	raw, err := u.client.Tools(ctx)
	if err != nil {
		return nil, discreet(ctx, err)
	}
	u.lookAtOffers()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.clean == nil || !sameSlice(raw, u.raw) {
		u.raw, u.clean = raw, make([]tool.Tool, len(raw))
		for i, t := range raw {
			u.clean[i] = &proxied{t, cleanInfo(t.Info()), u}
		}
	}
	if u.labeled && u.labels == nil {
		u.listed()
	}
	return u.clean, nil
}

// lookAtOffers tells of the server, once, if it has prompts or resources: clients whose tools
// are searched see more of those now, and have called nothing that would tell them.
func (u *upstream) lookAtOffers() {
	if st := u.client.Status(); st.PromptsVersion+st.ResourcesVersion > 0 && !u.looked.Swap(true) {
		u.known()
	}
}

// discreet takes out of an error what the server's process wrote to stderr, and puts
// that into the gateway's own log: one process serves all sessions, and its last
// lines may be about somebody else, or hold a key of the owner's.
func discreet(ctx context.Context, err error) error {
	se, ok := errors.AsType[*mcpclient.ServerError](err)
	if !ok || se.Stderr == "" {
		return err
	}
	slog.WarnContext(ctx, "an MCP server failed", "server", se.Server, "err", se.Err, "stderr", se.Stderr)
	return &mcpclient.ServerError{Server: se.Server, Err: se.Err}
}

// sameSlice reports whether two lists are one and the same: the client replaces
// its list when it changes.
func sameSlice[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// A source is what a group has of a server.
type source struct {
	*upstream
	keep  func(name string) bool
	quiet bool // the group has instructions of the owner, which count instead of the server's
}

// Name is the server's, for what is said of it in errors.
func (s *source) Name() string { return s.name }

// Instructions are what the server says of itself, for who uses its tools; of one that
// has failed, that its tools are missing.
func (s *source) Instructions() string {
	st := s.client.Status()
	if err := st.Err; err != nil {
		if se, ok := errors.AsType[*mcpclient.ServerError](err); ok {
			err = se.Err // without what it wrote to stderr
		}
		return fmt.Sprintf("The MCP server %q cannot be used now, so that tools of it may be missing: %s", clean(s.name, maxLine), clean(err.Error(), maxLine))
	}
	text := clean(strings.TrimSpace(st.Instructions), maxInstructions)
	if text == "" || s.quiet {
		return ""
	}
	return fmt.Sprintf("The MCP server %q says of its tools:\n%s", clean(s.name, maxLine), text)
}

func (s *source) Tools(ctx context.Context) ([]tool.Tool, error) {
	all, err := s.tools(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(all), func(t tool.Tool) bool { return !s.keep(t.Info().Name) }), nil
}

// ask asks the server for its groups.
func (u *upstream) ask(ctx context.Context) error {
	groups, err := u.client.Groups(ctx)
	if err != nil {
		return fmt.Errorf("ask %q for its groups: %w", u.name, err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.labels = groups; groups == nil {
		u.labels = []mcpclient.Group{} // it has none, and was asked
	}
	return nil
}

// told returns the groups that the server has told of.
func (u *upstream) told() []mcpclient.Group {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.labels
}
