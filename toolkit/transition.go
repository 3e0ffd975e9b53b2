package toolkit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/internal/near"
)

// An Outcome says what a transition did.
type Outcome struct {
	Opened, Closed []string // in the order in which their hooks ran; groups are closed before others are opened
}

// Changed reports whether any group was opened or closed.
func (o Outcome) Changed() bool { return len(o.Opened)+len(o.Closed) > 0 }

func (o Outcome) has(group string) bool {
	return slices.Contains(o.Opened, group) || slices.Contains(o.Closed, group)
}

// A Reason says why a transition was refused.
type Reason string

// The reasons.
const (
	ReasonUnknownGroup Reason = "unknown"  // the group does not exist, or the ceiling does not grant it
	ReasonParentClosed Reason = "parent"   // a parent is not open
	ReasonOverQuota    Reason = "quota"    // too many tools, groups or bytes
	ReasonExcluded     Reason = "excluded" // the group and another requested group exclude each other
	ReasonHookFailed   Reason = "hook"     // a hook of the group returned an error
)

// A GroupError says why a group cannot be opened or closed. Its text is for
// the model; it names no group that the scope's ceiling does not grant.
type GroupError struct {
	Group  string
	Reason Reason
	Others []string // with ReasonUnknownGroup the existing groups, with ReasonParentClosed those to open first, in order, with ReasonExcluded the other group
	Count  int      // with ReasonOverQuota: how many would be open
	Limit  int      // with ReasonOverQuota: how many are allowed
	Unit   string   // with ReasonOverQuota: "tools", "groups" or "bytes"
	Err    error    // with ReasonHookFailed: the hook's error

	alone bool // with ReasonOverQuota: the group exceeds the quota even if only it and its ancestors are open
}

func (e *GroupError) Unwrap() error { return e.Err }

func (e *GroupError) Error() string {
	switch e.Reason {
	case ReasonUnknownGroup:
		if len(e.Others) == 0 {
			return fmt.Sprintf("there is no group %q; there are no groups", e.Group)
		}
		if similar := near.Names(e.Group, e.Others, 1); len(similar) > 0 {
			return fmt.Sprintf("there is no group %q; the nearest is %q", e.Group, similar[0])
		}
		return fmt.Sprintf("there is no group %q; the groups are %s", e.Group, strings.Join(e.Others, ", "))
	case ReasonParentClosed:
		if len(e.Others) == 0 {
			return fmt.Sprintf("group %q cannot be opened here, as it needs a group that you may not open; do without it", e.Group)
		}
		return fmt.Sprintf("group %q needs %s to be open too; nothing was changed: open %s", e.Group, strings.Join(e.Others, " and "),
			strings.Join(append(slices.Clip(e.Others), e.Group), ", then "))
	case ReasonOverQuota:
		return fmt.Sprintf("group %q: %s", e.Group, e.excess())
	case ReasonExcluded:
		return fmt.Sprintf("group %q and group %q cannot be open together; nothing was changed: choose one of them", e.Group, strings.Join(e.Others, ", "))
	default:
		return fmt.Sprintf("group %q could not be opened or closed, and nothing was changed: %v", e.Group, e.Err)
	}
}

// excess describes by how much a quota would be exceeded.
func (e *GroupError) excess() string {
	remedy := "close another group first"
	if e.alone {
		remedy = "it cannot be opened, even alone"
	}
	return fmt.Sprintf("that would make %d %s, and %d are allowed; %s", e.Count, e.Unit, e.Limit, remedy)
}

// An op is the kind of a transition.
type op uint8

const (
	enable op = iota
	disable
	set
)

// A plan is a transition that is checked but not yet carried out.
type plan struct {
	active           []int // the groups that will be open, in order of activation
	closing, opening []int // in the order in which hooks run
}

func (tk *Toolkit) runTransition(ctx context.Context, s *Scope, o op, names []string) (Outcome, error) {
	steps, err := tk.runTransitions(ctx, s, o, names)
	switch {
	case err != nil:
		return Outcome{}, err
	case steps[0].refused != nil:
		return Outcome{}, steps[0].refused
	}
	return steps[0].Outcome, nil
}

