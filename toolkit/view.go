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
	tk    *Toolkit
	scope *Scope
	body  *body
	epoch uint64

	// control returns the control tools, bound to the scope, made on first use.
	control func() []tool.Tool
}

// A body is the part of a view that sessions in equal states share. A view binds it to a scope.
type body struct {
	c     *catalogue
	r     *scopeState
	infos []tool.Info

	prompt   string
	reminder func() string
	skipped  []Skipped
	digest   func() string
}

// View returns what is visible in the scope now. If nothing has changed it returns the same view. It fetches the
// lists of sources that are needed and due; a source that fails is in [View.Skipped], and an error means that the
// context has ended.
func (tk *Toolkit) View(ctx context.Context, s *Scope) (*View, error) {
	if v := tk.cached(s); v != nil {
		return v, nil
	}
	epoch := tk.epoch.Load()
	c, r, version, err := tk.loaded(ctx, s)
	if err != nil {
		return nil, err
	}
	b, err := tk.makeBody(ctx, c, s, r)
	if err != nil {
		return nil, err
	}
	v := &View{tk: tk, scope: s, body: b, epoch: epoch}
	v.control = sync.OnceValue(func() []tool.Tool { return tk.controlTools(c, s, b.r) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.version == version {
		s.last = v
	}
	return v, nil
}

// loaded returns the catalogue with the lists that the scope needs, the scope's resolved state, and the scope's
// version. If the configuration changes while lists are fetched, loaded starts again: other lists may be needed.
func (tk *Toolkit) loaded(ctx context.Context, s *Scope) (*catalogue, *scopeState, uint64, error) {
	c := tk.current.Load()
	for {
		st, version := s.snapshot(c)
		r := c.resolve(st)
		next, err := tk.load(ctx, c, c.needed(r))
		switch {
		case err != nil:
			return nil, nil, 0, err
		case next == c:
			return c, r, version, nil
		case next.prompt == c.prompt: // the same configuration with other lists
			return next, next.resolve(st), version, nil
		}
		c = next
	}
}

// cached returns the scope's last view if nothing has changed since, or nil.
func (tk *Toolkit) cached(s *Scope) *View {
	s.mu.Lock()
	v := s.last
	s.mu.Unlock()
	if v == nil || v.tk != tk || v.epoch != tk.epoch.Load() {
		return nil
	}
	c := v.body.c
	if c != tk.current.Load() || len(c.predicates) > 0 || !c.due.IsZero() && !time.Now().Before(c.due) {
		return nil
	}
	return v
}

// Tools returns the visible tools, in the order in which the model gets them.
// The slice is shared and must not be changed.
func (v *View) Tools() []tool.Info { return v.body.infos }

// Digest identifies the list that Tools returns: equal digests mean equal lists, even in different processes.
func (v *View) Digest() string { return v.body.digest() }

// Prompt returns what the system prompt says about the toolkit. It does not change while groups open and close.
func (v *View) Prompt() string { return v.body.prompt }

// Reminder returns the instructions and skills of the open groups, to repeat them after compaction. It is empty if
// no group is open.
func (v *View) Reminder() string { return v.body.reminder() }

// Skipped returns the tools, sources and skills that could not be loaded, and why.
func (v *View) Skipped() []Skipped { return slices.Clone(v.body.skipped) }

// Advance moves the scope to the phase that follows successful calls of the named tools, in order; see
// [Setting.Next]. Call it once per batch. Names of tools that the view does not show have no effect.
func (v *View) Advance(names ...string) {
	b := v.body
	next := ""
	for _, name := range names {
		if to := b.c.phaseAfter(name, b.r); to != "" {
			next = to
		} else if b.c.control.Caller != "" {
			// The tool's source may have been listed only by the call.
			now := v.tk.current.Load()
			next = cmp.Or(now.phaseAfter(name, now.resolve(b.r.state)), next)
		}
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
	if len(r.predicates) != len(c.predicates) {
		c.evalPredicates(r)
	}
	if e, ok := c.find(name, c.callState(r)); ok {
		return e.setting.Next
	}
	return ""
}

// newDigest returns a function that computes the digest of the list once. It hashes the cached hashes of
// definitions, so that opening a group does not hash a megabyte of schemas again.
func newDigest(head []tool.Info, entries []*entry, sorted bool) func() string {
	return sync.OnceValue(func() string {
		h := sha256.New()
		for _, i := range head {
			sum := infoSum(i)
			h.Write(sum[:])
		}
		for _, e := range entries {
			h.Write(e.sum()[:])
		}
		if sorted {
			h.Write([]byte("by name"))
		}
		return hex.EncodeToString(h.Sum(nil)[:16])
	})
}

func infoSum(i tool.Info) [sha256.Size]byte {
	data, err := json.Marshal(i)
	if err != nil {
		// The schema is not JSON; checkTool rejects such schemas.
		data = []byte(i.Name + err.Error())
	}
	return sha256.Sum256(data)
}

func (e *entry) sum() *[sha256.Size]byte {
	if p := e.hash.Load(); p != nil {
		return p
	}
	sum := infoSum(e.tool.Info())
	e.hash.Store(&sum)
	return &sum
}

// makeBody evaluates the predicates and returns the body of the state.
func (tk *Toolkit) makeBody(ctx context.Context, c *catalogue, s *Scope, r *scopeState) (*body, error) {
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
	b.infos, b.digest = tk.show(c, s, r)
	tk.bodies.put(key, b)
	return b, nil
}

// show returns the list of tools in a state, and a function that returns the list's digest.
func (tk *Toolkit) show(c *catalogue, s *Scope, r *scopeState) ([]tool.Info, func() string) {
	head, entries := tk.controlInfos(c, s, r), c.list(r)
	infos := make([]tool.Info, 0, len(head)+len(entries))
	infos = append(infos, head...)
	for _, e := range entries {
		infos = append(infos, e.tool.Info())
	}
	if c.rules.order == byName {
		slices.SortFunc(infos, func(a, b tool.Info) int { return strings.Compare(a.Name, b.Name) })
	}
	return infos, newDigest(head, entries, c.rules.order == byName)
}

// bodyCache caches bodies by state, and is cleared when it is full.
type bodyCache struct {
	mu   sync.Mutex
	kept map[bodyKey]*body
}

// A bodyKey identifies a body: by the catalogue's generation and the state's key.
type bodyKey struct {
	gen   uint64
	state string
}

// bodyCacheSize is the number of states that are kept; sessions in the same state share one body.
const bodyCacheSize = 128

func (bc *bodyCache) get(k bodyKey) *body {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	return bc.kept[k]
}

func (bc *bodyCache) put(k bodyKey, b *body) {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	if len(bc.kept) >= bodyCacheSize || bc.kept == nil {
		bc.kept = make(map[bodyKey]*body)
	}
	bc.kept[k] = b
}

func (bc *bodyCache) clear() {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	bc.kept = nil
}
