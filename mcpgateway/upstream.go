package mcpgateway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/kitbag-go/kitbag/internal/mcpgroups"
	"github.com/kitbag-go/kitbag/internal/mcpupstream"
	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/tool"
)

// prefixOf returns the beginning of the names of a server's tools.
func prefixOf(server string) string {
	return strings.ReplaceAll(mcpgroups.GroupName(server), ".", "_") + "__"
}

// An upstream is a server behind the gateway.
type upstream struct {
	client *mcpclient.Client
	names
	sessions *sessionClients // nil unless each session has a process of its own
	users    *userClients    // nil unless each user has a connection of their own

	onListed       func() // called when tools were listed while the server's own groups are not known yet
	onItems        func() // called when the server is first known to have prompts or resources
	itemsAnnounced atomic.Bool

	resultLimit int                               // in bytes
	pinListed   atomic.Pointer[func(string) bool] // Options.PinListed of the latest configuration
	cache       *mcpgroups.Cache                  // the names of the server's tools, for the next run

	questions questionCount
	abandoned abandonedCalls
	audience  *audience

	known
}

// names are the names of a server, its group and its tools.
type names struct {
	name    string // as configured
	group   string // the group for tools that are in no other group
	prefix  string // of the names of its tools
	labeled bool   // whether the server's own groups are used
}

// known is what a server has listed.
type known struct {
	mu         sync.Mutex
	groupNames map[string]string // the gateway's names of the server's own groups, by the server's names
	labels     []mcpclient.Group // the result of the last groups/list; nil before the first
	raw        []tool.Tool       // the server's list, from which cleaned was computed
	cleaned    []tool.Tool
	items      map[mcpupstream.Kind]itemList // the last lists
	failed     map[mcpupstream.Kind]failure  // failed lists of prompts or resources; the key "" is for all kinds
}

func newUpstream(cfg mcpclient.Server, tokens *tokenSource, labeled, perSession bool, cacheDir string, onListed, onItems func()) (*upstream, error) {
	cfg.Options.Prefix = prefixOf(cfg.Name)
	if cfg.Options.Limits.Result == 0 {
		cfg.Options.Limits.Result = maxResult
	}
	if cfg.Options.Limits.Samples == 0 {
		cfg.Options.Limits.Samples = math.MaxInt // the host has its own limits
	}
	u := &upstream{names: names{cfg.Name, mcpgroups.GroupName(cfg.Name), cfg.Options.Prefix, labeled}, cache: mcpgroups.OpenCache(cacheDir, cfg),
		onListed: onListed, onItems: onItems, resultLimit: cfg.Options.Limits.Result,
		questions: questionCount{unanswered: map[string]int{}},
		known:     known{items: map[mcpupstream.Kind]itemList{}, failed: map[mcpupstream.Kind]failure{}},
		audience:  &audience{sessions: map[*mcpserver.Logger]bool{}, busy: map[string]int{}, abandoned: map[string]bool{}}}
	elicit, sample := u.elicit, u.sample
	perUser := tokens != nil && tokens.cfg.perUser()
	if perSession || perUser || cfg.Options.Stateless {
		// Every question is for the caller: its connection serves only one session, one user or one call.
		elicit, sample = mcpclient.ElicitCaller, mcpclient.SampleCaller
	}
	if cfg.Options.Elicitation == nil {
		cfg.Options.Elicitation = elicit
	}
	if cfg.Options.Sampling == nil {
		cfg.Options.Sampling = sample
	}
	if tokens != nil {
		cfg.Transport = tokens.gatewayTransport()
	}
	u.pinListed.Store(new(cfg.Options.PinListed))
	cfg.Options.PinListed = func(name string) bool { pin := *u.pinListed.Load(); return pin != nil && pin(name) }
	// Sessions and users get a copy of cfg without the Log below, which is for the shared connection.
	if perSession {
		u.sessions = newSessionClients(cfg, rand.Text())
	}
	if perUser {
		u.users = &userClients{cfg: cfg, tokens: tokens, clients: map[user]*userClient{}}
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

// tools returns the server's tools with clean texts. It returns the same slice until the server's list changes.
func (u *upstream) tools(ctx context.Context) ([]tool.Tool, error) {
	raw, err := u.client.Tools(ctx)
	if err != nil {
		return nil, withoutStderr(ctx, err)
	}
	u.announceItems()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.cleaned == nil || !sameSlice(raw, u.raw) {
		names := make([]string, len(raw))
		u.raw, u.cleaned = raw, make([]tool.Tool, len(raw))
		for i, t := range raw {
			names[i], u.cleaned[i] = t.Info().Name, &proxiedTool{t, cleanInfo(t.Info()), u}
		}
		u.cache.Store(nil, names) // without groups: New lists these again
	}
	if u.labeled && u.labels == nil {
		u.onListed()
	}
	return u.cleaned, nil
}

// announceItems calls onItems once the server is known to have prompts or resources. Clients that find tools with
// search_tools see these items from then on, without opening a group, so that nothing else notifies them.
func (u *upstream) announceItems() {
	if st := u.client.Status(); st.PromptsVersion+st.ResourcesVersion > 0 && !u.itemsAnnounced.Swap(true) {
		u.onItems()
	}
}

// withoutStderr moves the stderr of the server's process from an error to the gateway's log. One process serves
// all sessions, so its stderr may be about another session, or contain a key.
func withoutStderr(ctx context.Context, err error) error {
	se, ok := errors.AsType[*mcpclient.ServerError](err)
	if !ok || se.Stderr == "" {
		return err
	}
	slog.WarnContext(ctx, "an MCP server failed", "server", se.Server, "err", se.Err, "stderr", se.Stderr)
	clone := *se
	clone.Err, clone.Stderr = fmt.Errorf("%w; its stderr is in the gateway's log", se.Err), ""
	return &clone
}

// sameSlice reports whether two lists are the same slice. The client creates a new slice when its list changes.
func sameSlice[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// A source provides the tools of a server that are in one group.
type source struct {
	*upstream
	part mcpgroups.Part
	keep func(name string) bool // whether the tool is in the group
}

// Known returns the names that the tools had in an earlier run, or nil.
func (s *source) Known() []string { return s.part.Known }

// Name returns the server's name, for errors.
func (s *source) Name() string { return s.name }

// Withheld returns why a tool of the server is not listed.
func (s *source) Withheld(tool string) error { return s.client.Withheld(tool) }

// Instructions returns the server's instructions, or a notice that tools are missing because the server has failed.
func (s *source) Instructions() string {
	st := s.client.Status()
	if err := st.Err; err != nil {
		if se, ok := errors.AsType[*mcpclient.ServerError](err); ok {
			err = se.Err // without stderr; see withoutStderr
		}
		return fmt.Sprintf("The MCP server %q cannot be used now, so some of its tools may be missing: %s", clean(s.name, maxLine), clean(err.Error(), maxLine))
	}
	text := clean(strings.TrimSpace(st.Instructions), maxInstructions)
	if text == "" || s.part.HideInstructions {
		return ""
	}
	return fmt.Sprintf("Instructions of the MCP server %q for its tools:\n%s", clean(s.name, maxLine), text)
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
		u.labels = []mcpclient.Group{} // not nil: it is known that there are none
	}
	return nil
}

// currentLabels returns the result of the last groups/list.
func (u *upstream) currentLabels() []mcpclient.Group {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.labels
}
