package mcpserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A Config says what is served and to whom. Toolkit, Name and Version are
// required.
type Config struct {
	Toolkit       *toolkit.Toolkit
	Name, Version string
	Title         string // for people; empty for none

	// Instructions are told to the host's model before those of the toolkit's
	// basic group. What is longer than MaxInstructions bytes, 0 being 16 KiB, is
	// cut off.
	Instructions    string
	MaxInstructions int

	// Policy decides about calls; nil is the zero policy, which has the host
	// asked about every call that is not of a control tool. It must not be
	// changed afterwards.
	Policy *permission.Policy

	// Prompts and Resources are offered besides the skills of the toolkit.
	Prompts   []Prompt
	Resources []Resource

	// Offers, unless nil, are prompts and resources that come from elsewhere, besides
	// all others. If they are a [Watcher] clients can subscribe to them, if they are a
	// [Completer] arguments are completed.
	Offers Offers

	// Middleware is around every call; the first is the outermost.
	Middleware []tool.Middleware

	// MaxListBytes is for clients from protocol 2026-07-28 on, whose list must not change. If
	// the definitions of all tools that such a client may see have at most so many bytes, it
	// is served all of them, labelled with their groups; else those of [toolkit.Discover].
	// To know, all sources are contacted. 0 is 16 KiB for a toolkit without sources, and
	// otherwise, like a negative number, never the whole list.
	MaxListBytes int

	// PageSize is how many tools or groups a list holds at most; 0 is all.
	PageSize int

	// Credentials, unless empty, are what HTTP clients must show.
	Credentials []Credential

	// Hosts are the names, without port, under which the HTTP server may be
	// called besides localhost and loopback addresses; Origins are the origins,
	// such as "https://app.example.com", from which browsers may, besides those
	// on such hosts.
	Hosts, Origins []string

	Limits Limits

	// Audit, unless nil, is told of every call when it has ended. It is called
	// from many goroutines and holds up the answer.
	Audit func(Record)
}

// A Credential lets a client in.
type Credential struct {
	Name  string // who it is, for the audit; unique
	Token string // "Authorization: Bearer TOKEN"; 16 bytes or more

	// Ceiling is what its sessions see; the zero Ceiling is everything.
	Ceiling toolkit.Ceiling

	// Policy, unless nil, takes the place of Config.Policy.
	Policy *permission.Policy
}

// Limits are what one client, or all of them, may use up. Zero fields are the
// defaults.
type Limits struct {
	Request  int           // bytes of a message; 4 MiB
	Sessions int           // sessions at the same time, over HTTP; 4096
	Share    int           // of them for one credential; a quarter, or all if there are not two credentials
	Calls    int           // requests at work in a session; 64. All clients of a credential have 16 times that together, and so have all without one
	Idle     time.Duration // after which a session without a stream or a request is ended, a quarter of it or a minute later at most; 30 min
	Write    time.Duration // for which a client may not read, over HTTP; 30 s
	Resume   time.Duration // for which a call of a session goes on without a connection, and an answer is kept; 1 min
	Ask      time.Duration // for which an answer to a question is awaited; 10 min
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

// MinToken is how long the token of a [Credential] must be, in bytes: what is
// shorter can be tried.
const MinToken = 16

func (c *Config) check() error {
	switch {
	case c.Toolkit == nil:
		return errors.New("Config.Toolkit is nil; give it the toolkit to serve")
	case strings.TrimSpace(c.Name) == "" || strings.TrimSpace(c.Version) == "":
		return errors.New("Config.Name or Config.Version is empty; clients want to know both")
	case c.PageSize < 0:
		return fmt.Errorf("Config.PageSize is %d; it must not be negative (0: no pages)", c.PageSize)
	}
	for i, cred := range c.Credentials {
		switch {
		case cred.Name == "":
			return fmt.Errorf("credential %d has no name; give it one for the audit", i)
		case len(cred.Token) < MinToken:
			return fmt.Errorf("the token of credential %q is shorter than %d bytes; generate a random one", cred.Name, MinToken)
		case slices.ContainsFunc(c.Credentials[:i], func(o Credential) bool { return o.Name == cred.Name || o.Token == cred.Token }):
			return fmt.Errorf("credential %q has the name or the token of another one", cred.Name)
		}
	}
	return nil
}

// A Server serves one toolkit to any number of clients. It is safe for
// concurrent use.
type Server struct {
	cfg    Config
	limits Limits
	static *static

	resources []*resource
	completes bool // some argument has completion

	secret [32]byte // signs what clients of the new era must send back
	spent  nonces
	stop   []func()

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	sessions  map[string]*session         // over HTTP, by id
	scopes    map[*toolkit.Scope]*session // of all kinds
	loose     map[string]*session         // the new era's, by credential
	owners    map[*Credential]*owner      // nil is of those without one
	listening map[*session]bool           // to updates of resources, in the new era
	talks     map[string]waitingTalk      // by the nonce of their ticket
	due       toolkit.Change              // what the recheck that is to come is about
	sweep     *time.Timer                 // ends idle sessions; nil while there are none over HTTP
}

// New returns a server. Close it when it is no longer needed.
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
		sessions: map[string]*session{}, scopes: map[*toolkit.Scope]*session{}, loose: map[string]*session{}, owners: map[*Credential]*owner{nil: {share: maxWatched}}, talks: map[string]waitingTalk{}, listening: map[*session]bool{},
	}
	for i := range cfg.Credentials {
		o := &owner{share: maxWatched}
		if len(cfg.Credentials) > 1 {
			o.share /= 4
		}
		s.owners[&cfg.Credentials[i]] = o
	}
	if _, err := rand.Read(s.secret[:]); err != nil {
		return nil, fmt.Errorf("mcpserver: %w", err)
	}
	var err error
	if s.static, err = newStatic(cfg.Toolkit, cfg.MaxListBytes); err != nil {
		return nil, fmt.Errorf("mcpserver: the list for clients without sessions: %w", err)
	}
	if err = s.addOffers(); err != nil {
		return nil, fmt.Errorf("mcpserver: %w", err)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.stop = append(s.stop, cfg.Toolkit.OnChange(s.changed))
	return s, nil
}