// A step is the result of one of several transitions: a change, a refusal, or neither if there was nothing to change.
type step struct {
	Outcome
	groups  []string // as requested
	refused *GroupError
}

// runTransitions carries out one transition for each batch of names, each based on the previous one. It notifies
// listeners once, after the last transition and without holding a lock, so that a listener may start transitions.
func (tk *Toolkit) runTransitions(ctx context.Context, s *Scope, o op, batches ...[]string) (steps []step, err error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	var ev Change
	defer func() { tk.notify(ev) }()
	defer s.end()
	c, err := tk.loadFor(ctx, s, o, batches)
	if err != nil {
		return nil, err
	}
	changeOf := tk.trackChange(c, s)
	defer func() { ev = changeOf(steps) }()
	for _, names := range batches {
		st := step{groups: names}
		p, err := c.plan(c.stored(s), o, names, s.Ceiling())
		if err == nil {
			st.Outcome, err = tk.carryOut(ctx, c, s, p)
		}
		var refused bool
		if st.refused, refused = errors.AsType[*GroupError](err); err != nil && !refused {
			return steps, err
		}
		steps = append(steps, st)
	}
	return steps, nil
}

// carryOut runs the hooks of the plan and then commits it.
func (tk *Toolkit) carryOut(ctx context.Context, c *catalogue, s *Scope, p plan) (Outcome, error) {
	var out Outcome
	if err := c.runHooks(context.WithValue(ctx, hookCtx{s}, true), p); err != nil {
		return out, err
	}
	out.Closed, out.Opened = c.names(p.closing), c.names(p.opening)
	active := c.names(p.active)
	if current, decided := s.Active(); !decided || !slices.Equal(current, active) {
		s.change(func() { // active and byUser are never modified, so snapshots share them
			s.active, s.decided = active, true
			s.byUser = slices.DeleteFunc(slices.Clone(s.byUser), out.has)
		})
	}
	return out, nil
}

func (c *catalogue) names(groups []int) []string {
	var out []string
	for _, i := range groups {
		out = append(out, c.groups[i].Name)
	}
	return out
}

// stored returns the groups that the scope has opened, without those that no longer exist.
func (c *catalogue) stored(s *Scope) []int {
	st, _ := s.snapshot(c)
	var out []int
	for _, name := range st.active {
		if i, ok := c.index[name]; ok && !slices.Contains(out, i) {
			out = append(out, i)
		}
	}
	return out
}

// plan computes a transition. It checks all names before the state of any group, so that the model learns of a wrong
// name first. Names that the ceiling does not grant count as unknown.
func (c *catalogue) plan(active []int, o op, names []string, ceiling Ceiling) (plan, error) {
	groups := make([]int, 0, len(names))
	for _, name := range names {
		i, ok := c.index[name]
		if !ok || !c.grantsGroup(i, ceiling) {
			return plan{}, c.unknownGroup(name, ceiling)
		}
		if !slices.Contains(groups, i) {
			groups = append(groups, i)
		}
	}
	p := plan{active: active}
	var err error
	switch o {
	case enable:
		for _, g := range groups {
			if err = c.planEnable(&p, g, active, ceiling); err != nil {
				return plan{}, err
			}
		}
		err = c.checkAllOpen(p, groups)
	case disable:
		for _, g := range groups {
			c.close(&p, g)
		}
	case set:
		if err = c.planSet(&p, groups, ceiling); err == nil {
			err = c.checkAllOpen(p, groups)
		}
	}
	return p, err
}

// unknown returns the error for a name that does not exist for the scope. It lists the groups
// that the ceiling grants.
func (c *catalogue) unknownGroup(name string, ceiling Ceiling) *GroupError {
	e := &GroupError{Group: name, Reason: ReasonUnknownGroup}
	for i, g := range c.groups {
		if c.grantsGroup(i, ceiling) {
			e.Others = append(e.Others, g.Name)
		}
	}
	return e
}

