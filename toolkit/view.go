package toolkit

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/tool"
)

// A View is what a model is shown at one step and what the calls of its answer
// run against. It is immutable, and safe for concurrent use.
type View struct {
	tk        *Toolkit
	scope     *Scope
	body      *body
	refreshes uint64             // Toolkit.refreshes before the view was made
	control   func() []tool.Tool // makes the control tools, bound to the scope, on first use
}

// A body is the part of a view that scopes in equal states share.
type body struct {
	c        *catalogue
	r        *scopeState
	infos    []tool.Info // of the visible tools, control tools included
	digest   func() string
	prompt   string
	reminder func() string // computed on first use, as is digest
	skipped  []Skipped
}

// View returns what is visible in the scope now; if nothing has changed, the same view as before. It fetches the lists of
// sources that are needed and due. A source that fails is in [View.Skipped]; an error means that the context has ended.
func (tk *Toolkit) View(ctx context.Context, s *Scope) (*View, error) {
	if v := tk.cachedView(s); v != nil {
		return v, nil
	}
	refreshes := tk.refreshes.Load() // before the lists are loaded, so that a Refresh in the meantime is noticed
	c, r, version, err := tk.loadState(ctx, s)
	if err != nil {
		return nil, err
	}
	b, err := tk.bodyOf(ctx, c, s, r)
	if err != nil {
		return nil, err
	}
	v := &View{tk: tk, scope: s, body: b, refreshes: refreshes}
	v.control = sync.OnceValue(func() []tool.Tool { return tk.controlTools(c, s, b.r) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.version == version { // the scope has not changed in the meantime
		s.lastView = v
	}
	return v, nil
}

// loadState returns a catalogue with the lists that the scope needs, the scope's resolved state, and the scope's
// version. If the configuration changes while lists are fetched, it starts again, as other lists may be needed.
func (tk *Toolkit) loadState(ctx context.Context, s *Scope) (*catalogue, *scopeState, uint64, error) {
	c := tk.current.Load()
	for {
		st, version := s.snapshot(c)
		r := c.resolve(st)
		next, err := tk.load(ctx, c, c.neededSources(r))
		switch {
		case err != nil:
			return nil, nil, 0, err
		case next == c:
			return c, r, version, nil
		case next.prompt == c.prompt: // only the lists differ: withLists keeps the prompt
			return next, next.resolve(st), version, nil
		}
		c = next
	}
}

// cachedView returns the scope's last view, or nil if anything may have changed since. What predicates return may always
// have changed.
func (tk *Toolkit) cachedView(s *Scope) *View {
	s.mu.Lock()
	v := s.lastView
	s.mu.Unlock()
	if v == nil || v.tk != tk || v.refreshes != tk.refreshes.Load() {
		return nil
	}
	c := v.body.c
	listsDue := !c.due.IsZero() && !time.Now().Before(c.due)
	if c != tk.current.Load() || len(c.predicates) > 0 || listsDue {
		return nil
	}
	return v
}

// Tools returns the visible tools, in the order in which the model gets them.
// The slice is shared and must not be changed.
func (v *View) Tools() []tool.Info { return v.body.infos }

// Digest identifies the list that Tools returns: equal digests mean equal lists, also in different processes.
func (v *View) Digest() string { return v.body.digest() }

// Prompt returns what the system prompt says about the toolkit. It does not change while groups open and close.
func (v *View) Prompt() string { return v.body.prompt }

// Reminder returns the instructions and skills of the open groups, to repeat them after compaction. It is empty if
// no group is open.
func (v *View) Reminder() string { return v.body.reminder() }

// Skipped returns the tools, sources and skills that could not be loaded, and why.
func (v *View) Skipped() []Skipped { return slices.Clone(v.body.skipped) }

// Advance moves the scope to the phase that follows successful calls of the named tools, in order; see
// [Setting.Next]. Call it once per model answer. Names of tools that could not be called have no effect.
func (v *View) Advance(names ...string) {
	b := v.body
	next := ""
	for _, name := range names {
		phase := b.c.phaseAfter(name, b.r)
		if phase == "" && b.c.control.Caller != "" {
			// The call itself may have listed the tool's source, so the view does not have the tool.
			now := v.tk.current.Load()
			phase = now.phaseAfter(name, now.resolve(b.r.state))
		}
		next = cmp.Or(phase, next)
	}
	if next == "" {
		return
	}
	changeOf := v.tk.trackChange(b.c, v.scope)
	v.scope.SetPhase(next)
	v.tk.notify(changeOf(nil))
}

// phaseAfter returns the phase to which a successful call of the tool moves the scope; empty if the phase stays or the
// tool cannot be called.
func (c *catalogue) phaseAfter(name string, r *scopeState) string {
	if len(r.predicates) != len(c.predicates) { // r was only resolved
		c.evalPredicates(r)
	}
	if e, ok := c.find(name, c.callState(r)); ok {
		return e.setting.Next
	}
	return ""
}

// newDigest returns a function that computes the digest of the list once: of the control tools, then of the entries, or
// of both sorted by name. It hashes the cached hashes of entries, so that opening a group does not hash all schemas again.
func newDigest(controls []tool.Info, entries []*entry, sorted bool) func() string {
	return sync.OnceValue(func() string {
		h := sha256.New()
		for _, i := range controls {
			sum := infoSum(i)
			h.Write(sum[:])
		}
		for _, e := range entries {
			h.Write(e.sum()[:])
		}
		if sorted { // the same tools in another order are another list
			h.Write([]byte("by name"))
		}
		return hex.EncodeToString(h.Sum(nil)[:16])
	})
}

func infoSum(i tool.Info) [sha256.Size]byte {
	data, err := json.Marshal(i)
	if err != nil {
		// The schema is not JSON, which checkTool rejects.
		data = []byte(i.Name + err.Error())
	}
	return sha256.Sum256(data)
}

// sum returns the hash of the tool's definition.
func (e *entry) sum() *[sha256.Size]byte {
	if p := e.hash.Load(); p != nil {
		return p
	}
	sum := infoSum(e.tool.Info())
	e.hash.Store(&sum)
	return &sum
}

// bodyOf evaluates the predicates and returns the body of the state, from the cache if possible.
func (tk *Toolkit) bodyOf(ctx context.Context, c *catalogue, s *Scope, r *scopeState) (*body, error) {
	panicked := c.evalPredicates(r)
	key := bodyKey{c.gen, r.key()}
	if b := tk.bodies.get(key); b != nil {
		return b, nil
	}
	b := &body{c: c, r: r, skipped: slices.Clone(c.skipped)}
	for _, e := range panicked {
		b.skipped = append(b.skipped, Skipped{Tool: e.name, Reason: "its predicate panicked"})
	}
	if err := c.fillPrompt(ctx, b); err != nil { // first, as the tool Skill is listed only if there are skills
		return nil, err
	}
	b.infos, b.digest = tk.toolInfos(c, s, r)
	tk.bodies.put(key, b)
	return b, nil
}

// toolInfos returns the definitions of the visible tools in a state, and a function that returns the list's digest.
func (tk *Toolkit) toolInfos(c *catalogue, s *Scope, r *scopeState) (infos []tool.Info, digest func() string) {
	controls, entries := tk.controlInfos(c, s, r), c.list(r)
	infos = append(make([]tool.Info, 0, len(controls)+len(entries)), controls...)
	for _, e := range entries {
		infos = append(infos, e.tool.Info())
	}
	if c.rules.order == byName {
		slices.SortFunc(infos, func(a, b tool.Info) int { return strings.Compare(a.Name, b.Name) })
	}
	return infos, newDigest(controls, entries, c.rules.order == byName)
}

// A bodyCache caches bodies, and is cleared when it is full.
type bodyCache struct {
	mu     sync.Mutex
	bodies map[bodyKey]*body
}

type bodyKey struct {
	gen   uint64 // of the catalogue
	state string // see scopeState.key
}

// bodyCacheSize is the number of bodies at which the cache is full.
const bodyCacheSize = 128

func (bc *bodyCache) get(k bodyKey) *body {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	return bc.bodies[k]
}

func (bc *bodyCache) put(k bodyKey, b *body) {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	if len(bc.bodies) >= bodyCacheSize || bc.bodies == nil {
		bc.bodies = make(map[bodyKey]*body)
	}
	bc.bodies[k] = b
}

func (bc *bodyCache) clear() {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	bc.bodies = nil
}
