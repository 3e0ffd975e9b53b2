package toolkit

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// rules are the decisions in which presets differ. Zero values are kitbag's own rules.
type rules struct {
	control    *Control // if the configuration has none; nil means ResetTools
	labelsOnly bool     // see Config.LabelsOnly
	order      listOrder
	sameName   sameName
	parents    parentRule
	ungrouped  ungroupedRule

	// defaultLabel is the label of ungrouped tools, and what an unset ceiling grants.
	// If it is empty, ungrouped tools have the label "basic" and an unset ceiling grants everything.
	defaultLabel string

	// toolLabels makes ungrouped tools members of the groups that they name themselves; see [Wags] and [MCP].
	// Labels without a group are ignored. Anyone who provides a tool can then put it into any group.
	toolLabels bool

	pathNames       bool // a group's name starts with its parent's and a dot, a tool's with its group's
	replaceControls bool // a tool may replace the control tool with its name
	opaque          bool // a hidden tool looks like one that does not exist
	offsetCursors   bool // cursors of View.Page are decimal positions
	everyTransition bool // a transition is reported even if the visible tools stay the same
	quietUpdates    bool // changes of the catalogue are reported only by Toolkit.Refresh
	looseQuota      bool // initial groups may exceed quotas; no group can be opened then
	quietRefusals   bool // enable_tools and disable_tools succeed even if no group is named or every group is refused
}

// lenient reports whether refusals are quiet. The rules are nil while the first catalogue is built.
func (r *rules) lenient() bool { return r != nil && r.quietRefusals }

// A listOrder is the order in which tools are listed.
type listOrder uint8

const (
	byActivation   listOrder = iota // in which the tools' groups were opened, so that opening a group only appends
	byRegistration                  // in which the tools were registered
	byName
)

// A sameName says what happens when a tool has the name of an earlier one.
type sameName uint8

const (
	refused       sameName = iota
	laterShadows           // the later tool hides the earlier while both are visible
	laterReplaces          // the later tool replaces the earlier
)

// A parentRule says what it means that a group has parents.
type parentRule uint8

const (
	parentGates    parentRule = iota // all parents must be open to open the group
	gateWithCycles                   // like parentGates, but a group may be its own ancestor and then never opens
	parentContains                   // Toolkit.Select includes the group with its parents; unknown parents are allowed
)

// An ungroupedRule says whether tools in no named group are visible.
type ungroupedRule uint8

const (
	alwaysListed    ungroupedRule = iota
	hiddenUngrouped               // they are not visible
	unlabelled                    // always listed, and granted only by "*" or an unset ceiling
)

// basicLabel is the label of the tools of the basic group, by which a ceiling
// grants them, unless the preset has another.
const basicLabel = "basic"

func (r *rules) basicLabel() string { return cmp.Or(r.defaultLabel, basicLabel) }

func (r *rules) grants(ceiling Ceiling, labels []string) bool {
	if ceiling.isSet {
		return ceiling.grants(labels)
	}
	return r.defaultLabel == "" || slices.Contains(labels, r.defaultLabel)
}

// sort sorts visible tools, which are in order of activation, into the order in which they are listed.
func (r *rules) sort(entries []*entry) {
	switch r.order {
	case byName:
		slices.SortFunc(entries, func(a, b *entry) int { return strings.Compare(a.name, b.name) })
	case byRegistration:
		slices.SortFunc(entries, func(a, b *entry) int { return int(a.seq - b.seq) })
	}
}

// checkPath checks the name of a tool if names are paths: the part before the
// last dot is its group, or a group below which it is always visible.
func (r *rules) checkPath(name, group string, exists func(group string) bool) error {
	dot := strings.LastIndexByte(name, '.')
	switch {
	case !r.pathNames:
		return nil
	case strings.TrimSpace(name[dot+1:]) == "":
		return errors.New("the last part of the name, which is a path, is empty")
	case dot < 0 && group == "":
		return nil
	case dot < 0:
		return fmt.Errorf("the name must start with %q", group+".")
	case group != "" && name[:dot] != group:
		return fmt.Errorf("the name must start with %q and have no further dot", group+".")
	case !exists(name[:dot]):
		return fmt.Errorf("group %q does not exist; add it or rename the tool", name[:dot])
	}
	return nil
}

// cursor returns the cursor of the page after the item at position at, which has the given name.
func (r *rules) cursor(at int, name string) string {
	if r.offsetCursors {
		return strconv.Itoa(at + 1)
	}
	return base64.RawURLEncoding.EncodeToString([]byte(name))
}

// start returns the position after the cursor in a list of names. Between two pages a sorted list may change; any
// other list may change only after the cursor's item.
func (r *rules) start(cursor string, names []string) (int, error) {
	badCursor := fmt.Errorf("cursor %q: %w", cursor, ErrCursor)
	if r.offsetCursors {
		at, err := strconv.Atoi(cursor)
		if err != nil || at < 0 || at > len(names) {
			return 0, badCursor
		}
		return at, nil
	}
	last, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return 0, badCursor
	}
	if at := slices.Index(names, string(last)); at >= 0 {
		return at + 1, nil
	}
	if !slices.IsSorted(names) {
		return 0, badCursor
	}
	at, _ := slices.BinarySearch(names, string(last))
	return at, nil
}