// planEnable adds the opening of g to the plan: it checks the parents, closes the groups
// that g excludes, and checks the quotas. A group that is already open also
// closes those it excludes, since an exclusion set may have been added later.
func (c *catalogue) planEnable(p *plan, g int, before []int, ceiling Ceiling) error {
	if err := c.checkParents(g, p.active, ceiling); err != nil {
		return err
	}
	q := plan{active: p.active, closing: slices.Clone(p.closing), opening: slices.Clone(p.opening)}
	c.closeOthers(&q, g)
	if !slices.Contains(q.active, g) {
		q.open(g)
		if err := c.checkQuota(g, q.active, before); err != nil {
			return err
		}
	}
	*p = q
	return nil
}

// checkAllOpen fails if opening one of the requested groups has closed another, or an ancestor of another.
func (c *catalogue) checkAllOpen(p plan, requested []int) error {
	for _, g := range requested {
		if slices.Contains(p.active, g) {
			continue
		}
		closesG := func(r int) bool {
			return slices.ContainsFunc(append(c.ancestors(g), g), func(i int) bool { return c.excludes(i, r) })
		}
		others := slices.DeleteFunc(slices.Clone(requested), func(r int) bool { return !closesG(r) })
		return &GroupError{Group: c.groups[g].Name, Reason: ReasonExcluded, Others: c.names(others[len(others)-1:])}
	}
	return nil
}

// checkParents fails if a parent of g is not open. It names only parents that the ceiling grants.
func (c *catalogue) checkParents(g int, active []int, ceiling Ceiling) error {
	missing := c.missing(g, active)
	if len(missing) == 0 {
		return nil
	}
	granted := slices.DeleteFunc(missing, func(i int) bool { return !c.grantsGroup(i, ceiling) })
	return &GroupError{Group: c.groups[g].Name, Reason: ReasonParentClosed, Others: c.names(granted)}
}

// missing returns what must be opened before g, in order.
func (c *catalogue) missing(g int, active []int) []int {
	return slices.DeleteFunc(c.ancestors(g), func(a int) bool { return a != g && slices.Contains(active, a) })
}

// open appends g: the order of activation is the order of the list, and tools that were
// listed before must keep their positions.
func (p *plan) open(g int) {
	p.active = append(slices.Clip(p.active), g)
	p.opening = append(p.opening, g)
}

// close removes g from the plan's groups, after the groups that need g, which stay closed when g is opened again.
func (c *catalogue) close(p *plan, g int) {
	if !slices.Contains(p.active, g) {
		return
	}
	p.active = slices.DeleteFunc(slices.Clone(p.active), func(i int) bool { return i == g })
	for _, child := range c.groups[g].children {
		if slices.Contains(c.groups[child].requiredParents, g) {
			c.close(p, child)
		}
	}
	p.closing = append(p.closing, g)
}

// planSet plans the full desired state. A group that the ceiling does not grant stays open or closed,
// unless a requested group excludes it.
func (c *catalogue) planSet(p *plan, requested []int, ceiling Ceiling) error {
	before := p.active
	wanted := slices.Clone(requested)
	for _, g := range before {
		if !c.grantsGroup(g, ceiling) {
			wanted = append(wanted, g)
		}
	}
	for _, g := range requested {
		if err := c.checkParents(g, wanted, ceiling); err != nil {
			return err
		}
		if i := slices.IndexFunc(requested, func(o int) bool { return c.excludes(g, o) }); i >= 0 {
			return &GroupError{Group: c.groups[g].Name, Reason: ReasonExcluded, Others: c.names(requested[i : i+1])}
		}
	}
	for _, g := range before {
		if !slices.Contains(wanted, g) {
			c.close(p, g)
		}
	}
	for _, g := range c.parentsFirst(requested) {
		if !slices.Contains(p.active, g) {
			c.closeOthers(p, g)
			p.open(g)
		}
	}
	if len(p.opening) > 0 {
		return c.checkQuota(p.opening[len(p.opening)-1], p.active, before)
	}
	return nil
}

func (c *catalogue) excludes(g, other int) bool {
	return slices.ContainsFunc(c.groups[g].exclusive, func(set []int) bool { return slices.Contains(set, other) })
}

