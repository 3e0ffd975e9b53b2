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
	Opened, Closed []string // in the order in which hooks ran; all of Closed before Opened
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
	Others []string // with ReasonUnknownGroup: the existing groups; with ReasonParentClosed: the groups to open first, in order; with ReasonExcluded: the other group
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

// runTransition carries out one transition. A refusal is an error.
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

// A step is the result of one of several transitions. If there was nothing to change, Outcome and refused are zero.
type step struct {
	Outcome
	groups  []string // as requested
	refused *GroupError
}

// runTransitions carries out one transition for each batch of names, each based on the previous transition. It notifies
// listeners once, at the end and without holding a lock, so that a listener may start transitions.
func (tk *Toolkit) runTransitions(ctx context.Context, s *Scope, o op, batches ...[]string) (steps []step, err error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	var change Change
	defer func() { tk.notify(change) }() // after s.end
	defer s.end()
	c, err := tk.loadForTransition(ctx, s, o, batches)
	if err != nil {
		return nil, err
	}
	changeOf := tk.trackChange(c, s)
	defer func() { change = changeOf(steps) }()
	for _, names := range batches {
		var out Outcome
		p, err := c.plan(c.activeGroups(s), o, names, s.Ceiling())
		if err == nil {
			out, err = tk.carryOut(ctx, c, s, p)
		}
		refused, isRefusal := errors.AsType[*GroupError](err)
		if err != nil && !isRefusal {
			return steps, err
		}
		steps = append(steps, step{out, names, refused})
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
	if current, transitioned := s.Active(); !transitioned || !slices.Equal(current, active) {
		s.change(func() { // snapshots share active and byUser, so replace both slices
			s.active, s.transitioned = active, true
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

// activeGroups returns the scope's active groups, without those that no longer exist.
func (c *catalogue) activeGroups(s *Scope) []int {
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

// unknownGroup returns the error for a group that does not exist or that the ceiling does not grant. It lists the
// groups that the ceiling grants.
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
// that g excludes, and checks the quotas. If g is already open, it still closes the groups
// that g excludes, since an exclusion set may have been added later. before are the groups open before the transition.
func (c *catalogue) planEnable(p *plan, g int, before []int, ceiling Ceiling) error {
	if err := c.checkParents(g, p.active, ceiling); err != nil {
		return err
	}
	c.closeExcluded(p, g)
	if slices.Contains(p.active, g) {
		return nil
	}
	p.open(g)
	return c.checkQuota(g, p.active, before)
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

// missing returns the ancestors that must be opened before g, in order. On a cycle they include g, which never opens.
func (c *catalogue) missing(g int, active []int) []int {
	return slices.DeleteFunc(c.ancestors(g), func(a int) bool { return a != g && slices.Contains(active, a) })
}

// open appends g to the plan's groups: tools are listed in this order, and those listed already must keep their positions.
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

// planSet plans that exactly the requested groups are open. A group that the ceiling does not grant stays as it is,
// unless a requested group excludes it.
func (c *catalogue) planSet(p *plan, requested []int, ceiling Ceiling) error {
	before := p.active
	wanted := slices.Clone(requested) // and the open groups that the ceiling does not grant
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
			c.closeExcluded(p, g)
			p.open(g)
		}
	}
	if len(p.opening) > 0 { // the quota is that of all open groups; the error names the last
		return c.checkQuota(p.opening[len(p.opening)-1], p.active, before)
	}
	return nil
}

func (c *catalogue) excludes(g, other int) bool {
	return slices.ContainsFunc(c.groups[g].exclusive, func(set []int) bool { return slices.Contains(set, other) })
}

// closeExcluded closes the groups that g excludes.
func (c *catalogue) closeExcluded(p *plan, g int) {
	for _, others := range c.groups[g].exclusive {
		for _, o := range others {
			c.close(p, o)
		}
	}
}

// parentsFirst sorts groups in order of registration, except that every group follows its parents.
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

// A usage is what quotas limit.
type usage struct{ tools, groups, bytes int }

// usageOf returns the usage of the open groups; tools and bytes only if they have a quota. A tool in two groups counts
// once. Tools that a phase or a predicate hides count, since they may appear without a transition.
func (c *catalogue) usageOf(active []int) usage {
	u := usage{groups: len(active)}
	if c.cfg.MaxTools == 0 && c.cfg.MaxBytes == 0 {
		return u
	}
	for n, g := range active {
		for _, e := range c.groups[g].entries {
			if !e.alsoIn(active[:n]) {
				u.tools++
				u.bytes += definitionSize(e.tool.Info())
			}
		}
	}
	return u
}

// overQuota returns the error, without its Group, for the first quota that a transition exceeds, or nil. Without
// looseQuota, a quota that was exceeded before the transition may stay exceeded, but not by more.
func (c *catalogue) overQuota(now, before usage) *GroupError {
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
	e := c.overQuota(c.usageOf(active), c.usageOf(before))
	if e == nil {
		return nil
	}
	e.Group = c.groups[g].Name
	e.alone = c.overQuota(c.usageOf(append(c.ancestors(g), g)), usage{}) != nil
	return e
}

// runHooks runs the plan's hooks: OnDeactivate, children before parents, then OnActivate, parents before children.
// It stops at the first error. With Config.Compensate it then runs the opposite of each hook that has run, last first,
// even if the context has ended.
func (c *catalogue) runHooks(ctx context.Context, p plan) error {
	type hookStep struct {
		group     int
		run, undo func(context.Context) error
	}
	var steps []hookStep
	for _, g := range p.closing {
		steps = append(steps, hookStep{g, c.groups[g].OnDeactivate, c.groups[g].OnActivate})
	}
	for _, g := range p.opening {
		steps = append(steps, hookStep{g, c.groups[g].OnActivate, c.groups[g].OnDeactivate})
	}
	steps = slices.DeleteFunc(steps, func(st hookStep) bool { return st.run == nil })
	for n, st := range steps {
		err := call(ctx, st.run)
		if err == nil {
			continue
		}
		if c.cfg.Compensate {
			ctx = context.WithoutCancel(ctx)
			for _, done := range slices.Backward(steps[:n]) {
				if undoErr := call(ctx, done.undo); undoErr != nil {
					err = fmt.Errorf("%w; undoing also failed: %w", err, undoErr)
				}
			}
		}
		return &GroupError{Group: c.groups[st.group].Name, Reason: ReasonHookFailed, Err: err}
	}
	return nil
}

// call runs a hook, which may be nil, and returns a panic as an error: a bug in a hook must not end the process.
func call(ctx context.Context, hook func(context.Context) error) (err error) {
	if hook == nil {
		return nil
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the hook panicked: %v", r)
		}
	}()
	if err = hook(ctx); err != nil {
		_ = err.Error() // may panic, as for a nil pointer
	}
	return err
}
