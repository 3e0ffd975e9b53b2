package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/internal/mcpupstream"
	"github.com/kitbag-go/kitbag/internal/policycheck"
	"github.com/kitbag-go/kitbag/mcpserver/internal/park"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A Config configures a [Server]. Toolkit, Name and Version are required.
type Config struct {
	Toolkit       *toolkit.Toolkit
	Name, Version string
	Title         string // for people; may be empty

	// Instructions are for the host's model. They precede the instructions of the toolkit's basic group.
	// MaxInstructions is the limit for both together, in bytes; 0 is 16 KiB. Longer text is cut off.
	Instructions    string
	MaxInstructions int

	// Policy decides about calls. nil is the zero policy, which asks the host about every call except calls of
	// control tools. It must not be changed afterwards. New returns an error if a rule names a tool that does not
	// exist and the name is similar to that of an existing tool, or if a tool cannot read the pattern of a rule.
	Policy *permission.Policy

	// Prompts and Resources are served in addition to the skills of the toolkit.
	Prompts   []Prompt
	Resources []Resource

	// Middleware wraps every call; the first is the outermost.
	Middleware []tool.Middleware

	// MaxListBytes is for clients from protocol revision 2026-07-28 on, whose list of tools must not change. If the
	// definitions of all tools that such a client may see have at most this many bytes, its list contains them all,
	// labelled with their groups; otherwise it contains the tools of [toolkit.Discover]. To find out, the server
	// contacts all sources. 0 is 16 KiB for a toolkit without sources. For a toolkit with sources 0 means the same
	// as a negative number: the list never contains all tools.
	MaxListBytes int

	// PageSize is the largest number of tools or groups in a page of a list; 0 is no limit.
	PageSize int

	// Credentials are the credentials of HTTP clients. If there are any, each client must send one.
	Credentials []Credential

	// Hosts are names of the HTTP server, without port, in addition to localhost and loopback addresses. Origins,
	// such as "https://app.example.com", are those from which a browser may send requests, in addition to origins
	// on these hosts.
	Hosts, Origins []string

	Limits Limits

	// Audit, unless nil, is called after every call, before its answer is sent. It must be safe
	// for concurrent use.
	Audit func(Record)

	upstream mcpupstream.Provider // set by [mcpupstream.Attach]; nil for none
}

// A Credential is a token that clients over HTTP must send. It determines what they may see and do.
type Credential struct {
	Name  string // unique; for audit records
	Token string // "Authorization: Bearer TOKEN"; 16 bytes or more

	// Ceiling limits what its sessions may see; the zero Ceiling is no limit.
	Ceiling toolkit.Ceiling

	// Policy, unless nil, replaces Config.Policy.
	Policy *permission.Policy
}

// Limits limit what one client, or all clients together, may use. Fields that are zero have the defaults.
type Limits struct {
	Request  int           // bytes of a message; 4 MiB by default
	Sessions int           // open sessions over HTTP; 4096 by default
	Share    int           // sessions of one credential; by default a quarter of Sessions, or all of them if there is only one credential
	Calls    int           // requests in flight in a session; 64 by default. All clients of a credential together can have 16 times as many, and so can all clients without a credential
	Idle     time.Duration // how long a session without streams and requests is kept; 30 min by default
	Write    time.Duration // how long a client may leave a message unread over HTTP; 30 s by default
	Resume   time.Duration // how long a call continues without a connection, and an answer is kept; 1 min by default
	Ask      time.Duration // how long a client may take to answer a question; 10 min by default
}

func (l Limits) withDefaults(credentials int) Limits {
	number := func(n *int, d int) {
		if *n == 0 {
			*n = d
		}
	}
	duration := func(n *time.Duration, d time.Duration) {
		if *n == 0 {
			*n = d
		}
	}
	number(&l.Request, 4<<20)
	number(&l.Sessions, 4096)
	if credentials > 1 {
		number(&l.Share, max(1, l.Sessions/4))
	}
	number(&l.Share, l.Sessions)
	number(&l.Calls, 64)
	duration(&l.Idle, 30*time.Minute)
	duration(&l.Write, 30*time.Second)
	duration(&l.Resume, time.Minute)
	duration(&l.Ask, 10*time.Minute)
	return l
}