func (c *catalogue) closeOthers(p *plan, g int) {
	for _, others := range c.groups[g].exclusive {
		for _, o := range others {
			c.close(p, o)
		}
	}
}

// parentsFirst sorts groups in order of registration, except that each follows its parents.
func (c *catalogue) parentsFirst(groups []int) []int {
	var out []int
	for _, g := range slices.Sorted(slices.Values(groups)) {
		for _, i := range append(c.ancestors(g), g) {
			if slices.Contains(groups, i) && !slices.Contains(out, i) {
				out = append(out, i)
			}
		}
	}
	return out
}

// A measure is what quotas limit. A tool in two open groups counts once. Tools that a phase
// or a predicate hides count, since they may appear without a transition.
type measure struct{ tools, groups, bytes int }

func (c *catalogue) measure(active []int) measure {
	m := measure{groups: len(active)}
	if c.cfg.MaxTools == 0 && c.cfg.MaxBytes == 0 {
		return m
	}
	for n, g := range active {
		for _, e := range c.groups[g].entries {
			if !e.alsoIn(active[:n]) {
				m.tools++
				m.bytes += definitionSize(e.tool.Info())
			}
		}
	}
	return m
}

// overQuota returns the error for the first quota that the open groups exceed. A quota that they exceeded
// before may stay exceeded, but not by more.
func (c *catalogue) overQuota(now, before measure) *GroupError {
	for _, q := range []struct {
		limit, now, before int
		unit               string
	}{
		{c.cfg.MaxTools, now.tools, before.tools, "tools"},
		{c.cfg.MaxGroups, now.groups, before.groups, "groups"},
		{c.cfg.MaxBytes, now.bytes, before.bytes, "bytes"},
	} {
		if q.limit > 0 && q.now > q.limit && (q.now > q.before || c.rules.looseQuota) {
			return &GroupError{Reason: ReasonOverQuota, Count: q.now, Limit: q.limit, Unit: q.unit}
		}
	}
	return nil
}

// checkQuota fails if opening g has made the open groups exceed a quota.
func (c *catalogue) checkQuota(g int, active, before []int) error {
	e := c.overQuota(c.measure(active), c.measure(before))
	if e == nil {
		return nil
	}
	e.Group, e.alone = c.groups[g].Name, c.overQuota(c.measure(append(c.ancestors(g), g)), measure{}) != nil
	return e
}

// runHooks runs the plan's hooks: OnDeactivate, children before parents, then OnActivate, parents before children.
// It stops at the first error, and the scope then does not change. With Compensate it runs the opposite of each hook
// that has run, last first, even if the context has ended.
func (c *catalogue) runHooks(ctx context.Context, p plan) error {
	var undo []func(context.Context) error
	run := func(g int, hook, inverse func(context.Context) error) *GroupError {
		if hook == nil {
			return nil
		}
		if err := call(ctx, hook); err != nil {
			return &GroupError{Group: c.groups[g].Name, Reason: ReasonHookFailed, Err: err}
		}
		if inverse != nil {
			undo = append(undo, inverse)
		}
		return nil
	}
	failed := func() *GroupError {
		for _, g := range p.closing {
			if err := run(g, c.groups[g].OnDeactivate, c.groups[g].OnActivate); err != nil {
				return err
			}
		}
		for _, g := range p.opening {
			if err := run(g, c.groups[g].OnActivate, c.groups[g].OnDeactivate); err != nil {
				return err
			}
		}
		return nil
	}()
	if failed == nil {
		return nil
	}
	if c.cfg.Compensate {
		ctx = context.WithoutCancel(ctx)
		for _, hook := range slices.Backward(undo) {
			if err := call(ctx, hook); err != nil { // in Err, since the result must stay a GroupError
				failed.Err = fmt.Errorf("%w; undoing also failed: %w", failed.Err, err)
			}
		}
	}
	return failed
}

// call runs a hook and returns a panic as an error: a bug in a hook must not end the process.
func call(ctx context.Context, hook func(context.Context) error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the hook panicked: %v", r)
		}
	}()
	return hook(ctx)
}
