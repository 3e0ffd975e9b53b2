package mcpgateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/kitbag-go/kitbag/internal/lazy"
	"github.com/kitbag-go/kitbag/internal/mcpupstream"
	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/tool"
)

// illegalInNames matches what model APIs refuse in the name of a tool or a field.
var illegalInNames = lazy.Regexp(`[^A-Za-z0-9_.-]`)

// groupName makes a group name of a name that a person or a server chose.
func groupName(s string) string {
	return illegalInNames().ReplaceAllString(s[:min(len(s), maxGroupName)], "_")
}

// prefixOf begins the names of a server's tools.
func prefixOf(server string) string { return strings.ReplaceAll(groupName(server), ".", "_") + "__" }

// An upstream is a server behind the gateway.
type upstream struct {
	client   *mcpclient.Client
	name     string // as configured
	group    string // for what is in no other group
	prefix   string
	labeled  bool            // its own groups are used
	sessions *sessionClients // sessions have a process of their own; nil if they share one
	onListed func()          // called when a server that labels its tools was listed before its groups

	onItems   func() // called when the server is first known to have prompts or resources
	announced atomic.Bool

	limit int // of a result, in bytes

	abandoned abandonedCalls

	audience *audience

	mu         sync.Mutex
	questions  map[string]int    // open ones, by credential
	groupNames map[string]string // its own groups, by its names for them
	items      map[mcpupstream.Kind]itemList

	failed map[mcpupstream.Kind]failure // to list prompts or resources; "" is of all kinds
	labels []mcpclient.Group            // of the last groups/list; nil before
	raw    []tool.Tool                  // what clean was made of
	clean  []tool.Tool
}

func newUpstream(cfg mcpclient.Server, labeled, perSession bool, listed, known func()) (*upstream, error) {
	cfg.Options.Prefix = prefixOf(cfg.Name)
	if cfg.Options.Limits.Result == 0 {
		cfg.Options.Limits.Result = maxResult
	}
	if cfg.Options.Limits.Samples == 0 {
		cfg.Options.Limits.Samples = math.MaxInt // the host has limits of its own
	}
	u := &upstream{name: cfg.Name, group: groupName(cfg.Name), prefix: cfg.Options.Prefix, labeled: labeled, onListed: listed, onItems: known, limit: cfg.Options.Limits.Result, questions: map[string]int{},
		audience: &audience{sessions: map[*mcpserver.Logger]bool{}, busy: map[string]int{}, abandoned: map[string]bool{}}}
	ask, sample := u.elicit, u.sample
	if perSession || cfg.Options.Stateless {
		// Every question belongs to the only session.
		ask, sample = mcpclient.ElicitCaller, mcpclient.SampleCaller
	}
	if cfg.Options.Elicitation == nil {
		cfg.Options.Elicitation = ask
	}
	if cfg.Options.Sampling == nil {
		cfg.Options.Sampling = sample
	}
	if perSession {
		u.sessions = &sessionClients{cfg: cfg, share: maxSessionClients, clients: map[<-chan struct{}]*mcpclient.Client{}, byCredential: map[string]int{}}
	}
	if cfg.Options.Log == nil {
		cfg.Options.Log = u.audience.onLogMessage
	}
	var err error
	if u.client, err = mcpclient.New(cfg.Name, cfg.Transport, &cfg.Options); err != nil {
		return nil, err
	}
	u.audience.client = u.client
	return u, nil
}

// tools returns the server's tools with clean texts. The slice stays the same while the server's
// list does.
func (u *upstream) tools(ctx context.Context) ([]tool.Tool, error) {
	raw, err := u.client.Tools(ctx)
	if err != nil {
		return nil, withoutStderr(ctx, err)
	}
	u.announceItems()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.clean == nil || !sameSlice(raw, u.raw) {
		u.raw, u.clean = raw, make([]tool.Tool, len(raw))
		for i, t := range raw {
			u.clean[i] = &proxied{t, cleanInfo(t.Info()), u}
		}
	}
	if u.labeled && u.labels == nil {
		u.onListed()
	}
	return u.clean, nil
}

// announceItems calls onItems once when the server is known to have prompts or resources:
// clients that search for tools see more then, and no call of theirs announces it.
func (u *upstream) announceItems() {
	if st := u.client.Status(); st.PromptsVersion+st.ResourcesVersion > 0 && !u.announced.Swap(true) {
		u.onItems()
	}
}

// withoutStderr moves the stderr of the server's process from an error to the gateway's log: one
// process serves all sessions, so that it may be about another session, or hold a key.
func withoutStderr(ctx context.Context, err error) error {
	se, ok := errors.AsType[*mcpclient.ServerError](err)
	if !ok || se.Stderr == "" {
		return err
	}
	slog.WarnContext(ctx, "an MCP server failed", "server", se.Server, "err", se.Err, "stderr", se.Stderr)
	without := *se
	without.Stderr = ""
	return &without
}

// sameSlice reports whether two lists are the same slice: the client replaces its list when it
// changes.
func sameSlice[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// A source is the part of a server that a group has.
type source struct {
	*upstream
	keep             func(name string) bool
	hideInstructions bool // the configuration has instructions, which replace the server's
}

// Name is the server's name, for errors.
func (s *source) Name() string { return s.name }

// Instructions are the server's instructions, or a notice that a failed server's tools are
// missing.
func (s *source) Instructions() string {
	st := s.client.Status()
	if err := st.Err; err != nil {
		if se, ok := errors.AsType[*mcpclient.ServerError](err); ok {
			err = se.Err // without its stderr
		}
		return fmt.Sprintf("The MCP server %q cannot be used now, so that tools of it may be missing: %s", clean(s.name, maxLine), clean(err.Error(), maxLine))
	}
	text := clean(strings.TrimSpace(st.Instructions), maxInstructions)
	if text == "" || s.hideInstructions {
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

// refreshLabels requests the server's groups.
func (u *upstream) refreshLabels(ctx context.Context) error {
	groups, err := u.client.Groups(ctx)
	if err != nil {
		return fmt.Errorf("list the groups of %q: %w", u.name, err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.labels = groups; groups == nil {
		u.labels = []mcpclient.Group{} // not nil: it was asked and has none
	}
	return nil
}

// currentLabels returns the groups of the last groups/list.
func (u *upstream) currentLabels() []mcpclient.Group {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.labels
}