// MinToken is the smallest length of the token of a [Credential], in bytes.
const MinToken = 16

func (c *Config) check() error {
	switch {
	case c.Toolkit == nil:
		return errors.New("Config.Toolkit is nil; set it to the toolkit to serve")
	case strings.TrimSpace(c.Name) == "" || strings.TrimSpace(c.Version) == "":
		return errors.New("Config.Name or Config.Version is empty; both are required")
	case c.PageSize < 0:
		return fmt.Errorf("Config.PageSize is %d; it must not be negative (0: no pages)", c.PageSize)
	}
	for i, cred := range c.Credentials {
		switch {
		case cred.Name == "":
			return fmt.Errorf("credential %d has no name; give it one for audit records", i)
		case len(cred.Token) < MinToken:
			return fmt.Errorf("the token of credential %q is shorter than %d bytes; generate a random one", cred.Name, MinToken)
		case slices.ContainsFunc(c.Credentials[:i], func(o Credential) bool { return o.Name == cred.Name || o.Token == cred.Token }):
			return fmt.Errorf("credential %q has the same name or token as another credential", cred.Name)
		}
	}
	return nil
}

// A Server serves one toolkit to any number of clients. It is safe for concurrent use.
type Server struct {
	cfg    Config
	limits Limits
	static *static

	resources []*resource
	completes bool // whether any argument can be completed

	lot  *park.Lot
	stop []func()

	ctx    context.Context // cancelled by Close
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu            sync.Mutex
	closed        bool
	sessions      map[string]*session         // sessions over HTTP, by id
	scopes        map[*toolkit.Scope]*session // sessions of all kinds
	shared        map[string]*session         // the shared sessions of clients without sessions, by credential
	owners        map[*Credential]*owner      // the key nil is for clients without credentials
	listening     map[*session]bool           // clients without sessions that listen for updates of resources
	pendingChange toolkit.Change              // changes that the next recheck handles
	sweep         *time.Timer                 // ends idle sessions; nil while there are no sessions over HTTP
}

// New returns a server. The caller must call Close.
func New(cfg Config) (*Server, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("mcpserver: %w", err)
	}
	cfg.Credentials = slices.Clone(cfg.Credentials)
	if cfg.Policy == nil {
		cfg.Policy = &permission.Policy{}
	}
	if cfg.MaxInstructions == 0 {
		cfg.MaxInstructions = 16 << 10
	}
	s := &Server{
		cfg: cfg, limits: cfg.Limits.withDefaults(len(cfg.Credentials)),
		sessions: map[string]*session{}, scopes: map[*toolkit.Scope]*session{}, shared: map[string]*session{}, owners: map[*Credential]*owner{nil: newOwner(1)}, listening: map[*session]bool{},
	}
	for i := range cfg.Credentials {
		s.owners[&cfg.Credentials[i]] = newOwner(len(cfg.Credentials))
	}
	var err error
	if s.lot, err = park.NewLot(s.limits.Ask); err != nil {
		return nil, fmt.Errorf("mcpserver: %w", err)
	}
	if s.static, err = newStatic(cfg.Toolkit, cfg.MaxListBytes); err != nil {
		return nil, fmt.Errorf("mcpserver: the list for clients without sessions: %w", err)
	}
	if err = errors.Join(s.checkItems(), s.checkPolicies()); err != nil {
		return nil, fmt.Errorf("mcpserver: %w", err)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.stop = append(s.stop, cfg.Toolkit.OnChange(s.changed))
	if cfg.upstream != nil {
		s.stop = append(s.stop, cfg.upstream.OnChange(s.upstreamChanged))
	}
	return s, nil
}