// addOffers checks the prompts and resources.
func (s *Server) addOffers() error {
	s.cfg.Prompts = slices.Clone(s.cfg.Prompts)
	completes := func(a Argument) bool { return a.Complete != nil }
	_, s.completes = s.cfg.Offers.(Completer)
	for i := range s.cfg.Prompts {
		p := &s.cfg.Prompts[i]
		if err := p.check(); err != nil {
			return err
		}
		if slices.ContainsFunc(s.cfg.Prompts[:i], func(o Prompt) bool { return o.Name == p.Name }) {
			return fmt.Errorf("two prompts are called %q", p.Name)
		}
		s.completes = s.completes || slices.ContainsFunc(p.Arguments, completes)
	}
	for _, o := range s.cfg.Resources {
		r, err := newResource(o)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(s.resources, func(o *resource) bool { return o.URI == r.URI }) {
			return fmt.Errorf("two resources have the URI %q", r.URI)
		}
		s.resources = append(s.resources, r)
		s.completes = s.completes || slices.ContainsFunc(r.Arguments, completes)
	}
	return nil
}

// Close ends all sessions and their calls, and waits for the server's own
// goroutines. The toolkit is left alone.
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
	for _, t := range s.talks {
		t.timer.Stop()
	}
	if s.sweep != nil {
		s.sweep.Stop()
	}
	s.mu.Unlock()
	s.cancel()
	for _, c := range all {
		c.end()
	}
	s.work.Wait()
	return nil
}

// OffersChanged tells the server that what Config.Offers lists may have changed. Clients
// are told if it has for them.
func (s *Server) OffersChanged() {
	s.changed(toolkit.Change{Tools: true}) // which has everything compared
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.listening {
		c.mark(catalogueChanged, true)
	}
}

// changed hears of changes of the toolkit, in the goroutine that made them.
func (s *Server) changed(ev toolkit.Change) {
	if ev.Scope != nil {
		s.mu.Lock()
		c := s.scopes[ev.Scope]
		s.mu.Unlock()
		if c == nil {
			return
		}
		c.mark(c.marksOf(ev)|c.recount(s.cfg.Toolkit), false)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Many changes may come at once, as when an owner registers a hundred tools: those
	// that nobody has looked at yet are looked at together.
	coming := s.due.Tools || s.due.Groups || s.due.Skills
	s.due.Tools = s.due.Tools || ev.Tools
	s.due.Groups = s.due.Groups || ev.Groups
	s.due.Skills = s.due.Skills || ev.Skills
	if !s.closed && !coming {
		s.work.Go(s.recheck)
	}
}

// recheck looks, after the catalogue has changed, which sessions see other lists
// than they were told of.
func (s *Server) recheck() {
	s.mu.Lock()
	due := s.due
	s.due = toolkit.Change{}
	all := make([]*session, 0, len(s.scopes))
	for _, c := range s.scopes {
		all = append(all, c)
	}
	s.mu.Unlock()
	due.Tools = false // whose list of tools has changed is seen below
	s.static.renew(s.cfg.Toolkit)
	for _, c := range all {
		c.mark(c.marksOf(due)|c.recount(s.cfg.Toolkit)|c.compare(s.ctx), true)
	}
}