// checkItems checks the prompts and resources.
func (s *Server) checkItems() error {
	s.cfg.Prompts = slices.Clone(s.cfg.Prompts)
	completes := func(a Argument) bool { return a.Complete != nil }
	_, s.completes = s.cfg.upstream.(mcpupstream.Completer)
	for i := range s.cfg.Prompts {
		p := &s.cfg.Prompts[i]
		if err := p.check(); err != nil {
			return err
		}
		if slices.ContainsFunc(s.cfg.Prompts[:i], func(o Prompt) bool { return o.Name == p.Name }) {
			return fmt.Errorf("duplicate prompt %q; give each prompt a unique name", p.Name)
		}
		s.completes = s.completes || slices.ContainsFunc(p.Arguments, completes)
	}
	for _, o := range s.cfg.Resources {
		r, err := newResource(o)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(s.resources, func(o *resource) bool { return o.URI == r.URI }) {
			return fmt.Errorf("duplicate resource %q; give each resource a unique URI", r.URI)
		}
		s.resources = append(s.resources, r)
		s.completes = s.completes || slices.ContainsFunc(r.Arguments, completes)
	}
	return nil
}

// checkPolicies reports rules that cannot work with the registered tools. It does not contact sources.
func (s *Server) checkPolicies() error {
	own, listed := s.cfg.Toolkit.Registered()
	// The list for clients without sessions has other control tools.
	searching, _ := s.static.current.Load().short.Registered()
	for _, t := range searching {
		name := t.Info().Name
		if !slices.ContainsFunc(own, func(o tool.Tool) bool { return o.Info().Name == name }) {
			own = append(own, t)
		}
	}
	errs := []error{policycheck.Check(s.cfg.Policy, own, listed, skillTool)}
	for _, c := range s.cfg.Credentials {
		if c.Policy == nil {
			continue
		}
		if err := policycheck.Check(c.Policy, own, listed, skillTool); err != nil {
			errs = append(errs, fmt.Errorf("the policy of credential %q: %w", c.Name, err))
		}
	}
	return errors.Join(errs...)
}

// Close ends all sessions and their calls, and waits for the server's goroutines. It does not
// close the toolkit.
func (s *Server) Close() error {
	for _, stop := range s.stop {
		stop()
	}
	s.mu.Lock()
	s.closed = true
	all := make([]*session, 0, len(s.scopes))
	for _, c := range s.scopes {
		all = append(all, c)
	}
	if s.sweep != nil {
		s.sweep.Stop()
	}
	s.mu.Unlock()
	s.lot.Close()
	s.cancel()
	for _, c := range all {
		c.end()
	}
	s.work.Wait()
	s.lot.Wait()
	return nil
}

// upstreamChanged notifies the clients whose lists of prompts or resources have changed.
func (s *Server) upstreamChanged() {
	s.changed(toolkit.Change{Tools: true}) // recheck then compares all lists
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.listening {
		c.notify(catalogueChanged, true)
	}
}

// changed is called when the toolkit changes, on the goroutine that changed it.
func (s *Server) changed(ev toolkit.Change) {
	if ev.Scope != nil {
		s.mu.Lock()
		c := s.scopes[ev.Scope]
		s.mu.Unlock()
		if c == nil {
			return
		}
		c.notify(c.changesOf(ev)|c.visibleChanges(s.cfg.Toolkit), false)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Many changes may occur at once, for example when a hundred tools are registered: one recheck handles all that
	// are pending.
	scheduled := s.pendingChange.Tools || s.pendingChange.Groups || s.pendingChange.Skills
	s.pendingChange.Tools = s.pendingChange.Tools || ev.Tools
	s.pendingChange.Groups = s.pendingChange.Groups || ev.Groups
	s.pendingChange.Skills = s.pendingChange.Skills || ev.Skills
	if !s.closed && !scheduled {
		s.work.Go(s.recheck)
	}
}

// recheck notifies the sessions whose lists have changed.
func (s *Server) recheck() {
	s.mu.Lock()
	due := s.pendingChange
	s.pendingChange = toolkit.Change{}
	all := make([]*session, 0, len(s.scopes))
	for _, c := range s.scopes {
		all = append(all, c)
	}
	s.mu.Unlock()
	due.Tools = false // the lists of tools are compared below
	s.static.renew(s.cfg.Toolkit)
	for _, c := range all {
		c.notify(c.changesOf(due)|c.visibleChanges(s.cfg.Toolkit)|c.toolsChange(s.ctx), true)
	}
}
